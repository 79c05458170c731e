//! Building a run of the program: a clean environment, the test's own Redis, all of it stated.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::client::Client;
use super::outcome::Outcome;
use super::running::Running;
use super::server::Server;
use super::stalls;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_redlock-run");

/// Every process of a run carries this variable, so that strays can be found by it.
const MARK: &str = "TEST_RUN_MARK";

/// A run that is about to start.
pub(crate) struct Run {
    command: Command,
    server: Option<Client>,
    mark: String,
}

impl Run {
    /// A run against `server`'s unix socket, told to it by `REDLOCK_RUN_URL`.
    pub(crate) fn on<A: AsRef<OsStr>>(server: &Server, args: impl IntoIterator<Item = A>) -> Self {
        let mut run = Self::without_url(args).env("REDLOCK_RUN_URL", server.url());
        run.server = Some(server.redis.clone());
        run
    }

    /// A run that is told of no Redis.
    pub(crate) fn without_url<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::of(PROGRAM, args)
    }

    /// A run of another program in the same surroundings, to compare with.
    pub(crate) fn of<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = A>) -> Self {
        let mark = new_mark();
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("PATH", path_with_the_program())
            .env(MARK, &mark)
            .stdin(Stdio::null());
        let mark = format!("{MARK}={mark}");
        Self { command, server: None, mark }
    }

    /// Adds an environment variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Gives it `bytes` on standard input.
    pub(crate) fn stdin_bytes(mut self, bytes: &[u8]) -> Self {
        let mut file = tempfile::tempfile().expect("a file for stdin");
        file.write_all(bytes).expect("stdin to be written");
        file.seek(SeekFrom::Start(0)).expect("stdin to be rewound");
        self.command.stdin(file);
        self
    }

    /// Starts it in `dir`.
    pub(crate) fn in_dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Starts it as a shell with job control does: in a process group of its own, which this process could
    /// resume.
    pub(crate) fn resumable(mut self) -> Self {
        self.command.process_group(0);
        self
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn finish(self) -> Outcome {
        self.spawn().finish()
    }

    /// Starts it, with stdout and stderr going to files that can be read meanwhile.
    #[track_caller]
    pub(crate) fn spawn(self) -> Running {
        let stderr = output_file();
        let shared = stderr.try_clone().expect("a second handle");
        self.spawn_with_stderr(shared.into(), stderr)
    }

    /// Starts it with a stderr of the test's own; `seen` is what is read as its stderr.
    #[track_caller]
    pub(crate) fn spawn_with_stderr(mut self, stderr: Stdio, seen: File) -> Running {
        let stdout = output_file();
        let shared = stdout.try_clone().expect("a second handle");
        self.command.stdout(shared).stderr(stderr);
        stalls::watch();
        let started = Instant::now();
        let child = self.command.spawn().expect("the program to start");
        Running {
            shown: self.shown(),
            child,
            stdout,
            stderr: seen,
            server: self.server.take(),
            mark: self.mark,
            started,
        }
    }

    /// The bare command, for a terminal or an unusual parent.
    pub(crate) fn into_command(self) -> Command {
        self.command
    }

    /// The command line as a failing test shows it.
    fn shown(&self) -> String {
        let program = self.command.get_program().display();
        let mut shown = program.to_string();
        for argument in self.command.get_args() {
            let _ = write!(shown, " '{}'", argument.display());
        }
        shown
    }
}

fn output_file() -> File {
    tempfile::tempfile().expect("a file for output")
}

/// PATH with the program's directory first, so that jobs can say `redlock-run`.
pub(crate) fn path_with_the_program() -> String {
    let folder = Path::new(PROGRAM).parent().expect("a directory");
    let path = std::env::var("PATH").expect("PATH is set");
    format!("{}:{path}", folder.display())
}

fn new_mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{number}", std::process::id())
}
