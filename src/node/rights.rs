//! What a Redis user may do, and the line that grants what is missing.
//!
//! An ACL that refuses one key refuses the whole script and does not say which: each is asked for.

use super::exchange::Patience;
use super::interrupt::Interrupt;
use super::reply::{Fault, FaultKind};
use super::scripts;
use super::session::Node;
use crate::lease::{Companion, Key};
use std::fmt::Write;

impl Node {
    /// Asks for each companion whether this user may touch it, and leaves out what it may not.
    pub(super) fn leave_out_refused(
        &mut self,
        key: &Key,
        interrupt: &mut dyn Interrupt,
    ) -> Result<(), Fault> {
        let mut refused = Vec::new();
        let fault_at = |node: &mut Self, name: &[u8], interrupt: &mut dyn Interrupt| {
            node.exchange(&scripts::may_use(name), Patience::default(), interrupt).err()
        };
        if let Some(fault) = fault_at(self, key.as_bytes(), interrupt) {
            return Err(self.with_rights(fault, key));
        }
        for companion in self.companions.clone() {
            match fault_at(self, &key.companion(companion), interrupt) {
                Some(fault) if fault.is_about_keys() && companion == Companion::Fence => {
                    let mut fault = self.with_rights(fault, key);
                    fault.text = format!("{} (the counter of fencing tokens, {}:fence)", fault.text, key);
                    fault.hint =
                        Some(format!("--no-fencing does without, or: {}", fault.hint.unwrap_or_default()));
                    return Err(fault);
                }
                Some(fault) if fault.is_about_keys() => refused.push(companion),
                Some(fault) => return Err(fault),
                None => {}
            }
        }
        if refused.is_empty() {
            // Refused, and yet nothing of it is: rights that changed under us. Do not ask for ever.
            return Err(Fault::new(FaultKind::Denied, "the rights of this user are changing"));
        }
        self.companions.retain(|companion| !refused.contains(companion));
        Ok(())
    }

    /// Adds to a refusal the rights that are needed, as a line that works when pasted.
    pub(super) fn with_rights(&self, fault: Fault, key: &Key) -> Fault {
        if fault.kind != FaultKind::Denied || fault.hint.is_some() {
            return fault;
        }
        let mut commands = scripts::NEEDED_COMMANDS.to_vec();
        if self.companions.contains(&Companion::Fence) {
            commands.extend(scripts::FENCING_COMMANDS);
        }
        commands.extend(scripts::WAITING_COMMANDS);
        self.with_hint(fault, key, &commands)
    }

    pub(super) fn with_hint(&self, mut fault: Fault, key: &Key, commands: &[&str]) -> Fault {
        let pattern = glob_escape(key.as_bytes());
        let mut commands = commands.to_vec();
        if self.address.database != 0 {
            commands.push("select");
        }
        fault.hint.get_or_insert(self.acl_line(&pattern, &commands));
        fault
    }

    /// `ACL SETUSER …`, quoted for redis-cli.
    pub(super) fn acl_line(&self, pattern: &str, commands: &[&str]) -> String {
        let user = self.credentials.user.as_deref().unwrap_or("default");
        let mut words = vec!["ACL SETUSER".to_owned(), quote_word(user)];
        if !pattern.is_empty() {
            words.push(quote_word(&format!("~{pattern}")));
            words.push(quote_word(&format!("~{pattern}:*")));
        }
        words.extend(commands.iter().map(|command| format!("+{command}")));
        words.join(" ")
    }
}

/// A key as an ACL pattern that matches it alone.
fn glob_escape(key: &[u8]) -> String {
    let mut pattern = String::new();
    for byte in key {
        match byte {
            b'*' | b'?' | b'[' | b']' | b'\\' => pattern.extend(['\\', char::from(*byte)]),
            0x21..=0x7e => pattern.push(char::from(*byte)),
            // redis-cli understands \xHH inside double quotes.
            other => drop(write!(pattern, "\u{0}x{other:02x}")),
        }
    }
    pattern
}

/// A word for redis-cli: quoted when it has to be. `\0` stands for the backslash of an escape that is
/// redis-cli's own.
fn quote_word(word: &str) -> String {
    if word.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\')) {
        return word.to_owned();
    }
    let inner = word.replace('\\', "\\\\").replace('"', "\\\"").replace('\0', "\\");
    format!("\"{}\"", crate::escape::escape(inner.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::{glob_escape, quote_word};

    #[test]
    fn acl_patterns_match_the_key_alone_and_can_be_pasted() {
        for (key, pasted) in [
            (&b"job"[..], "~job"),
            (b"job[1]", r#""~job\\[1\\]""#),
            (b"a b*", r#""~a\x20b\\*""#),
            (b"q\"\n", r#""~q\"\x0a""#),
        ] {
            assert_eq!(quote_word(&format!("~{}", glob_escape(key))), pasted);
        }
    }
}
