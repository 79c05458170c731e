//! The main thread while there is a job: one loop over file descriptors.
//!
//! It forwards signals, stops when the job is stopped, and learns from the page when the job has come
//! to its end. It does no network I/O, and writes nothing itself. The guard ends the job when the lease
//! does; this process is the second line (module `second_line`).

use super::forward::{Early, PassedStop};
use super::guard::Guard;
use super::page::{Demand, Page, Standing};
use super::roster::{Readiness, Roster};
use super::second_line::Overdue;
use super::signals::{Arrived, Signals};
use super::spawn::{Group, Policy};
use super::status::JobStatus;
use super::sys::{self, Alarm};
use super::terminal::{Terminal, leads_session};
use super::tree::Process;
use super::warden::{Bystanders, Warden};
use crate::clock::BootTime;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// How long after its KILL a job may take to disappear before we stop waiting for it.
const UNDYING: Duration = Duration::from_secs(2);

/// Between two looks whether a job is there for which a signal waits.
const START: Duration = Duration::from_millis(2);

/// Who listens to what happens on the way. Called between two steps of the loop.
pub trait Events {
    /// Readable when the keeper has news.
    fn bell(&self) -> BorrowedFd<'_>;

    /// The keeper has news. True: it changed the page, and the guard must look.
    fn rung(&mut self) -> bool;

    /// When [`Self::wake`] wants to be called.
    fn wake_at(&self) -> BootTime;

    /// The moment of [`Self::wake_at`] has come.
    fn wake(&mut self);

    /// The lease runs out without having been lost: the job was just told to end.
    fn lease_runs_out(&mut self);

    /// The guard died; the job is being ended by us.
    fn guard_died(&mut self);
}

/// How a job came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub cause: Cause,
    /// The leader's status; `None` when there was none to be had.
    pub status: Option<JobStatus>,
    /// Somebody had asked the job to stop.
    pub asked: bool,
}

/// Why a job came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// By itself, or because it was asked to.
    Itself,
    /// execve(2) failed with this number.
    ExecFailed(i32),
    /// fork(2) failed with this number.
    ForkFailed(i32),
    /// The lease had ended before the job could start: nothing ran.
    NeverStarted,
    /// Its lease ended first, or its lock was lost.
    Lease,
    /// The guard was killed before it had started the job.
    NoGuard,
    /// The lease is over and processes of the job are still there: the kernel does not let them die.
    Undying,
}

/// A job that was started.
pub struct Job {
    pub(super) page: Page,
    pub(super) policy: Policy,
    pub(super) parent: Parent,
    pub(super) bystanders: Bystanders,
    alarm: Alarm,
    /// A stop signal that the job's own group was sent: when the job stops of it, so do we.
    pub(super) stop_with_job: Option<PassedStop>,
    /// How many of the job's stops we have followed, or seen and need not follow.
    followed_stops: u32,
    pub(super) told_of_term: bool,
    /// Signals that wait for the job to be there.
    pub(super) early: Vec<Early>,
    /// The guard died and we took its place; whether the lease had ended the job by then.
    pub(super) adopted: Option<bool>,
    pub(super) overdue: Option<Overdue>,
    pub(super) readiness: Readiness,
    pub(super) leads_session: bool,
}

/// A guard that was told to end.
pub struct Dismissed(pub(super) Option<i32>);

impl Dismissed {
    /// Waits until it is gone.
    pub fn wait(self) {
        if let Some(pid) = self.0 {
            sys::reap(Pid::from_raw(pid));
        }
    }
}

/// Who is the parent of the job.
pub(super) enum Parent {
    Guard {
        guard: Guard,
        /// It has forked the job (or said that it cannot).
        started: bool,
    },
    Us(Box<Warden>),
}

impl Job {
    /// A job whose parent has just been told to start it, or has.
    pub(super) fn new(
        page: Page,
        policy: Policy,
        parent: Parent,
        bystanders: Bystanders,
        alarm: Alarm,
        early: Vec<Arrived>,
    ) -> Self {
        Self {
            page,
            policy,
            parent,
            bystanders,
            alarm,
            stop_with_job: None,
            followed_stops: 0,
            told_of_term: false,
            early: early.into_iter().map(Early::unheard).collect(),
            adopted: None,
            overdue: None,
            readiness: Readiness::new(),
            leads_session: leads_session(),
        }
    }

    /// Waits until the job, and what must end with it, has ended.
    pub fn supervise(
        &mut self,
        signals: &mut Signals,
        terminal: Option<&Terminal>,
        events: &mut dyn Events,
    ) -> End {
        loop {
            let next = self.look(signals, terminal, events);
            if let Some(end) = self.end() {
                // A terminal's signal comes to us and to the job at once: what came before the end of
                // the job decides what else has to end.
                let demanded = self.page.demanded();
                self.take_signals(signals, terminal);
                // What was settled since we looked may have been ended by the lease.
                let settled = self.page.is_settled();
                self.tell_of_term(events);
                if settled {
                    return self.end().unwrap_or(end);
                }
                if end.cause != Cause::Itself {
                    return end;
                }
                self.poke();
                if self.page.demanded() != demanded {
                    // Without a guard nobody else looks whether that has ended.
                    continue;
                }
            }
            self.alarm.set(next.min(events.wake_at()));
            self.wait(signals, events);
            if BootTime::now() >= events.wake_at() {
                events.wake();
            }
        }
    }

    /// How many processes the leader has left behind. Reads all of `/proc`.
    #[must_use]
    pub fn left_behind(&self) -> usize {
        match &self.parent {
            Parent::Guard { guard, .. } => Roster::gather(guard.pid, self.page.job(), |_| true),
            Parent::Us(warden) => warden.roster(),
        }
        .living_besides(self.page.job())
    }

    /// The run is over: the guard may end. What comes of that is waited for with
    /// [`Dismissed::wait`], so that both have something to do meanwhile.
    #[must_use]
    pub fn dismiss(self) -> Dismissed {
        match self.parent {
            Parent::Guard { guard, .. } => guard.dismiss(),
            Parent::Us(_) => Dismissed(None),
        }
    }

    /// One round: everything that may have changed. Gives the moment of the next round at the latest.
    fn look(
        &mut self,
        signals: &mut Signals,
        terminal: Option<&Terminal>,
        events: &mut dyn Events,
    ) -> BootTime {
        if let Parent::Guard { guard, started } = &mut self.parent {
            if !guard.is_there() {
                self.adopt(events);
            } else if self.page.job() != 0 || self.page.fork_error().is_some() {
                *started = true;
            } else {
                // Signals wait until there is a job, and SIGCHLD with them: a guard that was stopped
                // while we waited for the lock would never start it.
                self.look_after_children();
            }
        }
        if events.rung() {
            self.poke();
        }
        self.take_signals(signals, terminal);
        let mut next = match &mut self.parent {
            Parent::Us(warden) => warden.step(),
            Parent::Guard { .. } => self.second_line(),
        };
        for killed_at in [self.page.lease_killed_at(), self.page.leftovers_killed_at()].into_iter().flatten()
        {
            next = next.min(killed_at + UNDYING);
        }
        if !self.early.is_empty() {
            // Nobody tells us when the job is there.
            next = next.min(BootTime::now() + START);
        }
        // Here we may stand still for long; what the page says is read after it.
        self.stop_with_the_job();
        self.tell_of_term(events);
        next
    }

    fn tell_of_term(&mut self, events: &mut dyn Events) {
        if self.page.term_sent() && !self.told_of_term {
            self.told_of_term = true;
            events.lease_runs_out();
        }
    }

    fn wait(&self, signals: &Signals, events: &dyn Events) {
        let mut fds = vec![
            PollFd::new(signals.fd(), PollFlags::POLLIN),
            PollFd::new(self.alarm.as_fd(), PollFlags::POLLIN),
            PollFd::new(events.bell(), PollFlags::POLLIN),
        ];
        if let Parent::Guard { guard, .. } = &self.parent {
            fds.push(PollFd::new(guard.socket.as_fd(), PollFlags::POLLIN));
        }
        let _ = poll(&mut fds, PollTimeout::NONE);
    }

    /// How the job ended, once it has.
    fn end(&self) -> Option<End> {
        let status = self.page.status();
        let asked = self.page.demanded() != Demand::Leader;
        let end = |cause| Some(End { cause, status, asked });
        if let Some(errno) = self.page.fork_error() {
            return end(Cause::ForkFailed(errno));
        }
        if self.page.standing() == Standing::Expired {
            return end(Cause::NeverStarted);
        }
        if self.adopted.is_some() && self.page.job() == 0 {
            return end(Cause::NoGuard);
        }
        if self.is_undying() {
            return end(Cause::Undying);
        }
        status?;
        if self.page.standing() != Standing::Running {
            return end(Cause::NeverStarted);
        }
        if let Some(errno) = self.page.exec_error() {
            return end(Cause::ExecFailed(errno));
        }
        if !self.page.is_settled() {
            return end(Cause::Itself);
        }
        let cause = if self.adopted.unwrap_or_else(|| self.page.lease_ended_it()) {
            Cause::Lease
        } else {
            Cause::Itself
        };
        end(cause)
    }

    /// Killed long ago and still there (state D, a frozen control group): waiting changes nothing.
    fn is_undying(&self) -> bool {
        let now = BootTime::now();
        // Not since the deadline: who stood still until long after it has killed nobody yet.
        let kills = [self.page.lease_killed_at(), self.page.leftovers_killed_at()];
        kills.into_iter().flatten().any(|at| now >= at + UNDYING) && !self.page.is_settled()
    }

    pub(super) fn poke(&self) {
        if let Parent::Guard { guard, .. } = &self.parent {
            guard.look();
        }
    }

    /// In a shared group: the job stopped, so we do, and the shell has its terminal back. In a group
    /// of its own: only when the stop came through us; an administrator who stops the job alone does
    /// not want to lose the lock by it.
    fn stop_with_the_job(&mut self) {
        let stops = self.page.stops();
        if stops == std::mem::replace(&mut self.followed_stops, stops) {
            return;
        }
        let passed_on = self.stop_with_job.take();
        if let Some(signal) = self.page.stopped_by()
            && (self.policy.group == Group::Shared || passed_on.is_some_and(|passed| passed.stops_by(signal)))
            && self.leader_is_stopped()
        {
            sys::stop_as(signal);
        }
    }

    pub(super) fn leader_is_stopped(&self) -> bool {
        Process::is_stopped(self.page.job())
    }
}
