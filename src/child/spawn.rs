//! From a fork to the job.

use super::early;
use super::page::{Page, Standing};
use super::sys::{self, Image, Sharing};
use crate::clock::BootTime;
use nix::sys::signal::{SigHandler, Signal};
use nix::unistd::{Pid, getpid, getppid, setpgid};
use std::ffi::{CStr, CString};
use std::time::Duration;

/// Which process group the job runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The wrapper's, so that terminal, ^C, ^Z and password prompts work with no help of ours.
    Shared,
    /// One of its own, so that a signal can be passed on to all of it.
    Own,
}

impl Group {
    /// The group of a job whose leader is `leader`, started from the group `shared`.
    pub(super) fn of(self, leader: Pid, shared: Pid) -> Pid {
        if self == Self::Own { leader } else { shared }
    }
}

/// How a job is treated.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Its process group.
    pub group: Group,
    /// Between TERM and KILL when the lease runs out or is lost.
    pub grace: Duration,
    /// How long what is left of the group after the leader may go on cleaning up.
    pub kill_after: Duration,
    /// How much of the margin before the end of the lease the guard has for itself.
    pub half_margin: Duration,
    /// What takes the place of SIGTERM.
    pub term_signal: i32,
    /// Whether the end of the lease ends the job.
    pub stops_on_loss: bool,
}

/// Environment variables of ours that the job must not see.
const SECRET: &str = "REDLOCK_RUN_PASSWORD";

/// The caller's environment with the additions and without our secret.
fn environment(page: Page) -> impl Iterator<Item = &'static CStr> + Clone {
    let name =
        |entry: &CStr| entry.to_bytes().iter().position(|byte| *byte == b'=').unwrap_or(entry.count_bytes());
    let replaced = move |entry: &&CStr| {
        let own = &entry.to_bytes()[..name(entry)];
        own == SECRET.as_bytes()
            || page.additions().any(|addition| &addition.to_bytes()[..name(addition)] == own)
    };
    let kept = sys::raw_environment().filter(move |entry| !replaced(entry)).map(|entry| -> &CStr { entry });
    kept.chain(page.additions())
}

/// Starts the job as a child of the caller, who does `meanwhile` before the job is executed: with system calls
/// alone, since the child shares its memory.
pub(super) fn spawn(
    page: Page,
    argv: &'static [CString],
    group: Group,
    shared: Pid,
    meanwhile: impl FnOnce(Pid),
) -> nix::Result<(i32, Sharing)> {
    let parent = getpid();
    let body = move |image: &Image| become_job(page, image, parent, group, shared);
    let words = argv.iter().map(CString::as_c_str);
    let (pid, sharing) = sys::spawn_sharing(words, environment(page), body, meanwhile)?;
    page.set_job(pid);
    Ok((pid, sharing))
}

/// In the child: everything between fork and exec. It shares the parent's memory: it allocates
/// nothing, takes no lock, and leaves nothing changed but the page. It ends when this returns.
///
/// The order is what makes it safe: first the tie to the parent, then the check that there was a
/// parent to be tied to, then whether the lease still allows a start, and only then anything that
/// lets the caller's signals in.
fn become_job(page: Page, image: &Image, parent: Pid, group: Group, shared: Pid) {
    sys::die_with_parent(Signal::SIGKILL);
    if getppid() != parent {
        return;
    }
    let _ = setpgid(Pid::from_raw(0), group.of(getpid(), shared));
    // From now on signals are passed on, to the group.
    page.set_job(getpid().as_raw());
    image.wait_for_parent();
    // A wrapper that was frozen between acquiring and spawning must not start a job outside the lease.
    if BootTime::now() >= page.term_at() {
        page.advance(Standing::Armed, Standing::Expired);
    }
    if !page.advance(Standing::Armed, Standing::Running) {
        return;
    }
    restore_dispositions();
    for fd in (0..3).filter(|fd| early::was_closed(*fd)) {
        sys::close_raw(fd);
    }
    // Signals that came since the fork are pending and are delivered here, or by the new program.
    early::mask().install();
    page.set_exec_error(sys::execute(image) as i32);
}

/// Signals as the caller left them: Rust's runtime has ignored SIGPIPE, and we have set SIGCHLD to its
/// default. (Handlers of the runtime go with the exec.)
fn restore_dispositions() {
    for signal in [libc::SIGPIPE, libc::SIGCHLD] {
        let before = if early::was_ignored(signal) { SigHandler::SigIgn } else { SigHandler::SigDfl };
        sys::set_disposition(signal, before);
    }
}
