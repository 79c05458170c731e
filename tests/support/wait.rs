//! Waiting for conditions. Tests never sleep for a guessed time.

use std::thread;
use std::time::{Duration, Instant};

/// The limit for what should happen "at once": generous, since two noisy cores run all tests
/// side by side, and only ever waited out by a test that fails.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Between two looks at a condition. Long enough to leave the cores to what is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits until `condition` holds; panics, naming `what`, when it does not within `limit`.
#[track_caller]
pub(crate) fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    wait_for(what, limit, || condition().then_some(()));
}

/// Waits until `look` finds something and returns it; panics, naming `what`, after `limit`.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {limit:?} in vain: {what}");
        // Any condition at all: there is no event that would tell of each.
        thread::sleep(LOOK_EVERY);
    }
}

/// Asserts that `condition` goes on holding for `length`.
///
/// The one place where a test spends time on purpose: that something does *not* happen has no
/// event to wait for.
#[track_caller]
pub(crate) fn stays(what: &str, length: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + length;
    while Instant::now() < end {
        assert!(condition(), "did not stay so for {length:?}: {what}");
        // Nothing is waited for but time.
        thread::sleep(LOOK_EVERY);
    }
}
