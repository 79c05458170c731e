//! What the terminal sends, it sends to the job: once. What a process sends, we pass on: once.

use nix::libc;
use nix::sys::signal::Signal::{self, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};

use super::{COUNTS, Desk, counting_leader, seen_until_the_fence, unhelped};
use crate::support::hang::Hung;
use crate::support::jobs::{KEY, QUEUES};
use crate::support::lease::held_until_dead;
use crate::support::nest::{guard_of, supervises};
use crate::support::wait::SOON;
use crate::support::{Nest, Server, proc, tools, wait_until};

/// GoogleCloudPlatform/berglas#158, astral-sh/uv#11009: two interrupts for one ^C.
#[test]
fn one_interrupt_key_is_one_interrupt() {
    let Some(python) = tools::python("one_interrupt_key_is_one_interrupt") else { return };
    let mut desk = Desk::new();
    let wrapper = desk.counts(&python);
    for (key, name) in [("\x03", "SIGINT"), ("\x1c", "SIGQUIT")] {
        unhelped(&desk.nest, &wrapper, name, || desk.bash.pty.write(key));
    }
    assert_eq!(seen_until_the_fence(&desk.nest, &wrapper), "SIGINT SIGQUIT");
    desk.prompt();
    assert_eq!(desk.status(), "0");
}

#[test]
fn one_interrupt_key_is_one_interrupt_without_a_shell() {
    let Some(python) = tools::python("one_interrupt_key_is_one_interrupt_without_a_shell") else { return };
    let server = Server::start();
    let nest = Nest::new();
    let mut pty = counting_leader(&server, &nest, &python);
    let wrapper = pty.leader();
    unhelped(&nest, &wrapper, "SIGINT", || pty.write("\x03"));
    assert_eq!(seen_until_the_fence(&nest, &wrapper), "SIGINT");
    assert!(pty.wait().success());
}

#[test]
fn signals_sent_by_a_process_are_passed_on_exactly_once() {
    let Some(python) = tools::python("signals_sent_by_a_process_are_passed_on_exactly_once") else { return };
    let mut desk = Desk::new();
    let wrapper = desk.counts(&python);
    let signals = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, Signal::SIGALRM, Signal::SIGWINCH];
    let mut wanted = Vec::new();
    for signal in signals {
        wrapper.signal(signal);
        desk.until_seen(signal.as_str());
        wanted.push(signal.as_str());
    }
    assert_eq!(seen_until_the_fence(&desk.nest, &wrapper), wanted.join(" "));
    desk.prompt();
}

/// Between the lock and the job's start nobody is in the foreground but we.
#[test]
fn a_key_before_the_job_has_started_is_not_lost() {
    for (key, shown, status) in [("\x03", "^C", "130"), ("\x1a", "^Z", "148")] {
        let mut desk = Desk::new();
        desk.server.redis.tell(&["SET", KEY, "foreign"]);
        desk.bash.type_line("redlock-run --key job sleep 600");
        desk.bash.pty.read_until("held by");
        let wrapper = desk.nest.one("redlock-run");
        let hung = Hung::new(&guard_of(&wrapper));
        desk.server.redis.tell(&["DEL", KEY]);
        wait_until("the wrapper has said go", SOON, || supervises(&wrapper));
        desk.bash.pty.write(key);
        desk.bash.pty.read_until(shown);
        drop(hung);
        desk.prompt();
        assert_eq!(desk.status(), status, "{shown}");
        for process in desk.nest.processes() {
            process.signal(Signal::SIGKILL);
        }
    }
}

/// Standard signals that come twice at once are one; real-time signals are counted.
#[test]
fn no_signal_sent_by_a_process_is_doubled() {
    let Some(python) = tools::python("no_signal_sent_by_a_process_is_doubled") else { return };
    let mut desk = Desk::new();
    desk.nest.script("queues.py", QUEUES);
    desk.bash.type_line(&format!("redlock-run --key job {python} queues.py"));
    desk.bash.pty.read_until("ready\r\n");
    let wrapper = desk.nest.one("redlock-run");
    for _ in 0..20 {
        wrapper.signal_number(libc::SIGRTMIN() + 5);
    }
    wrapper.signal_number(libc::SIGRTMIN() + 6);
    desk.bash.pty.read_until("count=20\r\n");
    desk.prompt();
}

/// In a terminal a job's group is also ours: we get what it sends there, and do not send it back.
#[test]
fn a_job_that_signals_its_group_meets_it_once_and_ends_as_it_likes() {
    let mut desk = Desk::new();
    // Half a second for what might come back, which nobody announces; then 4 and one for each.
    desk.nest.script("job", "n=0; trap 'n=$((n+1))' TERM; kill -TERM 0; sleep 0.5; exit $((n + 4))");
    desk.bash.run("redlock-run --key job sh ./job");
    assert_eq!(desk.status(), "5");
}

#[test]
fn an_interrupt_key_ends_the_job_and_the_shells_loop() {
    let mut desk = Desk::new();
    let line = "for i in 1 2 3; do redlock-run --key job sleep 600; echo again; done";
    desk.starts(line, "sleep");
    desk.bash.pty.write("\x03");
    let shown = desk.prompt();
    assert!(!shown.contains("again"), "{shown}");
    assert_eq!(desk.status(), "130");
    assert!(!desk.server.redis.exists(KEY));
    assert!(desk.nest.named("sleep").is_empty());
}

#[test]
fn an_interrupt_key_ends_the_wait_for_the_lock() {
    let mut desk = Desk::new();
    desk.server.redis.tell(&["SET", KEY, "foreign"]);
    desk.bash.type_line("redlock-run --key job sleep 600");
    desk.bash.pty.read_until("held by");
    desk.bash.pty.write("\x03");
    desk.prompt();
    assert_eq!(desk.status(), "130");
}

#[test]
fn an_interrupt_key_leaves_the_lock_to_a_subshell_that_cleans_up() {
    let mut desk = Desk::new();
    // A shell's `&` lets its command ignore INT for good; env undoes that.
    let cleans = "trap 'sleep 5; echo >clean; exit 0' INT; echo >ready; while :; do sleep 0.02; done";
    desk.nest.script("job", &format!("env --default-signal sh -c \"{cleans}\" & exec sleep 600"));
    desk.bash.type_line("redlock-run --ttl 4s --key job sh ./job");
    wait_until("the subshell is ready", SOON, || desk.nest.has("ready"));
    let leader = proc::children(guard_of(&desk.nest.one("redlock-run")).pid).remove(0);
    let subshell = proc::children(leader.pid).remove(0);
    desk.bash.pty.write("\x03");
    held_until_dead(&desk.server, &[leader, subshell]);
    desk.prompt();
    assert_eq!(desk.status(), "130", "the leader's");
    assert!(desk.nest.has("clean"));
    assert!(!desk.server.redis.exists(KEY));
}

#[test]
fn a_subshell_that_does_not_end_after_an_interrupt_key_is_killed_after_kill_after() {
    let mut desk = Desk::new();
    let script = "(trap '' INT; echo >ready; exec tail -f /dev/null) & wait";
    desk.bash.type_line(&format!("redlock-run --kill-after 300ms --key job sh -c \"{script}\""));
    wait_until("the subshell is ready", SOON, || desk.nest.has("ready"));
    let left = desk.nest.one("tail");
    desk.bash.pty.write("\x03");
    held_until_dead(&desk.server, &[left]);
    desk.prompt();
    assert_eq!(desk.status(), "130");
}

#[test]
fn an_interrupt_key_is_one_interrupt_while_standard_input_is_a_pipe() {
    let Some(python) = tools::python("an_interrupt_key_is_one_interrupt_while_standard_input_is_a_pipe")
    else {
        return;
    };
    let mut desk = Desk::new();
    desk.nest.script("counts.py", COUNTS);
    desk.bash.type_line(&format!("echo dump | redlock-run --key job {python} counts.py"));
    desk.until_seen("ready");
    let wrapper = desk.nest.one("redlock-run");
    unhelped(&desk.nest, &wrapper, "SIGINT", || desk.bash.pty.write("\x03"));
    assert_eq!(seen_until_the_fence(&desk.nest, &wrapper), "SIGINT");
    desk.prompt();
}

#[test]
fn a_change_of_the_window_size_reaches_the_job_once() {
    let Some(python) = tools::python("a_change_of_the_window_size_reaches_the_job_once") else { return };
    let mut desk = Desk::new();
    let wrapper = desk.counts(&python);
    unhelped(&desk.nest, &wrapper, "SIGWINCH", || desk.bash.pty.resize(47, 111));
    assert_eq!(seen_until_the_fence(&desk.nest, &wrapper), "SIGWINCH");
    desk.prompt();
    let size = desk.bash.run("redlock-run --key job stty size");
    assert_eq!(size.trim(), "47 111");
}
