//! A process that hangs: unlike a stopped one, SIGCONT does not wake it.

use std::marker::PhantomData;
use std::ptr;

use nix::libc;

use super::proc::Process;
use super::wait::{SOON, wait_until};

/// A process that runs no code until this is dropped, whatever it is sent; SIGKILL ends it.
///
/// It is held as a debugger holds it, which only the thread can do that began it.
pub(crate) struct Hung {
    pid: i32,
    not_send: PhantomData<*const ()>,
}

impl Hung {
    /// Makes `process`, a descendant of the test, hang.
    pub(crate) fn new(process: &Process) -> Self {
        let pid = process.pid;
        trace(libc::PTRACE_SEIZE, pid);
        trace(libc::PTRACE_INTERRUPT, pid);
        let hung = Self { pid, not_send: PhantomData };
        wait_until("it hangs", SOON, || hung.changed() || process.state() == 't');
        hung
    }

    /// Whether it was killed. The kernel tells a debugger first and the parent after that, so this
    /// must be asked until it is true for the parent to learn of it.
    pub(crate) fn was_killed(&self) -> bool {
        self.changed() && Process::find(self.pid).is_none_or(|process| process.state() != 't')
    }

    fn changed(&self) -> bool {
        let mut status = 0;
        // SAFETY: `status` outlives the call. Only this thread's tracee is waited for.
        let found = unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG | libc::__WALL) };
        found == self.pid
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // SAFETY: no memory is touched; it fails when the process is gone, as it should.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid, ptr::null_mut::<u8>(), ptr::null_mut::<u8>()) };
    }
}

fn trace(request: libc::c_uint, pid: i32) {
    // SAFETY: neither request touches memory of this process.
    let done = unsafe { libc::ptrace(request, pid, ptr::null_mut::<u8>(), ptr::null_mut::<u8>()) };
    assert_eq!(done, 0, "ptrace of {pid}: {}", std::io::Error::last_os_error());
}
