//! A system that refuses: no descriptor, no memory, no room on the disk. One line with the next step, the
//! documented status, nothing left in Redis, and no job without a lock that is kept.

use crate::support::jobs::KEY;
use crate::support::{Outcome, Run, Server};

/// A job under a limit of the shell's `ulimit`.
fn limited(server: &Server, limit: &str, option: &str) -> Outcome {
    let line = format!("ulimit {limit}; exec redlock-run {option} --key {KEY} -w 200ms -- sh -c 'exit 5'");
    Run::of("sh", ["-c", &line]).env("REDLOCK_RUN_URL", server.url()).finish()
}

/// Every number of descriptors, from too few to load the program to enough: it runs out at each place
/// where one is opened.
#[test]
fn a_run_out_of_descriptors_leaves_no_lock_and_says_how_to_get_more() {
    let server = Server::start();
    for option in ["", "--no-guard"] {
        let mut refusals = 0;
        for limit in 4..20 {
            let outcome = limited(&server, &format!("-n {limit}"), option);
            let (code, text) = (outcome.code(), outcome.stderr_text());
            let refused = matches!(code, Some(69 | 71)) && text.contains("too many open files");
            outcome.check(refused || code == Some(5), "the job's status, or a refusal");
            outcome.check(
                !refused || code == Some(69) || text.contains("\nredlock-run:   hint: raise"),
                "a hint",
            );
            refusals += u32::from(refused);
            outcome.check(!server.redis.exists(KEY), "no lock is left");
            outcome.any_output().expect_status(code.expect("an exit"));
        }
        assert!(refusals >= 3, "only {refusals} limits were too low");
    }
}

/// Less and less memory, in small steps below what is enough: first the job cannot be forked, then our own
/// threads, then we do not get that far.
#[test]
fn a_run_out_of_memory_says_so_or_dies_and_starts_no_job() {
    let server = Server::start();
    let run = |kilobytes: u32| {
        let outcome = limited(&server, &format!("-v {kilobytes}"), "");
        server.redis.tell(&["DEL", KEY]);
        outcome
    };
    let enough = (3..100).map(|megabytes| megabytes * 1000).find(|limit| run(*limit).code() == Some(5));
    let enough = enough.expect("100 MB are enough");
    let mut refusals = 0;
    for limit in (enough - 1000..enough).step_by(20) {
        let outcome = run(limit);
        let text = outcome.stderr_text();
        outcome.check(!text.contains("panicked"), "no panic");
        if outcome.code() == Some(71) {
            outcome.check(text.contains("cannot allocate memory"), "the reason");
            outcome.check(text.contains("hint: free memory"), "a hint");
            outcome.check(!text.contains("renew"), "nothing of the lease");
            refusals += 1;
        }
    }
    assert!(refusals > 0, "no limit was met by an error of ours");
}

/// `/dev/full`: what was asked for could not be said.
#[test]
fn output_that_finds_no_room_is_an_error() {
    let server = Server::start();
    for asked in ["status job", "man", "completions bash", "--help"] {
        let line = format!("exec redlock-run {asked} >/dev/full");
        let outcome = Run::of("sh", ["-c", &line]).env("REDLOCK_RUN_URL", server.url()).finish();
        let line = "redlock-run: cannot write to standard output: no space left on device\n";
        outcome.stderr_contains(line).stderr_contains("hint: free space").expect_status(71);
    }
}
