//! What the terminal is like after a run, and whose it is.

use nix::sys::signal::Signal::{SIGKILL, SIGTERM};
use nix::sys::termios::{LocalFlags, Termios};

use super::{Act, Desk};
use crate::support::jobs::KEY;
use crate::support::nest::guard_of;
use crate::support::pty::Pty;
use crate::support::wait::SOON;
use crate::support::{Nest, Run, Server, wait_until};

/// Runs a script in a terminal whose shell does not look after its modes, as bash would.
fn modes_after(script: &str, during: impl Fn(&Server, &Nest)) -> [Termios; 2] {
    let server = Server::start();
    let nest = Nest::new();
    let line = format!("echo started; read x; {script}; echo over; sleep 600");
    let run = Run::of("sh", ["-c", &line]).env("REDLOCK_RUN_URL", server.url()).in_dir(nest.dir());
    let mut pty = Pty::spawn(run.into_command());
    pty.read_until("started");
    let before = pty.modes();
    pty.write("\n");
    during(&server, &nest);
    pty.read_until("over");
    [before, pty.modes()]
}

/// Turns echo and line editing off, and has no chance to turn them on again.
const CHANGES_MODES: &str = "redlock-run --ttl 3s --key job sh -c 'stty -echo -icanon; echo >ready; ";

fn is_ready(nest: &Nest) {
    wait_until("the modes are changed", SOON, || nest.has("ready"));
}

#[test]
fn the_modes_are_restored_after_a_job_that_a_signal_killed() {
    for signal in ["KILL", "TERM", "SEGV"] {
        let script = format!("{CHANGES_MODES} ulimit -c 0; kill -{signal} $$'");
        let [before, after] = modes_after(&script, |_, _| {});
        assert_eq!(before.local_flags, after.local_flags, "after SIG{signal}");
    }
}

#[test]
fn the_modes_are_restored_after_a_job_whose_lock_was_lost() {
    let script = format!("{CHANGES_MODES} trap \"\" TERM; while :; do sleep 0.05; done'");
    let [before, after] = modes_after(&script, |server, nest| {
        is_ready(nest);
        server.redis.tell(&["DEL", KEY]);
    });
    assert_eq!(before.local_flags, after.local_flags);
}

#[test]
fn the_modes_are_restored_after_a_job_whose_guard_was_killed() {
    let script = format!("{CHANGES_MODES} exec tail -f /dev/null'");
    let [before, after] = modes_after(&script, |_, nest| {
        is_ready(nest);
        guard_of(&nest.one("redlock-run")).signal(SIGKILL);
    });
    assert_eq!(before.local_flags, after.local_flags);
}

#[test]
fn modes_that_a_job_left_by_its_own_will_stay() {
    let script = format!("{CHANGES_MODES} exit 3'");
    let [before, after] = modes_after(&script, |_, _| {});
    let changed = LocalFlags::ECHO | LocalFlags::ICANON;
    assert!(before.local_flags.contains(changed));
    assert_eq!(after.local_flags, before.local_flags - changed);
}

#[test]
fn the_shell_owns_the_terminal_after_every_end() {
    let mut desk = Desk::new();
    desk.bash.run("redlock-run --key job true");
    assert!(desk.bash.owns_the_terminal(), "after a success");
    desk.bash.run("redlock-run --key job no-such-command");
    assert!(desk.bash.owns_the_terminal(), "after a missing command");
    for (what, act, status) in ENDS {
        let (wrapper, job) = desk.starts("redlock-run --ttl 3s --key job sleep 600", "sleep");
        act(&desk.server, &wrapper, &job);
        desk.bash.next_prompt();
        assert!(desk.bash.owns_the_terminal(), "after {what}");
        assert_eq!(desk.status(), status, "after {what}");
        wait_until("nothing is left", SOON, || desk.nest.named("sleep").is_empty());
        wait_until("the lock is free", SOON, || !desk.server.redis.exists(KEY));
    }
}

/// Ways in which a run can end, and its status in the shell.
const ENDS: [(&str, Act, &str); 5] = [
    ("a killed job", |_, _, job| job.signal(SIGKILL), "137"),
    ("a killed wrapper", |_, wrapper, _| wrapper.signal(SIGKILL), "137"),
    ("a killed guard", |_, wrapper, _| guard_of(wrapper).signal(SIGKILL), "137"),
    ("a TERM", |_, wrapper, _| wrapper.signal(SIGTERM), "143"),
    ("a lost lock", |server, _, _| server.redis.tell(&["DEL", KEY]), "79"),
];
