//! Pids of one's own, as in a container: what is started is their process 1.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::proc::{self, Process};
use super::run::Run;
use super::server::Server;

const UNSHARE: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];

/// Whether this machine lets a test have pids of its own; else says that `test` was skipped.
pub(crate) fn possible(test: &str) -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    let possible = *POSSIBLE.get_or_init(|| {
        let mut probe = Command::new("unshare");
        probe.args(UNSHARE).arg("true").stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    });
    if !possible {
        println!("{test}: skipped, since unshare(1) cannot make a pid namespace here");
    }
    possible
}

/// `command` as process 1 among pids of its own, with `server` as its Redis. `unshare` waits for
/// it and ends with its status.
pub(crate) fn init(server: &Server, command: &[&str]) -> Run {
    let args = UNSHARE.iter().chain(command);
    Run::of("unshare", args).env("REDLOCK_RUN_URL", server.url())
}

/// The number of `process` among the pids of its own.
pub(crate) fn inner_pid(process: &Process) -> Option<i32> {
    let numbers = proc::status_field(process.pid, "NSpid")?;
    numbers.split_whitespace().last()?.parse().ok()
}
