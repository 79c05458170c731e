//! The lease and the job side by side, as the two are seen from outside.

use std::time::{Duration, SystemTime};

use super::jobs::KEY;
use super::proc::Process;
use super::server::Server;
use super::stalls;
use super::wait::{SOON, wait_until};

/// When the lease ends by the server's clock, which is this machine's; now at the latest, when it has
/// ended.
#[track_caller]
pub(crate) fn end_of_lease(server: &Server) -> SystemTime {
    let millis: i64 = server.redis.query(&["PEXPIRETIME", KEY]);
    let millis = u64::try_from(millis).ok();
    millis.map_or_else(SystemTime::now, |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
}

/// Waits until all of `processes` are dead; the last moment at which one was surely alive. An
/// observer that is held up sees less, never a life that was not there.
#[track_caller]
pub(crate) fn last_seen_alive(processes: &[Process]) -> SystemTime {
    let mut last = SystemTime::UNIX_EPOCH;
    wait_until("all of the job is dead", SOON, || {
        let before = SystemTime::now();
        let dead = processes.iter().all(Process::is_dead);
        if !dead {
            last = before;
        }
        dead
    });
    last
}

/// How long before the end of a lease of 3 s the KILL comes: a drift of 1 % and 2 ms, a margin of
/// a fortieth.
const KILLED_BEFORE: Duration = Duration::from_millis(107);

/// Asserts that all of `processes` die, and before `end`; or later, but by no more than the
/// machine itself stood still meanwhile.
#[track_caller]
pub(crate) fn dead_before(end: SystemTime, processes: &[Process]) {
    stalls::watch();
    let alive = last_seen_alive(processes);
    let Ok(late) = alive.duration_since(end) else { return };
    let stalled = stalls::between(end - KILLED_BEFORE, alive);
    println!("something of the job lived {late:?} too long; the machine stood still for {stalled:?}");
    assert!(late <= stalled, "something of the job lived {late:?} too long");
}

/// Waits until all of `processes` are dead, and asserts that the lock was held until then.
#[track_caller]
pub(crate) fn held_until_dead(server: &Server, processes: &[Process]) {
    wait_until("all of the job is dead", SOON, || {
        let held = server.redis.exists(KEY);
        // Looked at after the key: what is alive now was alive then.
        let dead = processes.iter().all(Process::is_dead);
        assert!(held || dead, "the lock was free under a living process of the job");
        dead
    });
}
