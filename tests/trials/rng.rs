//! Random numbers that come back with their seed, on every machine.

use std::ops::Range;
use std::time::Duration;

/// A `splitmix64` generator: tiny, and good enough to draw faults with.
pub(crate) struct Rng(u64);

impl Rng {
    /// The generator of one trial (or one deck) under `seed`: trials do not depend on each other,
    /// so that one of them can be repeated alone.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        // Neighbouring streams must not begin alike.
        rng.next();
        rng.next();
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of the numbers in `range`.
    pub(crate) fn number(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// A length of time in `range`, to the microsecond.
    pub(crate) fn length(&mut self, range: Range<Duration>) -> Duration {
        let micros = |length: Duration| u64::try_from(length.as_micros()).expect("a short time");
        Duration::from_micros(self.number(micros(range.start)..micros(range.end)))
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.number(0..100) < percent
    }

    /// One of `choices`.
    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.number(0..choices.len() as u64)).expect("an index")]
    }

    /// Shuffles `cards`.
    pub(crate) fn shuffle<T>(&mut self, cards: &mut [T]) {
        for last in (1..cards.len()).rev() {
            let chosen = self.number(0..last as u64 + 1);
            cards.swap(last, usize::try_from(chosen).expect("an index"));
        }
    }
}
