//! Every process of the job, pinned so that it can be killed without meeting anybody else.
//!
//! A reading of `/proc` takes 30 µs a process, 5 ms on a small host and 150 ms on a large one, and
//! killing generation by generation (each becomes our child only when its parent is dead) takes two
//! readings for each. Trials outlived leases of 1 s by 100 ms that way. So all generations are found in
//! one reading, *before* the moment at which they have to be killed.
//!
//! A pid found in a reading may belong to somebody else a moment later. A pidfd cannot: it is opened
//! first, then the process is read again. If it is still a child of a parent that is pinned and alive
//! (or of ours, whom nobody else can reap), the pidfd is the job's.

use super::sys::{self, Pin};
use super::tree::{self, Process};
use crate::clock::BootTime;
use std::collections::HashMap;
use std::time::Duration;

/// How long before a deadline the first reading is begun. Readings of 60 ms were seen on a busy machine.
const EARLY: Duration = Duration::from_millis(250);

/// A process of the job.
struct Member {
    process: Process,
    /// `None` where the system has no pidfds, or no more of them: then only a direct child can be
    /// signalled.
    pin: Option<Pin>,
}

/// All of them.
pub(super) struct Roster {
    parent: i32,
    members: Vec<Member>,
    /// A zombie was reaped, whose children may have come to the parent after they were read.
    reaped: bool,
}

impl Roster {
    /// Finds all descendants of `parent`, which is this process or an unreaped child of it, that come down
    /// from children for which `is_jobs` holds. Reaps zombies among this process's children, except
    /// `leader`.
    pub(super) fn gather(parent: i32, leader: i32, is_jobs: impl Fn(&Process) -> bool) -> Self {
        Self::find(parent, leader, tree::all(), is_jobs)
    }

    /// [`Self::gather`], unless that would take until `limit`.
    pub(super) fn gather_before(
        limit: BootTime,
        parent: i32,
        leader: i32,
        is_jobs: impl Fn(&Process) -> bool,
    ) -> Option<Self> {
        Some(Self::find(parent, leader, tree::all_before(limit)?, is_jobs))
    }

    fn find(parent: i32, leader: i32, all: Vec<Process>, is_jobs: impl Fn(&Process) -> bool) -> Self {
        let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
        for process in all {
            children.entry(process.parent).or_default().push(process);
        }
        let mut roster = Self { parent, members: Vec::new(), reaped: false };
        for child in children.get(&parent).into_iter().flatten().filter(|child| is_jobs(child)) {
            if child.zombie && child.pid != leader {
                sys::reap_child(child.pid);
                roster.reaped = true;
            } else {
                roster.admit(*child, None);
            }
        }
        // Parents come before their children, so one pass meets every generation.
        let mut next = 0;
        while let Some(parent) = roster.members.get(next).map(|member| member.process.pid) {
            for child in children.get(&parent).into_iter().flatten() {
                roster.admit(*child, Some(next));
            }
            next += 1;
        }
        roster
    }

    /// Pins a process and takes it in, if it still is what the reading said.
    fn admit(&mut self, found: Process, parent: Option<usize>) {
        let pin = Pin::new(found.pid);
        let Some(process) = Process::read(found.pid) else { return };
        let parent_stands = match parent {
            None => process.parent == self.parent,
            Some(parent) => {
                let parent = &self.members[parent];
                let stands = parent.pin.as_ref().is_some_and(Pin::lives);
                // Or its parent died since, and it has come up to where the job's orphans come.
                process.parent == parent.process.pid && stands || process.parent == self.parent
            }
        };
        if parent_stands {
            self.members.push(Member { process, pin });
        }
    }

    /// Whether there is anybody besides `leader`, or may be. One that is just exiting counts: it runs no
    /// code any more, but its children are not ours yet.
    pub(super) fn may_have_more_than(&self, leader: i32) -> bool {
        self.reaped || self.living_besides(leader) > 0
    }

    /// How many are alive besides `leader`.
    pub(super) fn living_besides(&self, leader: i32) -> usize {
        self.members.iter().filter(|member| !member.process.zombie && member.process.pid != leader).count()
    }

    /// Sends `signal` to all, except to the members of a group that has got it already.
    pub(super) fn send(&self, signal: i32, except: Option<i32>) {
        for Member { process, pin } in &self.members {
            if Some(process.group) == except {
                continue;
            }
            match pin {
                Some(pin) => pin.send(signal),
                None if process.parent == std::process::id().cast_signed() && !process.zombie => {
                    sys::send(process.pid, signal);
                }
                None => {}
            }
        }
    }

    /// KILL to all.
    pub(super) fn kill(&self) {
        self.send(libc::SIGKILL, None);
    }
}

/// A roster that is made before it is needed, because making it takes time, and how much time depends on
/// how busy the machine is: once early, and again when the deadline is as near as readings allow.
pub(super) struct Readiness {
    /// How long the last one took to make.
    reading: Duration,
    roster: Option<Roster>,
    /// For which deadline it was read, and how near to it.
    ready: Ready,
}

enum Ready {
    Nothing,
    Early { deadline: BootTime },
    Fresh { deadline: BootTime },
}

impl Readiness {
    pub(super) const fn new() -> Self {
        Self { reading: Duration::ZERO, roster: None, ready: Ready::Nothing }
    }

    /// Makes the roster for `deadline` when its time has come. `gather` gives up at the moment that it
    /// gets: what is due at the deadline must not wait for a reading; what was read before then stands.
    /// Gives the next moment to come back.
    pub(super) fn make(
        &mut self,
        deadline: BootTime,
        gather: impl FnOnce(BootTime) -> Option<Roster>,
    ) -> BootTime {
        let fresh_at = deadline - self.reading * 3;
        let begin = match &self.ready {
            Ready::Fresh { deadline: meant } if *meant == deadline => return deadline,
            Ready::Early { deadline: meant } if *meant == deadline => fresh_at,
            // Nothing, or the lease was extended since.
            _ => fresh_at.min(deadline - EARLY),
        };
        let now = BootTime::now();
        if now < begin {
            return begin;
        }
        if let Some(roster) = gather(deadline) {
            self.roster = Some(roster);
        }
        self.took(BootTime::now().after(now));
        if now < fresh_at {
            self.ready = Ready::Early { deadline };
            return deadline - self.reading * 3;
        }
        self.ready = Ready::Fresh { deadline };
        deadline
    }

    /// What was read last, if anything was: an old one lacks only what was forked since.
    pub(super) fn take(&mut self) -> Option<Roster> {
        self.ready = Ready::Nothing;
        self.roster.take()
    }

    /// Keeps a roster that was read for another reason.
    pub(super) fn keep(&mut self, roster: Roster) {
        self.roster = Some(roster);
    }

    /// Notes how long a reading took.
    pub(super) const fn took(&mut self, reading: Duration) {
        self.reading = reading;
    }
}
