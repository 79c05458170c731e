//! The faults, and the words that a trial's plan is made of.

use nix::sys::signal::Signal;

use crate::support::Mode;

/// What is done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// `kill -9` of the wrapper.
    WrapperKill,
    /// `kill -STOP` of the wrapper, and CONT before or after the lease's end.
    WrapperStop,
    /// `kill -9` of the guard.
    GuardKill,
    /// `kill -STOP` of the guard, some times.
    GuardStop,
    /// The guard is stopped again whenever it goes on, while nothing reaches Redis.
    GuardHeld,
    /// Wrapper and guard stopped together for less than the lease.
    PauseShort,
    /// Wrapper and guard stopped together for more than the lease.
    PauseLong,
    /// `kill -9` of Redis.
    RedisKill,
    /// `kill -STOP` of Redis, and CONT before or after the lease's end.
    RedisStop,
    /// Connections stay up and nothing goes through.
    BlackHole,
    /// Replies come byte by byte.
    Trickle,
    /// Another value at the key.
    Stolen,
    /// The key is deleted.
    Deleted,
    /// Wrapper, guard or both stopped between the lock's acquisition and the job's start.
    FrozenStart,
}

/// All faults, with what `FAULT=` and the report call them.
pub(crate) const FAULTS: [(Fault, &str); 14] = [
    (Fault::WrapperKill, "wrapper-kill"),
    (Fault::WrapperStop, "wrapper-stop"),
    (Fault::GuardKill, "guard-kill"),
    (Fault::GuardStop, "guard-stop"),
    (Fault::GuardHeld, "guard-held"),
    (Fault::PauseShort, "pause-short"),
    (Fault::PauseLong, "pause-long"),
    (Fault::RedisKill, "redis-kill"),
    (Fault::RedisStop, "redis-stop"),
    (Fault::BlackHole, "black-hole"),
    (Fault::Trickle, "trickle"),
    (Fault::Stolen, "stolen"),
    (Fault::Deleted, "deleted"),
    (Fault::FrozenStart, "frozen-start"),
];

/// One thing that is done at its time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// A signal to processes of ours.
    Signal(Who, Signal),
    /// What the proxy does from now on.
    Network(Mode),
    /// Redis is stopped, goes on, is killed.
    RedisStop,
    RedisCont,
    RedisKill,
    /// The key gets a foreign value, or goes.
    Steal,
    Delete,
}

/// Who gets a signal; both get it one right after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Wrapper,
    Guard,
    WrapperThenGuard,
    GuardThenWrapper,
}

/// From what on the moment of the fault is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// The start of the wrapper.
    Launch,
    /// The lock is in Redis.
    Key,
    /// All processes of the job are there.
    Job,
}

impl Fault {
    /// What `FAULT=` and the report call it.
    pub(crate) fn name(self) -> &'static str {
        FAULTS.iter().find(|(fault, _)| *fault == self).map_or("?", |(_, name)| name)
    }

    /// It can be inflicted on a run without a guard.
    pub(crate) fn needs_no_guard(self) -> bool {
        use Fault::{FrozenStart, GuardHeld, GuardKill, GuardStop, PauseLong, PauseShort};
        !matches!(self, FrozenStart | GuardHeld | GuardKill | GuardStop | PauseLong | PauseShort)
    }

    /// It leaves the wrapper, which must say that the lock was lost under its job; `was_free` when it was
    /// seen to be.
    pub(crate) fn loses_the_lock(self, was_free: bool) -> bool {
        use Fault::{
            BlackHole, Deleted, GuardHeld, PauseLong, RedisKill, RedisStop, Stolen, Trickle, WrapperStop,
        };
        let if_it_was = matches!(
            self,
            BlackHole | Deleted | GuardHeld | PauseLong | RedisStop | Stolen | Trickle | WrapperStop
        );
        self == RedisKill || if_it_was && was_free
    }

    /// It makes sense at any moment from the wrapper's start on.
    pub(crate) fn may_come_early(self) -> bool {
        use Fault::{
            BlackHole, GuardKill, GuardStop, RedisKill, RedisStop, Trickle, WrapperKill, WrapperStop,
        };
        matches!(
            self,
            BlackHole | GuardKill | GuardStop | RedisKill | RedisStop | Trickle | WrapperKill | WrapperStop
        )
    }
}
