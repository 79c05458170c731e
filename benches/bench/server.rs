//! The private Redis of a benchmark, reached over a socket and over TCP.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
};

/// A redis-server that ends with this program, however this program ends.
pub(crate) struct Server {
    /// `scripts/private-redis`, which waits for the end of its standard input.
    keeper: Child,
    /// For questions.
    control: UnixStream,
    /// The TCP port on 127.0.0.1.
    pub(crate) port: u16,
}

impl Server {
    /// The socket, relative to the current directory, which [`Server::start`] changes: an absolute
    /// path may be longer than a socket address can hold.
    pub(crate) const SOCKET: &str = "./redis.sock";

    /// The same for `--url`.
    pub(crate) const URL: &str = Self::SOCKET;

    /// Starts the server and makes its directory, which goes when the server does, the current one.
    pub(crate) fn start() -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{}", std::process::id()));
        fs::create_dir(&directory).expect("a directory under target/ can be made");
        // Bound and let go again: free a moment ago is the best that can be had.
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a TCP port on 127.0.0.1 is free")
            .port();
        let mut keeper = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/private-redis"))
            .arg(&directory)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("scripts/private-redis can be run");
        let mut answer = String::new();
        BufReader::new(keeper.stdout.take().expect("stdout is a pipe"))
            .read_line(&mut answer)
            .expect("scripts/private-redis can be read");
        assert_eq!(answer, "ready\n", "scripts/private-redis has said why on stderr");
        env::set_current_dir(&directory).expect("the server's directory is there");
        let control = UnixStream::connect(Self::SOCKET).expect("the private Redis is up");
        Self { keeper, control, port }
    }

    /// Sends one command whose arguments need no quoting, and returns its reply as text.
    pub(crate) fn ask(&self, command: &str) -> String {
        (&self.control)
            .write_all(format!("{command}\r\n").as_bytes())
            .expect("the private Redis takes commands");
        let mut replies = BufReader::new(&self.control);
        let mut line = String::new();
        replies.read_line(&mut line).expect("the private Redis answers");
        let Some(length) = line.strip_prefix('$') else {
            return line;
        };
        let length: usize = length.trim_end().parse().expect("a length follows the $");
        let mut text = vec![0; length + 2]; // and the end of the line
        replies.read_exact(&mut text).expect("the private Redis answers");
        String::from_utf8(text).expect("INFO is ASCII")
    }

    /// How often `command` was called since the last `CONFIG RESETSTAT`. Calls from inside scripts
    /// count too; ours call neither EVAL nor BLPOP.
    pub(crate) fn calls(&self, command: &str) -> u32 {
        number_after(&self.ask("INFO commandstats"), &format!("cmdstat_{command}:calls="))
    }

    /// How many clients are blocked in BLPOP.
    pub(crate) fn blocked(&self) -> u32 {
        number_after(&self.ask("INFO clients"), "blocked_clients:")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// The number behind `prefix`, which begins a line of `info`; 0 if there is none.
fn number_after(info: &str, prefix: &str) -> u32 {
    info.lines().find_map(|line| line.strip_prefix(prefix)?.split(',').next()?.parse().ok()).unwrap_or(0)
}
