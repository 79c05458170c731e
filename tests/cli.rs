//! The command line: what belongs to the job, how durations read, where values come from.

use std::time::Duration;

use crate::support::jobs::{KEY, on_a_short_lease, raw, sh};
use crate::support::run::PROGRAM;
use crate::support::{Run, Server};

/// Prints its arguments, each in brackets.
const SHOW: [&str; 4] = ["sh", "-c", "for a in \"$@\"; do echo \"[$a]\"; done", "sh"];

#[test]
fn everything_from_the_first_non_option_on_belongs_to_the_job() {
    let server = Server::start();
    let theirs = ["-v", "-n", "--version", "-h", "--help", "--", "--key", "x", "", " ", "-", "--"];
    let shown = format!("[{}]\n", theirs.join("]\n["));
    for ours in [vec!["--key", KEY], vec!["--key", KEY, "--"]] {
        let args = ours.iter().chain(&SHOW).chain(&theirs);
        Run::on(&server, args).finish().stdout(&shown).expect_status(0);
    }
}

#[test]
fn arguments_that_are_not_text_reach_the_job_untouched() {
    let server = Server::start();
    let args = raw(&[b"--key", b"job", b"--", b"printf", b"%s", b"a\xff\xfe\x01b\n"]);
    Run::on(&server, args).finish().stdout(b"a\xff\xfe\x01b\n").expect_status(0);
}

/// etcd's `lock` swallowed a second `--`.
#[test]
fn a_second_double_dash_belongs_to_the_job() {
    let server = Server::start();
    Run::on(&server, ["--key", KEY, "--", "sh", "-c", "echo \"$1\"", "sh", "--"])
        .finish()
        .stdout("--\n")
        .expect_status(0);
}

#[test]
fn a_command_that_looks_like_an_option_needs_the_double_dash_only() {
    let server = Server::start();
    let outcome = Run::on(&server, ["--key", KEY, "--", "--help"]).finish();
    outcome.stderr_contains("--help").expect_status(127);
}

#[test]
fn a_run_within_a_run_may_hold_another_key() {
    let server = Server::start();
    let args = ["--key", KEY, "--", PROGRAM, "--key", "inner", "--", "echo", "both"];
    Run::on(&server, args).finish().stdout("both\n").expect_status(0);
}

#[test]
fn a_verb_is_one_only_as_the_first_word() {
    let server = Server::start();
    for word in ["status", "completions"] {
        // No such program: it was looked for as a command.
        Run::on(&server, ["--key", KEY, word]).finish().stderr_contains(word).expect_status(127);
    }
}

#[test]
fn standard_input_reaches_the_job_byte_for_byte() {
    let server = Server::start();
    // 200 kB of all byte values: more than any pipe holds.
    let bytes: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    Run::on(&server, ["--key", KEY, "cat"]).stdin_bytes(&bytes).finish().stdout(&bytes).expect_status(0);
}

#[test]
fn durations_read_as_people_write_them() {
    let server = Server::start();
    let script = "echo $REDLOCK_RUN_LEASE_MS";
    let table = [
        ("30", "30000"),
        ("0.5", "500"),
        (".5", "500"),
        ("1.5s", "1500"),
        ("500ms", "500"),
        ("1m30s", "90000"),
        ("1h", "3600000"),
        ("1d", "86400000"),
        ("24h", "86400000"),
        ("100ms", "100"),
    ];
    for (text, millis) in table {
        let shown = format!("{millis}\n");
        let joined = format!("-t{text}");
        for options in [&["--ttl", text][..], &[&joined]] {
            // The shortest is over when the machine stands still for a twentieth of a second.
            let stall = Duration::from_millis(15);
            let outcome = on_a_short_lease(stall, || sh(&server, options, script).finish());
            outcome.stdout(&shown).expect_status(0);
        }
    }
}

#[test]
fn a_wait_may_be_as_short_as_a_few_milliseconds() {
    let server = Server::start();
    server.redis.tell(&["SET", KEY, "foreign"]);
    for wait in [".007", "7ms", "0.007s"] {
        sh(&server, &["-w", wait, "-q"], "echo ran").finish().expect_status(75);
    }
}

#[test]
fn an_option_wins_over_the_environment_and_that_over_the_default() {
    let server = Server::start();
    let script = "echo $REDLOCK_RUN_LEASE_MS";
    let lease = |options: &[&str], wanted: &str| {
        let run = sh(&server, options, script).env("REDLOCK_RUN_TTL", "7s");
        run.finish().stdout(wanted).expect_status(0);
    };
    lease(&[], "7000\n");
    lease(&["--ttl", "9s"], "9000\n");
    sh(&server, &[], script).finish().stdout("30000\n").expect_status(0);
}

#[test]
fn flocks_spellings_are_understood() {
    let server = Server::start();
    server.redis.tell(&["SET", KEY, "foreign"]);
    for options in [
        &["--nb", "-q"][..],
        &["--nonblock", "-q"],
        &["--nonblocking", "-q"],
        &["--timeout", "50ms", "-q"],
        &["--wait", "50ms", "-q"],
    ] {
        sh(&server, options, "echo ran").finish().expect_status(75);
    }
    sh(&server, &["-nq", "--conflict-exit-code", "3"], "echo ran").finish().expect_status(3);
}

#[test]
fn short_options_join_and_take_their_values_joined() {
    let server = Server::start();
    let args = ["-nkjob", "-t5s", "-E9", "true"];
    Run::on(&server, args).finish().expect_status(0);
}

#[test]
fn help_is_short_or_long_and_goes_to_stdout() {
    let short = Run::without_url(["-h"]).finish();
    let text = short.stdout_text();
    short.check(text.lines().count() <= 50, "at most 50 lines");
    short.check(text.lines().all(|line| line.chars().count() <= 80), "at most 80 columns");
    short.stdout(&text).expect_status(0);
    let long = Run::without_url(["--help"]).finish();
    let text = long.stdout_text();
    long.check(text.contains("redlock-run --key"), "an example");
    long.stdout(&text).expect_status(0);
}

#[test]
fn help_never_shows_values_of_the_environment() {
    for option in ["-h", "--help"] {
        let outcome = Run::without_url([option])
            .env("REDLOCK_RUN_URL", "redis://:S3cret@h")
            .env("REDLOCK_RUN_PASSWORD", "S3cret")
            .env("REDISCLI_AUTH", "S3cret")
            .finish();
        outcome.check(!outcome.stdout_text().contains("S3cret"), "no password");
        outcome.any_output().expect_status(0);
    }
}

#[test]
fn version_prints_a_constant_name() {
    let shown = format!("redlock-run {}\n", env!("CARGO_PKG_VERSION"));
    Run::without_url(["--version"]).finish().stdout(&shown).expect_status(0);
    // Whatever the program file is called.
    let dir = tempfile::tempdir().expect("a directory");
    let link = dir.path().join("other-name");
    std::os::unix::fs::symlink(PROGRAM, &link).expect("a link");
    Run::of(&link, ["--version"]).finish().stdout(&shown).expect_status(0);
}
