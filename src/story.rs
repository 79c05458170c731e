//! What happened while the lock was held, who is told of it, and the status that comes of it.
//!
//! The keeper learns of the lock in its own thread, the main thread of the job in another; both write
//! into one [`Story`], and act on the page before they talk.

use crate::child::command::CannotRun;
use crate::child::{Cause, End, Events, JobStatus, Page, signal_name};
use crate::clock::BootTime;
use crate::config::{Loudness, cannot_run};
use crate::duration::show;
use crate::exit_status::{Ending, ExitStatus};
use crate::lease::{Key, Lease, Timing};
use crate::lock::{Keeper, Loss, Released, Successor, Want, Watch};
use crate::messages::say;
use crate::node::Fault;
use crate::report;
use anyhow::{Context, Result, anyhow};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// What keeper and main thread both know of the run.
pub(crate) struct Story {
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
    key: Key,
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
    pub(crate) fn new(
        page: Page,
        want: &Want,
        loudness: Loudness,
        stops_on_loss: bool,
        started: BootTime,
        lease: Lease,
    ) -> Result<Self> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(io::Error::from)
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

    pub(crate) fn is_lost(&self) -> bool {
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
    pub(crate) fn ending(&self, end: End, released: Option<&Released>) -> Ending {
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
                say(&report::system(&anyhow!(io::Error::from_raw_os_error(errno)).context("cannot fork")));
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

    /// A job may start a daemon; flock(1) would keep the lock for it.
    pub(crate) fn tell_left_behind(&self, count: usize) {
        if count > 0 {
            let processes = if count == 1 { "1 process".to_owned() } else { format!("{count} processes") };
            say(&format!("{} left {processes} behind, which live on without the lock", self.program()));
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

    fn successor(&self, found: Successor) {
        let what = match found {
            Successor::Holder(busy) => format!("the key now belongs to {}", report::holder(&busy)),
            Successor::Nobody => "the key is gone".to_owned(),
            Successor::Unknown => "the key is not ours any more".to_owned(),
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
pub(crate) struct Teller<'a> {
    pub(crate) story: &'a Story,
    pub(crate) keeper: Keeper,
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
        let (now, ttl) = (BootTime::now(), shared.timing.ttl());
        let (key, silent, consequence) = (&shared.key, show(now.after(lease.since)), shared.consequence());
        let trouble = trouble.unwrap_or_else(|| "this process could not run".to_owned());
        if now < lease.valid_until {
            say(&format!(
                "could not renew lock {key} for {silent} of its {} lease ({trouble}); {consequence} while the \
                 lock is still ours",
                show(ttl),
            ));
        } else {
            say(&format!(
                "the lease of lock {key} ran out, not renewed for {silent} ({trouble}); {consequence}"
            ));
        }
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
