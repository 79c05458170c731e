//! Signals: to the job exactly once while there is one; before that they end the run and leave
//! nothing behind.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::libc;
use nix::sys::signal::Signal::{self, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM};

use crate::support::jobs::{KEY, SLEEPS, holding, sh};
use crate::support::proc;
use crate::support::run::PROGRAM;
use crate::support::wait::{SOON, stays};
use crate::support::{Process, Run, Running, Server, wait_until};

const ENDING: [Signal; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];

/// "Within a second" is the promise itself.
const AT_ONCE: Duration = Duration::from_secs(1);

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

/// A run that waits for a lock of ours, with everything that could be left behind by it.
fn waiting(server: &Server) -> Running {
    let mut run = sh(server, &[], SLEEPS).spawn();
    run.wait_for_stderr("held by");
    run
}

#[test]
fn a_signal_ends_the_wait_at_once_and_leaves_nothing() {
    let server = Server::start();
    let _holder = holding(&server, &[]);
    let value = server.redis.get(KEY);
    for signal in ENDING {
        let mut run = waiting(&server);
        let sent = Instant::now();
        run.signal(signal);
        run.finish().any_output().expect_signal(signal);
        assert!(sent.elapsed() < AT_ONCE, "{signal}: {:?}", sent.elapsed());
        assert_eq!(run.stdout_so_far(), "", "the job never started");
        assert!(run.processes().is_empty());
        assert_eq!(server.redis.get(KEY), value);
    }
    let keys: Vec<String> = server.redis.query(&["KEYS", "*"]);
    let ours = |key: &String| key == KEY || key == "job:fence";
    assert!(keys.iter().all(ours), "{keys:?}");
}

#[test]
fn a_signal_ends_the_wait_for_a_dead_redis_at_once() {
    let server = Server::start();
    server.pause();
    let mut run = sh(&server, &[], SLEEPS).spawn();
    // Until it hangs in the connection: it has a socket.
    wait_until("it is connected", SOON, || {
        let files = proc::open_files(run.pid());
        files.iter().any(|(_, to)| to.to_string_lossy().starts_with("socket:"))
    });
    let sent = Instant::now();
    run.signal(SIGTERM);
    run.finish().any_output().expect_signal(SIGTERM);
    // A clean-up of the attempt on its way may take one command timeout, 1 s, more.
    assert!(sent.elapsed() < AT_ONCE * 3, "{:?}", sent.elapsed());
    server.resume();
    wait_until("the attempt is cleaned up", SOON, || !server.redis.exists(KEY));
}

#[test]
fn a_signal_in_the_moment_of_acquisition_leaves_no_child_and_no_key() {
    let server = Server::start();
    for number in 0..200 {
        let signal = ENDING[number % ENDING.len()];
        let mut run = sh(&server, &[], SLEEPS).spawn();
        // A random moment of the first 12 ms, in which a run starts, connects, acquires and
        // spawns: there is no condition that would hit the moments between.
        thread::sleep(random_below(Duration::from_millis(12)));
        let sent = Instant::now();
        run.signal(signal);
        run.finish().any_output().expect_signal(signal);
        assert!(sent.elapsed() < AT_ONCE, "{signal}: {:?}", sent.elapsed());
        wait_until("no child is left", AT_ONCE, || run.processes().is_empty());
        // What was sent in the last moment may still be on its way through the server.
        wait_until("no key is left", AT_ONCE, || !server.redis.exists(KEY));
    }
}

fn random_below(limit: Duration) -> Duration {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = clock.expect("a clock").subsec_nanos();
    limit * (nanos / 7 % 1000) / 1000
}

/// The masks of ignored, blocked and caught signals that a program sees, started by `parent`
/// (a line of shell that ends in `exec "$@"`).
fn masks(server: &Server, parent: &str, under_the_lock: bool) -> String {
    let job = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"];
    let mut args = vec!["-c", parent, "sh"];
    if under_the_lock {
        args.extend([PROGRAM, "--key", KEY, "--"]);
    }
    args.extend(job);
    let outcome = Run::of("sh", args).env("REDLOCK_RUN_URL", server.url()).finish();
    let seen = outcome.stdout_text();
    outcome.any_output().expect_status(0);
    seen
}

/// fish-shell/fish-shell#4007: a handler installed over an ignored signal.
#[test]
fn ignored_and_blocked_signals_of_the_job_are_those_of_a_direct_run() {
    let server = Server::start();
    let parents = [
        "exec \"$@\"",
        "trap '' HUP INT; exec \"$@\"",
        "trap '' PIPE; exec \"$@\"",
        "trap '' QUIT TERM USR1 CHLD; exec \"$@\"",
        "exec nohup \"$@\"",
        "exec env --block-signal=TERM,USR1 \"$@\"",
        "exec env --ignore-signal=CHLD \"$@\"",
    ];
    for parent in parents {
        let direct = masks(&server, parent, false);
        assert_eq!(masks(&server, parent, true), direct, "under {parent}");
    }
}

#[test]
fn a_hang_up_ignored_at_the_start_stays_ignored() {
    let server = Server::start();
    let line = "trap '' HUP; exec redlock-run --key job -- sh -c 'echo $$; sleep 600'";
    let mut run = Run::of("sh", ["-c", line]).env("REDLOCK_RUN_URL", server.url()).spawn();
    let job = run.job();
    run.signal(SIGHUP);
    // TERM comes after HUP: had HUP ended anything, the death would be by HUP.
    stays("both live", Duration::from_millis(300), || !job.is_dead());
    run.signal(SIGTERM);
    run.finish().any_output().expect_signal(SIGTERM);
}

#[test]
fn a_caller_that_ignores_its_children_still_learns_their_status() {
    let server = Server::start();
    let run = Run::of("env", ["--ignore-signal=CHLD", PROGRAM, "--key", KEY, "sh", "-c", "exit 7"]);
    run.env("REDLOCK_RUN_URL", server.url()).finish().expect_status(7);
}

#[test]
fn children_that_the_caller_had_before_are_never_touched() {
    let server = Server::start();
    let line = "sleep 600 & echo $!; exec redlock-run --key job -- sh -c 'echo ready; sleep 600 & wait'";
    let mut run = Run::of("sh", ["-c", line]).env("REDLOCK_RUN_URL", server.url()).spawn();
    run.wait_for_stdout("ready\n");
    let before: Process = run.job();
    run.signal(SIGTERM);
    run.finish().any_output().expect_signal(SIGTERM);
    assert!(!before.is_dead());
    before.signal(SIGKILL);
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
