//! Waiting for a lock that another holds: in time, cheaply, and with an end.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::jobs::{Gate, KEY, holding, sh, waits_within};
use crate::support::wait::{SOON, stays};
use crate::support::{Running, Server, stalls, wait_until};

/// How many clients are blocked in BLPOP.
fn blocked(server: &Server) -> u64 {
    let info: String = server.redis.query(&["INFO", "clients"]);
    let line = info.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    line.and_then(|count| count.parse().ok()).expect("a count")
}

/// A run that waits, once Redis knows of it.
fn waiting(server: &Server, options: &[&str], script: &str) -> Running {
    let before = blocked(server);
    let run = sh(server, options, script).spawn();
    wait_until("it waits", SOON, || blocked(server) > before);
    run
}

#[test]
fn the_wait_limit_ends_in_75_and_names_the_holder() {
    let server = Server::start();
    let holder = holding(&server, &[]);
    let outcome = sh(&server, &["-w", "1s"], "echo ran").finish();
    let early = outcome.took < Duration::from_secs(1);
    outcome.check(!early, "no end before the limit");
    let holder = format!("(pid {}, sh)", holder.pid());
    // 1s, or more on a busy machine.
    let text = outcome.stderr_text();
    let told = text
        .split_once("gave up on lock 'job' after ")
        .and_then(|(_, end)| end.split_once("s; still held by "));
    let seconds = told.and_then(|(seconds, _)| seconds.parse::<f64>().ok());
    let took = outcome.took.as_secs_f64();
    outcome.check(seconds.is_some_and(|told| (1.0..=took).contains(&told)), "the time that it waited");
    outcome
        .stderr_contains(&holder)
        .stderr_contains("  hint: redlock-run status job\n")
        .within(Duration::from_secs(5))
        .expect_status(75);
}

#[test]
fn a_wait_of_zero_is_one_try() {
    let server = Server::start();
    let _holder = holding(&server, &[]);
    sh(&server, &["-w", "0"], "echo ran")
        .finish()
        .stderr_contains("lock 'job' is held by ")
        .within(Duration::from_secs(5))
        .expect_status(75);
    assert_eq!(server.redis.calls("blpop"), 0);
}

#[test]
fn a_waiter_takes_the_lock_as_soon_as_it_is_released() {
    let server = Server::start();
    let mut hand_offs: Vec<Duration> = (0..7).map(|_| hand_off(&server)).collect();
    hand_offs.sort();
    // The baton takes about a millisecond, polling alone 0.75 s and more. The median, since
    // a noisy machine may hold up any single one.
    assert!(hand_offs[3] < Duration::from_millis(400), "{hand_offs:?}");
}

/// From the holder's end to the waiter's.
fn hand_off(server: &Server) -> Duration {
    let holder = holding(server, &[]);
    let mut waiter = waiting(server, &[], ":");
    holder.signal(Signal::SIGTERM);
    wait_until("it is released", SOON, || {
        server.redis.get(KEY).is_none_or(|value| !value.contains(&format!("\"pid\":{}", holder.pid())))
    });
    let released = Instant::now();
    waiter.finish().any_output().expect_status(0);
    released.elapsed()
}

#[test]
fn a_waiter_takes_a_dead_holders_lock_when_its_lease_is_over() {
    let server = Server::start();
    let holder = holding(&server, &["--ttl", "2s"]);
    let mut waiter = waiting(&server, &["-w", "30s"], "echo mine");
    let all = holder.processes();
    for process in all {
        process.signal(Signal::SIGKILL);
    }
    let killed = Instant::now();
    waiter.wait_for_stdout("mine\n");
    // What was left of 2 s, at most one further wait of 1.25 s, and the machine's noise.
    stalls::assert_within("taken over", killed, Duration::from_secs(5));
    waiter.finish().any_output().expect_status(0);
}

#[test]
fn a_foreign_lock_is_polled_and_taken_within_a_second_and_a_quarter() {
    let server = Server::start();
    server.redis.tell(&["SET", KEY, "foreign"]);
    let mut waiter = sh(&server, &["-w", "60s"], "echo mine").spawn();
    waiter.wait_for_stderr("job");
    server.redis.tell(&["DEL", KEY]);
    let freed = Instant::now();
    waiter.wait_for_stdout("mine\n");
    // 1.25 s is the promise; the rest is for starting a process on a busy machine.
    stalls::assert_within("taken", freed, Duration::from_millis(2250));
    waiter.finish().any_output().expect_status(0);
}

#[test]
fn waiting_costs_about_one_request_pair_a_second() {
    let server = Server::start();
    let _holder = holding(&server, &[]);
    let before = server.redis.calls("eval");
    let _waiter = waiting(&server, &[], ":");
    let began = Instant::now();
    // Three seconds on purpose: it is a rate. Waits are 0.75 s at least, so at most 4 fit,
    // and the holder itself extends only every 8.1 s.
    stays("waiting", Duration::from_secs(3), || true);
    let tries = server.redis.calls("eval") - before;
    let waits = server.redis.calls("blpop");
    let fit = waits_within(began.elapsed());
    assert!(tries <= fit + 2, "{tries} tries where {fit} waits fit");
    assert!(waits <= fit + 1, "{waits} where {fit} fit");
}

/// mike-marcacci/node-redlock#296: validity was counted from the first try.
#[test]
fn a_lease_counts_from_the_attempt_that_won_it() {
    let server = Server::start();
    server.redis.tell(&["SET", KEY, "foreign", "PX", "3000"]);
    // Three times the lease: it must have been extended, too.
    sh(&server, &["-w", "20s", "--ttl", "2s", "-q"], "sleep 6").finish().expect_status(0);
}

#[test]
fn a_waiter_that_leaves_passes_the_baton_on() {
    let server = Server::start();
    let holder = holding(&server, &[]);
    let mut leaver = waiting(&server, &[], "echo ran");
    leaver.signal(Signal::SIGSTOP);
    holder.signal(Signal::SIGTERM);
    wait_until("the lock is free", SOON, || !server.redis.exists(KEY));
    leaver.signal(Signal::SIGTERM);
    leaver.signal(Signal::SIGCONT);
    wait_until("the baton is there again", SOON, || server.redis.query::<u64>(&["LLEN", "job:wake"]) == 1);
    leaver.finish().any_output().expect_signal(Signal::SIGTERM);
}

#[test]
fn a_waiter_outlives_a_restart_of_redis() {
    let mut server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    server.redis.tell(&["SET", KEY, "foreign", "PX", "60000"]);
    let mut waiter = sh(&server, &[], "echo mine").spawn();
    waiter.wait_for_stderr("held by");
    server.kill();
    waiter.wait_for_stderr("cannot reach Redis");
    server.start_again();
    server.redis.tell(&["DEL", KEY]);
    waiter.wait_for_stdout("mine\n");
    waiter.finish().any_output().expect_status(0);
}

#[test]
fn a_waiter_outlives_connections_that_are_cut_when_idle() {
    let server = Server::start();
    server.redis.tell(&["CONFIG", "SET", "timeout", "1"]);
    let gate = Gate::new(&server);
    let script = format!("echo $$; {}", gate.wait());
    let mut holder = sh(&server, &["--ttl", "30m"], &script).spawn();
    holder.job();
    let mut waiter = waiting(&server, &["-w", "60s"], "echo mine");
    wait_until("the waiter has tried again", Duration::from_secs(30), || server.redis.calls("blpop") >= 3);
    gate.open();
    waiter.wait_for_stdout("mine\n");
    holder.finish().any_output().expect_status(0);
    waiter.finish().any_output().expect_status(0);
}
