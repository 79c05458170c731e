//! What one trial will do, all of it drawn from the seed before it begins.

use std::fmt;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::fault::{Act, Anchor, Fault, Who};
use crate::rng::Rng;
use crate::support::Mode;

/// A job: its shape, how many processes of it are there for good, whether it ignores TERM, whether it
/// was started without an environment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) shape: &'static str,
    pub(crate) processes: usize,
    pub(crate) stubborn: bool,
    pub(crate) bare: bool,
}

/// A trial.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// From 1.
    pub(crate) number: u64,
    pub(crate) fault: Fault,
    pub(crate) job: Job,
    pub(crate) ttl: Duration,
    pub(crate) kill_after: Option<Duration>,
    /// The wrapper has a child from before its `exec`.
    pub(crate) had_child: bool,
    /// Where the proxy begins; without one the wrapper talks to Redis itself.
    pub(crate) proxy: Option<Mode>,
    pub(crate) anchor: Anchor,
    /// From the anchor to the first step.
    pub(crate) delay: Duration,
    /// What is done, each after the first step by this much, in order.
    pub(crate) steps: Vec<(Duration, Act)>,
}

impl Plan {
    /// Trial `number` under `seed`, one of the faults in `deck`: dealt from a shuffled deck that is
    /// shuffled anew when it is used up, so that all come up equally often.
    pub(crate) fn draw(seed: u64, number: u64, deck: &[Fault]) -> Self {
        let (round, card) = ((number - 1) / deck.len() as u64, (number - 1) % deck.len() as u64);
        let mut deck = deck.to_vec();
        Rng::new(seed, u64::MAX - round).shuffle(&mut deck);
        let fault = deck[usize::try_from(card).expect("an index")];
        let mut rng = Rng::new(seed, number);
        let job = draw_job(&mut rng);
        let ttl = Duration::from_millis(rng.number(500..2000));
        let kill_after = match rng.number(0..5) {
            0 => Some(Duration::ZERO),
            1 => Some(Duration::from_millis(rng.number(50..600))),
            _ => None,
        };
        let mut plan = Self {
            number,
            fault,
            job,
            ttl,
            kill_after,
            had_child: rng.chance(50),
            proxy: None,
            anchor: Anchor::Job,
            delay: rng.length(Duration::ZERO..ttl.mul_f64(1.2)),
            steps: Vec::new(),
        };
        if fault.may_come_early() && rng.chance(20) {
            plan.anchor = Anchor::Launch;
            plan.delay = rng.length(Duration::ZERO..Duration::from_millis(25));
        }
        plan.draw_steps(&mut rng);
        plan.had_child &= !plan.hides_from_the_wrapper();
        plan
    }

    /// When the guard alone is killed and the wrapper had children before, what has left both its group
    /// and its environment cannot be told from an orphan of others: a documented hole.
    fn hides_from_the_wrapper(&self) -> bool {
        let job = self.job;
        self.fault == Fault::GuardKill && job.bare && matches!(job.shape, "daemon" | "dynasty")
    }

    fn draw_steps(&mut self, rng: &mut Rng) {
        let ttl = self.ttl;
        let both = rng.one_of(&[Who::WrapperThenGuard, Who::GuardThenWrapper]);
        let one = rng.one_of(&[Who::Wrapper, Who::Guard, both]);
        let again = rng.one_of(&[Who::WrapperThenGuard, Who::GuardThenWrapper]);
        let mut part = |from: f64, to: f64| rng.length(ttl.mul_f64(from)..ttl.mul_f64(to));
        let (any, longer, longest) = (part(0.1, 1.7), part(1.1, 1.6), part(0.1, 2.0));
        let (stop, go_on) = (Signal::SIGSTOP, Signal::SIGCONT);
        let at_once = Duration::ZERO;
        self.steps = match self.fault {
            Fault::WrapperKill => vec![(at_once, Act::Signal(Who::Wrapper, Signal::SIGKILL))],
            Fault::WrapperStop => {
                vec![(at_once, Act::Signal(Who::Wrapper, stop)), (any, Act::Signal(Who::Wrapper, go_on))]
            }
            Fault::GuardKill => vec![(at_once, Act::Signal(Who::Guard, Signal::SIGKILL))],
            Fault::GuardStop => {
                [at_once, any / 4, any / 2].map(|at| (at, Act::Signal(Who::Guard, stop))).into()
            }
            Fault::GuardHeld => self.hold_the_guard(),
            Fault::PauseShort => {
                let length = rng.length(self.renewal() / 10..self.renewal());
                vec![(at_once, Act::Signal(both, stop)), (length, Act::Signal(again, go_on))]
            }
            Fault::PauseLong => {
                vec![(at_once, Act::Signal(both, stop)), (longer, Act::Signal(again, go_on))]
            }
            Fault::RedisKill => vec![(at_once, Act::RedisKill)],
            Fault::RedisStop => vec![(at_once, Act::RedisStop), (any, Act::RedisCont)],
            Fault::BlackHole => {
                vec![(at_once, Act::Network(Mode::BlackHole)), (longest, Act::Network(Mode::Pass))]
            }
            Fault::Trickle => {
                let apart = rng.length(Duration::from_millis(5)..Duration::from_millis(300));
                vec![(at_once, Act::Network(Mode::Trickle(apart))), (longest, Act::Network(Mode::Pass))]
            }
            Fault::Stolen => vec![(at_once, Act::Steal)],
            Fault::Deleted => vec![(at_once, Act::Delete)],
            Fault::FrozenStart => {
                // The reply is on its way for `late`: the wrapper is stopped before it has it, or in
                // the moments in which it starts the job.
                let late = rng.length(Duration::from_millis(10)..Duration::from_millis(60));
                self.proxy = Some(Mode::Delay(late));
                self.anchor = Anchor::Key;
                self.delay = rng.length(Duration::ZERO..late + Duration::from_millis(15));
                let on = if one == both { again } else { one };
                vec![
                    (at_once, Act::Signal(one, stop)),
                    (at_once, Act::Network(Mode::Pass)),
                    (any, Act::Signal(on, go_on)),
                ]
            }
        };
        if matches!(self.fault, Fault::BlackHole | Fault::Trickle | Fault::GuardHeld) {
            self.proxy = Some(Mode::Pass);
        }
    }

    /// Stopped every 2 ms until well after the lease's end.
    fn hold_the_guard(&self) -> Vec<(Duration, Act)> {
        let mut steps = vec![(Duration::ZERO, Act::Network(Mode::BlackHole))];
        let end = self.ttl.mul_f64(1.2);
        let mut at = Duration::ZERO;
        while at < end {
            steps.push((at, Act::Signal(Who::Guard, Signal::SIGSTOP)));
            at += Duration::from_millis(2);
        }
        steps.push((end, Act::Network(Mode::Pass)));
        steps
    }

    /// Between TERM and KILL when the lease ends: min(--kill-after, TTL/2), else min(5 s, TTL/4).
    pub(crate) fn grace(&self) -> Duration {
        match self.kill_after {
            Some(given) => given.min(self.ttl / 2),
            None => (self.ttl / 4).min(Duration::from_secs(5)),
        }
    }

    /// Between KILL and the lease's end, as documented; not asked of the program under test.
    pub(crate) fn margin(&self) -> Duration {
        let drift = self.ttl / 100 + Duration::from_millis(2);
        drift + (self.ttl / 40).clamp(Duration::from_millis(25), Duration::from_millis(500))
    }

    /// Between two extensions, as documented.
    pub(crate) fn renewal(&self) -> Duration {
        self.ttl.saturating_sub(self.margin() + self.grace()) / 3
    }
}

fn draw_job(rng: &mut Rng) -> Job {
    let shapes = [("alone", 1), ("family", 4), ("daemon", 2), ("dynasty", 4), ("memory", 2), ("restless", 2)];
    let (shape, processes) = rng.one_of(&shapes);
    Job { shape, processes, stubborn: rng.chance(70), bare: rng.chance(30) }
}

impl Job {
    /// One TERM to its group and to the guard's children ends all of it: it reaches no session that a
    /// child's child has made.
    pub(crate) fn ends_at_term(self) -> bool {
        !self.stubborn && self.shape != "dynasty"
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} after the {:?}", self.fault.name(), self.delay, self.anchor)?;
        write!(f, "; lease {:?}, kill-after {:?}", self.ttl, self.kill_after)?;
        write!(f, "; job {}", self.job.shape)?;
        for (word, is_so) in [("ignores TERM", self.job.stubborn), ("env -i", self.job.bare)] {
            if is_so {
                write!(f, ", {word}")?;
            }
        }
        if self.had_child {
            write!(f, "; the wrapper had a child before")?;
        }
        Ok(())
    }
}
