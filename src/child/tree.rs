//! Processes as /proc shows them: who is whose child, who is in which group.
//!
//! `/proc/PID/task/PID/children` would be cheaper but is missing from many kernels.

use crate::clock::BootTime;
use std::fs::{self, File};
use std::io::Read;

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
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|found| found == entry)
}

#[cfg(test)]
mod tests {
    use super::{Process, all, parse};

    #[test]
    fn names_with_parentheses_and_spaces_do_not_confuse() {
        let process = parse(7, b"7 (a) b) (c) T 5 6 1 0 -1 4194308 0 0").unwrap();
        assert_eq!((process.parent, process.group), (5, 6));
        assert!(process.stopped && !process.zombie);
    }

    #[test]
    fn this_process_is_seen() {
        let me = std::process::id().cast_signed();
        assert!(all().iter().any(|process| process.pid == me && !process.zombie));
        assert!(Process::read(me).is_some() && Process::read(-1).is_none());
    }
}
