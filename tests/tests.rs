//! The integration tests: one binary, one file per behaviour.

/// Private servers, faults, runs, terminals, conditions.
#[expect(dead_code, reason = "the behaviours that use the rest follow")]
mod support;

/// The harness itself: that it sees what it should, and can fail.
mod harness;
