//! Attempts whose outcome is unknown: what they may have taken is given back, and never mistaken for
//! somebody else's.

use std::collections::HashSet;
use std::time::Duration;

use crate::support::jobs::{KEY, sh};
use crate::support::wait::SOON;
use crate::support::{Mode, Proxy, Server, wait_until};

/// simstudioai/sim#6864: the request was carried out, its reply never came.
#[test]
fn a_lock_whose_reply_was_lost_is_given_back() {
    let server = Server::start();
    let proxy = Proxy::on_socket(&server);
    proxy.set(Mode::SwallowReplies);
    sh(&server, &["-n", "--command-timeout", "300ms", "--ttl", "60s"], "echo ran")
        .env("REDLOCK_RUN_URL", proxy.url())
        .finish()
        .stderr_contains("redlock-run: ")
        .expect_status(69);
    wait_until("the lock is gone", SOON, || !server.redis.exists(KEY));
}

#[test]
fn a_lock_that_a_stopped_redis_grants_later_is_given_back() {
    let server = Server::start();
    server.pause();
    sh(&server, &["-n", "--command-timeout", "1s", "--ttl", "60s"], "echo ran")
        .finish()
        .stderr_contains("redlock-run: ")
        .expect_status(69);
    server.resume();
    // The attempt and its clean-up lie in the server's sockets.
    wait_until("both have run", SOON, || server.redis.calls("eval") >= 2);
    assert!(!server.redis.exists(KEY));
}

#[test]
fn after_a_lost_reply_the_next_attempt_has_a_new_token_and_wins() {
    let server = Server::start();
    let proxy = Proxy::on_socket(&server);
    proxy.set(Mode::SwallowReplies);
    let options = ["-w", "30s", "--command-timeout", "300ms", "--ttl", "60s"];
    let run = sh(&server, &options, "echo ran").env("REDLOCK_RUN_URL", proxy.url());
    let mut run = run.spawn();
    wait_until("the attempt and its clean-up are sent", SOON, || server.redis.calls("eval") >= 2);
    proxy.set(Mode::Pass);
    run.finish().any_output().expect_status(0);
    assert_eq!(run.stdout_so_far(), "ran\n");
    let sent = String::from_utf8_lossy(&proxy.seen().requests).into_owned();
    let tokens: HashSet<&str> = sent.split("\"token\":\"").skip(1).map(|rest| &rest[..36]).collect();
    assert!(tokens.len() >= 2, "{tokens:?}");
    assert!(!server.redis.exists(KEY));
}

#[test]
fn an_own_attempt_that_arrives_late_is_never_mistaken_for_another_holder() {
    let server = Server::start();
    let proxy = Proxy::on_socket(&server);
    proxy.set(Mode::BlackHole);
    let options = ["-w", "30s", "--command-timeout", "300ms", "--ttl", "60s"];
    let run = sh(&server, &options, "echo ran").env("REDLOCK_RUN_URL", proxy.url());
    let mut run = run.spawn();
    wait_until("several attempts are on their way", SOON, || proxy.seen().connections >= 4);
    // All arrive now, clean-ups perhaps before what they clean up.
    proxy.set(Mode::Pass);
    run.finish().any_output().within(Duration::from_secs(25)).expect_status(0);
    assert_eq!(run.stdout_so_far(), "ran\n");
}
