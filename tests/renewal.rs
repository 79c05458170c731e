//! Keeping the lock: extended in time, whatever happens to the connection, unseen by the job.

use std::time::Duration;

use crate::support::jobs::{Gate, KEY, holding, sh};
use crate::support::wait::{SOON, stays};
use crate::support::{Mode, Proxy, Running, Server, wait_until};

/// A run whose job notices any TERM and otherwise ends, with 0, when the gate opens.
fn watchful(server: &Server, options: &[&str], gate: &Gate, url: &str) -> Running {
    let script = format!("trap 'echo noticed' TERM; echo $$; {}", gate.wait());
    let run = sh(server, options, &script).env("REDLOCK_RUN_URL", url);
    let mut run = run.spawn();
    run.job();
    run
}

/// Lets the job end; it must not have noticed anything, and the lock must be gone.
fn never_noticed(server: &Server, mut run: Running, gate: &Gate) {
    gate.open();
    let outcome = run.finish();
    let quiet = outcome.stdout_text().lines().count() == 1;
    outcome.check(quiet, "a job that noticed nothing");
    // At most one warning.
    let lines = outcome.stderr_text().lines().count();
    outcome.check(lines <= 1, "one line at most");
    outcome.any_output().expect_status(0);
    assert!(!server.redis.exists(KEY));
}

/// Waits until the lock has been extended `times` more.
fn extended(server: &Server, times: u64) {
    let before = server.redis.calls("pexpire");
    wait_until("it is extended", SOON, || server.redis.calls("pexpire") >= before + times);
}

fn persistent() -> Server {
    Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"])
}

#[test]
fn the_lock_survives_a_job_five_times_as_long_as_its_ttl() {
    let server = Server::start();
    let mut run = sh(&server, &["--ttl", "2s"], "echo $$; exec sleep 10").spawn();
    run.job();
    let mut least = i64::MAX;
    while run.status().is_none() {
        let left = server.redis.pttl(KEY);
        if left != -2 {
            least = least.min(left);
        }
        // Ended by the run's own end; each look is one question to Redis.
        stays("between two looks", Duration::from_millis(4), || true);
    }
    assert!(!server.redis.exists(KEY), "gone right after the end");
    // Extended every 476 ms, it has 1,524 ms and more where the machine does not stand still.
    assert!(least >= 667, "only {least} ms were left, a third of 2 s is promised");
    run.finish().any_output().expect_status(0);
}

#[test]
fn an_extension_never_shortens_the_lease() {
    let server = Server::start();
    let _run = holding(&server, &["--ttl", "3s"]);
    server.redis.tell(&["PEXPIRE", KEY, "60000"]);
    let before = server.redis.calls("eval");
    wait_until("two more extensions were asked for", SOON, || server.redis.calls("eval") >= before + 2);
    // 60 s, less the few it took to see two extensions.
    assert!(server.redis.pttl(KEY) > 30_000);
}

#[test]
fn a_killed_connection_is_made_again_unseen() {
    let server = Server::start();
    let gate = Gate::new(&server);
    let run = watchful(&server, &["--ttl", "3s"], &gate, &server.url());
    for _ in 0..2 {
        server.redis.tell(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        extended(&server, 1);
    }
    never_noticed(&server, run, &gate);
}

#[test]
fn flushed_scripts_are_sent_again_unseen() {
    let server = Server::start();
    let gate = Gate::new(&server);
    let run = watchful(&server, &["--ttl", "3s"], &gate, &server.url());
    for _ in 0..2 {
        server.redis.tell(&["SCRIPT", "FLUSH"]);
        extended(&server, 1);
    }
    server.redis.tell(&["SCRIPT", "FLUSH"]);
    never_noticed(&server, run, &gate);
}

#[test]
fn idle_connections_may_be_cut_between_extensions() {
    let server = Server::start();
    server.redis.tell(&["CONFIG", "SET", "timeout", "1"]);
    let gate = Gate::new(&server);
    // Extended every 2.16 s: each time the connection has been cut.
    let run = watchful(&server, &["--ttl", "9s"], &gate, &server.url());
    extended(&server, 2);
    never_noticed(&server, run, &gate);
}

#[test]
fn the_release_finds_its_connection_cut_and_makes_a_new_one() {
    let server = Server::start();
    server.redis.tell(&["CONFIG", "SET", "timeout", "1"]);
    let gate = Gate::new(&server);
    // Nothing is sent between acquire and release: the first extension is due after 30 s.
    let run = watchful(&server, &["--ttl", "30m"], &gate, &server.url());
    wait_until("the connection is cut", SOON, || {
        let clients: String = server.redis.query(&["CLIENT", "LIST"]);
        clients.lines().count() == 1
    });
    gate.open();
    let mut run = run;
    run.finish().stdout(run.stdout_so_far()).expect_status(0);
    assert!(!server.redis.exists(KEY));
}

#[test]
fn a_restart_of_redis_within_the_lease_goes_unseen() {
    let mut server = persistent();
    let gate = Gate::new(&server);
    let run = watchful(&server, &["--ttl", "9s"], &gate, &server.url());
    extended(&server, 1);
    server.kill();
    // Down for a second on purpose: long enough that an extension may fall into it.
    stays("down", Duration::from_secs(1), || true);
    server.start_again();
    extended(&server, 1);
    never_noticed(&server, run, &gate);
}

#[test]
fn one_failed_extension_is_repeated_until_it_succeeds() {
    let server = Server::start();
    let proxy = Proxy::on_port(&server);
    let gate = Gate::new(&server);
    let run = watchful(&server, &["--ttl", "4s"], &gate, proxy.url());
    proxy.set(Mode::Reset);
    let connections = proxy.seen().connections;
    wait_until("an extension met the fault", SOON, || proxy.seen().connections > connections);
    proxy.set(Mode::Pass);
    extended(&server, 2);
    never_noticed(&server, run, &gate);
}

#[test]
fn slow_replies_do_no_harm() {
    let server = Server::start();
    let proxy = Proxy::on_socket(&server);
    let gate = Gate::new(&server);
    proxy.set(Mode::Delay(Duration::from_millis(200)));
    let run = watchful(&server, &["--ttl", "3s"], &gate, proxy.url());
    extended(&server, 3);
    proxy.set(Mode::Pass);
    never_noticed(&server, run, &gate);
}

/// Refusals that a server takes back: the holder keeps trying and the job is spared.
fn survives(refuse: &[&str], relent: &[&str]) {
    let server = Server::start();
    let gate = Gate::new(&server);
    let run = watchful(&server, &["--ttl", "6s"], &gate, &server.url());
    server.redis.tell(refuse);
    let before = server.redis.calls("eval");
    wait_until("an extension was refused", SOON, || server.redis.calls("eval") > before);
    server.redis.tell(relent);
    extended(&server, 1);
    never_noticed(&server, run, &gate);
}

#[test]
fn a_demotion_that_is_taken_back_in_time_is_survived() {
    survives(&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]);
}

#[test]
fn missing_replicas_that_come_back_in_time_are_survived() {
    survives(
        &["CONFIG", "SET", "min-replicas-to-write", "1"],
        &["CONFIG", "SET", "min-replicas-to-write", "0"],
    );
}

#[test]
fn a_holder_goes_on_under_memory_pressure() {
    let server = Server::start();
    let gate = Gate::new(&server);
    let run = watchful(&server, &["--ttl", "3s"], &gate, &server.url());
    server.redis.tell(&["CONFIG", "SET", "maxmemory", "1"]);
    extended(&server, 5);
    never_noticed(&server, run, &gate);
}
