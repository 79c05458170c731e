//! Signals while there is a job: to it and its group, exactly once, and no more than that.

use std::time::Duration;

use nix::libc;
use nix::sys::signal::Signal::{SIGKILL, SIGSTOP, SIGTERM};

use crate::support::jobs::{KEY, holding, sh};
use crate::support::wait::SOON;
use crate::support::{Run, Running, Server, wait_until};

/// A bash job that says which signals it gets, one line each, until it gets USR2 twice.
const REPORTS: &str = "exec 2>/dev/null; for s in HUP INT QUIT TERM USR1 ALRM WINCH RTMIN RTMIN+3; do trap \"echo got $s\" $s; done; \
     trap 'echo got USR2; n=$((n+1))' USR2; echo ready; while [ \"${n:-0}\" -lt 2 ]; do sleep 0.02; done; exit 0";

/// `REPORTS` under the lock, once its traps are set.
fn reporting(server: &Server) -> Running {
    let args = ["--key", KEY, "--", "bash", "-c", REPORTS];
    let mut run = Run::on(server, args).spawn();
    run.wait_for_stdout("ready\n");
    run
}

fn send(run: &Running, signal: i32) {
    // SAFETY: kill(2) with the pid of a child that is not reaped yet.
    unsafe { libc::kill(run.pid(), signal) };
}

#[test]
fn each_signal_reaches_the_job_exactly_once() {
    let server = Server::start();
    let mut run = reporting(&server);
    let signals = [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("TERM", libc::SIGTERM),
        ("USR1", libc::SIGUSR1),
        ("ALRM", libc::SIGALRM),
        ("WINCH", libc::SIGWINCH),
        ("RTMIN", libc::SIGRTMIN()),
        ("RTMIN+3", libc::SIGRTMIN() + 3),
        ("USR2", libc::SIGUSR2),
    ];
    let mut wanted = String::from("ready\n");
    for (name, number) in signals {
        send(&run, number);
        let line = format!("got {name}\n");
        run.wait_for_stdout(&line);
        wanted += &line;
    }
    // USR2 again ends the job: whatever had been sent twice would stand before it.
    send(&run, libc::SIGUSR2);
    wanted += "got USR2\n";
    run.finish().stdout(wanted).expect_status(0);
}

#[test]
fn a_forwarded_signal_reaches_the_jobs_whole_group() {
    let server = Server::start();
    // The subshell resets the outer trap, which must be there before anything is ready.
    let script = "exec 2>/dev/null; trap 'echo outer; wait; exit 0' TERM; \
                  (trap 'echo inner; exit 0' TERM; echo ready; while :; do sleep 0.02; done) & \
                  while :; do sleep 0.02; done";
    let mut run = sh(&server, &[], script).spawn();
    run.wait_for_stdout("ready\n");
    run.signal(SIGTERM);
    run.finish().stdout_contains("inner\n").stdout_contains("outer\n").expect_status(0);
}

#[test]
fn a_job_that_outlives_a_forwarded_term_is_not_killed() {
    let server = Server::start();
    let script =
        "exec 2>/dev/null; trap 'sleep 1.5; echo done; exit 0' TERM; echo $$; while :; do sleep 0.02; done";
    let mut run = sh(&server, &["--kill-after", "200ms"], script).spawn();
    run.job();
    run.signal(SIGTERM);
    run.finish().stdout_contains("done\n").expect_status(0);
}

#[test]
fn a_stopped_job_is_continued_so_that_it_can_end() {
    let server = Server::start();
    let mut run = holding(&server, &[]);
    let job = run.job();
    job.signal(SIGSTOP);
    wait_until("the job is stopped", SOON, || job.state() == 'T');
    run.signal(SIGTERM);
    run.finish().any_output().expect_signal(SIGTERM);
    assert!(!server.redis.exists(KEY));
}

/// tiian/flom#15: a renewer outlived its holder, and the lock never became free.
#[test]
fn nothing_that_extends_the_lock_outlives_a_killed_wrapper() {
    let server = Server::start();
    let run = holding(&server, &["--ttl", "1s"]);
    run.signal(SIGKILL);
    // Twice the lease and the noise of a busy machine.
    wait_until("the lease runs out", Duration::from_secs(5), || !server.redis.exists(KEY));
}
