//! A run, as the product's story: acquire, spawn, keep, supervise, release, end as the job did.
//!
//! The only place that knows both the lock and the job. They meet in three things: the page, on which
//! the keeper notes leases and the guard reads them; the bell, which the keeper rings when the main
//! thread should look; and this order, which never releases a lock whose job is still there.

use crate::child::command::CannotRun;
use crate::child::{Cause, End, Events, JobStatus, Page, Policy, Prepared, Signals, Terminal, signal_name};
use crate::cli::RunArgs;
use crate::clock::BootTime;
use crate::config::{Loudness, RunConfig, cannot_run};
use crate::duration::show;
use crate::exit_status::{Ending, ExitStatus};
use crate::lease::{Lease, Timing};
use crate::lock::{Held, Keeper, Loss, NotAcquired, Patience, Progress, Released, Watch, acquire, release};
use crate::messages::say;
use crate::node::{Busy, Fault, Interrupt};
use crate::report::{self, Waiting};
use anyhow::{Context, Result};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

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
    let (argv, guarded) = (std::mem::take(&mut config.argv), config.guarded);
    let mut signals = Signals::install().context("cannot receive signals")?;
    // The guard is forked while the first request is on its way: with one thread, and at no cost.
    let mut prepared = None;
    let held = take_lock(&mut config, &mut signals, &mut || {
        if prepared.is_none() {
            prepared = Some(Prepared::new(&argv, policy, guarded));
        }
    });
    match (held, prepared) {
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

/// Takes the lock, or says how to end without it. `prepare` is called when there is time for it, at least
/// once, before anything is said.
fn take_lock(
    config: &mut RunConfig,
    signals: &mut Signals,
    prepare: &mut dyn FnMut(),
) -> std::result::Result<Held, Ending> {
    let want = &config.want;
    let address = config.node.address().to_string();
    let mut waiting =
        Waiting::new(&want.key, address.clone(), config.default_url, want.patience, config.loudness);
    let mut until_signal = UntilSignal { prepare: Some(prepare), ..UntilSignal::new(signals, 1) };
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
    let additions = environment(&want.key, held, &want.timing)?;
    let mark = [b"REDLOCK_RUN_TOKEN=", held.value.token().to_string().as_bytes()].concat();
    let mut job = match prepared.start(additions, &mark) {
        Ok(job) => job,
        Err(error) => {
            release(&mut node, &want.key, &held.value, &mut UntilSignal::new(signals, 2));
            return Err(error.into());
        }
    };
    let story = Story::new(page, &want, loudness, stops_on_loss, started, held.lease)?;
    let mut teller =
        Teller { story: &story, keeper: Keeper::new(node, &want.key, &held.value, want.timing, held.lease) };
    let end = job.supervise(signals, terminal, &mut teller);
    if let (Some(JobStatus::Killed(_)), Some(terminal)) = (end.status, terminal) {
        terminal.restore();
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

/// What the job finds in its environment besides the caller's.
fn environment(key: &crate::lease::Key, held: &Held, timing: &Timing) -> Result<Vec<CString>> {
    let token = held.value.token().to_string();
    let mut tokens = std::env::var_os("REDLOCK_RUN_HELD").unwrap_or_default().into_encoded_bytes();
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

/// Interrupts when enough signals have come that should end this process.
struct UntilSignal<'a> {
    signals: &'a mut Signals,
    /// How many it takes.
    patience: u32,
    last: Option<i32>,
    /// What is to be done while waiting.
    prepare: Option<&'a mut dyn FnMut()>,
}

impl<'a> UntilSignal<'a> {
    fn new(signals: &'a mut Signals, patience: u32) -> Self {
        Self { signals, patience, last: None, prepare: None }
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
        self.patience == 0
    }

    fn idle(&mut self) {
        if let Some(prepare) = &mut self.prepare {
            prepare();
        }
    }
}

/// What keeper and main thread both know of the run.
struct Story {
    shared: Arc<Shared>,
}

struct Shared {
    page: Page,
    bell: EventFd,
    lost: AtomicBool,
    /// The lease ran out unheard of, and the job goes on.
    lapsed: AtomicBool,
    nobody_keeps: AtomicBool,
    news: Mutex<News>,
    key: crate::lease::Key,
    program: String,
    timing: Timing,
    loudness: Loudness,
    stops_on_loss: bool,
    started: BootTime,
}

/// What the keeper learned last.
struct News {
    lease: Lease,
    trouble: Option<String>,
}

impl Story {
    fn new(
        page: Page,
        want: &crate::lock::Want,
        loudness: Loudness,
        stops_on_loss: bool,
        started: BootTime,
        lease: Lease,
    ) -> Result<Self> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .context("cannot make an eventfd")?;
        let shared = Shared {
            page,
            bell,
            lost: AtomicBool::new(false),
            lapsed: AtomicBool::new(false),
            nobody_keeps: AtomicBool::new(false),
            news: Mutex::new(News { lease, trouble: None }),
            key: want.key.clone(),
            program: want.holder.program.clone(),
            timing: want.timing,
            loudness,
            stops_on_loss,
            started,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    fn watch(&self) -> Watcher {
        Watcher(Arc::clone(&self.shared))
    }

    fn is_lost(&self) -> bool {
        self.shared.lost.load(Ordering::SeqCst)
    }

    /// The end of the story: what is still to be said, and the status.
    ///
    /// | end | lock | status |
    /// |---|---|---|
    /// | the lease ended it | | 79, and the job's own is told |
    /// | by itself, 0 | lost | 79 |
    /// | by itself, otherwise | any | the job's own |
    /// | execve failed | | 126, 127 |
    fn ending(&self, end: End, released: Option<&Released>) -> Ending {
        if !matches!(end.cause, Cause::NeverStarted | Cause::NoGuard) {
            self.tell_released(released);
        }
        // Released after all: it was ours to the end.
        let lapsed = self.shared.lapsed.load(Ordering::SeqCst) && released != Some(&Released::Yes);
        let lost = self.is_lost() || lapsed || released == Some(&Released::Lost);
        match (end.cause, end.status) {
            (Cause::ExecFailed(errno), _) => {
                let error = cannot_run(OsStr::new(&self.shared.program), false, CannotRun::from_errno(errno));
                say(&error.fact);
                error.status.into()
            }
            (Cause::ForkFailed(errno), _) => {
                say(&format!("cannot fork: {}", nix::errno::Errno::from_raw(errno).desc()));
                ExitStatus::System.into()
            }
            (Cause::NoGuard, _) => {
                say("the guard process was killed before the command could start; nothing was run");
                ExitStatus::System.into()
            }
            (Cause::NeverStarted, _) => {
                say(&format!(
                    "the lease of lock {} ran out before the command could start; nothing was run",
                    self.shared.key
                ));
                ExitStatus::LockLost.into()
            }
            (Cause::Undying, _) => {
                let hint = report::hint(
                    "it may be stuck in the kernel (state D) or frozen; see ps and the control group",
                );
                say(&format!(
                    "{} was killed but does not die; lock {} is left to expire\n{hint}",
                    self.program(),
                    self.shared.key
                ));
                ExitStatus::LockLost.into()
            }
            (Cause::Lease, status) => {
                if let Some(status) = status {
                    say(&format!("{} {} after it was told to stop", self.program(), describe(status)));
                }
                ExitStatus::LockLost.into()
            }
            (Cause::Itself, Some(JobStatus::Exited(0))) if lost => ExitStatus::LockLost.into(),
            (Cause::Itself, Some(JobStatus::Exited(code))) => Ending::Code(code),
            (Cause::Itself, Some(JobStatus::Killed(signal))) => Ending::Signal(signal),
            (Cause::Itself, None) => ExitStatus::Bug.into(),
        }
    }

    fn tell_released(&self, released: Option<&Released>) {
        let shared = &self.shared;
        match released {
            Some(Released::Yes) if shared.loudness == Loudness::Verbose => {
                say(&format!("released lock {} after {}", shared.key, self.held_for()));
            }
            Some(Released::Yes) | None => {}
            Some(Released::Lost) => {
                let fact = format!("lock {} was lost while {} ran", shared.key, self.program());
                say(&format!("{fact}: the key was not ours any more at the end"));
            }
            Some(Released::Unconfirmed(cause)) => {
                say(&format!(
                    "could not release lock {} ({cause}); it expires in {}",
                    shared.key,
                    self.expires_in()
                ));
            }
            Some(Released::Interrupted) => {
                say(&format!("gave up releasing lock {}; it expires in {}", shared.key, self.expires_in()));
            }
        }
    }

    fn held_for(&self) -> String {
        show(BootTime::now().after(self.shared.started))
    }

    /// Until Redis lets the key go at the latest.
    fn expires_in(&self) -> String {
        let lease = self.shared.news.lock().map_or_else(|news| news.into_inner().lease, |news| news.lease);
        let now = BootTime::now();
        // What `valid_until` leaves off for drift is a hundredth: not worth telling.
        show(lease.valid_until.after(now))
    }

    fn program(&self) -> String {
        self.shared.program()
    }
}

impl Shared {
    fn program(&self) -> String {
        let pid = self.page.job();
        format!("{} (pid {pid})", crate::escape::quote(self.program.as_bytes()))
    }

    /// What a loss means for the job.
    fn consequence(&self) -> String {
        if self.stops_on_loss {
            format!("stopping {}", self.program())
        } else {
            format!("{} goes on", self.program())
        }
    }

    fn ring(&self) {
        let _ = self.bell.write(1);
    }
}

fn describe(status: JobStatus) -> String {
    match status {
        JobStatus::Exited(code) => format!("ended with status {code}"),
        JobStatus::Killed(signal) => format!("was killed by {}", signal_name(signal)),
    }
}

/// The keeper's side. Acts on the page first and talks afterwards.
struct Watcher(Arc<Shared>);

impl Watch for Watcher {
    fn extended(&self, lease: Lease) {
        self.0.page.extend(lease);
        self.0.lapsed.store(false, Ordering::SeqCst);
        if let Ok(mut news) = self.0.news.lock() {
            news.lease = lease;
            if news.trouble.take().is_some() && self.0.loudness == Loudness::Verbose {
                say(&format!("renewed lock {} again", self.0.key));
            }
        }
    }

    fn lost(&self, loss: Loss) {
        self.0.lost.store(true, Ordering::SeqCst);
        if self.0.stops_on_loss {
            self.0.page.lose(self.0.timing.grace());
        }
        self.0.nobody_keeps.store(loss == Loss::NobodyKeeps, Ordering::SeqCst);
        self.0.ring();
    }

    fn successor(&self, found: Option<Busy>) {
        let what = match found {
            Some(busy) => format!("the key now belongs to {}", report::holder(&busy)),
            None => "the key is gone".to_owned(),
        };
        let held = show(BootTime::now().after(self.0.started));
        say(&format!("lost lock {} after {held}: {what}; {}", self.0.key, self.0.consequence()));
    }

    fn failing(&self, fault: &Fault, tries: u32) {
        if let Ok(mut news) = self.0.news.lock() {
            news.trouble = Some(fault.text.clone());
        }
        // The first failure is mostly an idle connection that was cut: mended before anybody reads of it.
        if tries == 2 && self.0.loudness > Loudness::Quiet {
            say(&format!("cannot renew lock {} ({}); trying again", self.0.key, fault.text));
        }
    }

    fn lapsed(&self, lease: Lease) {
        self.0.lapsed.store(true, Ordering::SeqCst);
        let silent = show(BootTime::now().after(lease.since));
        let consequence = self.0.consequence();
        say(&format!("the lease of lock {} ran out, not renewed for {silent}; {consequence}", self.0.key));
    }

    fn goes_on_after_term(&self) -> bool {
        !self.0.stops_on_loss
    }
}

/// The main thread's side.
struct Teller<'a> {
    story: &'a Story,
    keeper: Keeper,
}

impl Events for Teller<'_> {
    fn bell(&self) -> BorrowedFd<'_> {
        self.story.shared.bell.as_fd()
    }

    fn rung(&mut self) -> bool {
        let shared = &self.story.shared;
        let rung = shared.bell.read().is_ok();
        if rung && shared.nobody_keeps.swap(false, Ordering::SeqCst) {
            say(&format!(
                "the thread that renews lock {} is not there (no memory, or a bug); {}",
                shared.key,
                shared.consequence()
            ));
        }
        rung
    }

    fn wake_at(&self) -> BootTime {
        self.keeper.start_by()
    }

    fn wake(&mut self) {
        self.keeper.start(self.story.watch());
    }

    fn lease_runs_out(&mut self) {
        if self.story.is_lost() {
            return;
        }
        let shared = &self.story.shared;
        let (lease, trouble) = shared
            .news
            .lock()
            .map_or_else(|news| (news.get_ref().lease, None), |news| (news.lease, news.trouble.clone()));
        let ttl = shared.timing.ttl();
        let silent = BootTime::now().after(lease.since);
        let trouble = trouble.unwrap_or_else(|| "this process could not run".to_owned());
        say(&format!(
            "could not renew lock {} for {} of its {} lease ({trouble}); {} while the lock is still ours",
            shared.key,
            show(silent),
            show(ttl),
            shared.consequence()
        ));
    }

    fn guard_died(&mut self) {
        let shared = &self.story.shared;
        say(&format!(
            "the guard process of lock {} was killed; ending {} before the lock is released",
            shared.key,
            shared.program()
        ));
    }
}
