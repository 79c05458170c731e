//! Job control, keys, prompts and modes, in a real terminal with a real shell: as if the job had
//! been typed without us.

use nix::sys::signal::Signal::SIGUSR2;

use crate::support::bash::Bash;
use crate::support::hang::Hung;
use crate::support::jobs::KEY;
use crate::support::pty::Pty;
use crate::support::wait::SOON;
use crate::support::{Nest, Process, Run, Server, wait_until};

/// The terminal is gone.
mod hang_up;
/// ^Z, `fg`, `bg`, `&`.
mod job_control;
/// ^C and other signals, each once.
mod keys;
/// The terminal after a run.
mod modes;
/// A terminal within a terminal.
mod multiplexer;
/// Prompts, pagers, editors.
mod prompts;
/// Scripts that run us.
mod scripts;

/// Writes each signal it gets into the file `seen`; USR2 ends it.
///
/// USR2 is also the fence: what the wrapper passes on, it passes on in order, so that a second
/// copy of an earlier signal would stand before the end.
///
/// Python runs a handler after the system call that the signal ended. One that comes just before the call
/// would wait for its end, so the calls are short.
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
    time.sleep(0.02)  # a signal that comes just before a sleep is acted on only after it
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

/// The counting job in a terminal whose session `redlock-run` leads itself.
fn counting_leader(server: &Server, nest: &Nest, python: &str) -> Pty {
    nest.script("counts.py", COUNTS);
    let run = Run::on(server, ["--key", KEY, python, "counts.py"]).in_dir(nest.dir());
    let pty = Pty::spawn(run.into_command());
    until_seen(nest, "ready");
    pty
}

/// Something that happens to a run, whose wrapper and job are given.
type Act = fn(&Server, &Process, &Process);
