//! Prompts, pagers and editors.

use nix::sys::termios::LocalFlags;

use super::Desk;
use crate::support::wait::SOON;
use crate::support::{tools, wait_until};

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
