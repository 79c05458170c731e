//! Conversations with one Redis: connect when needed, log in, send one script, read its reply.

use super::address::{Address, Credentials};
use super::connection::{Connection, Io, wait_silent};
use super::interrupt::{Interrupt, Never};
use super::reply::{Fault, FaultKind};
use super::scripts;
use crate::clock::BootTime;
use crate::lease::{Companion, Key};
use redis::{Cmd, Value};
use std::fmt::Write;
use std::time::Duration;

/// What to do when Redis wants to know who we are.
const LOGIN_HINT: &str =
    "set the password with --password-file, REDLOCK_RUN_PASSWORD or the URL, the user with --user";

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
    address: Address,
    credentials: Credentials,
    timeouts: Timeouts,
    live: Option<Live>,
    /// Connection on which a command is under way whose reply nobody waits for any more.
    doubtful: Option<Connection>,
    /// What scripts of this run may touch besides the lock's key.
    companions: Vec<Companion>,
    batons: bool,
}

struct Live {
    connection: Connection,
    logged_in: bool,
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
    /// `longest`.
    ///
    /// The release goes out twice. On the connection of the attempt it cannot overtake it, and needs
    /// no answer: a server that was stopped finds it behind the attempt when it wakes. On a fresh
    /// connection it gets through where the old path swallows what it is given.
    pub fn disown(&mut self, key: &Key, value: &[u8], longest: Duration, interrupt: &mut dyn Interrupt) {
        let until = BootTime::now() + longest;
        let cmd = scripts::release(key, &[], value).get_packed_command();
        if let Some(mut connection) = self.doubtful.take() {
            // Takes no time: either the socket has room for it or the path is dead.
            let _ = connection.send(&cmd, BootTime::now(), &mut Never);
        }
        self.live = None;
        let _ = self.release(key, value, until, interrupt, &mut false);
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

/// The time that one exchange may take besides the configured timeouts.
#[derive(Clone, Copy, Default)]
struct Patience {
    /// Added to the command timeout: the server answers late on purpose.
    extra: Duration,
    /// No step goes on past this.
    limit: Option<BootTime>,
}

impl Patience {
    fn until(self, timeout: Duration) -> BootTime {
        let until = BootTime::now() + timeout;
        self.limit.map_or(until, |limit| limit.min(until))
    }
}

impl Node {
    /// [`Self::exchange`] for what may be carried out twice.
    fn repeatable(
        &mut self,
        cmd: &Cmd,
        patience: Patience,
        interrupt: &mut dyn Interrupt,
    ) -> Result<(Value, BootTime), Fault> {
        let reused = self.live.is_some();
        match self.exchange(cmd, patience, interrupt) {
            Err(fault) if reused && is_broken_connection(&fault) => self.exchange(cmd, patience, interrupt),
            done => done,
        }
    }

    /// Sends one command and reads its reply; also tells when it was sent. After any failure the
    /// connection is gone: a late reply must never answer the next command.
    fn exchange(
        &mut self,
        cmd: &Cmd,
        patience: Patience,
        interrupt: &mut dyn Interrupt,
    ) -> Result<(Value, BootTime), Fault> {
        self.doubtful = None;
        let mut live = match self.live.take() {
            Some(live) => live,
            None => self.connect(patience, interrupt)?,
        };
        let until = patience.until(self.timeouts.command + patience.extra);
        let login = if live.logged_in { None } else { self.login() };
        let mut bytes = login.as_ref().map(Cmd::get_packed_command).unwrap_or_default();
        cmd.write_packed_command(&mut bytes);
        let sent_at = BootTime::now();
        let mut converse = || {
            live.connection.send(&bytes, until, interrupt)?;
            interrupt.idle();
            let greeting = login.is_some().then(|| live.connection.receive(until, interrupt)).transpose()?;
            Ok((greeting, live.connection.receive(until, interrupt)?))
        };
        match converse() {
            Err(io) => {
                self.doubtful = Some(live.connection);
                Err(Fault::from_io(io, true))
            }
            Ok((Some(Value::ServerError(refusal)), reply)) => {
                // The default user may be open: then the command was carried out as somebody else.
                let fault = self.named(Fault::from_reply(&refusal));
                Err(Fault {
                    ambiguous: !matches!(reply, Value::ServerError(_)),
                    kind: FaultKind::Denied,
                    ..fault
                })
            }
            Ok((_, Value::ServerError(error))) => {
                let fault = self.named(Fault::from_reply(&error));
                // A server that cannot serve may be a demoted one: ask the name again next time.
                if fault.kind != FaultKind::Unavailable {
                    self.live = Some(Live { logged_in: true, ..live });
                }
                Err(fault)
            }
            Ok((_, reply)) => {
                self.live = Some(Live { logged_in: true, ..live });
                Ok((reply, sent_at))
            }
        }
    }

    fn connect(&self, patience: Patience, interrupt: &mut dyn Interrupt) -> Result<Live, Fault> {
        let until = patience.until(self.timeouts.connect);
        let connection = Connection::open(&self.address, until, self.timeouts.command, interrupt)
            .map_err(|io| self.unreachable(io))?;
        let mut live = Live { connection, logged_in: false };
        if self.address.database != 0 {
            self.select(&mut live, patience, interrupt)?;
        }
        Ok(live)
    }

    /// Never in one pipeline with a script: a failed SELECT would lock in database 0.
    fn select(
        &self,
        live: &mut Live,
        patience: Patience,
        interrupt: &mut dyn Interrupt,
    ) -> Result<(), Fault> {
        let until = patience.until(self.timeouts.command);
        let login = self.login();
        let mut bytes = login.as_ref().map(Cmd::get_packed_command).unwrap_or_default();
        redis::cmd("SELECT").arg(self.address.database).write_packed_command(&mut bytes);
        let mut converse = || {
            live.connection.send(&bytes, until, interrupt)?;
            let greeting = login.is_some().then(|| live.connection.receive(until, interrupt)).transpose()?;
            Ok([greeting.unwrap_or(Value::Okay), live.connection.receive(until, interrupt)?])
        };
        // No lock was asked for yet: nothing to clean up.
        for reply in converse().map_err(|io| Fault::from_io(io, false))? {
            if let Value::ServerError(error) = reply {
                let fault = self.named(Fault::from_reply(&error));
                let hint = self.acl_line("", &["select"]);
                return Err(Fault {
                    hint: fault.hint.or((fault.kind == FaultKind::Denied).then_some(hint)),
                    ..fault
                });
            }
        }
        live.logged_in = true;
        Ok(())
    }

    fn login(&self) -> Option<Cmd> {
        let password = self.credentials.password.as_ref()?;
        let mut cmd = redis::cmd("AUTH");
        if let Some(user) = &self.credentials.user {
            cmd.arg(user);
        }
        cmd.arg(password);
        Some(cmd)
    }

    fn unreachable(&self, io: Io) -> Fault {
        let mut fault = Fault::from_io(io, false);
        if fault.kind == FaultKind::Unavailable && fault.text == "timed out" {
            fault.text = format!("timed out after {}", crate::duration::show(self.timeouts.connect));
        }
        fault
    }

    /// Adds who was refused, and what to do about it.
    fn named(&self, mut fault: Fault) -> Fault {
        match fault.kind {
            FaultKind::Denied => {
                let user =
                    crate::escape::quote(self.credentials.user.as_deref().unwrap_or("default").as_bytes());
                if fault.is_about_login() {
                    fault.hint = Some(LOGIN_HINT.into());
                }
                fault.text = format!("user {user}: {}", fault.in_plain_words());
            }
            FaultKind::Misconfigured if fault.text.contains("DB index") => {
                let database = self.address.database;
                fault.hint = Some(format!("database {database} is not there; see 'databases' in redis.conf"));
            }
            FaultKind::Misconfigured => {
                fault.hint =
                    Some("this Redis is part of a cluster, which this version does not support".into());
            }
            _ => {}
        }
        fault
    }

    /// Asks for each companion whether this user may touch it, and leaves out what it may not.
    fn leave_out_refused(&mut self, key: &Key, interrupt: &mut dyn Interrupt) -> Result<(), Fault> {
        let mut refused = Vec::new();
        let fault_at = |node: &mut Self, name: &[u8], interrupt: &mut dyn Interrupt| {
            node.exchange(&scripts::may_use(name), Patience::default(), interrupt).err()
        };
        if let Some(fault) = fault_at(self, key.as_bytes(), interrupt) {
            return Err(self.with_rights(fault, key));
        }
        for companion in self.companions.clone() {
            match fault_at(self, &key.companion(companion), interrupt) {
                Some(fault) if fault.is_about_keys() && companion == Companion::Fence => {
                    let mut fault = self.with_rights(fault, key);
                    fault.text = format!("{} (the counter of fencing tokens, {}:fence)", fault.text, key);
                    fault.hint =
                        Some(format!("--no-fencing does without, or: {}", fault.hint.unwrap_or_default()));
                    return Err(fault);
                }
                Some(fault) if fault.is_about_keys() => refused.push(companion),
                Some(fault) => return Err(fault),
                None => {}
            }
        }
        if refused.is_empty() {
            // Refused, and yet nothing of it is: rights that changed under us. Do not ask for ever.
            return Err(Fault::new(FaultKind::Denied, "the rights of this user are changing"));
        }
        self.companions.retain(|companion| !refused.contains(companion));
        Ok(())
    }

    /// Adds to a refusal the rights that are needed, as a line that works when pasted.
    fn with_rights(&self, fault: Fault, key: &Key) -> Fault {
        if fault.kind != FaultKind::Denied || fault.hint.is_some() {
            return fault;
        }
        let mut commands = scripts::NEEDED_COMMANDS.to_vec();
        if self.companions.contains(&Companion::Fence) {
            commands.extend(scripts::FENCING_COMMANDS);
        }
        commands.extend(scripts::WAITING_COMMANDS);
        self.with_hint(fault, key, &commands)
    }

    fn with_hint(&self, mut fault: Fault, key: &Key, commands: &[&str]) -> Fault {
        let pattern = glob_escape(key.as_bytes());
        let mut commands = commands.to_vec();
        if self.address.database != 0 {
            commands.push("select");
        }
        fault.hint.get_or_insert(self.acl_line(&pattern, &commands));
        fault
    }

    /// `ACL SETUSER …`, quoted for redis-cli.
    fn acl_line(&self, pattern: &str, commands: &[&str]) -> String {
        let user = self.credentials.user.as_deref().unwrap_or("default");
        let mut words = vec!["ACL SETUSER".to_owned(), quote_word(user)];
        if !pattern.is_empty() {
            words.push(quote_word(&format!("~{pattern}")));
            words.push(quote_word(&format!("~{pattern}:*")));
        }
        words.extend(commands.iter().map(|command| format!("+{command}")));
        words.join(" ")
    }
}

/// Whether trying on a fresh connection can help at once: the old one was closed or reset, which
/// proxies and servers do to idle ones.
fn is_broken_connection(fault: &Fault) -> bool {
    fault.kind == FaultKind::Unavailable && fault.ambiguous && fault.text != "timed out"
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

/// A key as an ACL pattern that matches it alone.
fn glob_escape(key: &[u8]) -> String {
    let mut pattern = String::new();
    for byte in key {
        match byte {
            b'*' | b'?' | b'[' | b']' | b'\\' => pattern.extend(['\\', char::from(*byte)]),
            0x21..=0x7e => pattern.push(char::from(*byte)),
            // redis-cli understands \xHH inside double quotes.
            other => drop(write!(pattern, "\u{0}x{other:02x}")),
        }
    }
    pattern
}

/// A word for redis-cli: quoted when it has to be. `\0` stands for the backslash of an escape that is
/// redis-cli's own.
fn quote_word(word: &str) -> String {
    if word.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\')) {
        return word.to_owned();
    }
    let inner = word.replace('\\', "\\\\").replace('"', "\\\"").replace('\0', "\\");
    format!("\"{}\"", crate::escape::escape(inner.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::{glob_escape, quote_word};

    #[test]
    fn acl_patterns_match_the_key_alone_and_can_be_pasted() {
        for (key, pasted) in [
            (&b"job"[..], "~job"),
            (b"job[1]", r#""~job\\[1\\]""#),
            (b"a b*", r#""~a\x20b\\*""#),
            (b"q\"\n", r#""~q\"\x0a""#),
        ] {
            assert_eq!(quote_word(&format!("~{}", glob_escape(key))), pasted);
        }
    }
}
