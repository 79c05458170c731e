//! Passwords: where they come from, which characters they may have, and what a wrong one does.

use std::fs;
use std::time::Duration;

use percent_encoding::NON_ALPHANUMERIC;

use crate::support::jobs::{KEY, sh};
use crate::support::{Run, Server};

const PASSWORD: &str = "S3cret";

#[test]
fn a_wrong_password_is_77_at_once_even_with_a_wait() {
    let server = Server::start_with_password(PASSWORD);
    for options in [["-n", "-q"], ["-w", "60s"]] {
        let outcome = sh(&server, &options, "echo ran").env("REDLOCK_RUN_PASSWORD", "wr0ng").finish();
        let text = outcome.stderr_text();
        outcome.check(!text.contains("wr0ng"), "no password");
        outcome.stderr_contains("redlock-run: ").within(Duration::from_secs(5)).expect_status(77);
    }
    assert!(!server.redis.exists(KEY));
}

#[test]
fn a_missing_password_is_77_at_once() {
    let server = Server::start_with_password(PASSWORD);
    let outcome = sh(&server, &["-w", "60s"], "echo ran").finish();
    outcome.stderr_contains("hint: ").within(Duration::from_secs(5)).expect_status(77);
}

/// A Redis that does not know AUTH repeats what it does not know.
#[test]
fn a_server_without_auth_does_not_make_us_print_the_password() {
    let server = Server::start_with(&["--rename-command", "AUTH", ""]);
    let outcome = sh(&server, &["-n"], "echo ran").env("REDLOCK_RUN_PASSWORD", PASSWORD).finish();
    let text = outcome.stderr_text();
    outcome.check(!text.contains(PASSWORD), "no password");
    outcome.stderr_contains("unknown command").expect_status(77);
}

#[test]
fn a_password_comes_from_a_file_a_variable_or_the_url() {
    let server = Server::start_with_password(PASSWORD);
    let file = server.dir().join("password");
    fs::write(&file, format!("{PASSWORD}\n")).expect("a file");
    let file = file.to_str().expect("a path");
    let ok = |run: Run| run.finish().stdout("ran\n").expect_status(0);
    ok(sh(&server, &["--password-file", file], "echo ran"));
    ok(sh(&server, &[], "echo ran").env("REDLOCK_RUN_PASSWORD", PASSWORD));
    ok(sh(&server, &[], "echo ran").env("REDISCLI_AUTH", PASSWORD));
    // The option wins over the environment.
    ok(sh(&server, &["--password-file", file], "echo ran").env("REDLOCK_RUN_PASSWORD", "wr0ng"));
    ok(sh(&server, &[], "echo ran").env("REDLOCK_RUN_PASSWORD", PASSWORD).env("REDISCLI_AUTH", "wr0ng"));
}

/// redis-rs#152, #517, redis/node-redis#1728 and others: every one of these has been reported.
#[test]
fn passwords_with_any_character_work() {
    let password = "p@s/w#r?d%41:=&+ é";
    let server = Server::start_on_port(&[]);
    server.redis.tell(&["ACL", "SETUSER", "default", "resetpass", &format!(">{password}")]);
    let ok = |run: Run| run.finish().stdout("ran\n").expect_status(0);
    ok(sh(&server, &[], "echo ran").env("REDLOCK_RUN_PASSWORD", password));
    let encoded = percent_encoding::utf8_percent_encode(password, NON_ALPHANUMERIC);
    let url = format!("redis://:{encoded}@127.0.0.1:{}", server.port());
    ok(sh(&server, &["--url", &url], "echo ran"));
}

#[test]
fn the_job_gets_no_password_of_ours_and_keeps_those_of_the_application() {
    let server = Server::start_with_password(PASSWORD);
    let script = "echo \"[$REDLOCK_RUN_PASSWORD] [$REDISCLI_AUTH] [$REDIS_URL]\"";
    sh(&server, &[], script)
        .env("REDLOCK_RUN_PASSWORD", PASSWORD)
        .env("REDISCLI_AUTH", "app")
        .env("REDIS_URL", "redis://app")
        .finish()
        .stdout("[] [app] [redis://app]\n")
        .expect_status(0);
}
