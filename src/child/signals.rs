//! Signals that this process gets, each with its sender, through a descriptor that poll(2) watches.
//!
//! Until [`Signals::install`] everything is blocked; what arrives stays pending in the kernel, so no
//! signal between the start of the process and the job's exec is lost. Registering a handler for all
//! 57 signals takes 0.3 ms (the registry copies itself each time), as much as the whole lock; so the
//! ones that people send come first, and [`Rest`] adds the rest, blocked until then, when
//! it costs nothing: while waiting, or while the job runs.

use super::early::{LAST_SIGNAL, was_ignored};
use super::sys::RawMask;
use nix::sys::signal::SigSet;
use signal_hook::iterator::backend::{Handle, SignalDelivery};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

/// What is registered at once.
const COMMON: [i32; 14] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGPIPE,
    libc::SIGCHLD,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGWINCH,
];

/// What cannot be caught, or means a fault of our own.
const NEVER_CAUGHT: [i32; 6] =
    [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// The signals of this process.
pub struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
    rest: Rest,
}

/// The signals that are not yet received.
#[derive(Clone)]
pub struct Rest {
    handle: Handle,
    done: Rc<Cell<bool>>,
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// The process that sent it; `None`: the kernel (terminal, timer).
    pub sender: Option<i32>,
}

impl Rest {
    /// Receives every signal that can be.
    pub fn register(&self) {
        if self.done.replace(true) {
            return;
        }
        for signal in
            (1..=LAST_SIGNAL).filter(|signal| !COMMON.contains(signal) && !NEVER_CAUGHT.contains(signal))
        {
            // 32 and 33 belong to the C library; nobody sends them.
            if !was_ignored(signal) && !(32..libc::SIGRTMIN()).contains(&signal) {
                let _ = self.handle.add_signal(signal);
            }
        }
        let everything: Vec<i32> = (1..=LAST_SIGNAL).collect();
        RawMask::all_but(&everything).install();
    }
}

/// What a signal does by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefaultAction {
    Terminate,
    Stop,
    Nothing,
}

impl Signals {
    /// Blocks every signal in this thread (and those it will start) until [`Self::install`].
    pub fn block_all() {
        let _ = SigSet::all().thread_set_mask();
    }

    /// Starts to receive the common signals. One that was ignored at the start of the process stays
    /// ignored, here and in the job; SIGCHLD is needed in any case.
    pub fn install() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let wanted = COMMON.into_iter().filter(|signal| *signal == libc::SIGCHLD || !was_ignored(*signal));
        let delivery = SignalDelivery::with_pipe(read, write, WithOrigin::default(), wanted)?;
        let open: Vec<i32> = COMMON.into_iter().chain(NEVER_CAUGHT).collect();
        RawMask::all_but(&open).install();
        let rest = Rest { handle: delivery.handle(), done: Rc::new(Cell::new(false)) };
        Ok(Self { delivery, rest })
    }

    /// For whoever knows when there is time to receive the rest.
    #[must_use]
    pub fn rest(&self) -> Rest {
        self.rest.clone()
    }

    /// Readable when something has arrived.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }

    /// What has arrived since the last call.
    pub fn arrived(&mut self) -> Vec<Arrived> {
        self.delivery.pending().map(|origin| Arrived::from(&origin)).collect()
    }

    /// For a process that waits and has no job yet: follows stop signals, and gives back a signal
    /// that it should die of.
    pub fn deadly(&mut self) -> Option<i32> {
        for arrived in self.arrived() {
            match default_action(arrived.signal) {
                // Our own write to a closed pipe is no signal from anybody.
                DefaultAction::Terminate if arrived.is_ours() => {}
                DefaultAction::Terminate => return Some(arrived.signal),
                DefaultAction::Stop => super::sys::stop_as(arrived.signal),
                DefaultAction::Nothing => {}
            }
        }
        None
    }
}

impl From<&Origin> for Arrived {
    fn from(origin: &Origin) -> Self {
        let sender = match origin.cause {
            Cause::Kernel => None,
            _ => origin.process.map(|process| process.pid),
        };
        Self { signal: origin.signal, sender }
    }
}

impl Arrived {
    /// Sent by this very process (SIGPIPE from a write of ours).
    pub(super) fn is_ours(self) -> bool {
        self.sender == Some(std::process::id().cast_signed())
    }
}

pub(super) fn default_action(signal: i32) -> DefaultAction {
    match signal {
        libc::SIGCHLD | libc::SIGCONT | libc::SIGURG | libc::SIGWINCH => DefaultAction::Nothing,
        libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU | libc::SIGSTOP => DefaultAction::Stop,
        _ => DefaultAction::Terminate,
    }
}

/// `SIGTERM`, `SIGRTMIN+3`: a signal for messages.
#[must_use]
pub fn signal_name(signal: i32) -> String {
    match signal_hook::low_level::signal_name(signal) {
        Some(name) => name.to_owned(),
        None if signal >= libc::SIGRTMIN() => format!("SIGRTMIN+{}", signal - libc::SIGRTMIN()),
        None => format!("signal {signal}"),
    }
}
