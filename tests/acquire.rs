//! Taking a free lock: what stands at the key, and what the job learns.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::support::jobs::{KEY, holding, raw, sh};
use crate::support::{Run, Server};

fn value_at(server: &Server) -> (String, Value) {
    let text = server.redis.get(KEY).expect("the lock is held");
    let value = serde_json::from_str(&text).expect("JSON");
    (text, value)
}

#[test]
fn the_value_is_one_line_of_json_with_the_token_first() {
    let server = Server::start();
    let run = holding(&server, &[]);
    let (text, value) = value_at(&server);
    assert!(text.starts_with("{\"token\":\""), "{text}");
    assert!(!text.contains(['\n', ' ']) && text.len() <= 1024, "{text}");
    let token = value["token"].as_str().expect("a token");
    let token = uuid::Uuid::parse_str(token).expect("a UUID");
    assert_eq!(token.get_version_num(), 4);
    assert_eq!(value["pid"], run.pid());
    assert_eq!(value["program"], "sh");
    assert!(value["holder"].as_str().expect("a holder").contains('@'));
    assert!(value.get("note").is_none(), "{text}");
}

#[test]
fn the_value_says_since_when_in_utc() {
    let before = SystemTime::now();
    let server = Server::start();
    let _run = holding(&server, &[]);
    let (_, value) = value_at(&server);
    let since = value["since"].as_str().expect("a time");
    let since = humantime::parse_rfc3339(since).expect("RFC 3339");
    // Whole seconds may be cut off.
    assert!(since + Duration::from_secs(1) >= before);
    assert!(since <= SystemTime::now());
}

#[test]
fn the_value_holds_the_programs_base_name_and_never_its_arguments() {
    let server = Server::start();
    let args = ["--key", KEY, "/bin/sh", "-c", "echo $$; sleep 600", "S3cret"];
    let mut run = Run::on(&server, args).spawn();
    run.job();
    let (text, value) = value_at(&server);
    assert_eq!(value["program"], "sh");
    assert!(!text.contains("S3cret"), "{text}");
}

#[test]
fn a_note_stands_in_the_value_only_when_given() {
    let server = Server::start();
    let _run = holding(&server, &["--note", "nightly \"full\" backup"]);
    assert_eq!(value_at(&server).1["note"], "nightly \"full\" backup");
}

#[test]
fn a_note_may_come_from_the_environment() {
    let server = Server::start();
    let run = sh(&server, &[], "echo $$; sleep 600").env("REDLOCK_RUN_NOTE", "from CI");
    let mut run = run.spawn();
    run.job();
    assert_eq!(value_at(&server).1["note"], "from CI");
}

#[test]
fn the_key_is_byte_for_byte_what_the_user_typed() {
    let server = Server::start();
    let keys: [&[u8]; 6] = [b"a b", b"{job}", b"a\nb", b"j\xff\xfeb", "schl\u{f6}sser".as_bytes(), b"-n"];
    for key in keys {
        let mut args = raw(&[b"--key", key]);
        if key.starts_with(b"-") {
            args = raw(&[&[b"--key=", key].concat()]);
        }
        args.extend(raw(&[b"--", b"sh", b"-c", b"echo $$; sleep 600"]));
        let mut run = Run::on(&server, args).spawn();
        run.job();
        let found: bool = server.redis.query(&[b"EXISTS", key]);
        assert!(found, "{:?} is not there", String::from_utf8_lossy(key));
    }
}

#[test]
fn every_run_has_a_token_of_its_own() {
    let server = Server::start();
    let mut tokens = HashSet::new();
    for _ in 0..5 {
        let outcome = sh(&server, &[], "echo $REDLOCK_RUN_TOKEN").finish();
        tokens.insert(outcome.stdout_text());
        outcome.any_output().expect_status(0);
    }
    assert_eq!(tokens.len(), 5, "{tokens:?}");
}

#[test]
fn the_job_learns_key_token_and_lease() {
    let server = Server::start();
    let script = "echo $REDLOCK_RUN_TOKEN; echo $REDLOCK_RUN_HELD; \
                  echo $REDLOCK_RUN_KEY $REDLOCK_RUN_LEASE_MS; exec sleep 600";
    let mut run = sh(&server, &["--ttl", "20s"], script).spawn();
    run.wait_for_stdout("job 20000\n");
    let stdout = run.stdout_so_far();
    let told: Vec<&str> = stdout.lines().collect();
    let (_, value) = value_at(&server);
    assert_eq!(told[0], value["token"]);
    // Nothing was held outside: the ancestors' tokens and ours are ours alone.
    assert_eq!(told[1], told[0]);
}

#[test]
fn the_lease_is_thirty_seconds_unless_told_otherwise() {
    let server = Server::start();
    let _run = holding(&server, &[]);
    let left = server.redis.pttl(KEY);
    // The first extension comes after 8.1 s, so between 20 s and 30 s are left.
    assert!((20_000..=30_000).contains(&left), "{left}");
}

#[test]
fn a_busy_lock_with_n_is_75_at_once_and_the_job_never_starts() {
    let server = Server::start();
    let _holder = holding(&server, &[]);
    sh(&server, &["-n"], "echo ran")
        .finish()
        .stderr_contains("lock 'job' is held by ")
        .within(Duration::from_secs(5))
        .expect_status(75);
}

#[test]
fn a_lock_of_another_tool_is_busy_and_is_left_alone() {
    let server = Server::start();
    server.redis.tell(&["SET", KEY, "foreign", "PX", "60000"]);
    let busy = || sh(&server, &["-n"], "echo ran").finish();
    busy().stderr_contains("job").expect_status(75);
    assert_eq!(server.redis.get(KEY).as_deref(), Some("foreign"));
    server.redis.tell(&["PERSIST", KEY]);
    busy().stderr_contains("has no expiry; if its owner is gone").expect_status(75);
    assert_eq!(server.redis.get(KEY).as_deref(), Some("foreign"));
    assert_eq!(server.redis.pttl(KEY), -1);
}
