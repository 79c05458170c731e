//! The Lua scripts, each in a file of its own that names its keys, arguments and replies.
//!
//! They are sent whole with `EVAL`: one round trip, nothing to load again after a restart or a
//! failover, no right to `SCRIPT LOAD` needed. All stay below 1.5 KiB without their comments.

use crate::lease::{Companion, Key};
use redis::Cmd;
use std::sync::OnceLock;
use std::time::Duration;

/// A script: its text with comments, and the text as it is sent.
struct Script {
    source: &'static str,
    sent: OnceLock<String>,
}

impl Script {
    const fn new(source: &'static str) -> Self {
        Self { source, sent: OnceLock::new() }
    }

    fn text(&self) -> &str {
        self.sent.get_or_init(|| {
            let code = |line: &&str| !line.starts_with("--");
            self.source.lines().filter(code).map(str::trim_start).collect::<Vec<_>>().join("\n")
        })
    }
}

macro_rules! script {
    ($($file:literal),+) => { Script::new(concat!($(include_str!(concat!("scripts/", $file, ".lua"))),+)) };
}

static ACQUIRE: Script = script!("proof", "companions", "acquire");
static EXTEND: Script = script!("proof", "extend");
static RELEASE: Script = script!("proof", "companions", "baton", "release");
static PASS_ON: Script = script!("proof", "companions", "baton", "pass_on");
static LOOK: Script = script!("look");

/// Commands that the scripts run on the lock's key; without one of them a lock cannot be taken.
pub(super) const NEEDED_COMMANDS: &[&str] =
    &["eval", "zrem", "type", "getrange", "pttl", "pexpire", "del", "set"];

/// Needed for fencing tokens besides.
pub(super) const FENCING_COMMANDS: &[&str] = &["time"];

/// Without these a waiter polls and is not woken.
pub(super) const WAITING_COMMANDS: &[&str] = &["blpop", "lpop", "rpush"];

fn eval(script: &Script, key: &Key, companions: &[Companion]) -> Cmd {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(script.text()).arg(1 + companions.len()).arg(key.as_bytes());
    for companion in companions {
        cmd.arg(key.companion(*companion));
    }
    cmd
}

fn letters(companions: &[Companion]) -> Vec<u8> {
    companions.iter().map(|companion| companion.letter()).collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Takes the lock if it is free.
pub(super) fn acquire(key: &Key, companions: &[Companion], value: &[u8], ttl: Duration) -> Cmd {
    let mut cmd = eval(&ACQUIRE, key, companions);
    cmd.arg(value).arg(letters(companions)).arg(millis(ttl));
    cmd
}

/// Lengthens the lease if it is ours.
pub(super) fn extend(key: &Key, value: &[u8], ttl: Duration) -> Cmd {
    let mut cmd = eval(&EXTEND, key, &[]);
    cmd.arg(value).arg(millis(ttl));
    cmd
}

/// Frees the lock if it is ours; with [`Companion::Wake`] among `companions`, wakes one waiter.
pub(super) fn release(key: &Key, companions: &[Companion], value: &[u8]) -> Cmd {
    let mut cmd = eval(&RELEASE, key, companions);
    cmd.arg(value).arg(letters(companions));
    cmd
}

/// Leaves a baton if the lock is free.
pub(super) fn pass_on(key: &Key) -> Cmd {
    let mut cmd = eval(&PASS_ON, key, &[Companion::Wake]);
    cmd.arg("").arg(letters(&[Companion::Wake]));
    cmd
}

/// Tells what stands at the key.
pub(super) fn look(key: &Key) -> Cmd {
    eval(&LOOK, key, &[])
}

/// Whether this user may use `name` as a key: an error says no.
pub(super) fn may_use(name: &[u8]) -> Cmd {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg("return 0").arg(1).arg(name);
    cmd
}

/// Waits for a baton, at least 10 ms: Redis takes 0 for "for ever", and 6.2 cuts below 1 ms to 0.
pub(super) fn wait_for_baton(key: &Key, longest: Duration) -> Cmd {
    let longest = longest.max(Duration::from_millis(10));
    let mut cmd = redis::cmd("BLPOP");
    cmd.arg(key.companion(Companion::Wake)).arg(format!("{:.3}", longest.as_secs_f64()));
    cmd
}

#[cfg(test)]
mod tests {
    use super::{ACQUIRE, EXTEND, LOOK, PASS_ON, RELEASE};

    #[test]
    fn scripts_are_sent_small_and_without_comments() {
        for script in [&ACQUIRE, &EXTEND, &RELEASE, &PASS_ON, &LOOK] {
            assert!(script.text().len() < 1536, "{}", script.text().len());
            assert!(!script.text().contains("--"));
        }
    }
}
