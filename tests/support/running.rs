//! A run that has started: watched, signalled, and killed with its whole job when dropped.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::client::Client;
use super::outcome::Outcome;
use super::proc::{self, Process};
use super::wait::{SOON, wait_for, wait_until};

/// No run of any test takes as long as this; promises about time are checked by `within`.
const LIMIT: Duration = Duration::from_secs(60);

/// A started run.
pub(crate) struct Running {
    pub(super) shown: String,
    pub(super) child: Child,
    pub(super) stdout: File,
    pub(super) stderr: File,
    pub(super) server: Option<Client>,
    pub(super) mark: String,
    pub(super) started: Instant,
}

impl Running {
    /// The wrapper's pid.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// The wrapper as a process.
    pub(crate) fn wrapper(&self) -> Process {
        Process::find(self.pid()).expect("our child, reaped only by us")
    }

    /// When it was started.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Sends the wrapper a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        self.wrapper().signal(signal);
    }

    /// Every living process of this run, the wrapper included.
    pub(crate) fn processes(&self) -> Vec<Process> {
        proc::with_environment(&self.mark)
    }

    /// What has come out on stdout so far.
    pub(crate) fn stdout_so_far(&self) -> String {
        text(&contents(&self.stdout))
    }

    /// What has come out on stderr so far.
    pub(crate) fn stderr_so_far(&self) -> String {
        text(&contents(&self.stderr))
    }

    /// Waits until stdout holds `wanted`.
    #[track_caller]
    pub(crate) fn wait_for_stdout(&mut self, wanted: &str) {
        self.wait_while_it_runs(&format!("{wanted:?} on stdout"), |run| run.stdout_so_far().contains(wanted));
    }

    /// Waits until stderr holds `wanted`.
    #[track_caller]
    pub(crate) fn wait_for_stderr(&mut self, wanted: &str) {
        self.wait_while_it_runs(&format!("{wanted:?} on stderr"), |run| run.stderr_so_far().contains(wanted));
    }

    /// Waits until the job, which prints its own pid as its first line, has done so.
    #[track_caller]
    pub(crate) fn job(&mut self) -> Process {
        self.wait_for_stdout("\n");
        let stdout = self.stdout_so_far();
        let pid = stdout.lines().next().and_then(|line| line.parse().ok());
        let pid = pid.unwrap_or_else(|| panic!("the job's pid first: {stdout:?}"));
        Process::find(pid).unwrap_or_else(|| panic!("the job {pid} is gone already"))
    }

    #[track_caller]
    fn wait_while_it_runs(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let mut over = false;
        wait_until(&format!("{what} of {}", self.shown), SOON, || {
            let met = condition(self);
            let was_over = over;
            over = self.status().is_some();
            assert!(
                met || !was_over,
                "it ended without {what}:\n{}\nstdout {:?}\nstderr {:?}",
                self.shown,
                self.stdout_so_far(),
                self.stderr_so_far()
            );
            met
        });
    }

    /// Its status, once it has ended.
    pub(crate) fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("our child")
    }

    /// Waits for its end, which must come within `LIMIT` from now.
    #[track_caller]
    pub(crate) fn finish(&mut self) -> Outcome {
        let end = Instant::now() + LIMIT;
        let status = wait_for("the end of a run", LIMIT + SOON, || {
            let status = self.status();
            assert!(
                status.is_some() || Instant::now() < end,
                "no end within {LIMIT:?}: {}\nstdout {:?}\nstderr {:?}",
                self.shown,
                self.stdout_so_far(),
                self.stderr_so_far()
            );
            status
        });
        self.outcome(status)
    }

    fn outcome(&self, status: ExitStatus) -> Outcome {
        Outcome::new(
            self.shown.clone(),
            status,
            contents(&self.stdout),
            contents(&self.stderr),
            self.started,
            self.server.clone(),
        )
    }
}

impl Drop for Running {
    /// Kills the wrapper and whatever is left of its job, also after the run has ended.
    fn drop(&mut self) {
        let mut left = self.processes();
        if matches!(self.child.try_wait(), Ok(None)) {
            left.extend(proc::descendants(self.pid()));
            let _ = self.child.kill();
        }
        for process in left {
            process.signal(Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

/// All of a file that another process is still writing, without moving its offset.
fn contents(file: &File) -> Vec<u8> {
    let length = file.metadata().map_or(0, |data| data.len());
    let mut bytes = vec![0; usize::try_from(length).expect("short output")];
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(read);
    bytes
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
