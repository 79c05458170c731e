//! From inside the job nobody can tell that it is wrapped: what `/proc` shows of it is what it shows
//! of the same command without us, started in the same way.
//!
//! Arguments that are not text, and standard input byte for byte: `cli`. Scripts without `#!`, and
//! every exit code: `exit_status`. Output that is captured: `output`.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::signal::Signal::{SIGHUP, SIGKILL, SIGTERM};

use crate::support::jobs::{Gate, KEY, sh, write_executable};
use crate::support::nest::sleeps;
use crate::support::proc;
use crate::support::run::{PROGRAM, path_with_the_program};
use crate::support::wait::{SOON, stays};
use crate::support::{Nest, Process, Run, Server, tools, wait_until};

/// The lines of `/proc/PID/status` that a command inherits or must not notice.
const STATUS: [&str; 21] = [
    "Umask",
    "Uid",
    "Gid",
    "Groups",
    "SigPnd",
    "ShdPnd",
    "SigBlk",
    "SigIgn",
    "SigCgt",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Cpus_allowed",
    "Mems_allowed",
    "Threads",
    "CoreDumping",
    "TracerPid",
];

/// Other files and links of `/proc/PID` of the kind.
const FILES: [&str; 7] =
    ["limits", "oom_score_adj", "personality", "coredump_filter", "cgroup", "timerslack_ns", "cmdline"];
const LINKS: [&str; 8] = ["cwd", "root", "exe", "ns/pid", "ns/mnt", "ns/net", "ns/user", "ns/ipc"];

/// What a stranger sees of a process, by the names of what is seen.
type Portrait = BTreeMap<String, String>;

fn portrait(process: &Process) -> Portrait {
    let folder = Path::new("/proc").join(process.pid.to_string());
    let text = |name: &str| fs::read(folder.join(name)).map_or_else(|_| "-".into(), |bytes| lossy(&bytes));
    let link = |name: &str| fs::read_link(folder.join(name)).map_or_else(|_| "-".into(), |to| shown(&to));
    let mut seen = Portrait::new();
    let status = text("status");
    for name in STATUS {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        seen.insert(name.into(), line.unwrap_or("-").trim().into());
    }
    for name in FILES {
        seen.insert(name.into(), text(name));
    }
    for name in LINKS {
        seen.insert(name.into(), link(name));
    }
    // proc(5), counted from after the name, whose field is 2: terminal, priority, niceness,
    // real-time priority, policy.
    let stat = text("stat");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    for (name, field) in [("tty", 7), ("priority", 18), ("nice", 19), ("rt", 40), ("policy", 41)] {
        seen.insert(name.into(), fields[field - 3].into());
    }
    for (number, _) in proc::open_files(process.pid) {
        let info = text(&format!("fdinfo/{number}"));
        let info: Vec<&str> =
            info.lines().filter(|line| line.starts_with("flags") || line.starts_with("pos")).collect();
        let target = link(&format!("fd/{number}"));
        // Each run has pipes of its own.
        let target = target.split_once(":[").map_or(target.as_str(), |(kind, _)| kind);
        seen.insert(format!("fd {number}"), format!("{target} {}", info.join(" ")));
    }
    seen
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The portrait of `sleep 600`, started by `parent`, a script in which `"$@"` stands for it.
fn sleeper(server: &Server, nest: &Nest, parent: &str, under_the_lock: bool) -> Portrait {
    let script = format!("exec <in >>out 2>>err\n{parent}");
    let mut args = vec!["-c", &script, "sh"];
    if under_the_lock {
        args.extend([PROGRAM, "--key", KEY, "--"]);
    }
    args.extend(["sleep", "600"]);
    let mut run = Run::of("sh", args).env("REDLOCK_RUN_URL", server.url()).in_dir(nest.dir()).spawn();
    let sleeper = nest.one("sleep");
    sleeps(&sleeper);
    let seen = portrait(&sleeper);
    sleeper.signal(SIGKILL);
    run.finish().any_output().check(true, "its end");
    wait_until("the lock is free", SOON, || !server.redis.exists(KEY));
    seen
}

/// Asserts that the command sees the same under the lock as without, started by each of `parents`.
#[track_caller]
fn the_same_under(parents: &[&str]) {
    let server = Server::start();
    for parent in parents {
        let nest = Nest::new();
        nest.script("in", "input\n");
        let direct = sleeper(&server, &nest, parent, false);
        let wrapped = sleeper(&server, &nest, parent, true);
        let names = direct.keys().chain(wrapped.keys());
        let differ: BTreeMap<&String, [Option<&String>; 2]> = names
            .filter(|name| direct.get(*name) != wrapped.get(*name))
            .map(|name| (name, [direct.get(name), wrapped.get(name)]))
            .collect();
        let errors = nest.read("err");
        assert!(differ.is_empty(), "under {parent:?}: [direct, under the lock] {differ:#?}\n{errors}");
    }
}

#[test]
fn a_plain_start_shows_no_difference() {
    the_same_under(&["exec \"$@\""]);
}

/// fish-shell/fish-shell#4007: a handler installed over an ignored signal.
#[test]
fn ignored_and_blocked_signals_of_the_job_are_those_of_a_direct_run() {
    the_same_under(&[
        "exec nohup \"$@\"",
        "\"$@\" & wait",
        "trap '' PIPE; exec \"$@\"",
        "trap '' HUP INT QUIT TERM USR1 USR2 CHLD; exec \"$@\"",
        "exec env --ignore-signal=CHLD \"$@\"",
        "exec env --ignore-signal=CHLD,PIPE,TTOU,TSTP,CONT,WINCH \"$@\"",
        "exec env --ignore-signal \"$@\"",
        "exec env --default-signal \"$@\"",
        "exec env --block-signal=TERM,USR1,CHLD \"$@\"",
        "exec env --block-signal=RTMIN,RTMIN+3,RTMAX \"$@\"",
        "exec env --block-signal \"$@\"",
        "exec env --block-signal=INT --ignore-signal=INT,HUP \"$@\"",
    ]);
}

#[test]
fn a_hang_up_ignored_at_the_start_stays_ignored() {
    let server = Server::start();
    let line = "trap '' HUP; exec redlock-run --key job -- sh -c 'echo $$; sleep 600'";
    let mut run = Run::of("sh", ["-c", line]).env("REDLOCK_RUN_URL", server.url()).spawn();
    let job = run.job();
    run.signal(SIGHUP);
    // TERM comes after HUP: had HUP ended anything, the death would be by HUP.
    stays("both live", Duration::from_millis(300), || !job.is_dead());
    run.signal(SIGTERM);
    run.finish().any_output().expect_signal(SIGTERM);
}

#[test]
fn a_caller_that_ignores_its_children_still_learns_their_status() {
    let server = Server::start();
    let run = Run::of("env", ["--ignore-signal=CHLD", PROGRAM, "--key", KEY, "sh", "-c", "exit 7"]);
    run.env("REDLOCK_RUN_URL", server.url()).finish().expect_status(7);
}

#[test]
fn a_session_of_its_own_shows_no_difference() {
    the_same_under(&["exec setsid \"$@\"", "setsid --wait \"$@\"", "setsid --wait nohup \"$@\" &\nwait"]);
}

#[test]
fn limits_priorities_and_places_are_the_callers() {
    the_same_under(&[
        "ulimit -n 64; exec \"$@\"",
        "ulimit -Sn 64; ulimit -c 1000; exec \"$@\"",
        "ulimit -c unlimited; exec \"$@\"",
        "ulimit -s 2048; ulimit -f 100000; ulimit -t 1000; exec \"$@\"",
        "umask 027; exec \"$@\"",
        "exec nice -n 7 \"$@\"",
        "mkdir -p below; cd below; exec \"$@\"",
        "mkdir -p gone; cd gone; rmdir ../gone; exec \"$@\"",
        "echo 500 >/proc/$$/oom_score_adj; exec \"$@\"",
    ]);
}

#[test]
fn scheduling_personality_and_privileges_are_the_callers() {
    let test = "scheduling_personality_and_privileges_are_the_callers";
    let wanted = [
        ("taskset", "exec taskset -c 0 \"$@\""),
        ("chrt", "exec chrt --batch 0 \"$@\""),
        ("setarch", "exec setarch --addr-no-randomize \"$@\""),
        ("setpriv", "exec setpriv --no-new-privs \"$@\""),
    ];
    let there: Vec<&str> = wanted
        .iter()
        .filter(|(program, _)| tools::find(test, program).is_some())
        .map(|(_, parent)| *parent)
        .collect();
    the_same_under(&there);
}

#[test]
fn closed_standard_descriptors_stay_closed() {
    the_same_under(&[
        "exec \"$@\" <&-",
        "exec \"$@\" >&-",
        "exec \"$@\" 2>&-",
        "exec \"$@\" <&- >&-",
        "exec \"$@\" >&- 2>&-",
        "exec \"$@\" <&- 2>&-",
        "exec \"$@\" <&- >&- 2>&-",
    ]);
}

#[test]
fn open_files_reach_the_job_with_their_flags_and_nothing_else_does() {
    the_same_under(&[
        "exec \"$@\" 3<in 5>>log 9<>both",
        "exec \"$@\" 3<in <&- >&- 2>&-",
        "exec \"$@\" 4<&0 0<&-",
        "exec bash -c 'exec \"$@\" 255<in 77>>log' bash \"$@\"",
        "exec \"$@\" 3</ 4</dev/null",
        "echo x | \"$@\" 8>>log | cat >&2",
    ]);
}

/// The read end first.
fn pipe() -> (PipeReader, PipeWriter) {
    std::io::pipe().expect("a pipe")
}

fn flags(of: impl AsFd) -> OFlag {
    OFlag::from_bits_retain(fcntl(of, FcntlArg::F_GETFL).expect("open"))
}

/// A mode of the open file, which the caller shares with everybody who has it.
#[test]
fn non_blocking_descriptors_of_the_caller_stay_what_they_are() {
    for blocking in [false, true] {
        let server = Server::start();
        let nest = Nest::new();
        let [(stdin, _to_stdin), (_from_stdout, stdout), (_from_stderr, stderr)] = [pipe(), pipe(), pipe()];
        for end in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
            let mode = if blocking { flags(end) - OFlag::O_NONBLOCK } else { flags(end) | OFlag::O_NONBLOCK };
            fcntl(end, FcntlArg::F_SETFL(mode)).expect("open");
        }
        let now = || [flags(&stdin), flags(&stdout), flags(&stderr)];
        let before = now();
        assert!(before.iter().all(|flags| flags.contains(OFlag::O_NONBLOCK) != blocking));
        // With messages of ours on stderr.
        let run = Run::on(&server, ["--key", KEY, "-v", "sleep", "600"]).in_dir(nest.dir());
        let mut command = run.into_command();
        command.stdin(stdin.try_clone().expect("a second handle"));
        command.stdout(stdout.try_clone().expect("a second handle"));
        command.stderr(stderr.try_clone().expect("a second handle"));
        let mut child = command.spawn().expect("the program to start");
        let job = nest.one("sleep");
        assert_eq!(now(), before, "while the job runs");
        job.signal(SIGTERM);
        child.wait().expect("our child");
        assert_eq!(now(), before, "after the end");
    }
}

/// Runs the program with exactly these arguments and this environment, which no shell would pass on.
fn execute(nest: &Nest, arguments: &[&[u8]], environment: &[&[u8]]) -> Child {
    let strings = |all: &[&[u8]]| -> Vec<CString> {
        all.iter().map(|bytes| CString::new(*bytes).expect("no zero byte")).collect()
    };
    let pointers = |all: &[CString]| -> Vec<usize> {
        all.iter().map(|text| text.as_ptr() as usize).chain([0]).collect()
    };
    let (arguments, environment) = (strings(arguments), strings(environment));
    let (argv, envp) = (pointers(&arguments), pointers(&environment));
    let program = arguments[0].clone();
    let run = move || {
        // The strings must live here for the pointers to be good.
        let _ = (&arguments, &environment);
        // SAFETY: both arrays end in a null pointer, and their strings are alive.
        unsafe { libc::execve(program.as_ptr(), argv.as_ptr().cast(), envp.as_ptr().cast()) };
        Err(std::io::Error::last_os_error())
    };
    let mut command = Command::new("/nowhere");
    command.current_dir(nest.dir()).stdin(File::open("/dev/null").expect("there is one"));
    // SAFETY: between fork and exec only execve(2) is called, on memory made before.
    unsafe { command.pre_exec(run) };
    command.spawn().expect("the program to start")
}

/// The entries of a process's environment as they stand in memory.
fn environment_of(process: &Process) -> Vec<Vec<u8>> {
    let bytes = fs::read(format!("/proc/{}/environ", process.pid)).expect("it lives");
    let bytes = bytes.strip_suffix(b"\0").expect("it ends in a zero").to_vec();
    bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

/// etcd-io/etcd#10840: a wrapper that took variables away.
#[test]
fn the_environment_is_the_callers_byte_for_byte_and_the_documented_additions() {
    let server = Server::start_with_password("ours");
    let nest = Nest::new();
    let long = [b"LONG=".as_slice(), &vec![b'x'; 100_000]].concat();
    let (path, url) =
        (format!("PATH={}", path_with_the_program()), format!("REDLOCK_RUN_URL={}", server.url()));
    let callers: Vec<&[u8]> = vec![
        path.as_bytes(),
        b"ODD=\xff\xfe\x80",
        b"EMPTY=",
        b"no equals sign",
        b"=no name",
        b"TWICE=1",
        b"LINES=a\nb\n",
        b"TWICE=2",
        b"WITH=two=signs",
        b"REDIS_URL=redis://application",
        b"REDISCLI_AUTH=the application's",
        url.as_bytes(),
        &long,
        b"",
        b"REDLOCK_RUN_TTL=20s",
        b"_=last",
    ];
    let mut given = callers.clone();
    // Ours alone, and secret.
    given.insert(7, b"REDLOCK_RUN_PASSWORD=ours");
    let mut child =
        execute(&nest, &[PROGRAM.as_bytes(), b"--key", KEY.as_bytes(), b"--", b"sleep", b"600"], &given);
    let job = nest.one("sleep");
    let seen = environment_of(&job);
    let (kept, added) = seen.split_at(callers.len().min(seen.len()));
    assert_eq!(kept.iter().map(|entry| lossy(entry)).collect::<Vec<_>>(), {
        callers.iter().map(|entry| lossy(entry)).collect::<Vec<_>>()
    });
    assert_eq!(kept, callers, "byte for byte, in their order");
    let names: Vec<String> =
        added.iter().map(|entry| lossy(entry.split(|byte| *byte == b'=').next().expect("a name"))).collect();
    let mut sorted = names.clone();
    sorted.sort();
    let wanted = ["FENCING_TOKEN", "HELD", "KEY", "LEASE_MS", "TOKEN"];
    assert_eq!(sorted, wanted.map(|name| format!("REDLOCK_RUN_{name}")));
    job.signal(SIGKILL);
    child.wait().expect("our child");
}

/// A job that was started by an older run's job must not find that run's variables beside ours.
#[test]
fn variables_of_ours_that_the_caller_had_are_replaced_not_doubled() {
    let server = Server::start();
    let nest = Nest::new();
    let url = format!("REDLOCK_RUN_URL={}", server.url());
    let given: [&[u8]; 4] =
        [url.as_bytes(), b"REDLOCK_RUN_KEY=older", b"REDLOCK_RUN_FENCING_TOKEN=1", b"REDLOCK_RUN_LEASE_MS=1"];
    let arguments: [&[u8]; 6] = [PROGRAM.as_bytes(), b"--key", KEY.as_bytes(), b"--", b"/bin/sleep", b"600"];
    let mut child = execute(&nest, &arguments, &given);
    let job = nest.one("sleep");
    let seen = environment_of(&job);
    for name in ["REDLOCK_RUN_KEY=", "REDLOCK_RUN_FENCING_TOKEN=", "REDLOCK_RUN_LEASE_MS="] {
        let found: Vec<&Vec<u8>> = seen.iter().filter(|entry| entry.starts_with(name.as_bytes())).collect();
        assert_eq!(found.len(), 1, "{name}");
    }
    assert!(seen.contains(&b"REDLOCK_RUN_KEY=job".to_vec()));
    job.signal(SIGKILL);
    child.wait().expect("our child");
}

#[test]
fn an_empty_environment_is_enough() {
    let server = Server::start();
    let nest = Nest::new();
    let url = server.url();
    let arguments: [&[u8]; 8] = [
        PROGRAM.as_bytes(),
        b"--url",
        url.as_bytes(),
        b"--key",
        KEY.as_bytes(),
        b"--",
        // Found without a PATH, where execvp(3) looks then.
        b"sleep",
        b"600",
    ];
    let mut child = execute(&nest, &arguments, &[]);
    let job = nest.one("sleep");
    let seen = environment_of(&job);
    assert!(seen.iter().all(|entry| entry.starts_with(b"REDLOCK_RUN_")), "{seen:?}");
    job.signal(SIGKILL);
    child.wait().expect("our child");
}

#[test]
fn arguments_are_byte_exact_also_empty_odd_long_and_many() {
    let server = Server::start();
    let nest = Nest::new();
    let url = format!("REDLOCK_RUN_URL={}", server.url());
    let long = vec![b'x'; 100_000];
    let job: Vec<&[u8]> = vec![
        b"/bin/tail",
        b"-f",
        b"/dev/null",
        b"--",
        b"",
        b"\xff\xfe",
        b"",
        b"--",
        b"-n",
        b"a\nb",
        &long,
        b"0",
        b"",
    ];
    let many: Vec<&[u8]> =
        job.iter().copied().chain(std::iter::repeat_n(b"many".as_slice(), 20_000)).collect();
    for job in [job, many] {
        let ours: [&[u8]; 4] = [PROGRAM.as_bytes(), b"--key", KEY.as_bytes(), b"--"];
        let mut child = execute(&nest, &[&ours, job.as_slice()].concat(), &[url.as_bytes()]);
        let process = nest.one("tail");
        let seen = fs::read(format!("/proc/{}/cmdline", process.pid)).expect("it lives");
        let wanted: Vec<u8> = job.iter().flat_map(|argument| [argument, b"\0".as_slice()].concat()).collect();
        assert!(seen == wanted, "{} bytes, not {}", seen.len(), wanted.len());
        process.signal(SIGKILL);
        child.wait().expect("our child");
        wait_until("the lock is free", SOON, || !server.redis.exists(KEY));
    }
}

/// execvp(3) starts a shell for it, with a longer list of arguments.
#[test]
fn a_script_without_an_interpreter_line_gets_all_of_many_arguments() {
    let server = Server::start();
    let nest = Nest::new();
    write_executable(&nest.dir().join("plain"), "echo $# \"$1\" \"$0\"\n", 0o755);
    let arguments = std::iter::repeat_n("argument", 20_000);
    let args = ["--key", KEY, "./plain"].into_iter().chain(arguments);
    let run = Run::on(&server, args).in_dir(nest.dir());
    run.finish().stdout("20000 argument ./plain\n").expect_status(0);
}

#[test]
fn what_the_job_does_not_read_of_standard_input_is_there_for_the_next() {
    let server = Server::start();
    let line = "{ redlock-run --key job dd bs=4 count=1 status=none; cat; }";
    let run = Run::of("sh", ["-c", line]).env("REDLOCK_RUN_URL", server.url());
    run.stdin_bytes(b"one\ntwo\n").finish().stdout("one\ntwo\n").expect_status(0);
}

#[test]
fn the_job_is_in_the_callers_session_and_has_a_group_of_its_own_where_there_is_no_terminal() {
    let server = Server::start();
    let nest = Nest::new();
    let gate = Gate::new(&server);
    let mut run = sh(&server, &[], &format!("echo $$; {}", gate.wait())).in_dir(nest.dir()).spawn();
    let job = run.job().stat().expect("it runs");
    let wrapper = run.wrapper().stat().expect("it runs");
    assert_eq!(job.session, wrapper.session);
    assert_ne!(job.pgrp, wrapper.pgrp);
    gate.open();
    run.finish().any_output().expect_status(0);
}
