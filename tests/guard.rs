//! The guard: the whole tree of the job is dead before the lease ends, whatever of ours is killed
//! or stopped; a healthy job survives every pause that its lease survives; and nobody else is
//! ever signalled.
//!
//! That a job dies in time when Redis is killed, stopped, black-holed or trickles: `deadline`.

use std::fs;
use std::thread;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM, SIGUSR1};

use crate::support::container;
use crate::support::hang::Hung;
use crate::support::jobs::{Gate, IGNORES_TERM, KEY, SLEEPS, sh};
use crate::support::lease::{dead_before, end_of_lease, held_until_dead};
use crate::support::nest::{WITNESS, guard_of, untouched};
use crate::support::proc;
use crate::support::wait::{SOON, stays};
use crate::support::{Mode, Nest, Process, Proxy, Run, Running, Server, wait_until};

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
    let killed = SystemTime::now();
    run.signal(SIGKILL);
    // TERM at once, long before the grace of 5 s: 1 s is for a busy machine.
    dead_before(killed + Duration::from_secs(1), &tree);
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
    assert!(server.redis.exists(KEY), "nobody has released it: the lease runs out");
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
    let mut run = sh(&server, &["--ttl", TTL], SAYS_BYE).in_dir(nest.dir()).spawn();
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

#[test]
fn a_guard_that_is_stopped_goes_on_at_once() {
    let server = Server::start();
    let nest = Nest::new();
    let gate = Gate::new(&server);
    let script = format!("trap 'echo noticed' TERM; echo $$; {}; exit 4", gate.wait());
    let mut run = sh(&server, &[], &script).in_dir(nest.dir()).spawn();
    let job = run.job();
    let guard = guard_of(&run.wrapper());
    for _ in 0..20 {
        guard.signal(SIGSTOP);
        wait_until("the guard goes on", SOON, || guard.state() != 'T');
    }
    gate.open();
    run.finish().stdout(format!("{}\n", job.pid)).expect_status(4);
}

/// The guard is there before the lock is, so somebody may stop it before there is a job.
#[test]
fn a_guard_that_is_stopped_before_there_is_a_job_goes_on_and_starts_it() {
    let server = Server::start();
    let nest = Nest::new();
    server.redis.tell(&["SET", KEY, "foreign"]);
    let mut run = sh(&server, &[], "echo ran").in_dir(nest.dir()).spawn();
    guard_of(&run.wrapper()).signal(SIGSTOP);
    server.redis.tell(&["DEL", KEY]);
    run.wait_for_stdout("ran\n");
    run.finish().any_output().within(Duration::from_secs(10)).expect_status(0);
}

#[test]
fn a_wrapper_that_waits_for_the_lock_ends_with_its_guard_not_in_silence() {
    let server = Server::start();
    let nest = Nest::new();
    server.redis.tell(&["SET", KEY, "foreign"]);
    let mut run = sh(&server, &[], "echo ran").in_dir(nest.dir()).spawn();
    guard_of(&run.wrapper()).signal(SIGKILL);
    server.redis.tell(&["DEL", KEY]);
    let outcome = run.finish();
    // Nothing may run without the guard that was asked for, and the lock is nobody's.
    outcome.check(outcome.stdout_text().is_empty(), "no job without a guard");
    outcome.check(outcome.code() != Some(0), "no success");
    outcome.check(outcome.stderr_text().contains("guard"), "a line that says why");
    assert!(!server.redis.exists(KEY));
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
    let (mut run, tree) = tree(&server, &nest, &["--ttl", "1s", "--no-guard"], TREE);
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
    let mut run = sh(&server, &["--ttl", TTL], &script).in_dir(nest.dir()).spawn();
    wait_until("the tree is there", SOON, || nest.named("sleep").len() >= TREE_SIZE);
    let end = end_of_lease(&server);
    server.pause();
    // Extended once more at most, between the reading and the pause.
    run.wait_for_stdout("asked");
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

// Pauses.

/// A job under a lease of 3 s that tells whether it was asked to end, and ends with 4 by itself.
fn healthy(server: &Server, nest: &Nest, gate: &Gate) -> (Running, Process) {
    let script = format!("trap 'echo noticed' TERM; echo $$; {}; exit 4", gate.wait());
    let mut run = sh(server, &["--ttl", TTL], &script).in_dir(nest.dir()).spawn();
    let job = run.job();
    (run, job)
}

/// Stops `paused` for a second and lets them go on. A lease that was extended 714 ms ago lasts
/// for 2143 − 714 = 1429 ms more before the job is asked to end.
fn pause(paused: &[Process]) {
    for process in paused {
        process.signal(SIGSTOP);
    }
    stays("paused", Duration::from_secs(1), || true);
    for process in paused {
        process.signal(SIGCONT);
    }
}

/// The job goes on, the lock is extended, and neither has noticed anything.
fn never_noticed(server: &Server, mut run: Running, job: &Process, gate: &Gate) {
    let before = server.redis.calls("pexpire");
    wait_until("it is extended", SOON, || server.redis.calls("pexpire") >= before + 2);
    gate.open();
    run.finish().stdout(format!("{}\n", job.pid)).expect_status(4);
}

#[test]
fn a_healthy_job_survives_a_pause_of_the_wrapper_within_its_lease() {
    let server = Server::start();
    let (nest, gate) = (Nest::new(), Gate::new(&server));
    let (run, job) = healthy(&server, &nest, &gate);
    for _ in 0..3 {
        pause(&[run.wrapper()]);
        let before = server.redis.calls("pexpire");
        wait_until("it is extended", SOON, || server.redis.calls("pexpire") > before);
    }
    never_noticed(&server, run, &job, &gate);
}

#[test]
fn a_healthy_job_survives_a_pause_of_wrapper_and_guard_within_its_lease() {
    let server = Server::start();
    let (nest, gate) = (Nest::new(), Gate::new(&server));
    let (run, job) = healthy(&server, &nest, &gate);
    for guard_first in [false, true] {
        let mut both = vec![run.wrapper(), guard_of(&run.wrapper())];
        if guard_first {
            both.reverse();
        }
        pause(&both);
        let before = server.redis.calls("pexpire");
        wait_until("it is extended", SOON, || server.redis.calls("pexpire") > before);
    }
    never_noticed(&server, run, &job, &gate);
}

/// The guard was stopped while the wrapper was, and only the wrapper is told to go on.
#[test]
fn a_wrapper_that_goes_on_lets_its_guard_go_on() {
    let server = Server::start();
    let (nest, gate) = (Nest::new(), Gate::new(&server));
    let (run, job) = healthy(&server, &nest, &gate);
    let guard = guard_of(&run.wrapper());
    stop(&run.wrapper());
    stop(&guard);
    run.signal(SIGCONT);
    wait_until("the guard goes on", SOON, || guard.state() != 'T');
    never_noticed(&server, run, &job, &gate);
}

/// As on a machine that stood still.
#[test]
fn a_healthy_job_survives_a_pause_of_everything_within_its_lease() {
    let server = Server::start();
    let (nest, gate) = (Nest::new(), Gate::new(&server));
    let (run, job) = healthy(&server, &nest, &gate);
    pause(&[run.wrapper(), guard_of(&run.wrapper()), job.clone()]);
    never_noticed(&server, run, &job, &gate);
}

/// Whoever wakes first, it must not be the job that goes on without a lock.
#[test]
fn a_job_that_wakes_with_everything_after_its_lease_is_ended() {
    let server = Server::start();
    let nest = Nest::new();
    let (mut run, tree) = tree(&server, &nest, &["--ttl", "1s"], TREE);
    let guard = guard_of(&run.wrapper());
    stop(&run.wrapper());
    stop(&guard);
    tree.iter().for_each(stop);
    wait_until("the lease runs out", SOON, || !server.redis.exists(KEY));
    for process in tree.iter().chain([&guard, &run.wrapper()]) {
        process.signal(SIGCONT);
    }
    run.finish().any_output().expect_status(79);
    assert!(tree.iter().all(Process::is_dead));
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
}

#[test]
fn a_guard_that_hangs_past_the_lease_is_replaced_by_the_wrapper() {
    let server = Server::start();
    let nest = Nest::new();
    let (mut run, tree) = tree(&server, &nest, &["--ttl", TTL], TREE);
    let guard = guard_of(&run.wrapper());
    let hung = Hung::new(&guard);
    let before = server.redis.calls("pexpire");
    wait_until("the lease is extended", SOON, || server.redis.calls("pexpire") > before);
    let end = end_of_lease(&server);
    server.pause();
    wait_until("the guard was killed", SOON, || hung.was_killed());
    // Extended once more at most, between the reading and the pause.
    dead_before(end + EXTENDED_EVERY, &tree);
    assert!(nest.jobs().is_empty(), "{:?}", nest.jobs());
    run.finish().any_output().expect_status(79);
}

// Between acquiring and spawning.

/// What a job is that says which lock it has and when it started.
const SAYS_WHEN: &str = "echo $REDLOCK_RUN_TOKEN $(date +%s%N)";

/// The token that stands at the key.
fn token_at(server: &Server) -> String {
    let value = server.redis.get(KEY).expect("a lock");
    value.split('"').nth(3).expect("the token first").to_string()
}

/// Waits until the lock is taken behind a proxy that holds the reply back.
fn granted_unheard(server: &Server, options: &[&str]) -> (Proxy, Running) {
    let proxy = Proxy::on_socket(server);
    proxy.set(Mode::Delay(Duration::from_secs(3600)));
    let mut all = vec!["--ttl", "1s", "--command-timeout", "60s"];
    all.extend(options);
    let run = sh(server, &all, SAYS_WHEN).env("REDLOCK_RUN_URL", proxy.url()).spawn();
    wait_until("the lock is granted", SOON, || server.redis.exists(KEY));
    (proxy, run)
}

/// The wrapper is frozen before it reads the reply, and wakes when the lease is over.
#[test]
fn a_reply_that_is_read_after_the_lease_starts_nothing() {
    for options in [&[][..], &["--no-guard"][..]] {
        let server = Server::start();
        let (proxy, mut run) = granted_unheard(&server, options);
        let stale = token_at(&server);
        stop(&run.wrapper());
        proxy.set(Mode::Pass);
        wait_until("the lease runs out", SOON, || !server.redis.exists(KEY));
        run.signal(SIGCONT);
        // It tries again, and that lock is a good one.
        run.wait_for_stdout("\n");
        let outcome = run.finish();
        let started_under = outcome.stdout_text();
        outcome.check(!started_under.contains(&stale), "a job under another lock");
        outcome.any_output().expect_status(0);
    }
}

/// The wrapper has said "go" and is frozen; the guard, which hung before that, wakes too late.
#[test]
fn a_guard_that_is_told_to_go_after_the_lease_starts_nothing() {
    let server = Server::start();
    let (proxy, mut run) = granted_unheard(&server, &[]);
    let guard = guard_of(&run.wrapper());
    let hung = Hung::new(&guard);
    proxy.set(Mode::Pass);
    wait_until("the wrapper has said go", SOON, || supervises(&run.wrapper()));
    stop(&run.wrapper());
    wait_until("the lease runs out", SOON, || !server.redis.exists(KEY));
    drop(hung);
    // The wrapper, still stopped, cannot have prevented it.
    wait_until("the guard has come to it", SOON, || {
        let jobs = proc::children(guard.pid);
        guard.is_dead() || !jobs.is_empty() && jobs.iter().all(Process::is_dead)
    });
    assert_eq!(run.stdout_so_far(), "", "a job outside its lease");
    run.signal(SIGCONT);
    run.finish().stderr_contains("nothing was run").expect_status(79);
}

/// Whether the wrapper has got as far as waiting for the job's end: it has a timer, and sleeps.
fn supervises(wrapper: &Process) -> bool {
    let has_timer = proc::open_files(wrapper.pid).iter().any(|(_, to)| to.ends_with("anon_inode:[timerfd]"));
    has_timer && wrapper.state() == 'S'
}

/// Freezes at random moments of the first milliseconds, in which a run starts, acquires and
/// spawns: there is no condition that would hit each of the moments between.
#[test]
fn a_freeze_at_any_moment_starts_no_job_outside_its_lease() {
    let server = Server::start();
    for number in 0..40_u32 {
        let guarded: &[&str] = if number % 3 == 0 { &["--no-guard"] } else { &[] };
        let options = [&["--ttl", "200ms"][..], guarded].concat();
        let mut run = sh(&server, &options, SAYS_WHEN).spawn();
        // Spread over 15 ms, within which a run on an idle machine has spawned its job.
        thread::sleep(Duration::from_micros(375) * number);
        run.signal(SIGSTOP);
        let lock = server.redis.try_query::<Option<String>>(&["GET", KEY]).expect("an answer");
        let granted = lock.map(|_| (token_at_or_none(&server), end_of_lease(&server)));
        wait_until("no lease lasts", SOON, || !server.redis.exists(KEY));
        run.signal(SIGCONT);
        let outcome = run.finish();
        let said = outcome.stdout_text();
        if let (Some((Some(token), end)), Some((under, when))) = (granted, said.trim().split_once(' ')) {
            let when = SystemTime::UNIX_EPOCH + Duration::from_nanos(when.parse().expect("nanoseconds"));
            let outside = under == token && when >= end;
            outcome.check(!outside, "no job that starts outside its lease");
        }
        let code = outcome.code();
        // Its own end, or the lease was over before or while it ran.
        outcome.check(code == Some(0) || code == Some(79), "0 or 79");
    }
}

fn token_at_or_none(server: &Server) -> Option<String> {
    server.redis.get(KEY)?.split('"').nth(3).map(String::from)
}

// Stopped jobs.

#[test]
fn a_stopped_job_whose_lock_is_lost_is_continued_to_clean_up() {
    let server = Server::start();
    let nest = Nest::new();
    // A grace of 2 s, within which the job has only to say a word.
    let mut run = sh(&server, &["--ttl", "8s"], SAYS_BYE).in_dir(nest.dir()).spawn();
    let job = run.job();
    stop(&job);
    server.redis.tell(&["DEL", KEY]);
    run.finish().stdout(format!("{}\nbye\n", job.pid)).stderr_contains("lost").expect_status(79);
}

#[test]
fn a_stopped_job_of_a_killed_wrapper_is_continued_to_clean_up() {
    let server = Server::start();
    let nest = Nest::new();
    let mut run = sh(&server, &["--ttl", "30s"], SAYS_BYE).in_dir(nest.dir()).spawn();
    let job = run.job();
    stop(&job);
    run.signal(SIGKILL);
    wait_until("it was asked and could answer", SOON, || run.stdout_so_far().ends_with("bye\n"));
}

#[test]
fn a_stopped_job_keeps_its_lock() {
    let server = Server::start();
    let nest = Nest::new();
    let (run, job) = healthy(&server, &nest, &Gate::new(&server));
    stop(&job);
    let before = server.redis.calls("pexpire");
    wait_until("it is extended", SOON, || server.redis.calls("pexpire") >= before + 3);
    assert_eq!(job.state(), 'T', "only a signal of its own may wake it");
    assert_ne!(run.wrapper().state(), 'T', "the lock is still looked after");
}

// Nobody else.

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
        let script = "WITNESS & redlock-run --ttl 1s --key job tail -f /dev/null & WITNESS & wait";
        spares_witnesses(fate, script, 2);
    }
}

#[test]
fn children_from_before_the_run_are_never_signalled() {
    for fate in FATES {
        let script = "WITNESS & (WITNESS &) ; exec redlock-run --ttl 1s --key job tail -f /dev/null";
        spares_witnesses(fate, script, 2);
    }
}

#[test]
fn children_from_before_a_run_without_a_guard_are_never_signalled() {
    for fate in [Fate::LockLost, Fate::Asked] {
        let script = "WITNESS & exec redlock-run --no-guard --ttl 1s --key job tail -f /dev/null";
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
             exec redlock-run --ttl 1s --key job tail -f /dev/null"
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
            "redlock-run --ttl 1s --key job sh ./job &\n\
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

#[test]
fn the_guard_holds_nothing_of_the_callers() {
    let server = Server::start();
    let nest = Nest::new();
    let mut run = sh(&server, &[], SLEEPS).in_dir(nest.dir()).spawn();
    run.job();
    let guard = guard_of(&run.wrapper());
    let wrapper = run.wrapper().stat().expect("it runs");
    let stat = guard.stat().expect("it runs");
    assert_eq!(stat.pgrp, guard.pid, "a group of its own");
    assert_eq!(stat.session, wrapper.session, "the caller's session");
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
}
