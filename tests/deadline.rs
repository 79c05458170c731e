//! The one promise that is a time limit: whatever happens to Redis, a job that ignores TERM is
//! dead before the lease ends. Trials at random moments, 5 of each fault, or `REDLOCK_TRIALS`.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::jobs::{IGNORES_TERM, sh};
use crate::support::lease::{end_of_lease, last_seen_alive};
use crate::support::wait::SOON;
use crate::support::{Mode, Proxy, Server, stalls, wait_until};

/// With 3 s: drift 32 ms, margin 75 ms, grace 750 ms. Extended every
/// (3000 − 32 − 75 − 750) / 3 = 714 ms; KILL 107 ms before the lease ends.
const TTL: &str = "3s";
const LEASE: Duration = Duration::from_secs(3);
const EXTENDED_EVERY: Duration = Duration::from_millis(714);
const KILLED_BEFORE: Duration = Duration::from_millis(107);
/// So near to the next extension it may be that one that was on its way.
const CLOSE: Duration = Duration::from_millis(50);

fn trials() -> u32 {
    let wanted = std::env::var("REDLOCK_TRIALS").ok();
    wanted.map_or(5, |count| count.parse().expect("REDLOCK_TRIALS is a number"))
}

/// One of four quarters of the time between two extensions, plus up to one of its sixteenths.
fn some_moment(trial: u32) -> Duration {
    let noise = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").subsec_nanos() % 16;
    EXTENDED_EVERY * (trial % 4 * 16 + noise) / 80
}

/// What one trial came to.
enum Verdict {
    /// Dead so long before the end of its lease.
    InTime(Duration),
    /// Late, but by no more than the machine itself stood still: proves nothing.
    Stalled,
}

/// Runs trials of one fault until enough have a verdict; at most every second may have none.
fn all_trials(name: &str, fault: fn(&mut Server, &Proxy)) {
    let (mut judged, mut stalled, mut worst) = (0, 0, Duration::MAX);
    while judged < trials() {
        match trial(judged + stalled, fault) {
            Verdict::InTime(margin) => (judged, worst) = (judged + 1, worst.min(margin)),
            Verdict::Stalled => stalled += 1,
        }
        assert!(stalled <= trials(), "{name}: the machine stands still too often to judge");
    }
    println!("{name}: {judged} trials, worst margin {worst:?}, {stalled} more on a machine that stood still");
}

fn trial(number: u32, fault: fn(&mut Server, &Proxy)) -> Verdict {
    let mut server = Server::start();
    let proxy = Proxy::on_socket(&server);
    let run = sh(&server, &["--ttl", TTL], IGNORES_TERM).env("REDLOCK_RUN_URL", proxy.url());
    let mut run = run.spawn();
    let job = run.job();
    let first = end_of_lease(&server);
    wait_until("it is extended", SOON, || end_of_lease(&server) > first);
    // The faults' moments are spread over the time between two extensions, at most four fifths
    // of it, so that the lease's end as read now is the last one granted.
    thread::sleep(some_moment(number));
    let end = end_of_lease(&server);
    fault(&mut server, &proxy);
    // A fault that is late may meet a lease that was extended once more.
    let is_last = SystemTime::now() + CLOSE < end - LEASE + EXTENDED_EVERY;
    let alive = last_seen_alive(&[job]);
    run.finish().any_output().within(Duration::from_secs(30)).expect_status(79);
    assert!(run.processes().is_empty(), "something of the job is left");
    if is_last { judge(end, alive) } else { Verdict::Stalled }
}

fn judge(end: SystemTime, alive: SystemTime) -> Verdict {
    let late = match end.duration_since(alive) {
        Ok(margin) => return Verdict::InTime(margin),
        Err(late) => late.duration(),
    };
    let stalled = stalls::between(end - KILLED_BEFORE, alive);
    println!("alive {late:?} after the lease's end; the machine stood still for {stalled:?}");
    assert!(late <= stalled, "alive {late:?} after the lease's end, of which {stalled:?} are the machine's");
    Verdict::Stalled
}

#[test]
fn the_job_is_dead_before_the_lease_ends_when_redis_is_stopped() {
    all_trials("stopped", |server, _| server.pause());
}

#[test]
fn the_job_is_dead_before_the_lease_ends_when_redis_is_killed() {
    all_trials("killed", |server, _| server.kill());
}

#[test]
fn the_job_is_dead_before_the_lease_ends_in_a_black_hole() {
    all_trials("black hole", |_, proxy| proxy.set(Mode::BlackHole));
}

/// One byte in 400 ms: each system call succeeds in time, but no answer of an extension
/// (`:1` and a line end, 4 bytes) is whole within the second it is given.
#[test]
fn the_job_is_dead_before_the_lease_ends_when_replies_trickle() {
    all_trials("trickle", |_, proxy| {
        proxy.set(Mode::Trickle(Duration::from_millis(400)));
    });
}
