//! The main promise under load: one at a time.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::jobs::{KEY, waits_within};
use crate::support::run::PROGRAM;
use crate::support::wait::{SOON, wait_for};
use crate::support::{Run, Server, stalls};

const PROCESSES: usize = 8;

/// 1,000 runs in all; `REDLOCK_RUNS` asks for another number.
fn runs() -> usize {
    let wanted = std::env::var("REDLOCK_RUNS").ok();
    wanted.map_or(1000, |count| count.parse().expect("REDLOCK_RUNS is a number"))
}

/// Adds one to `counter` by reading and writing, which loses counts when two do it at once; a
/// directory that is there already shows two at once directly.
const COUNTS: &str = "mkdir inside || echo overlap >> overlaps; read n < counter; \
                      echo $((n + 1)) > counter; rmdir inside";

#[test]
fn a_counter_behind_the_lock_misses_none_of_a_thousand_runs() {
    let server = Server::start();
    fs::write(server.dir().join("counter"), "0\n").expect("a file");
    let each = runs() / PROCESSES;
    thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| one_after_another(&server, each));
        }
    });
    let counter = fs::read_to_string(server.dir().join("counter")).expect("the counter");
    assert_eq!(counter.trim(), (each * PROCESSES).to_string());
    assert!(!server.dir().join("overlaps").exists(), "two jobs at once");
}

fn one_after_another(server: &Server, times: usize) {
    for _ in 0..times {
        let status = Command::new(PROGRAM)
            .args(["-q", "--key", KEY, "--", "sh", "-c", COUNTS])
            .env("REDLOCK_RUN_URL", server.url())
            .current_dir(server.dir())
            .stdin(Stdio::null())
            .status();
        let status = status.expect("the program to start");
        assert!(status.success(), "{status}");
    }
}

/// discourse/discourse#17886, medusajs/medusa#15143: polling that eats the server.
#[test]
fn a_crowd_of_waiters_gets_through_without_a_storm_of_requests() {
    let server = Server::start();
    let crowd = 60;
    let mut runs: Vec<_> = (0..crowd)
        .map(|_| Run::on(&server, ["-q", "-w", "60s", "--key", KEY, "sleep", "0.02"]).spawn())
        .collect();
    for run in &mut runs {
        let status = wait_for("each gets its turn", SOON * 3, || run.status());
        assert!(status.success(), "{status}");
    }
    let requests = server.redis.calls("eval") + server.redis.calls("blpop");
    // The failed first try, acquire and release are 3 each, and a pair is one per baton; while it waits,
    // at most a pair every 0.75 s.
    let pairs = waits_within(runs[0].started().elapsed());
    assert!(requests <= crowd * (5 + 2 * pairs), "{requests} requests for {crowd} waiters");
    stalls::assert_within("all of them", runs[0].started(), Duration::from_secs(60));
}
