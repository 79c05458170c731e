//! What is printed and what is not: stdout is the job's, stderr has our few lines, and neither
//! a closed nor a full one concerns the lock.

use std::time::Duration;

use crate::support::jobs::{KEY, holding, sh};
use crate::support::wait::stays;
use crate::support::{Run, Running, Server, wait_until};

#[test]
fn success_prints_nothing_of_ours() {
    let server = Server::start();
    sh(&server, &[], "echo out; echo err >&2").finish().stdout("out\n").stderr("err\n").expect_status(0);
}

/// `etcdctl lock` prints the key on stdout; captured output must be the job's alone.
#[test]
fn captured_output_is_the_jobs_own() {
    let server = Server::start();
    let line = "[ \"$(redlock-run --key job -- echo hi)\" = hi ]";
    Run::of("sh", ["-c", line]).env("REDLOCK_RUN_URL", server.url()).finish().expect_status(0);
}

#[test]
fn busy_is_one_line_and_a_skipped_run_that_is_fine_is_silent() {
    let server = Server::start();
    let holder = holding(&server, &[]);
    let outcome = sh(&server, &["-n"], "echo ran").finish();
    outcome.check(outcome.stderr_text().lines().count() == 1, "one line");
    let told = format!("(pid {}, sh) for ", holder.pid());
    outcome
        .stderr_contains("redlock-run: lock 'job' is held by ")
        .stderr_contains(&told)
        .stderr_contains("; it expires in ")
        .stderr_contains("s unless renewed\n")
        .expect_status(75);
    sh(&server, &["-n", "-E", "0"], "echo ran").finish().expect_status(0);
    sh(&server, &["-n", "-q"], "echo ran").finish().expect_status(75);
    sh(&server, &["-q", "-w", "600ms"], "echo ran").finish().expect_status(75);
}

#[test]
fn quiet_does_not_hide_trouble() {
    let server = Server::start();
    Run::without_url(["-q", "-n", "--key", KEY, "true"])
        .env("REDLOCK_RUN_URL", "unix:///no/such/socket")
        .finish()
        .stderr_contains("redlock-run: cannot reach Redis")
        .expect_status(69);
    let mut run = sh(&server, &["-q", "--ttl", "4s"], "echo $$; exec sleep 600").spawn();
    run.job();
    server.redis.tell(&["DEL", KEY]);
    run.finish()
        .stdout(run.stdout_so_far())
        .stderr_contains("redlock-run: lost lock 'job'")
        .expect_status(79);
}

#[test]
fn a_short_wait_is_silent_and_a_longer_one_says_once_who_holds_the_lock() {
    let server = Server::start();
    server.redis.tell(&["SET", KEY, "foreign", "PX", "250"]);
    sh(&server, &[], "echo ran").finish().stdout("ran\n").expect_status(0);
    let holder = holding(&server, &[]);
    let mut waiter = sh(&server, &[], "echo ran").spawn();
    let told = format!("(pid {}, sh)", holder.pid());
    waiter.wait_for_stderr(&told);
    // Two seconds on purpose: the next line is due at 10 s, not with each try.
    stays("one line", Duration::from_secs(2), || waiter.stderr_so_far().lines().count() == 1);
    assert!(waiter.stderr_so_far().starts_with("redlock-run: lock 'job' is held by "));
    holder.signal(nix::sys::signal::Signal::SIGTERM);
    waiter.finish().any_output().expect_status(0);
}

#[test]
fn a_new_holder_is_announced() {
    let server = Server::start();
    let value = |holder: &str| {
        format!(r#"{{"token":"x","holder":"{holder}","pid":7,"program":"p","since":"2026-11-30T07:02:11Z"}}"#)
    };
    server.redis.tell(&["SET", KEY, &value("one@a")]);
    let mut waiter = sh(&server, &[], "echo ran").spawn();
    waiter.wait_for_stderr("one@a (pid 7, p)");
    server.redis.tell(&["SET", KEY, &value("two@b")]);
    waiter.wait_for_stderr("two@b (pid 7, p)");
    server.redis.tell(&["DEL", KEY]);
    waiter.finish().any_output().expect_status(0);
}

#[test]
fn whatever_stands_at_the_key_is_escaped() {
    let server = Server::start();
    let values = [
        "\u{1b}]0;title\u{7}\u{1b}[31mred\r\nredlock-run: forged line".to_string(),
        r#"{"token":"x","holder":"\u001b[31m\u202eevil\n","pid":1,"program":"\u0007","since":"2026-11-30T07:02:11Z"}"#.to_string(),
        format!("{}\u{9b}31m", "long".repeat(1000)),
    ];
    for value in values {
        server.redis.tell(&["SET", KEY, &value]);
        let outcome = sh(&server, &["-n"], "echo ran").finish();
        let text = outcome.stderr_text();
        let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        outcome.check(!text.contains(bad), "no control character");
        outcome.check(!text.contains("\nredlock-run: forged"), "no forged line");
        outcome.check(text.len() < 1500, "bounded");
        outcome.any_output().expect_status(75);
    }
}

#[test]
fn a_key_with_control_characters_is_escaped() {
    let server = Server::start();
    let key = "a\u{1b}[31m\nb";
    server.redis.tell(&["SET", key, "foreign"]);
    let outcome = Run::on(&server, ["-n", "--key", key, "true"]).finish();
    let text = outcome.stderr_text();
    outcome.check(!text.contains('\u{1b}'), "no escape character");
    outcome.check(!text.contains("\nb"), "no broken line");
    outcome.any_output().expect_status(75);
}

#[test]
fn verbose_shows_at_most_the_first_eight_characters_of_a_token() {
    let server = Server::start();
    let outcome = sh(&server, &["-v"], "echo $REDLOCK_RUN_TOKEN").finish();
    let token = outcome.stdout_text().trim().to_string();
    let text = outcome.stderr_text();
    outcome.check(!text.contains(&token[..9]), "no more of the token");
    let ours = text.lines().all(|line| line.starts_with("redlock-run: "));
    outcome.check(ours && !text.is_empty(), "lines of ours");
    outcome.any_output().expect_status(0);
}

#[test]
fn a_backtrace_setting_changes_nothing() {
    let server = Server::start();
    let outcome = Run::on(&server, ["-n", "--key", KEY, "true"])
        .env("REDLOCK_RUN_URL", "unix:///no/such/socket")
        .env("RUST_BACKTRACE", "1")
        .finish();
    outcome.check(!outcome.stderr_text().contains("stack backtrace"), "no backtrace");
    outcome.stderr_contains("redlock-run: ").expect_status(69);
}

/// ClusterLabs/resource-agents#1400 and others: passwords in logs and cron mails.
#[test]
fn no_message_shows_a_password() {
    let server = Server::start_on_port(&[]);
    let port = server.port();
    let urls = [
        format!("redis://:S3cret@127.0.0.1:{port}"),
        "redis://:S3cret@127.0.0.1:1".to_string(),
        "redis://user:S3cret@no-such-host.invalid".to_string(),
        "rediss://:S3cret@127.0.0.1:1".to_string(),
        format!("redis://:S3cret@127.0.0.1:{port}/99"),
        "redis://:S3cret@[::1".to_string(),
    ];
    for url in urls {
        let outcome = sh(&server, &["-n", "-v", "--url", &url], "true").finish();
        outcome.check(!outcome.stderr_text().contains("S3cret"), "no password");
        outcome.check(!outcome.stderr_text().contains("panicked"), "no panic");
        outcome.check(!outcome.stderr.is_empty(), "a line");
    }
}

#[test]
fn a_long_wait_is_reported_again_after_ten_seconds() {
    let server = Server::start();
    server.redis.tell(&["SET", KEY, "foreign"]);
    let waiter = sh(&server, &["-w", "60s"], "echo ran").spawn();
    let told = |waiter: &Running| waiter.stderr_so_far().matches("is held by").count();
    // The rule is the ten seconds, so the test takes them.
    wait_until("a second line", Duration::from_secs(16), || told(&waiter) >= 2);
    let after = waiter.started().elapsed();
    assert!(after > Duration::from_secs(9), "already after {after:?}");
    assert_eq!(told(&waiter), 2);
}

#[test]
fn terminals_get_no_colour_codes_when_stderr_is_a_file() {
    let server = Server::start();
    server.redis.tell(&["SET", KEY, "foreign"]);
    let outcome = sh(&server, &["-n"], "true").env("TERM", "xterm-256color").finish();
    outcome.check(!outcome.stderr.contains(&0x1b), "no escape character");
    outcome.stderr_contains("job").expect_status(75);
}
