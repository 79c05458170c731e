//! Judging a run that has ended. Output that the test does not mention must be empty, and a
//! failure shows all there is to see.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::client::Client;
use super::stalls;

/// What a test says about one of the two streams.
enum Wanted {
    Nothing,
    Exactly(Vec<u8>),
    With(Vec<String>),
    Anything,
}

/// A run's end. Say what the streams hold, then end with `expect_status` or `expect_signal`,
/// which do the judging.
#[must_use = "nothing is judged before expect_status or expect_signal"]
pub(crate) struct Outcome {
    command: String,
    status: ExitStatus,
    /// Everything that came out on stdout.
    pub(crate) stdout: Vec<u8>,
    /// Everything that came out on stderr.
    pub(crate) stderr: Vec<u8>,
    started: Instant,
    /// From start to end.
    pub(crate) took: Duration,
    server: Option<Client>,
    wanted_stdout: Wanted,
    wanted_stderr: Wanted,
}

impl Outcome {
    pub(super) fn new(
        command: String,
        status: ExitStatus,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
        started: Instant,
        server: Option<Client>,
    ) -> Self {
        Self {
            command,
            status,
            stdout,
            stderr,
            started,
            took: started.elapsed(),
            server,
            wanted_stdout: Wanted::Nothing,
            wanted_stderr: Wanted::Nothing,
        }
    }

    /// Stdout is exactly this.
    pub(crate) fn stdout(mut self, text: impl AsRef<[u8]>) -> Self {
        self.wanted_stdout = Wanted::Exactly(text.as_ref().to_vec());
        self
    }

    /// Stdout holds this (and any other parts named likewise).
    pub(crate) fn stdout_contains(mut self, part: &str) -> Self {
        self.wanted_stdout = self.wanted_stdout.and(part);
        self
    }

    /// Stderr is exactly this.
    pub(crate) fn stderr(mut self, text: impl AsRef<[u8]>) -> Self {
        self.wanted_stderr = Wanted::Exactly(text.as_ref().to_vec());
        self
    }

    /// Stderr holds this (and any other parts named likewise).
    pub(crate) fn stderr_contains(mut self, part: &str) -> Self {
        self.wanted_stderr = self.wanted_stderr.and(part);
        self
    }

    /// The test judges both streams itself, or they do not matter to its rule.
    pub(crate) fn any_output(mut self) -> Self {
        self.wanted_stdout = Wanted::Anything;
        self.wanted_stderr = Wanted::Anything;
        self
    }

    /// Stderr as text.
    pub(crate) fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Stdout as text.
    pub(crate) fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The number it exited with; `None` when a signal killed it.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Whether the kernel says that it dumped core.
    pub(crate) fn dumped_core(&self) -> bool {
        self.status.core_dumped()
    }

    /// From start to end it took at most `limit`, and what the machine itself stood still meanwhile.
    #[track_caller]
    pub(crate) fn within(self, limit: Duration) -> Self {
        let stalled = stalls::since(self.started);
        self.check(
            self.took <= limit + stalled,
            &format!("at most {limit:?}, and {stalled:?} of the machine's"),
        );
        self
    }

    /// It exited with `code`, and the streams hold what was said.
    #[track_caller]
    pub(crate) fn expect_status(self, code: i32) {
        self.check(self.status.code() == Some(code), &format!("status {code}"));
        self.check_streams();
    }

    /// It died of `signal`, and the streams hold what was said.
    #[track_caller]
    pub(crate) fn expect_signal(self, signal: Signal) {
        self.expect_signal_number(signal as i32);
    }

    /// It died of the signal with this number, and the streams hold what was said.
    #[track_caller]
    pub(crate) fn expect_signal_number(self, signal: i32) {
        let died_of_it = self.status.signal() == Some(signal);
        self.check(died_of_it, &format!("death by signal {signal}"));
        self.check_streams();
    }

    #[track_caller]
    fn check_streams(&self) {
        if let Err(wanted) = self.wanted_stdout.judge(&self.stdout) {
            self.check(false, &format!("stdout {wanted}"));
        }
        if let Err(wanted) = self.wanted_stderr.judge(&self.stderr) {
            self.check(false, &format!("stderr {wanted}"));
        }
    }

    /// Fails with the whole story unless `true`.
    #[track_caller]
    pub(crate) fn check(&self, holds: bool, wanted: &str) {
        assert!(
            holds,
            "expected {wanted}\ncommand: {}\nended:   {} after {:?}\nstdout:  {:?}\nstderr:  {:?}\nkeys:\n{}",
            self.command,
            self.status,
            self.took,
            self.stdout_text(),
            self.stderr_text(),
            self.server.as_ref().map_or(String::new(), Client::keys),
        );
    }
}

impl Wanted {
    fn and(self, part: &str) -> Self {
        let mut parts = match self {
            Self::With(parts) => parts,
            _ => Vec::new(),
        };
        parts.push(part.to_string());
        Self::With(parts)
    }

    /// `Err` says what was wanted.
    fn judge(&self, seen: &[u8]) -> Result<(), String> {
        match self {
            Self::Anything => Ok(()),
            Self::Nothing if seen.is_empty() => Ok(()),
            Self::Nothing => Err("empty".into()),
            Self::Exactly(wanted) if wanted == seen => Ok(()),
            Self::Exactly(wanted) => Err(format!("{:?}", String::from_utf8_lossy(wanted))),
            Self::With(parts) => {
                let seen = String::from_utf8_lossy(seen);
                let missing = parts.iter().find(|part| !seen.contains(*part));
                missing.map_or(Ok(()), |part| Err(format!("with {part:?}")))
            }
        }
    }
}
