//! Conversations with one Redis: connect when needed, log in, send one script, read its reply.

use super::address::{Address, Credentials};
use super::connection::{Connection, Io, wait_silent};
use super::exchange::{Live, Patience, is_broken_connection};
use super::interrupt::{Interrupt, Never};
use super::reply::{Fault, FaultKind};
use super::scripts;
use crate::clock::BootTime;
use crate::lease::{Companion, Key};
use redis::Value;
use std::time::Duration;

/// How long network operations may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Name resolution and connecting, all addresses of the name together.
    pub connect: Duration,
    /// From sending a command to its reply.
    pub command: Duration,
}

/// One Redis and our connection to it, made when first needed and again after every failure.
pub struct Node {
    pub(super) address: Address,
    pub(super) credentials: Credentials,
    pub(super) timeouts: Timeouts,
    pub(super) live: Option<Live>,
    /// Connection on which a command is under way whose reply nobody waits for any more.
    pub(super) doubtful: Option<Connection>,
    /// What scripts of this run may touch besides the lock's key.
    pub(super) companions: Vec<Companion>,
    batons: bool,
}

/// What an attempt to take the lock came to.
#[derive(Debug)]
pub enum Attempt {
    /// The lock is ours.
    Acquired(Acquired),
    /// Somebody has it.
    Busy(Busy),
}

/// A lock just taken.
#[derive(Debug)]
pub struct Acquired {
    /// Just before the request was sent: the lease counts from here.
    pub sent_at: BootTime,
    /// The fencing token, unless turned off.
    pub fencing: Option<u64>,
}

/// A lock that somebody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The first KiB of what stands at the key.
    pub value: Vec<u8>,
    /// Until it runs out; `None`: never.
    pub expires_in: Option<Duration>,
}

/// What Redis says of a value of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opinion {
    /// It stands (or stood, for a release) at the key. Holds when the request was sent.
    Ours(BootTime),
    /// It does not: definitely.
    NotOurs,
}

impl Node {
    /// A node that scripts of this run will use with the companions that fencing needs or not.
    #[must_use]
    pub fn new(address: Address, credentials: Credentials, timeouts: Timeouts) -> Self {
        let companions = Companion::ALL.to_vec();
        Self { address, credentials, timeouts, live: None, doubtful: None, companions, batons: true }
    }

    /// Does without fencing tokens: their counter is neither read nor written.
    pub fn without_fencing(&mut self) {
        self.companions.retain(|companion| *companion != Companion::Fence);
    }

    /// Where it is, for messages.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// The limits in force.
    #[must_use]
    pub const fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Whether a release can wake a waiter of this run; otherwise it polls.
    #[must_use]
    pub fn has_batons(&self) -> bool {
        self.batons && self.companions.contains(&Companion::Wake)
    }

    /// Tries once to set `value` at `key` for `ttl`. A companion that this user may not touch is left
    /// out from then on, except the fencing counter, which is a fault.
    pub fn acquire(
        &mut self,
        key: &Key,
        value: &[u8],
        ttl: Duration,
        interrupt: &mut dyn Interrupt,
    ) -> Result<Attempt, Fault> {
        loop {
            let cmd = scripts::acquire(key, &self.companions, value, ttl);
            match self.exchange(&cmd, Patience::default(), interrupt) {
                Ok((reply, sent_at)) => return read_acquire(key, reply, sent_at),
                Err(fault) if fault.is_about_keys() => self.leave_out_refused(key, interrupt)?,
                Err(fault) if fault.kind == FaultKind::NotALock => return Err(foreign_fence(key)),
                Err(fault) => return Err(self.with_rights(fault, key)),
            }
        }
    }

    /// Lengthens the lease of `value` to `ttl`; no step goes past `limit`. A connection that turns
    /// out to be closed is replaced within the same call.
    pub fn extend(
        &mut self,
        key: &Key,
        value: &[u8],
        ttl: Duration,
        limit: BootTime,
        interrupt: &mut dyn Interrupt,
    ) -> Result<Opinion, Fault> {
        let cmd = scripts::extend(key, value, ttl);
        self.repeatable(&cmd, Patience { limit: Some(limit), ..Patience::default() }, interrupt)
            .and_then(opinion)
    }

    /// Deletes `key` if `value` stands there, and leaves a baton. After an attempt whose reply was
    /// lost, "not ours" may mean that this very release was carried out: `unsure` tells.
    pub fn release(
        &mut self,
        key: &Key,
        value: &[u8],
        limit: BootTime,
        interrupt: &mut dyn Interrupt,
        unsure: &mut bool,
    ) -> Result<Opinion, Fault> {
        let wake: &[Companion] =
            if self.companions.contains(&Companion::Wake) { &[Companion::Wake] } else { &[] };
        let patience = Patience { limit: Some(limit), ..Patience::default() };
        for companions in [wake, &[]] {
            let cmd = scripts::release(key, companions, value);
            let mut reply = self.exchange(&cmd, patience, interrupt);
            if reply.as_ref().is_err_and(is_broken_connection) {
                *unsure |= reply.as_ref().is_err_and(|fault| fault.ambiguous);
                reply = self.exchange(&cmd, patience, interrupt);
            }
            match reply {
                // Rights to the companion were taken away meanwhile: the lock itself must go.
                Err(fault) if fault.is_about_keys() && !companions.is_empty() => {}
                Err(fault) => {
                    *unsure |= fault.ambiguous;
                    return Err(fault);
                }
                Ok(reply) => return opinion(reply),
            }
        }
        Err(Fault::shape())
    }

    /// After an attempt of unknown outcome: makes sure that `value` does not stay at `key`, in at most
    /// `longest`. False: the interrupt came first.
    ///
    /// The release goes out twice. On the connection of the attempt it cannot overtake it, and needs
    /// no answer: a server that was stopped finds it behind the attempt when it wakes. On a fresh
    /// connection it gets through where the old path swallows what it is given.
    pub fn disown(
        &mut self,
        key: &Key,
        value: &[u8],
        longest: Duration,
        interrupt: &mut dyn Interrupt,
    ) -> bool {
        let until = BootTime::now() + longest;
        let cmd = scripts::release(key, &[], value).get_packed_command();
        if let Some(mut connection) = self.doubtful.take() {
            // Takes no time: either the socket has room for it or the path is dead.
            let _ = connection.send(&cmd, BootTime::now(), &mut Never);
        }
        self.live = None;
        let released = self.release(key, value, until, interrupt, &mut false);
        !released.is_err_and(|fault| fault.kind == FaultKind::Interrupted)
    }

    /// Waits at most `longest` for the baton of a release. Whatever the answer, the lock has to be
    /// asked for again. `Ok(false)`: this user or this server has no batons; polls from now on.
    pub fn wait_for_baton(
        &mut self,
        key: &Key,
        longest: Duration,
        interrupt: &mut dyn Interrupt,
    ) -> Result<bool, Fault> {
        let cmd = scripts::wait_for_baton(key, longest);
        match self.exchange(&cmd, Patience { extra: longest, limit: None }, interrupt) {
            Ok(_) => Ok(true),
            Err(fault) if matches!(fault.kind, FaultKind::Denied | FaultKind::NotALock) => {
                self.batons = false;
                Ok(false)
            }
            Err(fault) => Err(fault),
        }
    }

    /// A waiter leaves and may have taken a baton: leaves one again if the lock is free.
    pub fn pass_on(&mut self, key: &Key, limit: BootTime, interrupt: &mut dyn Interrupt) {
        if self.has_batons() {
            let patience = Patience { limit: Some(limit), ..Patience::default() };
            let _ = self.exchange(&scripts::pass_on(key), patience, interrupt);
        }
    }

    /// What stands at `key`: its type, the time it has left, its value. `None`: nothing.
    pub fn look(
        &mut self,
        key: &Key,
        interrupt: &mut dyn Interrupt,
    ) -> Result<Option<(String, Busy)>, Fault> {
        let (reply, _) =
            self.exchange(&scripts::look(key), Patience::default(), interrupt).map_err(|fault| {
                let needed = ["eval", "type", "pttl", "getrange"];
                if fault.kind == FaultKind::Denied { self.with_hint(fault, key, &needed) } else { fault }
            })?;
        let Value::Array(parts) = reply else { return Err(Fault::shape()) };
        let [kind, Value::Int(pttl), Value::BulkString(value)] = parts.as_slice() else {
            return Err(Fault::shape());
        };
        let kind = text(kind)?;
        let found = Busy { value: value.clone(), expires_in: left(*pttl) };
        Ok((kind != "none").then_some((kind, found)))
    }

    /// Waits for nothing but `until` or the interrupt (`true`).
    pub fn pause(until: BootTime, interrupt: &mut dyn Interrupt) -> bool {
        matches!(wait_silent(until, interrupt), Err(Io::Interrupted))
    }

    /// Forgets the connection, as after an outage, so that the name is resolved again.
    pub fn disconnect(&mut self) {
        self.live = None;
    }
}

fn read_acquire(key: &Key, reply: Value, sent_at: BootTime) -> Result<Attempt, Fault> {
    let Value::Array(parts) = reply else { return Err(Fault::shape()) };
    match parts.as_slice() {
        [Value::Int(1), fencing] => {
            let fencing = text(fencing)?;
            Ok(Attempt::Acquired(Acquired { sent_at, fencing: fencing.parse().ok() }))
        }
        [Value::Int(0), Value::Int(pttl), Value::BulkString(value), kind] => match text(kind)?.as_str() {
            "string" => Ok(Attempt::Busy(Busy { value: value.clone(), expires_in: left(*pttl) })),
            other => {
                let article = if other.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
                let other = crate::escape::escape(other.as_bytes());
                let mut fault =
                    Fault::new(FaultKind::NotALock, format!("{key} holds {article} {other}, not a lock"));
                fault.hint = Some("another application uses this key; choose another --key".into());
                Err(fault)
            }
        },
        _ => Err(Fault::shape()),
    }
}

fn foreign_fence(key: &Key) -> Fault {
    let name = crate::escape::quote(&key.companion(Companion::Fence));
    let text = format!("{name}, the counter of fencing tokens, holds something else");
    let mut fault = Fault::new(FaultKind::NotALock, text);
    fault.hint = Some("choose another --key, or do without with --no-fencing".into());
    fault
}

fn opinion((reply, sent_at): (Value, BootTime)) -> Result<Opinion, Fault> {
    match reply {
        Value::Int(1) => Ok(Opinion::Ours(sent_at)),
        Value::Int(0) => Ok(Opinion::NotOurs),
        _ => Err(Fault::shape()),
    }
}

/// PTTL: below zero there is none. (-2, gone meanwhile, comes only from non-atomic reads.)
fn left(pttl: i64) -> Option<Duration> {
    u64::try_from(pttl).ok().map(Duration::from_millis)
}

fn text(value: &Value) -> Result<String, Fault> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Ok(text.clone()),
        Value::Int(number) => Ok(number.to_string()),
        _ => Err(Fault::shape()),
    }
}
