//! Bad input: one line, a hint, the right status; nothing taken, no panic, no password shown.

use std::time::Duration;

use crate::support::jobs::KEY;
use crate::support::{Run, Server};

/// What stands in every password here, and must never stand in any output.
const SECRET: &str = "S3cret";

/// Asserts the form that every refusal of bad input has.
#[track_caller]
fn refused(server: &Server, run: Run, status: i32, parts: &[&str]) {
    let mut outcome = run.finish().within(Duration::from_secs(10));
    let text = outcome.stderr_text();
    outcome.check(!text.contains(SECRET), "no password");
    outcome.check(!text.contains("panicked"), "no panic");
    let lines: Vec<&str> = text.lines().collect();
    let are_ours = lines.iter().all(|line| line.starts_with("redlock-run: "));
    outcome.check(are_ours && !lines.is_empty(), "lines that begin with redlock-run:");
    let are_hints = lines[1..].iter().all(|line| line.contains("  hint: "));
    outcome.check(are_hints && lines.len() <= 3, "one line, and hints after it");
    for part in parts {
        outcome = outcome.stderr_contains(part);
    }
    outcome.stderr_contains("redlock-run: ").expect_status(status);
    assert_eq!(server.redis.calls("eval"), 0, "nothing is taken");
}

/// Options before `-- true`, with the key given.
fn with_options(server: &Server, options: &[&str]) -> Run {
    let args = ["--key", KEY].iter().chain(options).chain(&["--", "true"]);
    Run::on(server, args)
}

#[test]
fn a_value_that_cannot_be_read_or_is_out_of_range_is_64() {
    let server = Server::start();
    let table: &[(&[&str], &[&str])] = &[
        (&["--ttl", "0"], &["--ttl", "'0'"]),
        (
            &["--ttl", "1M"],
            &["--ttl '1M': unknown unit 'M'\nredlock-run:   hint: m is minutes, h hours, d days"],
        ),
        (&["--ttl", "50ms"], &["--ttl", "100ms"]),
        (&["--ttl", "25h"], &["--ttl", "24h"]),
        (&["--ttl", "-1"], &["-1"]),
        (&["--ttl=-1"], &["--ttl"]),
        (&["--ttl", "inf"], &["--ttl"]),
        (&["--ttl", "nan"], &["--ttl"]),
        (&["--ttl", "1e30"], &["--ttl"]),
        (&["--ttl", "99999999999999999999999999d"], &["--ttl"]),
        (&["--ttl", ""], &["--ttl"]),
        (&["--ttl", "5 minutes ago"], &["--ttl"]),
        (&["-w", "1M"], &["'1M'"]),
        (&["-w", "abc"], &["'abc'"]),
        (&["-w", "99999999999999999999d"], &["99999999999999999999d"]),
        (&["-E", "600"], &["600"]),
        (&["-E", "-1"], &["-1"]),
        (&["-E", "x"], &["'x'"]),
        (&["--on-lost", "explode"], &["explode"]),
        (&["--signal", "NOPE"], &["NOPE"]),
        (&["--kill-after", "x"], &["--kill-after"]),
        (&["--command-timeout", "0"], &["--command-timeout"]),
        (&["--connect-timeout", "0"], &["--connect-timeout"]),
        (&["--no-such-option"], &["--no-such-option"]),
        (&["--noti", "x"], &["--noti"]),
    ];
    for (options, parts) in table {
        refused(&server, with_options(&server, options), 64, parts);
    }
    let long = "x".repeat(201);
    refused(&server, with_options(&server, &["--note", &long]), 64, &["--note"]);
}

#[test]
fn an_empty_or_missing_key_is_64() {
    let server = Server::start();
    refused(&server, Run::on(&server, ["--key", "", "true"]), 64, &["key"]);
    refused(&server, Run::on(&server, ["--key=", "true"]), 64, &["key"]);
    refused(&server, Run::on(&server, ["true"]), 64, &["--key"]);
}

#[test]
fn a_missing_command_is_64() {
    let server = Server::start();
    refused(&server, Run::on(&server, ["--key", KEY]), 64, &["command"]);
    refused(&server, Run::on(&server, ["--key", KEY, "--"]), 64, &["command"]);
}

#[test]
fn a_url_that_cannot_be_read_is_64_and_shows_no_password() {
    let server = Server::start();
    let table = [
        ("redis://:S3cret#x@127.0.0.1:6379", "%23"),
        ("redis://:S3cret@x@127.0.0.1:6379", "%23"),
        ("redis://:S3cret/x@127.0.0.1:6379", ""),
        ("redis://:S3cret?x@127.0.0.1:6379", ""),
        ("redis://:S3cret%zz@127.0.0.1:6379", "%"),
        ("http://127.0.0.1:6379", "http"),
        ("redis://127.0.0.1:99999", "port"),
        ("redis://127.0.0.1:port", "port"),
        ("redis://127.0.0.1/x", "x"),
        ("redis://127.0.0.1/0?no_such_parameter=1", "no_such_parameter"),
        ("redis://", ""),
        ("", ""),
    ];
    for (url, part) in table {
        refused(&server, with_options(&server, &["--url", url]), 64, &[part]);
    }
}

#[test]
fn a_user_name_where_the_password_belongs_is_pointed_out() {
    let server = Server::start();
    // redis-rs takes this for a user without a password and sends no AUTH at all.
    let run = with_options(&server, &["--url", "redis://S3cret@127.0.0.1:6379"]);
    refused(&server, run, 78, &["  hint: "]);
}

#[test]
fn options_that_contradict_each_other_are_78() {
    let server = Server::start();
    refused(&server, with_options(&server, &["-n", "-w", "5"]), 78, &["-n", "-w"]);
    let file = ["--password-file", "/no/such/file"];
    refused(&server, with_options(&server, &file), 78, &["/no/such/file"]);
}

#[test]
fn a_line_of_shell_and_a_command_contradict_each_other() {
    let server = Server::start();
    let run = Run::on(&server, ["--key", KEY, "-c", "true", "true"]);
    refused(&server, run, 78, &["-c"]);
}

#[test]
fn a_wrong_environment_variable_is_78_and_named() {
    let server = Server::start();
    let table = [
        ("REDLOCK_RUN_TTL", "1M"),
        ("REDLOCK_RUN_WAIT", "soon"),
        ("REDLOCK_RUN_URL", "http://:S3cret@h"),
        ("REDLOCK_RUN_URL", "redis://:S3cret@x@h"),
    ];
    for (name, value) in table {
        let run = with_options(&server, &[]).env(name, value);
        refused(&server, run, 78, &[name]);
    }
}

#[test]
fn a_key_that_is_another_locks_companion_is_78() {
    let server = Server::start();
    for suffix in ["wake", "fence", "holds", "shared", "slot:3", "intent", "queue"] {
        let key = format!("job:{suffix}");
        let run = Run::on(&server, ["--key", &key, "true"]);
        refused(&server, run, 78, &[&key]);
    }
}

#[test]
fn a_directory_as_command_is_126() {
    let server = Server::start();
    let args = ["--key", KEY, "--", "/tmp"];
    refused(&server, Run::on(&server, args), 126, &["/tmp"]);
}
