//! What the wrapper does itself when the lease ends, besides the guard: it kills at the deadline whatever it
//! may, and takes the guard's place when the guard is dead or hangs.

use super::page::{Demand, Standing};
use super::roster::Roster;
use super::spawn::Group;
use super::supervise::{Events, Job, Parent};
use super::sys;
use super::warden::Warden;
use crate::clock::BootTime;
use nix::unistd::{Pid, getpgrp};
use std::time::Duration;

/// How long a guard that is late may take for a round before it is taken to hang.
const PROGRESS: Duration = Duration::from_millis(200);

/// The deadline has passed and something of the job is still there.
pub(super) struct Overdue {
    /// When we saw that, or saw that the guard had got on.
    progress_at: BootTime,
    /// How many rounds of killing the guard had done by then.
    rounds: u32,
}

impl Job {
    /// What this process does itself about a lease that ended, besides the guard.
    pub(super) fn second_line(&mut self) -> BootTime {
        let Parent::Guard { guard, .. } = &self.parent else { return BootTime::NEVER };
        // We, or the guard, stood still between "go" and the fork.
        if self.page.job() == 0 && BootTime::now() >= self.page.term_at() {
            self.page.advance(Standing::Armed, Standing::Expired);
            return BootTime::NEVER;
        }
        let over = self.page.status().is_some() && self.page.demanded() == Demand::Leader;
        if !self.policy.stops_on_loss || over || self.page.is_settled() {
            return BootTime::NEVER;
        }
        let now = BootTime::now();
        let (deadline, term_at) = (self.page.deadline(), self.page.term_at());
        if now >= deadline {
            return self.kill_too(guard.pid, now);
        }
        self.overdue = None;
        let (guard_pid, leader) = (guard.pid, self.page.job());
        let next =
            self.readiness.make(deadline, |limit| Roster::gather_before(limit, guard_pid, leader, |_| true));
        if now < term_at {
            return next.min(term_at);
        }
        if !self.page.term_sent() {
            self.poke();
        }
        next
    }

    /// The deadline has passed: KILL to all that we know of the tree, as the guard does. What is forked
    /// meanwhile is the guard's. It has half of the margin, counted from when we saw that it is late (both
    /// of us may just have been woken). Then we do that too, and if it does nothing at all, take its place.
    fn kill_too(&mut self, guard: i32, now: BootTime) -> BootTime {
        let rounds = self.page.rounds();
        let Some(overdue) = &mut self.overdue else {
            self.overdue = Some(Overdue { progress_at: now, rounds });
            // No extension that is heard of now counts any more.
            self.page.stop_by(now);
            self.page.note_lease_kill(now);
            self.kill_leader();
            if let Some(roster) = self.readiness.take() {
                roster.kill();
            }
            self.poke();
            return now + self.policy.half_margin;
        };
        if rounds != std::mem::replace(&mut overdue.rounds, rounds) {
            overdue.progress_at = now;
        }
        if now >= overdue.progress_at + PROGRESS {
            // With the guard dead, the tree comes to us.
            sys::send(guard, libc::SIGKILL);
        }
        Roster::gather(guard, self.page.job(), |_| true).kill();
        now + self.policy.half_margin
    }

    /// The leader and its group: pinned, since the guard lives and has not been told to end.
    fn kill_leader(&self) {
        let leader = self.page.job();
        if leader > 1 && self.page.status().is_none() {
            if self.policy.group == Group::Own {
                sys::send(-leader, libc::SIGKILL);
            }
            sys::send(leader, libc::SIGKILL);
        }
    }

    /// The guard is dead. The kernel has sent the leader a KILL, and its tree is ours now: end it.
    pub(super) fn adopt(&mut self, events: &mut dyn Events) {
        if let Parent::Guard { guard, .. } = &self.parent {
            sys::reap(Pid::from_raw(guard.pid));
        }
        let over = self.page.status().is_some() && self.page.demanded() == Demand::Leader;
        self.adopted = Some(self.page.lease_ended_it());
        if !over && !self.page.lease_ended_it() {
            // The end that comes now has nothing to do with the lease.
            self.told_of_term = true;
            if self.page.job() != 0 {
                events.guard_died();
            }
        }
        let shared = getpgrp().as_raw();
        let leader = self.page.job();
        let mut warden = Warden::new(self.page, self.policy, leader, shared, self.bystanders.clone());
        if !over {
            warden.end_now();
        }
        self.parent = Parent::Us(Box::new(warden));
    }
}
