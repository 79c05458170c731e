//! Giving the lock back.

use crate::clock::BootTime;
use crate::lease::{Key, LockValue};
use crate::node::{FaultKind, Interrupt, Node, Opinion};
use std::time::Duration;

/// How long a release may take: the job is over, and its caller waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// What came of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// The key is gone, by us.
    Yes,
    /// The key was not ours any more: the lock was lost while the job ran.
    Lost,
    /// Redis did not confirm it; the key goes when its TTL runs out. Holds the cause.
    Unconfirmed(String),
    /// The caller's interrupt came first.
    Interrupted,
}

/// Releases the lock; one fresh connection is tried if the old one turns out to be dead. Takes at most
/// two seconds.
///
/// "Not ours" counts as lost only when no earlier try of this release may have been carried out.
pub fn release(node: &mut Node, key: &Key, value: &LockValue, interrupt: &mut dyn Interrupt) -> Released {
    let limit = BootTime::now() + PATIENCE;
    let mut unsure = false;
    let first = node.release(key, value.text(), limit, interrupt, &mut unsure);
    let last = match first {
        Err(fault) if fault.kind == FaultKind::Unavailable && BootTime::now() < limit => {
            node.release(key, value.text(), limit, interrupt, &mut unsure)
        }
        done => done,
    };
    match last {
        Ok(Opinion::Ours(_)) => Released::Yes,
        Ok(Opinion::NotOurs) if unsure => Released::Yes,
        Ok(Opinion::NotOurs) => Released::Lost,
        Err(fault) if fault.kind == FaultKind::Interrupted => Released::Interrupted,
        Err(fault) => Released::Unconfirmed(fault.text),
    }
}
