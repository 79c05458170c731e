//! Other tools on the same key: redis-py's `Lock` and we keep each other out.
//!
//! Needs python3 with venv and PyPI; without them these tests say so and pass. The environment
//! lies under the target directory and is made once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::jobs::{Gate, KEY, holding, sh};
use crate::support::{Run, Running, Server, stalls};

/// Prints what redis-py makes of the lock; each line is flushed for the test to see.
const PRELUDE: &str = "import sys, time, redis\n\
    r = redis.Redis(unix_socket_path=sys.argv[1])\n\
    lock = r.lock('job', timeout=float(sys.argv[2]) or None)\n\
    say = lambda *words: print(*words, flush=True)\n";

/// The interpreter of an environment that has redis-py, if there can be one.
fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = PYTHON.get_or_init(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redis-py");
        let python = home.join("bin/python");
        (has_redis(&python) || install(&home, &python)).then_some(python)
    });
    if found.is_none() {
        println!("skipped: no python3 with venv, or redis-py is not to be had");
    }
    found.as_deref()
}

fn has_redis(python: &Path) -> bool {
    succeeds(Command::new(python).args(["-c", "import redis"]))
}

/// Another test process may be at it too: whoever is late finds it done.
fn install(home: &Path, python: &Path) -> bool {
    let lock = fs::File::create(home.with_extension("lock"));
    let lock = lock.expect("a file under the target directory");
    lock.lock().expect("a lock file");
    has_redis(python)
        || succeeds(Command::new("python3").args(["-m", "venv"]).arg(home))
            && succeeds(Command::new(python).args(["-m", "pip", "install", "-q", "redis"]))
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Starts redis-py code after the prelude; `lease` in seconds, 0 for its default of none.
fn redis_py(python: &Path, server: &Server, lease: &str, code: &str) -> Running {
    let socket = server.socket();
    let script = format!("{PRELUDE}{code}");
    Run::of(python, ["-c", &script, socket.to_str().expect("a path"), lease]).spawn()
}

#[test]
fn redis_py_is_kept_out_while_we_hold_the_lock() {
    let Some(python) = python() else { return };
    let server = Server::start();
    let _run = holding(&server, &[]);
    let value = server.redis.get(KEY);
    redis_py(python, &server, "0", "say(lock.acquire(blocking=False), lock.locked())\n")
        .finish()
        .stdout("False True\n")
        .expect_status(0);
    assert_eq!(server.redis.get(KEY), value);
}

#[test]
fn redis_py_takes_the_lock_after_our_release_within_its_own_poll() {
    let Some(python) = python() else { return };
    let server = Server::start();
    let run = holding(&server, &[]);
    let code = "say('waits'); say(lock.acquire(blocking_timeout=30)); lock.release(); say('done')\n";
    let mut other = redis_py(python, &server, "10", code);
    other.wait_for_stdout("waits\n");
    run.signal(nix::sys::signal::Signal::SIGTERM);
    other.wait_for_stdout("True\n");
    other.finish().stdout("waits\nTrue\ndone\n").expect_status(0);
    assert!(!server.redis.exists(KEY));
}

#[test]
fn redis_py_keeps_us_out_and_we_take_over_within_a_second_and_a_quarter() {
    let Some(python) = python() else { return };
    for lease in ["0", "30"] {
        let server = Server::start();
        let gate = Gate::new(&server);
        let waits = gate.wait_in_python();
        let code = format!("lock.acquire(); say('held'); {waits}\nlock.release(); say(time.time())\n");
        let mut other = redis_py(python, &server, lease, &code);
        other.wait_for_stdout("held\n");
        sh(&server, &["-n", "-q"], "echo ran").finish().expect_status(75);
        let mut ours = sh(&server, &["-w", "60s"], "date +%s.%N").spawn();
        ours.wait_for_stderr("held by");
        gate.open();
        let ours = ours.finish();
        let taken: f64 = ours.stdout_text().trim().parse().expect("a time");
        ours.any_output().expect_status(0);
        let outcome = other.finish();
        let freed: f64 =
            outcome.stdout_text().lines().nth(1).and_then(|line| line.parse().ok()).expect("a time");
        outcome.any_output().expect_status(0);
        // 1.25 s is the promise, the rest is for starting `date` on a busy machine.
        let at = |seconds: f64| UNIX_EPOCH + Duration::from_secs_f64(seconds);
        let limit = 2.25 + stalls::between(at(freed), at(taken)).as_secs_f64();
        assert!(taken - freed < limit, "{} s after the release", taken - freed);
    }
}

#[test]
fn redis_py_cannot_release_or_extend_what_is_ours() {
    let Some(python) = python() else { return };
    let server = Server::start();
    let code = "lock.acquire(); say('held')\n\
                while r.get('job') in (None, lock.local.token): time.sleep(0.02)\n\
                for act in (lock.release, lambda: lock.extend(10)):\n\
                \x20   try: act(); say('done')\n\
                \x20   except redis.exceptions.LockError: say('refused')\n";
    let mut other = redis_py(python, &server, "1", code);
    other.wait_for_stdout("held\n");
    let mut run = sh(&server, &["-w", "30s", "-q"], "echo $$; exec sleep 600").spawn();
    run.job();
    other.wait_for_stdout("refused\n");
    assert!(!other.finish().stdout_text().contains("done"));
    assert!(server.redis.exists(KEY));
}
