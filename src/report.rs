//! What a run says about its lock, in words.

use crate::config::Loudness;
use crate::duration::show;
use crate::escape::escape;
use crate::exit_status::ExitStatus;
use crate::lease::{Key, Seen};
use crate::lock::{Patience, Progress};
use crate::messages::{self, reason};
use crate::node::{Busy, Fault, FaultKind};
use std::time::{Duration, Instant, SystemTime};

/// A wait is told of after this; on a terminal the line is then kept up to date.
const FIRST: Duration = Duration::from_millis(400);

/// In a log it is told again when this much has passed, then every minute.
const AGAIN: [Duration; 3] = [Duration::from_secs(10), Duration::from_secs(30), Duration::from_secs(60)];

/// Who holds a lock, as far as the value tells.
#[must_use]
pub fn holder(busy: &Busy) -> String {
    match Seen::parse(&busy.value) {
        Seen::Run(holder) => holder.describe(),
        Seen::Foreign => "another tool".to_owned(),
    }
}

/// The line about a lock that is held; with a hint where something is odd.
#[must_use]
pub fn held(key: &Key, busy: &Busy) -> String {
    let since = match Seen::parse(&busy.value) {
        Seen::Run(holder) => holder.held_for(SystemTime::now()),
        Seen::Foreign => None,
    };
    let since = since.map(|since| format!(" for {}", show(since))).unwrap_or_default();
    let fact = format!("lock {key} is held by {}{since}", holder(busy));
    if let Some(left) = busy.expires_in {
        format!("{fact}; it expires in {} unless renewed", show(left))
    } else {
        let hint = "has no expiry; if its owner is gone, delete the key: redis-cli DEL";
        format!("{fact}\n{}", self::hint(&format!("{hint} {key}")))
    }
}

/// A hint line.
#[must_use]
pub fn hint(text: &str) -> String {
    format!("  hint: {text}")
}

/// What the system refused us, with its reason and a hint. The chain of causes in one line, and never a
/// backtrace.
#[must_use]
pub fn system(error: &anyhow::Error) -> String {
    let mut words = Vec::new();
    let mut number = None;
    for cause in error.chain() {
        let refused = cause.downcast_ref::<std::io::Error>();
        number = number.or(refused.and_then(std::io::Error::raw_os_error));
        words.push(refused.map_or_else(|| cause.to_string(), reason));
    }
    let fact = escape(words.join(": ").as_bytes());
    let next = match number {
        Some(libc::EMFILE) => "raise the limit of open files (ulimit -n)",
        Some(libc::EAGAIN) => "raise the limit of processes (ulimit -u, or pids.max of the control group)",
        Some(libc::ENOMEM) => {
            "free memory, or raise the limit (ulimit -v, or memory.max of the control group)"
        }
        Some(libc::ENOSPC) => "free space on the disk",
        _ => return fact,
    };
    format!("{fact}\n{}", hint(next))
}

/// A fault of Redis with its hint.
#[must_use]
pub fn fault(address: &str, fault: &Fault, default_url: bool) -> String {
    let text = if fault.kind == FaultKind::Denied {
        format!("Redis refused {}", fault.text)
    } else if fault.answered {
        format!("Redis at {address}: {}", fault.text)
    } else {
        format!("cannot reach Redis at {address}: {}", fault.text)
    };
    let default = || {
        (default_url && !fault.answered)
            .then(|| "set REDLOCK_RUN_URL; this is the default address".to_owned())
    };
    match fault.hint.clone().or_else(default) {
        Some(text_of_hint) => format!("{text}\n{}", hint(&text_of_hint)),
        None => text,
    }
}

/// What a fault that nobody could wait out ends with.
#[must_use]
pub const fn status(kind: FaultKind) -> ExitStatus {
    match kind {
        FaultKind::Unavailable | FaultKind::Interrupted => ExitStatus::Unavailable,
        FaultKind::Denied => ExitStatus::Denied,
        FaultKind::NotALock | FaultKind::NotRedis => ExitStatus::NotALock,
        FaultKind::Misconfigured => ExitStatus::Config,
    }
}

/// Tells of a wait while it lasts.
pub struct Waiting<'a> {
    key: &'a Key,
    address: String,
    default_url: bool,
    patience: Patience,
    loudness: Loudness,
    started: Instant,
    /// Rewrites one line instead of adding lines.
    in_place: bool,
    /// What was told last: the holder or the fault.
    told: Option<String>,
    next: Duration,
    showing: bool,
}

impl<'a> Waiting<'a> {
    /// A wait that begins now.
    #[must_use]
    pub fn new(
        key: &'a Key,
        address: String,
        default_url: bool,
        patience: Patience,
        loudness: Loudness,
    ) -> Self {
        Self {
            key,
            address,
            default_url,
            patience,
            loudness,
            started: Instant::now(),
            in_place: messages::on_terminal(),
            told: None,
            next: FIRST,
            showing: false,
        }
    }

    /// How long it has lasted.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.started.elapsed()
    }

    /// News.
    pub fn hear(&mut self, progress: &Progress<'_>) {
        let early = self.waited() < FIRST && !matches!(progress, Progress::NoBatons);
        if self.loudness == Loudness::Quiet || early {
            return;
        }
        let subject = match progress {
            Progress::Busy(busy) => holder(busy),
            // One line for an outage, however its symptoms change.
            Progress::Unavailable(_) => String::new(),
            Progress::NoBatons => {
                messages::say(&format!(
                    "'{}:wake' cannot be used: polling for lock {}",
                    crate::escape::escape(self.key.as_bytes()),
                    self.key
                ));
                return;
            }
        };
        let changed = self.told.as_ref() != Some(&subject);
        if self.in_place
            && let Progress::Busy(busy) = progress
        {
            self.told = Some(subject);
            self.showing = true;
            messages::show_transient(&self.line(busy));
            return;
        }
        if !changed && self.waited() < self.next {
            return;
        }
        self.next = self.following();
        self.told = Some(subject);
        self.showing = false;
        match progress {
            Progress::Busy(busy) => messages::say(&self.line(busy)),
            Progress::Unavailable(fault) => {
                let text = self::fault(&self.address, fault, self.default_url);
                let (fact, hint) = text.split_at(text.find('\n').unwrap_or(text.len()));
                messages::say(&format!("{fact}; trying again{hint}"));
            }
            Progress::NoBatons => {}
        }
    }

    /// The wait is over.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.showing) {
            messages::clear_transient();
        }
    }

    fn line(&self, busy: &Busy) -> String {
        let limit = match self.patience {
            Patience::Limit(limit) => format!(" of {}", show(limit)),
            _ => String::new(),
        };
        let waited = format!("; waited {}{limit}", show(self.waited()));
        let held = held(self.key, busy);
        let (fact, rest) = held.split_once('\n').map_or((held.as_str(), ""), |(fact, rest)| (fact, rest));
        if rest.is_empty() || self.in_place {
            format!("{fact}{waited}")
        } else {
            format!("{fact}{waited}\n{rest}")
        }
    }

    /// When to tell again although nothing changed.
    fn following(&self) -> Duration {
        let waited = self.waited();
        AGAIN
            .into_iter()
            .find(|at| waited < *at)
            .unwrap_or_else(|| Duration::from_secs((waited.as_secs() / 60 + 1) * 60))
    }
}
