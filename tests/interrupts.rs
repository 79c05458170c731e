//! A signal before there is a job ends the run at once and leaves nothing behind: no child, no key.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal::{self, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::support::jobs::{KEY, SLEEPS, holding, sh};
use crate::support::proc;
use crate::support::wait::SOON;
use crate::support::{Mode, Proxy, Running, Server, stalls, wait_until};

const ENDING: [Signal; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];

/// "Within a second" is the promise itself.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A run that waits for a lock of ours, with everything that could be left behind by it.
fn waiting(server: &Server) -> Running {
    let mut run = sh(server, &[], SLEEPS).spawn();
    run.wait_for_stderr("held by");
    run
}

#[test]
fn a_signal_ends_the_wait_at_once_and_leaves_nothing() {
    let server = Server::start();
    let _holder = holding(&server, &[]);
    let value = server.redis.get(KEY);
    for signal in ENDING {
        let mut run = waiting(&server);
        let sent = Instant::now();
        run.signal(signal);
        run.finish().any_output().expect_signal(signal);
        stalls::assert_within(signal.as_str(), sent, AT_ONCE);
        assert_eq!(run.stdout_so_far(), "", "the job never started");
        assert!(run.processes().is_empty());
        assert_eq!(server.redis.get(KEY), value);
    }
    let keys: Vec<String> = server.redis.query(&["KEYS", "*"]);
    let ours = |key: &String| key == KEY || key == "job:fence";
    assert!(keys.iter().all(ours), "{keys:?}");
}

#[test]
fn a_signal_ends_the_wait_for_a_dead_redis_at_once() {
    let server = Server::start();
    server.pause();
    let mut run = sh(&server, &[], SLEEPS).spawn();
    // Until it hangs in the connection: it has a socket.
    wait_until("it is connected", SOON, || {
        let files = proc::open_files(run.pid());
        files.iter().any(|(_, to)| to.to_string_lossy().starts_with("socket:"))
    });
    let sent = Instant::now();
    run.signal(SIGTERM);
    run.finish().any_output().expect_signal(SIGTERM);
    // A clean-up of the attempt on its way may take one command timeout, 1 s, more.
    stalls::assert_within("the end", sent, AT_ONCE * 3);
    server.resume();
    wait_until("the attempt is cleaned up", SOON, || !server.redis.exists(KEY));
}

/// The reply to an attempt was lost, and the clean-up after it gets none either.
#[test]
fn a_signal_ends_the_clean_up_of_a_doubtful_attempt_at_once() {
    let server = Server::start();
    let proxy = Proxy::on_socket(&server);
    proxy.set(Mode::SwallowReplies);
    let run = sh(&server, &["--command-timeout", "5s"], SLEEPS).env("REDLOCK_RUN_URL", proxy.url());
    let mut run = run.spawn();
    wait_until("it cleans up", SOON, || server.redis.calls("eval") >= 3);
    let sent = Instant::now();
    run.signal(SIGTERM);
    run.finish().any_output().expect_signal(SIGTERM);
    // The clean-up is tried once more, for half a second.
    stalls::assert_within("the end", sent, AT_ONCE * 2);
    assert!(!server.redis.exists(KEY));
}

#[test]
fn a_signal_in_the_moment_of_acquisition_leaves_no_child_and_no_key() {
    let server = Server::start();
    for number in 0..200 {
        let signal = ENDING[number % ENDING.len()];
        let mut run = sh(&server, &[], SLEEPS).spawn();
        // A random moment of the first 12 ms, in which a run starts, connects, acquires and
        // spawns: there is no condition that would hit the moments between.
        thread::sleep(random_below(Duration::from_millis(12)));
        let sent = Instant::now();
        run.signal(signal);
        run.finish().any_output().expect_signal(signal);
        stalls::assert_within(signal.as_str(), sent, AT_ONCE);
        wait_until("no child is left", SOON, || run.processes().is_empty());
        // What was sent in the last moment may still be on its way through the server.
        wait_until("no key is left", SOON, || !server.redis.exists(KEY));
    }
}

fn random_below(limit: Duration) -> Duration {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = clock.expect("a clock").subsec_nanos();
    limit * (nanos / 7 % 1000) / 1000
}
