//! What a Redis that refuses or hangs makes of a run: never "busy", always bounded, nothing left at
//! the key, and the job not run.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::support::jobs::{KEY, sh};
use crate::support::server::free_port;
use crate::support::wait::{SOON, stays, wait_for};
use crate::support::{Mode, Outcome, Proxy, Run, Server, stalls, wait_until};

/// Asserts a refusal: the status, a line of ours, nothing that looks like "busy".
#[track_caller]
pub(crate) fn refused(outcome: Outcome, status: i32, part: &str) {
    let text = outcome.stderr_text();
    outcome.check(!text.contains("held by"), "never busy");
    outcome.check(!text.contains("panicked"), "no panic");
    outcome.stderr_contains("redlock-run: ").stderr_contains(part).expect_status(status);
}

/// One try with the URL, or a wait of a second.
pub(crate) fn tried(url: &str, options: &[&str]) -> Outcome {
    let args = ["--key", KEY].iter().chain(options).chain(&["--", "echo", "ran"]);
    Run::without_url(args).env("REDLOCK_RUN_URL", url).finish()
}

#[test]
fn a_closed_port_is_69_and_the_address_is_named() {
    let port = free_port();
    let url = format!("redis://127.0.0.1:{port}");
    let line = format!("redlock-run: cannot reach Redis at 127.0.0.1:{port}: connection refused\n");
    let outcome = tried(&url, &["-n"]).within(Duration::from_secs(5));
    refused(outcome, 69, &line);
    let outcome = tried(&url, &["-w", "1s"]).within(Duration::from_secs(6));
    let early = outcome.took < Duration::from_secs(1);
    outcome.check(!early, "the whole wait");
    refused(outcome, 69, "connection refused");
}

#[test]
fn a_socket_that_is_not_there_is_69() {
    refused(tried("unix:///no/such/socket", &["-n"]), 69, "/no/such/socket");
    refused(tried("/no/such/socket", &["-n"]), 69, "/no/such/socket");
}

#[test]
fn a_host_that_does_not_exist_is_69_within_the_connect_timeout() {
    let outcome = tried("redis://no-such-host.invalid", &["-n"]);
    // 2 s for the name, and a busy machine.
    refused(outcome.within(Duration::from_secs(6)), 69, "no-such-host.invalid");
}

#[test]
fn without_a_wait_limit_a_redis_that_never_answered_is_given_up_after_ten_seconds() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    // The promise is the ten seconds, so the test takes them.
    let outcome = tried(&url, &[]).within(Duration::from_secs(16));
    let early = outcome.took < Duration::from_secs(9);
    outcome.check(!early, "about ten seconds");
    refused(outcome, 69, "connection refused");
}

#[test]
fn a_redis_that_does_not_answer_is_69_within_connect_and_two_command_timeouts() {
    let server = Server::start();
    server.pause();
    let outcome = sh(&server, &["-n"], "echo ran").finish();
    // 2 s + 2 × 1 s, and a busy machine.
    refused(outcome.within(Duration::from_millis(5500)), 69, "timed out");
    let options = ["-n", "--connect-timeout", "300ms", "--command-timeout", "300ms"];
    let outcome = sh(&server, &options, "echo ran").finish();
    // 0.9 s, and a busy machine.
    refused(outcome.within(Duration::from_millis(2400)), 69, "timed out");
}

#[test]
fn a_wait_limit_holds_for_a_redis_that_does_not_answer() {
    let server = Server::start();
    server.pause();
    let outcome = sh(&server, &["-w", "3s"], "echo ran").finish();
    // The limit, one command timeout for the clean-up, and a busy machine.
    refused(outcome.within(Duration::from_secs(6)), 69, "timed out");
}

#[test]
fn a_demoted_primary_is_unavailable_and_waited_for() {
    let server = Server::start();
    server.redis.tell(&["REPLICAOF", "127.0.0.1", "1"]);
    refused(sh(&server, &["-n"], "echo ran").finish(), 69, "READONLY");
    waited_out(&server, &["REPLICAOF", "NO", "ONE"]);
}

/// A replica answers "busy" from stale data unless asked to write first.
#[test]
fn a_demoted_primary_that_still_shows_a_lock_is_unavailable_not_busy() {
    let server = Server::start();
    server.redis.tell(&["SET", KEY, "stale"]);
    server.redis.tell(&["REPLICAOF", "127.0.0.1", "1"]);
    refused(sh(&server, &["-n"], "echo ran").finish(), 69, "READONLY");
}

#[test]
fn missing_replicas_are_unavailable_and_waited_for() {
    let server = Server::start();
    server.redis.tell(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    refused(sh(&server, &["-n"], "echo ran").finish(), 69, "NOREPLICAS");
    waited_out(&server, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
}

/// A run that waits gets the lock when the server relents.
fn waited_out(server: &Server, relent: &[&str]) {
    let mut run = sh(server, &["-w", "60s"], "echo ran").spawn();
    run.wait_for_stderr("redlock-run: ");
    server.redis.tell(relent);
    run.wait_for_stdout("ran\n");
    run.finish().any_output().expect_status(0);
    assert!(!server.redis.exists(KEY));
}

#[test]
fn a_failing_snapshot_is_unavailable() {
    let server = Server::start_with(&["--save", "3600 1", "--enable-protected-configs", "yes"]);
    server.redis.tell(&["SET", "a", "1"]);
    // The snapshot's temporary file cannot be made where a directory of its name stands; its
    // name ends in the child's pid, so the directory itself must go: the socket stays open.
    let gone = server.dir().join("gone");
    fs::create_dir(&gone).expect("a directory");
    server.redis.tell(&["CONFIG", "SET", "dir", gone.to_str().expect("a path")]);
    fs::remove_dir(&gone).expect("to be removed");
    server.redis.tell(&["BGSAVE"]);
    wait_until("the snapshot has failed", SOON, || {
        let info: String = server.redis.query(&["INFO", "persistence"]);
        info.contains("rdb_last_bgsave_status:err")
    });
    refused(sh(&server, &["-n"], "echo ran").finish(), 69, "MISCONF");
}

#[test]
fn a_redis_that_loads_its_data_is_unavailable_and_waited_for() {
    let mut server = loading(&["--loading-process-events-interval-bytes", "1024"]);
    refused(sh(&server, &["-n"], "echo ran").finish(), 69, "LOADING");
    sh(&server, &["-w", "60s", "-q"], "echo ran").finish().stdout("ran\n").expect_status(0);
    server.kill();
}

/// A server that takes about 3 s to load: 20,000 keys at 150 µs.
fn loading(args: &[&str]) -> Server {
    let mut server = Server::start_with(&["--enable-debug-command", "yes"]);
    server.redis.tell(&["DEBUG", "POPULATE", "20000"]);
    server.redis.tell(&["SAVE"]);
    server.kill();
    let mut all = vec!["--key-load-delay", "150"];
    all.extend(args);
    server.start_again_loading(&all);
    server
}

/// Each try is granted and over before that is heard: no reason to try for ever, least of all with -n.
#[test]
fn a_lease_that_is_over_before_its_answer_comes_is_69_and_given_back() {
    let server = Server::start();
    let proxy = Proxy::on_socket(&server);
    proxy.set(Mode::Delay(Duration::from_millis(400)));
    for wait in [&["-n"][..], &["-w", "2s"]] {
        let options = [&["--ttl", "300ms"], wait].concat();
        let outcome = sh(&server, &options, "echo ran").env("REDLOCK_RUN_URL", proxy.url()).finish();
        refused(outcome.within(Duration::from_secs(8)), 69, "too late for a lease of 300ms");
        assert!(!server.redis.exists(KEY));
    }
}

#[test]
fn too_many_clients_are_unavailable() {
    let server = Server::start_with(&["--maxclients", "1"]);
    // The client that asked whether the server is up may still count.
    let occupant = wait_for("the one client", SOON, || {
        let mut client = UnixStream::connect(server.socket()).ok()?;
        client.write_all(b"PING\r\n").ok()?;
        let mut reply = [0; 7];
        client.read_exact(&mut reply).ok()?;
        (&reply == b"+PONG\r\n").then_some(client)
    });
    let outcome = sh(&server, &["-n"], "echo ran").finish();
    refused(outcome.within(Duration::from_secs(5)), 69, "redlock-run: ");
    drop(occupant);
}

#[test]
fn a_cluster_node_without_slots_is_unavailable() {
    let server = Server::start_on_port(&["--cluster-enabled", "yes"]);
    refused(sh(&server, &["-n"], "echo ran").finish(), 69, "CLUSTERDOWN");
}

/// Acquire writes before it sets the key, so a full server lets the script pass.
#[test]
fn a_full_redis_is_never_called_busy() {
    let server = Server::start();
    server.redis.tell(&["CONFIG", "SET", "maxmemory", "1"]);
    sh(&server, &["-n"], "echo ran").finish().stdout("ran\n").expect_status(0);
}

#[test]
fn a_list_at_the_key_is_76_at_once_and_kept() {
    let server = Server::start();
    server.redis.tell(&["RPUSH", KEY, "x"]);
    let outcome = sh(&server, &["-w", "30s"], "echo ran").finish();
    let outcome = outcome.within(Duration::from_secs(5));
    refused(outcome, 76, "'job' holds a list, not a lock");
    assert_eq!(server.redis.query::<u64>(&["LLEN", KEY]), 1);
}

#[test]
fn an_outage_while_waiting_costs_one_line_not_one_per_try() {
    let mut server = Server::start();
    server.redis.tell(&["SET", KEY, "foreign"]);
    let mut run = sh(&server, &["-w", "60s"], "echo ran").spawn();
    run.wait_for_stderr("held by");
    server.kill();
    run.wait_for_stderr("cannot reach");
    let before = run.stderr_so_far();
    // Two seconds on purpose: tries go on, and none of them may print.
    stays("still waiting", Duration::from_secs(2), || true);
    let new = run.stderr_so_far()[before.len()..].matches("cannot reach").count();
    assert_eq!(new, 0, "{}", run.stderr_so_far());
    server.start_again();
    run.wait_for_stdout("ran\n");
    run.finish().any_output().expect_status(0);
}

#[test]
fn the_default_address_is_named_when_nothing_was_told() {
    if std::net::TcpStream::connect("127.0.0.1:6379").is_ok() {
        println!("skipped: something listens on the default port of this machine");
        return;
    }
    let started = Instant::now();
    Run::without_url(["-n", "--key", KEY, "true"])
        .finish()
        .stderr(
            "redlock-run: cannot reach Redis at 127.0.0.1:6379: connection refused\n\
             redlock-run:   hint: set REDLOCK_RUN_URL; this is the default address\n",
        )
        .expect_status(69);
    stalls::assert_within("the end", started, Duration::from_secs(5));
}
