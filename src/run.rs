//! A run, as the product's story: acquire, spawn, keep, supervise, release, end as the job did.
//!
//! The only place that knows both the lock and the job. They meet in three things: the page, on which
//! the keeper notes leases and the guard reads them; the bell, which the keeper rings when the main
//! thread should look; and this order, which never releases a lock whose job is still there.

use crate::child::{Cause, JobStatus, Policy, Prepared, Signals, StartError, Terminal};
use crate::cli::RunArgs;
use crate::clock::BootTime;
use crate::config::{Loudness, RunConfig};
use crate::duration::show;
use crate::exit_status::{Ending, ExitStatus};
use crate::lease::{Key, Timing};
use crate::lock::{Held, Keeper, NotAcquired, Patience, Progress, acquire, release};
use crate::messages::say;
use crate::node::{Busy, Interrupt};
use crate::report::{self, Waiting};
use crate::story::{Story, Teller};
use anyhow::{Context, Result};
use std::ffi::CString;
use std::os::fd::BorrowedFd;

/// Carries out a run. Errors are what no status of its own describes: the system refused something.
pub fn run(args: &RunArgs) -> Result<Ending> {
    Signals::block_all();
    let mut config = RunConfig::new(args)?;
    let (group, terminal) = Terminal::detect();
    let policy = Policy {
        group,
        grace: config.want.timing.grace(),
        kill_after: config.kill_after,
        half_margin: config.want.timing.half_margin(),
        term_signal: config.signal,
        stops_on_loss: config.stops_on_loss,
    };
    // The job may need it for as long as there is this process.
    let (argv, guarded) = (std::mem::take(&mut config.argv).leak(), config.guarded);
    let mut signals = Signals::install().context("cannot receive signals")?;
    // The guard is forked while the first request is on its way: with one thread still.
    let room = room_for_additions(&config.want.key);
    let mut preparing = Preparing { argv, policy, guarded, room, prepared: None };
    let held = take_lock(&mut config, &mut signals, &mut preparing);
    match (held, preparing.prepared) {
        (Err(ending), _) => Ok(ending),
        (Ok(held), Some(Ok(prepared))) => {
            under_lock(config, &held, prepared, &mut signals, terminal.as_ref())
        }
        (Ok(held), prepared) => {
            release(&mut config.node, &config.want.key, &held.value, &mut UntilSignal::new(&mut signals, 2));
            match prepared {
                Some(Err(error)) => Err(error.into()),
                _ => Ok(ExitStatus::Bug.into()),
            }
        }
    }
}

/// Takes the lock, or says how to end without it. The job is prepared when there is time for it, before
/// anything is said.
fn take_lock(
    config: &mut RunConfig,
    signals: &mut Signals,
    preparing: &mut Preparing,
) -> std::result::Result<Held, Ending> {
    let want = &config.want;
    let address = config.node.address().to_string();
    let mut waiting =
        Waiting::new(&want.key, address.clone(), config.default_url, want.patience, config.loudness);
    let mut until_signal = UntilSignal { preparing: Some(preparing), ..UntilSignal::new(signals, 1) };
    let outcome = acquire(&mut config.node, want, &mut until_signal, &mut |progress: Progress<'_>| {
        waiting.hear(&progress);
    });
    waiting.end();
    // A signal in the very moment of acquisition: better no job than one that is told to end at once.
    let interrupted = until_signal.interrupted().then_some(until_signal.last).flatten();
    match (outcome, interrupted) {
        (Ok(held), None) => {
            tell_acquired(config, &held, &waiting);
            Ok(held)
        }
        (Ok(held), Some(signal)) => {
            release(&mut config.node, &config.want.key, &held.value, &mut UntilSignal::new(signals, 2));
            Err(Ending::Signal(signal))
        }
        (Err(NotAcquired::Interrupted), signal) => Err(signal.map_or(ExitStatus::Bug.into(), Ending::Signal)),
        (Err(NotAcquired::Busy(busy)), _) => Err(tell_busy(config, &busy, &waiting)),
        (Err(NotAcquired::Unavailable(fault) | NotAcquired::Fatal(fault)), _) => {
            say(&report::fault(&address, &fault, config.default_url));
            Err(report::status(fault.kind).into())
        }
    }
}

fn tell_busy(config: &RunConfig, busy: &Busy, waiting: &Waiting<'_>) -> Ending {
    let key = &config.want.key;
    if config.loudness > Loudness::Quiet && (config.conflict != 0 || config.loudness == Loudness::Verbose) {
        if config.want.patience == Patience::Once {
            say(&report::held(key, busy));
        } else {
            let holder = report::holder(busy);
            let fact =
                format!("gave up on lock {key} after {}; still held by {holder}", show(waiting.waited()));
            say(&format!(
                "{fact}\n{}",
                report::hint(&format!("redlock-run status {}", crate::escape::escape(key.as_bytes())))
            ));
        }
    }
    Ending::Code(config.conflict)
}

fn tell_acquired(config: &RunConfig, held: &Held, waiting: &Waiting<'_>) {
    if config.loudness == Loudness::Verbose {
        let fencing = held.fencing.map(|token| format!(", fencing token {token}")).unwrap_or_default();
        let waited = show(waiting.waited());
        say(&format!(
            "acquired lock {} in {waited} (token {:?}{fencing})",
            config.want.key,
            held.value.token()
        ));
    }
}

/// With the lock held: the job, from its start to the release.
fn under_lock(
    config: RunConfig,
    held: &Held,
    prepared: Prepared,
    signals: &mut Signals,
    terminal: Option<&Terminal>,
) -> Result<Ending> {
    let RunConfig { want, mut node, loudness, stops_on_loss, .. } = config;
    let page = prepared.page();
    page.extend(held.lease);
    let started = BootTime::now();
    let mark = [b"REDLOCK_RUN_TOKEN=", held.value.token().to_string().as_bytes()].concat();
    let start = || -> Result<_> {
        let story = Story::new(page, &want, loudness, stops_on_loss, started, held.lease)?;
        let additions = environment(&want.key, held, &want.timing)?;
        // Nothing of the job can have got these.
        let early = signals.take_all();
        Ok((story, prepared.start(&additions, &mark, early)?))
    };
    let (story, mut job) = match start() {
        Ok(started) => started,
        Err(error) => {
            release(&mut node, &want.key, &held.value, &mut UntilSignal::new(signals, 2));
            return Err(error);
        }
    };
    let mut teller =
        Teller { story: &story, keeper: Keeper::new(node, &want.key, &held.value, want.timing, held.lease) };
    let end = job.supervise(signals, terminal, &mut teller);
    if let (Some(JobStatus::Killed(_)), Some(terminal)) = (end.status, terminal) {
        terminal.restore();
    }
    if loudness == Loudness::Verbose && end.cause == Cause::Itself {
        story.tell_left_behind(job.left_behind());
    }
    // The tree is at its end; what lives on may. The guard goes while the release is under way.
    let dismissed = job.dismiss();
    let released = match teller.keeper.stop() {
        // Nothing of ours is touched after a loss, nor while something of the job is still there.
        _ if story.is_lost() || end.cause == Cause::Undying => None,
        None => None,
        Some(mut node) => {
            let mut second = UntilSignal::new(signals, if end.asked { 1 } else { 2 });
            Some(release(&mut node, &want.key, &held.value, &mut second))
        }
    };
    dismissed.wait();
    Ok(story.ending(end, released.as_ref()))
}

/// The tokens of the runs around this one, as they are found in the environment.
fn outer_tokens() -> Vec<u8> {
    std::env::var_os("REDLOCK_RUN_HELD").unwrap_or_default().into_encoded_bytes()
}

/// Bytes for [`environment`]: the key, the outer tokens, and less than 512 for names, our token (twice)
/// and the numbers.
fn room_for_additions(key: &Key) -> usize {
    key.as_bytes().len() + outer_tokens().len() + 512
}

/// What the job finds in its environment besides the caller's.
fn environment(key: &Key, held: &Held, timing: &Timing) -> Result<Vec<CString>> {
    let token = held.value.token().to_string();
    let mut tokens = outer_tokens();
    if !tokens.is_empty() {
        tokens.push(b' ');
    }
    tokens.extend_from_slice(token.as_bytes());
    let mut entries = vec![
        ("KEY", key.as_bytes().to_vec()),
        ("TOKEN", token.into_bytes()),
        ("HELD", tokens),
        ("LEASE_MS", timing.ttl().as_millis().to_string().into_bytes()),
    ];
    if let Some(fencing) = held.fencing {
        entries.push(("FENCING_TOKEN", fencing.to_string().into_bytes()));
    }
    let entry = |(name, value): (&str, Vec<u8>)| {
        CString::new([b"REDLOCK_RUN_", name.as_bytes(), b"=", &value].concat())
    };
    Ok(entries.into_iter().map(entry).collect::<std::result::Result<_, _>>()?)
}

/// The job to be, and what it takes to make it ready.
struct Preparing {
    argv: &'static [CString],
    policy: Policy,
    guarded: bool,
    /// Bytes that the additions to the environment will need at most.
    room: usize,
    prepared: Option<std::result::Result<Prepared, StartError>>,
}

impl Preparing {
    fn prepare(&mut self) {
        if self.prepared.is_none() {
            self.prepared = Some(Prepared::new(self.argv, self.policy, self.guarded, self.room));
        }
    }
}

/// Interrupts when enough signals have come that should end this process.
struct UntilSignal<'a> {
    signals: &'a mut Signals,
    /// How many it takes.
    patience: u32,
    last: Option<i32>,
    /// What is to be done while waiting.
    preparing: Option<&'a mut Preparing>,
}

impl<'a> UntilSignal<'a> {
    fn new(signals: &'a mut Signals, patience: u32) -> Self {
        Self { signals, patience, last: None, preparing: None }
    }
}

impl Interrupt for UntilSignal<'_> {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.signals.fd())
    }

    fn interrupted(&mut self) -> bool {
        if let Some(signal) = self.signals.deadly() {
            self.last = Some(signal);
            self.patience = self.patience.saturating_sub(1);
        }
        if self.signals.child_changed()
            && let Some(Some(Ok(prepared))) =
                self.preparing.as_ref().map(|preparing| preparing.prepared.as_ref())
        {
            prepared.reap_orphans();
        }
        self.patience == 0
    }

    fn idle(&mut self) {
        if let Some(preparing) = &mut self.preparing {
            preparing.prepare();
        }
    }
}
