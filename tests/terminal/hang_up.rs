//! The terminal is gone: whom the kernel tells depends on who leads the session.

use std::os::unix::process::ExitStatusExt as _;

use nix::libc;
use nix::sys::signal::Signal::SIGUSR1;

use super::{COUNTS, counting_leader, seen_until_the_fence, unhelped, until_seen};
use crate::support::jobs::KEY;
use crate::support::pty::Pty;
use crate::support::wait::SOON;
use crate::support::{Nest, Process, Run, Server, proc, tools, wait_until};

/// The kernel tells the leader of a session that its terminal is gone, and nobody else.
#[test]
fn a_hang_up_is_one_hang_up_when_the_run_leads_the_session() {
    let Some(python) = tools::python("a_hang_up_is_one_hang_up_when_the_run_leads_the_session") else {
        return;
    };
    let server = Server::start();
    let nest = Nest::new();
    let mut pty = counting_leader(&server, &nest, &python);
    pty.hang_up();
    until_seen(&nest, "SIGHUP");
    assert_eq!(seen_until_the_fence(&nest, &pty.leader()), "SIGHUP");
    assert!(pty.wait().success());
    assert!(!server.redis.exists(KEY));
}

/// A shell that dies of it lets the kernel tell everybody in the foreground.
#[test]
fn a_hang_up_is_one_hang_up_when_a_shell_leads_the_session() {
    let Some(python) = tools::python("a_hang_up_is_one_hang_up_when_a_shell_leads_the_session") else {
        return;
    };
    let server = Server::start();
    let nest = Nest::new();
    nest.script("counts.py", COUNTS);
    let line = format!("redlock-run --key job {python} counts.py; true");
    let run = Run::of("sh", ["-c", &line]).env("REDLOCK_RUN_URL", server.url()).in_dir(nest.dir());
    let mut pty = Pty::spawn(run.into_command());
    until_seen(&nest, "ready");
    let wrapper = nest.one("redlock-run");
    unhelped(&nest, &wrapper, "SIGHUP", || pty.hang_up());
    assert_eq!(pty.wait().signal(), Some(libc::SIGHUP), "the shell");
    assert_eq!(seen_until_the_fence(&nest, &wrapper), "SIGHUP");
    wait_until("the lock is released", SOON, || !server.redis.exists(KEY));
}

/// An interactive shell tells its jobs before it goes, and then the kernel tells them: two, as
/// without us. (Mostly they meet and are one; so the shell here is one that waits in between.)
#[test]
fn a_hang_up_that_a_shell_passes_on_is_not_passed_on_by_us_too() {
    let Some(python) = tools::python("a_hang_up_that_a_shell_passes_on_is_not_passed_on_by_us_too") else {
        return;
    };
    let direct = shell_hang_up(&python, "", |_, pty| pty.hang_up());
    assert_eq!(direct, "SIGHUP SIGUSR1 SIGHUP");
    let wrapped = shell_hang_up(&python, "redlock-run --key job", |nest, pty| {
        unhelped(nest, &nest.one("redlock-run"), "SIGHUP", || pty.hang_up());
    });
    assert_eq!(wrapped, direct);
}

/// What the counting job sees of a hang-up under a shell that passes it on and ends only later; a
/// USR1 stands between the two.
fn shell_hang_up(python: &str, with: &str, hang_up: impl FnOnce(&Nest, &mut Pty)) -> String {
    let server = Server::start();
    let nest = Nest::new();
    nest.script("counts.py", COUNTS);
    let line = format!(
        "exec 3<&0; trap 'trap \"\" HUP; kill -HUP 0; until [ -e go ]; do sleep 0.02; done; exit 0' HUP; \
         {with} {python} counts.py <&3 & wait"
    );
    let run = Run::of("sh", ["-c", &line]).env("REDLOCK_RUN_URL", server.url()).in_dir(nest.dir());
    let mut pty = Pty::spawn(run.into_command());
    until_seen(&nest, "ready");
    let target = nest.named("redlock-run").pop().unwrap_or_else(|| the_python(&nest));
    hang_up(&nest, &mut pty);
    until_seen(&nest, "SIGHUP");
    target.signal(SIGUSR1);
    until_seen(&nest, "SIGUSR1");
    nest.script("go", "");
    assert!(pty.wait().success(), "the shell");
    wait_until("the kernel's own has come", SOON, || nest.read("seen").ends_with("SIGHUP"));
    seen_until_the_fence(&nest, &target)
}

fn the_python(nest: &Nest) -> Process {
    let is_python =
        |process: &&Process| proc::name(process.pid).is_some_and(|name| name.starts_with("python"));
    nest.processes().iter().find(is_python).expect("it is ready").clone()
}

#[test]
fn a_hang_up_ends_a_job_that_does_not_mind_it_otherwise_and_releases() {
    let server = Server::start();
    let nest = Nest::new();
    let run = Run::on(&server, ["--key", KEY, "sleep", "600"]).in_dir(nest.dir());
    let mut pty = Pty::spawn(run.into_command());
    let job = nest.one("sleep");
    pty.hang_up();
    assert_eq!(pty.wait().signal(), Some(libc::SIGHUP));
    assert!(job.is_dead());
    assert!(!server.redis.exists(KEY));
}
