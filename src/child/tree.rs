//! Processes as /proc shows them: who is whose child, who is in which group.
//!
//! `/proc/PID/task/PID/children` would be cheaper but is missing from many kernels.

use crate::clock::BootTime;
use std::fs::{self, File};
use std::io::Read;
use std::time::Duration;

/// How often, and how many times, a process is looked at that is in the middle of an execve(2).
const EXECUTING: (Duration, u32) = (Duration::from_micros(100), 20);

/// So often an environment has to be seen empty, or without its end, to be taken for it: once can be
/// that of a program that ended while it was read.
const INCOMPLETE: u32 = 8;

/// A process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    /// Dead, and its children are somebody else's.
    pub(super) zombie: bool,
    /// Stopped by a signal.
    pub(super) stopped: bool,
}

impl Process {
    /// One process; `None` when there is none.
    pub(super) fn read(pid: i32) -> Option<Self> {
        // One read(2) gives all of it: three system calls a process, where fs::read has five.
        let mut stat = [0; 1024];
        let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut stat).ok()?;
        parse(pid, &stat[..length])
    }

    /// Whether it was stopped by a signal.
    pub(super) fn is_stopped(pid: i32) -> bool {
        Self::read(pid).is_some_and(|process| process.stopped)
    }
}

/// All processes that can be seen.
pub(super) fn all() -> Vec<Process> {
    all_before(BootTime::NEVER).unwrap_or_default()
}

/// All processes that can be seen; `None` when that would take until `limit`. On a busy machine a reading
/// of 5 ms of work was seen to take 190 ms.
pub(super) fn all_before(limit: BootTime) -> Option<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        found.extend(pid.and_then(Process::read));
        if BootTime::now() >= limit {
            return None;
        }
    }
    Some(found)
}

/// The fields behind the name, which may itself contain spaces and parentheses.
fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(&stat[end + 1..]).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let zombie = matches!(state, "Z" | "X");
    Some(Process { pid, parent, group, zombie, stopped: state == "T" })
}

/// Whether the process was started with this environment entry (and has not overwritten it).
pub(super) fn has_environment(pid: i32, entry: &[u8]) -> bool {
    let mut incomplete = 0;
    for _ in 0..EXECUTING.1 {
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
        if environment.split(|byte| *byte == 0).any(|found| found == entry) {
            return true;
        }
        if environment.ends_with(b"\0") {
            return false;
        }
        if is_executing(pid) {
            std::thread::sleep(EXECUTING.0);
            continue;
        }
        incomplete += 1;
        if incomplete == INCOMPLETE {
            return false;
        }
    }
    false
}

/// Whether the process has a handler for `signal`.
pub(super) fn catches(pid: i32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (signal - 1) != 0
}

/// Whether it is in the middle of an execve(2), where its environment is not to be seen for some 100 µs:
/// the address where that ends (field 51 of `/proc/PID/stat`) is set last. Zombies have none either.
fn is_executing(pid: i32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let end = stat.iter().rposition(|byte| *byte == b')').map_or(stat.len(), |end| end + 1);
    let mut fields = stat[end..].split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let lives = fields.next().is_some_and(|state| !matches!(state, b"Z" | b"X"));
    // The state is field 3.
    lives && fields.nth(51 - 4) == Some(b"0")
}

#[cfg(test)]
mod tests {
    use super::{Process, all, has_environment, parse};
    use std::process::{Command, Stdio};

    #[test]
    fn names_with_parentheses_and_spaces_do_not_confuse() {
        let process = parse(7, b"7 (a) b) (c) T 5 6 1 0 -1 4194308 0 0").unwrap();
        assert_eq!((process.parent, process.group), (5, 6));
        assert!(process.stopped && !process.zombie);
    }

    /// A process that does nothing but execute itself again.
    #[test]
    fn an_environment_is_seen_also_while_the_process_executes_another_program() {
        let again = "[ $1 = 0 ] && { read -r _; exit; }; exec sh -c \"$0\" \"$0\" $(($1 - 1))";
        let mut command = Command::new("sh");
        command.args(["-c", again, again, "300"]).env("MARK", "ours").stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let pid = child.id().cast_signed();
        let ends = |line: String| line.ends_with("\x000\0");
        let (mut looks, mut misses) = (0, 0);
        while !std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(ends) {
            looks += 1;
            misses += u32::from(!has_environment(pid, b"MARK=ours"));
        }
        // One that is kept from running in the middle may be missed; a single reading misses one in five.
        assert!(misses <= looks / 50, "{misses} of {looks} looks");
        drop(child.stdin.take());
        assert!(child.wait().unwrap().code().is_some());
        assert!(!has_environment(pid, b"MARK=ours"), "gone");
    }

    #[test]
    fn this_process_is_seen() {
        let me = std::process::id().cast_signed();
        assert!(all().iter().any(|process| process.pid == me && !process.zombie));
        assert!(Process::read(me).is_some() && Process::read(-1).is_none());
    }
}
