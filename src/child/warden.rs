//! Ends a job: who of its tree is alive, and what must be done about it now.
//!
//! Run by the job's parent: the guard, or the wrapper itself (`--no-guard`, or when the guard died).
//! All decisions are made in [`Warden::step`] from the page and the clock; a step never waits.
//!
//! Who may be signalled: the job's own group while its leader is unreaped, and direct children. Their
//! ids cannot be reused, because only the one who signals could reap them. When the lease is over also
//! descendants that are pinned ([`super::roster`]).

use super::page::{Demand, Page};
use super::roster::{Readiness, Roster};
use super::spawn::{Group, Policy};
use super::status::JobStatus;
use super::sys::{self, Change, Which};
use super::tree::{self, Process};
use crate::clock::BootTime;
use std::time::Duration;

/// How often a tree that is being killed is looked at again, for what was forked meanwhile: at first, and
/// at most.
const KILL_ROUND: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(20));

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
    kill_round: Duration,
    readiness: Readiness,
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

impl Bystanders {
    /// Whether `process`, a child of ours, is the job's.
    fn are_not(&self, process: &Process, leader: i32) -> bool {
        let known = |mark| process.group == leader || tree::has_environment(process.pid, mark);
        process.pid == leader || !self.before.contains(&process.pid) && self.mark.as_deref().is_none_or(known)
    }
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
            kill_round: KILL_ROUND.0,
            readiness: Readiness::new(),
        }
    }

    /// The wrapper is gone: nobody extends the lease, nobody will release it. What runs has to end.
    pub(super) fn abandon(&mut self) {
        self.reap();
        // A leader that a signal ended together with the wrapper (`kill -9 %1`) did not end by itself.
        let by_itself = matches!(self.page.status(), Some(JobStatus::Exited(_)));
        let over = by_itself && self.page.demanded() == Demand::Leader;
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

    /// Whether all has come to an end that must.
    pub(super) fn is_over(&mut self) -> bool {
        self.reap();
        if self.ended_at.is_some() {
            self.page.settle(Demand::Leader);
        }
        self.page.is_settled()
    }

    /// Does what is due, and tells when to look again at the latest.
    pub(super) fn step(&mut self) -> BootTime {
        if self.is_over() {
            return BootTime::NEVER;
        }
        let next = self.enforce_lease();
        let again = self.clear_up();
        if self.page.is_settled() { BootTime::NEVER } else { next.min(again) }
    }

    /// TERM and KILL of a lease that ends.
    fn enforce_lease(&mut self) -> BootTime {
        if !self.enforces() {
            return BootTime::NEVER;
        }
        let now = BootTime::now();
        let (term_at, deadline) = (self.page.term_at(), self.page.deadline());
        let lost = self.page.demanded() == Demand::Tree;
        if (now >= term_at || now >= deadline || lost) && self.page.claim_term() {
            // What was told to end must end, also when an extension that was on its way is granted now.
            self.page.stop_by(deadline);
            if now < deadline {
                self.terminate();
            } else {
                // A reading takes time, and the KILL is due.
                self.terminate_group();
            }
        }
        if now >= deadline {
            return self.kill_tree();
        }
        let (me, leader, bystanders) = (self.me, self.leader, &self.bystanders);
        let next = self.readiness.make(deadline, |limit| {
            Roster::gather_before(limit, me, leader, |process| bystanders.are_not(process, leader))
        });
        if self.page.term_sent() { next } else { next.min(term_at) }
    }

    /// KILL to the whole tree: to the group at once, so that none of it can fork away, to all that were
    /// found before, and to what a new reading finds.
    fn kill_tree(&mut self) -> BootTime {
        self.page.demand(Demand::Tree);
        self.page.note_lease_kill(BootTime::now());
        if self.has_group() {
            sys::send(-self.leader, libc::SIGKILL);
        }
        if let Some(roster) = self.readiness.take() {
            roster.kill();
        }
        let roster = self.gather();
        roster.kill();
        if self.ended_at.is_some() && !roster.may_have_more_than(self.leader) {
            self.page.settle(Demand::Tree);
        }
        self.page.count_round();
        self.kill_round = (self.kill_round * 2).min(KILL_ROUND.1);
        BootTime::now() + self.kill_round
    }

    /// All that there is of the job now.
    pub(super) fn roster(&self) -> Roster {
        Roster::gather(self.me, self.leader, |process| self.bystanders.are_not(process, self.leader))
    }

    fn gather(&mut self) -> Roster {
        let began = BootTime::now();
        let roster = self.roster();
        self.readiness.took(BootTime::now().after(began));
        roster
    }

    /// Whether the end of the lease ends the job.
    fn enforces(&self) -> bool {
        self.policy.stops_on_loss || self.abandoned
    }

    /// After the leader: waits for what has to end with it.
    fn clear_up(&mut self) -> BootTime {
        let Some(ended_at) = self.ended_at else { return BootTime::NEVER };
        let demand = self.page.demanded();
        let now = BootTime::now();
        if demand == Demand::Tree {
            return self.clear_tree(now);
        }
        let left = self.left();
        if left.is_empty() {
            self.page.settle(demand);
            return BootTime::NEVER;
        }
        let limit = ended_at + self.policy.kill_after;
        if now >= limit {
            self.page.note_leftovers_killed(now);
            for process in &left {
                self.kill_member(process);
            }
            return now + KILL_ROUND.1;
        }
        self.look = (self.look * 2).min(LOOK.1);
        (now + self.look).min(limit)
    }

    /// After the leader, when everything has to go: whether it has.
    fn clear_tree(&mut self, now: BootTime) -> BootTime {
        if self.enforces() && now >= self.page.deadline() {
            // Each round of killing looks for itself.
            return BootTime::NEVER;
        }
        if self.gather().may_have_more_than(self.leader) {
            self.look = (self.look * 2).min(LOOK.1);
            return now + self.look;
        }
        self.page.settle(Demand::Tree);
        BootTime::NEVER
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

    /// What is there of the leader's group, besides the leader; also one that is just exiting, whose
    /// children have not come to us yet, and a zombie that came to us and was reaped now.
    fn left(&self) -> Vec<Process> {
        let mut left = tree::all();
        left.retain(|process| {
            let mine = process.parent == self.me && self.bystanders.are_not(process, self.leader);
            let counts = match self.policy.group {
                Group::Own => process.group == self.leader,
                Group::Shared => mine && process.group == self.shared_group,
            };
            if mine && process.zombie && process.pid != self.leader {
                sys::reap_child(process.pid);
                return counts;
            }
            counts && !process.zombie && process.pid != self.leader
        });
        left
    }

    /// The TERM of a lease that ends, and CONT so that what is stopped can act on it: to the group, and to
    /// all that has left it.
    fn terminate(&mut self) {
        // The group needs no reading, and does not wait for one.
        let group = self.terminate_group();
        let roster = self.gather();
        for signal in [self.policy.term_signal, libc::SIGCONT] {
            roster.send(signal, group);
        }
        self.readiness.keep(roster);
    }

    /// The same to the group alone, if the job has one of its own, which is given back.
    fn terminate_group(&self) -> Option<i32> {
        let group = self.has_group().then_some(self.leader)?;
        for signal in [self.policy.term_signal, libc::SIGCONT] {
            sys::send(-group, signal);
        }
        Some(group)
    }

    /// KILL to what is left of the group.
    fn kill_member(&self, process: &Process) {
        match self.policy.group {
            Group::Own if self.has_group() => sys::send(-self.leader, libc::SIGKILL),
            // It was a child of ours in the reading; gone since, its pid is nobody's until we reap it, and
            // one that was reaped now is not meant any more.
            _ if !process.zombie => sys::send(process.pid, libc::SIGKILL),
            _ => {}
        }
    }

    /// A group that was made for the job, so that all of it may be signalled.
    fn has_group(&self) -> bool {
        self.policy.group == Group::Own && self.leader > 1
    }
}

impl Drop for Warden {
    /// Only now may the leader's pid and group be used by others.
    fn drop(&mut self) {
        sys::wait_child(Which::One(self.leader), libc::WEXITED);
    }
}
