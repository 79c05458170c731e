//! Nobody but the job is ever signalled: not who stands beside the run, not the caller's other
//! children and what they leave, not who got a number that was the job's.

use std::fs;

use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM, SIGUSR1};

use super::{TREE, stop, tree};
use crate::support::container;
use crate::support::jobs::KEY;
use crate::support::lease::held_until_dead;
use crate::support::nest::{WITNESS, guard_of, untouched};
use crate::support::wait::SOON;
use crate::support::{Nest, Process, Run, Server, wait_until};

/// What can happen to a run that ends its job by force.
#[derive(Clone, Copy, Debug)]
enum Fate {
    WrapperKilled,
    WrapperStopped,
    GuardKilled,
    LockLost,
    Asked,
}

const FATES: [Fate; 5] =
    [Fate::WrapperKilled, Fate::WrapperStopped, Fate::GuardKilled, Fate::LockLost, Fate::Asked];

impl Fate {
    /// A guard stays for as long as its wrapper, even a stopped one.
    fn leaves_guard(self) -> bool {
        matches!(self, Self::WrapperStopped)
    }

    fn strike(self, server: &Server, wrapper: &Process) {
        match self {
            Self::WrapperKilled => wrapper.signal(SIGKILL),
            Self::WrapperStopped => wrapper.signal(SIGSTOP),
            Self::GuardKilled => guard_of(wrapper).signal(SIGKILL),
            Self::LockLost => server.redis.tell(&["DEL", KEY]),
            Self::Asked => wrapper.signal(SIGTERM),
        }
    }
}

/// `script` starts witnesses, and `redlock-run` among them with `tail` as its job; then `fate`
/// strikes, the job dies, and no witness has been sent anything.
fn spares_witnesses(fate: Fate, script: &str, witnesses: usize) {
    let server = Server::start();
    let nest = Nest::new();
    let script = script.replace("WITNESS", WITNESS);
    let run = Run::of("sh", ["-c", &script]).env("REDLOCK_RUN_URL", server.url()).in_dir(nest.dir());
    let _run = run.spawn();
    let job = nest.one("tail");
    let witnesses = nest.all("sleep", witnesses);
    strike_and_spare(fate, &server, &nest, &job, &witnesses);
}

fn strike_and_spare(fate: Fate, server: &Server, nest: &Nest, job: &Process, witnesses: &[Process]) {
    fate.strike(server, &nest.one("redlock-run"));
    wait_until(&format!("{fate:?} ends the job"), SOON, || job.is_dead());
    // What may come after the job's death comes before the end of whoever ends it.
    wait_until("the run is over", SOON, || {
        let stopped = nest.named("redlock-run").iter().all(|process| process.state() == 'T');
        stopped && nest.named("redlock-guard").iter().all(|_| stopped && fate.leaves_guard())
    });
    witnesses.iter().for_each(untouched);
}

#[test]
fn processes_beside_the_run_are_never_signalled() {
    for fate in FATES {
        let script = "WITNESS & redlock-run --ttl 3s --key job tail -f /dev/null & WITNESS & wait";
        spares_witnesses(fate, script, 2);
    }
}

#[test]
fn children_from_before_the_run_are_never_signalled() {
    for fate in FATES {
        let script = "WITNESS & (WITNESS &) ; exec redlock-run --ttl 3s --key job tail -f /dev/null";
        spares_witnesses(fate, script, 2);
    }
}

#[test]
fn children_from_before_a_run_without_a_guard_are_never_signalled() {
    for fate in [Fate::LockLost, Fate::Asked] {
        let script = "WITNESS & exec redlock-run --no-guard --ttl 3s --key job tail -f /dev/null";
        spares_witnesses(fate, script, 1);
    }
}

/// The wrapper adopts orphans, and a child from before the run can leave some: they come to it
/// while the job runs, and are none of the job's.
#[test]
fn orphans_of_children_from_before_the_run_are_never_signalled() {
    for fate in FATES {
        let server = Server::start();
        let nest = Nest::new();
        let script = format!(
            "sh -c 'while [ ! -e gone ]; do sleep 0.02; done; {WITNESS} &' & \
             exec redlock-run --ttl 3s --key job tail -f /dev/null"
        );
        let run = Run::of("sh", ["-c", &script]).env("REDLOCK_RUN_URL", server.url());
        let _run = run.in_dir(nest.dir()).spawn();
        let job = nest.one("tail");
        fs::write(nest.dir().join("gone"), "").expect("a file");
        wait_until("the parent of the witness is gone", SOON, || nest.named("sh").is_empty());
        let witness = nest.one("sleep");
        strike_and_spare(fate, &server, &nest, &job, &[witness]);
    }
}

/// Among pids of its own, so that a test may hand out a number a second time: a child of the job
/// ends, a stranger gets its number, and the lock is lost.
#[test]
fn a_process_that_got_a_reused_pid_lives() {
    if !container::possible("a_process_that_got_a_reused_pid_lives") {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    nest.script("job", "(sh -c 'echo $$ >short' &)\nexec tail -f /dev/null\n");
    nest.script(
        "init",
        &format!(
            "redlock-run --ttl 3s --key job sh ./job &\n\
             until [ -s short ] && [ ! -e /proc/$(cat short) ]; do sleep 0.02; done\n\
             number=$(cat short)\n\
             until [ \"$got\" = $number ]; do\n\
                echo $((number - 1)) >/proc/sys/kernel/ns_last_pid\n\
                {WITNESS} & got=$!\n\
                [ $got = $number ] || kill -9 $got\n\
             done\n\
             echo >taken\n\
             wait\n"
        ),
    );
    let _run = container::init(&server, &["sh", "./init"]).in_dir(nest.dir()).spawn();
    let job = nest.one("tail");
    wait_until("a stranger has the number", SOON, || nest.has("taken"));
    let witness = nest.one("sleep");
    strike_and_spare(Fate::LockLost, &server, &nest, &job, &[witness]);
}

/// A job was asked, its leader is gone, but not all of its group: for as long as that group may
/// be signalled, its number is nobody else's.
#[test]
fn a_dead_leaders_pid_stays_taken_while_its_group_is_cleared_up() {
    if !container::possible("a_dead_leaders_pid_stays_taken_while_its_group_is_cleared_up") {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    nest.script(
        "job",
        "(trap '' TERM; echo >ready; exec tail -f /dev/null) &\n\
         echo $$ >leader; wait\n",
    );
    nest.script(
        "init",
        &format!(
            "redlock-run --kill-after 1s --key job sh ./job & run=$!\n\
             until [ -s ready ] && [ -s leader ]; do sleep 0.02; done\n\
             kill -TERM $run; number=$(cat leader)\n\
             until grep -q zombie /proc/$number/status; do sleep 0.02; done\n\
             echo $((number - 1)) >/proc/sys/kernel/ns_last_pid\n\
             {WITNESS} & echo $! >stranger\n\
             wait $run; echo $? >status; wait\n"
        ),
    );
    let _run = container::init(&server, &["sh", "./init"]).in_dir(nest.dir()).spawn();
    let left = nest.one("tail");
    wait_until("the run is over", SOON, || nest.has("status"));
    assert_eq!(nest.read("status"), "143", "the leader died of TERM");
    assert!(left.is_dead(), "killed after --kill-after");
    assert_ne!(nest.read("leader"), nest.read("stranger"));
    untouched(&nest.one("sleep"));
}

/// Anything but a signal of ours may end a job: with the guard gone, its leader is gone too, and
/// a signal for the job that comes then is for nobody.
#[test]
fn signals_that_come_when_the_guard_is_dead_go_to_nobody() {
    let server = Server::start();
    let nest = Nest::new();
    let (mut run, tree) = tree(&server, &nest, &["--ttl", "60s"], TREE);
    let wrapper = run.wrapper();
    stop(&wrapper);
    guard_of(&wrapper).signal(SIGKILL);
    wrapper.signal(SIGTERM);
    wrapper.signal(SIGUSR1);
    wrapper.signal(SIGCONT);
    held_until_dead(&server, &tree);
    let outcome = run.finish();
    outcome.check(outcome.code() != Some(0), "no success");
    assert!(!server.redis.exists(KEY), "released");
}
