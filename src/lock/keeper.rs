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
    /// The keeper itself failed: nobody renews any more.
    KeeperDied,
}

/// Who is told what the keeper learns. Called from the keeper's thread; must not block.
pub trait Watch: Send + 'static {
    /// The lease was extended.
    fn extended(&self, lease: Lease);

    /// The lock is lost. The keeper ends.
    fn lost(&self, loss: Loss);

    /// After [`Self::lost`]: what stands at the key now, if that could be found out.
    fn successor(&self, found: Option<Busy>);

    /// A try to extend failed; whether the lock is ours is unknown, and it will be tried again.
    /// Holds how many tries in a row have failed.
    fn failing(&self, fault: &Fault, tries: u32);

    /// Whether the keeper may go on trying at `now` although the job had to be told to end.
    fn goes_on_after_term(&self) -> bool;
}

/// The running thread. It sleeps without the node and takes it only to extend, so that stopping
/// it costs no switch to the thread and back.
pub struct Keeper {
    stop: Arc<EventFd>,
    node: Arc<Mutex<Option<Node>>>,
}

impl Keeper {
    /// Starts to extend the lease of `value` at `key`.
    pub fn start<W: Watch>(
        node: Node,
        key: &Key,
        value: &LockValue,
        timing: Timing,
        lease: Lease,
        watch: W,
    ) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = Arc::new(EventFd::from_flags(flags).map_err(io::Error::from)?);
        let node = Arc::new(Mutex::new(Some(node)));
        let (told, shared) = (Arc::clone(&stop), Arc::clone(&node));
        let (key, value) = (key.clone(), value.clone());
        spawn_quiet("keeper", move || {
            let watch = LostIfItPanics(watch);
            Keeping { node: shared, key, value, timing, lease, stop: Stop(&told), watch: &watch.0 }.run();
            std::mem::forget(watch);
        })?;
        Ok(Self { stop, node })
    }

    /// Stops extending and gives the node back; `None` when the thread died of a bug.
    #[must_use]
    pub fn stop(self) -> Option<Node> {
        let _ = self.stop.write(1);
        self.node.lock().ok()?.take()
    }
}

/// Dropped only while its thread unwinds from a panic: then nobody renews, which is a lost lock.
struct LostIfItPanics<W: Watch>(W);

impl<W: Watch> Drop for LostIfItPanics<W> {
    fn drop(&mut self) {
        self.0.lost(Loss::KeeperDied);
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
        let mut next = BootTime::now() + self.timing.renewal();
        loop {
            if Node::pause(next, &mut self.stop) {
                return;
            }
            let now = BootTime::now();
            if now >= self.lease.term_at && !self.watch.goes_on_after_term() {
                return;
            }
            // Taken by `stop`, or left by a panic: either way there is nothing more to do here.
            let Ok(mut held) = self.node.lock() else { return };
            let Some(node) = held.as_mut() else { return };
            let limit = now + self.lease.renewal_try(now);
            let ttl = self.timing.ttl();
            let extended = node.extend(&self.key, self.value.text(), ttl, limit, &mut self.stop);
            drop(held);
            match extended {
                Ok(Opinion::Ours(sent_at)) => {
                    self.lease = self.timing.lease(sent_at);
                    self.watch.extended(self.lease);
                    failed = 0;
                    retry.reset();
                    next = sent_at + self.timing.renewal();
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
                    if !self.watch.goes_on_after_term() {
                        next = next.min(self.lease.term_at);
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
        let found = node.and_then(|node| node.look(&self.key, &mut self.stop).ok().flatten());
        self.watch.successor(found.map(|(_, busy)| busy));
    }
}
