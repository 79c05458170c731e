//! The exit status: the job's own wherever there is one, and no lock left behind by a command
//! that cannot be started.

use std::path::PathBuf;
use std::time::Duration;

use nix::libc;

use crate::support::jobs::{KEY, sh, write_executable};
use crate::support::{Run, Server};

/// `redlock-run --key job -- COMMAND`.
fn job(server: &Server, command: &[&str]) -> Run {
    let args = ["--key", KEY, "--"].iter().chain(command);
    Run::on(server, args).in_dir(server.dir())
}

/// Writes a file into the server's directory.
fn file(server: &Server, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = server.dir().join(name);
    write_executable(&path, text, mode);
    path
}

#[test]
fn every_exit_code_is_passed_through() {
    let server = Server::start();
    for code in 0..=255 {
        sh(&server, &[], &format!("exit {code}")).finish().expect_status(code);
    }
}

#[test]
fn the_death_of_the_job_is_the_death_of_the_wrapper() {
    let server = Server::start();
    let signals = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGABRT,
        libc::SIGKILL,
        libc::SIGUSR1,
        libc::SIGSEGV,
        libc::SIGUSR2,
        libc::SIGPIPE,
        libc::SIGALRM,
        libc::SIGTERM,
        libc::SIGRTMIN(),
        libc::SIGRTMAX(),
    ];
    for signal in signals {
        // `ulimit` for the job alone: that the wrapper leaves no core is another test's rule.
        let script = format!("ulimit -c 0; kill -{signal} $$");
        sh(&server, &[], &script).finish().expect_signal_number(signal);
        assert!(!server.redis.exists(KEY), "after signal {signal}");
    }
}

#[test]
fn a_shell_sees_128_plus_the_signal() {
    let server = Server::start();
    let line = "redlock-run --key job -- sh -c 'kill -9 $$'; echo $?";
    let outcome = Run::of("sh", ["-c", line]).env("REDLOCK_RUN_URL", server.url()).finish();
    outcome.check(outcome.stdout_text() == "137\n", "137");
    outcome.any_output().expect_status(0);
}

#[test]
fn a_wrapper_that_dies_of_quit_leaves_no_core() {
    let server = Server::start();
    // The job's own limit is 0, so any core here is the wrapper's.
    let line = "ulimit -c unlimited; exec redlock-run --key job -- sh -c 'ulimit -c 0; kill -QUIT $$'";
    let run = Run::of("sh", ["-c", line]).env("REDLOCK_RUN_URL", server.url());
    let outcome = run.in_dir(server.dir()).finish();
    outcome.check(!outcome.dumped_core(), "no core");
    outcome.expect_signal_number(libc::SIGQUIT);
}

#[test]
fn a_command_that_does_not_exist_is_127_and_takes_nothing() {
    let server = Server::start();
    for command in ["/no/such/command", "no-such-command", "./no-such-file"] {
        job(&server, &[command])
            .finish()
            .stderr_contains("redlock-run: ")
            .stderr_contains(command)
            .expect_status(127);
        assert!(!server.redis.exists(KEY));
    }
    assert_eq!(server.redis.calls("eval"), 0, "found out before the lock is taken");
}

#[test]
fn a_command_that_cannot_be_executed_is_126_and_takes_nothing() {
    let server = Server::start();
    file(&server, "notexec", "#!/bin/sh\n", 0o644);
    for command in ["./notexec", "/etc"] {
        job(&server, &[command])
            .finish()
            .stderr_contains("redlock-run: ")
            .stderr_contains(command)
            .expect_status(126);
        assert!(!server.redis.exists(KEY));
    }
    assert_eq!(server.redis.calls("eval"), 0, "found out before the lock is taken");
}

#[test]
fn an_interpreter_that_does_not_exist_is_a_command_that_cannot_be_started() {
    let server = Server::start();
    let script = file(&server, "script", "#!/no/such/interpreter\n", 0o755);
    let script = script.to_str().expect("a path");
    let outcome = job(&server, &[script]).finish();
    // execvp(3) says ENOENT here, as for a missing command.
    outcome.stderr_contains("script").expect_status(127);
    assert!(!server.redis.exists(KEY), "released at once");
}

#[test]
fn a_script_without_an_interpreter_line_runs() {
    let server = Server::start();
    file(&server, "plain", "echo \"plain $1\"\nexit 6\n", 0o755);
    job(&server, &["./plain", "one"]).finish().stdout("plain one\n").expect_status(6);
}

#[test]
fn one_quoted_string_is_no_command_and_the_hint_says_how() {
    let server = Server::start();
    job(&server, &["cd /tmp && ls"])
        .finish()
        .stderr_contains("cd /tmp && ls")
        .stderr_contains("  hint: ")
        .stderr_contains("-- sh -c '")
        .expect_status(127);
}

#[test]
fn c_runs_a_line_of_shell() {
    let server = Server::start();
    Run::on(&server, ["--key", KEY, "-c", "echo a; exit 7"]).finish().stdout("a\n").expect_status(7);
}

#[test]
fn a_busy_lock_can_be_told_from_a_job_that_exits_75() {
    let server = Server::start();
    sh(&server, &["-n"], "exit 75").finish().expect_status(75);
    server.redis.tell(&["SET", KEY, "foreign"]);
    // The job's 75 is silent, ours has a line; and ours can be any other number.
    sh(&server, &["-n"], "exit 75").finish().stderr_contains("job").expect_status(75);
    for (code, options) in [(0, ["-n", "-E", "0"]), (255, ["-n", "-E", "255"]), (9, ["-n", "-E", "9"])] {
        sh(&server, &options, "echo ran").finish().any_output().expect_status(code);
    }
    sh(&server, &["-w", "300ms", "-E", "9"], "echo ran")
        .finish()
        .any_output()
        .within(Duration::from_secs(5))
        .expect_status(9);
}
