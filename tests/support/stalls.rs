//! When the machine itself stood still. A limit of milliseconds can only be judged while a thread
//! that does nothing but sleep is woken in time; a program cannot be quicker than its machine.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

/// How long the watching threads sleep at a time.
const NAP: Duration = Duration::from_millis(2);

/// Waking up later than this is a stand-still; less is what timers and schedulers always take.
const TOLERATED: Duration = Duration::from_millis(3);

/// From when until when a thread should have run and did not.
type Stall = (SystemTime, SystemTime);

/// Watches until it is dropped, with as many threads as there are processors.
pub(crate) struct Stalls {
    seen: Arc<Mutex<Vec<Stall>>>,
    over: Arc<AtomicBool>,
}

impl Stalls {
    /// Starts to watch.
    pub(crate) fn watch() -> Self {
        let stalls = Self { seen: Arc::default(), over: Arc::default() };
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            let (seen, over) = (Arc::clone(&stalls.seen), Arc::clone(&stalls.over));
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    nap(&seen);
                }
            });
        }
        stalls
    }

    /// How long the machine stood still between `from` and `to`.
    pub(crate) fn between(&self, from: SystemTime, to: SystemTime) -> Duration {
        let mut seen = self.seen.lock().expect("no panic with it").clone();
        seen.sort();
        let (mut total, mut counted) = (Duration::ZERO, from);
        for (began, ended) in seen {
            let (began, ended) = (began.max(counted), ended.min(to));
            total += ended.duration_since(began).unwrap_or_default();
            counted = counted.max(ended);
        }
        total
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn nap(seen: &Mutex<Vec<Stall>>) {
    let due = SystemTime::now() + NAP;
    thread::sleep(NAP);
    let now = SystemTime::now();
    if now > due + TOLERATED {
        seen.lock().expect("no panic with it").push((due, now));
    }
}
