//! A stderr that is closed, or full with nobody reading: neither the lock nor the job is concerned.

use std::io::{PipeReader, Write as _};
use std::process::Stdio;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::support::jobs::{IGNORES_TERM, KEY, sh};
use crate::support::wait::{SOON, stays};
use crate::support::{Run, Running, Server, wait_until};

/// A run whose stderr is closed altogether.
fn without_stderr(server: &Server, options: &str, script: &str) -> Running {
    let line = format!("exec redlock-run --key job {options} -- sh -c \"$1\" 2>&-");
    let run = Run::of("sh", ["-c", &line, "sh", script]);
    run.env("REDLOCK_RUN_URL", server.url()).spawn()
}

#[test]
fn a_closed_stderr_concerns_neither_the_lock_nor_the_job() {
    let server = Server::start();
    without_stderr(&server, "-v", "exit 3").finish().expect_status(3);
    let mut run = without_stderr(&server, "-v --ttl 1s", IGNORES_TERM);
    let job = run.job();
    server.redis.tell(&["DEL", KEY]);
    run.finish().any_output().expect_status(79);
    assert!(job.is_dead());
    server.redis.tell(&["SET", KEY, "foreign"]);
    without_stderr(&server, "-n", "true").finish().expect_status(75);
}

/// A run whose stderr is a pipe that is full and that nobody reads.
fn with_full_stderr(server: &Server, options: &[&str], script: &str) -> (Running, PipeReader) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe");
    while writer.write(&[b'x'; 4096]).is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).expect("a pipe");
    let nothing = tempfile::tempfile().expect("a file");
    let run = sh(server, options, script);
    (run.spawn_with_stderr(Stdio::from(writer), nothing), reader)
}

#[test]
fn a_full_stderr_concerns_neither_the_lock_nor_the_job() {
    let server = Server::start();
    let (mut run, _reader) = with_full_stderr(&server, &["-v"], "exit 3");
    run.finish().expect_status(3);
    let (mut run, _reader) = with_full_stderr(&server, &["-v", "--ttl", "1s"], IGNORES_TERM);
    let job = run.job();
    server.pause();
    // The exact limit is measured elsewhere.
    wait_until("the job is dead", SOON, || job.is_dead());
    server.resume();
    run.finish().any_output().expect_status(79);
}

#[test]
fn a_full_stderr_does_not_stop_a_waiter() {
    let server = Server::start();
    server.redis.tell(&["SET", KEY, "foreign"]);
    let (mut run, _reader) = with_full_stderr(&server, &["-v"], "echo ran");
    // Beyond the 400 ms after which it wants to say that it waits.
    stays("waiting", Duration::from_millis(700), || run.stdout_so_far().is_empty());
    server.redis.tell(&["DEL", KEY]);
    run.wait_for_stdout("ran\n");
    run.finish().stdout("ran\n").expect_status(0);
}
