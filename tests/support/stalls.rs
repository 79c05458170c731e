//! When the machine itself stood still. A limit can only be judged while a thread that does nothing
//! but sleep is woken in time; a program cannot be quicker than its machine.

use std::num::NonZero;
use std::sync::{Mutex, Once};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::libc;

/// How long the watching threads sleep at a time.
const NAP: Duration = Duration::from_millis(2);

/// Waking up later than this is a stand-still; less is what timers and schedulers always take.
const TOLERATED: Duration = Duration::from_millis(3);

/// From when until when a thread should have run and did not.
type Stall = (SystemTime, SystemTime);

static SEEN: Mutex<Vec<Stall>> = Mutex::new(Vec::new());

/// Starts to watch, unless somebody has: a thread on each processor, since each has a queue of its own
/// and one may stand still alone.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        for processor in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            thread::spawn(move || {
                stay_on(processor);
                loop {
                    nap();
                }
            });
        }
    });
}

/// How long the machine stood still between `from` and `to`, since it is watched.
pub(crate) fn between(from: SystemTime, to: SystemTime) -> Duration {
    let mut seen = SEEN.lock().expect("no panic with it").clone();
    seen.retain(|(began, ended)| *ended > from && *began < to);
    seen.sort();
    let (mut total, mut counted) = (Duration::ZERO, from);
    for (began, ended) in seen {
        let (began, ended) = (began.max(counted), ended.min(to));
        total += ended.duration_since(began).unwrap_or_default();
        counted = counted.max(ended);
    }
    total
}

/// How long the machine has stood still since `start`.
pub(crate) fn since(start: Instant) -> Duration {
    let now = SystemTime::now();
    between(now - start.elapsed(), now)
}

/// Asserts that what began at `start` has taken less than `limit`, or more by no more than the machine
/// itself stood still.
#[track_caller]
pub(crate) fn assert_within(what: &str, start: Instant, limit: Duration) {
    let (took, stalled) = (start.elapsed(), since(start));
    assert!(took < limit + stalled, "{what}: {took:?}, of which {stalled:?} are the machine's");
}

fn nap() {
    let due = SystemTime::now() + NAP;
    // How long this really takes is what is measured.
    thread::sleep(NAP);
    let now = SystemTime::now();
    if now > due + TOLERATED {
        SEEN.lock().expect("no panic with it").push((due, now));
    }
}

/// Binds this thread to one processor (where that is refused, to none).
pub(crate) fn stay_on(processor: usize) {
    // SAFETY: a cpu_set_t is plain data, for which all zeroes is the empty set; the call reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
