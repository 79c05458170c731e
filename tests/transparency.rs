//! From inside the job nobody can tell that it is wrapped: what was ignored or blocked stays so, and
//! the caller's other children are no business of ours.

use std::time::Duration;

use nix::sys::signal::Signal::{SIGHUP, SIGKILL, SIGTERM};

use crate::support::jobs::KEY;
use crate::support::run::PROGRAM;
use crate::support::wait::stays;
use crate::support::{Process, Run, Server};

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
