//! From "there will be a job" to the job: what is made ready before the lock, and the start.

use super::early;
use super::guard::Guard;
use super::page::{Page, Standing};
use super::signals::Arrived;
use super::spawn::{Policy, spawn};
use super::supervise::{Job, Parent};
use super::sys::{self, Alarm};
use super::tree;
use super::warden::{Bystanders, Warden};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::SigHandler;
use nix::unistd::{getpgrp, getpid};
use std::ffi::CString;
use std::fmt;
use std::io;

/// The system refused what a job needs.
#[derive(Debug)]
pub struct StartError {
    what: &'static str,
    reason: io::Error,
}

impl StartError {
    fn new(what: &'static str, errno: Errno) -> Self {
        Self { what, reason: errno.into() }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

/// A job that is ready to start as soon as there is a lock.
pub struct Prepared {
    page: Page,
    policy: Policy,
    argv: &'static [CString],
    guard: Option<Guard>,
    before: Vec<i32>,
}

impl Prepared {
    /// Makes everything ready for `argv`; with a guard, forks it. Must be called while the process has
    /// one thread.
    ///
    /// `room` is how many bytes the additions to the environment may have in the end.
    pub fn new(
        argv: &'static [CString],
        policy: Policy,
        guarded: bool,
        room: usize,
    ) -> Result<Self, StartError> {
        let failed = |what| move |errno| StartError::new(what, errno);
        let page = Page::new(room).map_err(failed("cannot get memory"))?;
        if early::was_ignored(libc::SIGCHLD) {
            sys::set_disposition(libc::SIGCHLD, SigHandler::SigDfl);
        }
        let before = children_before();
        let _ = prctl::set_child_subreaper(true);
        let guard = if guarded {
            Some(Guard::start(page, policy, argv).map_err(failed("cannot fork the guard"))?)
        } else {
            None
        };
        Ok(Self { page, policy, argv, guard, before })
    }

    /// While there is no job: reaps orphans that came to us, as they do to the init of a container. Not the
    /// guard, and not the children that the caller had.
    pub fn reap_orphans(&self) {
        let me = getpid().as_raw();
        let guard = self.guard.as_ref().map(|guard| guard.pid);
        for process in tree::all() {
            if process.parent == me
                && process.zombie
                && Some(process.pid) != guard
                && !self.before.contains(&process.pid)
            {
                sys::reap_child(process.pid);
            }
        }
    }

    /// The page on which leases are noted.
    #[must_use]
    pub const fn page(&self) -> Page {
        self.page
    }

    /// Starts the job with these additions to its environment (`NAME=value`). The page must hold a
    /// lease. `mark` is one of the additions, which no other run has. `early` are signals for the job.
    pub fn start(
        mut self,
        additions: &[CString],
        mark: &[u8],
        early: Vec<Arrived>,
    ) -> Result<Job, StartError> {
        let alarm = Alarm::new().map_err(|errno| StartError::new("cannot make a timer", errno))?;
        let shared = !self.before.is_empty() || getpid().as_raw() == 1;
        let before = std::mem::take(&mut self.before);
        let bystanders = Bystanders { before, mark: shared.then(|| mark.to_vec()) };
        self.page.write_additions(additions);
        self.page.advance(Standing::Idle, Standing::Armed);
        let parent = match self.guard.take() {
            Some(guard) => {
                guard.go();
                Parent::Guard { guard, started: false }
            }
            None => Parent::Us(start_unguarded(self.page, self.policy, self.argv, bystanders.clone())?),
        };
        Ok(Job::new(self.page, self.policy, parent, bystanders, alarm, early))
    }
}

/// No job after all. A guard that we left behind would be a zombie for somebody else to reap, and not every
/// first process of a container does.
impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.dismiss().wait();
        }
    }
}

fn start_unguarded(
    page: Page,
    policy: Policy,
    argv: &'static [CString],
    bystanders: Bystanders,
) -> Result<Box<Warden>, StartError> {
    let shared = getpgrp();
    let (leader, _) = spawn(page, argv, policy.group, shared, |_| {})
        .map_err(|errno| StartError::new("cannot fork", errno))?;
    Ok(Box::new(Warden::new(page, policy, leader, shared.as_raw(), bystanders)))
}

/// Children that this process has already, as after `sh -c 'sleep 5 & exec redlock-run …'`.
fn children_before() -> Vec<i32> {
    if nix::sys::wait::waitid(
        nix::sys::wait::Id::All,
        nix::sys::wait::WaitPidFlag::WEXITED
            | nix::sys::wait::WaitPidFlag::WNOHANG
            | nix::sys::wait::WaitPidFlag::WNOWAIT,
    ) == Err(nix::errno::Errno::ECHILD)
    {
        return Vec::new();
    }
    let me = getpid().as_raw();
    tree::all().into_iter().filter(|process| process.parent == me).map(|process| process.pid).collect()
}
