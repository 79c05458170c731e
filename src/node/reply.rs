//! What a reply, or the lack of one, means to the caller.
//!
//! | reply | kind |
//! |---|---|
//! | refused, DNS, timeout, closed, `LOADING`, `READONLY`, `MASTERDOWN`, `NOREPLICAS`, `MISCONF`, `BUSY`, `TRYAGAIN`, `CLUSTERDOWN`, `OOM`, max clients, any error we do not know | [`FaultKind::Unavailable`] |
//! | `NOAUTH`, `WRONGPASS`, `NOPERM`, `DENIED`, "can't run this command", an `EVAL` that the administrator took away | [`FaultKind::Denied`] |
//! | `WRONGTYPE` | [`FaultKind::NotALock`] |
//! | no Redis protocol, a reply of the wrong shape | [`FaultKind::NotRedis`] |
//! | `MOVED`, `ASK`, `CROSSSLOT`, a database that is not there | [`FaultKind::Misconfigured`] |
//!
//! Only the code decides, never the crate's advice on retrying (which calls a wrong password a
//! reason to reconnect).

use super::connection::Io;
use crate::duration::show;
use crate::escape::escape;
use redis::ServerError;
use std::fmt;
use std::time::Duration;

/// How the caller must react.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Redis cannot be reached or cannot serve now: it may be tried again.
    Unavailable,
    /// Authentication or rights: trying again changes nothing.
    Denied,
    /// The key holds something that is no lock.
    NotALock,
    /// What answers is no Redis.
    NotRedis,
    /// A Redis that this program was not told how to use.
    Misconfigured,
    /// The caller's interrupt ended the operation.
    Interrupted,
}

/// An operation on a node that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// How to react.
    pub kind: FaultKind,
    /// What happened, printable.
    pub text: String,
    /// What to type, when we know.
    pub hint: Option<String>,
    /// Redis said something: it is there, whatever its state.
    pub answered: bool,
    /// The command was sent (or a part of it) and has no reply: whether it was carried out is unknown.
    pub ambiguous: bool,
    /// What is refused is a key, not a command.
    pub(super) about_keys: bool,
    /// An error that no Redis gives.
    pub(super) strange: bool,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Fault {
    pub(super) fn new(kind: FaultKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            hint: None,
            answered: true,
            ambiguous: false,
            about_keys: false,
            strange: false,
        }
    }

    /// The lock was granted, and its lease of this length was over before that was heard.
    #[must_use]
    pub fn late(ttl: Duration) -> Self {
        let text = format!("the answer came too late for a lease of {}", show(ttl));
        let hint = Some("give a longer --ttl, or find out why it takes so long".into());
        Self { ambiguous: true, hint, ..Self::new(FaultKind::Unavailable, text) }
    }

    /// Whether a proxy may have said this in the place of a Redis that has carried the command out.
    #[must_use]
    pub const fn is_strange(&self) -> bool {
        self.strange
    }

    /// A reply whose shape no Redis would give.
    pub(super) fn shape() -> Self {
        Self::new(FaultKind::NotRedis, "the reply is none that Redis would give")
    }

    /// From a failed operation on a connection; `sent`: bytes of a command had gone out.
    pub(super) fn from_io(io: Io, sent: bool) -> Self {
        let (kind, text) = match io {
            Io::TimedOut => (FaultKind::Unavailable, "timed out".to_owned()),
            Io::Interrupted => (FaultKind::Interrupted, "interrupted".to_owned()),
            Io::Resolve(text) => {
                (FaultKind::Unavailable, format!("cannot resolve the name: {}", escape(text.as_bytes())))
            }
            Io::System(error) => (FaultKind::Unavailable, describe(&error)),
            Io::Protocol(text) => (
                FaultKind::NotRedis,
                format!("what answers does not speak the Redis protocol: {}", escape(text.as_bytes())),
            ),
        };
        let answered = kind == FaultKind::NotRedis;
        Self { answered, ambiguous: sent, ..Self::new(kind, text) }
    }

    /// From an error reply.
    pub(super) fn from_reply(error: &ServerError) -> Self {
        let details = error.details().unwrap_or("");
        // An unknown command is repeated there with its arguments; for AUTH that is a password.
        let details = details.split(", with args beginning").next().unwrap_or(details);
        let code = code_of(error.code(), details);
        let kind = classify(code, details);
        let text = escape(format!("{} {details}", error.code()).trim().as_bytes());
        Self {
            about_keys: kind == FaultKind::Denied && details.contains(" key"),
            strange: kind == FaultKind::Unavailable && !CANNOT_SERVE.contains(&code),
            ..Self::new(kind, text)
        }
    }

    /// Whether rights to a key, and not to a command, are missing.
    pub(super) const fn is_about_keys(&self) -> bool {
        self.about_keys
    }

    /// Whether Redis does not accept who we say we are.
    pub(super) fn is_about_login(&self) -> bool {
        self.text.starts_with("NOAUTH") || self.text.starts_with("WRONGPASS") || self.text.contains("AUTH")
    }

    /// A refusal as a sentence would have it; the server's words where we know no better.
    pub(super) fn in_plain_words(&self) -> String {
        let command = || self.text.split('\'').nth(1).unwrap_or("?");
        if self.about_keys {
            "no permission for one of the keys".to_owned()
        } else if self.text.starts_with("NOPERM") && self.text.contains("to run the '") {
            format!("no permission to run '{}'", command())
        } else if self.text.starts_with("WRONGPASS") {
            "wrong user name or password".to_owned()
        } else if self.text.starts_with("DENIED") {
            "in protected mode Redis serves its own machine only; it wants a password to be set".to_owned()
        } else if self.text.starts_with("NOAUTH") {
            "authentication required".to_owned()
        } else {
            self.text.clone()
        }
    }
}

/// Better words than the system's for the usual cases.
fn describe(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        std::io::ErrorKind::NotFound => "no such socket".to_owned(),
        std::io::ErrorKind::PermissionDenied => "no permission to connect".to_owned(),
        std::io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => "connection reset".to_owned(),
        _ => escape(crate::messages::reason(error).as_bytes()),
    }
}

/// Codes of a Redis that has not carried the command out.
const CANNOT_SERVE: [&str; 11] = [
    "ERR",
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "NOREPLICAS",
    "MISCONF",
    "BUSY",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "OOM",
    "EXECABORT",
];

/// The code that counts. Redis 6.2 wraps an error inside a script in one of its own,
/// `ERR Error running script (…): @user_script:4: -NOREPLICAS Not enough …`, and one that the script caught
/// and returned begins with its place: `@user_script: 6: The user executing …`.
fn code_of<'a>(code: &'a str, details: &'a str) -> &'a str {
    let inner = if code.starts_with("@user_script") {
        details.split_once(": ").map(|(_, text)| text)
    } else if code == "ERR" {
        details.split("@user_script").nth(1).and_then(|rest| rest.split(": ").nth(1))
    } else {
        return code;
    };
    let code = "ERR";
    match inner.map(|text| text.trim_start_matches('-').split(' ').next().unwrap_or("")) {
        Some(inner) if inner.len() > 2 && inner.bytes().all(|b| b.is_ascii_uppercase()) => inner,
        _ => code,
    }
}

fn classify(code: &str, details: &str) -> FaultKind {
    let says = |text: &str| details.contains(text);
    match code {
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => FaultKind::Denied,
        "WRONGTYPE" => FaultKind::NotALock,
        "MOVED" | "ASK" | "CROSSSLOT" => FaultKind::Misconfigured,
        "ERR" if says("can't run this command") || says("unknown command") || says("AUTH") => {
            FaultKind::Denied
        }
        // Redis 6.2 inside a script.
        "ERR" if says("can't access at least one of the keys") || says("invalid password") => {
            FaultKind::Denied
        }
        "ERR" if says("DB index") || says("invalid DB") => FaultKind::Misconfigured,
        _ => FaultKind::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::{FaultKind, classify, code_of};

    #[test]
    fn the_code_inside_a_script_error_of_redis_6_2_counts() {
        let wrapped =
            "Error running script (call to f_1): @user_script:4: -NOREPLICAS Not enough good replicas";
        assert_eq!(code_of("ERR", wrapped), "NOREPLICAS");
        let wrapped =
            "Error running script (call to f_1): @user_script:4: @user_script: 4: -READONLY You can't write";
        assert_eq!(code_of("ERR", wrapped), "ERR");
        assert_eq!(code_of("ERR", "max number of clients reached"), "ERR");
        assert_eq!(
            code_of("@user_script:", "6: The user executing the script can't run this command"),
            "ERR"
        );
        assert_eq!(code_of("@user_script:", "6: -READONLY You can't write"), "READONLY");
        assert_eq!(code_of("READONLY", "… script: 1, on @user_script:4: -X"), "READONLY");
    }

    #[test]
    fn replies_are_sorted_by_what_the_caller_must_do() {
        for (code, details, kind) in [
            ("LOADING", "", FaultKind::Unavailable),
            ("READONLY", "", FaultKind::Unavailable),
            ("ERR", "max number of clients reached", FaultKind::Unavailable),
            ("WRONGPASS", "", FaultKind::Denied),
            ("ERR", "unknown command 'EVAL'", FaultKind::Denied),
            ("ERR", "The user executing the script can't run this command or subcommand", FaultKind::Denied),
            ("ERR", "DB index is out of range", FaultKind::Misconfigured),
            ("MOVED", "1 h:1", FaultKind::Misconfigured),
            ("WRONGTYPE", "", FaultKind::NotALock),
        ] {
            assert_eq!(classify(code, details), kind, "{code} {details}");
        }
    }
}
