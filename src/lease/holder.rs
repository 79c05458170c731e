//! The value at the key: one line of JSON with the token first, then facts about the holder.

use super::Token;
use crate::escape::escape;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// Longest value that is written, in bytes; scripts read one byte more of what stands at the key.
pub const LONGEST_VALUE: usize = 1024;

/// Longest note, in characters.
pub const LONGEST_NOTE: usize = 200;

/// Longest host, user or program name that is put into the value, in characters.
const LONGEST_NAME: usize = 64;

/// Who holds a lock, as the value tells it. Only the program's base name is given, never its
/// arguments: they carry secrets.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Holder {
    /// `user@host`.
    #[serde(default)]
    pub holder: String,
    /// The wrapper's process id on that host.
    #[serde(default)]
    pub pid: u32,
    /// Base name of the command.
    #[serde(default)]
    pub program: String,
    /// When it was acquired, by that host's clock, RFC 3339 in UTC.
    #[serde(default)]
    pub since: String,
    /// What the user gave with `--note`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Value {
    token: String,
    #[serde(flatten)]
    holder: Holder,
}

/// The text that stands at the key while an attempt of ours holds it. Compared whole, byte for byte.
#[derive(Clone, PartialEq, Eq)]
pub struct LockValue {
    token: Token,
    text: Vec<u8>,
}

impl Holder {
    /// Facts about this run. Names are cut so that the value stays under [`LONGEST_VALUE`].
    #[must_use]
    pub fn new(user: &str, host: &str, pid: u32, program: &str, note: Option<&str>) -> Self {
        Self {
            holder: format!("{}@{}", cut(user, LONGEST_NAME), cut(host, LONGEST_NAME)),
            pid,
            program: cut(program, LONGEST_NAME),
            since: String::new(),
            note: note.map(|note| cut(note, LONGEST_NOTE)),
        }
    }

    /// The value of a new attempt of this run at `now`.
    #[must_use]
    pub fn new_attempt(&self, now: SystemTime) -> LockValue {
        let token = Token::random();
        let mut value = Value { token: token.to_string(), holder: self.clone() };
        value.holder.since = humantime::format_rfc3339_seconds(now).to_string();
        loop {
            let text = serde_json::to_vec(&value).unwrap_or_default();
            match &mut value.holder.note {
                // Only a long note of wide or escaped characters comes here.
                Some(note) if text.len() > LONGEST_VALUE => *note = cut(note, note.chars().count() * 3 / 4),
                _ => return LockValue { token, text },
            }
        }
    }

    /// The holder for messages: `ci@runner-7 (pid 4211, deploy.sh)`.
    #[must_use]
    pub fn describe(&self) -> String {
        let holder = escape(self.holder.as_bytes());
        format!("{holder} (pid {}, {})", self.pid, escape(self.program.as_bytes()))
    }

    /// For how long it has been held at `now`; `None` when the clocks disagree or the text is no time.
    #[must_use]
    pub fn held_for(&self, now: SystemTime) -> Option<Duration> {
        let since = humantime::parse_rfc3339(&self.since).ok()?;
        now.duration_since(since).ok()
    }
}

impl LockValue {
    /// The token of the attempt.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// The text at the key.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }
}

/// What the value at a key tells about its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A run of this program.
    Run(Holder),
    /// Another tool: its value is no JSON of ours.
    Foreign,
}

impl Seen {
    /// Reads what stands at a key (at most its first KiB).
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(value) {
            Ok(value) => Self::Run(value.holder),
            Err(_) => Self::Foreign,
        }
    }
}

/// At most `longest` characters. Control characters become `?`: JSON would make six bytes of each.
fn cut(text: &str, longest: usize) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    text.chars().take(longest).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::{Holder, LONGEST_VALUE, Seen};
    use std::time::{Duration, SystemTime};

    fn holder(note: Option<&str>) -> Holder {
        Holder::new("ci", "runner-7", 4211, "deploy.sh", note)
    }

    #[test]
    fn the_value_is_one_line_of_json_with_the_token_first() {
        let attempt = holder(Some("release 7")).new_attempt(SystemTime::UNIX_EPOCH);
        let expected = format!(
            r#"{{"token":"{}","holder":"ci@runner-7","pid":4211,"program":"deploy.sh","since":"1970-01-01T00:00:00Z","note":"release 7"}}"#,
            attempt.token()
        );
        assert_eq!(String::from_utf8_lossy(attempt.text()), expected);
    }

    #[test]
    fn every_attempt_has_a_token_of_its_own() {
        let now = SystemTime::now();
        assert_ne!(holder(None).new_attempt(now).text(), holder(None).new_attempt(now).text());
    }

    #[test]
    fn the_longest_value_fits() {
        for wide in ["\u{1}", "\"", "ä", "𝄞"] {
            let long = wide.repeat(5000);
            let huge = Holder::new(&long, &long, u32::MAX, &long, Some(&long));
            assert!(huge.new_attempt(SystemTime::now()).text().len() <= LONGEST_VALUE);
        }
    }

    #[test]
    fn a_value_is_read_back_and_a_foreign_one_recognised() {
        let attempt = holder(None).new_attempt(SystemTime::UNIX_EPOCH);
        let Seen::Run(seen) = Seen::parse(attempt.text()) else { panic!("ours") };
        assert_eq!(seen.describe(), "ci@runner-7 (pid 4211, deploy.sh)");
        let later = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        assert_eq!(seen.held_for(later), Some(Duration::from_secs(5)));
        for foreign in [&b"x"[..], b"", b"{}", br#"{"token":1}"#, b"\xff"] {
            assert_eq!(Seen::parse(foreign), Seen::Foreign);
        }
    }
}
