//! What is known of the processes of one trial, and since when.

use std::sync::Mutex;

use crate::moment::Moment;

/// More processes than this are not listed one by one.
pub(crate) const MANY: usize = 6;

/// All processes that were ever seen to carry one trial's mark.
#[derive(Default)]
pub(crate) struct Tree {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    job: Vec<Life>,
    guard: Option<(i32, u64)>,
}

/// A process of the job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) pid: i32,
    /// Its start time, by which it is told apart from a later process with its number.
    pub(crate) started: u64,
    /// Taken before the first look at it.
    pub(crate) first_seen: Moment,
    /// Taken before the last look that showed it alive: it was alive then or later.
    pub(crate) alive_at: Option<Moment>,
    /// The same of the last look that showed it alive and not killed: it may have run code then.
    pub(crate) running_at: Option<Moment>,
    /// Taken after the first look that showed it dead: it was dead by then.
    pub(crate) dead_by: Option<Moment>,
}

/// One look at a process: when it began and ended, and what it showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) began: Moment,
    pub(crate) ended: Moment,
    pub(crate) dead: bool,
    /// Dead, or killed and not yet dead.
    pub(crate) doomed: bool,
}

impl Tree {
    /// Notes a look at a process of the job.
    pub(crate) fn note(&self, pid: i32, started: u64, look: Look) {
        let job = &mut self.known.lock().expect("no panic with it").job;
        let at = job.iter().position(|life| (life.pid, life.started) == (pid, started));
        let at = at.unwrap_or_else(|| {
            job.push(Life {
                pid,
                started,
                first_seen: look.began,
                alive_at: None,
                running_at: None,
                dead_by: None,
            });
            job.len() - 1
        });
        let life = &mut job[at];
        if look.dead {
            // Two threads look: one may be late to tell what it saw.
            life.dead_by = Some(life.dead_by.map_or(look.ended, |by| by.min(look.ended)));
        } else {
            life.alive_at = life.alive_at.max(Some(look.began));
        }
        if !look.doomed {
            life.running_at = life.running_at.max(Some(look.began));
        }
    }

    /// Notes who the guard is.
    pub(crate) fn note_guard(&self, pid: i32, started: u64) {
        self.known.lock().expect("no panic with it").guard = Some((pid, started));
    }

    /// The guard's pid and start time, once it was seen.
    pub(crate) fn guard(&self) -> Option<(i32, u64)> {
        self.known.lock().expect("no panic with it").guard
    }

    /// All processes of the job so far.
    pub(crate) fn lives(&self) -> Vec<Life> {
        self.known.lock().expect("no panic with it").job.clone()
    }

    /// Those of which no death is known.
    pub(crate) fn living(&self) -> Vec<Life> {
        self.lives().into_iter().filter(|life| life.dead_by.is_none()).collect()
    }

    /// The last moment at which a process of the job was surely alive.
    pub(crate) fn alive_at(&self) -> Option<Moment> {
        self.lives().iter().filter_map(|life| life.alive_at).max()
    }

    /// By when all that was ever seen was surely dead; `None` when something is not.
    pub(crate) fn dead_by(&self) -> Option<Moment> {
        let lives = self.lives();
        let dead: Option<Vec<Moment>> = lives.iter().map(|life| life.dead_by).collect();
        dead?.into_iter().max()
    }
}

/// Their numbers, or some of them.
pub(crate) fn names(lives: &[Life]) -> String {
    let pids: Vec<String> = lives.iter().map(|life| life.pid.to_string()).collect();
    let more = pids.len().saturating_sub(MANY);
    let shown = pids[..pids.len() - more].join(", ");
    if more == 0 { format!("process {shown}") } else { format!("process {shown} and {more} more") }
}
