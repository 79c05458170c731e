//! The processes of a trial: this program, started again as one of them.
//!
//! Every process of a job carries the trial's mark in its argument list, from its `exec` to its end
//! and through every `fork`: it can be recognised without its environment and without its parents.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::{Command, exit};
use std::time::Duration;
use std::{fs, hint, thread};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::wait;
use nix::unistd::{ForkResult, fork, setsid};

use crate::support::Process;

/// First words of the two roles.
pub(crate) const JOB: &str = "--as-a-job";
pub(crate) const BYSTANDER: &str = "--as-a-bystander";

/// How often a process looks whether the trial program is still there. Nothing outlives it by more.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long the short-lived children of a restless job live.
const SHORT_LIFE: Duration = Duration::from_millis(25);

/// The trial program, as its children are told of it: `PID:START`.
pub(crate) fn owner() -> String {
    let me = Process::find(std::process::id().cast_signed()).expect("this process");
    format!("{}:{}", me.pid, start_time(me.pid).expect("this process"))
}

/// Leaves as soon as the trial program is gone.
fn stay_while_owned(owner: &str) {
    let (pid, started) = owner.split_once(':').expect("PID:START");
    if start_time(pid.parse().expect("a pid")).as_deref() != Some(started) {
        exit(0);
    }
}

fn start_time(pid: i32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22, counted from the state, field 3, behind the name.
    text.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

/// Records every signal that can be caught in the file `notes`, a line each, for as long as the trial
/// program lives. The file is there as soon as nothing can be missed any more.
pub(crate) fn be_a_bystander(owner: &str, notes: &str) -> ! {
    SigSet::all().thread_block().expect("to block signals");
    let signals = SignalFd::with_flags(&SigSet::all(), SfdFlags::SFD_NONBLOCK).expect("a signalfd");
    let mut notes = fs::File::create(notes).expect("a file for notes");
    loop {
        let mut ready = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut ready, 500_u16);
        while let Ok(Some(got)) = signals.read_signal() {
            let _ = writeln!(notes, "signal {} from process {}", got.ssi_signo, got.ssi_pid);
        }
        stay_while_owned(owner);
    }
}

/// Lives as a job of the given shape (see `plan.rs`) until killed.
pub(crate) fn be_a_job(owner: &str, shape: &str, habits: &str) -> ! {
    if habits == "stubborn" {
        // SAFETY: SIG_IGN runs no code of ours.
        unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) }.expect("to ignore SIGTERM");
    }
    match shape {
        "alone" => sleep(owner),
        "family" => family(owner),
        "daemon" => daemon(owner),
        "dynasty" => dynasty(owner),
        "memory" => memory(owner),
        "restless" => restless(owner),
        other => panic!("no shape is called {other}"),
    }
}

/// Sleeping is this job's work.
fn sleep(owner: &str) -> ! {
    loop {
        thread::sleep(LOOK_EVERY);
        stay_while_owned(owner);
    }
}

/// Children and a grandchild: four processes.
fn family(owner: &str) -> ! {
    child(|| sleep(owner));
    child(|| {
        child(|| sleep(owner));
        sleep(owner)
    });
    sleep(owner)
}

/// A daemon as daemons make themselves; two processes.
fn daemon(owner: &str) -> ! {
    detached(|| sleep(owner));
    sleep(owner)
}

/// A daemon whose child is a daemon, whose child is a daemon; four processes, each of the three in a
/// session of its own.
fn dynasty(owner: &str) -> ! {
    detached(|| {
        own_session(|| {
            own_session(|| sleep(owner));
            sleep(owner)
        });
        sleep(owner)
    });
    sleep(owner)
}

/// Forks a child that leads a session of its own.
fn own_session(life: impl FnOnce()) {
    child(|| {
        setsid().expect("a session");
        life();
    });
}

/// Forks twice, with a new session in between.
fn detached(life: impl FnOnce()) {
    own_session(|| child(life));
    let _ = wait();
}

/// Two processes with 160 MiB each, all of it touched.
fn memory(owner: &str) -> ! {
    child(|| {
        let _touched = touch();
        sleep(owner)
    });
    let _touched = touch();
    sleep(owner)
}

fn touch() -> Vec<u8> {
    hint::black_box(vec![1; 160 << 20])
}

/// A leader and a child that keep forking children that soon end.
fn restless(owner: &str) -> ! {
    child(|| keep_forking(owner));
    keep_forking(owner)
}

/// The lives of these processes are what is wanted, so they last for a time and wait for nothing.
fn keep_forking(owner: &str) -> ! {
    loop {
        child(|| {
            thread::sleep(SHORT_LIFE);
            exit(0)
        });
        thread::sleep(SHORT_LIFE / 2);
        child(|| {
            thread::sleep(SHORT_LIFE);
            exit(0)
        });
        let _ = wait();
        let _ = wait();
        stay_while_owned(owner);
    }
}

/// Forks a child that lives as `life` says.
fn child(life: impl FnOnce()) {
    // SAFETY: in these roles the process has one thread.
    match unsafe { fork() }.expect("to fork") {
        ForkResult::Child => {
            life();
            exit(0)
        }
        ForkResult::Parent { .. } => {}
    }
}

/// The command line of a bystander that is started directly.
pub(crate) fn bystander(owner: &str, notes: &str) -> Command {
    let mut command = Command::new(own_program());
    command.args([BYSTANDER, owner, notes]);
    command
}

/// This program's own file.
pub(crate) fn own_program() -> String {
    let path = std::env::current_exe().expect("a program has a file");
    path.to_str().expect("a path of ordinary characters").to_owned()
}
