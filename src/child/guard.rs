//! The guard: the job's parent, and the one who ends it when the wrapper cannot.
//!
//! Forked while the wrapper has one thread and waits for the first answer of Redis. What it costs all the
//! same, beside an idle process in its place, is told by `make bench`.
//!
//! It has its own process group (a `kill -9 -PGID` at the caller's group spares it), all signals blocked, and
//! a name of its own (`killall -9 redlock-run` spares it).
//!
//! Its session decides what a ^Z does to the job. The kernel discards the terminal's stop signals in an
//! orphaned process group, one in which nobody has a parent in the same session and another group, as
//! nobody could resume it. The guard is the job's parent, so its place must make the job's group what
//! the group of a direct run would have been:
//!
//! | the job's group | the caller's group | the guard |
//! |---|---|---|
//! | its own | can be resumed | in a group of its own |
//! | its own | is orphaned (cron, `setsid`) | leaves the session |
//! | the caller's | the kernel judges by the wrapper's own parent | leaves the session |
//!
//! It leaves the session when the job has been forked, which would else be born outside of it, and before the
//! job is executed: one that sent itself a TSTP first was stopped for ever.

use super::page::{Page, Standing};
use super::spawn::{Group, Policy, spawn};
use super::supervise::Dismissed;
use super::sys::{self, Alarm, Sharing};
use super::terminal::group_is_orphaned;
use super::warden::{Bystanders, Warden};
use crate::exit_status::ExitStatus;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::{ForkResult, Pid, chdir, getpgrp, setpgid, setsid};
use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Messages to the guard: start the job; look at the page; the run is over.
const GO: u8 = b'G';
const LOOK: u8 = b'L';
const END: u8 = b'E';

/// A lock that is free is had within this time, in milliseconds.
const AT_ONCE: u8 = 20;

/// The wrapper's handle.
pub(super) struct Guard {
    pub(super) pid: i32,
    pub(super) socket: UnixStream,
}

impl Guard {
    /// Forks the guard.
    pub(super) fn start(page: Page, policy: Policy, argv: &'static [CString]) -> nix::Result<Self> {
        let (ours, theirs) =
            UnixStream::pair().map_err(|error| nix::Error::from_raw(error.raw_os_error().unwrap_or(0)))?;
        let shared_group = getpgrp();
        match sys::fork_process()? {
            ForkResult::Child => {
                drop(ours);
                // The frames below are the wrapper's: nothing may unwind into them.
                let _ = catch_unwind(AssertUnwindSafe(|| run(page, policy, argv, shared_group, theirs)));
                sys::exit_now(ExitStatus::Bug as i32)
            }
            ForkResult::Parent { child } => {
                let _ = ours.set_nonblocking(true);
                Ok(Self { pid: child.as_raw(), socket: ours })
            }
        }
    }

    /// Tells the guard to start the job.
    pub(super) fn go(&self) {
        self.tell(&[GO]);
    }

    /// Something on the page has changed.
    pub(super) fn look(&self) {
        self.tell(&[LOOK]);
    }

    /// The run is over: the guard reaps the leader, if there was one, and ends; also when somebody stopped it.
    pub(super) fn dismiss(self) -> Dismissed {
        self.tell(&[END]);
        sys::send(self.pid, libc::SIGCONT);
        Dismissed(Some(self.pid))
    }

    fn tell(&self, message: &[u8]) {
        // A few hundred bytes at most are ever unread: it cannot block.
        let _ = send(self.socket.as_raw_fd(), message, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
    }

    /// Empties the socket; false when the guard is gone.
    pub(super) fn is_there(&mut self) -> bool {
        let mut bytes = [0; 64];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }
}

/// The guard's whole life.
///
/// Most runs are short, and guard, wrapper, job and Redis often take turns on one processor: what is not
/// needed to start the job comes after it, and not at all when the job has ended by then.
fn run(
    page: Page,
    policy: Policy,
    argv: &'static [CString],
    shared_group: Pid,
    mut wrapper: UnixStream,
) -> ! {
    // Also those that the wrapper leaves open: a fault of our own kills all the same.
    let _ = SigSet::all().thread_set_mask();
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    let _ = prctl::set_child_subreaper(true);
    let _ = prctl::set_name(c"redlock-guard");
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    let instruments = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .and_then(|children| Ok((children, Alarm::new()?)));
    let Ok((children, alarm)) = instruments else { sys::exit_now(0) };
    let leaves_session = policy.group == Group::Shared || group_is_orphaned(shared_group);
    let ours = [wrapper.as_raw_fd(), children.as_raw_fd(), alarm.as_fd().as_raw_fd()];
    if !wait_for_go(&mut wrapper, ours) {
        sys::exit_now(0)
    }
    let leave = |job| {
        if leaves_session {
            // Who leads a group cannot leave the session, nor whose group lives on without him: the job may
            // not have left it yet.
            let _ = setpgid(job, policy.group.of(job, shared_group));
            let _ = setpgid(Pid::from_raw(0), shared_group);
            let _ = setsid();
        }
    };
    let (leader, sharing) = match spawn(page, argv, policy.group, shared_group, leave) {
        Ok(leader) => leader,
        Err(errno) => {
            page.set_fork_error(errno as i32);
            notify(&wrapper);
            sys::exit_now(0)
        }
    };
    // The wrapper is not told: it looks when a signal comes, and would only compete with the job now.
    let mut warden = Warden::new(page, policy, leader, shared_group.as_raw(), Bystanders::default());
    tell_progress(page, &wrapper, || {
        if !warden.is_over() {
            settle_in(ours);
        }
    });
    watch(page, warden, sharing, &wrapper, &children, &alarm)
}

/// What can wait until the job has started. Before the warden's first step, which may open descriptors.
fn settle_in(ours: [RawFd; 3]) {
    // The job has its own copies of whatever the caller gave us. Kept open here, they would hold pipes
    // and locks for longer than the job does.
    sys::close_all_but(ours);
    let _ = chdir("/");
    sys::raise_descriptor_limit();
}

/// Blocks until the wrapper says go; false when it says that the run is over, or went away.
fn wait_for_go(wrapper: &mut UnixStream, ours: [RawFd; 3]) -> bool {
    let mut fds = [PollFd::new(wrapper.as_fd(), PollFlags::POLLIN)];
    if poll(&mut fds, PollTimeout::from(AT_ONCE)) == Ok(0) {
        // The lock is waited for. A connection that the wrapper drops must be closed, not live on here.
        sys::close_inherited_but(ours);
    }
    let mut message = [0];
    wrapper.read_exact(&mut message).is_ok() && message[0] == GO
}

/// While there is a job.
fn watch(
    page: Page,
    mut warden: Warden,
    mut sharing: Sharing,
    wrapper: &UnixStream,
    children: &SignalFd,
    alarm: &Alarm,
) -> ! {
    let _ = wrapper.set_nonblocking(true);
    let mut wrapper_gone = false;
    loop {
        let next = tell_progress(page, wrapper, || warden.step());
        if wrapper_gone && page.is_settled() {
            drop(warden);
            sys::exit_now(0);
        }
        alarm.set(next);
        let mut fds =
            [children.as_fd(), alarm.as_fd(), wrapper.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let count = if wrapper_gone { 2 } else { 3 };
        let _ = poll(&mut fds[..count], PollTimeout::NONE);
        sharing.wait();
        while let Ok(Some(_)) = children.read_signal() {}
        match if wrapper_gone { Said::Nothing } else { listen(wrapper) } {
            Said::Nothing => {}
            Said::End => {
                drop(warden);
                sys::exit_now(0);
            }
            Said::Goodbye => {
                wrapper_gone = true;
                warden.abandon();
            }
        }
    }
}

enum Said {
    Nothing,
    End,
    Goodbye,
}

fn listen(mut wrapper: &UnixStream) -> Said {
    let mut bytes = [0; 64];
    loop {
        match wrapper.read(&mut bytes) {
            Ok(0) => return Said::Goodbye,
            Ok(count) if bytes[..count].contains(&END) => return Said::End,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Said::Nothing,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A wrapper that is gone is the end of the stream next.
            Err(_) => return Said::Nothing,
        }
    }
}

/// Does `act`, and tells the wrapper if it has changed what the wrapper wants to hear of.
fn tell_progress<T>(page: Page, wrapper: &UnixStream, act: impl FnOnce() -> T) -> T {
    let before = progress(page);
    let done = act();
    if progress(page) != before {
        notify(wrapper);
    }
    done
}

/// What the wrapper wants to hear of. Counts, not states: one that is there again was left in between.
fn progress(page: Page) -> (u32, bool, u32, bool, bool, Standing) {
    let killed = page.leftovers_killed_at().is_some();
    (page.stops(), page.status().is_some(), page.settled(), page.term_sent(), killed, page.standing())
}

fn notify(wrapper: &UnixStream) {
    let _ = send(wrapper.as_raw_fd(), b"!", MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
}
