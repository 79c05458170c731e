//! Fencing tokens: numbers that only grow, so that a resource can turn away a stale holder.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::Server;
use crate::support::jobs::sh;

/// The job's fencing token of one run.
fn token(server: &Server) -> u64 {
    let outcome = sh(server, &[], "echo $REDLOCK_RUN_FENCING_TOKEN").finish();
    let text = outcome.stdout_text();
    outcome.check(text.trim().bytes().all(|byte| byte.is_ascii_digit()), "digits");
    outcome.any_output().expect_status(0);
    text.trim().parse().expect("a fencing token")
}

fn micros_now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_micros()
}

#[test]
fn each_acquisition_has_a_greater_number() {
    let server = Server::start();
    let tokens: Vec<u64> = (0..10).map(|_| token(&server)).collect();
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

#[test]
fn it_starts_from_the_servers_time_in_microseconds() {
    let server = Server::start();
    let before = micros_now();
    let token = u128::from(token(&server));
    assert!((before..=micros_now()).contains(&token), "{token} after {before}");
}

#[test]
fn it_grows_across_the_loss_of_all_data() {
    let mut server = Server::start();
    let first = token(&server);
    server.redis.tell(&["FLUSHALL"]);
    let second = token(&server);
    server.kill();
    server.start_again();
    let third = token(&server);
    assert!(first < second && second < third, "{first} {second} {third}");
}

#[test]
fn a_counter_ahead_of_the_clock_is_counted_on_from() {
    let server = Server::start();
    // 2⁵² is in the year 2112, and its successor is still exact in a double.
    server.redis.tell(&["SET", "job:fence", "4503599627370496"]);
    assert_eq!(token(&server), 4_503_599_627_370_497);
    assert_eq!(server.redis.get("job:fence").as_deref(), Some("4503599627370497"));
}

#[test]
fn a_foreign_value_at_the_counter_counts_as_zero() {
    let server = Server::start();
    for value in ["", "abc", "nan", "inf", "-5"] {
        server.redis.tell(&["SET", "job:fence", value]);
        let before = micros_now();
        assert!(u128::from(token(&server)) + 1_000_000 >= before, "after {value:?}");
    }
}

#[test]
fn the_counter_is_kept_for_seven_days_after_its_last_use() {
    let server = Server::start();
    token(&server);
    let week = 7 * 24 * 3600 * 1000;
    let left = server.redis.pttl("job:fence");
    assert!((week - 60_000..=week).contains(&left), "{left}");
}

#[test]
fn the_counter_holds_what_the_job_was_told() {
    let server = Server::start();
    let told = token(&server);
    assert_eq!(server.redis.get("job:fence"), Some(told.to_string()));
}

#[test]
fn without_fencing_there_is_no_counter_and_the_job_is_told_nothing() {
    let server = Server::start();
    let script = "echo \"${REDLOCK_RUN_FENCING_TOKEN-unset}\"";
    sh(&server, &["--no-fencing"], script).finish().stdout("unset\n").expect_status(0);
    assert!(!server.redis.exists("job:fence"));
}

#[test]
fn a_busy_attempt_takes_no_number() {
    let server = Server::start();
    let first = token(&server);
    server.redis.tell(&["SET", "job", "foreign"]);
    sh(&server, &["-n", "-q"], "true").finish().expect_status(75);
    assert_eq!(server.redis.get("job:fence"), Some(first.to_string()));
}
