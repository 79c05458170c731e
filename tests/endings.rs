//! The order at the end: the leader, what it leaves, the release, our own end. A normal end waits
//! for the leader; an end that somebody asked for also for what cleans up behind it, under a lock
//! that is extended meanwhile.
//!
//! The plain cases are in `release`: a job or its subshell that cleans up keeps the lock, leftovers
//! get KILL after `--kill-after`, a daemon lives on and is not waited for.

use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};

use crate::support::freezer::Freezer;
use crate::support::jobs::{KEY, SLEEPS, sh};
use crate::support::lease::{dead_before, end_of_lease, held_until_dead, last_seen_alive};
use crate::support::nest::guard_of;
use crate::support::wait::{SOON, stays};
use crate::support::{Mode, Nest, Process, Proxy, Running, Server, proc, wait_until};

/// A subshell that ignores what it is asked, behind a leader that does not.
const STUBBORN: &str = "(trap '' TERM; echo ready; exec tail -f /dev/null) & wait";

/// A run of `script`, once it has said "ready".
fn ready(server: &Server, nest: &Nest, options: &[&str], script: &str) -> Running {
    let mut run = sh(server, options, script).in_dir(nest.dir()).spawn();
    run.wait_for_stdout("ready\n");
    run
}

/// The job's first process.
fn leader_of(run: &Running) -> Process {
    proc::children(guard_of(&run.wrapper()).pid).remove(0)
}

/// How much longer than `leader` the process `left` has lived, and not less: from the last moment at which the
/// one was seen alive.
fn outlives(left: &Process, leader: &Process) -> Duration {
    let alive = last_seen_alive(std::slice::from_ref(leader));
    wait_until("what is left is dead", SOON, || left.is_dead());
    SystemTime::now().duration_since(alive).expect("a clock that goes on")
}

#[test]
fn the_lock_is_extended_for_as_long_as_a_subshell_cleans_up() {
    let server = Server::start();
    let nest = Nest::new();
    let script = "exec 2>/dev/null; \
                  (trap 'sleep 5; echo >clean; exit 0' TERM; echo ready; while :; do sleep 0.02; done) & wait";
    let mut run = ready(&server, &nest, &["--ttl", "3s"], script);
    let leader = leader_of(&run);
    let subshell = proc::children(leader.pid).remove(0);
    run.signal(SIGTERM);
    wait_until("the leader is dead at once", SOON, || leader.is_dead());
    let before = server.redis.calls("pexpire");
    held_until_dead(&server, &[subshell]);
    // 5 s of a lease that is extended every (3000 − 32 − 75 − 750) / 3 = 714 ms; half of that is
    // for a busy machine.
    let extended = server.redis.calls("pexpire") - before;
    assert!(extended >= 3, "extended {extended} times");
    assert!(nest.has("clean"));
    run.finish().any_output().expect_signal(SIGTERM);
    assert!(!server.redis.exists(KEY));
}

#[test]
fn leftovers_are_killed_kill_after_the_leaders_death_not_after_the_signal() {
    let server = Server::start();
    let nest = Nest::new();
    // The leader takes longer than --kill-after, and nobody kills it or its subshell for that.
    let script = format!("trap 'sleep 1.5; exit 3' TERM; {}", STUBBORN.replace("wait", "wait; wait"));
    let mut run = ready(&server, &nest, &["--kill-after", "1s"], &script);
    let (leader, left) = (leader_of(&run), nest.one("tail"));
    run.signal(SIGTERM);
    let pause = outlives(&left, &leader);
    assert!(pause >= Duration::from_secs(1), "killed {pause:?} after the leader's death");
    run.finish().any_output().within(Duration::from_secs(15)).expect_status(3);
}

#[test]
fn leftovers_have_ten_seconds_unless_told_otherwise() {
    let server = Server::start();
    let nest = Nest::new();
    let mut run = ready(&server, &nest, &[], STUBBORN);
    let (leader, left) = (leader_of(&run), nest.one("tail"));
    run.signal(SIGTERM);
    // The promise is the ten seconds, so the test takes them.
    let pause = outlives(&left, &leader);
    assert!(pause >= Duration::from_secs(10), "killed {pause:?} after the leader's death");
    run.finish().any_output().within(Duration::from_secs(25)).expect_signal(SIGTERM);
}

#[test]
fn any_signal_that_asks_for_an_end_lets_leftovers_clean_up() {
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        let server = Server::start();
        let nest = Nest::new();
        let name = signal.as_str().trim_start_matches("SIG");
        // A shell's `&` lets its command ignore INT and QUIT for good; env undoes that.
        let cleans =
            format!("trap \"sleep 1; echo >clean; exit 0\" {name}; echo ready; while :; do sleep 0.02; done");
        let script =
            format!("ulimit -c 0; exec 2>/dev/null; env --default-signal sh -c '{cleans}' & exec sleep 600");
        let mut run = ready(&server, &nest, &["--ttl", "6s"], &script);
        let leader = leader_of(&run);
        let left = proc::children(leader.pid).remove(0);
        run.signal(signal);
        held_until_dead(&server, &[leader, left]);
        assert!(nest.has("clean"), "after {name}");
        run.finish().stdout("ready\n").expect_signal(signal);
    }
}

/// A daemon's own business, also when the job was asked to end.
#[test]
fn what_moved_to_a_session_of_its_own_lives_on_after_an_end_that_was_asked_for() {
    let server = Server::start();
    let nest = Nest::new();
    let script = "(setsid tail -f /dev/null &) ; echo ready; exec sleep 600";
    let mut run = ready(&server, &nest, &["--kill-after", "60s"], script);
    let daemon = nest.one("tail");
    run.signal(SIGTERM);
    run.finish().any_output().within(Duration::from_secs(10)).expect_signal(SIGTERM);
    assert!(!daemon.is_dead());
    assert!(!server.redis.exists(KEY));
}

#[test]
fn what_a_job_left_behind_is_told_when_asked_for() {
    let server = Server::start();
    let nest = Nest::new();
    let run = sh(&server, &["-v"], "tail -f /dev/null & exit 0").in_dir(nest.dir());
    let outcome = run.finish();
    let told = outcome.stderr_text().lines().any(|line| line.contains("left") || line.contains("still run"));
    outcome.check(told, "a line about what lives on");
    outcome.any_output().expect_status(0);
    // Without -v there is none.
    sh(&server, &[], "tail -f /dev/null & exit 0").in_dir(nest.dir()).finish().expect_status(0);
}

#[test]
fn the_status_is_the_leaders_whatever_cleans_up_behind_it() {
    let server = Server::start();
    let nest = Nest::new();
    let script = "exec 2>/dev/null; trap 'exit 3' TERM; \
                  (trap 'sleep 1; exit 9' TERM; echo ready; while :; do sleep 0.02; done) & wait; wait";
    let mut run = ready(&server, &nest, &[], script);
    run.signal(SIGTERM);
    run.finish().any_output().expect_status(3);
}

#[test]
fn a_second_signal_reaches_what_cleans_up_behind_the_leader() {
    let server = Server::start();
    let nest = Nest::new();
    let script = "exec 2>/dev/null; \
                  (trap 'n=$((n+1)); echo term $n' TERM; echo ready; until [ \"$n\" = 2 ]; do sleep 0.02; done) & wait";
    let mut run = ready(&server, &nest, &["--kill-after", "60s"], script);
    let leader = leader_of(&run);
    run.signal(SIGTERM);
    run.wait_for_stdout("term 1\n");
    wait_until("the leader is dead", SOON, || leader.is_dead());
    run.signal(SIGTERM);
    run.finish().stdout("ready\nterm 1\nterm 2\n").expect_signal(SIGTERM);
}

#[test]
fn a_lock_that_is_lost_while_leftovers_clean_up_ends_them_and_is_79() {
    let server = Server::start();
    let nest = Nest::new();
    let mut run = ready(&server, &nest, &["--ttl", "3s", "--kill-after", "60s"], STUBBORN);
    let (leader, left) = (leader_of(&run), nest.one("tail"));
    run.signal(SIGTERM);
    wait_until("the leader is dead", SOON, || leader.is_dead());
    server.redis.tell(&["SET", KEY, "foreign", "PX", "60000"]);
    run.finish().any_output().within(Duration::from_secs(20)).expect_status(79);
    assert!(left.is_dead());
    assert_eq!(server.redis.get(KEY).as_deref(), Some("foreign"));
}

#[test]
fn leftovers_are_dead_before_the_lease_ends_when_redis_goes_away() {
    let server = Server::start();
    let nest = Nest::new();
    let mut run = ready(&server, &nest, &["--ttl", "3s", "--kill-after", "60s"], STUBBORN);
    let (leader, left) = (leader_of(&run), nest.one("tail"));
    run.signal(SIGTERM);
    wait_until("the leader is dead", SOON, || leader.is_dead());
    let end = end_of_lease(&server);
    server.pause();
    // Extended once more at most, between the reading and the pause: every
    // (3000 − 32 − 75 − 750) / 3 = 714 ms.
    dead_before(end + Duration::from_millis(714), &[left]);
    run.finish().any_output().expect_status(79);
}

#[test]
fn leftovers_die_with_a_wrapper_that_is_killed_while_they_clean_up() {
    let server = Server::start();
    let nest = Nest::new();
    let run = ready(&server, &nest, &["--ttl", "3s", "--kill-after", "60s"], STUBBORN);
    let (leader, left) = (leader_of(&run), nest.one("tail"));
    run.signal(SIGTERM);
    wait_until("the leader is dead", SOON, || leader.is_dead());
    run.signal(SIGKILL);
    dead_before(end_of_lease(&server), &[left]);
    wait_until("nobody is left", SOON, || nest.processes().is_empty());
}

#[test]
fn leftovers_are_killed_and_the_lock_released_when_the_guard_dies_while_they_clean_up() {
    let server = Server::start();
    let nest = Nest::new();
    let mut run = ready(&server, &nest, &["--ttl", "60s", "--kill-after", "60s"], STUBBORN);
    let (leader, left) = (leader_of(&run), nest.one("tail"));
    run.signal(SIGTERM);
    wait_until("the leader is dead", SOON, || leader.is_dead());
    guard_of(&run.wrapper()).signal(SIGKILL);
    held_until_dead(&server, &[left]);
    run.finish().any_output().within(Duration::from_secs(20)).expect_signal(SIGTERM);
    assert!(!server.redis.exists(KEY), "released");
}

// A job that cannot die.

/// A sleeping job in a frozen control group; declared by the caller after the run.
fn frozen(test: &str, job: &Process) -> Option<Freezer> {
    let freezer = Freezer::new(test)?;
    freezer.take(job);
    freezer.freeze();
    Some(freezer)
}

#[test]
fn the_lock_of_a_job_that_cannot_die_is_left_to_expire_and_we_say_so() {
    let server = Server::start();
    let nest = Nest::new();
    let proxy = Proxy::on_socket(&server);
    let run = sh(&server, &["--ttl", "2s"], SLEEPS).env("REDLOCK_RUN_URL", proxy.url());
    let mut run = run.in_dir(nest.dir()).spawn();
    let job = run.job();
    let test = "the_lock_of_a_job_that_cannot_die_is_left_to_expire_and_we_say_so";
    let Some(freezer) = frozen(test, &job) else { return };
    let released = server.redis.calls("del");
    proxy.set(Mode::Reset);
    run.wait_for_stderr("could not renew");
    // Redis is there again before the end: a release would succeed.
    proxy.set(Mode::Pass);
    run.finish().stdout(format!("{}\n", job.pid)).stderr_contains("expire").expect_status(79);
    assert!(!job.is_dead());
    assert_eq!(server.redis.calls("del"), released, "released under a living job");
    wait_until("the lease runs out", SOON, || !server.redis.exists(KEY));
    freezer.thaw();
    wait_until("the KILL that was sent takes effect", SOON, || job.is_dead());
}

#[test]
fn a_frozen_job_that_is_asked_keeps_its_lock_until_it_thaws_and_ends() {
    let server = Server::start();
    let nest = Nest::new();
    let mut run = sh(&server, &["--ttl", "3s"], SLEEPS).in_dir(nest.dir()).spawn();
    let job = run.job();
    let test = "a_frozen_job_that_is_asked_keeps_its_lock_until_it_thaws_and_ends";
    let Some(freezer) = frozen(test, &job) else { return };
    run.signal(SIGTERM);
    // More than a lease on purpose: that the lock is kept has no event to wait for.
    stays("the lock is kept", Duration::from_secs(4), || server.redis.exists(KEY));
    freezer.thaw();
    held_until_dead(&server, &[job]);
    run.finish().any_output().expect_signal(SIGTERM);
    assert!(!server.redis.exists(KEY));
}

/// What is left of a job that was asked, and cannot die after `--kill-after`.
#[test]
fn the_lock_of_leftovers_that_cannot_die_is_not_released_and_we_say_so() {
    let server = Server::start();
    let nest = Nest::new();
    // So long that nothing but the end of --kill-after can wake anybody.
    let options = ["--ttl", "30m", "--kill-after", "200ms"];
    let mut run = ready(&server, &nest, &options, STUBBORN);
    let left = nest.one("tail");
    let test = "the_lock_of_leftovers_that_cannot_die_is_not_released_and_we_say_so";
    let Some(freezer) = frozen(test, &left) else { return };
    let released = server.redis.calls("del");
    run.signal(SIGTERM);
    run.wait_for_stderr("does not die");
    assert_eq!(server.redis.calls("del"), released, "released under a living process of the job");
    freezer.thaw();
    wait_until("the KILL that was sent takes effect", SOON, || left.is_dead());
    let outcome = run.finish();
    outcome.check(outcome.code() != Some(0), "no success");
}
