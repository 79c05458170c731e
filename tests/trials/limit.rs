//! By when a job has to be dead.

use std::time::Duration;

use crate::course::Course;
use crate::moment::Moment;
use crate::plan::Plan;

/// Redis ends a lease within the millisecond after its time; the wall clock was read a little off.
const LEASE_ROUNDING: Duration = Duration::from_millis(2);

/// What the machine may take to carry out what was due, where a limit is no lease but a rule.
const SLACK: Duration = Duration::from_millis(150);

/// What the job had to be dead by.
pub(crate) struct Limit {
    pub(crate) what: &'static str,
    /// Alive after this is a violation.
    pub(crate) certain: Moment,
    /// The margin counts to this.
    pub(crate) nominal: Moment,
    /// Since when the product could be at it: what the machine stood still after that is its excuse.
    pub(crate) work_begins: Moment,
    pub(crate) is_lease_end: bool,
}

impl Limit {
    /// The rule that applies.
    pub(crate) fn of(plan: &Plan, course: &Course, lease_end: Option<Moment>) -> Option<Self> {
        if let Some(broken_by) = course.broken_by {
            // TERM by the next renewal, KILL after the grace at the latest.
            let grace = if plan.job.ends_at_term() { Duration::ZERO } else { plan.grace() };
            let nominal = broken_by + plan.renewal() + grace + SLACK;
            let what = "the limit for a broken lock";
            return Some(Self {
                what,
                certain: nominal,
                nominal,
                work_begins: broken_by,
                is_lease_end: false,
            });
        }
        if let (true, Some(resumed_by)) = (course.nobody_could_act, course.resumed_by) {
            let nominal = resumed_by + SLACK;
            let what = "a pause in which nobody could act";
            return Some(Self {
                what,
                certain: nominal,
                nominal,
                work_begins: resumed_by,
                is_lease_end: false,
            });
        }
        let nominal = lease_end?;
        let run_out = nominal + LEASE_ROUNDING;
        let work_begins = nominal - plan.margin();
        let limit =
            Self { what: "the lease's end", certain: run_out, nominal, work_begins, is_lease_end: true };
        // Released before it ran out: that is the end of it.
        Some(match course.taken_by {
            Some(taken) if taken < run_out => {
                Self { what: "another client had the lock", certain: taken, ..limit }
            }
            _ => limit,
        })
    }
}
