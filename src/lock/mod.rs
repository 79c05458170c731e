//! The lock: acquire, keep, release.
//!
//! # Theory of operation
//!
//! *One* key in Redis is the lock; who set it, with a value that nobody else can have, holds it until
//! its TTL runs out or the value-checked release deletes it. Three rules carry everything else:
//!
//! 1. **A token per attempt.** Each request that may set the key has a token of its own. A reply that
//!    is lost leaves the outcome unknown; the attempt is then disowned (a release that names its token)
//!    and the next try has a new token. No late or repeated message can hit another attempt's lock.
//! 2. **Validity on our own clock.** A lease counts from before the request was sent
//!    ([`crate::lease::Lease`]). A reply that comes when the lease is nearly over is no acquisition.
//! 3. **Lost, unknown and refused are different.** Only a definite answer from a master ("not yours")
//!    means *lost*. Silence and errors mean *unknown*: the keeper goes on trying, and the clock decides.
//!
//! [`acquire`](acquire()) runs in the caller's thread, in front of the job, and can be interrupted at
//! every point. Then a [`Keeper`] thread takes the node and extends the lease until it is stopped, when
//! it gives the node back for [`release`](release()). The keeper never touches the job: it tells a
//! [`Watch`] what it learned, and who supervises the job acts on its own clock.
//!
//! Waiters block on a *baton*, a list element that the release leaves. It wakes one of them; it is a
//! hint and no ownership, everybody who wakes asks for the lock like all others. A dead waiter, a lost
//! baton or a holder that leaves none (another tool) costs one bounded pause.

mod acquire;
mod keeper;
mod release;

pub use acquire::{Held, NotAcquired, Patience, Progress, Want, acquire};
pub use keeper::{Keeper, Loss, Successor, Watch};
pub use release::{Released, release};
