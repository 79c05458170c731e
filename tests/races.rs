//! Signals that come at the worst moment: while the job is being started, while it exits, while the
//! lock is given back; from the job itself; and the many that nobody thinks of.
//!
//! Signals while the lock is waited for, and at random moments of an acquisition: `interrupts`.

use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::Signal::{self, SIGCONT, SIGHUP, SIGINT, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};

use crate::support::jobs::{Gate, KEY, QUEUES, SLEEPS, sh};
use crate::support::nest::{WITNESS, guard_of, sleeps, untouched};
use crate::support::tools;
use crate::support::wait::{SOON, stays};
use crate::support::{Nest, Process, Run, Running, Server, proc, stalls, wait_until};

/// The bits of a mask in `/proc/PID/status`: signal N is bit N − 1.
fn mask(process: &Process, name: &str) -> u64 {
    let text = proc::status_field(process.pid, name).unwrap_or_default();
    u64::from_str_radix(&text, 16).unwrap_or(0)
}

// While the job is started.

/// The job is not yet what it will be when the guard has a child: signals that come now are the
/// job's, before it has executed anything and after.
#[test]
fn no_signal_is_lost_while_the_job_is_started() {
    let server = Server::start();
    let signals = [SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2];
    for number in 0..60_usize {
        let signal = signals[number % signals.len()];
        let mut run = sh(&server, &[], "exec sleep 600").spawn();
        let wrapper = run.wrapper();
        let guard = guard_of(&wrapper);
        wait_until("the job is forked", SOON, || !proc::children(guard.pid).is_empty());
        // And in the milliseconds after it, in steps: there is no condition between fork and exec.
        thread::sleep(Duration::from_micros(100) * u32::try_from(number / signals.len()).expect("small"));
        run.signal(signal);
        run.finish().expect_signal(signal);
        assert!(!server.redis.exists(KEY));
    }
}

/// Blocked by the caller, so blocked in the job: it waits there until the job wants it.
#[test]
fn a_signal_that_the_job_was_started_with_blocked_waits_for_it() {
    let server = Server::start();
    let nest = Nest::new();
    let args = ["--block-signal=TERM", "redlock-run", "--key", KEY, "sleep", "600"];
    let run = Run::of("env", args).env("REDLOCK_RUN_URL", server.url()).in_dir(nest.dir()).spawn();
    let job = nest.one("sleep");
    run.signal(SIGTERM);
    wait_until("it waits in the job", SOON, || mask(&job, "ShdPnd") == 1 << 14);
    sleeps(&job);
}

#[test]
fn a_signal_that_was_ignored_at_the_start_is_nobodys() {
    let server = Server::start();
    let nest = Nest::new();
    let line = "trap '' USR1 INT; exec redlock-run --key job sleep 600";
    let mut run = Run::of("sh", ["-c", line]).env("REDLOCK_RUN_URL", server.url()).in_dir(nest.dir()).spawn();
    let job = nest.one("sleep");
    run.signal(SIGUSR1);
    run.signal(SIGINT);
    // TERM comes after them: had they ended anything, the death would be theirs.
    run.signal(SIGTERM);
    run.finish().expect_signal(SIGTERM);
    assert!(job.is_dead());
}

// While the job exits.

/// A leader that exits in a storm of TERM which it ignores: whatever of the storm meets the wrapper
/// before, while or after the job ends, the status is the job's.
#[test]
fn a_storm_of_signals_around_the_jobs_exit_changes_no_status() {
    let server = Server::start();
    for number in 0..30_u8 {
        let gate = Gate::new(&server);
        let script = format!("trap '' TERM INT HUP USR1; echo ready; {}; exit 7", gate.wait());
        let mut run = sh(&server, &["--ttl", "5s"], &script).spawn();
        run.wait_for_stdout("ready\n");
        let wrapper = run.wrapper();
        let signals = [SIGTERM, SIGINT, SIGHUP, SIGUSR1];
        let signal = signals[usize::from(number) % signals.len()];
        gate.open();
        while !wrapper.is_dead() {
            wrapper.signal(signal);
        }
        let outcome = run.finish();
        outcome.check(outcome.code() == Some(7), "the job's status");
        std::fs::remove_file(server.dir().join("gate")).expect("the gate");
        // Two of the storm may have cut a release short; then the lock runs out.
        server.redis.tell(&["DEL", KEY]);
    }
}

/// The same for a job that dies of a signal.
#[test]
fn a_storm_of_signals_around_the_jobs_death_changes_no_status() {
    let server = Server::start();
    for _ in 0..20 {
        let gate = Gate::new(&server);
        let script = format!("trap '' TERM; echo ready; {}; kill -USR2 $$", gate.wait());
        let mut run = sh(&server, &["--ttl", "5s"], &script).spawn();
        run.wait_for_stdout("ready\n");
        let wrapper = run.wrapper();
        gate.open();
        while !wrapper.is_dead() {
            wrapper.signal(SIGTERM);
        }
        run.finish().any_output().expect_signal(SIGUSR2);
        std::fs::remove_file(server.dir().join("gate")).expect("the gate");
        server.redis.tell(&["DEL", KEY]);
    }
}

// While the lock is given back.

/// A job that has ended with 3 under a Redis that was stopped before: its release hangs for 2 s.
fn releasing(server: &Server, asked: Option<Signal>) -> (Running, Instant) {
    let gate = Gate::new(server);
    let script = format!("trap 'exit 3' TERM; echo $$; {}; exit 3", gate.wait());
    let mut run = sh(server, &["--ttl", "60s"], &script).spawn();
    let job = run.job();
    server.pause();
    match asked {
        Some(signal) => run.signal(signal),
        None => gate.open(),
    }
    wait_until("the job is over", SOON, || job.stat().is_none());
    (run, Instant::now())
}

/// Waits until the wrapper has taken a signal that was sent to it.
fn until_taken(run: &Running) {
    let wrapper = run.wrapper();
    wait_until("the signal is taken", SOON, || wrapper.is_dead() || mask(&wrapper, "ShdPnd") == 0);
}

/// A release has 2 s: half of that tells "at once" from "in the end".
const AT_ONCE: Duration = Duration::from_secs(1);

#[test]
fn one_signal_does_not_end_a_hanging_release() {
    for signal in [SIGTERM, SIGINT] {
        let server = Server::start();
        let (mut run, since) = releasing(&server, None);
        run.signal(signal);
        let outcome = run.finish();
        assert!(since.elapsed() >= AT_ONCE, "gave up after {:?}", since.elapsed());
        outcome.stdout(run.stdout_so_far()).stderr_contains("could not release").expect_status(3);
    }
}

#[test]
fn a_second_signal_ends_a_hanging_release_at_once() {
    for signals in [[SIGTERM, SIGTERM], [SIGINT, SIGINT], [SIGINT, SIGTERM]] {
        let server = Server::start();
        let (mut run, since) = releasing(&server, None);
        for signal in signals {
            run.signal(signal);
            until_taken(&run);
        }
        let outcome = run.finish();
        stalls::assert_within("the end", since, AT_ONCE);
        outcome.stdout(run.stdout_so_far()).stderr_contains("gave up releasing").expect_status(3);
    }
}

/// ^C ends the job, and ^C again the release: the second of two.
#[test]
fn the_signal_after_the_one_that_ended_the_job_ends_a_hanging_release_at_once() {
    let server = Server::start();
    let (mut run, since) = releasing(&server, Some(SIGTERM));
    run.signal(SIGTERM);
    let outcome = run.finish();
    stalls::assert_within("the end", since, AT_ONCE);
    outcome.stdout(run.stdout_so_far()).stderr_contains("gave up releasing").expect_status(3);
}

#[test]
fn signals_that_ask_for_nothing_do_not_end_a_hanging_release() {
    let server = Server::start();
    let (mut run, since) = releasing(&server, None);
    for signal in [Signal::SIGWINCH, SIGCONT, Signal::SIGCHLD, Signal::SIGURG] {
        run.signal(signal);
        until_taken(&run);
    }
    let outcome = run.finish();
    assert!(since.elapsed() >= AT_ONCE, "gave up after {:?}", since.elapsed());
    outcome.stdout(run.stdout_so_far()).stderr_contains("could not release").expect_status(3);
}

/// Two at once while the job still runs say nothing about a release that does not hang.
#[test]
fn two_signals_to_the_job_do_not_cost_the_release() {
    let server = Server::start();
    let script =
        "trap 'n=$((n+1)); echo got $n' TERM; echo $$; until [ \"$n\" = 2 ]; do sleep 0.02; done; exit 3";
    let mut run = sh(&server, &[], &format!("exec 2>/dev/null; {script}")).spawn();
    run.job();
    for number in 1..=2 {
        run.signal(SIGTERM);
        run.wait_for_stdout(&format!("got {number}\n"));
    }
    run.finish().any_output().expect_status(3);
    assert!(!server.redis.exists(KEY));
}

/// As editors do, which put the terminal in order first.
#[test]
fn a_job_that_stops_itself_by_its_own_means_when_asked_stops_the_run() {
    let server = Server::start();
    let nest = Nest::new();
    // A sleep would be stopped too, and the shell wait for it.
    let script = "trap 'kill -STOP $$' TSTP; echo $$; while :; do :; done";
    let mut run = sh(&server, &[], script).in_dir(nest.dir()).resumable().spawn();
    let (job, wrapper) = (run.job(), run.wrapper());
    run.signal(SIGTSTP);
    wait_until("both are stopped", SOON, || job.state() == 'T' && wrapper.state() == 'T');
    run.signal(SIGCONT);
    wait_until("both go on", SOON, || job.state() != 'T' && wrapper.state() != 'T');
    run.signal(SIGTERM);
    run.finish().any_output().expect_signal(SIGTERM);
}

/// The TSTP was passed on and came to nothing. A STOP that somebody sends to the job alone is another matter:
/// the lock of a run that stops with it would be lost.
#[test]
fn a_stop_signal_that_the_job_ignores_is_forgotten() {
    let server = Server::start();
    let nest = Nest::new();
    let script = "trap '' TSTP; trap 'echo got usr1' USR1; echo $$; while :; do sleep 0.02; done";
    let mut run = sh(&server, &[], script).in_dir(nest.dir()).resumable().spawn();
    let (job, wrapper) = (run.job(), run.wrapper());
    run.signal(SIGTSTP);
    run.signal(SIGUSR1);
    run.wait_for_stdout("got usr1");
    job.signal(SIGSTOP);
    wait_until("the job is stopped", SOON, || job.state() == 'T');
    stays("the run is not", Duration::from_millis(300), || wrapper.state() != 'T');
    run.signal(SIGTERM);
    run.finish().any_output().expect_signal(SIGTERM);
}

// From the job itself.

#[test]
fn a_job_that_signals_its_parent_meets_nobody() {
    let server = Server::start();
    for signal in ["TERM", "INT", "HUP", "USR1", "QUIT", "ALRM"] {
        let script = format!("kill -{signal} $PPID; kill -0 $PPID && exit 6");
        sh(&server, &[], &script).finish().expect_status(6);
    }
}

/// The wrapper's pid is the parent's parent. What the job sends there is not sent back to it.
#[test]
fn a_signal_that_the_job_sends_to_the_wrapper_does_not_come_back() {
    let server = Server::start();
    // The job must still be there when something comes back, and nobody announces that nothing
    // does: so it waits for half a second.
    let script = "trap 'echo back' TERM USR1; read -r _ _ _ wrapper _ </proc/$PPID/stat; \
                  kill -TERM $wrapper; kill -USR1 $wrapper; echo sent; sleep 0.5; exit 5";
    sh(&server, &[], script).finish().stdout("sent\n").expect_status(5);
}

/// Its group is its own where there is no terminal.
#[test]
fn a_job_that_signals_its_group_meets_only_itself() {
    let server = Server::start();
    let nest = Nest::new();
    let line = format!("{WITNESS} & redlock-run --key job sh -c 'kill -TERM 0; sleep 600'; echo $?; wait");
    let mut run =
        Run::of("sh", ["-c", &line]).env("REDLOCK_RUN_URL", server.url()).in_dir(nest.dir()).spawn();
    run.wait_for_stdout("143\n");
    untouched(&nest.one("sleep"));
}

#[test]
fn a_job_that_stops_its_parent_goes_on_under_its_lock() {
    let server = Server::start();
    let script = "kill -STOP $PPID; sleep 4; exit 5";
    sh(&server, &["--ttl", "3s"], script).finish().expect_status(5);
}

#[test]
fn a_job_that_kills_its_parent_is_ended_and_its_lock_released() {
    let server = Server::start();
    let nest = Nest::new();
    let script = "setsid sh -c 'echo >there; exec tail -f /dev/null' & \
                  until [ -s there ]; do sleep 0.02; done; kill -KILL $PPID; sleep 600";
    let run = sh(&server, &["--ttl", "60s"], script).in_dir(nest.dir());
    let outcome = run.finish();
    outcome.check(outcome.code() != Some(0), "no success");
    outcome.check(outcome.stderr_text().contains("guard"), "a line that says why");
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
    assert!(!server.redis.exists(KEY));
}

// All the others.

#[test]
fn every_real_time_signal_reaches_the_job_and_its_death_of_it_is_ours() {
    let server = Server::start();
    for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
        let mut run = sh(&server, &[], SLEEPS).spawn();
        let job = run.job();
        run.wrapper().signal_number(signal);
        run.finish().any_output().expect_signal_number(signal);
        assert!(job.is_dead());
        assert!(!server.redis.exists(KEY));
    }
}

/// Real-time signals queue: each one sent is one received.
#[test]
fn real_time_signals_are_neither_merged_nor_doubled() {
    let Some(python) = tools::python("real_time_signals_are_neither_merged_nor_doubled") else { return };
    let server = Server::start();
    let mut run = Run::on(&server, ["--key", KEY, &python, "-c", QUEUES]).spawn();
    run.wait_for_stdout("ready\n");
    let wrapper = run.wrapper();
    for _ in 0..20 {
        wrapper.signal_number(libc::SIGRTMIN() + 5);
    }
    wrapper.signal_number(libc::SIGRTMIN() + 6);
    run.finish().stdout("ready\ncount=20\n").expect_status(0);
}

#[test]
fn a_signal_for_every_purpose_reaches_a_job_that_dies_of_it() {
    let server = Server::start();
    let signals = [
        Signal::SIGALRM,
        Signal::SIGVTALRM,
        Signal::SIGPROF,
        Signal::SIGIO,
        Signal::SIGXCPU,
        Signal::SIGXFSZ,
        Signal::SIGTRAP,
        Signal::SIGABRT,
        Signal::SIGSYS,
        Signal::SIGSTKFLT,
        Signal::SIGPWR,
        Signal::SIGPIPE,
    ];
    for signal in signals {
        let mut run = sh(&server, &[], &format!("ulimit -c 0; {SLEEPS}")).spawn();
        run.job();
        run.signal(signal);
        run.finish().any_output().expect_signal(signal);
        assert!(!server.redis.exists(KEY));
    }
}

/// As `kill -TERM -PGID` does, and an administrator who stops "the whole group".
#[test]
fn a_signal_to_the_callers_group_reaches_the_job_once() {
    let server = Server::start();
    let nest = Nest::new();
    let script = "exec 2>/dev/null; trap 'echo term' TERM; trap 'echo end; exit 3' USR2; echo ready; \
                  while :; do sleep 0.02; done";
    let args = ["redlock-run", "--key", KEY, "sh", "-c", script];
    let mut run = Run::of("setsid", args).env("REDLOCK_RUN_URL", server.url()).in_dir(nest.dir()).spawn();
    run.wait_for_stdout("ready\n");
    let wrapper = nest.one("redlock-run");
    let group = wrapper.stat().expect("it runs").pgrp;
    assert_eq!(group, wrapper.pid);
    // SAFETY: kill(2) touches no memory; the group is the run's own.
    unsafe { libc::kill(-group, libc::SIGTERM) };
    run.wait_for_stdout("term\n");
    // What the wrapper passes on, it passes on in order.
    wrapper.signal(SIGUSR2);
    run.wait_for_stdout("end\n");
    assert_eq!(run.stdout_so_far(), "ready\nterm\nend\n");
}

/// Without a terminal nobody presses ^Z, but somebody may send what it sends, and resume it.
#[test]
fn a_stop_signal_stops_job_and_run_and_cont_lets_both_go_on() {
    let server = Server::start();
    let nest = Nest::new();
    let mut run = sh(&server, &[], SLEEPS).in_dir(nest.dir()).resumable().spawn();
    let (wrapper, job) = (run.wrapper(), run.job());
    for _ in 0..3 {
        run.signal(SIGTSTP);
        wait_until("both are stopped", SOON, || job.state() == 'T' && wrapper.state() == 'T');
        run.signal(SIGCONT);
        wait_until("both go on", SOON, || job.state() == 'S' && wrapper.state() == 'S');
    }
    run.signal(SIGTERM);
    run.finish().any_output().expect_signal(SIGTERM);
}

/// cron, a daemon, `setsid`: the kernel discards what a terminal would stop a direct run with, whoever sends
/// it, since it would stand still for ever.
#[test]
fn a_stop_signal_stops_nothing_where_nobody_could_resume_it() {
    let script = "for signal in TSTP TTIN TTOU; do kill -$signal $$; done
                  trap 'kill $! 2>/dev/null; echo goes on; exit 7' USR1; sleep 600 & echo ready; wait";
    let server = Server::start();
    let nest = Nest::new();
    nest.script("job", script);
    let run = |line: &str| {
        let run = Run::of("setsid", ["sh", "-c", line]).env("REDLOCK_RUN_URL", server.url());
        let mut run = run.in_dir(nest.dir()).spawn();
        run.wait_for_stdout("ready\n");
        run
    };
    for line in ["exec sh ./job", "exec redlock-run --key job sh ./job"] {
        let mut run = run(line);
        run.signal(SIGTSTP);
        run.signal(SIGUSR1);
        run.finish().stdout("ready\ngoes on\n").expect_status(7);
    }
    // Below a script that leads the session.
    let mut run = run("redlock-run --key job sh ./job; exit $?");
    let wrapper = nest.one("redlock-run");
    wrapper.signal(SIGTSTP);
    wrapper.signal(SIGUSR1);
    run.finish().stdout("ready\ngoes on\n").expect_status(7);
}
