//! What an uncontended run costs: one request to acquire, one to release, and nothing else.

use crate::support::jobs::KEY;
use crate::support::{Proxy, Run, Server};

/// Runs `true` through the proxy and asserts one connection with this many round trips.
#[track_caller]
fn costs(proxy: &Proxy, run: Run, round_trips: usize) {
    run.finish().expect_status(0);
    let seen = proxy.seen();
    let sent = String::from_utf8_lossy(&seen.requests).into_owned();
    assert_eq!(seen.connections, 1, "{sent}");
    assert_eq!(seen.round_trips, round_trips, "{sent}");
}

fn through(server: &Server, proxy: &Proxy, options: &[&str]) -> Run {
    let args = options.iter().chain(&["--key", KEY, "--", "true"]);
    Run::on(server, args).env("REDLOCK_RUN_URL", proxy.url())
}

#[test]
fn an_uncontended_run_costs_exactly_two_round_trips() {
    let server = Server::start();
    let proxy = Proxy::on_socket(&server);
    costs(&proxy, through(&server, &proxy, &[]), 2);
}

#[test]
fn over_tcp_it_costs_two_as_well() {
    let server = Server::start();
    let proxy = Proxy::on_port(&server);
    costs(&proxy, through(&server, &proxy, &[]), 2);
}

#[test]
fn with_a_password_it_costs_two_as_well() {
    let server = Server::start_with_password("S3cret");
    let proxy = Proxy::on_socket(&server);
    let run = through(&server, &proxy, &[]).env("REDLOCK_RUN_PASSWORD", "S3cret");
    costs(&proxy, run, 2);
}

#[test]
fn with_a_user_and_password_in_the_url_it_costs_two_as_well() {
    let server = Server::start();
    server.redis.tell(&["ACL", "SETUSER", "jobs", "on", ">S3cret", "~job*", "+@all"]);
    let proxy = Proxy::on_port(&server);
    let url = proxy.url().replace("redis://", "redis://jobs:S3cret@");
    costs(&proxy, through(&server, &proxy, &["--url", &url]), 2);
}

/// SELECT is never pipelined with the acquisition: if it failed, the lock would be taken in
/// database 0.
#[test]
fn another_database_costs_one_more() {
    let server = Server::start();
    let proxy = Proxy::on_port(&server);
    let url = format!("{}/5", proxy.url());
    costs(&proxy, through(&server, &proxy, &["--url", &url]), 3);
}

#[test]
fn a_busy_try_costs_one() {
    let server = Server::start();
    server.redis.tell(&["SET", KEY, "foreign"]);
    let proxy = Proxy::on_socket(&server);
    through(&server, &proxy, &["-n", "-q"]).finish().expect_status(75);
    assert_eq!(proxy.seen().round_trips, 1);
}
