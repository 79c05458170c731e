//! A terminal within a terminal.

use super::{COUNTS, seen_until_the_fence, until_running, until_seen, until_stopped};
use crate::support::wait::SOON;
use crate::support::{Nest, Run, Server, tools, wait_until};

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
