//! The controlling terminal: whether a job is interactive, and its modes before and after.

use super::spawn::Group;
use super::tree::Process;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcgetsid, tcsetattr};
use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid, tcgetpgrp};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The controlling terminal of an interactive job.
pub struct Terminal {
    /// `/dev/tty` when standard input is something else.
    device: Option<File>,
    modes: Option<Termios>,
}

impl Terminal {
    /// Whether the job must share our process group, and then the terminal with its modes.
    ///
    /// It must when standard input is our controlling terminal, in the foreground or not
    /// (`redlock-run cat &` and `fg`), and also when something else is on standard input but our
    /// group is the terminal's foreground group: `pg_dump | redlock-run … psql -W` asks for the password
    /// on `/dev/tty`, and a group of its own would be stopped for that.
    #[must_use]
    pub fn detect() -> (Group, Option<Self>) {
        let stdin = io::stdin();
        if tcgetsid(stdin.as_fd()).is_ok_and(|session| Ok(session) == getsid(None)) {
            return (Group::Shared, Some(Self::save(None)));
        }
        match File::open("/dev/tty") {
            Ok(device) if tcgetpgrp(&device) == Ok(getpgrp()) => {
                (Group::Shared, Some(Self::save(Some(device))))
            }
            _ => (Group::Own, None),
        }
    }

    fn save(device: Option<File>) -> Self {
        let mut terminal = Self { device, modes: None };
        terminal.modes = terminal.with(|fd| tcgetattr(fd).ok());
        terminal
    }

    /// Whether the terminal was hung up: its modem line or its other side is gone.
    #[must_use]
    pub fn is_hung_up(&self) -> bool {
        self.with(|fd| tcgetattr(fd).is_err())
    }

    /// Sets the modes as they were, after a job that could not do it itself; only while we are in the
    /// foreground: the terminal may be somebody else's by now. Does not wait for output to drain, which
    /// ^S can hold for ever.
    pub fn restore(&self) {
        let Some(modes) = &self.modes else { return };
        self.with(|fd| {
            if tcgetpgrp(fd) == Ok(getpgrp()) {
                let _ = tcsetattr(fd, SetArg::TCSANOW, modes);
            }
        });
    }

    fn with<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        match &self.device {
            Some(device) => act(device.as_fd()),
            None => act(io::stdin().as_fd()),
        }
    }
}

/// Whether this process leads its session: the kernel then tells it alone that the terminal hung up.
pub(super) fn leads_session() -> bool {
    getsid(None) == Ok(Pid::this())
}

/// Whether nobody could resume `group`, the wrapper's: no ancestor of ours that is outside of it is in the same
/// session. The kernel looks at all members of a group; its others have the same ancestors, or keep it
/// from being orphaned without us.
pub(super) fn group_is_orphaned(group: Pid) -> bool {
    let session = getsid(None);
    // What started the session is outside of it: the usual case of cron, ssh, systemd and CI.
    if session == Ok(group) {
        return true;
    }
    let mut ancestor = getppid().as_raw();
    // A parent outside of our namespace is shown as 0.
    while ancestor != 0 {
        let pid = Some(Pid::from_raw(ancestor));
        if getpgid(pid) != Ok(group) {
            return getsid(pid) != session;
        }
        ancestor = Process::read(ancestor).map_or(0, |process| process.parent);
    }
    true
}
