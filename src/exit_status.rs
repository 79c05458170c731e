//! Every number this program exits with, in one place.
//!
//! The job's own status passes through unchanged; what is listed here is what *we* say. The numbers
//! follow sysexits(3) where it has one, and env(1) and timeout(1) where it has none. New ones may be
//! added; scripts should treat a number they do not know as a failure.

/// A status of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitStatus {
    /// It went well (verbs only: a run answers with the job's status).
    Success = 0,
    /// `status`: at least one of the keys is free.
    Free = 1,
    /// A value cannot be read as its option's type or lies outside its range, or there is no command.
    Usage = 64,
    /// Redis cannot be reached or cannot serve at present.
    Unavailable = 69,
    /// A bug in this program.
    Bug = 70,
    /// The operating system refused something we cannot do without (fork, pipe, memory).
    System = 71,
    /// The lock is held by another; `--conflict-exit-code` changes it.
    Busy = 75,
    /// The key holds something that is no lock, or the server is no Redis.
    NotALock = 76,
    /// Authentication or authorization refused.
    Denied = 77,
    /// Each value is fine alone but they contradict; a file or environment variable is wrong; a reserved key.
    Config = 78,
    /// The lock was lost while the job ran.
    LockLost = 79,
    /// The command was found but cannot be executed.
    NotExecutable = 126,
    /// The command was not found.
    NotFound = 127,
}

/// How this process is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Exit with this number.
    Code(u8),
    /// Die of this signal, as the job did or as the caller asked.
    Signal(i32),
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        Self::Code(status as u8)
    }
}
