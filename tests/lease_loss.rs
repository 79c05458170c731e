//! Losing the lock, or fearing so: the job is stopped in time, and the new holder is spared.

use std::time::{Duration, SystemTime};

use crate::support::jobs::{Gate, IGNORES_TERM, KEY, SLEEPS, holding, sh};
use crate::support::lease::end_of_lease;
use crate::support::wait::{SOON, stays};
use crate::support::{Mode, Process, Proxy, Run, Server, wait_until};

/// Ends with 0 when asked to, having said so.
const ENDS_CLEANLY: &str = "trap 'echo bye; exit 0' TERM; echo $$; while :; do sleep 0.02; done";

/// A run with a lease of 4 s, whose next extension comes within 0.96 s, and which stands a stall of the
/// machine for nearly 2 s.
fn started(server: &Server, options: &[&str], script: &str) -> crate::support::Running {
    let mut all = vec!["--ttl", "4s"];
    all.extend(options);
    let mut run = sh(server, &all, script).spawn();
    run.job();
    run
}

#[test]
fn a_deleted_key_stops_the_job() {
    let server = Server::start();
    let mut run = started(&server, &[], ENDS_CLEANLY);
    server.redis.tell(&["DEL", KEY]);
    let outcome = run.finish();
    let asked = outcome.stdout_text().ends_with("bye\n");
    outcome.check(asked, "a job that was asked with TERM");
    outcome
        .stdout_contains("bye")
        .stderr_contains("redlock-run: lost lock 'job' after ")
        .stderr_contains("stopping 'sh' (pid ")
        .expect_status(79);
    assert!(!server.redis.exists(KEY), "never set again");
}

#[test]
fn losing_the_lock_stops_the_job_and_spares_the_new_holder() {
    let server = Server::start();
    let mut run = started(&server, &[], ENDS_CLEANLY);
    let value =
        r#"{"token":"x","holder":"ci@runner-9","pid":7,"program":"p","since":"2026-11-30T07:02:11Z"}"#;
    server.redis.tell(&["SET", KEY, value, "PX", "60000"]);
    run.finish()
        .stdout_contains("bye")
        .stderr_contains("redlock-run: lost lock 'job' after ")
        .stderr_contains("the key now belongs to ci@runner-9")
        .expect_status(79);
    assert_eq!(server.redis.get(KEY).as_deref(), Some(value));
    // 60 s less the seconds that the test took: neither extended nor cut.
    assert!((30_000..60_000).contains(&server.redis.pttl(KEY)));
    assert!(!server.redis.exists("job:wake"), "no baton: nothing was released");
}

/// The job is dead before Redis has said who has the lock now: what is not known is not told.
#[test]
fn a_successor_that_is_not_known_is_not_invented() {
    let server = Server::start();
    let proxy = Proxy::on_socket(&server);
    let run = sh(&server, &["--ttl", "4s"], SLEEPS).env("REDLOCK_RUN_URL", proxy.url());
    let mut run = run.spawn();
    run.job();
    proxy.set(Mode::Delay(Duration::from_millis(300)));
    server.redis.tell(&["SET", KEY, "foreign"]);
    let outcome = run.finish();
    let text = outcome.stderr_text();
    outcome.check(text.contains("the key is not ours any more; stopping"), "what is known");
    outcome.any_output().expect_status(79);
}

#[test]
fn a_key_that_became_something_else_is_a_lost_lock() {
    let server = Server::start();
    let mut run = started(&server, &[], ENDS_CLEANLY);
    server.redis.tell(&["DEL", KEY]);
    server.redis.tell(&["RPUSH", KEY, "x"]);
    run.finish().stdout_contains("bye").stderr_contains("lost lock 'job'").expect_status(79);
    assert_eq!(server.redis.query::<u64>(&["LLEN", KEY]), 1);
}

#[test]
fn a_job_that_ignores_term_is_killed_after_the_grace() {
    let server = Server::start();
    let mut run = started(&server, &[], IGNORES_TERM);
    server.redis.tell(&["DEL", KEY]);
    run.finish().any_output().within(Duration::from_secs(15)).expect_status(79);
    assert!(run.processes().is_empty());
}

#[test]
fn a_job_that_cleans_up_within_the_grace_is_not_killed() {
    let server = Server::start();
    // The grace is a quarter of the lease, 2 s: the clean-up takes a tenth of it.
    let script = "trap 'sleep 0.2; echo clean; exit 5' TERM; echo $$; while :; do sleep 0.02; done";
    let mut run = sh(&server, &["--ttl", "8s"], script).spawn();
    run.job();
    server.redis.tell(&["DEL", KEY]);
    run.finish()
        .stdout_contains("clean")
        .stderr_contains("lost lock 'job'")
        .stderr_contains("5")
        .expect_status(79);
}

#[test]
fn with_kill_after_zero_term_and_kill_come_together() {
    let server = Server::start();
    let script = "trap 'sleep 1; echo late' TERM; echo $$; while :; do sleep 0.02; done";
    let mut run = started(&server, &["--kill-after", "0"], script);
    server.redis.tell(&["DEL", KEY]);
    let outcome = run.finish();
    let late = outcome.stdout_text().contains("late");
    outcome.check(!late, "no time to clean up");
    outcome.any_output().expect_status(79);
}

#[test]
fn the_first_signal_is_the_one_asked_for() {
    let server = Server::start();
    let script = "trap 'echo usr1; exit 0' USR1; echo $$; while :; do sleep 0.02; done";
    let mut run = started(&server, &["--signal", "USR1"], script);
    server.redis.tell(&["DEL", KEY]);
    run.finish().stdout_contains("usr1").stderr_contains("lost lock 'job'").expect_status(79);
}

/// Ends the job only after the key was changed, with a lease so long that only the release
/// can notice.
fn noticed_at_the_release(change: &[&str], script_end: &str, status: i32) -> Server {
    let server = Server::start();
    let gate = Gate::new(&server);
    let script = format!("echo $$; {}; {script_end}", gate.wait());
    let mut run = sh(&server, &["--ttl", "30m"], &script).spawn();
    run.job();
    server.redis.tell(change);
    gate.open();
    run.finish().stdout(run.stdout_so_far()).stderr_contains("lost").expect_status(status);
    server
}

#[test]
fn a_success_without_the_lock_is_no_success() {
    noticed_at_the_release(&["DEL", KEY], "exit 0", 79);
}

/// langgenius/dify#32297: the release's trouble hid the job's own failure.
#[test]
fn a_lost_lock_does_not_hide_the_jobs_own_failure() {
    noticed_at_the_release(&["DEL", KEY], "exit 3", 3);
}

#[test]
fn the_release_never_deletes_a_foreign_value() {
    let server = noticed_at_the_release(&["SET", KEY, "foreign"], "exit 0", 79);
    assert_eq!(server.redis.get(KEY).as_deref(), Some("foreign"));
}

/// Under `--on-lost warn` the job runs to its own end after a definite loss.
fn warned(script_end: &str, status: i32) {
    let server = Server::start();
    let gate = Gate::new(&server);
    let script = format!("trap 'echo term' TERM; echo $$; {}; {script_end}", gate.wait());
    let mut run = started(&server, &["--on-lost", "warn"], &script);
    server.redis.tell(&["SET", KEY, "foreign"]);
    run.wait_for_stderr("lost lock 'job'");
    gate.open();
    let outcome = run.finish();
    outcome.check(outcome.stdout_text().lines().count() == 1, "no TERM");
    let lines = outcome.stderr_text().lines().count();
    outcome.check(lines == 1, "one line");
    outcome.any_output().expect_status(status);
    assert_eq!(server.redis.get(KEY).as_deref(), Some("foreign"));
}

#[test]
fn with_on_lost_warn_a_job_that_succeeds_gives_79() {
    warned("exit 0", 79);
}

#[test]
fn with_on_lost_warn_a_job_that_fails_keeps_its_status() {
    warned("exit 4", 4);
}

#[test]
fn with_on_lost_warn_an_outage_longer_than_the_lease_stops_nothing() {
    let mut server = Server::start();
    let gate = Gate::new(&server);
    let script = format!("trap 'echo term' TERM; echo $$; {}", gate.wait());
    let mut run = sh(&server, &["--on-lost", "warn", "--ttl", "1s"], &script).spawn();
    let job = run.job();
    server.kill();
    run.wait_for_stderr("job");
    // A second lease's length on purpose: nothing must happen in it.
    stays("the job lives", Duration::from_secs(2), || !job.is_dead());
    gate.open();
    let outcome = run.finish();
    outcome.check(outcome.stdout_text().lines().count() == 1, "no TERM");
    outcome.any_output().expect_status(79);
}

/// The job goes on, so its lock is worth saving for as long as the key is there.
#[test]
fn with_on_lost_warn_the_lock_is_renewed_also_after_the_moment_of_a_term() {
    let server = Server::start();
    let (gate, proxy) = (Gate::new(&server), Proxy::on_socket(&server));
    let script = format!("trap 'echo term' TERM; echo $$; {}", gate.wait());
    let options = ["--on-lost", "warn", "-v", "--ttl", "10s", "--kill-after", "5s"];
    let mut run = sh(&server, &options, &script).env("REDLOCK_RUN_URL", proxy.url()).spawn();
    run.job();
    proxy.set(Mode::BlackHole);
    // TERM would come (102 + 250 + 5000) ms before the end.
    let left = (end_of_lease(&server) - Duration::from_millis(5352)).duration_since(SystemTime::now());
    let left = left.unwrap_or_default() + Duration::from_millis(500);
    stays("nothing is heard", left, || true);
    proxy.set(Mode::Delay(Duration::from_millis(20)));
    run.wait_for_stderr("renewed lock 'job' again");
    gate.open();
    let outcome = run.finish();
    outcome.check(outcome.stdout_text().lines().count() == 1, "no TERM");
    outcome.any_output().expect_status(0);
}

/// hashicorp/consul#9788: the job went on for 90 s after others had the lock.
#[test]
fn when_redis_stays_away_the_job_is_asked_while_the_lock_is_still_ours() {
    let server = Server::start();
    let script = "trap 'echo bye; exit 0' TERM; echo $$; while :; do sleep 0.02; done";
    let mut run = sh(&server, &["--ttl", "6s"], script).spawn();
    run.job();
    server.pause();
    run.finish()
        .stdout_contains("bye")
        .stderr_contains("redlock-run: could not renew lock 'job' for ")
        .stderr_contains(" of its 6s lease (timed out); stopping 'sh'")
        .stderr_contains(" while the lock is still ours")
        .expect_status(79);
    server.resume();
    // Nothing that was sent meanwhile may bring it back.
    wait_until("the lock is gone", SOON, || !server.redis.exists(KEY));
}

#[test]
fn a_wrapper_that_was_stopped_past_its_lease_ends_the_job_and_says_79() {
    let server = Server::start();
    let mut run = holding(&server, &["--ttl", "1s"]);
    run.signal(nix::sys::signal::Signal::SIGSTOP);
    wait_until("the lease has run out", SOON, || !server.redis.exists(KEY));
    run.signal(nix::sys::signal::Signal::SIGCONT);
    run.finish().any_output().expect_status(79);
}

#[test]
fn another_run_can_take_the_lock_that_was_lost() {
    let server = Server::start();
    let mut run = sh(&server, &["--ttl", "1s"], SLEEPS).spawn();
    let job: Process = run.job();
    server.redis.tell(&["DEL", KEY]);
    Run::on(&server, ["--key", KEY, "true"]).finish().expect_status(0);
    run.finish().any_output().expect_status(79);
    assert!(job.is_dead());
}
