//! As process 1 of a container, where default actions do not apply, orphans of everybody arrive,
//! and the end of the process is the end of all.
//!
//! (systemd's `KillMode=control-group` sends its TERM to the job and to us, who pass it on: two for
//! the job. That is for `KillMode=mixed`, and the manual says so.)

use std::process::Command;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1};

use crate::support::container::{self, inner_pid};
use crate::support::jobs::{Gate, KEY, holding};
use crate::support::lease::held_until_dead;
use crate::support::nest::{WITNESS, guard_of, untouched};
use crate::support::run::PROGRAM;
use crate::support::wait::SOON;
use crate::support::{Nest, Process, Run, Running, Server, proc, stalls, tools, wait_until};

/// `redlock-run OPTIONS --key job sh -c SCRIPT` as process 1.
fn first(server: &Server, nest: &Nest, options: &[&str], script: &str) -> Running {
    let command = [&[PROGRAM, "--key", KEY][..], options, &["--", "sh", "-c", script]].concat();
    container::init(server, &command).in_dir(nest.dir()).spawn()
}

/// The wrapper, which is process 1 there.
#[track_caller]
fn process_1(nest: &Nest) -> Process {
    let wrapper = nest.one("redlock-run");
    assert_eq!(inner_pid(&wrapper), Some(1));
    wrapper
}

/// Sends a signal to process 1 from inside, as `docker exec … kill` does: the kernel protects it
/// from signals that it has not asked for.
fn signal_from_inside(wrapper: &Process, signal: &str) {
    let target = wrapper.pid.to_string();
    let line = format!("kill -{signal} 1");
    let mut command = Command::new("nsenter");
    let status = command.args(["-t", &target, "-p", "sh", "-c", &line]).status();
    // Its status says nothing: when process 1 dies of the signal, the kernel ends the shell with it.
    status.expect("nsenter to start");
}

/// The zombies among the children of these processes.
fn zombies(of: &[&Process]) -> Vec<Process> {
    let children = of.iter().flat_map(|process| proc::children(process.pid));
    children.filter(|child| child.state() == 'Z').collect()
}

#[test]
fn exit_codes_pass_through_process_1() {
    if !container::possible("exit_codes_pass_through_process_1") {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    for code in [0, 1, 42, 75, 127, 255] {
        first(&server, &nest, &[], &format!("exit {code}")).finish().expect_status(code);
        assert!(!server.redis.exists(KEY));
    }
}

#[test]
fn the_death_of_a_job_by_signal_n_is_128_and_n_in_process_1() {
    if !container::possible("the_death_of_a_job_by_signal_n_is_128_and_n_in_process_1") {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    let signals = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGKILL,
        libc::SIGSEGV,
        libc::SIGPIPE,
        libc::SIGTERM,
        libc::SIGRTMIN(),
        libc::SIGRTMAX(),
    ];
    for signal in signals {
        let script = format!("ulimit -c 0; kill -{signal} $$");
        first(&server, &nest, &[], &script).finish().expect_status(128 + signal);
        assert!(!server.redis.exists(KEY));
    }
}

/// celestiaorg/celestia-app#1502, containerd/containerd#9979: `docker stop` that waits ten seconds.
#[test]
fn signals_to_process_1_end_the_job() {
    if !container::possible("signals_to_process_1_end_the_job") {
        return;
    }
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1] {
        let server = Server::start();
        let nest = Nest::new();
        let mut run = first(&server, &nest, &[], "exec sleep 600");
        nest.one("sleep");
        process_1(&nest).signal(signal);
        run.finish().expect_status(128 + signal as i32);
        assert!(!server.redis.exists(KEY));
    }
}

#[test]
fn a_job_in_a_container_may_clean_up() {
    if !container::possible("a_job_in_a_container_may_clean_up") {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    let script = "exec 2>/dev/null; trap 'echo clean; exit 3' TERM; echo ready; while :; do sleep 0.02; done";
    let mut run = first(&server, &nest, &[], script);
    run.wait_for_stdout("ready\n");
    process_1(&nest).signal(SIGTERM);
    run.finish().stdout("ready\nclean\n").expect_status(3);
}

#[test]
fn signals_from_inside_the_container_end_the_job() {
    let test = "signals_from_inside_the_container_end_the_job";
    if !container::possible(test) || tools::find(test, "nsenter").is_none() {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    let mut run = first(&server, &nest, &[], "exec sleep 600");
    nest.one("sleep");
    signal_from_inside(&process_1(&nest), "TERM");
    run.finish().expect_status(143);
}

/// Before there is a job, no default action would end process 1.
#[test]
fn signals_end_process_1_while_it_waits_for_the_lock() {
    let test = "signals_end_process_1_while_it_waits_for_the_lock";
    if !container::possible(test) || tools::find(test, "nsenter").is_none() {
        return;
    }
    let server = Server::start();
    server.redis.tell(&["SET", KEY, "foreign"]);
    let signals = [("TERM", SIGTERM), ("INT", SIGINT), ("HUP", SIGHUP), ("QUIT", SIGQUIT)];
    for (number, (name, signal)) in signals.into_iter().enumerate() {
        let nest = Nest::new();
        let mut run = first(&server, &nest, &[], "echo ran");
        run.wait_for_stderr("held by");
        let wrapper = process_1(&nest);
        let sent = Instant::now();
        if number % 2 == 0 {
            signal_from_inside(&wrapper, name);
        } else {
            wrapper.signal(signal);
        }
        let outcome = run.finish();
        // "At once": a second is for a busy machine.
        stalls::assert_within(&format!("SIG{name}"), sent, Duration::from_secs(1));
        outcome.stderr_contains("held by").expect_status(128 + signal as i32);
        assert!(nest.processes().is_empty());
    }
}

#[test]
fn a_signal_ends_process_1_while_redis_does_not_answer() {
    if !container::possible("a_signal_ends_process_1_while_redis_does_not_answer") {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    server.pause();
    let mut run = first(&server, &nest, &[], "echo ran");
    let wrapper = process_1(&nest);
    wait_until("it is connected", SOON, || {
        proc::open_files(wrapper.pid).iter().any(|(_, to)| to.to_string_lossy().starts_with("socket:"))
    });
    wrapper.signal(SIGTERM);
    let outcome = run.finish();
    // A clean-up of the attempt on its way may take a command timeout, 1 s.
    outcome.within(Duration::from_secs(5)).any_output().expect_status(143);
}

#[test]
fn two_signals_end_the_hanging_release_of_process_1() {
    if !container::possible("two_signals_end_the_hanging_release_of_process_1") {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    let gate = Gate::new(&server);
    let mut run = first(&server, &nest, &["--ttl", "60s"], &format!("echo ready; {}; exit 3", gate.wait()));
    run.wait_for_stdout("ready\n");
    let wrapper = process_1(&nest);
    let leader = proc::children(guard_of(&wrapper).pid).remove(0);
    server.pause();
    gate.open();
    // Reaped when the guard is told to end, which is just before the release.
    wait_until("the job is over", SOON, || leader.stat().is_none());
    for _ in 0..2 {
        wrapper.signal(SIGTERM);
        wait_until("the signal is taken", SOON, || wrapper.is_dead() || pending(&wrapper) == 0);
    }
    run.finish().stdout("ready\n").stderr_contains("gave up releasing").expect_status(3);
}

/// The signals that wait to be taken by the process.
fn pending(process: &Process) -> u64 {
    let mask = proc::status_field(process.pid, "ShdPnd").unwrap_or_default();
    u64::from_str_radix(&mask, 16).unwrap_or(0)
}

/// kelseyhightower/confd#742: zombies until the process table is full.
#[test]
fn orphans_of_the_job_are_reaped_and_never_taken_for_it() {
    if !container::possible("orphans_of_the_job_are_reaped_and_never_taken_for_it") {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    let gate = Gate::new(&server);
    let orphans = "for i in 1 2 3 4 5 6 7 8; do (sh -c \"exit $i\" &); (setsid sh -c \"exit $i\" &); done";
    let script = format!("{orphans}; echo ready; {}; {orphans}; exit 42", gate.wait());
    let mut run = first(&server, &nest, &[], &script);
    run.wait_for_stdout("ready\n");
    let wrapper = process_1(&nest);
    let guard = guard_of(&wrapper);
    wait_until("no zombie is left", SOON, || zombies(&[&wrapper, &guard]).is_empty());
    gate.open();
    run.finish().stdout("ready\n").expect_status(42);
}

/// A first process that reaps nobody: each guard left behind would be a zombie for ever.
#[test]
fn a_run_without_a_job_leaves_no_zombie_to_process_1() {
    let test = "a_run_without_a_job_leaves_no_zombie_to_process_1";
    if !container::possible(test) || tools::find(test, "nsenter").is_none() {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    let holder = holding(&server, &[]);
    let _init = container::init(&server, &["tail", "-f", "/dev/null"]).in_dir(nest.dir()).spawn();
    let process_1 = nest.one("tail");
    let inside = |line: &str| {
        let target = process_1.pid.to_string();
        let run = Run::of("nsenter", ["-t", &target, "-p", "sh", "-c", line]);
        run.env("REDLOCK_RUN_URL", server.url()).in_dir(nest.dir()).finish().any_output()
    };
    inside("redlock-run -n --key job -- true").expect_status(75);
    inside("redlock-run -w 500ms --key job -- true").expect_status(75);
    inside("timeout -s INT 0.5 redlock-run --key job -- true").expect_status(124);
    drop(holder);
    server.redis.tell(&["DEL", KEY]);
    inside("redlock-run --key job -- no-such-command").expect_status(127);
    inside("redlock-run --key job -- true").expect_status(0);
    assert!(zombies(&[&process_1]).is_empty());
}

/// What others run in the container (`docker exec`, a health check) leaves its orphans to process 1.
fn leaves_an_orphan(wrapper: &Process, nest: &Nest, orphan: &str) {
    let target = wrapper.pid.to_string();
    let line = format!("({orphan} &)");
    let run = Run::of("nsenter", ["-t", &target, "-p", "sh", "-c", &line]).in_dir(nest.dir());
    let status = run.into_command().status();
    assert!(status.expect("nsenter to start").success(), "{line}");
}

#[test]
fn orphans_of_others_are_reaped_while_the_job_runs() {
    let test = "orphans_of_others_are_reaped_while_the_job_runs";
    if !container::possible(test) || tools::find(test, "nsenter").is_none() {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    let mut run = first(&server, &nest, &[], "exec tail -f /dev/null");
    let job = nest.one("tail");
    let wrapper = process_1(&nest);
    leaves_an_orphan(&wrapper, &nest, "sleep 600");
    let orphan = nest.one("sleep");
    wait_until("it came to process 1", SOON, || orphan.stat().is_some_and(|stat| stat.ppid == wrapper.pid));
    orphan.signal(SIGKILL);
    wait_until("it was reaped", SOON, || orphan.stat().is_none());
    assert!(!job.is_dead());
    wrapper.signal(SIGTERM);
    run.finish().expect_status(143);
}

#[test]
fn orphans_of_others_are_reaped_while_process_1_waits_for_the_lock() {
    let test = "orphans_of_others_are_reaped_while_process_1_waits_for_the_lock";
    if !container::possible(test) || tools::find(test, "nsenter").is_none() {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    server.redis.tell(&["SET", KEY, "foreign"]);
    let mut run = first(&server, &nest, &[], "exit 5");
    run.wait_for_stderr("held by");
    let wrapper = process_1(&nest);
    leaves_an_orphan(&wrapper, &nest, "sleep 600");
    let orphan = nest.one("sleep");
    orphan.signal(SIGKILL);
    wait_until("it was reaped", SOON, || orphan.stat().is_none());
    server.redis.tell(&["DEL", KEY]);
    run.finish().any_output().expect_status(5);
}

#[test]
fn orphans_of_others_are_not_signalled_with_the_job() {
    let test = "orphans_of_others_are_not_signalled_with_the_job";
    if !container::possible(test) || tools::find(test, "nsenter").is_none() {
        return;
    }
    for guarded in [&[][..], &["--no-guard"][..]] {
        let server = Server::start();
        let nest = Nest::new();
        let script = "trap 'echo asked' TERM; echo ready; while :; do tail -f /dev/null & wait; done";
        let options = [&["--ttl", "8s"][..], guarded].concat();
        let mut run = first(&server, &nest, &options, script);
        run.wait_for_stdout("ready\n");
        leaves_an_orphan(&process_1(&nest), &nest, WITNESS);
        let witness = nest.one("sleep");
        server.redis.tell(&["DEL", KEY]);
        // The job has a grace of 2 s now; after that the container is over, and the kernel kills
        // whatever is in it.
        run.wait_for_stdout("asked\n");
        untouched(&witness);
        run.finish().any_output().expect_status(79);
    }
}

#[test]
fn the_whole_tree_dies_when_the_guard_is_killed_in_a_container() {
    if !container::possible("the_whole_tree_dies_when_the_guard_is_killed_in_a_container") {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    let script = "trap '' TERM; sleep 600 & (setsid sleep 600 &) ; exec sleep 600";
    let mut run = first(&server, &nest, &["--ttl", "60s"], script);
    let tree = nest.all("sleep", 3);
    guard_of(&process_1(&nest)).signal(SIGKILL);
    held_until_dead(&server, &tree);
    let outcome = run.finish();
    outcome.check(outcome.code() == Some(137), "128 + 9");
    outcome.stderr_contains("guard").expect_status(137);
    assert!(!server.redis.exists(KEY), "released");
}

/// The kernel ends everything in the container with it.
#[test]
fn nothing_outlives_a_killed_process_1() {
    if !container::possible("nothing_outlives_a_killed_process_1") {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    let script = "trap '' TERM; (env -i setsid sleep 600 &) ; exec sleep 600";
    let _run = first(&server, &nest, &["--ttl", "3s"], script);
    let tree = nest.all("sleep", 2);
    process_1(&nest).signal(SIGKILL);
    wait_until("all of it is dead", SOON, || tree.iter().all(Process::is_dead));
    wait_until("the lease runs out", SOON, || !server.redis.exists(KEY));
}

#[test]
fn what_a_lost_lock_ends_in_a_container_is_79() {
    if !container::possible("what_a_lost_lock_ends_in_a_container_is_79") {
        return;
    }
    let server = Server::start();
    let nest = Nest::new();
    let script = "trap '' TERM; (setsid sleep 600 &) ; exec sleep 600";
    let mut run = first(&server, &nest, &["--ttl", "3s"], script);
    let tree = nest.all("sleep", 2);
    server.redis.tell(&["DEL", KEY]);
    run.finish().any_output().expect_status(79);
    assert!(tree.iter().all(Process::is_dead));
}
