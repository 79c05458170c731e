//! Figures of a sorted list of times.

use std::time::Duration;

/// The time that one in ten stayed below, in milliseconds: nearly undisturbed by what else runs.
pub(crate) fn p10(sorted: &[Duration]) -> f64 {
    quantile(sorted, 10)
}

/// The time that half of them stayed below, in milliseconds.
pub(crate) fn median(sorted: &[Duration]) -> f64 {
    quantile(sorted, 50)
}

/// The time that nine in ten stayed below, in milliseconds.
pub(crate) fn p90(sorted: &[Duration]) -> f64 {
    quantile(sorted, 90)
}

fn quantile(sorted: &[Duration], percent: usize) -> f64 {
    sorted[(sorted.len() - 1) * percent / 100].as_secs_f64() * 1e3
}
