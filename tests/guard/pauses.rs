//! Who is stopped goes on: a pause that the lease survives, the job survives; a guard does not stay
//! stopped, a job only until it is asked to end.

use std::time::Duration;

use nix::sys::signal::Signal::{self, SIGCONT, SIGKILL, SIGSTOP};

use super::{EXTENDED_EVERY, SAYS_BYE, TREE, TTL, stop, tree};
use crate::support::hang::Hung;
use crate::support::jobs::{Gate, KEY, sh};
use crate::support::lease::{dead_before, end_of_lease};
use crate::support::nest::guard_of;
use crate::support::wait::{SOON, stays};
use crate::support::{Nest, Process, Running, Server, wait_until};

#[test]
fn a_guard_that_is_stopped_goes_on_at_once() {
    let server = Server::start();
    let nest = Nest::new();
    let gate = Gate::new(&server);
    let script = format!("trap 'echo noticed' TERM; echo $$; {}; exit 4", gate.wait());
    let mut run = sh(&server, &[], &script).in_dir(nest.dir()).spawn();
    let job = run.job();
    let guard = guard_of(&run.wrapper());
    for _ in 0..20 {
        guard.signal(SIGSTOP);
        wait_until("the guard goes on", SOON, || guard.state() != 'T');
    }
    gate.open();
    run.finish().stdout(format!("{}\n", job.pid)).expect_status(4);
}

#[test]
fn other_signals_to_the_guard_change_nothing() {
    let server = Server::start();
    let (nest, gate) = (Nest::new(), Gate::new(&server));
    let (run, job) = healthy(&server, &nest, &gate);
    let guard = guard_of(&run.wrapper());
    for signal in Signal::iterator().filter(|signal| !matches!(signal, SIGKILL | SIGSTOP)) {
        guard.signal(signal);
    }
    never_noticed(&server, run, &job, &gate);
}

/// The guard is there before the lock is, so somebody may stop it before there is a job.
#[test]
fn a_guard_that_is_stopped_before_there_is_a_job_goes_on_and_starts_it() {
    let server = Server::start();
    let nest = Nest::new();
    server.redis.tell(&["SET", KEY, "foreign"]);
    let mut run = sh(&server, &[], "echo ran").in_dir(nest.dir()).spawn();
    guard_of(&run.wrapper()).signal(SIGSTOP);
    server.redis.tell(&["DEL", KEY]);
    run.wait_for_stdout("ran\n");
    run.finish().any_output().within(Duration::from_secs(10)).expect_status(0);
}

/// How long the lease of a healthy job is. It is extended every 1.43 s.
const LONG: &str = "6s";

/// A job under a lease of 6 s that tells whether it was asked to end, and ends with 4 by itself.
fn healthy(server: &Server, nest: &Nest, gate: &Gate) -> (Running, Process) {
    let script = format!("trap 'echo noticed' TERM; echo $$; {}; exit 4", gate.wait());
    let mut run = sh(server, &["--ttl", LONG], &script).in_dir(nest.dir()).spawn();
    let job = run.job();
    (run, job)
}

/// Stops `paused` for a second and lets them go on. A lease that was extended 1.43 s ago lasts for
/// 4.29 − 1.43 = 2.86 s more before the job is asked to end.
fn pause(paused: &[Process]) {
    for process in paused {
        process.signal(SIGSTOP);
    }
    stays("paused", Duration::from_secs(1), || true);
    for process in paused {
        process.signal(SIGCONT);
    }
}

/// The job goes on, the lock is extended, and neither has noticed anything.
fn never_noticed(server: &Server, mut run: Running, job: &Process, gate: &Gate) {
    let before = server.redis.calls("pexpire");
    wait_until("it is extended", SOON, || server.redis.calls("pexpire") >= before + 2);
    gate.open();
    run.finish().stdout(format!("{}\n", job.pid)).expect_status(4);
}

#[test]
fn a_healthy_job_survives_a_pause_of_the_wrapper_within_its_lease() {
    let server = Server::start();
    let (nest, gate) = (Nest::new(), Gate::new(&server));
    let (run, job) = healthy(&server, &nest, &gate);
    for _ in 0..3 {
        pause(&[run.wrapper()]);
        let before = server.redis.calls("pexpire");
        wait_until("it is extended", SOON, || server.redis.calls("pexpire") > before);
    }
    never_noticed(&server, run, &job, &gate);
}

#[test]
fn a_healthy_job_survives_a_pause_of_wrapper_and_guard_within_its_lease() {
    let server = Server::start();
    let (nest, gate) = (Nest::new(), Gate::new(&server));
    let (run, job) = healthy(&server, &nest, &gate);
    for guard_first in [false, true] {
        let mut both = vec![run.wrapper(), guard_of(&run.wrapper())];
        if guard_first {
            both.reverse();
        }
        pause(&both);
        let before = server.redis.calls("pexpire");
        wait_until("it is extended", SOON, || server.redis.calls("pexpire") > before);
    }
    never_noticed(&server, run, &job, &gate);
}

/// The guard was stopped while the wrapper was, and only the wrapper is told to go on.
#[test]
fn a_wrapper_that_goes_on_lets_its_guard_go_on() {
    let server = Server::start();
    let (nest, gate) = (Nest::new(), Gate::new(&server));
    let (run, job) = healthy(&server, &nest, &gate);
    let guard = guard_of(&run.wrapper());
    stop(&run.wrapper());
    stop(&guard);
    run.signal(SIGCONT);
    wait_until("the guard goes on", SOON, || guard.state() != 'T');
    never_noticed(&server, run, &job, &gate);
}

/// As on a machine that stood still.
#[test]
fn a_healthy_job_survives_a_pause_of_everything_within_its_lease() {
    let server = Server::start();
    let (nest, gate) = (Nest::new(), Gate::new(&server));
    let (run, job) = healthy(&server, &nest, &gate);
    pause(&[run.wrapper(), guard_of(&run.wrapper()), job.clone()]);
    never_noticed(&server, run, &job, &gate);
}

/// Whoever wakes first, it must not be the job that goes on without a lock.
#[test]
fn a_job_that_wakes_with_everything_after_its_lease_is_ended() {
    let server = Server::start();
    let nest = Nest::new();
    let (mut run, tree) = tree(&server, &nest, &["--ttl", TTL], TREE);
    let guard = guard_of(&run.wrapper());
    stop(&run.wrapper());
    stop(&guard);
    tree.iter().for_each(stop);
    wait_until("the lease runs out", SOON, || !server.redis.exists(KEY));
    for process in tree.iter().chain([&guard, &run.wrapper()]) {
        process.signal(SIGCONT);
    }
    let outcome = run.finish();
    // Who asks Redis before the job is ended learns it there.
    let told = ["the lease of lock 'job' ran out, not renewed for ", "lost lock 'job' after "];
    outcome.check(told.iter().any(|told| outcome.stderr_text().contains(told)), "told why");
    outcome.any_output().expect_status(79);
    assert!(tree.iter().all(Process::is_dead));
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
}

/// As a machine that was suspended for a while: whoever wakes first has not killed anybody yet.
#[test]
fn a_job_is_not_given_up_before_anybody_has_killed_it() {
    let server = Server::start();
    let nest = Nest::new();
    let (mut run, tree) = tree(&server, &nest, &["--ttl", TTL], TREE);
    let hung = Hung::new(&guard_of(&run.wrapper()));
    stop(&run.wrapper());
    wait_until("the lease runs out", SOON, || !server.redis.exists(KEY));
    // Longer than a job that was killed may take to disappear: 2 s.
    stays("nobody runs", Duration::from_millis(2500), || true);
    run.signal(SIGCONT);
    drop(hung);
    let outcome = run.finish();
    outcome.check(!outcome.stderr_text().contains("does not die"), "it does");
    outcome.any_output().expect_status(79);
    assert!(tree.iter().all(Process::is_dead), "{tree:?}");
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
}

#[test]
fn a_guard_that_hangs_past_the_lease_is_replaced_by_the_wrapper() {
    let server = Server::start();
    let nest = Nest::new();
    let (mut run, tree) = tree(&server, &nest, &["--ttl", TTL], TREE);
    let guard = guard_of(&run.wrapper());
    let hung = Hung::new(&guard);
    let before = server.redis.calls("pexpire");
    wait_until("the lease is extended", SOON, || server.redis.calls("pexpire") > before);
    let end = end_of_lease(&server);
    server.pause();
    wait_until("the guard was killed", SOON, || hung.was_killed());
    // Extended once more at most, between the reading and the pause.
    dead_before(end + EXTENDED_EVERY, &tree);
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
    run.finish().any_output().expect_status(79);
}

#[test]
fn a_stopped_job_whose_lock_is_lost_is_continued_to_clean_up() {
    let server = Server::start();
    let nest = Nest::new();
    // A grace of 2 s, within which the job has only to say a word.
    let mut run = sh(&server, &["--ttl", "8s"], SAYS_BYE).in_dir(nest.dir()).spawn();
    let job = run.job();
    stop(&job);
    server.redis.tell(&["DEL", KEY]);
    run.finish().stdout(format!("{}\nbye\n", job.pid)).stderr_contains("lost").expect_status(79);
}

#[test]
fn a_stopped_job_of_a_killed_wrapper_is_continued_to_clean_up() {
    let server = Server::start();
    let nest = Nest::new();
    let mut run = sh(&server, &["--ttl", "30s"], SAYS_BYE).in_dir(nest.dir()).spawn();
    let job = run.job();
    stop(&job);
    run.signal(SIGKILL);
    wait_until("it was asked and could answer", SOON, || run.stdout_so_far().ends_with("bye\n"));
}

#[test]
fn a_stopped_job_keeps_its_lock() {
    let server = Server::start();
    let nest = Nest::new();
    let (run, job) = healthy(&server, &nest, &Gate::new(&server));
    stop(&job);
    let before = server.redis.calls("pexpire");
    wait_until("it is extended", SOON, || server.redis.calls("pexpire") >= before + 3);
    assert_eq!(job.state(), 'T', "only a signal of its own may wake it");
    assert_ne!(run.wrapper().state(), 'T', "the lock is still looked after");
}
