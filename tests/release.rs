//! Giving the lock back: at once, only when the job is over, and never somebody else's.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::jobs::{Gate, KEY, SLEEPS, holding, sh};
use crate::support::wait::SOON;
use crate::support::{Process, Run, Server, stalls, wait_until};

#[test]
fn the_key_is_gone_when_the_run_has_ended() {
    let server = Server::start();
    for status in [0, 1] {
        sh(&server, &[], &format!("exit {status}")).finish().expect_status(status);
        assert!(!server.redis.exists(KEY));
    }
}

#[test]
fn a_release_leaves_one_baton_for_one_second() {
    let server = Server::start();
    Run::on(&server, ["--key", KEY, "true"]).finish().expect_status(0);
    let left = server.redis.pttl("job:wake");
    // Gone already on a machine that stood still for a second.
    assert!((-2..=1000).contains(&left) && left != -1, "{left}");
    wait_until("the baton is gone", SOON, || !server.redis.exists("job:wake"));
}

#[test]
fn batons_do_not_pile_up() {
    let server = Server::start();
    for _ in 0..5 {
        Run::on(&server, ["--key", KEY, "true"]).finish().expect_status(0);
        assert!(server.redis.query::<u64>(&["LLEN", "job:wake"]) <= 1);
    }
}

#[test]
fn something_else_at_the_wake_key_is_left_alone() {
    let server = Server::start();
    server.redis.tell(&["SET", "job:wake", "precious"]);
    Run::on(&server, ["--key", KEY, "true"]).finish().expect_status(0);
    assert_eq!(server.redis.get("job:wake").as_deref(), Some("precious"));
    assert_eq!(server.redis.pttl("job:wake"), -1);
    assert!(!server.redis.exists(KEY));
}

/// craftcms/cms#11658: the job was done, and the release hung.
#[test]
fn a_release_that_finds_redis_stopped_gives_up_soon_and_keeps_the_jobs_status() {
    let server = Server::start();
    let gate = Gate::new(&server);
    let script = format!("echo $$; {}; exit 3", gate.wait());
    let mut run = sh(&server, &["--ttl", "60s"], &script).spawn();
    run.job();
    server.pause();
    gate.open();
    let opened = Instant::now();
    run.finish()
        .stdout(run.stdout_so_far())
        .stderr_contains("could not release lock 'job'")
        .stderr_contains("expires in ")
        .expect_status(3);
    // 2 s are the release's own limit; the rest is noise.
    stalls::assert_within("the end", opened, Duration::from_secs(6));
    server.resume();
    // What was sent lies in the server's socket and is still carried out.
    wait_until("the lock is gone", SOON, || !server.redis.exists(KEY));
}

#[test]
fn a_success_stays_a_success_when_the_release_fails() {
    let mut server = Server::start();
    let gate = Gate::new(&server);
    let script = format!("echo $$; {}", gate.wait());
    let mut run = sh(&server, &["--ttl", "60s"], &script).spawn();
    run.job();
    server.kill();
    gate.open();
    run.finish().stdout(run.stdout_so_far()).stderr_contains("could not release lock 'job'").expect_status(0);
}

/// MagnaCapax/PMSS#905 and many more: waiting for the end of a pipe that a daemon holds.
#[test]
fn a_job_that_leaves_a_daemon_returns_at_once_and_the_daemon_lives() {
    let server = Server::start();
    let mut run = sh(&server, &[], "sleep 600 & echo $!; exit 0").spawn();
    let outcome = run.finish().within(Duration::from_secs(5));
    let daemon: i32 = outcome.stdout_text().trim().parse().expect("its pid");
    outcome.stdout(format!("{daemon}\n")).expect_status(0);
    assert!(!server.redis.exists(KEY));
    // Its shell may not have started it quite yet.
    wait_until("the daemon lives", SOON, || run.processes().iter().any(|process| process.pid == daemon));
}

#[test]
fn a_pipe_around_the_run_ends_with_the_job() {
    let server = Server::start();
    let line = "x=$(redlock-run --key job -- sh -c 'echo hi; sleep 600 >/dev/null 2>&1 &'); echo \"[$x]\"";
    Run::of("sh", ["-c", line])
        .env("REDLOCK_RUN_URL", server.url())
        .finish()
        .stdout("[hi]\n")
        .within(Duration::from_secs(5))
        .expect_status(0);
}

/// tiian/flom#15: the lock was free at once, the job still cleaning up.
#[test]
fn a_job_that_cleans_up_for_longer_than_its_ttl_keeps_its_lock() {
    let server = Server::start();
    let script = "exec 2>/dev/null; trap 'sleep 5; exit 3' TERM; echo $$; while :; do sleep 0.02; done";
    let mut run = sh(&server, &["--ttl", "3s"], script).spawn();
    let job = run.job();
    run.signal(Signal::SIGTERM);
    released_after(&server, &[job]);
    run.finish().stdout(run.stdout_so_far()).expect_status(3);
    assert!(!server.redis.exists(KEY));
}

/// hashicorp/consul#2022: the shell died, what it had started went on outside the lock.
#[test]
fn a_job_that_was_stopped_keeps_its_lock_until_its_last_process_is_gone() {
    let server = Server::start();
    let script = "(trap 'sleep 4; exit 0' TERM; echo ready; while :; do sleep 0.02; done) & wait";
    let mut run = sh(&server, &["--ttl", "3s"], script).spawn();
    run.wait_for_stdout("ready\n");
    let job = job_processes(&run.processes(), run.pid());
    run.signal(Signal::SIGTERM);
    released_after(&server, &job);
    run.finish().any_output().expect_signal(Signal::SIGTERM);
    assert!(!server.redis.exists(KEY));
}

/// The same when the shell does not die of the signal but ends by itself.
#[test]
fn a_job_that_was_asked_and_ends_by_itself_keeps_its_lock_as_long() {
    let server = Server::start();
    let script = "exec 2>/dev/null; trap 'exit 4' TERM; \
                  (trap 'sleep 4; exit 0' TERM; echo ready; while :; do sleep 0.02; done) & \
                  while :; do sleep 0.02; done";
    let mut run = sh(&server, &["--ttl", "3s"], script).spawn();
    run.wait_for_stdout("ready\n");
    let job = job_processes(&run.processes(), run.pid());
    run.signal(Signal::SIGTERM);
    released_after(&server, &job);
    run.finish().any_output().expect_status(4);
    assert!(!server.redis.exists(KEY));
}

/// Waits until all of the job is dead, and asserts that the lock stands as long.
#[track_caller]
fn released_after(server: &Server, job: &[Process]) {
    wait_until("all of the job is over", SOON, || {
        let held = server.redis.exists(KEY);
        // Looked at after the key: what is alive now was alive then.
        let over = job.iter().all(Process::is_dead);
        assert!(held || over, "released under a living process of the job");
        over
    });
}

/// The processes in the job's own group.
fn job_processes(all: &[Process], wrapper: i32) -> Vec<Process> {
    let name_is_sh = |pid| crate::support::proc::name(pid).as_deref() == Some("sh");
    let found: Vec<_> =
        all.iter().filter(|process| process.pid != wrapper && name_is_sh(process.pid)).cloned().collect();
    assert!(found.len() >= 2, "the shell and its subshell: {found:?}");
    found
}

#[test]
fn what_a_stopped_job_leaves_is_killed_after_kill_after() {
    let server = Server::start();
    let script = "(trap '' TERM; echo ready; while :; do sleep 0.02; done) & wait";
    let mut run = sh(&server, &["--kill-after", "500ms"], script).spawn();
    run.wait_for_stdout("ready\n");
    run.signal(Signal::SIGTERM);
    run.finish().any_output().within(Duration::from_secs(15)).expect_signal(Signal::SIGTERM);
    assert!(run.processes().is_empty());
    assert!(!server.redis.exists(KEY));
}

#[test]
fn a_killed_job_releases_the_lock() {
    let server = Server::start();
    let mut run = sh(&server, &[], SLEEPS).spawn();
    run.job().signal(Signal::SIGKILL);
    run.finish().any_output().expect_signal(Signal::SIGKILL);
    assert!(!server.redis.exists(KEY));
}

#[test]
fn two_keys_do_not_meet() {
    let server = Server::start();
    let _one = holding(&server, &[]);
    Run::on(&server, ["-n", "--key", "other", "true"]).finish().expect_status(0);
    assert!(server.redis.exists(KEY));
}
