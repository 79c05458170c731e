//! Descriptors: whose they are, and a timer.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::os::fd::OwnedFd;

/// Descriptors of our own are below this, or below the guard's socket: a handful, at the lowest free numbers.
const HIGHEST_OWN: i32 = 256;

/// Lets this process open as many descriptors as it may. For the guard, after the job has its own limits.
pub(in crate::child) fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Whether descriptor `fd` is closed.
pub(in crate::child) fn is_closed(fd: i32) -> bool {
    // SAFETY: only asks.
    unsafe { libc::fcntl(fd, libc::F_GETFD) == -1 }
}

/// close(2) of a descriptor that no object owns.
pub(in crate::child) fn close_raw(fd: i32) {
    // SAFETY: the caller closes what it was started without; no Rust object owns it.
    unsafe { libc::close(fd) };
}

/// In a fresh child: closes what the parent has opened itself, except `keep`. All of that is
/// close-on-exec; what the parent was given when it was executed cannot be, and is left for the job.
pub(in crate::child) fn close_inherited_but(keep: [i32; 3]) {
    // These are among the newest of them.
    let newest = keep.into_iter().max().unwrap_or(0);
    for fd in (3..HIGHEST_OWN.max(newest + 16)).filter(|fd| !keep.contains(fd)) {
        // SAFETY: the objects that own these descriptors are never used again in this process.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) == libc::FD_CLOEXEC {
                libc::close(fd);
            }
        }
    }
}

/// Closes every descriptor except `keep`. Only for the guard, which owns nothing else any more.
pub(in crate::child) fn close_all_but(mut keep: [i32; 3]) {
    keep.sort_unstable();
    let mut first = 0;
    for fd in keep.into_iter().chain([i32::MAX]) {
        if fd > first {
            let (from, to) = (first.unsigned_abs(), fd.unsigned_abs() - 1);
            // SAFETY: the objects that own these descriptors are never used again in this process.
            if unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) } == -1 {
                // Kernels before 5.9.
                (first..fd.min(65_536)).for_each(close_raw);
            }
        }
        first = fd.saturating_add(1);
    }
}

/// A timer on the boot-time clock.
pub(in crate::child) struct Alarm(OwnedFd);

impl Alarm {
    pub(in crate::child) fn new() -> nix::Result<Self> {
        use std::os::fd::FromRawFd;
        // SAFETY: the descriptor is new and owned by nobody else.
        unsafe {
            let fd = libc::timerfd_create(libc::CLOCK_BOOTTIME, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK);
            if fd < 0 { Err(Errno::last()) } else { Ok(Self(OwnedFd::from_raw_fd(fd))) }
        }
    }

    /// Makes the descriptor readable at `moment` (at once when it has passed).
    pub(in crate::child) fn set(&self, moment: crate::clock::BootTime) {
        use std::os::fd::AsRawFd;
        // Zero would disarm it; a moment that never comes is disarmed.
        let nanos = if moment == crate::clock::BootTime::NEVER { 0 } else { moment.nanos().max(1) };
        let time = libc::timespec {
            tv_sec: (nanos / 1_000_000_000).try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: (nanos % 1_000_000_000).try_into().unwrap_or(0),
        };
        let spec = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: time };
        // SAFETY: `spec` outlives the call; setting it again also clears a past expiry.
        unsafe {
            libc::timerfd_settime(
                self.0.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const spec,
                std::ptr::null_mut(),
            )
        };
    }
}

impl std::os::fd::AsFd for Alarm {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
