//! `status`: who holds a lock. Reads only.

use crate::cli::StatusArgs;
use crate::config;
use crate::duration::show;
use crate::escape::escape;
use crate::exit_status::{Ending, ExitStatus};
use crate::lease::{Holder, Key, Seen};
use crate::messages::say;
use crate::node::{Busy, Fault, Never, Node};
use crate::report;
use anyhow::{Context, Result};
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, SystemTime};

/// Between two looks of `--watch`.
const EVERY: Duration = Duration::from_secs(1);

/// One key's state, as `--json` prints it. Members are only ever added.
#[derive(Serialize)]
struct State {
    key: String,
    /// `held`, `free`, or `not-a-lock`. Held without a holder: by another tool.
    state: &'static str,
    #[serde(flatten)]
    holder: Option<Holder>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_for_ms: Option<u64>,
    /// Absent when nothing is there; null when it never runs out.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<serde_json::Value>,
    /// The type of a key that is no lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<String>,
}

/// Prints one line per key; 0 if all are held, 1 if any is free.
pub fn status(args: &StatusArgs) -> Result<Ending> {
    let keys =
        args.keys.iter().map(|key| config::key(Some(key))).collect::<std::result::Result<Vec<_>, _>>()?;
    let (mut node, default_url) = config::node(&args.server)?;
    let stop = if args.watch { Some(until_interrupted()?) } else { None };
    loop {
        let states = match look(&mut node, &keys) {
            Ok(states) => states,
            Err(fault) => {
                say(&report::fault(&node.address().to_string(), &fault, default_url));
                return Ok(report::status(fault.kind).into());
            }
        };
        print(args, &states)?;
        let ending = if states.iter().any(|state| state.state == "free") {
            ExitStatus::Free
        } else {
            ExitStatus::Success
        };
        match stop.as_ref().map(|stop| stop.recv_timeout(EVERY)) {
            Some(Err(RecvTimeoutError::Timeout)) => {}
            _ => return Ok(ending.into()),
        }
    }
}

/// ^C, TERM and HUP end the watch between two lines, with the status of the last.
fn until_interrupted() -> Result<Receiver<()>> {
    let (sender, receiver) = sync_channel(1);
    ctrlc::set_handler(move || {
        let _ = sender.try_send(());
    })
    .context("cannot receive signals")?;
    Ok(receiver)
}

fn look(node: &mut Node, keys: &[Key]) -> std::result::Result<Vec<State>, Fault> {
    keys.iter().map(|key| Ok(state(key, node.look(key, &mut Never)?))).collect()
}

fn state(key: &Key, found: Option<(String, Busy)>) -> State {
    let key = String::from_utf8_lossy(key.as_bytes()).into_owned();
    let free =
        State { key, state: "free", holder: None, held_for_ms: None, expires_in_ms: None, r#type: None };
    let Some((kind, busy)) = found else { return free };
    let held = State { expires_in_ms: Some(serde_json::json!(busy.expires_in.map(whole_millis))), ..free };
    if kind != "string" {
        return State { state: "not-a-lock", r#type: Some(kind), ..held };
    }
    match Seen::parse(&busy.value) {
        Seen::Foreign => State { state: "held", ..held },
        Seen::Run(holder) => {
            let held_for_ms = holder.held_for(SystemTime::now()).map(whole_millis);
            State { state: "held", holder: Some(holder), held_for_ms, ..held }
        }
    }
}

fn print(args: &StatusArgs, states: &[State]) -> Result<()> {
    let mut out = String::new();
    if args.watch && !args.json && std::io::stdout().is_terminal() {
        out.push_str("\x1b[H\x1b[J");
    }
    for state in states {
        out.push_str(&if args.json { serde_json::to_string(state)? } else { line(state) });
        out.push('\n');
    }
    let mut stdout = std::io::stdout();
    match stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush()) {
        // Whoever read it has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.context("cannot write to standard output"),
    }
}

/// `held  deploy  ci@runner-7  pid 4211  deploy.sh  since …  (5m12s)  expires in 24s`
fn line(state: &State) -> String {
    let mut parts = vec![state.state.to_owned(), escape(state.key.as_bytes())];
    if let Some(holder) = &state.holder {
        parts.push(escape(holder.holder.as_bytes()));
        parts.push(format!("pid {}", holder.pid));
        parts.push(escape(holder.program.as_bytes()));
        parts.push(format!("since {}", escape(holder.since.as_bytes())));
        parts.extend(state.held_for_ms.map(|ms| format!("({})", show(Duration::from_millis(ms)))));
    }
    if state.state == "held" && state.holder.is_none() {
        parts.push("another tool".to_owned());
    }
    parts.extend(state.r#type.as_ref().map(|kind| escape(kind.as_bytes())));
    parts.extend(state.expires_in_ms.as_ref().map(|left| match left.as_u64() {
        Some(ms) => format!("expires in {}", show(Duration::from_millis(ms))),
        None => "has no expiry".to_owned(),
    }));
    parts.extend(
        state.holder.as_ref().and_then(|holder| holder.note.as_ref()).map(|note| escape(note.as_bytes())),
    );
    parts.join("  ")
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
