//! What is printed.

use std::collections::BTreeMap;

use crate::fault::Fault;
use crate::moment::Span;
use crate::verdict::{Cause, Margin, Verdict};

/// The sum of all trials so far.
#[derive(Default)]
pub(crate) struct Report {
    rows: BTreeMap<Fault, Row>,
    worst: Option<(Span, u64)>,
    /// Of those in which something lived too long: SIGKILL was pending, and the machine stood still.
    kill_pending: u64,
    stood_still: u64,
    /// Trials that have no verdict.
    pub(crate) broken: u64,
}

#[derive(Default)]
struct Row {
    trials: u64,
    violations: u64,
    uncertain: u64,
    /// The fault came before the job, which then never started.
    without_job: u64,
    worst: Option<Margin>,
}

impl Report {
    /// Counts a verdict.
    pub(crate) fn add(&mut self, number: u64, verdict: &Verdict) {
        let row = self.rows.entry(verdict.fault).or_default();
        row.trials += 1;
        row.violations += u64::from(!verdict.violations.is_empty());
        row.uncertain += u64::from(verdict.violations.is_empty() && !verdict.uncertain.is_empty());
        self.kill_pending += u64::from(verdict.cause == Some(Cause::KillPending));
        self.stood_still += u64::from(verdict.cause == Some(Cause::StoodStill));
        row.without_job += u64::from(!verdict.had_job);
        let Some(margin) = verdict.margin else { return };
        // Under one fault some trials end by a lease and some by another rule: leases go first.
        let rank = |margin: Margin| (!margin.to_lease_end, margin.at_least);
        if row.worst.is_none_or(|worst| rank(margin) < rank(worst)) {
            row.worst = Some(margin);
        }
        if margin.to_lease_end && self.worst.is_none_or(|(worst, _)| margin.at_least < worst) {
            self.worst = Some((margin.at_least, number));
        }
    }

    /// How many trials there are so far.
    pub(crate) fn trials(&self) -> u64 {
        self.rows.values().map(|row| row.trials).sum()
    }

    /// How many of them broke a rule.
    pub(crate) fn violations(&self) -> u64 {
        self.rows.values().map(|row| row.violations).sum()
    }

    /// The table and the sums.
    pub(crate) fn show(&self) {
        println!("fault           trials  no job  violations  uncertain  worst margin");
        for (fault, row) in &self.rows {
            let worst = row.worst.map_or_else(|| "-".to_owned(), show_margin);
            let Row { trials, without_job, violations, uncertain, .. } = row;
            println!(
                "{:<14}{trials:>8}{without_job:>8}{violations:>12}{uncertain:>11}  {worst}",
                fault.name()
            );
        }
        let uncertain: u64 = self.rows.values().map(|row| row.uncertain).sum();
        let (trials, violations, broken) = (self.trials(), self.violations(), self.broken);
        println!(
            "{trials} trials, {violations} violations, {uncertain} uncertain, {broken} without a verdict"
        );
        if self.kill_pending + self.stood_still > 0 {
            println!(
                "of these, {} alive with SIGKILL pending, {} while the machine stood still",
                self.kill_pending, self.stood_still
            );
        }
        if let Some((worst, number)) = self.worst {
            println!("worst margin to the end of a lease: {worst} (trial {number})");
        }
    }
}

fn show_margin(margin: Margin) -> String {
    let to = if margin.to_lease_end { "" } else { " (to the rule's limit; there was no lease to outlive)" };
    format!("{}{to}", margin.at_least)
}
