//! Between acquiring and spawning: nothing is started outside a lease, and nothing that was started
//! is forgotten.

use std::thread;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTSTP};

use super::stop;
use crate::support::hang::Hung;
use crate::support::jobs::{KEY, sh};
use crate::support::lease::{dead_before, end_of_lease};
use crate::support::nest::{guard_of, supervises};
use crate::support::wait::SOON;
use crate::support::{Mode, Nest, Process, Proxy, Running, Server, proc, wait_until};

#[test]
fn a_wrapper_that_waits_for_the_lock_ends_with_its_guard_not_in_silence() {
    let server = Server::start();
    let nest = Nest::new();
    server.redis.tell(&["SET", KEY, "foreign"]);
    let mut run = sh(&server, &[], "echo ran").in_dir(nest.dir()).spawn();
    guard_of(&run.wrapper()).signal(SIGKILL);
    server.redis.tell(&["DEL", KEY]);
    let outcome = run.finish();
    // Nothing may run without the guard that was asked for, and the lock is nobody's.
    outcome.check(outcome.stdout_text().is_empty(), "no job without a guard");
    outcome.check(outcome.code() != Some(0), "no success");
    outcome.check(outcome.stderr_text().contains("guard"), "a line that says why");
    assert!(!server.redis.exists(KEY));
}

/// What a job is that says which lock it has and when it started.
const SAYS_WHEN: &str = "echo $REDLOCK_RUN_TOKEN $(date +%s%N)";

/// The token that stands at the key.
fn token_at(server: &Server) -> String {
    let value = server.redis.get(KEY).expect("a lock");
    value.split('"').nth(3).expect("the token first").to_string()
}

/// Waits until the lock is taken behind a proxy that holds the reply back.
fn granted_unheard(server: &Server, options: &[&str]) -> (Proxy, Running) {
    let proxy = Proxy::on_socket(server);
    proxy.set(Mode::Delay(Duration::from_secs(3600)));
    let mut all = vec!["--ttl", "3s", "--command-timeout", "60s"];
    all.extend(options);
    let run = sh(server, &all, SAYS_WHEN).env("REDLOCK_RUN_URL", proxy.url()).spawn();
    wait_until("the lock is granted", SOON, || server.redis.exists(KEY));
    (proxy, run)
}

/// The wrapper is frozen before it reads the reply, and wakes when the lease is over.
#[test]
fn a_reply_that_is_read_after_the_lease_starts_nothing() {
    for options in [&[][..], &["--no-guard"][..]] {
        let server = Server::start();
        let (proxy, mut run) = granted_unheard(&server, options);
        let stale = token_at(&server);
        stop(&run.wrapper());
        proxy.set(Mode::Pass);
        wait_until("the lease runs out", SOON, || !server.redis.exists(KEY));
        run.signal(SIGCONT);
        // It tries again, and that lock is a good one.
        run.wait_for_stdout("\n");
        let outcome = run.finish();
        let started_under = outcome.stdout_text();
        outcome.check(!started_under.contains(&stale), "a job under another lock");
        outcome.any_output().expect_status(0);
    }
}

/// The wrapper has said "go" and is frozen; the guard, which hung before that, wakes too late.
#[test]
fn a_guard_that_is_told_to_go_after_the_lease_starts_nothing() {
    let server = Server::start();
    let (proxy, mut run) = granted_unheard(&server, &[]);
    let guard = guard_of(&run.wrapper());
    let hung = Hung::new(&guard);
    proxy.set(Mode::Pass);
    wait_until("the wrapper has said go", SOON, || supervises(&run.wrapper()));
    stop(&run.wrapper());
    wait_until("the lease runs out", SOON, || !server.redis.exists(KEY));
    drop(hung);
    // The wrapper, still stopped, cannot have prevented it.
    wait_until("the guard has come to it", SOON, || {
        let jobs = proc::children(guard.pid);
        guard.is_dead() || !jobs.is_empty() && jobs.iter().all(Process::is_dead)
    });
    assert_eq!(run.stdout_so_far(), "", "a job outside its lease");
    run.signal(SIGCONT);
    run.finish().stderr_contains("nothing was run").expect_status(79);
}

/// It is told to stop when it has its group and its signals, and has not found its program yet. It must not
/// blind the guard, which has to learn of it and end it with the lease.
#[test]
fn a_job_that_is_stopped_before_it_is_executed_stops_the_run_and_goes_on_with_it() {
    for ends in [false, true] {
        let server = Server::start();
        let nest = Nest::new();
        server.redis.tell(&["SET", KEY, "foreign"]);
        let places: Vec<String> = (0..3000).map(|number| format!("/nowhere/{number}")).collect();
        let path = format!("{}:/usr/bin:/bin", places.join(":"));
        let ttl = if ends { "2s" } else { "30s" };
        let run = sh(&server, &["--ttl", ttl], "echo ran").in_dir(nest.dir()).env("PATH", path);
        let mut run = run.resumable().spawn();
        run.wait_for_stderr("held by");
        let (wrapper, guard) = (run.wrapper(), guard_of(&run.wrapper()));
        let hung = Hung::new(&guard);
        server.redis.tell(&["DEL", KEY]);
        wait_until("the wrapper has said go", SOON, || supervises(&wrapper));
        run.signal(SIGTSTP);
        drop(hung);
        wait_until("the run is stopped", SOON, || wrapper.state() == 'T');
        let job = proc::children(guard.pid).remove(0);
        assert_eq!(job.state(), 'T');
        if ends {
            wait_until("the lease ends it", SOON, || job.is_dead());
        }
        run.signal(SIGCONT);
        let outcome = run.finish();
        if ends {
            outcome.any_output().expect_status(79);
        } else {
            outcome.stdout("ran\n").stderr_contains("held by").expect_status(0);
        }
    }
}

/// Freezes at random moments of the first milliseconds, in which a run starts, acquires and
/// spawns: there is no condition that would hit each of the moments between.
#[test]
fn a_freeze_at_any_moment_starts_no_job_outside_its_lease() {
    let server = Server::start();
    for number in 0..40_u32 {
        let guarded: &[&str] = if number % 3 == 0 { &["--no-guard"] } else { &[] };
        let options = [&["--ttl", "200ms"][..], guarded].concat();
        let mut run = sh(&server, &options, SAYS_WHEN).spawn();
        // Spread over 15 ms, within which a run on an idle machine has spawned its job.
        thread::sleep(Duration::from_micros(375) * number);
        run.signal(SIGSTOP);
        let lock = server.redis.try_query::<Option<String>>(&["GET", KEY]).expect("an answer");
        let granted = lock.map(|_| (token_at_or_none(&server), end_of_lease(&server)));
        wait_until("no lease lasts", SOON, || !server.redis.exists(KEY));
        run.signal(SIGCONT);
        let outcome = run.finish();
        let said = outcome.stdout_text();
        if let (Some((Some(token), end)), Some((under, when))) = (granted, said.trim().split_once(' ')) {
            let when = SystemTime::UNIX_EPOCH + Duration::from_nanos(when.parse().expect("nanoseconds"));
            let outside = under == token && when >= end;
            outcome.check(!outside, "no job that starts outside its lease");
        }
        let code = outcome.code();
        // Its own end, or the lease was over before or while it ran.
        outcome.check(code == Some(0) || code == Some(79), "0 or 79");
    }
}

fn token_at_or_none(server: &Server) -> Option<String> {
    server.redis.get(KEY)?.split('"').nth(3).map(String::from)
}

/// As [`a_freeze_at_any_moment_starts_no_job_outside_its_lease`], with a kill.
#[test]
fn a_kill_of_the_wrapper_at_any_moment_leaves_nothing_that_runs() {
    let server = Server::start();
    for number in 0..60_u32 {
        let nest = Nest::new();
        let script = "trap '' TERM; (setsid tail -f /dev/null &) ; exec tail -f /dev/null";
        let run = sh(&server, &["--ttl", "1s"], script).in_dir(nest.dir()).spawn();
        // A little later each time: the moments between two system calls have no condition.
        thread::sleep(Duration::from_micros(250) * number);
        let (wrapper, guards) = (run.wrapper(), proc::children(run.pid()));
        wrapper.signal(SIGKILL);
        wait_until("no lease lasts", SOON, || !server.redis.exists(KEY));
        // A job that began in the last moment may be seen for as long as it takes to die.
        let left: Vec<Process> = nest.jobs();
        dead_before(SystemTime::now() + Duration::from_millis(100), &left);
        wait_until("no guard is left", SOON, || guards.iter().all(Process::is_dead));
        assert!(nest.processes().is_empty(), "killed after {number} × 250 µs: {:?}", nest.processes());
    }
}

#[test]
fn a_kill_of_the_guard_at_any_moment_leaves_nothing_that_runs() {
    let server = Server::start();
    for number in 0..40_u32 {
        let nest = Nest::new();
        let script = "trap '' TERM; (setsid tail -f /dev/null &) ; exec tail -f /dev/null";
        let mut run = sh(&server, &["--ttl", "5s"], script).in_dir(nest.dir()).spawn();
        let guard = guard_of(&run.wrapper());
        // A little later each time: the moments between two system calls have no condition.
        thread::sleep(Duration::from_micros(250) * number);
        guard.signal(SIGKILL);
        let outcome = run.finish();
        outcome.check(outcome.code() != Some(0), "no success");
        outcome.check(outcome.stderr_text().contains("guard"), "a line that says why");
        assert!(nest.processes().is_empty(), "killed after {number} × 250 µs: {:?}", nest.processes());
        assert!(!server.redis.exists(KEY), "released");
    }
}

#[test]
fn a_killed_waiter_leaves_no_guard() {
    let server = Server::start();
    let nest = Nest::new();
    server.redis.tell(&["SET", KEY, "foreign"]);
    let mut run = sh(&server, &[], "echo ran").in_dir(nest.dir()).spawn();
    run.wait_for_stderr("held by");
    let guard = guard_of(&run.wrapper());
    run.signal(SIGKILL);
    wait_until("the guard is gone", SOON, || guard.is_dead());
    assert_eq!(run.stdout_so_far(), "");
}
