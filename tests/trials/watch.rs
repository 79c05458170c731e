//! Threads that only look: at the processes of one job, and at the machine itself.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::census::Stat;
use crate::moment::{Moment, Span};
use crate::support::stalls::stay_on;
use crate::tree::Tree;

/// Between two looks at the processes of a job while the lease's end is near, and while it is not.
const CLOSELY: Duration = Duration::from_millis(1);
const IDLY: Duration = Duration::from_millis(8);

/// Looks at every known process of a job that is not dead. New ones come from the census.
pub(crate) struct Watch {
    switches: Arc<Switches>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Switches {
    closely: AtomicBool,
    over: AtomicBool,
}

impl Watch {
    /// Starts to look.
    pub(crate) fn start(tree: &Arc<Tree>) -> Self {
        let switches = Arc::new(Switches::default());
        let (tree, shared) = (Arc::clone(tree), Arc::clone(&switches));
        let thread = thread::spawn(move || {
            while !shared.over.load(Ordering::Relaxed) {
                for life in tree.living() {
                    tree.note(life.pid, life.started, Stat::look(life.pid, life.started));
                }
                // Another's child, and not to be touched: its end is only to be seen by looking.
                thread::sleep(if shared.closely.load(Ordering::Relaxed) { CLOSELY } else { IDLY });
            }
        });
        Self { switches, thread: Some(thread) }
    }

    /// Whether it matters to the millisecond. (Always would take a core from what is watched.)
    pub(crate) fn closely(&self, closely: bool) {
        self.switches.closely.store(closely, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.switches.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How long a thread that only watches for stand-stills sleeps, and the delay that it takes for one: a
/// few milliseconds are everyday life on a busy machine.
const NAP: Duration = Duration::from_millis(2);
const STALL: Duration = Duration::from_millis(10);

/// Notes when the machine stood still: when a thread that only sleeps was not woken in time. A guard
/// cannot be quicker than the machine that it runs on; how much of a delay was the machine's own is
/// part of every verdict.
#[derive(Default)]
pub(crate) struct Stalls {
    /// From when until when a thread should have run and did not.
    seen: Mutex<Vec<(Moment, Moment)>>,
}

impl Stalls {
    /// Starts to look, with a thread on each processor: each has a queue of its own.
    pub(crate) fn start() -> Arc<Self> {
        let stalls = Arc::new(Self::default());
        for processor in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            let noted = Arc::clone(&stalls);
            thread::spawn(move || {
                stay_on(processor);
                loop {
                    let due = Moment::now() + NAP;
                    // How long this really takes is what is measured.
                    thread::sleep(NAP);
                    let now = Moment::now();
                    if now > due + STALL {
                        noted.seen.lock().expect("no panic with it").push((due, now));
                    }
                }
            });
        }
        stalls
    }

    /// Those between `from` and `to`, in order, cut to that time, overlapping ones as one.
    pub(crate) fn between(&self, from: Moment, to: Moment) -> Vec<(Moment, Span)> {
        let mut seen = self.seen.lock().expect("no panic with it").clone();
        seen.sort();
        let mut found: Vec<(Moment, Moment)> = Vec::new();
        for (began, ended) in seen {
            let (began, ended) = (began.max(from), ended.min(to));
            match found.last_mut() {
                Some((_, last)) if began <= *last => *last = ended.max(*last),
                _ if began < ended => found.push((began, ended)),
                _ => {}
            }
        }
        found.into_iter().map(|(began, ended)| (began, ended.since(began))).collect()
    }

    /// How long the machine stood still in this time.
    pub(crate) fn total(&self, from: Moment, to: Moment) -> Span {
        Span(self.between(from, to).into_iter().map(|(_, length)| length.0).sum())
    }
}
