//! A directory in which a test's jobs run. Whatever a job starts can be found by it, also with
//! other parents, in a session of its own and without an environment; and nothing in it outlives
//! the test.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal::SIGKILL;
use tempfile::TempDir;

use super::proc::{self, Process};
use super::wait::{SOON, wait_for, wait_until};

/// The program's processes by their names; the guard has one of its own.
const OURS: [&str; 2] = ["redlock-run", GUARD];
const GUARD: &str = "redlock-guard";

/// A directory with everything that runs in it. Declare it before the run: it is dropped last.
pub(crate) struct Nest {
    dir: TempDir,
}

impl Nest {
    /// An empty one.
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("redlock-nest-").tempdir();
        Self { dir: dir.expect("a directory of the test's own") }
    }

    /// Where its jobs must be started.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file into it.
    pub(crate) fn script(&self, name: &str, text: &str) {
        fs::write(self.dir().join(name), text).expect("a file");
    }

    /// Whether a job has written something into the file `name`.
    pub(crate) fn has(&self, name: &str) -> bool {
        fs::metadata(self.dir().join(name)).is_ok_and(|file| file.len() > 0)
    }

    /// What a job has written into the file `name`, without the last line's end.
    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> String {
        let text = fs::read_to_string(self.dir().join(name)).expect("a file that a job wrote");
        text.trim_end_matches('\n').to_string()
    }

    /// Every living process in it, the program's own included.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let is_inside = |process: &Process| {
            let place = fs::read_link(format!("/proc/{}/cwd", process.pid));
            place.is_ok_and(|place| place.starts_with(self.dir()))
        };
        proc::all().into_iter().filter(|process| !process.is_dead() && is_inside(process)).collect()
    }

    /// Every living process in it but the program's own.
    pub(crate) fn jobs(&self) -> Vec<Process> {
        let is_ours = |process: &Process| {
            let name = proc::name(process.pid);
            name.is_some_and(|name| OURS.contains(&name.as_str()))
        };
        self.processes().into_iter().filter(|process| !is_ours(process)).collect()
    }

    /// The living processes in it whose program is called `name` and has taken over.
    pub(crate) fn named(&self, name: &str) -> Vec<Process> {
        let is_so_named =
            |process: &Process| proc::name(process.pid).as_deref() == Some(name) && process.has_executed();
        self.processes().into_iter().filter(is_so_named).collect()
    }

    /// The one living process in it whose program is called `name`, once there is one.
    #[track_caller]
    pub(crate) fn one(&self, name: &str) -> Process {
        self.all(name, 1).remove(0)
    }

    /// The `count` living processes in it whose program is called `name`, once there are so many.
    #[track_caller]
    pub(crate) fn all(&self, name: &str, count: usize) -> Vec<Process> {
        wait_for(&format!("{count} × {name} runs"), SOON, || {
            let found = self.named(name);
            (found.len() == count).then_some(found)
        })
    }
}

impl Drop for Nest {
    fn drop(&mut self) {
        let none_left = || {
            let left = self.processes();
            for process in &left {
                process.signal(SIGKILL);
            }
            left.is_empty()
        };
        if std::thread::panicking() {
            // A second panic would end all tests; what is left then is not worth that.
            (0..100).any(|_| none_left());
        } else {
            wait_until("nothing runs in the test's directory", SOON, none_left);
        }
    }
}

/// The guard of the run whose wrapper this is, once it is there.
#[track_caller]
pub(crate) fn guard_of(wrapper: &Process) -> Process {
    wait_for("the run has a guard", SOON, || {
        let children = proc::children(wrapper.pid);
        children.into_iter().find(|child| proc::name(child.pid).as_deref() == Some(GUARD))
    })
}

/// Whether the wrapper has got as far as waiting for the job's end: it has a timer, and sleeps.
pub(crate) fn supervises(wrapper: &Process) -> bool {
    let has_timer = proc::open_files(wrapper.pid).iter().any(|(_, to)| to.ends_with("anon_inode:[timerfd]"));
    has_timer && wrapper.state() == 'S'
}

/// A process that must never get a signal: it blocks all of them, so that each stays to be seen.
pub(crate) const WITNESS: &str = "env --block-signal sleep 7200";

/// Waits until a process sleeps whose program has just taken over and is still opening its libraries.
#[track_caller]
pub(crate) fn sleeps(process: &Process) {
    wait_until("it sleeps", SOON, || process.state() == 'S');
}

/// Asserts that a process started as [`WITNESS`] lives, runs and was never sent a signal.
#[track_caller]
pub(crate) fn untouched(witness: &Process) {
    assert!(!witness.is_dead(), "the witness was killed");
    // Nor was it stopped.
    sleeps(witness);
    for pending in ["SigPnd", "ShdPnd"] {
        let mask = proc::status_field(witness.pid, pending).expect("it lives");
        assert_eq!(mask.trim_start_matches('0'), "", "the witness was sent signals: {pending} {mask}");
    }
}
