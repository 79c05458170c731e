//! A redis-server of a test's own: its own directory, socket and port; it never outlives the test.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis::RedisError;
use tempfile::TempDir;

use super::client::Client;
use super::wait::{SOON, wait_until};

/// Debian's `redis-tools` carries the server under this name; it decides by `argv[0]` what it is.
const DEBIAN_SERVER: &str = "/usr/bin/redis-check-rdb";

/// A running (or stopped, or killed) server. Dropping it kills it and removes its directory.
///
/// The server gets SIGKILL from the kernel when the *thread* that started it ends, so it must
/// be started by the thread that uses it longest: the test's own.
pub(crate) struct Server {
    /// For looking into the server from outside.
    pub(crate) redis: Client,
    dir: TempDir,
    port: Option<u16>,
    args: Vec<String>,
    child: Child,
}

impl Server {
    /// A server on a unix socket only.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server on a unix socket only, with further arguments (they win over the harness's).
    pub(crate) fn start_with(args: &[&str]) -> Self {
        Self::launch(None, args, None)
    }

    /// A server on a unix socket and a free loopback port.
    pub(crate) fn start_on_port(args: &[&str]) -> Self {
        Self::launch(Some(free_port()), args, None)
    }

    /// A server whose default user needs `password`.
    pub(crate) fn start_with_password(password: &str) -> Self {
        Self::launch(None, &["--requirepass", password], Some(password.into()))
    }

    fn launch(port: Option<u16>, args: &[&str], password: Option<String>) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("redlock-test-")
            .tempdir()
            .expect("a directory of the test's own");
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let child = spawn(dir.path(), port, &args);
        let url = format!("unix://{}", socket_in(dir.path()).display());
        let server = Self { redis: Client::new(url, password), dir, port, args, child };
        server.wait_until_ready();
        server
    }

    /// Waits until the server is up and has loaded its data.
    fn wait_until_ready(&self) {
        wait_until("the server is ready", SOON, || {
            let answer = self.redis.try_query::<String>(&["PING"]);
            answer.map_or_else(|error| speaks(&error) && !is_loading(&error), |_| true)
        });
    }

    /// The URL of the unix socket, as a user would type it.
    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The URL of the loopback port.
    pub(crate) fn tcp_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// The loopback port of a server that was started on one.
    pub(crate) fn port(&self) -> u16 {
        self.port.expect("started with start_on_port")
    }

    /// The path of the unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        socket_in(self.dir.path())
    }

    /// The test's own directory, for files of the test too.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Stops the server as a hung machine would: connections stay up, nothing answers.
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets a paused server go on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills the server and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        self.child.wait().expect("the server is our child");
    }

    /// Starts a killed server again on the same addresses, with the same arguments and files.
    pub(crate) fn start_again(&mut self) {
        self.child = spawn(self.dir.path(), self.port, &self.args);
        self.wait_until_ready();
    }

    /// Starts a killed server again with more arguments, and waits only until it says LOADING.
    pub(crate) fn start_again_loading(&mut self, args: &[&str]) {
        self.args.extend(args.iter().map(ToString::to_string));
        self.child = spawn(self.dir.path(), self.port, &self.args);
        wait_until("the server says LOADING", SOON, || {
            let answer = self.redis.try_query::<String>(&["PING"]);
            answer.is_err_and(|error| is_loading(&error))
        });
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        kill(Pid::from_raw(pid), signal).expect("the server is our child");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether the error is a server's word (NOAUTH, too many clients …), not a failed connection.
fn speaks(error: &RedisError) -> bool {
    error.code().is_some()
}

fn is_loading(error: &RedisError) -> bool {
    error.code() == Some("LOADING")
}

fn socket_in(dir: &Path) -> PathBuf {
    dir.join("redis.sock")
}

fn spawn(dir: &Path, port: Option<u16>, args: &[String]) -> Child {
    let log = File::create(dir.join("log")).expect("a log file");
    let mut command = Command::new(program());
    command
        .arg0("redis-server")
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(["--bind", "127.0.0.1", "--port"])
        .arg(port.unwrap_or(0).to_string())
        .arg("--unixsocket")
        .arg(socket_in(dir))
        .arg("--dir")
        .arg(dir)
        .args(args)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a second handle"))
        .stderr(log);
    die_with_this_thread(&mut command);
    command.spawn().expect("a redis-server to start")
}

fn die_with_this_thread(command: &mut Command) {
    // SAFETY: between fork and exec only prctl(2) is called, which is async-signal-safe and
    // allocates nothing.
    unsafe {
        command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
    }
}

/// `$REDIS_SERVER`, else `redis-server` from PATH, else Debian's binary under its other name.
fn program() -> PathBuf {
    if let Some(given) = std::env::var_os("REDIS_SERVER") {
        return given.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|folder| folder.join("redis-server")).find(|file| file.exists());
    let program = found.unwrap_or_else(|| DEBIAN_SERVER.into());
    assert!(program.exists(), "no redis-server: set REDIS_SERVER, or install the package redis-tools");
    program
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    listener.local_addr().expect("its address").port()
}
