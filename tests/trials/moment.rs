//! Time stamps. Every observation is bracketed by two of them, so that an observer that was held up
//! knows less and never something wrong.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A moment on the boot-time clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(i64);

/// A signed length of time in nanoseconds, printed in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) i64);

impl Moment {
    /// Now.
    pub(crate) fn now() -> Self {
        Self(nanos(ClockId::CLOCK_BOOTTIME))
    }

    /// From `earlier` to this moment; negative when it is the other way round.
    pub(crate) fn since(self, earlier: Self) -> Span {
        Span(self.0 - earlier.0)
    }

    /// How long it is from now until then; zero when it has passed.
    pub(crate) fn left(self) -> Duration {
        self.since(Self::now()).as_duration()
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, length: Duration) -> Self {
        Self(self.0 + Span::from(length).0)
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, length: Duration) -> Self {
        Self(self.0 - Span::from(length).0)
    }
}

impl Span {
    /// The same as a duration; zero when negative.
    pub(crate) fn as_duration(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

impl From<Duration> for Span {
    fn from(length: Duration) -> Self {
        Self(i64::try_from(length.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, tenths) = (if self.0 < 0 { "-" } else { "" }, self.0.abs() / 100_000);
        write!(f, "{sign}{}.{} ms", tenths / 10, tenths % 10)
    }
}

/// How far the wall clock, by which Redis ends leases, is ahead of the boot-time clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock {
    ahead: i64,
}

impl WallClock {
    /// Compares the two clocks: the narrowest of a few tries, in which nothing came in between.
    pub(crate) fn read() -> Self {
        let compare = |_| {
            let before = nanos(ClockId::CLOCK_BOOTTIME);
            let wall = nanos(ClockId::CLOCK_REALTIME);
            let after = nanos(ClockId::CLOCK_BOOTTIME);
            (after - before, wall - before)
        };
        let ahead = (0..5).map(compare).min().map_or(0, |(_, ahead)| ahead);
        Self { ahead }
    }

    /// The boot-time moment of a Unix time in milliseconds.
    pub(crate) fn moment(self, unix_ms: i64) -> Moment {
        Moment(unix_ms * 1_000_000 - self.ahead)
    }

    /// How far it was set between `earlier` and now.
    pub(crate) fn step_since(self, earlier: Self) -> Span {
        Span((self.ahead - earlier.ahead).abs())
    }
}

fn nanos(clock: ClockId) -> i64 {
    let now = clock_gettime(clock).expect("Linux has this clock");
    Span::from(Duration::from(now)).0
}
