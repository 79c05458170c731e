//! How a job ended.

/// What waitid(2) tells of a process that ended. (Not through nix: it refuses deaths by real-time
/// signals.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStatus {
    /// It exited with this number.
    Exited(u8),
    /// This signal killed it.
    Killed(i32),
}

impl JobStatus {
    /// From `si_code` and `si_status`.
    pub(super) fn from_raw(code: i32, status: i32) -> Self {
        if code == libc::CLD_EXITED {
            Self::Exited((status & 0xff).try_into().unwrap_or(u8::MAX))
        } else {
            Self::Killed(status)
        }
    }

    pub(super) fn to_raw(self) -> (i32, i32) {
        match self {
            Self::Exited(code) => (libc::CLD_EXITED, code.into()),
            Self::Killed(signal) => (libc::CLD_KILLED, signal),
        }
    }

    /// Ended by a signal that asks a job to end.
    pub(super) fn was_asked(self) -> bool {
        matches!(self, Self::Killed(libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT))
    }
}
