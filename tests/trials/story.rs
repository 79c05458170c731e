//! A trial told for the reader of a violation.

use std::cmp::Reverse;

use crate::course::Course;
use crate::moment::Moment;
use crate::scene::Scene;
use crate::tree::MANY;

/// What happened, in milliseconds before and after the fault.
pub(crate) fn tell(scene: &Scene<'_>, course: &Course, lease_end: Option<Moment>) -> String {
    let zero = course.struck_at.unwrap_or_else(Moment::now);
    let mut events = scene.story.clone();
    events.extend(lease_end.map(|at| (at, "the last lease ends".to_owned())));
    let mut lives = scene.tree.lives();
    // A job that forks all the time: those that lasted longest.
    lives.sort_by_key(|life| Reverse(life.alive_at));
    for life in lives.into_iter().take(MANY) {
        let note = |what: &str| format!("{} {what}", life.pid);
        let killed = life.running_at.filter(|_| life.running_at < life.alive_at);
        events.extend(killed.map(|at| (at, note("last seen not killed"))));
        events.extend(life.alive_at.map(|at| (at, note("last seen alive"))));
        events.extend(life.dead_by.map(|by| (by, note("seen dead"))));
    }
    let stalls = scene.house.stalls.between(zero, Moment::now());
    events
        .extend(stalls.into_iter().map(|(at, length)| (at, format!("the machine stood still for {length}"))));
    events.sort();
    let lines = events.iter().map(|(at, what)| format!("    {:>12}  {what}\n", at.since(zero).to_string()));
    let stderr = scene.stderr();
    let stderr = stderr.lines().map(|line| format!("    | {line}\n"));
    lines.chain(stderr).collect()
}
