//! An interactive shell in a terminal, with a person's typing.

use std::path::Path;
use std::process::ExitStatus;

use super::proc;
use super::pty::Pty;
use super::run::Run;
use super::server::Server;
use super::wait::{SOON, wait_until};

/// What the shell prints when it is ready; no test's command prints it.
const PROMPT: &str = "ready> ";

/// `bash` on a pty, at its prompt.
pub(crate) struct Bash {
    /// The terminal, for keys and for what is shown.
    pub(crate) pty: Pty,
}

impl Bash {
    /// Starts a shell in which `redlock-run` is in PATH and uses `server`.
    pub(crate) fn start(server: &Server) -> Self {
        Self::start_in(server, server.dir())
    }

    /// The same in `dir`.
    pub(crate) fn start_in(server: &Server, dir: &Path) -> Self {
        let run = Run::of("bash", ["--norc", "--noprofile", "-i"])
            .env("REDLOCK_RUN_URL", server.url())
            .env("PS1", PROMPT)
            .env("TERM", "dumb")
            .env("INPUTRC", "/dev/null")
            .in_dir(dir);
        let mut pty = Pty::spawn(run.into_command());
        pty.read_until(PROMPT);
        Self { pty }
    }

    /// Types a command and does not wait for it.
    pub(crate) fn type_line(&mut self, line: &str) {
        self.pty.write(line);
        self.pty.write("\n");
        // The echo, so that later patterns meet output only.
        self.pty.read_until("\n");
    }

    /// Types a command and returns what it printed before the next prompt.
    #[track_caller]
    pub(crate) fn run(&mut self, line: &str) -> String {
        self.type_line(line);
        self.next_prompt()
    }

    /// Waits for the prompt and returns what was printed before it.
    #[track_caller]
    pub(crate) fn next_prompt(&mut self) -> String {
        let shown = self.pty.read_until(PROMPT);
        shown.trim_end_matches(PROMPT).to_string()
    }

    /// Waits until the terminal's foreground group is led by a program named `name`, which then
    /// has its own signal handlers and no longer the shell's.
    #[track_caller]
    pub(crate) fn wait_for_foreground(&self, name: &str) {
        let shell = self.pty.leader();
        wait_until(&format!("{name} is in the foreground"), SOON, || {
            let leader = shell.stat().map(|stat| stat.tpgid);
            leader.is_some_and(|pid| proc::name(pid).as_deref() == Some(name))
        });
    }

    /// Whether the terminal is the shell's own again, as it must be at every prompt.
    #[track_caller]
    pub(crate) fn owns_the_terminal(&self) -> bool {
        let shell = self.pty.leader().stat().expect("the shell runs");
        shell.tpgid == shell.pgrp
    }

    /// Leaves the shell.
    pub(crate) fn exit(mut self) -> ExitStatus {
        self.pty.write("exit\n");
        self.pty.wait()
    }
}
