//! Untrusted text made printable: keys, holders, server errors, whatever somebody else wrote.
//!
//! A raw control character of any of them must never reach a terminal or a log: it could rewrite
//! what is already there.

use std::fmt::Write;

/// Longest text that is shown, in characters; what is longer is cut and marked with `…`.
const LONGEST: usize = 200;

/// `bytes` as one printable line: control characters, bidi controls and invalid UTF-8 as escapes
/// (`\n`, `\x1b`, `\u{202e}`), at most 200 characters of the original.
///
/// ```
/// assert_eq!(redlock_run::escape::escape(b"a\x1b[2J\xff\n"), r"a\x1b[2J\xff\n");
/// ```
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let mut shown = String::new();
    let mut count = 0;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if count == LONGEST {
                shown.push('…');
                return shown;
            }
            push(&mut shown, c);
            count += 1;
        }
        for byte in chunk.invalid() {
            if count == LONGEST {
                shown.push('…');
                return shown;
            }
            let _ = write!(shown, "\\x{byte:02x}");
            count += 1;
        }
    }
    shown
}

/// [`escape`] in single quotes, as messages show a value.
#[must_use]
pub fn quote(bytes: &[u8]) -> String {
    format!("'{}'", escape(bytes))
}

fn push(shown: &mut String, c: char) {
    match c {
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push_str("\\t"),
        c if c.is_ascii_control() => drop(write!(shown, "\\x{:02x}", c as u32)),
        c if c.is_control() || reorders(c) => drop(write!(shown, "\\u{{{:x}}}", c as u32)),
        c => shown.push(c),
    }
}

/// Characters that reorder or break the line they stand in (Unicode bidi controls, line separators).
fn reorders(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn controls_of_every_kind_are_shown_as_escapes() {
        assert_eq!(escape("a\u{7f}\u{9b}\u{202e}b".as_bytes()), r"a\x7f\u{9b}\u{202e}b");
    }

    #[test]
    fn at_most_200_characters_are_shown() {
        assert_eq!(escape("ä".repeat(201).as_bytes()).chars().count(), 201); // 200 and the mark
        assert_eq!(escape(&[0xff; 300]).matches("\\xff").count(), 200);
    }
}
