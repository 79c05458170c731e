//! A real terminal: the child leads a session of its own and the pty is its controlling terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::setsid;

use super::proc::{self, Process};
use super::wait::{SOON, wait_for};

nix::ioctl_write_ptr_bad!(set_size, libc::TIOCSWINSZ, libc::winsize);
nix::ioctl_write_int_bad!(take_terminal, libc::TIOCSCTTY);

/// A terminal with a program in it.
pub(crate) struct Pty {
    /// `None` after a hang-up.
    master: Option<File>,
    child: Child,
    /// All output so far, and how much of it earlier `read_until` calls have consumed.
    output: String,
    consumed: usize,
}

impl Pty {
    /// Starts `command` as the leader of a session whose controlling terminal is a new pty.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let (master, slave) = open();
        let handle = || slave.try_clone().expect("a second handle");
        command.stdin(handle()).stdout(handle()).stderr(handle());
        let lead = || {
            setsid()?;
            // SAFETY: fd 0 is the slave; the call changes nothing but the session's terminal.
            unsafe { take_terminal(0, 0) }?;
            Ok(())
        };
        // SAFETY: between fork and exec only setsid(2) and ioctl(2) are called; neither allocates.
        unsafe { command.pre_exec(lead) };
        let child = command.spawn().expect("the program to start");
        Self { master: Some(master), child, output: String::new(), consumed: 0 }
    }

    /// The session leader.
    pub(crate) fn leader(&self) -> Process {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        Process::find(pid).expect("our child, reaped only by us")
    }

    /// Types `text`; `"\x03"` is ^C, `"\x1a"` ^Z.
    pub(crate) fn write(&mut self, text: &str) {
        let mut master = self.master();
        master.write_all(text.as_bytes()).expect("a terminal");
    }

    /// Reads until new output holds `pattern`, and returns the new output up to its end.
    #[track_caller]
    pub(crate) fn read_until(&mut self, pattern: &str) -> String {
        let end = Instant::now() + SOON;
        loop {
            let new = &self.output[self.consumed..];
            if let Some(at) = new.find(pattern) {
                let found = new[..at + pattern.len()].to_string();
                self.consumed += found.len();
                return found;
            }
            let more = self.read_some(Duration::from_millis(20));
            assert!(
                (more || new_output_may_come(&mut self.child)) && Instant::now() < end,
                "no {pattern:?} on the terminal, but {:?}",
                &self.output[self.consumed..]
            );
        }
    }

    /// Changes the window size, which sends SIGWINCH to the foreground group.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the fd is open and `size` outlives the call.
        unsafe { set_size(self.master().as_raw_fd(), &raw const size) }.expect("a terminal");
    }

    /// The terminal's modes.
    pub(crate) fn modes(&self) -> Termios {
        tcgetattr(self.master()).expect("a terminal")
    }

    /// Closes the terminal as a lost connection does.
    pub(crate) fn hang_up(&mut self) {
        self.master = None;
    }

    /// Waits for the leader's end.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_for("the end of the session's leader", SOON, || {
            if self.master.is_some() {
                self.read_some(Duration::ZERO);
            }
            self.child.try_wait().expect("our child")
        })
    }

    fn master(&self) -> &File {
        self.master.as_ref().expect("not hung up")
    }

    /// Whether anything was there to be read within `limit`.
    fn read_some(&mut self, limit: Duration) -> bool {
        let timeout = PollTimeout::try_from(limit).expect("a short time");
        let mut fds = [PollFd::new(self.master().as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, timeout).unwrap_or(0) == 0 {
            return false;
        }
        let mut buffer = [0; 4096];
        // EIO: nobody has the terminal open any more.
        let length = self.master().read(&mut buffer).unwrap_or(0);
        let text = String::from_utf8_lossy(&buffer[..length]);
        self.output.push_str(&text);
        length > 0
    }
}

impl Drop for Pty {
    /// Kills everything in the session.
    fn drop(&mut self) {
        let leader = i32::try_from(self.child.id()).expect("a pid");
        for process in proc::all() {
            let stat = process.stat();
            if stat.is_some_and(|stat| stat.session == leader) {
                process.signal(nix::sys::signal::Signal::SIGKILL);
            }
        }
        let _ = self.child.wait();
    }
}

fn new_output_may_come(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

/// Both ends close on exec: a leaked one in some other test's child would undo a hang-up.
fn open() -> (File, File) {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(flags).expect("a pty");
    grantpt(&master).expect("a pty");
    unlockpt(&master).expect("a pty");
    let name = ptsname_r(&master).expect("its name");
    let slave =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(name).expect("the slave");
    let master = master.as_fd().try_clone_to_owned();
    (master.expect("a second handle").into(), slave)
}
