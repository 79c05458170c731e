//! Where the Redis is: the forms of URLs, and who wins when several are given.

use crate::support::jobs::{KEY, sh};
use crate::support::{Run, Server};

#[test]
fn the_url_comes_from_the_option_then_our_variable_then_the_common_one() {
    let server = Server::start();
    let url = server.url();
    let dead = "unix:///no/such/socket";
    let run = |args: &[&str]| Run::without_url(args.iter().chain(&["--key", KEY, "-n", "true"]));
    run(&["--url", &url]).env("REDLOCK_RUN_URL", dead).env("REDIS_URL", dead).finish().expect_status(0);
    run(&[]).env("REDLOCK_RUN_URL", &url).env("REDIS_URL", dead).finish().expect_status(0);
    run(&[]).env("REDIS_URL", &url).finish().expect_status(0);
}

#[test]
fn urls_read_as_people_write_them() {
    let server = Server::start_on_port(&[]);
    let socket = server.socket().display().to_string();
    let port = server.port();
    let urls = [
        format!("unix://{socket}"),
        format!("redis+unix://{socket}"),
        socket.clone(),
        format!("redis://127.0.0.1:{port}"),
        format!("redis://127.0.0.1:{port}/"),
        format!("redis://127.0.0.1:{port}/0"),
        format!("redis://localhost:{port}"),
        format!("valkey://127.0.0.1:{port}"),
    ];
    for url in urls {
        Run::without_url(["--url", &url, "--key", KEY, "-n", "true"]).finish().expect_status(0);
    }
}

#[test]
fn a_socket_path_may_be_relative_and_hold_spaces() {
    let server = Server::start();
    let other = server.dir().join("a b.sock");
    std::os::unix::fs::symlink(server.socket(), other).expect("a link");
    for url in ["./a b.sock", "unix://./a b.sock"] {
        Run::without_url(["--url", url, "--key", KEY, "-n", "true"])
            .in_dir(server.dir())
            .finish()
            .expect_status(0);
    }
}

#[test]
fn another_database_is_used_when_the_url_names_one() {
    let server = Server::start_on_port(&[]);
    let url = format!("{}/3", server.tcp_url());
    let script = "echo $$; sleep 600";
    let mut run = sh(&server, &["--url", &url], script).spawn();
    run.job();
    assert!(!server.redis.exists(KEY), "not in database 0");
    let keyspace: String = server.redis.query(&["INFO", "keyspace"]);
    assert!(keyspace.contains("db3:"), "{keyspace}");
    // A lock of the same name in another database is another lock.
    sh(&server, &["-n"], "true").finish().expect_status(0);
}
