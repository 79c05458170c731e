//! `redlock-run status`: who holds what, for people and for scripts.

use serde_json::Value;

use crate::support::jobs::{KEY, holding};
use crate::support::{Run, Server};

fn status(server: &Server, args: &[&str]) -> crate::support::Outcome {
    Run::on(server, ["status"].iter().chain(args)).finish()
}

#[test]
fn a_held_lock_is_shown_with_its_holder_and_exits_0() {
    let server = Server::start();
    let run = holding(&server, &["--note", "by hand"]);
    let outcome = status(&server, &[KEY]);
    let text = outcome.stdout_text();
    outcome.check(text.starts_with("held  job  "), "the state and the key first");
    outcome.check(text.lines().count() == 1, "one line");
    let pid = format!("  pid {}  sh  since ", run.pid());
    outcome
        .stdout_contains(&pid)
        .stdout_contains("  expires in ")
        .stdout_contains("by hand")
        .expect_status(0);
}

#[test]
fn a_free_lock_exits_1() {
    let server = Server::start();
    let outcome = status(&server, &[KEY]);
    outcome.check(outcome.stdout_text().starts_with("free  job"), "the state and the key");
    outcome.any_output().expect_status(1);
}

#[test]
fn several_keys_exit_0_only_when_all_are_held() {
    let server = Server::start();
    let _run = holding(&server, &[]);
    server.redis.tell(&["SET", "theirs", "foreign", "PX", "60000"]);
    status(&server, &[KEY, "theirs"]).stdout_contains("held  theirs").expect_status(0);
    let outcome = status(&server, &[KEY, "nobodys"]);
    outcome.check(outcome.stdout_text().lines().count() == 2, "a line for each");
    outcome.stdout_contains("free  nobodys").expect_status(1);
}

#[test]
fn json_is_one_object_per_key() {
    let server = Server::start();
    let run = holding(&server, &[]);
    let outcome = status(&server, &["--json", KEY, "nobodys"]);
    let text = outcome.stdout_text();
    outcome.any_output().expect_status(1);
    let objects: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(objects.len(), 2, "{text}");
    assert_eq!(objects[0]["key"], KEY);
    assert_eq!(objects[0]["pid"], run.pid());
    assert_eq!(objects[0]["program"], "sh");
    assert_eq!(objects[1]["key"], "nobodys");
    assert_ne!(objects[0]["state"], objects[1]["state"]);
}

#[test]
fn no_token_is_shown() {
    let server = Server::start();
    let _run = holding(&server, &[]);
    let value: Value = serde_json::from_str(&server.redis.get(KEY).expect("held")).expect("JSON");
    let token = value["token"].as_str().expect("a token");
    for args in [&[KEY][..], &["--json", KEY]] {
        let outcome = status(&server, args);
        outcome.check(!outcome.stdout_text().contains(token), "no whole token");
        outcome.check(!outcome.stderr_text().contains(token), "no whole token");
        outcome.any_output().expect_status(0);
    }
}

#[test]
fn text_of_another_tool_is_escaped() {
    let server = Server::start();
    server.redis.tell(&["SET", KEY, "evil \u{1b}[31m\u{202e}\u{7} text"]);
    for args in [&[KEY][..], &["--json", KEY]] {
        let outcome = status(&server, args);
        let raw = outcome.stdout_text();
        let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        outcome.check(!raw.contains(bad), "no control character");
        outcome.any_output().expect_status(0);
    }
}

#[test]
fn without_redis_it_is_69_and_not_free() {
    Run::without_url(["status", KEY])
        .env("REDLOCK_RUN_URL", "unix:///no/such/socket")
        .finish()
        .stderr_contains("redlock-run: cannot reach Redis")
        .expect_status(69);
}

#[test]
fn without_a_key_it_is_64() {
    let server = Server::start();
    status(&server, &[]).stderr_contains("redlock-run: ").expect_status(64);
}
