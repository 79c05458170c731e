//! The harness itself: a test that cannot fail proves nothing.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use nix::sys::termios::LocalFlags;

use crate::support::bash::Bash;
use crate::support::proc::{open_files, status_field};
use crate::support::wait::SOON;
use crate::support::{Client, Mode, Outcome, Process, Proxy, Run, Server, wait_until};

/// Runs `judge` on a run of `sh -c script` and returns the message it failed with.
fn failure_of(script: &str, judge: fn(Outcome)) -> String {
    let outcome = Run::of("sh", ["-c", script]).finish();
    let failed = catch_unwind(AssertUnwindSafe(|| judge(outcome)));
    let message = failed.expect_err("the harness let it pass");
    message.downcast_ref::<String>().expect("a text").clone()
}

#[test]
fn a_wrong_status_or_stream_fails_and_shows_all() {
    let message = failure_of("echo out; echo err >&2; exit 3", |outcome| {
        outcome.any_output().expect_status(0);
    });
    for part in ["expected status 0", "exit 3", "out", "err", "exit status: 3"] {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
    failure_of("echo out", |outcome| outcome.expect_status(0));
    failure_of("echo err >&2", |outcome| outcome.expect_status(0));
    failure_of("echo out", |outcome| {
        outcome.stdout("in\n").expect_status(0);
    });
    failure_of("kill -9 $$", |outcome| outcome.expect_status(137));
}

#[test]
fn a_condition_that_never_comes_fails() {
    let failed = catch_unwind(|| {
        wait_until("the impossible", Duration::from_millis(5), || false);
    });
    assert!(failed.is_err(), "wait_until returned");
}

#[test]
fn a_dropped_run_takes_its_whole_job_with_it() {
    let script = "(setsid sleep 60 &) ; sleep 60 & echo ready; wait";
    let mut run = Run::of("sh", ["-c", script]).spawn();
    run.wait_for_stdout("ready\n");
    wait_until("the shell and both sleeps are there", SOON, || run.processes().len() >= 3);
    let all = run.processes();
    drop(run);
    wait_until("all are dead", SOON, || all.iter().all(crate::support::Process::is_dead));
}

#[test]
fn a_server_is_paused_resumed_killed_and_started_again_with_its_data() {
    let mut server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    server.redis.tell(&["SET", "a", "1"]);
    server.pause();
    server.resume();
    server.kill();
    assert!(server.redis.try_query::<String>(&["PING"]).is_err());
    server.start_again();
    assert_eq!(server.redis.get("a").as_deref(), Some("1"));
    assert_eq!(server.redis.calls("get"), 1);
}

#[test]
fn the_proxy_passes_spoils_and_counts() {
    let server = Server::start();
    let proxy = Proxy::on_socket(&server);
    let client = Client::new(proxy.url().into(), None);
    client.tell(&["SET", "a", "1"]);
    assert_eq!(proxy.seen().connections, 1);
    proxy.set(Mode::SwallowReplies);
    let mut stream = UnixStream::connect(proxy.url().trim_start_matches("unix://")).expect("proxy");
    stream.write_all(b"INCR a\r\n").expect("a request");
    wait_until("the request is carried out", SOON, || server.redis.get("a").as_deref() == Some("2"));
    proxy.set(Mode::Reset);
    let ended = stream.read(&mut [0; 8]);
    assert!(!matches!(ended, Ok(1..)), "a swallowed reply came: {ended:?}");
    assert!(client.try_query::<String>(&["PING"]).is_err());
    proxy.set(Mode::Trickle(Duration::from_millis(1)));
    assert_eq!(client.get("a").as_deref(), Some("2"));
}

#[test]
fn a_shell_in_the_terminal_answers_and_takes_control_characters() {
    let server = Server::start();
    let mut bash = Bash::start(&server);
    assert_eq!(bash.run("echo one$((1))").trim(), "one1");
    bash.type_line("sleep 60");
    bash.wait_for_foreground("sleep");
    bash.pty.write("\x03");
    bash.next_prompt();
    assert_eq!(bash.run("echo status=$?").trim(), "status=130");
    assert!(bash.exit().success());
}

#[test]
fn a_terminal_has_a_size_modes_and_an_end() {
    let server = Server::start();
    let mut bash = Bash::start(&server);
    bash.type_line("trap 'echo resized' WINCH; stty -echo; cat");
    bash.wait_for_foreground("cat");
    let echoes = |bash: &Bash| bash.pty.modes().local_flags.contains(LocalFlags::ECHO);
    assert!(!echoes(&bash), "stty reached the terminal");
    bash.pty.write("\x04");
    bash.next_prompt();
    bash.pty.resize(50, 120);
    assert_eq!(bash.run("stty size").trim(), "50 120");
    let shell = bash.pty.leader();
    bash.pty.hang_up();
    wait_until("the shell has got its hang-up", SOON, || shell.is_dead());
}

#[test]
fn proc_tells_groups_masks_and_files() {
    let script = "trap '' USR1; echo $$; exec sleep 60";
    let mut run = Run::of("sh", ["-c", script]).spawn();
    let job = run.job();
    let stat = job.stat().expect("it runs");
    let own = Process::find(std::process::id().cast_signed()).expect("this test");
    assert_eq!(stat.ppid, own.pid);
    assert_eq!(Some(stat.pgrp), own.stat().map(|stat| stat.pgrp));
    // USR1 is signal 10: bit 9.
    let ignored = status_field(job.pid, "SigIgn").expect("a mask");
    assert!(ignored.ends_with("200"), "{ignored}");
    assert_eq!(open_files(job.pid)[0].0, 0);
}
