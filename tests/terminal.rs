//! Job control, keys, prompts and modes, in a real terminal with a real shell: as if the job had
//! been typed without us.

use std::os::unix::process::ExitStatusExt as _;

use nix::libc;
use nix::sys::signal::Signal::{
    self, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM, SIGUSR1, SIGUSR2,
};
use nix::sys::termios::LocalFlags;

use crate::support::bash::Bash;
use crate::support::hang::Hung;
use crate::support::jobs::{KEY, QUEUES};
use crate::support::lease::{dead_before, end_of_lease, held_until_dead};
use crate::support::nest::{WITNESS, guard_of, untouched};
use crate::support::proc;
use crate::support::pty::Pty;
use crate::support::tools;
use crate::support::wait::SOON;
use crate::support::{Nest, Process, Run, Server, wait_until};

/// Writes each signal it gets into the file `seen`; USR2 ends it.
///
/// USR2 is also the fence: what the wrapper passes on, it passes on in order, so that a second
/// copy of an earlier signal would stand before the end.
const COUNTS: &str = "
import os, signal, time
seen = os.open('seen', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def note(number, _):
    os.write(seen, (signal.Signals(number).name + '\\n').encode())
    if number == signal.SIGUSR2:
        os._exit(0)
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1,
               signal.SIGUSR2, signal.SIGALRM, signal.SIGWINCH):
    signal.signal(number, note)
os.write(seen, b'ready\\n')
while True:
    time.sleep(600)
";

/// A terminal with a shell, and a test's own directory, in which the shell stands.
struct Desk {
    bash: Bash,
    nest: Nest,
    server: Server,
}

impl Desk {
    fn new() -> Self {
        let server = Server::start();
        let nest = Nest::new();
        let bash = Bash::start_in(&server, nest.dir());
        Self { bash, nest, server }
    }

    /// Types a line that runs `redlock-run`, and waits until its job, a program called `name`,
    /// runs; gives the wrapper and the job.
    #[track_caller]
    fn starts(&mut self, line: &str, name: &str) -> (Process, Process) {
        self.bash.type_line(line);
        let job = self.nest.one(name);
        (self.nest.one("redlock-run"), job)
    }

    /// A python that counts, under the lock, once it is ready; gives the wrapper.
    #[track_caller]
    fn counts(&mut self, python: &str) -> Process {
        self.nest.script("counts.py", COUNTS);
        self.bash.type_line(&format!("redlock-run --key job {python} counts.py"));
        self.until_seen("ready");
        self.nest.one("redlock-run")
    }

    #[track_caller]
    fn until_seen(&self, line: &str) {
        until_seen(&self.nest, line);
    }

    /// The prompt comes back, and the terminal is the shell's.
    #[track_caller]
    fn prompt(&mut self) -> String {
        let shown = self.bash.next_prompt();
        assert!(self.bash.owns_the_terminal(), "the terminal is somebody else's");
        shown
    }

    /// The status of the last command.
    #[track_caller]
    fn status(&mut self) -> String {
        self.bash.run("echo $?").trim().to_string()
    }
}

#[track_caller]
fn until_seen(nest: &Nest, line: &str) {
    wait_until(&format!("the job has seen {line}"), SOON, || {
        nest.has("seen") && nest.read("seen").lines().any(|seen| seen == line)
    });
}

/// Ends the counting job with the fence; all that it saw after "ready".
#[track_caller]
fn seen_until_the_fence(nest: &Nest, wrapper: &Process) -> String {
    wrapper.signal(SIGUSR2);
    until_seen(nest, "SIGUSR2");
    nest.read("seen").replace("ready\n", "").replace("\nSIGUSR2", "").replace('\n', " ")
}

/// Lets `event` happen and the job see it as a `line`, while the wrapper hangs. A copy that the
/// wrapper passes on comes after that, so that the two cannot meet and be one.
#[track_caller]
fn unhelped(nest: &Nest, wrapper: &Process, line: &str, event: impl FnOnce()) {
    let hung = Hung::new(wrapper);
    event();
    until_seen(nest, line);
    drop(hung);
}

/// Waits until the process is stopped by job control.
#[track_caller]
fn until_stopped(processes: &[&Process]) {
    wait_until("both are stopped", SOON, || processes.iter().all(|process| process.state() == 'T'));
}

#[track_caller]
fn until_running(processes: &[&Process]) {
    wait_until("both go on", SOON, || processes.iter().all(|process| process.state() == 'S'));
}

// Keys.

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

/// The counting job in a terminal whose session `redlock-run` leads itself.
fn counting_leader(server: &Server, nest: &Nest, python: &str) -> Pty {
    nest.script("counts.py", COUNTS);
    let run = Run::on(server, ["--key", KEY, python, "counts.py"]).in_dir(nest.dir());
    let pty = Pty::spawn(run.into_command());
    until_seen(nest, "ready");
    pty
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
fn what_a_job_leaves_in_the_terminal_lives_on_and_is_not_waited_for() {
    let mut desk = Desk::new();
    desk.bash.type_line("redlock-run --key job sh -c 'sleep 600 & exit 0'");
    desk.prompt();
    assert_eq!(desk.status(), "0");
    assert!(!desk.server.redis.exists(KEY));
    assert!(!desk.nest.one("sleep").is_dead());
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
    desk.bash.type_line("redlock-run --ttl 2s --key job sh ./job");
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

// Hang-up.

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

// Job control.

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
fn a_suspended_job_goes_on_in_the_background_with_bg() {
    let mut desk = Desk::new();
    let (wrapper, job) = desk.starts("redlock-run --ttl 2s --key job sleep 600", "sleep");
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

#[test]
fn a_background_job_leaves_the_terminal_to_the_shell() {
    let mut desk = Desk::new();
    let (_, job) = desk.starts("redlock-run --key job sh -c 'echo from behind; exec sleep 600' &", "sleep");
    desk.bash.pty.read_until("from behind");
    assert!(desk.bash.owns_the_terminal());
    desk.bash.type_line("");
    desk.bash.next_prompt();
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
    let (wrapper, job) = desk.starts("redlock-run --ttl 1s --key job sleep 600", "sleep");
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

// Prompts and full screens.

#[test]
fn a_job_reads_a_secret_with_the_echo_off() {
    let mut desk = Desk::new();
    desk.bash.type_line("redlock-run --key job bash -c 'read -s -p \"secret: \" x; echo; echo got=$x'");
    desk.bash.pty.read_until("secret: ");
    wait_until("the echo is off", SOON, || !desk.echoes());
    desk.bash.pty.write("opensesame\n");
    let shown = desk.bash.pty.read_until("got=");
    assert!(!shown.contains("opensesame"), "{shown}");
    desk.bash.pty.read_until("opensesame");
    desk.prompt();
    assert_eq!(desk.status(), "0");
}

/// A python that asks for a password, from `/dev/tty`, and says what it got.
fn asks(python: &str) -> String {
    format!("{python} -c \"import getpass; print('got=' + getpass.getpass('password: '))\"")
}

impl Desk {
    fn echoes(&self) -> bool {
        self.bash.pty.modes().local_flags.contains(LocalFlags::ECHO)
    }

    /// Answers the prompt of [`asks`].
    #[track_caller]
    fn answers_the_password(&mut self) {
        self.bash.pty.read_until("password: ");
        wait_until("the echo is off", SOON, || !self.echoes());
        self.bash.pty.write("opensesame\n");
        let shown = self.bash.pty.read_until("got=");
        assert!(!shown.contains("opensesame"), "{shown}");
        self.bash.pty.read_until("opensesame");
        self.prompt();
        assert_eq!(self.status(), "0");
    }
}

/// anomalyco/sst#6497, tofuutils/tenv#277: sudo, ssh and psql stopped at their password prompts.
#[test]
fn a_password_prompt_on_the_terminal_works() {
    let Some(python) = tools::python("a_password_prompt_on_the_terminal_works") else { return };
    let mut desk = Desk::new();
    desk.bash.type_line(&format!("redlock-run --key job {}", asks(&python)));
    desk.answers_the_password();
}

#[test]
fn a_password_prompt_on_the_terminal_works_while_standard_input_is_a_pipe() {
    let Some(python) =
        tools::python("a_password_prompt_on_the_terminal_works_while_standard_input_is_a_pipe")
    else {
        return;
    };
    let mut desk = Desk::new();
    desk.bash.type_line(&format!("echo dump | redlock-run --key job {}", asks(&python)));
    desk.answers_the_password();
}

#[test]
fn a_job_reads_the_terminal_and_a_pipe_side_by_side() {
    let mut desk = Desk::new();
    let job = "sh -c 'read p </dev/tty; read q; echo p=$p q=$q'";
    desk.bash.type_line(&format!("echo piped | redlock-run --key job {job}"));
    desk.nest.one("redlock-run");
    desk.bash.type_line("typed");
    desk.bash.pty.read_until("p=typed q=piped");
    desk.prompt();
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
fn the_jobs_stty_changes_the_terminal() {
    let mut desk = Desk::new();
    let shown = desk.bash.run("redlock-run --key job stty -echo rows 33 columns 99; stty -a; stty echo");
    assert!(shown.contains(" -echo ") && shown.contains("rows 33; columns 99"), "{shown}");
}

#[test]
fn a_pager_starts_takes_keys_and_ends() {
    if tools::find("a_pager_starts_takes_keys_and_ends", "less").is_none() {
        return;
    }
    let mut desk = Desk::new();
    let lines: Vec<String> = (1..=500).map(|number| format!("line {number}.")).collect();
    desk.nest.script("text", &lines.join("\n"));
    desk.bash.type_line("TERM=xterm redlock-run --key job less text");
    desk.bash.pty.read_until("line 10.");
    desk.bash.pty.write("G");
    desk.bash.pty.read_until("line 500.");
    desk.bash.pty.write("q");
    desk.prompt();
    assert_eq!(desk.status(), "0");
}

/// As `git log` and `man` are used: the pager reads keys from the terminal, its text from a pipe.
#[test]
fn a_pager_at_the_end_of_a_pipe_takes_keys() {
    if tools::find("a_pager_at_the_end_of_a_pipe_takes_keys", "less").is_none() {
        return;
    }
    let mut desk = Desk::new();
    desk.bash.type_line("seq -f 'line %g.' 500 | TERM=xterm redlock-run --key job less");
    desk.bash.pty.read_until("line 10.");
    desk.bash.pty.write("G");
    desk.bash.pty.read_until("line 500.");
    desk.bash.pty.write("q");
    desk.prompt();
    assert_eq!(desk.status(), "0");
}

#[test]
fn an_editor_starts_takes_keys_is_suspended_and_ends() {
    if tools::find("an_editor_starts_takes_keys_is_suspended_and_ends", "vi").is_none() {
        return;
    }
    let mut desk = Desk::new();
    desk.bash.type_line("TERM=xterm redlock-run --key job vi -u NONE text");
    // Its status line names the file.
    desk.bash.pty.read_until("text");
    desk.bash.pty.write("ifirst\x1b");
    desk.bash.pty.read_until("first");
    desk.bash.pty.write("\x1a");
    let shown = desk.prompt();
    assert!(shown.contains("Stopped"), "{shown}");
    desk.bash.type_line("fg");
    desk.bash.wait_for_foreground("redlock-run");
    desk.bash.pty.write("osecond\x1b:wq\r");
    desk.prompt();
    assert_eq!(desk.status(), "0");
    assert_eq!(desk.nest.read("text"), "first\nsecond");
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

// Modes, and whose the terminal is.

/// Runs a script in a terminal whose shell does not look after its modes, as bash would.
fn modes_after(script: &str, during: impl Fn(&Server, &Nest)) -> [nix::sys::termios::Termios; 2] {
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
const CHANGES_MODES: &str = "redlock-run --ttl 1s --key job sh -c 'stty -echo -icanon; echo >ready; ";

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
        let (wrapper, job) = desk.starts("redlock-run --ttl 1s --key job sleep 600", "sleep");
        act(&desk.server, &wrapper, &job);
        desk.bash.next_prompt();
        assert!(desk.bash.owns_the_terminal(), "after {what}");
        assert_eq!(desk.status(), status, "after {what}");
        wait_until("nothing is left", SOON, || desk.nest.named("sleep").is_empty());
        wait_until("the lock is free", SOON, || !desk.server.redis.exists(KEY));
    }
}

type Act = fn(&Server, &Process, &Process);

/// Ways in which a run can end, and its status in the shell.
const ENDS: [(&str, Act, &str); 5] = [
    ("a killed job", |_, _, job| job.signal(SIGKILL), "137"),
    ("a killed wrapper", |_, wrapper, _| wrapper.signal(SIGKILL), "137"),
    ("a killed guard", |_, wrapper, _| guard_of(wrapper).signal(SIGKILL), "137"),
    ("a TERM", |_, wrapper, _| wrapper.signal(SIGTERM), "143"),
    ("a lost lock", |server, _, _| server.redis.tell(&["DEL", KEY]), "79"),
];

// Scripts.

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
            format!("{WITNESS} &\nredlock-run --ttl 1s --key job tail -f /dev/null\necho after\nexec cat\n");
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

// A terminal within a terminal.

#[test]
fn in_a_terminal_multiplexer_keys_and_job_control_work_too() {
    let test = "in_a_terminal_multiplexer_keys_and_job_control_work_too";
    let (Some(python), Some(_)) = (tools::python(test), tools::find(test, "tmux")) else { return };
    let server = Server::start();
    let nest = Nest::new();
    nest.script("counts.py", COUNTS);
    let tmux = Tmux { server: &server, nest: &nest };
    let keys = |keys: &[&str]| tmux.command(&[&["send-keys", "-t", "t"], keys].concat());
    tmux.command(&["new-session", "-d", "-s", "t", "env PS1='ready> ' bash --norc --noprofile -i"]);
    keys(&[&format!("redlock-run --key job {python} counts.py"), "Enter"]);
    until_seen(&nest, "ready");
    let wrapper = nest.one("redlock-run");
    keys(&["C-c"]);
    until_seen(&nest, "SIGINT");
    keys(&["C-z"]);
    until_stopped(&[&wrapper]);
    keys(&["fg", "Enter"]);
    until_running(&[&wrapper]);
    assert_eq!(seen_until_the_fence(&nest, &wrapper), "SIGINT");
    wait_until("the run is over", SOON, || wrapper.is_dead());
    keys(&["redlock-run --key job sleep 600", "Enter"]);
    nest.one("sleep");
    keys(&["C-c"]);
    keys(&["echo status=$? >status", "Enter"]);
    wait_until("the status is there", SOON, || nest.has("status"));
    assert_eq!(nest.read("status"), "status=130");
}

/// A multiplexer, whose server puts itself behind everything and outlives each command.
struct Tmux<'a> {
    server: &'a Server,
    nest: &'a Nest,
}

impl Tmux<'_> {
    #[track_caller]
    fn command(&self, args: &[&str]) {
        let all = ["-S", "./tmux", "-f", "/dev/null"].iter().chain(args);
        let run = Run::of("tmux", all)
            .env("REDLOCK_RUN_URL", self.server.url())
            .env("SHELL", "/bin/sh")
            .env("LC_ALL", "C.UTF-8")
            .in_dir(self.nest.dir());
        let output = run.into_command().output().expect("tmux to start");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let args = ["-S", "./tmux", "kill-server"];
        let _ = Run::of("tmux", args).in_dir(self.nest.dir()).into_command().output();
    }
}

// Where nobody could resume.

/// In a session without job control (`ssh -t host …`, a container's terminal) the kernel throws the
/// suspend key away: nobody could continue what it would stop.
#[test]
fn the_suspend_key_stops_nothing_where_nobody_could_resume() {
    for program in [&["sleep", "600"][..], &["redlock-run", "--key", KEY, "sleep", "600"][..]] {
        let server = Server::start();
        let nest = Nest::new();
        let run = Run::of(program[0], &program[1..]).env("REDLOCK_RUN_URL", server.url());
        let mut pty = Pty::spawn(run.in_dir(nest.dir()).into_command());
        let (leader, job) = (pty.leader(), nest.one("sleep"));
        pty.write("\x1a");
        // The terminal has taken the key when it takes the next, which ends the job.
        pty.read_until("^Z");
        pty.write("\x03");
        assert_eq!(pty.wait().signal(), Some(libc::SIGINT), "under {program:?}");
        assert!(job.is_dead() && leader.is_dead());
    }
}

/// The shell is gone, and with it whoever could say `fg`.
#[test]
fn a_suspended_job_whose_shell_is_killed_ends_with_its_lease_and_so_does_the_run() {
    let mut desk = Desk::new();
    let (wrapper, job) = desk.starts("redlock-run --ttl 1s --key job sleep 600", "sleep");
    desk.bash.pty.write("\x1a");
    desk.prompt();
    until_stopped(&[&wrapper, &job]);
    desk.bash.pty.leader().signal(SIGKILL);
    wait_until("nothing is left", SOON, || job.is_dead() && wrapper.is_dead());
}
