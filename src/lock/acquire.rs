//! Taking the lock, waiting for it where the caller allows.

use crate::clock::BootTime;
use crate::lease::{Backoff, Holder, Key, Lease, LockValue, Seen, Timing, jitter};
use crate::node::{Attempt, Busy, Fault, FaultKind, Interrupt, Never, Node};
use std::time::{Duration, SystemTime};

/// How long a run without a limit waits for a Redis that never said anything: a first-time user or a
/// cron line must not hang silently.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// When a wait is first told to the user; the first pause ends here so that it can be.
const FIRST_REPORT: Duration = Duration::from_millis(400);

/// How long clean-up may take after the caller was interrupted.
const LEAVE: Duration = Duration::from_millis(500);

/// A waiter asks again after at most this, baton or not: (waited so far, cap).
const CAPS: [(Duration, Duration); 2] =
    [(Duration::from_secs(10), Duration::from_secs(1)), (Duration::from_secs(30), Duration::from_secs(2))];

/// The cap after all of [`CAPS`].
const LONGEST_CAP: Duration = Duration::from_secs(5);

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Want {
    /// The lock.
    pub key: Key,
    /// The lease to ask for.
    pub timing: Timing,
    /// Who asks.
    pub holder: Holder,
    /// How long to wait for it.
    pub patience: Patience,
}

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// One try.
    Once,
    /// At most this long.
    Limit(Duration),
    /// For ever, except for a Redis that never answers at all: 10 s.
    Forever,
}

/// A lock that is ours.
#[derive(Debug)]
pub struct Held {
    /// What stands at the key.
    pub value: LockValue,
    /// The lease of the acquisition.
    pub lease: Lease,
    /// The fencing token, unless turned off.
    pub fencing: Option<u64>,
}

impl std::fmt::Debug for LockValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.token().fmt(f)
    }
}

/// Why there is no lock.
#[derive(Debug)]
pub enum NotAcquired {
    /// Held by another until the patience ended.
    Busy(Busy),
    /// Redis could not serve until the patience ended.
    Unavailable(Fault),
    /// Trying again changes nothing: refused, no lock at the key, no Redis.
    Fatal(Fault),
    /// The caller's interrupt came first. Nothing of ours is left in Redis.
    Interrupted,
}

/// What happened on the way, for messages.
#[derive(Debug)]
pub enum Progress<'a> {
    /// Waiting behind a holder.
    Busy(&'a Busy),
    /// Waiting for Redis.
    Unavailable(&'a Fault),
    /// This user has no right to the list of batons: a release cannot wake us. Told once.
    NoBatons,
}

/// Takes the lock. `report` hears of every answer that makes us wait.
pub fn acquire(
    node: &mut Node,
    want: &Want,
    interrupt: &mut dyn Interrupt,
    report: &mut dyn FnMut(Progress<'_>),
) -> Result<Held, NotAcquired> {
    let started = BootTime::now();
    let mut wait = Wait {
        want,
        started,
        limit: match want.patience {
            Patience::Limit(limit) => started + limit,
            Patience::Once | Patience::Forever => BootTime::NEVER,
        },
        answered: false,
        polling: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
        outage: Backoff::new(Duration::from_millis(100), Duration::from_secs(1)),
        doubtful: Vec::new(),
        took_baton: false,
        told_no_batons: false,
    };
    loop {
        let value = want.holder.new_attempt(SystemTime::now());
        let attempt = node.acquire(&want.key, value.text(), want.timing.ttl(), interrupt);
        // Also when nothing could be sent: reports may start a thread.
        interrupt.idle();
        let next = match attempt {
            Ok(Attempt::Acquired(acquired)) => {
                let lease = want.timing.lease(acquired.sent_at);
                // It counts only while enough of its lease is left to run a job in.
                if BootTime::now() < lease.term_at {
                    return Ok(Held { value, lease, fencing: acquired.fencing });
                }
                let fault = Fault::late(want.timing.ttl());
                wait.after_fault(node, &value, fault, interrupt, report)
            }
            Ok(Attempt::Busy(busy)) => wait.after_busy(node, busy, interrupt, report),
            Err(fault) => wait.after_fault(node, &value, fault, interrupt, report),
        };
        next?;
    }
}

/// The state of one wait.
struct Wait<'a> {
    want: &'a Want,
    started: BootTime,
    limit: BootTime,
    /// Redis has said something since we began.
    answered: bool,
    polling: Backoff,
    outage: Backoff,
    /// Attempts whose replies were lost.
    doubtful: Vec<LockValue>,
    /// A baton may have come to us that no attempt has made use of.
    took_baton: bool,
    told_no_batons: bool,
}

impl Wait<'_> {
    fn after_busy(
        &mut self,
        node: &mut Node,
        busy: Busy,
        interrupt: &mut dyn Interrupt,
        report: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), NotAcquired> {
        self.answered = true;
        self.took_baton = false;
        self.outage.reset();
        // Our own attempt whose reply was lost: not held by anybody.
        if let Some(at) = self.doubtful.iter().position(|value| value.text() == busy.value) {
            let value = self.doubtful.swap_remove(at);
            return self.disown(node, &value, interrupt);
        }
        if self.want.patience == Patience::Once || BootTime::now() >= self.limit {
            return Err(NotAcquired::Busy(busy));
        }
        report(Progress::Busy(&busy));
        self.wait_for_release(node, &busy, interrupt)?;
        if !node.has_batons() && !std::mem::replace(&mut self.told_no_batons, true) {
            report(Progress::NoBatons);
        }
        Ok(())
    }

    fn wait_for_release(
        &mut self,
        node: &mut Node,
        busy: &Busy,
        interrupt: &mut dyn Interrupt,
    ) -> Result<(), NotAcquired> {
        let now = BootTime::now();
        let batons = node.has_batons() && Seen::parse(&busy.value) != Seen::Foreign;
        let mut longest = if batons { jitter(self.cap(now)) } else { self.polling.pause() };
        if let Some(left) = busy.expires_in {
            longest = longest.min(left + Duration::from_millis(5));
        }
        longest = longest.min(self.limit.after(now));
        let first = (self.started + FIRST_REPORT).after(now);
        if !first.is_zero() {
            longest = longest.min(first + Duration::from_millis(1));
        }
        if !batons {
            return self.pause(node, now + longest, interrupt);
        }
        // Whatever it says, the lock has to be asked for again. After an idle cut or in an outage that
        // attempt finds out which it is.
        self.took_baton = true;
        match node.wait_for_baton(&self.want.key, longest, interrupt) {
            Ok(_) => {
                self.polling.reset();
                Ok(())
            }
            Err(fault) if fault.kind == FaultKind::Interrupted => Err(self.leave(node)),
            // Some proxies take EVAL and refuse BLPOP at once.
            Err(_) => {
                let soon = BootTime::now() + self.polling.pause();
                self.pause(node, soon.min(now + longest), interrupt)
            }
        }
    }

    /// The caller was interrupted: passes a baton on that may have come to us.
    fn leave(&mut self, node: &mut Node) -> NotAcquired {
        if std::mem::take(&mut self.took_baton) {
            node.pass_on(&self.want.key, BootTime::now() + LEAVE, &mut Never);
        }
        NotAcquired::Interrupted
    }

    fn cap(&self, now: BootTime) -> Duration {
        let waited = now.after(self.started);
        CAPS.iter().find(|(until, _)| waited < *until).map_or(LONGEST_CAP, |(_, cap)| *cap)
    }

    fn after_fault(
        &mut self,
        node: &mut Node,
        value: &LockValue,
        fault: Fault,
        interrupt: &mut dyn Interrupt,
        report: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), NotAcquired> {
        self.answered |= fault.answered;
        if fault.kind == FaultKind::Interrupted {
            if fault.ambiguous {
                node.disown(&self.want.key, value.text(), LEAVE, &mut Never);
            }
            return Err(self.leave(node));
        }
        if fault.ambiguous || fault.is_strange() {
            self.doubtful.push(value.clone());
            self.disown(node, value, interrupt)?;
        }
        match fault.kind {
            FaultKind::Unavailable => {}
            _ => return Err(NotAcquired::Fatal(fault)),
        }
        let now = BootTime::now();
        if self.want.patience == Patience::Once || now >= self.patience_ends() {
            let _ = self.leave(node);
            return Err(NotAcquired::Unavailable(fault));
        }
        report(Progress::Unavailable(&fault));
        let pause = now + self.outage.pause();
        self.pause(node, pause.min(self.patience_ends()), interrupt)
    }

    fn pause(
        &mut self,
        node: &mut Node,
        until: BootTime,
        interrupt: &mut dyn Interrupt,
    ) -> Result<(), NotAcquired> {
        if Node::pause(until, interrupt) { Err(self.leave(node)) } else { Ok(()) }
    }

    /// The lock may be ours without our knowing: sees to it that it is not.
    fn disown(
        &mut self,
        node: &mut Node,
        value: &LockValue,
        interrupt: &mut dyn Interrupt,
    ) -> Result<(), NotAcquired> {
        if node.disown(&self.want.key, value.text(), node.timeouts().command, interrupt) {
            return Ok(());
        }
        node.disown(&self.want.key, value.text(), LEAVE, &mut Never);
        Err(self.leave(node))
    }

    fn patience_ends(&self) -> BootTime {
        if self.want.patience == Patience::Forever && !self.answered {
            self.started + FIRST_ANSWER
        } else {
            self.limit
        }
    }
}
