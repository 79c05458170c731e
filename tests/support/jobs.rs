//! The jobs that tests run, and runs that are known to hold the lock.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::outcome::Outcome;
use super::run::Run;
use super::running::Running;
use super::server::Server;
use super::stalls;

/// The key of nearly every test: each has a server of its own.
pub(crate) const KEY: &str = "job";

/// Prints its pid and sleeps for longer than any test lasts.
pub(crate) const SLEEPS: &str = "echo $$; exec sleep 600";

/// Prints its pid and can only be ended by SIGKILL.
pub(crate) const IGNORES_TERM: &str = "trap '' TERM; echo $$; while :; do sleep 0.05; done";

/// Python that takes signals one by one from the queue, and says how many RTMIN+5 came before an
/// RTMIN+6. Real-time signals never merge, so what is passed on twice is counted twice.
pub(crate) const QUEUES: &str = "
import signal
counted, last = signal.SIGRTMIN + 5, signal.SIGRTMIN + 6
signal.pthread_sigmask(signal.SIG_BLOCK, {counted, last})
print('ready', flush=True)
count = 0
while signal.sigwait({counted, last}) == counted:
    count += 1
print('count=%d' % count, flush=True)
";

/// `redlock-run --key job OPTIONS -- sh -c SCRIPT`.
pub(crate) fn sh(server: &Server, options: &[&str], script: &str) -> Run {
    let mut args = vec!["--key", KEY];
    args.extend(options);
    args.extend(["--", "sh", "-c", script]);
    Run::on(server, args)
}

/// A run that holds the lock with a job that sleeps, once the job runs.
#[track_caller]
pub(crate) fn holding(server: &Server, options: &[&str]) -> Running {
    let mut run = sh(server, options, SLEEPS).spawn();
    run.job();
    run
}

/// The outcome of a run with so short a lease that a machine that stands still for `stall` may end it;
/// what was lost (79) on a machine that stood still so long is tried again.
pub(crate) fn on_a_short_lease(stall: Duration, run: impl Fn() -> Outcome) -> Outcome {
    for _ in 0..10 {
        let started = Instant::now();
        let outcome = run();
        if outcome.code() != Some(79) || stalls::since(started) < stall {
            return outcome;
        }
    }
    run()
}

/// How many waits a waiter can have begun within `length`: each is 0.75 s at least, unless a baton ends
/// it.
pub(crate) fn waits_within(length: Duration) -> u64 {
    u64::try_from(length.as_millis() / 750).expect("not that long") + 1
}

/// A job's end as the test's decision: the job waits for a file.
pub(crate) struct Gate {
    file: PathBuf,
}

impl Gate {
    /// A closed gate.
    pub(crate) fn new(server: &Server) -> Self {
        let file = server.dir().join("gate");
        Self { file }
    }

    /// A line of shell that waits until the gate is open. It polls: a shell has nothing else for a file.
    pub(crate) fn wait(&self) -> String {
        format!("while [ ! -e '{}' ]; do sleep 0.02; done", self.file.display())
    }

    /// A Python statement that does, in the same way.
    pub(crate) fn wait_in_python(&self) -> String {
        format!("import os, time\nwhile not os.path.exists('{}'): time.sleep(0.02)", self.file.display())
    }

    /// Opens the gate.
    pub(crate) fn open(&self) {
        fs::write(&self.file, "").expect("a file in the server's directory");
    }
}

/// Writes a file that is to be executed. Another process does it: one of ours that forked meanwhile, for
/// another test, would have it open for writing, and then it cannot be executed (ETXTBSY).
pub(crate) fn write_executable(path: &Path, text: &str, mode: u32) {
    let write = "printf %s \"$1\" >\"$2\" && chmod \"$3\" \"$2\"";
    let mode = format!("{mode:o}");
    let status = Command::new("sh").args(["-c", write, "sh", text]).arg(path).arg(mode).status();
    assert!(status.expect("a shell").success(), "a file");
}

/// Arguments that are not all text.
pub(crate) fn raw(args: &[&[u8]]) -> Vec<OsString> {
    use std::os::unix::ffi::OsStringExt as _;
    let owned = args.iter().map(|bytes| bytes.to_vec());
    owned.map(OsString::from_vec).collect()
}
