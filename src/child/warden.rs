//! Ends a job: who of its tree is alive, and what must be done about it now.
//!
//! Run by the job's parent: the guard, or the wrapper itself (`--no-guard`, or when the guard died).
//! All decisions are made in [`Warden::step`] from the page and the clock; a step never waits.
//!
//! Who may be signalled: the job's own group while its leader is unreaped, and direct children. Their
//! ids cannot be reused, because only the one who signals could reap them.

use super::page::{Demand, Page};
use super::spawn::{Group, Policy};
use super::sys::{self, Change, Which};
use super::tree::{self, Process};
use crate::clock::BootTime;
use std::time::Duration;

/// How often a tree that is being killed is looked at again: new children of the dying come up.
const KILL_ROUND: Duration = Duration::from_millis(2);

/// How often a group that may still clean up is looked at: at first, and at most.
const LOOK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));

pub(super) struct Warden {
    page: Page,
    policy: Policy,
    /// The process that runs this.
    me: i32,
    /// The job's first process; unreaped until the warden is dropped.
    leader: i32,
    /// The group that a [`Group::Shared`] job runs in.
    shared_group: i32,
    bystanders: Bystanders,
    ended_at: Option<BootTime>,
    abandoned: bool,
    look: Duration,
}

/// Children that are none of the job's.
#[derive(Clone, Default)]
pub(super) struct Bystanders {
    /// Children that this process had before the job: never touched.
    pub(super) before: Vec<i32>,
    /// Orphans of others can come to this process too (it is the init of a container, or had children
    /// before): then only a child with this environment entry is known to be the job's.
    pub(super) mark: Option<Vec<u8>>,
}

impl Warden {
    pub(super) fn new(
        page: Page,
        policy: Policy,
        leader: i32,
        shared_group: i32,
        bystanders: Bystanders,
    ) -> Self {
        let me = std::process::id().cast_signed();
        Self {
            page,
            policy,
            me,
            leader,
            shared_group,
            bystanders,
            ended_at: None,
            abandoned: false,
            look: LOOK.0,
        }
    }

    /// The wrapper is gone: nobody extends the lease, nobody will release it. What runs has to end.
    pub(super) fn abandon(&mut self) {
        self.reap();
        let over = self.ended_at.is_some() && self.page.demanded() == Demand::Leader;
        if !over && !self.abandoned {
            self.page.stop_by(BootTime::now() + self.policy.grace);
        }
        self.abandoned = true;
    }

    /// The guard is gone, and with it the job's leader: all that is left of the tree has to go now.
    pub(super) fn end_now(&mut self) {
        self.page.stop_by(BootTime::now());
        self.page.claim_term();
        self.abandoned = true;
    }

    /// Does what is due, and tells when to look again at the latest.
    pub(super) fn step(&mut self) -> BootTime {
        self.reap();
        if self.ended_at.is_some() {
            self.page.settle(Demand::Leader);
            if self.page.is_settled() {
                return BootTime::NEVER;
            }
        }
        let next = self.enforce_lease();
        let again = self.clear_up();
        if self.page.is_settled() { BootTime::NEVER } else { next.min(again) }
    }

    /// TERM and KILL of a lease that ends.
    fn enforce_lease(&mut self) -> BootTime {
        if !self.policy.stops_on_loss && !self.abandoned {
            return BootTime::NEVER;
        }
        let now = BootTime::now();
        let (term_at, deadline) = (self.page.term_at(), self.page.deadline());
        let lost = self.page.demanded() == Demand::Tree;
        if (now >= term_at || now >= deadline || lost) && self.page.claim_term() {
            self.page.demand(Demand::Tree);
            self.terminate();
        }
        if now >= deadline {
            self.page.note_lease_kill();
            self.kill_all();
            return now + KILL_ROUND;
        }
        if self.page.term_sent() { deadline } else { term_at.min(deadline) }
    }

    /// After the leader: waits for what has to end with it.
    fn clear_up(&mut self) -> BootTime {
        let Some(ended_at) = self.ended_at else { return BootTime::NEVER };
        let demand = self.page.demanded();
        let left = self.left(demand);
        if left.is_empty() {
            self.page.settle(demand);
            return BootTime::NEVER;
        }
        let now = BootTime::now();
        let limit = ended_at + self.policy.kill_after;
        if demand == Demand::Group && now >= limit {
            for process in &left {
                self.kill_member(process);
            }
            return now + KILL_ROUND;
        }
        self.look = (self.look * 2).min(LOOK.1);
        (now + self.look).min(limit.max(now + KILL_ROUND))
    }

    /// Notes what the leader did, without reaping it, and reaps orphans that ended.
    fn reap(&mut self) {
        if self.ended_at.is_some() {
            return;
        }
        while let Some((_, change)) =
            sys::wait_child(Which::One(self.leader), libc::WSTOPPED | libc::WCONTINUED)
        {
            self.page.set_stopped_by(if let Change::Stopped(signal) = change { signal } else { 0 });
        }
        if let Some((_, Change::Ended(status))) =
            sys::wait_child(Which::One(self.leader), libc::WEXITED | libc::WNOWAIT)
        {
            if status.was_asked() {
                self.page.demand(Demand::Group);
            }
            self.page.set_status(status);
            self.ended_at = Some(BootTime::now());
            return;
        }
        while let Some((pid, _)) = sys::wait_child(Which::Any, libc::WEXITED | libc::WNOWAIT) {
            if pid == self.leader || sys::wait_child(Which::One(pid), libc::WEXITED).is_none() {
                return;
            }
        }
    }

    /// What is alive of what `demand` asks for, besides the leader.
    fn left(&self, demand: Demand) -> Vec<Process> {
        let mut left = Vec::new();
        for process in tree::all() {
            let mine = process.parent == self.me && self.is_jobs(&process);
            if mine && process.zombie && process.pid != self.leader {
                sys::wait_child(Which::One(process.pid), libc::WEXITED);
                continue;
            }
            let counts = match (demand, self.policy.group) {
                (Demand::Leader, _) => false,
                (Demand::Group, Group::Own) => process.group == self.leader,
                (Demand::Group, Group::Shared) => mine && process.group == self.shared_group,
                (Demand::Tree, _) => {
                    mine || (self.policy.group == Group::Own && process.group == self.leader)
                }
            };
            if counts && !process.dead && process.pid != self.leader {
                left.push(process);
            }
        }
        left
    }

    fn is_jobs(&self, process: &Process) -> bool {
        if process.pid == self.leader {
            return true;
        }
        let known = self
            .bystanders
            .mark
            .as_ref()
            .is_none_or(|mark| process.group == self.leader || tree::has_environment(process.pid, mark));
        known && !self.bystanders.before.contains(&process.pid)
    }

    /// The TERM of a lease that ends, and CONT so that a stopped job can act on it.
    fn terminate(&self) {
        for signal in [self.policy.term_signal, libc::SIGCONT] {
            if self.has_group() {
                sys::send(-self.leader, signal);
            }
            for process in self.children() {
                if self.policy.group == Group::Shared || process.group != self.leader {
                    sys::send(process.pid, signal);
                }
            }
        }
    }

    /// KILL to the group, at once so that none of it can fork away, and to each child. What they
    /// leave behind becomes a child and is met in the next round.
    fn kill_all(&self) {
        if self.has_group() {
            sys::send(-self.leader, libc::SIGKILL);
        }
        for process in self.children() {
            sys::send(process.pid, libc::SIGKILL);
        }
    }

    /// KILL to what is left of the group.
    fn kill_member(&self, process: &Process) {
        let target = if self.has_group() { -self.leader } else { process.pid };
        sys::send(target, libc::SIGKILL);
    }

    /// A group that was made for the job, so that all of it may be signalled.
    fn has_group(&self) -> bool {
        self.policy.group == Group::Own && self.leader > 1
    }

    /// Direct children that are the job's and alive.
    fn children(&self) -> impl Iterator<Item = Process> {
        tree::all()
            .into_iter()
            .filter(|process| process.parent == self.me && !process.dead && self.is_jobs(process))
    }
}

impl Drop for Warden {
    /// Only now may the leader's pid and group be used by others.
    fn drop(&mut self) {
        sys::wait_child(Which::One(self.leader), libc::WEXITED);
    }
}
