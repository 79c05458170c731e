//! What the wrapper does with the signals that it gets while there is a job: each reaches the job once.

use super::page::Demand;
use super::signals::{Arrived, Signals};
use super::spawn::Group;
use super::supervise::{Job, Parent};
use super::sys::{self, Change, Which};
use super::terminal::{Terminal, group_is_orphaned};
use super::tree::{self, Process};
use nix::unistd::{getpgrp, getpid};

/// A signal that came when there was no job yet, or may have.
pub(super) struct Early {
    arrived: Arrived,
    /// The job has not got it with its group, because it was not in it.
    unheard: bool,
}

impl Early {
    /// One that came before the job was started.
    pub(super) const fn unheard(arrived: Arrived) -> Self {
        Self { arrived, unheard: true }
    }
}

/// A stop signal that was passed on.
#[derive(Clone, Copy)]
pub(super) struct PassedStop {
    signal: i32,
    /// The job has a handler for it, which may stop the job by a signal of its own.
    caught: bool,
}

impl PassedStop {
    /// Whether a job that stops by `signal` does what it was told.
    pub(super) const fn stops_by(self, signal: i32) -> bool {
        signal == self.signal || self.caught && signal == libc::SIGSTOP
    }
}

impl Job {
    /// Signals that came before the job exists wait for it: none is lost between fork and exec.
    pub(super) fn take_signals(&mut self, signals: &mut Signals, terminal: Option<&Terminal>) {
        if matches!(self.parent, Parent::Guard { started: false, .. }) {
            self.keep_for_the_job(signals);
            return;
        }
        for early in std::mem::take(&mut self.early) {
            self.take(early, terminal);
        }
        while let Some(arrived) = signals.take() {
            self.take(Early { arrived, unheard: false }, terminal);
        }
    }

    fn keep_for_the_job(&mut self, signals: &mut Signals) {
        let all = signals.take_all();
        // Looked at after the signals came: where there is no job now, there was none in the group.
        let unheard = self.page.job() == 0;
        for arrived in all {
            if arrived.signal == libc::SIGCHLD {
                self.look_after_children();
            } else {
                self.early.push(Early { arrived, unheard });
            }
        }
    }

    fn take(&mut self, Early { arrived, unheard }: Early, terminal: Option<&Terminal>) {
        match arrived.signal {
            libc::SIGCHLD => self.look_after_children(),
            _ if arrived.is_ours() || !unheard && self.is_from_job(arrived) => {}
            signal => {
                if matches!(signal, libc::SIGHUP | libc::SIGINT | libc::SIGQUIT | libc::SIGTERM) {
                    self.page.demand(Demand::Group);
                }
                if unheard && signal != libc::SIGCONT || self.should_pass_on(arrived, terminal) {
                    self.pass_on(signal);
                }
            }
        }
    }

    /// Whether the job has not got this signal by itself.
    fn should_pass_on(&self, arrived: Arrived, terminal: Option<&Terminal>) -> bool {
        if self.policy.group == Group::Own {
            return true;
        }
        match (arrived.signal, arrived.sender) {
            // The kernel tells the leader of a session alone that its terminal is gone.
            (libc::SIGHUP, None) => self.leads_session,
            // Whatever the terminal sends, it sends to the whole group.
            (_, None) => false,
            // A shell that loses its terminal passes that on to whole groups.
            (libc::SIGHUP, Some(_)) => !terminal.is_some_and(Terminal::is_hung_up),
            // `fg` continues the whole group; `kill -CONT` of this process alone is for the job.
            (libc::SIGCONT, Some(_)) => self.leader_is_stopped(),
            _ => true,
        }
    }

    fn pass_on(&mut self, signal: i32) {
        let leader = self.page.job();
        if leader <= 1 || self.leader_was_reaped() {
            return;
        }
        match self.policy.group {
            Group::Shared => sys::send(leader, signal),
            // As the kernel does with a direct run there: nobody could resume us.
            Group::Own if is_stop(signal) && group_is_orphaned(getpgrp()) => {}
            Group::Own => {
                let caught = is_stop(signal) && tree::catches(leader, signal);
                sys::send(-leader, signal);
                match signal {
                    // What is stopped cannot act on it.
                    libc::SIGTERM | libc::SIGINT | libc::SIGHUP => sys::send(-leader, libc::SIGCONT),
                    signal if is_stop(signal) => self.stop_with_job = Some(PassedStop { signal, caught }),
                    _ => {}
                }
            }
        }
    }

    /// Its pid may belong to somebody else: after the guard died, only our own child is pinned.
    fn leader_was_reaped(&self) -> bool {
        match &self.parent {
            Parent::Guard { .. } => false,
            Parent::Us(_) => {
                Process::read(self.page.job()).is_none_or(|process| process.parent != getpid().as_raw())
            }
        }
    }

    /// A job that signals its wrapper means the wrapper, or its whole group; never itself once more.
    fn is_from_job(&self, arrived: Arrived) -> bool {
        let Some(sender) = arrived.sender else { return false };
        let leader = self.page.job();
        sender == leader
            || self.policy.group == Group::Own
                && sender > 0
                && Process::read(sender).is_some_and(|process| process.group == leader)
    }

    /// A guard that somebody stopped goes on; orphans that came to us are reaped.
    pub(super) fn look_after_children(&mut self) {
        let Parent::Guard { guard, .. } = &self.parent else { return };
        if let Some((pid, Change::Stopped(_))) = sys::wait_child(Which::One(guard.pid), libc::WSTOPPED) {
            sys::send(pid, libc::SIGCONT);
        }
        while let Some((pid, _)) = sys::wait_child(Which::Any, libc::WEXITED | libc::WNOWAIT) {
            // The guard's death shows on the socket, and then the leader's status is still wanted.
            if pid == guard.pid
                || pid == self.page.job()
                || sys::wait_child(Which::One(pid), libc::WEXITED).is_none()
            {
                return;
            }
        }
    }
}

/// Whether `signal` is one of those by which a terminal stops jobs.
const fn is_stop(signal: i32) -> bool {
    matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)
}
