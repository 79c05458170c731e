//! All arithmetic on lease times.
//!
//! A lease counts from just **before** the request that got it was sent: Redis cannot have started
//! its clock earlier. From its end back: a drift allowance, a margin in which killed processes are
//! torn down (`kill_at`), and a grace in which the job may clean up (`term_at`).

use crate::clock::BootTime;
use std::time::Duration;

/// Shortest TTL that leaves room for a margin, a grace and three renewals.
pub const SHORTEST_TTL: Duration = Duration::from_millis(100);

/// Longest TTL: a holder that vanished must not block the fleet for longer.
pub const LONGEST_TTL: Duration = Duration::from_secs(24 * 3600);

/// Between SIGKILL and the end of the lease; tearing 2 GiB of memory down takes 60–120 ms.
const MARGIN: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(500));

/// Longest default grace between SIGTERM and SIGKILL when a lease runs out.
const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// Longest pause between two renewals, so that a lost lock is noticed in time under long leases.
const LONGEST_RENEWAL: Duration = Duration::from_secs(30);

/// Longest that one try to renew may take.
const LONGEST_TRY: Duration = Duration::from_secs(1);

/// Shortest that one try to renew may take.
const SHORTEST_TRY: Duration = Duration::from_millis(5);

/// The lengths that follow from the TTL and `--kill-after`.
///
/// | TTL | grace | extend every | TERM at | KILL at |
/// |---|---|---|---|---|
/// | 1 s | 250 ms | 0.24 s | 0.71 s | 0.96 s |
/// | 10 s | 2.5 s | 2.4 s | 7.1 s | 9.6 s |
/// | 30 s | 5 s | 8.1 s | 24.2 s | 29.2 s |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    ttl: Duration,
    grace: Duration,
}

/// One granted lease: until when it may be trusted and what happens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Just before the request was sent that got it.
    pub since: BootTime,
    /// The next renewal is due.
    pub renew_at: BootTime,
    /// Nothing may count on the lock from here on.
    pub valid_until: BootTime,
    /// The job gets SIGKILL.
    pub kill_at: BootTime,
    /// The job gets SIGTERM; a reply that comes later is no acquisition any more.
    pub term_at: BootTime,
}

impl Timing {
    /// For a TTL between [`SHORTEST_TTL`] and [`LONGEST_TTL`]. `kill_after` is what the user gave:
    /// the grace is then min(`kill_after`, ttl/2), zero meaning TERM and KILL together; without it
    /// min(5 s, ttl/4).
    #[must_use]
    pub fn new(ttl: Duration, kill_after: Option<Duration>) -> Self {
        let grace = match kill_after {
            Some(grace) => grace.min(ttl / 2),
            None => LONGEST_GRACE.min(ttl / 4),
        };
        Self { ttl, grace }
    }

    /// How long Redis keeps the key.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Between SIGTERM and SIGKILL when a lease runs out.
    #[must_use]
    pub const fn grace(&self) -> Duration {
        self.grace
    }

    /// One percent and 2 ms: clocks that run at different speeds, and Redis's own resolution.
    fn drift(&self) -> Duration {
        self.ttl / 100 + Duration::from_millis(2)
    }

    fn margin(&self) -> Duration {
        (self.ttl / 40).clamp(MARGIN.0, MARGIN.1)
    }

    /// The pause between two renewals: three fit before `term_at`.
    #[must_use]
    pub fn renewal(&self) -> Duration {
        (self.ttl.saturating_sub(self.drift() + self.margin() + self.grace) / 3).min(LONGEST_RENEWAL)
    }

    /// The lease that a request sent just after `t0` got.
    #[must_use]
    pub fn lease(&self, t0: BootTime) -> Lease {
        let valid_until = t0 + self.ttl.saturating_sub(self.drift());
        let kill_at = valid_until - self.margin();
        Lease {
            since: t0,
            renew_at: t0 + self.renewal(),
            valid_until,
            kill_at,
            term_at: kill_at - self.grace,
        }
    }

    /// How long guard and kernel have between SIGKILL and the end of the lease before something
    /// else has to be tried: half of the margin.
    #[must_use]
    pub fn half_margin(&self) -> Duration {
        self.margin() / 2
    }

    /// Longest pause after a failed renewal: 1 s, under long leases (5 minutes and more) 10 s.
    #[must_use]
    pub fn longest_retry(&self) -> Duration {
        if self.ttl < Duration::from_secs(300) { Duration::from_secs(1) } else { Duration::from_secs(10) }
    }
}

impl Lease {
    /// How long one try to renew may take at `now`: half of what is left until `term_at`, at most
    /// 1 s, at least 5 ms.
    #[must_use]
    pub fn renewal_try(&self, now: BootTime) -> Duration {
        (self.term_at.after(now) / 2).clamp(SHORTEST_TRY, LONGEST_TRY)
    }

    /// The same from `term_at` on, where the job goes on: what is left of the lease, and when that is over as
    /// long as any other; at most 1 s, at least 5 ms.
    #[must_use]
    pub fn late_try(&self, now: BootTime) -> Duration {
        let left = self.valid_until.after(now);
        if left.is_zero() { LONGEST_TRY } else { left.clamp(SHORTEST_TRY, LONGEST_TRY) }
    }
}

#[cfg(test)]
mod tests {
    use super::{BootTime, LONGEST_TTL, SHORTEST_TTL, Timing};
    use std::time::Duration;

    const ZERO: BootTime = BootTime::from_nanos(0);

    fn ms(duration: Duration) -> u128 {
        duration.as_millis()
    }

    #[test]
    fn the_table_of_the_documentation_holds() {
        // ttl, grace, extend every, TERM at, KILL at; worked out by hand:
        // 1 s: drift 12, margin 25 → kill 963, grace 250 → term 713, /3 = 237
        // 10 s: drift 102, margin 250 → 9648, 2500 → 7148, /3 = 2382
        // 30 s: drift 302, margin 500 → 29198, 5000 → 24198, /3 = 8066
        for (ttl, grace, every, term, kill) in [
            (1_000, 250, 237, 713, 963),
            (10_000, 2_500, 2_382, 7_148, 9_648),
            (30_000, 5_000, 8_066, 24_198, 29_198),
        ] {
            let timing = Timing::new(Duration::from_millis(ttl), None);
            let lease = timing.lease(ZERO);
            assert_eq!(ms(timing.grace()), grace);
            assert_eq!(ms(timing.renewal()), every);
            assert_eq!(ms(lease.term_at.after(ZERO)), term);
            assert_eq!(ms(lease.kill_at.after(ZERO)), kill);
        }
    }

    #[test]
    fn every_allowed_ttl_has_room_for_all_its_parts() {
        for ttl in [SHORTEST_TTL, Duration::from_secs(1), Duration::from_secs(120), LONGEST_TTL] {
            for kill_after in [None, Some(Duration::ZERO), Some(LONGEST_TTL)] {
                let timing = Timing::new(ttl, kill_after);
                let lease = timing.lease(ZERO);
                assert!(ZERO < lease.term_at && lease.term_at <= lease.kill_at);
                assert!(lease.kill_at < lease.valid_until && lease.valid_until.after(ZERO) < ttl);
                // The tightest: 100 ms with the grace at half: (100 − 3 − 25 − 50) / 3 = 7.
                assert!(timing.renewal() >= Duration::from_millis(7));
            }
        }
    }

    #[test]
    fn kill_after_zero_means_term_and_kill_together() {
        let lease = Timing::new(Duration::from_secs(30), Some(Duration::ZERO)).lease(ZERO);
        assert_eq!(lease.term_at, lease.kill_at);
    }

    #[test]
    fn a_try_takes_half_of_what_is_left() {
        let lease = Timing::new(Duration::from_secs(1), None).lease(ZERO); // TERM at 713 ms
        assert_eq!(ms(lease.renewal_try(ZERO)), 356);
        assert_eq!(ms(lease.renewal_try(lease.valid_until)), 5);
        let lease = Timing::new(Duration::from_secs(30), None).lease(ZERO);
        assert_eq!(ms(lease.renewal_try(ZERO)), 1000);
    }
}
