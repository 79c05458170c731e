//! One Redis: its address, a connection to it, the scripts, and what its replies mean.
//!
//! This is the only folder that knows the Redis protocol. Above it, the lock is spoken of in the
//! terms of `lease/`.
//!
//! The `redis` crate packs commands and parses replies; the socket is ours. The crate's own blocking
//! connection has timeouts per system call only, so a server that trickles single bytes, or one that
//! announces a huge reply, holds it for ever, and nothing can interrupt it. Here every step
//! has one deadline, ends when the caller is interrupted (a signal while waiting, the end of the job
//! while renewing), and reads a bounded reply.

mod address;
mod connection;
mod exchange;
mod interrupt;
mod reply;
mod resolve;
mod rights;
mod scripts;
mod session;

pub use address::{Address, AddressError, Credentials, Endpoint};
pub use interrupt::{Interrupt, Never};
pub use reply::{Fault, FaultKind};
pub use session::{Acquired, Attempt, Busy, Node, Opinion, Timeouts};
