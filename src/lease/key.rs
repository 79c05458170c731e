//! The key and the names of its companions.

use std::fmt;

/// The Redis key of a lock, byte for byte what the user typed: no hidden prefix, so that
/// `redis-cli GET job` shows the lock `job`, and other lock libraries exclude us on the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(Vec<u8>);

/// Why a text cannot be a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// Redis would take it; nobody means it.
    Empty,
    /// It ends like a companion of another lock, and would be touched by that lock's clean-up.
    Reserved {
        /// The suffix that is taken.
        suffix: String,
        /// The lock whose companion it would be.
        lock: Vec<u8>,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the key must not be empty"),
            Self::Reserved { suffix, lock } => {
                write!(f, "keys that end in '{suffix}' belong to the lock {}", crate::escape::quote(lock))
            }
        }
    }
}

/// Suffixes that belong to the lock before them. Some are not written by this version; a key that
/// ends in one would collide with a later version's lock on a shared Redis.
const RESERVED: [&str; 6] = [":wake", ":fence", ":holds", ":shared", ":intent", ":queue"];

/// Suffixes that are followed by a number.
const RESERVED_NUMBERED: [&str; 2] = [":slot:", ":wake:"];

/// A key that belongs to a lock besides its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Companion {
    /// `K:wake`, a list: the batons that wake waiters. Lives one second.
    Wake,
    /// `K:fence`, a counter: the last fencing token. Lives seven days after its last use.
    Fence,
    /// `K:holds`, a sorted set: the runs that share one hold. Only cleared by this version.
    Holds,
}

impl Companion {
    /// All, in the order in which scripts get them.
    pub const ALL: [Self; 3] = [Self::Wake, Self::Fence, Self::Holds];

    /// The letter that tells a script which companion a key is.
    #[must_use]
    pub const fn letter(self) -> u8 {
        match self {
            Self::Wake => b'w',
            Self::Fence => b'f',
            Self::Holds => b'h',
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Wake => ":wake",
            Self::Fence => ":fence",
            Self::Holds => ":holds",
        }
    }
}

impl Key {
    /// Checks that `bytes` can be a lock's key.
    pub fn new(bytes: Vec<u8>) -> Result<Self, KeyError> {
        if bytes.is_empty() {
            return Err(KeyError::Empty);
        }
        if let Some(split) = reserved_suffix(&bytes) {
            let (lock, suffix) = bytes.split_at(split);
            let suffix = String::from_utf8_lossy(suffix).into_owned();
            return Err(KeyError::Reserved { suffix, lock: lock.to_vec() });
        }
        Ok(Self(bytes))
    }

    /// The key itself.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name of a companion.
    #[must_use]
    pub fn companion(&self, companion: Companion) -> Vec<u8> {
        [&self.0, companion.suffix().as_bytes()].concat()
    }
}

/// For messages: escaped, in quotes.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::escape::quote(&self.0))
    }
}

/// Where a reserved suffix begins.
fn reserved_suffix(key: &[u8]) -> Option<usize> {
    if let Some(suffix) = RESERVED.iter().find(|suffix| key.ends_with(suffix.as_bytes())) {
        return Some(key.len() - suffix.len());
    }
    let digits = key.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let stem = &key[..key.len() - digits];
    let suffix = RESERVED_NUMBERED.iter().find(|suffix| stem.ends_with(suffix.as_bytes()))?;
    (digits > 0).then(|| stem.len() - suffix.len())
}

#[cfg(test)]
mod tests {
    use super::{Companion, Key, KeyError};

    #[test]
    fn a_key_is_taken_as_it_is() {
        for key in [&b"job"[..], b"a b", b"\n", b"{job}", b"wake", b"job:slot:", b"job:slot:x", b"\xff"] {
            assert_eq!(Key::new(key.to_vec()).unwrap().as_bytes(), key);
        }
    }

    #[test]
    fn companions_of_other_locks_are_refused() {
        for key in ["job:wake", "job:fence", "job:holds", ":queue", "job:slot:12", "job:wake:3"] {
            assert!(matches!(Key::new(key.into()), Err(KeyError::Reserved { .. })), "{key}");
        }
        assert_eq!(Key::new(Vec::new()), Err(KeyError::Empty));
    }

    #[test]
    fn companions_are_the_key_and_a_suffix() {
        let key = Key::new(b"{a}b".to_vec()).unwrap();
        assert_eq!(key.companion(Companion::Wake), b"{a}b:wake");
    }
}
