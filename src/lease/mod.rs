//! The vocabulary of the lock, pure: names, values and all arithmetic on the times of a lease.
//!
//! Nothing here talks to Redis, to a process or to a clock; every rule that can be stated without
//! them is stated, and tested, here.

mod backoff;
mod holder;
mod key;
mod token;
mod validity;

pub use backoff::{Backoff, jitter};
pub use holder::{Holder, LONGEST_NOTE, LONGEST_VALUE, LockValue, Seen};
pub use key::{Companion, Key, KeyError};
pub use token::Token;
pub use validity::{LONGEST_TTL, Lease, SHORTEST_TTL, Timing};
