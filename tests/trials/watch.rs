//! Threads that only look: at the processes of one job, and at the machine itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::census::Stat;
use crate::moment::{Moment, Span};
use crate::tree::Tree;

/// Between two looks at the processes of a job that is about to end, and of one that is not.
const CLOSELY: Duration = Duration::from_millis(1);
const IDLY: Duration = Duration::from_millis(10);

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
                thread::sleep(if shared.closely.load(Ordering::Relaxed) { CLOSELY } else { IDLY });
            }
        });
        Self { switches, thread: Some(thread) }
    }

    /// From now on it matters to the millisecond.
    pub(crate) fn closely(&self) {
        self.switches.closely.store(true, Ordering::Relaxed);
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

/// The shortest stand-still that is worth telling.
const STALL: Duration = Duration::from_millis(10);

/// Notes when the machine stood still: when a thread with nothing to do was not woken in time. A
/// product cannot be quicker than the machine that it runs on, and a reader of a violation wants to
/// know.
#[derive(Default)]
pub(crate) struct Stalls {
    /// Beginning and length.
    seen: Mutex<Vec<(Moment, Span)>>,
}

impl Stalls {
    /// Starts to look.
    pub(crate) fn start() -> Arc<Self> {
        let stalls = Arc::new(Self::default());
        let noted = Arc::clone(&stalls);
        thread::spawn(move || {
            let mut before = Moment::now();
            loop {
                thread::sleep(Duration::from_millis(2));
                let now = Moment::now();
                let length = now.since(before);
                if length > Span::from(STALL) {
                    noted.seen.lock().expect("no panic with it").push((before, length));
                }
                before = now;
            }
        });
        stalls
    }

    /// Those that touch the time between `from` and `to`: when each began, and its length.
    pub(crate) fn between(&self, from: Moment, to: Moment) -> Vec<(Moment, Span)> {
        let seen = self.seen.lock().expect("no panic with it");
        let touches =
            |(began, length): &&(Moment, Span)| *began <= to && *began + length.as_duration() >= from;
        seen.iter().filter(touches).copied().collect()
    }

    /// The longest of them.
    pub(crate) fn longest(&self, from: Moment, to: Moment) -> Option<Span> {
        self.between(from, to).into_iter().map(|(_, length)| length).max()
    }
}
