//! A script in a terminal shares one group with its run and with the job: none of it is the job.

use nix::sys::signal::Signal::{SIGCONT, SIGHUP, SIGKILL, SIGSTOP, SIGTERM};
use nix::sys::signal::killpg;
use nix::unistd::Pid;

use super::{Act, Desk};
use crate::support::jobs::KEY;
use crate::support::lease::{dead_before, end_of_lease, held_until_dead};
use crate::support::nest::{WITNESS, guard_of, untouched};
use crate::support::pty::Pty;
use crate::support::wait::SOON;
use crate::support::{Nest, Process, Run, Server, proc, wait_until};

/// In a terminal a script, its other jobs and the run share one group.
#[test]
fn a_script_in_a_terminal_is_never_signalled_with_its_job() {
    let fates: [(&str, Act); 6] = [
        ("TERM", |_, wrapper, _| wrapper.signal(SIGTERM)),
        ("HUP", |_, wrapper, _| wrapper.signal(SIGHUP)),
        ("a lost lock", |server, _, _| server.redis.tell(&["DEL", KEY])),
        ("a stopped wrapper", |_, wrapper, job| {
            wrapper.signal(SIGSTOP);
            wait_until("the job is ended", SOON, || job.is_dead());
            wrapper.signal(SIGCONT);
        }),
        ("a killed guard", |_, wrapper, _| guard_of(wrapper).signal(SIGKILL)),
        ("a killed wrapper", |_, wrapper, _| wrapper.signal(SIGKILL)),
    ];
    for (what, act) in fates {
        let mut desk = Desk::new();
        let script =
            format!("{WITNESS} &\nredlock-run --ttl 3s --key job tail -f /dev/null\necho after\nexec cat\n");
        desk.nest.script("script", &script);
        let (wrapper, job) = desk.starts("sh ./script", "tail");
        let witness = desk.nest.one("sleep");
        let (group, own) = (wrapper.stat(), witness.stat());
        assert_eq!(group.map(|stat| stat.pgrp), own.map(|stat| stat.pgrp), "one group");
        act(&desk.server, &wrapper, &job);
        desk.bash.pty.read_until("after");
        wait_until("the job is over", SOON, || job.is_dead() && wrapper.is_dead());
        wait_until("so is the guard", SOON, || desk.nest.named("redlock-guard").is_empty());
        println!("{what}");
        untouched(&witness);
        witness.signal(SIGKILL);
        desk.bash.pty.write("\x04");
        desk.prompt();
    }
}

/// Leftovers of a stopped job in a shared group: only the guard's own children may be killed.
#[test]
fn a_script_in_a_terminal_is_spared_when_leftovers_of_its_job_are_killed() {
    let mut desk = Desk::new();
    let job = "(trap \"\" TERM; echo >ready; exec tail -f /dev/null) & exec sleep 600";
    let script = format!(
        "{WITNESS} &\nredlock-run --kill-after 300ms --key job sh -c '{job}'\necho after=$?\nexec cat\n"
    );
    desk.nest.script("script", &script);
    desk.bash.type_line("sh ./script");
    wait_until("the job is ready", SOON, || desk.nest.has("ready"));
    let left = desk.nest.one("tail");
    let wrapper = desk.nest.one("redlock-run");
    let leader = proc::children(guard_of(&wrapper).pid).remove(0);
    let is_other = |process: &&Process| process.pid != leader.pid;
    let witness = desk.nest.all("sleep", 2).iter().find(is_other).expect("the witness").clone();
    wrapper.signal(SIGTERM);
    held_until_dead(&desk.server, &[leader, left]);
    desk.bash.pty.read_until("after=143");
    untouched(&witness);
    desk.bash.pty.write("\x04");
    desk.prompt();
}

/// A job of four processes none of which minds TERM, two of them in sessions of their own.
const TREE: &str =
    "trap '' TERM; sleep 600 & setsid sleep 600 & (env -i setsid sleep 600 &) ; exec sleep 600";

/// There is no group that could be killed: each of the tree has to be found.
#[test]
fn the_whole_tree_of_a_job_in_a_terminal_dies_and_the_script_lives() {
    let fates: [(&str, Act); 3] = [
        ("a lost lock", |server, _, _| server.redis.tell(&["DEL", KEY])),
        ("a killed guard", |_, wrapper, _| guard_of(wrapper).signal(SIGKILL)),
        ("a killed wrapper", |_, wrapper, _| wrapper.signal(SIGKILL)),
    ];
    for (what, act) in fates {
        let mut desk = Desk::new();
        desk.nest.script("job", TREE);
        desk.nest.script("script", "redlock-run --ttl 3s --key job sh ./job\necho after\nexec cat\n");
        desk.bash.type_line("sh ./script");
        let tree = desk.nest.all("sleep", 4);
        let wrapper = desk.nest.one("redlock-run");
        act(&desk.server, &wrapper, &tree[0]);
        desk.bash.pty.read_until("after");
        wait_until(&format!("all die of {what}"), SOON, || tree.iter().all(Process::is_dead));
        assert!(desk.nest.named("sleep").is_empty());
        desk.bash.pty.write("\x04");
        desk.prompt();
    }
}

/// `kill -9 %1`, as a person does who has lost patience: wrapper and leader die in one instant, and
/// the guard, in a group of its own, ends the rest.
#[test]
fn a_kill_of_the_whole_group_in_a_terminal_leaves_nobody_behind() {
    let mut desk = Desk::new();
    desk.nest.script("job", TREE);
    desk.bash.type_line("redlock-run --ttl 3s --key job sh ./job &");
    let tree = desk.nest.all("sleep", 4);
    desk.bash.next_prompt();
    desk.bash.run("kill -9 %1");
    dead_before(end_of_lease(&desk.server), &tree);
    assert!(desk.nest.named("sleep").is_empty());
    wait_until("the guard is gone too", SOON, || desk.nest.named("redlock-guard").is_empty());
}

/// The same where the run leads the session.
#[test]
fn a_kill_of_the_whole_session_leaders_group_leaves_nobody_behind() {
    let server = Server::start();
    let nest = Nest::new();
    let args = ["--ttl", "3s", "--key", KEY, "sh", "-c", TREE];
    let pty = Pty::spawn(Run::on(&server, args).in_dir(nest.dir()).into_command());
    let tree = nest.all("sleep", 4);
    killpg(Pid::from_raw(pty.leader().pid), SIGKILL).expect("the group is there");
    dead_before(end_of_lease(&server), &tree);
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
}
