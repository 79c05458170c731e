//! The guard: the whole tree of the job is dead before the lease ends, whatever of ours is killed
//! or stopped.
//!
//! That a job dies in time when Redis is killed, stopped, black-holed or trickles: `deadline`.

use std::fs;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP};
use nix::sys::signal::killpg;
use nix::unistd::Pid;

use crate::support::jobs::{Gate, IGNORES_TERM, KEY, SLEEPS, sh};
use crate::support::lease::{dead_before, end_of_lease, held_until_dead};
use crate::support::nest::guard_of;
use crate::support::wait::{SOON, stays};
use crate::support::{Nest, Process, Run, Running, Server, proc, wait_until};

/// Nobody but the job is ever signalled.
mod bystanders;
/// Stopped and going on.
mod pauses;
/// Between acquiring and spawning.
mod starts;

/// A job of seven processes, none of which minds TERM: the leader, a child, an orphan, a child and
/// an orphan in sessions of their own, a child and an orphan without an environment.
const TREE: &str = "trap '' TERM; sleep 600 & (sleep 600 &) ; setsid sleep 600 & (setsid sleep 600 &) ; \
                    env -i sleep 600 & (env -i setsid sleep 600 &) ; exec sleep 600";
const TREE_SIZE: usize = 7;

/// The same seven, which end when they are asked.
fn obedient() -> String {
    TREE.replace("trap '' TERM; ", "")
}

/// Says when it is asked to end, and then ends.
const SAYS_BYE: &str = "trap 'echo bye; exit 0' TERM; echo $$; while :; do sleep 0.02; done";

/// With 3 s: drift 32 ms, margin 75 ms, grace 750 ms; TERM 2143 ms and KILL 2893 ms after the
/// lease was granted, which is extended every (3000 − 32 − 75 − 750) / 3 = 714 ms.
const TTL: &str = "3s";
const EXTENDED_EVERY: Duration = Duration::from_millis(714);

/// A tree under the lock, once all of it runs.
fn tree(server: &Server, nest: &Nest, options: &[&str], script: &str) -> (Running, Vec<Process>) {
    let run = sh(server, options, script).in_dir(nest.dir()).spawn();
    let tree = nest.all("sleep", TREE_SIZE);
    (run, tree)
}

fn stop(process: &Process) {
    process.signal(SIGSTOP);
    wait_until("it is stopped", SOON, || process.state() == 'T');
}

fn kill(process: &Process) {
    process.signal(SIGKILL);
    wait_until("it is dead", SOON, || process.is_dead());
}

#[test]
fn the_whole_tree_ends_at_once_when_the_wrapper_is_killed() {
    let server = Server::start();
    let nest = Nest::new();
    let (run, tree) = tree(&server, &nest, &["--ttl", "30s"], &obedient());
    let guard = guard_of(&run.wrapper());
    let killed = SystemTime::now();
    run.signal(SIGKILL);
    // TERM at once, long before the grace of 5 s: 1 s is for a busy machine.
    dead_before(killed + Duration::from_secs(1), &tree);
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
    assert!(server.redis.exists(KEY), "nobody has released it: the lease runs out");
    wait_until("the guard has nothing more to do", SOON, || guard.is_dead());
}

#[test]
fn the_job_may_clean_up_when_the_wrapper_is_killed() {
    let server = Server::start();
    let nest = Nest::new();
    let mut run = sh(&server, &["--ttl", "30s"], SAYS_BYE).in_dir(nest.dir()).spawn();
    run.job();
    run.signal(SIGKILL);
    wait_until("the job was asked with TERM", SOON, || run.stdout_so_far().ends_with("bye\n"));
}

#[test]
fn the_whole_tree_is_killed_before_the_lease_ends_when_the_wrapper_is_killed() {
    let server = Server::start();
    let nest = Nest::new();
    let (run, tree) = tree(&server, &nest, &["--ttl", TTL], TREE);
    kill(&run.wrapper());
    dead_before(end_of_lease(&server), &tree);
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
}

/// The guard takes stock of the tree a quarter of a second before the lease ends. With a lease of that length it
/// does so first of all.
#[test]
fn the_whole_tree_of_a_very_short_lease_ends_when_the_wrapper_is_killed() {
    let server = Server::start();
    let mut whole = 0;
    for _ in 0..10 {
        let nest = Nest::new();
        let mut run = sh(&server, &["--ttl", "250ms"], TREE).in_dir(nest.dir()).spawn();
        let mut tree = Vec::new();
        // A busy machine may be too slow for such a lease.
        wait_until("the tree is there, or has been ended", SOON, || {
            tree = nest.named("sleep");
            tree.len() >= TREE_SIZE || run.status().is_some()
        });
        whole += u32::from(tree.len() >= TREE_SIZE);
        // Where its end was seen, it is gone.
        if run.status().is_none() {
            run.signal(SIGKILL);
        }
        wait_until("all are dead", SOON, || nest.processes().is_empty());
        let _ = run.finish().any_output();
    }
    assert!(whole > 0, "no tree was ever whole");
}

#[test]
fn the_whole_tree_is_killed_before_the_lease_ends_when_the_wrapper_is_stopped() {
    let server = Server::start();
    let nest = Nest::new();
    let (mut run, tree) = tree(&server, &nest, &["--ttl", TTL], TREE);
    stop(&run.wrapper());
    dead_before(end_of_lease(&server), &tree);
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
    run.signal(SIGCONT);
    run.finish().any_output().expect_status(79);
}

#[test]
fn the_job_is_asked_before_the_lease_ends_when_the_wrapper_is_stopped() {
    let server = Server::start();
    let nest = Nest::new();
    let mut run = sh(&server, &["--ttl", "8s"], SAYS_BYE).in_dir(nest.dir()).spawn();
    let job = run.job();
    stop(&run.wrapper());
    dead_before(end_of_lease(&server), &[job]);
    assert!(run.stdout_so_far().ends_with("bye\n"), "killed without being asked");
    run.signal(SIGCONT);
    run.finish().any_output().expect_status(79);
}

#[test]
fn the_whole_tree_is_killed_and_the_lock_released_when_the_guard_is_killed() {
    let server = Server::start();
    let nest = Nest::new();
    // A lease of a minute: what ends here does not end by it.
    let (mut run, tree) = tree(&server, &nest, &["--ttl", "60s"], TREE);
    guard_of(&run.wrapper()).signal(SIGKILL);
    held_until_dead(&server, &tree);
    let outcome = run.finish();
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
    assert!(!server.redis.exists(KEY), "released");
    outcome.check(outcome.code() != Some(0), "no success: the job was cut off");
    outcome.check(outcome.stderr_text().contains("guard"), "a line that says why");
}

/// The hole that the manual admits: with wrapper and guard killed in one instant, only the leader
/// dies (the kernel sees to it); what it has started lives on until somebody ends it.
#[test]
fn the_leader_dies_when_wrapper_and_guard_are_killed_at_once() {
    let server = Server::start();
    let nest = Nest::new();
    let script = "trap '' TERM; sleep 600 & echo $$; exec tail -f /dev/null";
    let mut run = sh(&server, &["--ttl", TTL], script).in_dir(nest.dir()).spawn();
    let leader = run.job();
    let (wrapper, guard) = (run.wrapper(), guard_of(&run.wrapper()));
    // Stopped first, so that neither can act between the two.
    stop(&wrapper);
    guard.signal(SIGSTOP);
    guard.signal(SIGKILL);
    wrapper.signal(SIGKILL);
    dead_before(end_of_lease(&server), &[leader]);
    wait_until("the lease runs out", SOON, || !server.redis.exists(KEY));
}

#[test]
fn without_a_guard_the_leader_still_dies_with_the_wrapper() {
    let server = Server::start();
    let nest = Nest::new();
    let options = ["--ttl", TTL, "--no-guard"];
    let mut run = sh(&server, &options, IGNORES_TERM).in_dir(nest.dir()).spawn();
    let leader = run.job();
    run.signal(SIGKILL);
    dead_before(end_of_lease(&server), &[leader]);
}

#[test]
fn without_a_guard_a_lost_lock_still_ends_the_whole_tree() {
    let server = Server::start();
    let nest = Nest::new();
    let (mut run, tree) = tree(&server, &nest, &["--ttl", "3s", "--no-guard"], TREE);
    server.redis.tell(&["DEL", KEY]);
    run.finish().any_output().expect_status(79);
    assert!(tree.iter().all(Process::is_dead));
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
}

/// Redis is gone and the job was asked already; now the one who asked dies too.
#[test]
fn a_wrapper_that_dies_at_the_end_of_the_lease_leaves_nobody_behind() {
    let server = Server::start();
    let nest = Nest::new();
    let script = format!("trap 'echo asked' TERM; (trap '' TERM; {TREE}) & while :; do sleep 0.05; done");
    let run = sh(&server, &["--ttl", TTL], &script).in_dir(nest.dir()).spawn();
    wait_until("the tree is there", SOON, || nest.named("sleep").len() >= TREE_SIZE);
    let end = end_of_lease(&server);
    server.pause();
    // Extended once more at most, between the reading and the pause.
    wait_until("the job was asked", SOON, || run.stdout_so_far().contains("asked"));
    run.signal(SIGKILL);
    dead_before(end + EXTENDED_EVERY, &nest.jobs());
    wait_until("nothing is left", SOON, || nest.jobs().is_empty());
}

/// Every process forks the next and is gone 30 ms later, in a session of its own each time, so
/// that neither a group nor a list of pids holds them.
#[test]
fn a_job_that_keeps_forking_away_is_caught() {
    let server = Server::start();
    let nest = Nest::new();
    nest.script("hop", "trap '' TERM\nsleep 0.03\nsetsid sh ./hop &\n");
    let script = "trap '' TERM; setsid sh ./hop & exec tail -f /dev/null";
    let run = sh(&server, &["--ttl", TTL], script).in_dir(nest.dir()).spawn();
    nest.one("tail");
    wait_until("it forks away", SOON, || nest.jobs().len() >= 3);
    kill(&run.wrapper());
    let end = end_of_lease(&server);
    wait_until("all of it is dead", SOON, || nest.jobs().is_empty());
    assert!(SystemTime::now() < end, "it lived beyond the lease");
}

#[test]
fn a_run_within_a_run_dies_with_the_outer_wrapper() {
    let server = Server::start();
    let nest = Nest::new();
    nest.script("job", TREE);
    let args = ["--ttl", TTL, "--key", KEY, "redlock-run", "--ttl", TTL, "--key", "inner", "sh", "./job"];
    let run = Run::on(&server, args).in_dir(nest.dir()).spawn();
    let tree = nest.all("sleep", TREE_SIZE);
    let guards = proc::descendants(run.pid());
    kill(&run.wrapper());
    dead_before(end_of_lease(&server), &tree);
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
    wait_until("neither guard is left", SOON, || guards.iter().all(Process::is_dead));
}

/// As a process manager does that has lost its patience. The guard has a group of its own.
#[test]
fn a_kill_of_the_callers_whole_group_leaves_nobody_behind() {
    let server = Server::start();
    let nest = Nest::new();
    let args = ["redlock-run", "--ttl", TTL, "--key", KEY, "sh", "-c", TREE];
    let run = Run::of("setsid", args).env("REDLOCK_RUN_URL", server.url()).in_dir(nest.dir());
    let _run = run.spawn();
    let tree = nest.all("sleep", TREE_SIZE);
    let wrapper = nest.one("redlock-run");
    let guard = guard_of(&wrapper);
    assert_eq!(wrapper.stat().map(|stat| stat.pgrp), Some(wrapper.pid), "a group of its own");
    killpg(Pid::from_raw(wrapper.pid), SIGKILL).expect("the group is there");
    dead_before(end_of_lease(&server), &tree);
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
    wait_until("the guard has nothing more to do", SOON, || guard.is_dead());
}

/// `--on-lost warn` turns the end of the lease off, not the end of the wrapper.
#[test]
fn with_on_lost_warn_the_tree_still_ends_with_a_killed_wrapper() {
    let server = Server::start();
    let nest = Nest::new();
    let (run, tree) = tree(&server, &nest, &["--ttl", TTL, "--on-lost", "warn"], TREE);
    kill(&run.wrapper());
    dead_before(end_of_lease(&server), &tree);
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
}

#[test]
fn with_on_lost_warn_a_job_outlives_the_lease_of_a_stopped_wrapper() {
    let server = Server::start();
    let nest = Nest::new();
    let gate = Gate::new(&server);
    let script = format!("trap 'echo asked' TERM; echo $$; {}", gate.wait());
    let options = ["--ttl", "1s", "--on-lost", "warn"];
    let mut run = sh(&server, &options, &script).in_dir(nest.dir()).spawn();
    let job = run.job();
    stop(&run.wrapper());
    wait_until("the lease runs out", SOON, || !server.redis.exists(KEY));
    // As long again on purpose: that nothing happens has no event to wait for.
    stays("the job lives", Duration::from_secs(1), || !job.is_dead());
    run.signal(SIGCONT);
    run.wait_for_stderr("lost");
    gate.open();
    let outcome = run.finish();
    outcome.check(outcome.stdout_text() == format!("{}\n", job.pid), "a job that was not asked");
    outcome.any_output().expect_status(79);
}

#[test]
fn the_guard_holds_nothing_of_the_callers() {
    let server = Server::start();
    let nest = Nest::new();
    let mut run = sh(&server, &[], SLEEPS).in_dir(nest.dir()).resumable().spawn();
    run.job();
    let guard = guard_of(&run.wrapper());
    let files = || proc::open_files(guard.pid);
    // It closes them in the moment after it has forked the job.
    wait_until("no file of the caller's is open", SOON, || {
        files().iter().all(|(_, to)| {
            let to = to.to_string_lossy();
            to.starts_with("socket:") || to.starts_with("anon_inode:")
        })
    });
    wait_until("it keeps no directory busy", SOON, || {
        fs::read_link(format!("/proc/{}/cwd", guard.pid)).is_ok_and(|place| place.as_os_str() == "/")
    });
    let blocked = proc::status_field(guard.pid, "SigBlk").expect("a mask");
    let blocked = u64::from_str_radix(&blocked, 16).expect("hexadecimal");
    // All but KILL (9) and STOP (19), which cannot be, and 32 and 33, which the C library keeps.
    let cannot = 1 << 8 | 1 << 18 | 0b11 << 31;
    assert_eq!(blocked | cannot, u64::MAX, "{blocked:x}");
    let (wrapper, stat) = (run.wrapper().stat().expect("it runs"), guard.stat().expect("it runs"));
    assert_eq!((stat.pgrp, stat.session), (guard.pid, wrapper.session), "a group in the caller's session");
}

/// The job of a run that nobody could resume must not be one that somebody could: see `child/guard.rs`.
#[test]
fn the_guard_leaves_a_session_in_which_nobody_could_resume_the_run() {
    let server = Server::start();
    let nest = Nest::new();
    let args = ["redlock-run", "--key", KEY, "sleep", "600"];
    let run = Run::of("setsid", args).env("REDLOCK_RUN_URL", server.url()).in_dir(nest.dir()).spawn();
    let job = nest.one("sleep");
    let guard = guard_of(&run.wrapper());
    let session = |process: &Process| process.stat().expect("it runs").session;
    wait_until("it has a session of its own", SOON, || session(&guard) == guard.pid);
    assert_eq!(session(&job), session(&run.wrapper()), "the job stays");
}
