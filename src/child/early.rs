//! What only the first instructions of the process can see.
//!
//! Before `main`, Rust's runtime sets SIGPIPE to ignored and opens `/dev/null` on whichever of the
//! descriptors 0 to 2 are closed. Both must be undone for the job, so an initialiser that runs before
//! the runtime notes how things were.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bit N-1: signal N was ignored.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// Bit N-1: signal N was blocked.
static BLOCKED: AtomicU64 = AtomicU64::new(0);
/// Bit N: descriptor N was closed.
static CLOSED: AtomicU64 = AtomicU64::new(0);

/// Highest signal number on Linux.
pub(super) const LAST_SIGNAL: i32 = 64;

#[used]
// SAFETY: the section holds pointers to functions of this type, called once by the C runtime before
// main; the function allocates nothing and needs no initialised runtime.
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    let mut ignored = 0;
    let mut blocked = 0;
    let mut closed = 0;
    // SAFETY: plain system calls; both structures are plain data for which all zeroes is a value, and
    // they are written by the kernel before they are read.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut mask);
        for signal in 1..=LAST_SIGNAL {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
            {
                ignored |= 1 << (signal - 1);
            }
            if libc::sigismember(&raw const mask, signal) == 1 {
                blocked |= 1 << (signal - 1);
            }
        }
        for fd in 0..3 {
            if libc::fcntl(fd, libc::F_GETFD) == -1 {
                closed |= 1 << fd;
            }
        }
    }
    IGNORED.store(ignored, Ordering::Relaxed);
    BLOCKED.store(blocked, Ordering::Relaxed);
    CLOSED.store(closed, Ordering::Relaxed);
}

/// Whether `signal` was ignored when the process started.
#[must_use]
pub fn was_ignored(signal: i32) -> bool {
    IGNORED.load(Ordering::Relaxed) >> (signal - 1) & 1 == 1
}

/// Whether `signal` was blocked when the process started.
#[must_use]
pub fn was_blocked(signal: i32) -> bool {
    BLOCKED.load(Ordering::Relaxed) >> (signal - 1) & 1 == 1
}

/// Whether descriptor `fd` (0 to 2) was closed when the process started.
#[must_use]
pub fn was_closed(fd: i32) -> bool {
    CLOSED.load(Ordering::Relaxed) >> fd & 1 == 1
}
