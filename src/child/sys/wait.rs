//! What became of children.

use crate::child::status::JobStatus;
use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

/// What a child did.
#[derive(Clone, Copy, Debug)]
pub(in crate::child) enum Change {
    Ended(JobStatus),
    Stopped(i32),
    Continued,
}

/// Which children waitid(2) looks at.
#[derive(Clone, Copy)]
pub(in crate::child) enum Which {
    Any,
    One(i32),
}

/// waitid(2) without hanging: the next change of a child. `options` as there; `WNOHANG` is added.
pub(in crate::child) fn wait_child(which: Which, options: i32) -> Option<(i32, Change)> {
    let (kind, id) = match which {
        Which::Any => (libc::P_ALL, 0),
        Which::One(pid) => (libc::P_PID, pid.unsigned_abs()),
    };
    // SAFETY: siginfo_t is plain data for which all zeroes is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` outlives the call.
    let done = unsafe { libc::waitid(kind, id, &raw mut info, options | libc::WNOHANG) };
    // SAFETY: waitid filled the SIGCHLD members, or left zeroes.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if done != 0 || pid == 0 {
        return None;
    }
    let change = match info.si_code {
        libc::CLD_STOPPED | libc::CLD_TRAPPED => Change::Stopped(status),
        libc::CLD_CONTINUED => Change::Continued,
        code => Change::Ended(JobStatus::from_raw(code, status)),
    };
    Some((pid, change))
}

/// Waits for a child to end and reaps it, however long that takes.
pub(in crate::child) fn reap(pid: Pid) {
    while waitpid(pid, None) == Err(Errno::EINTR) {}
}

/// Reaps a child that is a zombie.
pub(in crate::child) fn reap_child(pid: i32) {
    wait_child(Which::One(pid), libc::WEXITED);
}
