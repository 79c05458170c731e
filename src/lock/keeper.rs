//! The thread that extends the lease.

use crate::clock::BootTime;
use crate::lease::{Backoff, Key, Lease, LockValue, Timing};
use crate::messages::spawn_quiet;
use crate::node::{Busy, Fault, FaultKind, Interrupt, Node, Opinion};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The lock is definitely gone while we thought to hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Redis says that the value at the key is not ours.
    NotOurs,
    /// What stands at the key is no lock at all.
    NotALock,
    /// The keeper's thread could not be started or died of a bug.
    NobodyKeeps,
}

/// What stands at the key of a lock that was lost.
#[derive(Debug)]
pub enum Successor {
    /// Another's lock.
    Holder(Busy),
    /// Nothing.
    Nobody,
    /// There was no answer, or the run ended before it.
    Unknown,
}

/// Who is told what the keeper learns. Called from the keeper's thread; must not block.
pub trait Watch: Send + 'static {
    /// The lease was extended.
    fn extended(&self, lease: Lease);

    /// The lock is lost. The keeper ends.
    fn lost(&self, loss: Loss);

    /// After [`Self::lost`]: what stands at the key now.
    fn successor(&self, found: Successor);

    /// A try to extend failed; whether the lock is ours is unknown, and it will be tried again.
    /// Holds how many tries in a row have failed.
    fn failing(&self, fault: &Fault, tries: u32);

    /// The lease is over and nothing was heard of it: it may be another's. The keeper goes on only
    /// where [`Self::goes_on_after_term`] allows it; an extension that succeeds after all proves that
    /// the lock never went away.
    fn lapsed(&self, lease: Lease);

    /// Whether the keeper may go on trying at `now` although the job had to be told to end.
    fn goes_on_after_term(&self) -> bool;
}

/// Who keeps the lock of `value` at `key`.
///
/// The thread starts only when the first renewal comes near: a job that is shorter needs none. It
/// sleeps without the node and takes it only to extend, so that stopping it costs no switch to the
/// thread and back.
pub struct Keeper {
    node: Arc<Mutex<Option<Node>>>,
    key: Key,
    value: LockValue,
    timing: Timing,
    lease: Lease,
    thread: Thread,
}

enum Thread {
    NotYet,
    Running {
        stop: Arc<EventFd>,
    },
    /// The system had no room for it.
    Failed,
}

impl Keeper {
    /// A keeper for a lease just granted.
    #[must_use]
    pub fn new(node: Node, key: &Key, value: &LockValue, timing: Timing, lease: Lease) -> Self {
        let node = Arc::new(Mutex::new(Some(node)));
        Self { node, key: key.clone(), value: value.clone(), timing, lease, thread: Thread::NotYet }
    }

    /// When [`Self::start`] has to be called: half-way to the first renewal.
    #[must_use]
    pub fn start_by(&self) -> BootTime {
        match self.thread {
            Thread::NotYet => self.lease.since + self.timing.renewal() / 2,
            Thread::Running { .. } | Thread::Failed => BootTime::NEVER,
        }
    }

    /// Starts the thread. When that fails nobody renews: the lock counts as lost.
    pub fn start<W: Watch>(&mut self, watch: W) {
        let watch = LostUnlessEnded { watch, ended: false };
        self.thread = self.spawn(watch).map_or(Thread::Failed, |stop| Thread::Running { stop });
    }

    fn spawn<W: Watch>(&self, watch: LostUnlessEnded<W>) -> io::Result<Arc<EventFd>> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = Arc::new(EventFd::from_flags(flags).map_err(io::Error::from)?);
        let (told, node) = (Arc::clone(&stop), Arc::clone(&self.node));
        let (key, value, timing, lease) = (self.key.clone(), self.value.clone(), self.timing, self.lease);
        spawn_quiet("keeper", move || {
            // Whole: field by field, the closure would drop a copy that has not ended.
            let mut watch = watch;
            Keeping { node, key, value, timing, lease, stop: Stop(&told), watch: &watch.watch }.run();
            watch.ended = true;
        })?;
        Ok(stop)
    }

    /// Stops extending and gives the node back; `None` when the thread died of a bug.
    #[must_use]
    pub fn stop(self) -> Option<Node> {
        if let Thread::Running { stop } = &self.thread {
            let _ = stop.write(1);
        }
        self.node.lock().ok()?.take()
    }
}

/// Dropped before the keeping has come to an end: its thread unwinds from a panic, or was never
/// there. Then nobody renews.
struct LostUnlessEnded<W: Watch> {
    watch: W,
    ended: bool,
}

impl<W: Watch> Drop for LostUnlessEnded<W> {
    fn drop(&mut self) {
        if !self.ended {
            self.watch.lost(Loss::NobodyKeeps);
        }
    }
}

struct Stop<'a>(&'a EventFd);

impl Interrupt for Stop<'_> {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }

    fn interrupted(&mut self) -> bool {
        true
    }
}

struct Keeping<'a, W: Watch> {
    node: Arc<Mutex<Option<Node>>>,
    key: Key,
    value: LockValue,
    timing: Timing,
    lease: Lease,
    stop: Stop<'a>,
    watch: &'a W,
}

impl<W: Watch> Keeping<'_, W> {
    /// Extends until stopped, lost, or out of time.
    fn run(&mut self) {
        let first = Duration::from_millis(100);
        let mut retry = Backoff::new(first, self.timing.longest_retry());
        let mut failed = 0;
        let mut lapsed = false;
        let mut next = self.lease.renew_at;
        loop {
            if Node::pause(next, &mut self.stop) {
                return;
            }
            let now = BootTime::now();
            if now >= self.lease.term_at && !self.watch.goes_on_after_term() {
                return;
            }
            if now >= self.lease.valid_until && !std::mem::replace(&mut lapsed, true) {
                self.watch.lapsed(self.lease);
            }
            // Taken by `stop`, or left by a panic: either way there is nothing more to do here.
            let Ok(mut held) = self.node.lock() else { return };
            let Some(node) = held.as_mut() else { return };
            // Beyond `term_at` it comes only where the job goes on.
            let late = now >= self.lease.term_at;
            let limit = now + if late { self.lease.late_try(now) } else { self.lease.renewal_try(now) };
            let ttl = self.timing.ttl();
            let extended = node.extend(&self.key, self.value.text(), ttl, limit, &mut self.stop);
            drop(held);
            match extended {
                Ok(Opinion::Ours(sent_at)) => {
                    self.lease = self.timing.lease(sent_at);
                    self.watch.extended(self.lease);
                    failed = 0;
                    lapsed = false;
                    retry.reset();
                    next = self.lease.renew_at;
                }
                Ok(Opinion::NotOurs) => return self.lose(Loss::NotOurs),
                Err(fault) if fault.kind == FaultKind::NotALock => return self.lose(Loss::NotALock),
                Err(fault) if fault.kind == FaultKind::Interrupted => return,
                Err(fault) => {
                    failed += 1;
                    self.watch.failing(&fault, failed);
                    // Once at once: most failures are a connection that was cut while idle.
                    next = BootTime::now();
                    if failed > 1 {
                        next = next + retry.pause();
                    }
                    // Whatever comes at the end of the lease comes on time.
                    let end = if self.watch.goes_on_after_term() {
                        self.lease.valid_until
                    } else {
                        self.lease.term_at
                    };
                    if BootTime::now() < end {
                        next = next.min(end);
                    }
                }
            }
        }
    }

    /// First what matters, then what is only worth telling.
    fn lose(&mut self, loss: Loss) {
        self.watch.lost(loss);
        let mut held = self.node.lock();
        let node = held.as_mut().ok().and_then(|node| node.as_mut());
        let found = node.and_then(|node| node.look(&self.key, &mut self.stop).ok());
        self.watch.successor(match found {
            Some(Some((_, busy))) => Successor::Holder(busy),
            Some(None) => Successor::Nobody,
            None => Successor::Unknown,
        });
    }
}
