//! The verdict on one trial. Strict where something was seen, careful where it was not: a violation
//! is what was surely alive after the limit, whatever the cause; what was only not yet known to be dead
//! is *uncertain*.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::course::{Course, FOREIGN};
use crate::fault::{Fault, Who};
use crate::grants::{self, Change};
use crate::limit::Limit;
use crate::moment::{Moment, Span};
use crate::scene::{Scene, Trouble};
use crate::{story, tree};

/// The exit status that tells of a lost lock.
const LOST: i32 = 79;

/// For a wrapper without a job to end, and its guard after it.
const SOON: Duration = Duration::from_secs(15);

/// What came of a trial.
pub(crate) struct Verdict {
    pub(crate) fault: Fault,
    /// What was broken, a line each.
    pub(crate) violations: Vec<String>,
    /// What might have been.
    pub(crate) uncertain: Vec<String>,
    /// Why something was alive after the limit, where that can be said.
    pub(crate) cause: Option<Cause>,
    /// A process of the job was ever seen.
    pub(crate) had_job: bool,
    /// From the death of the job to the limit, when there was a job and both are known.
    pub(crate) margin: Option<Margin>,
    /// What happened, for the reader of a violation.
    pub(crate) story: String,
}

/// What a process that lived too long had to do with the product. It is a violation all the same: the
/// rule asks who is alive, not why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It had its SIGKILL and was not seen without it after the limit: the kernel had not run it to its
    /// exit. It may have been in a system call.
    KillPending,
    /// The machine stood still for at least as long.
    StoodStill,
}

/// How close it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Margin {
    /// From the moment when the job was surely dead.
    pub(crate) at_least: Span,
    /// The limit was the end of a lease, not a rule about stolen locks or pauses.
    pub(crate) to_lease_end: bool,
}

/// Runs a trial and judges it.
pub(crate) fn try_out(scene: &mut Scene<'_>) -> Result<Verdict, Trouble> {
    let course = Course::run(scene)?;
    let fault = scene.plan.fault;
    let mut verdict = Verdict {
        fault,
        violations: Vec::new(),
        uncertain: Vec::new(),
        cause: None,
        had_job: scene.tree.alive_at().is_some(),
        margin: None,
        story: String::new(),
    };
    let lease_end = course.lease_end(scene);
    scene.house.census.wait_for_reading_after(Moment::now());
    verdict.judge_life(scene, &course, lease_end);
    verdict.judge_health(scene, &course);
    // All watching of the job is done; the run may end.
    verdict.judge_end(scene, &course)?;
    verdict.judge_key(scene, &course);
    verdict.violations.extend(scene.innocents.complaints());
    verdict.story = story::tell(scene, &course, lease_end);
    if course.clock_was_set() {
        let doubtful = std::mem::take(&mut verdict.violations);
        verdict.uncertain.push("the wall clock was set meanwhile".into());
        verdict.uncertain.extend(doubtful);
    }
    Ok(verdict)
}

impl Verdict {
    /// Nothing of the job is alive when another could have the lock.
    fn judge_life(&mut self, scene: &Scene<'_>, course: &Course, lease_end: Option<Moment>) {
        let Some(alive_at) = scene.tree.alive_at() else { return };
        let Some(limit) = Limit::of(scene.plan, course, lease_end) else {
            self.violations.push("a job ran without a lease".into());
            return;
        };
        let first_seen = scene.tree.lives().iter().map(|life| life.first_seen).min();
        if course.taken_by.is_some() && first_seen > course.taken_by {
            self.violations.push("the job was started when another client had the lock".into());
        }
        if alive_at > limit.certain {
            self.judge_late(scene, &limit, alive_at);
        }
        match scene.tree.dead_by() {
            Some(dead_by) => {
                let at_least = limit.nominal.since(dead_by);
                self.margin = Some(Margin { at_least, to_lease_end: limit.is_lease_end });
                if at_least < Span(0) && alive_at <= limit.certain {
                    let (late, early) = (dead_by.since(limit.nominal), limit.nominal.since(alive_at));
                    let known = format!("seen dead {late} after {}, and alive {early} before it", limit.what);
                    self.uncertain.push(known);
                }
            }
            None if alive_at <= limit.certain => {
                self.uncertain.push(format!("not known to be dead after {}", limit.what));
            }
            None => {}
        }
    }

    /// Something was alive after the limit. Tells the cause where it can be seen.
    fn judge_late(&mut self, scene: &Scene<'_>, limit: &Limit, alive_at: Moment) {
        let mut lives = scene.tree.lives();
        lives.retain(|life| life.alive_at > Some(limit.certain));
        let may_have_run = lives.iter().any(|life| life.running_at > Some(limit.certain));
        let by = alive_at.since(limit.certain);
        let what = format!("{} alive {by} after {}", tree::names(&lives), limit.what);
        let stood_still = scene.house.stalls.total(limit.work_begins, alive_at);
        let (cause, remark) = if !may_have_run {
            (Some(Cause::KillPending), " (with SIGKILL pending)".to_owned())
        } else if by <= stood_still {
            (Some(Cause::StoodStill), format!(" (the machine stood still for {stood_still} before)"))
        } else {
            (None, String::new())
        };
        self.cause = cause;
        let excused = scene.house.excuses && cause.is_some();
        let list = if excused { &mut self.uncertain } else { &mut self.violations };
        list.push(what + &remark);
    }

    /// What a job has no reason to notice did not end it.
    fn judge_health(&mut self, scene: &Scene<'_>, course: &Course) {
        let harmless = matches!(scene.plan.fault, Fault::PauseShort | Fault::GuardStop);
        if harmless && !course.survived {
            let what = "the run did not survive what it need not notice".to_owned();
            // A machine that stands still makes every pause longer, and a lease end before it.
            let slow = scene.house.stalls.total(scene.launched(), Moment::now());
            if slow.as_duration() > scene.plan.renewal() / 2 {
                self.uncertain.push(what);
            } else {
                self.violations.push(what);
            }
        }
        if course.never_free {
            self.violations.push("the lock was never free although the wrapper was killed".into());
        }
    }

    /// Wrapper and guard end when the job has; nothing is left.
    fn judge_end(&mut self, scene: &mut Scene<'_>, course: &Course) -> Result<(), Trouble> {
        if let Some(proxy) = &scene.proxy {
            proxy.set(crate::support::Mode::Pass);
        }
        scene.signal(Who::WrapperThenGuard, Signal::SIGCONT);
        // Without a job it waits for a lock that is another's now, as long as it takes.
        let had_job = self.had_job;
        let ended = scene.wait_until("", SOON, |scene| !had_job || scene.wrapper_status().is_some());
        match ended {
            Err(Trouble::Broken(_)) => self.violations.push("the wrapper does not end".into()),
            other => other?,
        }
        let status = scene.wrapper_status();
        scene.tell(format!("wrapper: {status:?}"));
        let was_free = course.taken_by.or(course.broken_by).is_some();
        let lost = scene.plan.fault.loses_the_lock(was_free) && !course.wrapper_was_killed();
        let wrong = status.filter(|status| had_job && lost && status.code() != Some(LOST));
        self.violations
            .extend(wrong.map(|status| format!("the lease ended the job, and the run's end is {status}")));
        scene.signal(Who::Wrapper, Signal::SIGKILL);
        match scene.wait_until("", SOON, |scene| scene.guard_is_gone()) {
            Err(Trouble::Broken(_)) => self.violations.push("the guard does not end".into()),
            other => other?,
        }
        let judged = course.taken_by.or(course.broken_by).or(course.struck_at);
        scene.house.census.wait_for_reading_after(Moment::now());
        let left = scene.tree.living();
        if judged.is_some() && !left.is_empty() {
            self.violations.push(format!("{} left over", tree::names(&left)));
        }
        Ok(())
    }

    /// The key of a new holder is never touched, a deleted one never set again.
    fn judge_key(&mut self, scene: &Scene<'_>, course: &Course) {
        let changes = scene.changes();
        let touched = grants::after_foreign(&changes, FOREIGN.as_bytes());
        if !touched.is_empty() {
            self.violations.push(format!("the new holder's key was touched: {touched:?}"));
        }
        if scene.plan.fault == Fault::Deleted && course.broken_by.is_some() {
            let after = changes.iter().skip_while(|change| **change != Change::Gone).skip(1);
            let touched: Vec<&Change> = after.collect();
            if !touched.is_empty() {
                self.violations.push(format!("a deleted key was touched: {touched:?}"));
            }
        }
    }
}
