//! Processes that have nothing to do with the job and must not notice that it is ended.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;
use std::{fs, thread};

use nix::sys::signal::Signal;

use crate::moment::Moment;
use crate::support::Process;
use crate::{census, roles};

/// How long a bystander may take to be ready.
const SOON: Duration = Duration::from_secs(10);

/// The bystanders of one trial.
pub(crate) struct Innocents {
    dir: PathBuf,
    children: Vec<Child>,
    all: Vec<Innocent>,
}

struct Innocent {
    who: &'static str,
    process: Option<Process>,
    notes: PathBuf,
}

impl Innocents {
    /// Starts a calling script, which leads the process group that the wrapper will be put in; another
    /// member of that group; and the leader of the group next door.
    pub(crate) fn start(dir: &Path, owner: &str) -> Self {
        let mut innocents = Self { dir: dir.to_owned(), children: Vec::new(), all: Vec::new() };
        innocents.add("the calling script", owner, 0);
        let group = innocents.caller_group();
        innocents.add("its other child", owner, group);
        innocents.add("the process group next door", owner, 0);
        innocents.wait_until_ready();
        innocents
    }

    fn add(&mut self, who: &'static str, owner: &str, group: i32) {
        let notes = self.notes(self.all.len());
        let mut command = roles::bystander(owner, &notes.to_string_lossy());
        let child = command.process_group(group).spawn().expect("a bystander to start");
        let process = Process::find(child.id().cast_signed());
        self.children.push(child);
        self.all.push(Innocent { who, process, notes });
    }

    /// The process group of the caller.
    pub(crate) fn caller_group(&self) -> i32 {
        self.children[0].id().cast_signed()
    }

    /// Where a child that the wrapper had before its exec takes its notes.
    pub(crate) fn notes_of_child(&self) -> PathBuf {
        self.notes(9)
    }

    fn notes(&self, number: usize) -> PathBuf {
        self.dir.join(format!("bystander-{number}"))
    }

    /// Waits for the child that the wrapper had before its exec.
    pub(crate) fn wait_for_child(&mut self) {
        let notes = self.notes_of_child();
        self.all.push(Innocent { who: "the wrapper's earlier child", process: None, notes });
        self.wait_until_ready();
        let child = self.all.last_mut().expect("just added");
        child.process = find(&child.notes);
    }

    /// Waits until all of them take notes.
    fn wait_until_ready(&self) {
        let end = Moment::now() + SOON;
        while self.all.iter().any(|innocent| !innocent.notes.exists()) && !end.left().is_zero() {
            // Files that other processes make.
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Does what must not happen to them.
    pub(crate) fn disturb(&self) {
        if let Some(process) = &self.all[0].process {
            process.signal(Signal::SIGUSR1);
        }
    }

    /// What was done to them, a line each.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.all.iter().filter_map(Innocent::complaint).collect()
    }
}

impl Innocent {
    fn complaint(&self) -> Option<String> {
        let Some(process) = &self.process else { return Some(format!("{} never was there", self.who)) };
        if process.is_dead() {
            return Some(format!("{} is dead", self.who));
        }
        if process.state() == 'T' {
            return Some(format!("{} is stopped", self.who));
        }
        match fs::read_to_string(&self.notes) {
            Ok(notes) if notes.is_empty() => None,
            Ok(notes) => Some(format!("{} got {}", self.who, notes.trim_end().replace('\n', ", "))),
            Err(error) => Some(format!("{} took no notes: {error}", self.who)),
        }
    }
}

impl Drop for Innocents {
    fn drop(&mut self) {
        for innocent in &self.all {
            if let Some(process) = &innocent.process {
                process.signal(Signal::SIGKILL);
            }
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

/// The bystander that takes its notes in `file`, if it is there.
fn find(file: &Path) -> Option<Process> {
    let is_it = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let role = words.get(1) == Some(&roles::BYSTANDER.as_bytes());
        role && words.contains(&file.as_os_str().as_encoded_bytes())
    };
    census::pids().into_iter().find(is_it).and_then(Process::find)
}
