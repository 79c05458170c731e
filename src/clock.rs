//! The one clock that leases are judged by: `CLOCK_BOOTTIME`.
//!
//! It goes on while the machine is suspended, as Redis does; `std::time::Instant` stands still then
//! and would call a lease valid that ran out hours ago. It never steps. The pure code of `lease/`
//! gets its times as arguments and never reads it.

use nix::time::{ClockId, clock_gettime};
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment, in nanoseconds since boot. Fits in one atomic, so that processes can share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(u64);

impl BootTime {
    /// A moment that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// Now.
    ///
    /// # Panics
    /// When the kernel has no `CLOCK_BOOTTIME`, which Linux has had since 2.6.39.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has CLOCK_BOOTTIME");
        Self(u64::try_from(Duration::from(now).as_nanos()).unwrap_or(u64::MAX))
    }

    /// From nanoseconds since boot.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// As nanoseconds since boot.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// How long it is from `now` until this moment; zero when it has passed.
    #[must_use]
    pub const fn after(self, now: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(now.0))
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for BootTime {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}
