//! Missing rights show at the acquisition, before anything is set, and the
//! hint can be pasted.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use crate::support::jobs::{Gate, KEY, holding, sh};
use crate::support::wait::SOON;
use crate::support::{Outcome, Run, Server, wait_until};

const PASSWORD: &str = "S3cret";

/// A server with the user `jobs`, who has `rights`.
fn server_with_user(rights: &str) -> Server {
    let server = Server::start();
    set_user(&server, rights);
    server
}

fn set_user(server: &Server, rights: &str) {
    let line = format!("ACL SETUSER jobs reset on >{PASSWORD} {rights}");
    server.redis.tell(&line.split_whitespace().collect::<Vec<_>>());
}

/// A run as that user.
fn as_user(server: &Server, options: &[&str], script: &str) -> Run {
    let mut all = vec!["--user", "jobs"];
    all.extend(options);
    sh(server, &all, script).env("REDLOCK_RUN_PASSWORD", PASSWORD)
}

/// Asserts that rights are missed before anything is set or run; returns stderr.
#[track_caller]
fn denied(server: &Server, outcome: Outcome) -> String {
    let text = outcome.stderr_text();
    outcome.check(!text.contains(PASSWORD), "no password");
    outcome.stderr_contains("redlock-run: ").stderr_contains("hint: ").expect_status(77);
    assert!(!server.redis.exists(KEY));
    text
}

/// Pastes the hint's line as into redis-cli: an inline command is read with the same quoting.
fn paste_the_hint(server: &Server, text: &str) {
    let start = text.find("ACL SETUSER ").expect("a line to paste");
    let line = text[start..].lines().next().expect("a line");
    let mut stream = UnixStream::connect(server.socket()).expect("the server");
    stream.write_all(format!("{line}\r\n").as_bytes()).expect("to be sent");
    let mut reply = [0; 5];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(&reply, b"+OK\r\n", "{line}");
}

/// All rights that a run uses on its own keys.
const ALL: &str = "~job* +@all";

#[test]
fn a_user_without_rights_is_told_a_line_that_works_when_pasted() {
    let server = server_with_user("");
    let text = denied(&server, as_user(&server, &["-n"], "echo ran").finish());
    assert!(text.starts_with("redlock-run: Redis refused user 'jobs': "), "{text}");
    paste_the_hint(&server, &text);
    as_user(&server, &["-n"], "echo ran").finish().stdout("ran\n").expect_status(0);
    assert!(!server.redis.exists(KEY));
}

/// ioredis#1211, lettuce#1379: start-up commands that need rights of their own.
#[test]
fn the_rights_of_the_hint_are_enough_for_the_whole_life_of_a_lock() {
    let server = server_with_user("");
    let text = denied(&server, as_user(&server, &["-n"], "true").finish());
    paste_the_hint(&server, &text);
    let gate = Gate::new(&server);
    let script = format!("echo $$; {}", gate.wait());
    let mut holder = as_user(&server, &["--ttl", "3s"], &script).spawn();
    holder.job();
    let before = server.redis.calls("pexpire");
    let mut waiter = as_user(&server, &["-w", "30s", "-q"], "echo mine").spawn();
    wait_until("the waiter waits in BLPOP", SOON, || server.redis.calls("blpop") > 0);
    wait_until("the holder has extended", SOON, || server.redis.calls("pexpire") > before);
    gate.open();
    holder.finish().stdout(holder.stdout_so_far()).expect_status(0);
    waiter.finish().stdout("mine\n").expect_status(0);
}

#[test]
fn a_user_without_eval_is_denied_by_name() {
    let server = server_with_user(&format!("{ALL} -eval"));
    let text = denied(&server, as_user(&server, &["-n"], "echo ran").finish());
    assert!(text.contains("eval"), "{text}");
}

#[test]
fn a_user_whose_keys_lie_elsewhere_is_denied() {
    let server = server_with_user("~other* +@all");
    denied(&server, as_user(&server, &["-n"], "echo ran").finish());
    // And with a wait: waiting cannot help.
    denied(&server, as_user(&server, &["-w", "30s"], "echo ran").finish());
}

/// taskforcesh/bullmq#3351: the first renewal failed instead of the acquisition.
#[test]
fn rights_that_only_extend_and_release_need_are_missed_at_once() {
    for missing in ["-del", "-pexpire", "-get", "-pttl"] {
        let server = server_with_user(&format!("{ALL} {missing}"));
        let outcome = as_user(&server, &["-n"], "echo ran").finish();
        if outcome.stdout_text() == "ran\n" {
            // Then no script uses that command: extending and releasing must work without it.
            outcome.any_output().expect_status(0);
            assert!(!server.redis.exists(KEY), "released without {missing}");
            continue;
        }
        denied(&server, outcome);
    }
}

#[test]
fn del_and_pexpire_are_among_the_rights_that_are_proven() {
    for missing in ["-del", "-pexpire", "-set"] {
        let server = server_with_user(&format!("{ALL} {missing}"));
        denied(&server, as_user(&server, &["-n"], "echo ran").finish());
    }
}

#[test]
fn without_the_wake_key_waiting_polls_and_that_is_said_once() {
    let server = server_with_user("~job ~job:fence ~job:holds +@all");
    let holder = holding(&server, &[]);
    let mut waiter = as_user(&server, &["-w", "60s"], "echo mine").spawn();
    waiter.wait_for_stderr("wake");
    holder.signal(nix::sys::signal::Signal::SIGTERM);
    waiter.wait_for_stdout("mine\n");
    let outcome = waiter.finish();
    let said = outcome.stderr_text().matches("wake").count();
    outcome.check(said == 1, "said once");
    outcome.any_output().expect_status(0);
    assert!(!server.redis.exists(KEY));
}

#[test]
fn without_the_fence_key_the_option_that_does_without_is_named() {
    let server = server_with_user("~job ~job:wake ~job:holds +@all");
    let text = denied(&server, as_user(&server, &["-n"], "echo ran").finish());
    assert!(text.contains("--no-fencing"), "{text}");
    as_user(&server, &["-n", "--no-fencing", "-q"], "echo ran").finish().stdout("ran\n").expect_status(0);
    assert!(!server.redis.exists(KEY));
}

#[test]
fn the_pattern_of_the_hint_is_escaped() {
    let server = server_with_user("");
    let run = |key: &str| {
        Run::on(&server, ["-n", "--user", "jobs", "--key", key, "--", "true"])
            .env("REDLOCK_RUN_PASSWORD", PASSWORD)
            .finish()
    };
    let outcome = run("job[1]*");
    let text = outcome.stderr_text();
    outcome.any_output().expect_status(77);
    paste_the_hint(&server, &text);
    run("job[1]*").expect_status(0);
    // As a pattern, the key would match this one.
    run("job1x").any_output().expect_status(77);
}

/// AUTH and EVAL travel together: with an open default user the second may succeed alone.
#[test]
fn a_lock_taken_as_somebody_else_is_given_back() {
    let server = server_with_user(ALL);
    as_user(&server, &["-n"], "echo ran")
        .env("REDLOCK_RUN_PASSWORD", "wr0ng")
        .finish()
        .stderr_contains("redlock-run: ")
        .expect_status(77);
    assert!(!server.redis.exists(KEY));
}
