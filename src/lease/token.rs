//! The token: what makes one acquisition attempt's value different from every other.

use std::fmt;
use uuid::Uuid;

/// A random UUID v4, new for each **attempt** to acquire. With one token for all attempts a release
/// that arrives late, meant for an attempt whose reply was lost, would delete the lock that a later
/// attempt won.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token(Uuid);

impl Token {
    /// A token that no other attempt has.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// Shows the first 8 characters: whoever has the whole token can release the lock.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.8}…", self.0.hyphenated().to_string())
    }
}
