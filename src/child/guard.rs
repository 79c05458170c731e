//! The guard: the job's parent, and the one who ends it when the wrapper cannot.
//!
//! Forked while the wrapper has one thread and waits for the first answer of Redis, so that it costs no
//! time at all. It has its own process group (a `kill -9 -PGID` at the caller's group spares it), all
//! signals blocked, and a name of its own (`killall -9 redlock-run` spares it).
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
//! It leaves the session only when the job has been started, which would else be born outside of it.

use super::page::{Page, Standing};
use super::spawn::{Group, Policy, spawn};
use super::sys::{self, Alarm};
use super::terminal::group_is_orphaned;
use super::warden::{Bystanders, Warden};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::{ForkResult, Pid, chdir, getpgrp, setpgid, setsid};
use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

/// Messages to the guard: start the job; look at the page; the run is over.
const GO: u8 = b'G';
const LOOK: u8 = b'L';
const END: u8 = b'E';

/// The wrapper's handle.
pub(super) struct Guard {
    pub(super) pid: i32,
    pub(super) socket: UnixStream,
}

impl Guard {
    /// Forks the guard.
    pub(super) fn start(page: Page, policy: Policy, argv: &[CString]) -> nix::Result<Self> {
        let (ours, theirs) =
            UnixStream::pair().map_err(|error| nix::Error::from_raw(error.raw_os_error().unwrap_or(0)))?;
        let (shared_group, orphaned) = (getpgrp(), group_is_orphaned());
        match sys::fork_process()? {
            ForkResult::Child => {
                drop(ours);
                run(page, policy, argv, shared_group, orphaned, theirs)
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

    /// The run is over: the guard reaps the leader and ends.
    pub(super) fn end(&self) {
        self.tell(&[END]);
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
fn run(
    page: Page,
    policy: Policy,
    argv: &[CString],
    shared_group: Pid,
    orphaned: bool,
    mut wrapper: UnixStream,
) -> ! {
    // Also those that the wrapper leaves open: a fault of our own kills all the same.
    let _ = SigSet::all().thread_set_mask();
    // A connection that the wrapper drops must be closed, not live on here.
    sys::close_inherited_but(wrapper.as_raw_fd());
    let stays_in_session = policy.group == Group::Own && !orphaned;
    if stays_in_session {
        let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    }
    let _ = prctl::set_child_subreaper(true);
    let _ = prctl::set_name(c"redlock-guard");
    sys::set_disposition(libc::SIGCHLD, SigHandler::SigDfl);
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    let instruments = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .and_then(|children| Ok((children, Alarm::new()?)));
    let go = wait_for_go(&mut wrapper);
    let (Ok((children, alarm)), true) = (instruments, go) else { sys::exit_now(0) };
    let leader = match spawn(page, argv, policy.group, shared_group) {
        Ok(leader) => leader,
        Err(errno) => {
            page.set_fork_error(errno as i32);
            notify(&wrapper);
            sys::exit_now(0)
        }
    };
    if !stays_in_session {
        let _ = setsid();
    }
    // The wrapper is not told: it looks when a signal comes, and would only compete with the job now.
    // The job has its own copies of whatever the caller gave us. Kept open here, they would hold pipes
    // and locks for longer than the job does.
    sys::close_all_but(vec![wrapper.as_raw_fd(), children.as_raw_fd(), alarm.as_fd().as_raw_fd()]);
    let _ = chdir("/");
    sys::raise_descriptor_limit();
    let warden = Warden::new(page, policy, leader, shared_group.as_raw(), Bystanders::default());
    watch(page, warden, wrapper, &children, &alarm)
}

/// Blocks until the wrapper says go; false when it went away instead.
fn wait_for_go(wrapper: &mut UnixStream) -> bool {
    let mut message = [0];
    wrapper.read_exact(&mut message).is_ok() && message[0] == GO
}

/// While there is a job.
fn watch(page: Page, mut warden: Warden, mut wrapper: UnixStream, children: &SignalFd, alarm: &Alarm) -> ! {
    let _ = wrapper.set_nonblocking(true);
    let mut wrapper_gone = false;
    loop {
        let before = progress(page);
        let next = warden.step();
        if progress(page) != before {
            notify(&wrapper);
        }
        if wrapper_gone && page.is_settled() {
            drop(warden);
            sys::exit_now(0);
        }
        alarm.set(next);
        let mut fds = vec![
            PollFd::new(children.as_fd(), PollFlags::POLLIN),
            PollFd::new(alarm.as_fd(), PollFlags::POLLIN),
        ];
        if !wrapper_gone {
            fds.push(PollFd::new(wrapper.as_fd(), PollFlags::POLLIN));
        }
        let _ = poll(&mut fds, PollTimeout::NONE);
        while let Ok(Some(_)) = children.read_signal() {}
        match if wrapper_gone { Said::Nothing } else { listen(&mut wrapper) } {
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

fn listen(wrapper: &mut UnixStream) -> Said {
    let mut bytes = [0; 64];
    loop {
        match wrapper.read(&mut bytes) {
            Ok(0) => return Said::Goodbye,
            Ok(count) if bytes[..count].contains(&END) => return Said::End,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Said::Nothing,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Said::Goodbye,
        }
    }
}

/// What the wrapper wants to hear of.
fn progress(page: Page) -> (Option<i32>, bool, bool, bool, Standing) {
    (page.stopped_by(), page.status().is_some(), page.is_settled(), page.term_sent(), page.standing())
}

fn notify(wrapper: &UnixStream) {
    let _ = send(wrapper.as_raw_fd(), b"!", MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT);
}
