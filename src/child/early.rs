//! How the caller left things, noted before anything of ours changes them.
//!
//! The binary has no Rust `main`: the runtime's start ignores SIGPIPE and opens `/dev/null` on closed
//! descriptors before `main` runs, and nobody could tell afterwards what to undo for the job. (It also
//! reads `/proc/self/maps` for a message about stack overflows, a twentieth of a whole run.) The same
//! two things are done here, for ourselves, once it is noted how things were.

use super::sys::{self, RawMask};
use nix::fcntl::{OFlag, open};
use nix::sys::signal::SigHandler;
use nix::sys::stat::Mode;
use std::os::fd::IntoRawFd;
use std::sync::OnceLock;

// Unwinding from the compiler's static library: std would load `libgcc_s.so` for it, 0.15 ms of each run. In a
// build without link-time optimisation this comes too early to have an effect.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[link(name = "gcc_eh")]
unsafe extern "C" {}

/// Highest signal number on Linux.
pub(super) const LAST_SIGNAL: i32 = 64;

/// How the process was started.
#[derive(Default)]
struct Seen {
    /// Bit N-1: signal N was ignored.
    ignored: u64,
    /// Bit N: descriptor N was closed.
    closed: u8,
    mask: Option<RawMask>,
}

static SEEN: OnceLock<Seen> = OnceLock::new();

/// Notes how things are. To be called first of all; whoever does not call it (a test, another program
/// that uses this library) is taken to have been started with everything at its default.
pub fn note() {
    let mut seen = Seen { mask: Some(RawMask::current()), ..Seen::default() };
    for signal in 1..=LAST_SIGNAL {
        if sys::is_ignored(signal) {
            seen.ignored |= 1 << (signal - 1);
        }
    }
    // Else a socket of ours would become somebody's standard output. The lowest free number is used,
    // so going up fills the holes.
    for fd in 0..3 {
        if sys::is_closed(fd) {
            seen.closed |= 1 << fd;
            let _ = open("/dev/null", OFlag::O_RDWR, Mode::empty()).map(IntoRawFd::into_raw_fd);
        }
    }
    // A closed pipe or connection is an error to be reported, not a reason to die.
    sys::set_disposition(libc::SIGPIPE, SigHandler::SigIgn);
    let _ = SEEN.set(seen);
}

/// Whether `signal` was ignored when the process started.
#[must_use]
pub fn was_ignored(signal: i32) -> bool {
    SEEN.get().is_some_and(|seen| seen.ignored >> (signal - 1) & 1 == 1)
}

/// Whether descriptor `fd` (0 to 2) was closed when the process started.
#[must_use]
pub fn was_closed(fd: i32) -> bool {
    SEEN.get().is_some_and(|seen| seen.closed >> fd & 1 == 1)
}

/// The signal mask that the process started with.
pub(super) fn mask() -> RawMask {
    SEEN.get().and_then(|seen| seen.mask).unwrap_or_else(RawMask::empty)
}
