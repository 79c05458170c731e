//! ^Z, `jobs`, `fg`, `bg` and `&`.

use std::os::unix::process::ExitStatusExt as _;

use nix::libc;
use nix::sys::signal::Signal::{SIGCONT, SIGKILL};

use super::{Desk, until_running, until_stopped};
use crate::support::jobs::KEY;
use crate::support::lease::{dead_before, end_of_lease};
use crate::support::nest::guard_of;
use crate::support::pty::Pty;
use crate::support::wait::SOON;
use crate::support::{Nest, Run, Server, proc, wait_until};

#[test]
fn what_a_job_leaves_in_the_terminal_lives_on_and_is_not_waited_for() {
    let mut desk = Desk::new();
    desk.bash.type_line("redlock-run --key job sh -c 'sleep 600 & exit 0'");
    desk.prompt();
    assert_eq!(desk.status(), "0");
    assert!(!desk.server.redis.exists(KEY));
    assert!(!desk.nest.one("sleep").is_dead());
}

/// ^Z and `fg`, again and again, then ^C.
fn suspended_and_resumed(options: &str) {
    let mut desk = Desk::new();
    let (wrapper, job) = desk.starts(&format!("redlock-run {options} --key job sleep 600"), "sleep");
    for _ in 0..3 {
        desk.bash.pty.write("\x1a");
        let shown = desk.prompt();
        assert!(shown.contains("Stopped"), "{shown}");
        until_stopped(&[&wrapper, &job]);
        let jobs = desk.bash.run("jobs");
        assert!(jobs.contains("Stopped") && jobs.contains("redlock-run"), "{jobs}");
        desk.bash.type_line("fg");
        desk.bash.wait_for_foreground("redlock-run");
        until_running(&[&wrapper, &job]);
    }
    desk.bash.pty.write("\x03");
    desk.prompt();
    assert_eq!(desk.status(), "130");
}

#[test]
fn the_suspend_key_stops_run_and_job_and_fg_lets_both_go_on() {
    suspended_and_resumed("");
}

#[test]
fn the_suspend_key_and_fg_work_without_a_guard_too() {
    suspended_and_resumed("--no-guard");
}

#[test]
fn a_run_within_a_run_is_suspended_and_resumed_with_it() {
    let mut desk = Desk::new();
    desk.bash.type_line("redlock-run --key job redlock-run --key inner sleep 600");
    let job = desk.nest.one("sleep");
    let wrappers = desk.nest.all("redlock-run", 2);
    let all = [&wrappers[0], &wrappers[1], &job];
    for _ in 0..2 {
        desk.bash.pty.write("\x1a");
        desk.prompt();
        until_stopped(&all);
        desk.bash.type_line("fg");
        desk.bash.wait_for_foreground("redlock-run");
        until_running(&all);
    }
    desk.bash.pty.write("\x03");
    desk.prompt();
    assert_eq!(desk.status(), "130");
    assert!(all.iter().all(|process| process.is_dead()));
    assert!(!desk.server.redis.exists("inner") && !desk.server.redis.exists(KEY));
}

/// Not by the shell, which tells the whole group, but by somebody who knows the one pid.
#[test]
fn a_suspended_run_that_is_continued_alone_takes_its_job_with_it() {
    let mut desk = Desk::new();
    let (wrapper, job) = desk.starts("redlock-run --key job sleep 600", "sleep");
    desk.bash.pty.write("\x1a");
    desk.prompt();
    until_stopped(&[&wrapper, &job]);
    wrapper.signal(SIGCONT);
    until_running(&[&wrapper, &job]);
    desk.bash.run("kill %1; wait %1");
    assert_eq!(desk.status(), "143");
}

#[test]
fn a_suspended_job_goes_on_in_the_background_with_bg() {
    let mut desk = Desk::new();
    let (wrapper, job) = desk.starts("redlock-run --ttl 5s --key job sleep 600", "sleep");
    desk.bash.pty.write("\x1a");
    desk.prompt();
    until_stopped(&[&wrapper, &job]);
    desk.bash.run("bg");
    until_running(&[&wrapper, &job]);
    let before = desk.server.redis.calls("pexpire");
    wait_until("it is extended", SOON, || desk.server.redis.calls("pexpire") > before);
    assert!(desk.bash.owns_the_terminal());
    desk.bash.run("kill %1");
    wait_until("the job is ended", SOON, || job.is_dead() && wrapper.is_dead());
}

#[test]
fn a_job_that_suspends_itself_suspends_the_run() {
    let mut desk = Desk::new();
    let line = "redlock-run --key job sh -c 'kill -STOP $$; echo went on; exit 5'";
    desk.bash.type_line(line);
    let shown = desk.prompt();
    assert!(shown.contains("Stopped"), "{shown}");
    desk.bash.type_line("fg");
    desk.bash.pty.read_until("went on");
    desk.prompt();
    assert_eq!(desk.status(), "5");
}

#[test]
fn a_job_that_minds_the_suspend_key_is_not_stopped_by_us() {
    let mut desk = Desk::new();
    let script = "trap 'echo minded' TSTP; echo >ready; while :; do read -t 1 key; done";
    desk.bash.type_line(&format!("redlock-run --key job bash -c \"{script}\""));
    wait_until("the job is ready", SOON, || desk.nest.has("ready"));
    desk.bash.pty.write("\x1a");
    desk.bash.pty.read_until("minded");
    desk.bash.wait_for_foreground("redlock-run");
    desk.bash.pty.write("\x03");
    desk.prompt();
    assert_eq!(desk.status(), "130");
}

#[test]
fn the_wait_for_the_lock_can_be_suspended_and_resumed() {
    let mut desk = Desk::new();
    desk.server.redis.tell(&["SET", KEY, "foreign"]);
    desk.bash.type_line("redlock-run --key job echo ran");
    desk.bash.pty.read_until("held by");
    desk.bash.pty.write("\x1a");
    let shown = desk.prompt();
    assert!(shown.contains("Stopped"), "{shown}");
    desk.bash.type_line("fg");
    desk.bash.wait_for_foreground("redlock-run");
    desk.server.redis.tell(&["DEL", KEY]);
    desk.bash.pty.read_until("ran\r\n");
    desk.prompt();
    assert_eq!(desk.status(), "0");
}

/// containers/bubblewrap#369: a job in a group of its own is stopped at its first read.
#[test]
fn a_background_job_that_reads_waits_for_fg_and_then_reads() {
    let mut desk = Desk::new();
    let (wrapper, job) = desk.starts("redlock-run --key job cat &", "cat");
    until_stopped(&[&wrapper, &job]);
    desk.bash.next_prompt();
    assert!(desk.bash.owns_the_terminal());
    desk.bash.type_line("fg");
    desk.bash.wait_for_foreground("redlock-run");
    until_running(&[&wrapper, &job]);
    desk.bash.type_line("hello");
    desk.bash.pty.read_until("hello\r\n");
    desk.bash.pty.write("\x04");
    desk.prompt();
    assert_eq!(desk.status(), "0");
}

/// It is stopped again by the same signal before anybody has seen that it went on.
#[test]
fn a_job_that_reads_in_the_background_stops_the_run_each_time() {
    let mut desk = Desk::new();
    let (wrapper, job) = desk.starts("redlock-run --key job cat &", "cat");
    until_stopped(&[&wrapper, &job]);
    desk.bash.next_prompt();
    for _ in 0..20 {
        desk.bash.run("bg");
        until_stopped(&[&wrapper, &job]);
    }
    job.signal(SIGKILL);
    wrapper.signal(SIGCONT);
    wait_until("the run is over", SOON, || wrapper.is_dead());
}

#[test]
fn a_background_job_leaves_the_terminal_to_the_shell() {
    let mut desk = Desk::new();
    let (_, job) = desk.starts("redlock-run --key job sh -c 'echo from behind; exec sleep 600' &", "sleep");
    // Before the prompt or after it.
    if !desk.bash.next_prompt().contains("from behind") {
        desk.bash.pty.read_until("from behind\r\n");
    }
    assert!(desk.bash.owns_the_terminal());
    assert_eq!(desk.bash.run("echo one$((1))").lines().last(), Some("one1"));
    assert!(!job.is_dead());
    desk.bash.run("kill %1; wait %1");
    assert_eq!(desk.status(), "143");
}

/// `stty tostop` stops who writes from the background; our messages come from beside the job.
#[test]
fn a_message_from_the_background_stops_nobody() {
    let mut desk = Desk::new();
    desk.server.redis.tell(&["SET", KEY, "foreign"]);
    desk.bash.type_line("stty tostop; redlock-run --key job true & ");
    desk.bash.pty.read_until("held by");
    let wrapper = desk.nest.one("redlock-run");
    desk.server.redis.tell(&["DEL", KEY]);
    wait_until("the run is over", SOON, || wrapper.is_dead());
}

#[test]
fn a_job_whose_lease_ends_while_it_is_suspended_is_killed_and_fg_gives_79() {
    let mut desk = Desk::new();
    let (wrapper, job) = desk.starts("redlock-run --ttl 3s --key job sleep 600", "sleep");
    desk.bash.pty.write("\x1a");
    desk.prompt();
    until_stopped(&[&wrapper]);
    dead_before(end_of_lease(&desk.server), &[job]);
    desk.bash.type_line("fg");
    desk.prompt();
    assert_eq!(desk.status(), "79");
}

#[test]
fn a_shell_with_job_control_may_be_the_job() {
    let mut desk = Desk::new();
    desk.bash.type_line("PS1='inner> ' redlock-run --key job bash --norc --noprofile -i");
    desk.bash.pty.read_until("inner> ");
    desk.bash.pty.write("sleep 600\n");
    desk.nest.one("sleep");
    desk.bash.pty.write("\x1a");
    desk.bash.pty.read_until("Stopped");
    desk.bash.pty.read_until("inner> ");
    desk.bash.pty.write("fg\n");
    wait_until("it goes on", SOON, || desk.nest.one("sleep").state() == 'S');
    desk.bash.pty.write("\x03");
    desk.bash.pty.read_until("inner> ");
    desk.bash.pty.write("exit 6\n");
    desk.prompt();
    assert_eq!(desk.status(), "6");
}

/// The inner shell has given the terminal to a group of its own, and cannot take it back.
#[test]
fn a_job_that_dies_with_the_terminal_in_other_hands_leaves_it_to_the_shell() {
    let mut desk = Desk::new();
    desk.bash.type_line("PS1='inner> ' redlock-run --key job bash --norc --noprofile -i");
    desk.bash.pty.read_until("inner> ");
    desk.bash.pty.write("sleep 600\n");
    let sleep = desk.nest.one("sleep");
    let wrapper = desk.nest.one("redlock-run");
    let inner = proc::children(guard_of(&wrapper).pid).remove(0);
    inner.signal(SIGKILL);
    desk.prompt();
    assert_eq!(desk.status(), "137");
    sleep.signal(SIGKILL);
}

/// In a session without job control (`ssh -t host …`, a container's terminal) the kernel throws the
/// suspend key away: nobody could continue what it would stop.
#[test]
fn the_suspend_key_stops_nothing_where_nobody_could_resume() {
    for command in ["sleep 600", "redlock-run --key job sleep 600"] {
        // Leading the session, or below a script that does.
        for line in [format!("exec {command}"), format!("{command}; exit $?")] {
            let server = Server::start();
            let nest = Nest::new();
            let run = Run::of("sh", ["-c", &line]).env("REDLOCK_RUN_URL", server.url());
            let mut pty = Pty::spawn(run.in_dir(nest.dir()).into_command());
            let job = nest.one("sleep");
            pty.write("\x1a");
            // The terminal has taken the key when it takes the next, which ends the job.
            pty.read_until("^Z");
            pty.write("\x03");
            assert_eq!(pty.wait().signal(), Some(libc::SIGINT), "{line}");
            // A shell that leads the session dies of the key beside its job, not after it.
            if !line.starts_with("exec") {
                wait_until("the job is dead", SOON, || job.is_dead());
            }
            assert!(job.is_dead(), "{line}");
        }
    }
}

/// The shell is gone, and with it whoever could say `fg`.
#[test]
fn a_suspended_job_whose_shell_is_killed_ends_with_its_lease_and_so_does_the_run() {
    let mut desk = Desk::new();
    let (wrapper, job) = desk.starts("redlock-run --ttl 3s --key job sleep 600", "sleep");
    desk.bash.pty.write("\x1a");
    desk.prompt();
    until_stopped(&[&wrapper, &job]);
    desk.bash.pty.leader().signal(SIGKILL);
    wait_until("nothing is left", SOON, || job.is_dead() && wrapper.is_dead());
}
