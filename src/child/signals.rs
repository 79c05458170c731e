//! Signals that this process gets, each with its sender, through a descriptor that poll(2) watches.
//!
//! Every signal is blocked in every thread from the first line of a run to its end, and read with
//! signalfd(2). So there are no handlers: no signal is lost before one is installed or between fork and
//! exec, nothing has to be put back in the job but the caller's mask, and the kernel's queue is the
//! only one. It takes one system call. (signal-hook's `WithOrigin` does the same with handlers and a
//! self-pipe; registering all signals took it 0.3 ms, a tenth of a whole run, because its registry
//! copies itself for each; and a signal between the end of its pipe and the end of the process hung the
//! program in a loop of SIGPIPE.)

use super::early::{LAST_SIGNAL, was_ignored};
use super::sys::{self, RawMask};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// What cannot be caught, or means a fault of our own; the last two belong to the C library.
const NEVER_CAUGHT: [i32; 8] =
    [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, 32, 33];

/// The signals of this process.
pub struct Signals {
    descriptor: SignalFd,
    child_changed: bool,
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub signal: i32,
    /// The process that sent it; `None`: the kernel (terminal, timer).
    pub sender: Option<i32>,
}

/// What a signal does by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DefaultAction {
    Terminate,
    Stop,
    Nothing,
}

impl Signals {
    /// Blocks every signal in this thread and those it will start.
    pub fn block_all() {
        let _ = SigSet::all().thread_set_mask();
    }

    /// Starts to receive signals; what came since [`Self::block_all`] included. A signal that was
    /// ignored at the start of the process stays ignored, here and in the job.
    pub fn install() -> io::Result<Self> {
        let open: Vec<i32> =
            NEVER_CAUGHT.into_iter().chain((1..=LAST_SIGNAL).filter(|signal| is_ignored(*signal))).collect();
        let mask = RawMask::all_but(&open);
        mask.install();
        let descriptor = SignalFd::with_flags(&mask.set(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { descriptor, child_changed: false })
    }

    /// Readable when something has arrived.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The next of those that have arrived.
    pub fn take(&mut self) -> Option<Arrived> {
        let info = self.descriptor.read_signal().ok().flatten()?;
        let sender = if info.ssi_code == libc::SI_KERNEL { None } else { Some(info.ssi_pid.cast_signed()) };
        Some(Arrived { signal: info.ssi_signo.cast_signed(), sender })
    }

    /// All that have arrived.
    pub fn take_all(&mut self) -> Vec<Arrived> {
        std::iter::from_fn(|| self.take()).collect()
    }

    /// For a process that waits and has no job yet: follows stop signals, and gives back a signal
    /// that it should die of.
    pub fn deadly(&mut self) -> Option<i32> {
        while let Some(arrived) = self.take() {
            self.child_changed |= arrived.signal == libc::SIGCHLD;
            match default_action(arrived.signal) {
                // Our own write to a closed pipe is no signal from anybody.
                DefaultAction::Terminate if arrived.is_ours() => {}
                DefaultAction::Terminate => return Some(arrived.signal),
                DefaultAction::Stop => sys::stop_as(arrived.signal),
                DefaultAction::Nothing => {}
            }
        }
        None
    }
}

impl Signals {
    /// Whether [`Self::deadly`] has seen that a child changed, since the last call.
    pub fn child_changed(&mut self) -> bool {
        std::mem::take(&mut self.child_changed)
    }
}

/// SIGCHLD is needed whatever the caller did with it, and Rust's runtime, not the caller, may have
/// ignored SIGPIPE.
fn is_ignored(signal: i32) -> bool {
    was_ignored(signal) && signal != libc::SIGCHLD
}

impl Arrived {
    /// Sent by this very process (SIGPIPE from a write of ours).
    pub(super) fn is_ours(self) -> bool {
        self.sender == Some(std::process::id().cast_signed())
    }
}

fn default_action(signal: i32) -> DefaultAction {
    match signal {
        libc::SIGCHLD | libc::SIGCONT | libc::SIGURG | libc::SIGWINCH => DefaultAction::Nothing,
        libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU | libc::SIGSTOP => DefaultAction::Stop,
        _ => DefaultAction::Terminate,
    }
}

/// `SIGTERM`, `SIGRTMIN+3`: a signal for messages.
#[must_use]
pub fn signal_name(signal: i32) -> String {
    match Signal::try_from(signal) {
        Ok(signal) => signal.as_str().to_owned(),
        Err(_) if signal >= libc::SIGRTMIN() => format!("SIGRTMIN+{}", signal - libc::SIGRTMIN()),
        Err(_) => format!("signal {signal}"),
    }
}

/// The number of a signal that people may send: a name with or without `SIG`, in any case, or a number.
#[must_use]
pub fn signal_number(text: &str) -> Option<i32> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let number = match name.parse::<i32>() {
        Ok(number) => number,
        Err(_) => format!("SIG{name}").parse::<Signal>().ok()? as i32,
    };
    let possible = (1..=libc::SIGRTMAX()).contains(&number) && !(32..libc::SIGRTMIN()).contains(&number);
    possible.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::{signal_name, signal_number};

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, number) in [("term", 15), ("SIGINT", 2), ("9", 9), ("40", 40)] {
            assert_eq!(signal_number(text), Some(number));
        }
        for text in ["", "SIG", "0", "-1", "65", "33", "TERMINATE"] {
            assert_eq!(signal_number(text), None, "{text}");
        }
        assert_eq!(signal_name(15), "SIGTERM");
        assert!(signal_name(40).starts_with("SIGRTMIN+"));
    }
}
