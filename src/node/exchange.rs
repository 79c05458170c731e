//! One command, one reply: connecting, logging in, selecting the database, and what is left when any of
//! it fails.

use super::connection::{Connection, Io};
use super::interrupt::Interrupt;
use super::reply::{Fault, FaultKind};
use super::session::Node;
use crate::clock::BootTime;
use redis::{Cmd, Value};
use std::time::Duration;

/// What to do when Redis wants to know who we are.
const LOGIN_HINT: &str =
    "set the password with --password-file, REDLOCK_RUN_PASSWORD or the URL, the user with --user";

/// A connection in use.
pub(super) struct Live {
    connection: Connection,
    logged_in: bool,
}

/// The time that one exchange may take besides the configured timeouts.
#[derive(Clone, Copy, Default)]
pub(super) struct Patience {
    /// Added to the command timeout: the server answers late on purpose.
    pub(super) extra: Duration,
    /// No step goes on past this.
    pub(super) limit: Option<BootTime>,
}

impl Patience {
    fn until(self, timeout: Duration) -> BootTime {
        let until = BootTime::now() + timeout;
        self.limit.map_or(until, |limit| limit.min(until))
    }
}

impl Node {
    /// [`Self::exchange`] for what may be carried out twice.
    pub(super) fn repeatable(
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
    pub(super) fn exchange(
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
}

/// Whether trying on a fresh connection can help at once: the old one was closed or reset, which
/// proxies and servers do to idle ones.
pub(super) fn is_broken_connection(fault: &Fault) -> bool {
    fault.kind == FaultKind::Unavailable && fault.ambiguous && fault.text != "timed out"
}
