//! Durations as people type and read them: `30s`, `1m30s`, `0.5`, `.007`.
//!
//! Parsing never panics and never rounds to zero silently: what is out of range is an error that
//! says so.

use std::fmt;
use std::time::Duration;

/// Longest duration that is understood: a thousand years, far from every overflow.
const LONGEST: f64 = 1000.0 * 365.25 * 86_400.0;

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurationError {
    /// Nothing, or nothing but a unit.
    NoNumber,
    /// Negative, or with a sign.
    Signed,
    /// A unit that is not `ms`, `s`, `m`, `h` or `d`.
    UnknownUnit(String),
    /// More than can be meant.
    TooLong,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNumber => write!(f, "not a duration"),
            Self::Signed => write!(f, "a duration has no sign"),
            Self::UnknownUnit(unit) => {
                write!(f, "unknown unit '{}'", crate::escape::escape(unit.as_bytes()))
            }
            Self::TooLong => write!(f, "too long"),
        }
    }
}

/// What to type instead; goes with every [`DurationError`].
pub const HINT: &str = "m is minutes, h hours, d days, as in 1m30s";

/// Reads a duration: numbers with an optional fraction, each with `ms`, `s`, `m`, `h` or `d`, joined;
/// a bare number is seconds.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let mut rest = text.trim();
    if rest.starts_with(['-', '+']) {
        return Err(DurationError::Signed);
    }
    if let Some(number) = number(rest) {
        return seconds(number);
    }
    let mut total = 0.0;
    if rest.is_empty() {
        return Err(DurationError::NoNumber);
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let value = number(&rest[..digits]).ok_or(DurationError::NoNumber)?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        total += value * unit(&rest[..letters])?;
        rest = &rest[letters..];
    }
    seconds(total)
}

/// Digits with at most one point; nothing that `f64` would also take (`inf`, `1e3`, `NaN`).
fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    (plain && text.bytes().any(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

fn unit(text: &str) -> Result<f64, DurationError> {
    match text {
        "ms" => Ok(0.001),
        "s" => Ok(1.0),
        "m" => Ok(60.0),
        "h" => Ok(3600.0),
        "d" => Ok(86_400.0),
        other => Err(DurationError::UnknownUnit(other.to_owned())),
    }
}

fn seconds(total: f64) -> Result<Duration, DurationError> {
    if total > LONGEST {
        return Err(DurationError::TooLong);
    }
    Duration::try_from_secs_f64(total).map_err(|_| DurationError::TooLong)
}

/// A duration as messages show it: the two largest units (`5m12s`, `2d3h`), below ten seconds one
/// decimal, below one second milliseconds.
#[must_use]
pub fn show(duration: Duration) -> String {
    let ms = duration.as_millis();
    let s = duration.as_secs();
    match s {
        0 => format!("{ms}ms"),
        1..=9 if ms % 1000 >= 100 => format!("{}.{}s", s, ms % 1000 / 100),
        1..=59 => format!("{s}s"),
        60..=3599 => pair(s / 60, "m", s % 60, "s"),
        3600..=86_399 => pair(s / 3600, "h", s % 3600 / 60, "m"),
        _ => pair(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

fn pair(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::{DurationError, parse, show};
    use std::time::Duration;

    #[test]
    fn what_people_type_is_understood() {
        for (text, ms) in [
            ("30", 30_000),
            ("0.5", 500),
            (".007", 7),
            ("500ms", 500),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("2d", 172_800_000),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for text in ["", "s", ".", "1..2", "abc", "1s2", "1 m", "m5"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("1M"), Err(DurationError::UnknownUnit("M".into())));
        assert_eq!(parse("-1"), Err(DurationError::Signed));
        assert_eq!(parse("99999999999999999999999999d"), Err(DurationError::TooLong));
        for text in ["inf", "nan", "1e3", "1e30", "0x10"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_two_largest_units_are_shown() {
        for (ms, text) in [
            (7, "7ms"),
            (1000, "1s"),
            (2500, "2.5s"),
            (12_300, "12s"),
            (312_000, "5m12s"),
            (1_800_000, "30m"),
            (183_600_000, "2d3h"),
        ] {
            assert_eq!(show(Duration::from_millis(ms)), text);
        }
    }
}
