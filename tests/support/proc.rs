//! Reading `/proc`: who lives, whose child it is, what it has open. This is how a stranger sees
//! the job, so it is what the promises about the job are checked with.

use std::fs;
use std::path::PathBuf;

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// In the flags of `/proc/PID/stat`: the process is being torn down and runs no code any more.
const PF_EXITING: u64 = 0x4;

/// One process, told apart from a later one with the same number by its start time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its number.
    pub(crate) pid: i32,
    started: u64,
}

/// The fields of `/proc/PID/stat` that tests ask for.
#[derive(Clone, Debug)]
pub(crate) struct Stat {
    /// `R`, `S`, `D`, `T`, `Z` …
    pub(crate) state: char,
    /// The parent.
    pub(crate) ppid: i32,
    /// The process group.
    pub(crate) pgrp: i32,
    /// The session.
    pub(crate) session: i32,
    /// The foreground group of its terminal; −1 without one.
    pub(crate) tpgid: i32,
    flags: u64,
    started: u64,
    environment_end: u64,
}

impl Process {
    /// The process `pid`, if there is one.
    pub(crate) fn find(pid: i32) -> Option<Self> {
        let started = Stat::of(pid)?.started;
        Some(Self { pid, started })
    }

    /// Its `/proc/PID/stat`, unless it is gone.
    pub(crate) fn stat(&self) -> Option<Stat> {
        Stat::of(self.pid).filter(|stat| stat.started == self.started)
    }

    /// Gone, a zombie, or exiting: runs no code any more.
    pub(crate) fn is_dead(&self) -> bool {
        self.stat().is_none_or(|stat| stat.is_dead())
    }

    /// Whether it is not in the middle of an execve(2). There it has the new program's name already, but
    /// neither its arguments nor its environment, and the signals and files of the old one.
    pub(crate) fn has_executed(&self) -> bool {
        self.stat().is_some_and(|stat| stat.environment_end != 0)
    }

    /// Its state letter, `-` when it is gone.
    pub(crate) fn state(&self) -> char {
        self.stat().map_or('-', |stat| stat.state)
    }

    /// Sends it the signal with this number (nix knows no real-time ones), unless it is gone.
    pub(crate) fn signal_number(&self, signal: i32) {
        if self.stat().is_some() {
            // SAFETY: kill(2) touches no memory.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// Sends it a signal, unless it is gone.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.stat().is_some() {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

impl Stat {
    /// Parses `/proc/PID/stat`: the name in parentheses may hold anything, so counting starts
    /// after the last `)`; field 3 is the first one there.
    fn of(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
        let small = |field: usize| number(field).and_then(|value| i32::try_from(value).ok());
        Some(Self {
            state: fields.first()?.chars().next()?,
            ppid: small(4)?,
            pgrp: small(5)?,
            session: small(6)?,
            tpgid: small(8)?,
            flags: u64::try_from(number(9)?).ok()?,
            started: u64::try_from(number(22)?).ok()?,
            // An address may be one that no i64 holds.
            environment_end: fields.get(51 - 3)?.parse().ok()?,
        })
    }

    fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X') || self.flags & PF_EXITING != 0
    }
}

/// Every process there is.
pub(crate) fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("/proc");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Process::find)
        .collect()
}

/// The direct children of `pid`, zombies included.
pub(crate) fn children(pid: i32) -> Vec<Process> {
    let is_child = |process: &Process| process.stat().is_some_and(|stat| stat.ppid == pid);
    all().into_iter().filter(is_child).collect()
}

/// The children of `pid`, their children, and so on.
pub(crate) fn descendants(pid: i32) -> Vec<Process> {
    let mut found = children(pid);
    let mut next = 0;
    while next < found.len() {
        found.extend(children(found[next].pid));
        next += 1;
    }
    found
}

/// The living processes whose environment at their start held the entry `NAME=value`.
pub(crate) fn with_environment(entry: &str) -> Vec<Process> {
    let has_entry = |process: &Process| {
        let environment = fs::read(file(process.pid, "environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
    };
    all().into_iter().filter(|process| !process.is_dead() && has_entry(process)).collect()
}

/// The program's name, at most 15 bytes of it.
pub(crate) fn name(pid: i32) -> Option<String> {
    let name = fs::read_to_string(file(pid, "comm")).ok()?;
    Some(name.trim_end().to_string())
}

/// The value of one line of `/proc/PID/status`, such as `SigIgn`.
pub(crate) fn status_field(pid: i32, name: &str) -> Option<String> {
    let text = fs::read_to_string(file(pid, "status")).ok()?;
    let head = format!("{name}:");
    let line = text.lines().find_map(|line| line.strip_prefix(&head))?;
    Some(line.trim().to_string())
}

/// The open file descriptors of `pid` with what they point to, by number.
pub(crate) fn open_files(pid: i32) -> Vec<(i32, PathBuf)> {
    let Ok(entries) = fs::read_dir(file(pid, "fd")) else {
        return Vec::new();
    };
    let mut found: Vec<(i32, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, fs::read_link(entry.path()).ok()?))
        })
        .collect();
    found.sort();
    found
}

fn file(pid: i32, name: &str) -> PathBuf {
    format!("/proc/{pid}/{name}").into()
}
