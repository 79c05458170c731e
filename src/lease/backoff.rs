//! Pauses between tries: growing, capped, jittered.

use std::time::Duration;
use uuid::Uuid;

/// A pause that doubles up to a cap, each drawn from ±25 % so that a fleet does not move in step.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    next: Duration,
    cap: Duration,
}

impl Backoff {
    /// Starts at `first` and grows to `cap`.
    #[must_use]
    pub const fn new(first: Duration, cap: Duration) -> Self {
        Self { first, next: first, cap }
    }

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let pause = jitter(self.next);
        self.next = (self.next * 2).min(self.cap);
        pause
    }

    /// Back to the first pause, after a success.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }
}

/// `duration` × U(0.75, 1.25).
#[must_use]
pub fn jitter(duration: Duration) -> Duration {
    // 64 of the 122 random bits of a UUID; the only use of randomness besides tokens.
    let (_, low) = Uuid::new_v4().as_u64_pair();
    #[allow(clippy::cast_precision_loss)]
    let unit = (low << 2) as f64 / u64::MAX as f64;
    duration.mul_f64(0.75 + unit / 2.0)
}

#[cfg(test)]
mod tests {
    use super::{Backoff, jitter};
    use std::time::Duration;

    #[test]
    fn pauses_grow_to_the_cap_and_start_again() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100), ms(400));
        for expected in [100, 200, 400, 400] {
            let pause = backoff.pause();
            assert!(pause >= ms(expected) * 3 / 4 && pause <= ms(expected) * 5 / 4);
        }
        backoff.reset();
        assert!(backoff.pause() <= ms(125));
    }

    #[test]
    fn jitter_covers_its_range() {
        let drawn: Vec<_> = (0..1000).map(|_| jitter(Duration::from_secs(1)).as_secs_f64()).collect();
        assert!(drawn.iter().all(|d| (0.75..=1.25).contains(d)));
        assert!(drawn.iter().any(|d| *d < 0.8) && drawn.iter().any(|d| *d > 1.2));
    }
}
