//! The course of one trial: wait for the moment, do what the plan says, and try to take the lock as
//! another client would, until it is known how it ended.

use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use redis::Connection;

use crate::fault::{Act, Anchor, Who};
use crate::grants;
use crate::moment::{Moment, WallClock};
use crate::scene::{Plant, Scene, Trouble, go_on};
use crate::support::jobs::KEY;

/// The other client's value, and how long it would have the lock.
pub(crate) const FOREIGN: &str = "another client";
pub(crate) const FOREIGN_TTL: &str = "600000";

/// Limit of what should happen at once.
const SOON: Duration = Duration::from_secs(20);

/// How long the scene is watched after the end: what starts late would start now.
const LINGER: Duration = Duration::from_millis(60);

/// Between two tries to take the lock: near the lease's end, and far from it.
const OFTEN: Duration = Duration::from_micros(300);
const SELDOM: Duration = Duration::from_millis(4);

/// With less than this left, it is tried often, and the job is watched closely (ms).
const NEAR: i64 = 25;
const CLOSE: i64 = 250;

/// How a trial went: everything that its verdict depends on, besides the tree.
#[derive(Default)]
pub(crate) struct Course {
    /// The first step was done.
    pub(crate) struck_at: Option<Moment>,
    /// Another client had the lock: after this.
    pub(crate) taken_by: Option<Moment>,
    /// Wrapper and guard were both stopped when it took it.
    pub(crate) nobody_could_act: bool,
    /// The lock was stolen or deleted, at this moment at the latest.
    pub(crate) broken_by: Option<Moment>,
    /// What was stopped goes on, since this.
    pub(crate) resumed_by: Option<Moment>,
    /// The fault was over, the run went on under its lock, and then the wrapper was killed.
    pub(crate) survived: bool,
    /// The key was never free although nobody extended it any more.
    pub(crate) never_free: bool,
    /// What is wrong on purpose was done.
    pub(crate) planted: bool,
    clock: Option<WallClock>,
    pub(crate) redis_is_up: bool,
    /// The step after those that were done.
    pub(crate) next: usize,
    killed_at: Option<Moment>,
}

impl Course {
    /// Runs the trial to the point at which it can be judged.
    pub(crate) fn run(scene: &mut Scene<'_>) -> Result<Self, Trouble> {
        let mut course = Self { clock: Some(WallClock::read()), redis_is_up: true, ..Self::default() };
        reach_anchor(scene)?;
        let zero = Moment::now() + scene.plan.delay;
        let mut redis = scene.server.redis.connect().map_err(|error| broken(&error))?;
        loop {
            go_on()?;
            course.do_steps(scene, zero)?;
            course.plant(scene)?;
            let pause = course.try_to_take(scene, &mut redis)?;
            if course.is_over(scene) {
                return Ok(course);
            }
            course.follow_up(scene, zero);
            let next = scene.plan.steps.get(course.next).map(|(after, _)| (zero + *after).left());
            // Until the next step of the plan, or the next look at the key from outside.
            thread::sleep(next.map_or(pause, |left| left.min(pause)));
        }
    }

    /// The run survived the fault, and the trial ended it.
    pub(crate) fn wrapper_was_killed(&self) -> bool {
        self.killed_at.is_some()
    }

    /// The wall clock was set while the trial ran: its times mean nothing.
    pub(crate) fn clock_was_set(&self) -> bool {
        let step = self.clock.map(|clock| WallClock::read().step_since(clock));
        step.is_some_and(|step| step.as_duration() > Duration::from_millis(1))
    }

    /// Does what is due.
    fn do_steps(&mut self, scene: &mut Scene<'_>, zero: Moment) -> Result<(), Trouble> {
        while let Some((after, act)) = scene.plan.steps.get(self.next).copied() {
            if !(zero + after).left().is_zero() {
                break;
            }
            self.next += 1;
            self.act(scene, act)?;
            self.struck_at.get_or_insert_with(Moment::now);
        }
        Ok(())
    }

    /// Tries to take the lock as soon as it is free; tells how long to wait before the next try.
    fn try_to_take(&mut self, scene: &mut Scene<'_>, redis: &mut Connection) -> Result<Duration, Trouble> {
        let struck = self.struck_at.is_some();
        if !struck || self.taken_by.is_some() || self.broken_by.is_some() {
            return Ok(SELDOM);
        }
        if !self.redis_is_up {
            let left = self.lease_end(scene).map(Moment::left);
            scene.watch.closely(left.is_some_and(|left| left.as_millis() < CLOSE.unsigned_abs().into()));
            return Ok(SELDOM);
        }
        let left: i64 = redis::cmd("PTTL").arg(KEY).query(redis).map_err(|error| broken(&error))?;
        scene.watch.closely(left < CLOSE);
        if left > NEAR {
            return Ok(SELDOM);
        }
        let mut set = redis::cmd("SET");
        set.arg(KEY).arg(FOREIGN).arg("NX").arg("PX").arg(FOREIGN_TTL);
        let taken: Option<String> = set.query(redis).map_err(|error| broken(&error))?;
        if taken.is_some() {
            self.taken_by = Some(Moment::now());
            self.nobody_could_act = scene.both_are_stopped();
            scene.tell("another client has taken the lock");
        }
        Ok(OFTEN)
    }

    /// A run that has survived its fault comes to its end by another one: its wrapper is killed, or,
    /// without a guard, Redis.
    fn follow_up(&mut self, scene: &mut Scene<'_>, zero: Moment) {
        let steps = &scene.plan.steps;
        let last = steps.last().map_or(zero, |(after, _)| zero + *after);
        let settled = last + scene.plan.ttl.mul_f64(1.3);
        let open = self.redis_is_up && self.taken_by.is_none() && self.broken_by.is_none();
        if !open || self.next < steps.len() || !settled.left().is_zero() {
            return;
        }
        match self.killed_at {
            None => {
                self.survived = true;
                self.killed_at = Some(Moment::now());
                if scene.house.plant == Plant::NoGuard {
                    scene.tell("survived so far; Redis is killed");
                    scene.server.kill();
                    self.redis_is_up = false;
                } else {
                    scene.tell("survived so far; the wrapper is killed");
                    scene.signal(Who::Wrapper, Signal::SIGKILL);
                }
            }
            Some(at) => self.never_free = (at + scene.plan.ttl * 2 + SOON).left().is_zero(),
        }
    }

    /// Everything that matters to the verdict has happened.
    fn is_over(&self, scene: &Scene<'_>) -> bool {
        if self.next < scene.plan.steps.len() {
            return false;
        }
        if self.never_free {
            return true;
        }
        if let Some(by) = self.broken_by {
            let dead = scene.tree.living().is_empty();
            return dead && (by + LINGER).left().is_zero() || (by + SOON).left().is_zero();
        }
        let end = if self.redis_is_up {
            self.taken_by
        } else {
            // Killed, so nobody can take it: what counts is until when it was granted.
            self.lease_end(scene).or(self.struck_at)
        };
        let Some(end) = end.max(self.resumed_by.filter(|_| end.is_some())) else { return false };
        let dead = scene.tree.living().is_empty();
        (end + LINGER).left().is_zero() && (dead || (end + LINGER * 10).left().is_zero())
    }

    /// When the last lease ends that Redis has granted to the run.
    pub(crate) fn lease_end(&self, scene: &Scene<'_>) -> Option<Moment> {
        let unix_ms = grants::last_lease(&scene.changes(), FOREIGN.as_bytes())?;
        self.clock.map(|clock| clock.moment(unix_ms))
    }
}

/// Waits for what the moment of the fault is counted from.
fn reach_anchor(scene: &mut Scene<'_>) -> Result<(), Trouble> {
    match scene.plan.anchor {
        Anchor::Launch => {}
        Anchor::Key => scene.wait_until("the lock is taken", SOON, |scene| !scene.changes().is_empty())?,
        Anchor::Job => {
            let wanted = scene.plan.job.processes;
            scene.wait_until("the job is there", SOON, |scene| {
                scene.tree.living().len() >= wanted || scene.wrapper_status().is_some()
            })?;
            if scene.tree.lives().len() < wanted {
                return Err(Trouble::Broken(format!("no job, and the run is over: {}", scene.stderr())));
            }
            scene.tell(format!("the job is there: {:?}", pids(scene)));
        }
    }
    let needs_guard = |act: &Act| matches!(act, Act::Signal(who, _) if *who != Who::Wrapper);
    if scene.plan.steps.iter().any(|(_, act)| needs_guard(act)) {
        scene.wait_until("the guard is there", SOON, |scene| scene.tree.guard().is_some())?;
    }
    Ok(())
}

fn pids(scene: &Scene<'_>) -> Vec<i32> {
    scene.tree.living().iter().map(|life| life.pid).collect()
}

/// What the trial stands on is broken, not what it tries.
pub(crate) fn broken(error: &redis::RedisError) -> Trouble {
    Trouble::Broken(format!("the trial's own Redis: {error}"))
}
