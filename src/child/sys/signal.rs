//! Signals: sent, masked, died of.

use super::start::exit_now;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet};
use std::os::fd::{AsFd, OwnedFd};

/// Sends `signal` to a process (`target` > 1) or a group (`target` < -1). Everything that this
/// program signals goes through here or through a [`Pin`].
///
/// # Panics
/// On a target that means "everybody" or "my own group".
pub(in crate::child) fn send(target: i32, signal: i32) {
    assert!(!(-1..=1).contains(&target), "refusing to signal {target}");
    // SAFETY: kill has no memory preconditions. (Not through nix: it knows no real-time signals.)
    unsafe { libc::kill(target, signal) };
}

/// A process that a signal can be sent to without ever meeting another that got its pid.
pub(in crate::child) struct Pin(OwnedFd);

impl Pin {
    /// `None` when there is no such process, or where there are no pidfds.
    pub(in crate::child) fn new(pid: i32) -> Option<Self> {
        use std::os::fd::FromRawFd;
        // SAFETY: the descriptor is new and owned by nobody else.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            i32::try_from(fd).ok().filter(|fd| *fd >= 0).map(|fd| Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Whether it has not ended.
    pub(in crate::child) fn lives(&self) -> bool {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO) == Ok(0)
    }

    /// Sends `signal`, unless it has ended.
    pub(in crate::child) fn send(&self, signal: i32) {
        use std::os::fd::AsRawFd;
        let info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: no information is passed.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, info, 0) };
    }
}

/// Sets what `signal` does.
pub(in crate::child) fn set_disposition(signal: i32, handler: SigHandler) {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    let raw: libc::sigaction = action.into();
    // SAFETY: only ever SIG_DFL or SIG_IGN: no code of ours runs in a handler.
    unsafe { libc::sigaction(signal, &raw const raw, std::ptr::null_mut()) };
}

/// Stops this process as `signal` (a stop signal) would by default; returns when it goes on. In an
/// orphaned process group, where nobody could continue it, nothing happens.
pub(in crate::child) fn stop_as(signal: i32) {
    // SAFETY: raise has no preconditions. The signal is blocked in all threads, so it is delivered when
    // it is unblocked here, and nowhere else.
    unsafe { libc::raise(signal) };
    let mut one = RawMask::empty();
    one.add(signal);
    one.apply(libc::SIG_UNBLOCK);
    one.apply(libc::SIG_BLOCK);
}

/// Whether `signal` is ignored.
pub(in crate::child) fn is_ignored(signal: i32) -> bool {
    // SAFETY: plain data, filled by the kernel when the call succeeds.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// A signal mask that may hold real-time signals.
#[derive(Clone, Copy)]
pub(in crate::child) struct RawMask(libc::sigset_t);

impl RawMask {
    /// Nothing.
    pub(in crate::child) fn empty() -> Self {
        // SAFETY: plain data, initialised by sigemptyset.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut mask);
            Self(mask)
        }
    }

    /// This thread's mask.
    pub(in crate::child) fn current() -> Self {
        let mut mask = Self::empty();
        // SAFETY: writes an initialised set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut mask.0) };
        mask
    }

    /// Everything but `open`.
    pub(in crate::child) fn all_but(open: &[i32]) -> Self {
        // SAFETY: plain data, initialised by sigfillset.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut mask);
            for signal in open {
                libc::sigdelset(&raw mut mask, *signal);
            }
            Self(mask)
        }
    }

    fn add(&mut self, signal: i32) {
        // SAFETY: an initialised set.
        unsafe { libc::sigaddset(&raw mut self.0, signal) };
    }

    /// Makes it this thread's mask.
    pub(in crate::child) fn install(&self) {
        self.apply(libc::SIG_SETMASK);
    }

    fn apply(&self, how: i32) {
        // SAFETY: reads an initialised set.
        unsafe { libc::pthread_sigmask(how, &raw const self.0, std::ptr::null_mut()) };
    }

    /// As nix has it.
    pub(in crate::child) fn set(&self) -> SigSet {
        // SAFETY: initialised by sigemptyset or sigfillset.
        unsafe { SigSet::from_sigset_t_unchecked(self.0) }
    }
}

/// Dies of `signal` as if there had been no wrapper. As the init process of a container, which the
/// kernel protects from its own signals, exits with 128+N instead. No core dump of ours: the job has
/// left one.
pub fn die_of(signal: i32) -> ! {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let _ = nix::sys::prctl::set_dumpable(false);
    set_disposition(signal, SigHandler::SigDfl);
    RawMask::all_but(&[signal]).install();
    // SAFETY: raise has no preconditions.
    unsafe { libc::raise(signal) };
    exit_now(128 + signal)
}
