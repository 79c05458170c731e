//! A server that gives one fixed answer to every command: for replies that a real Redis gives
//! only in states that a test cannot bring about, and for things that are no Redis at all.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use tempfile::TempDir;

/// The fake. Its threads end with the test process; what connects to it ends long before.
pub(crate) struct Fake {
    dir: TempDir,
}

impl Fake {
    /// Answers `reply` (a full RESP reply, or anything else) to each command of each client.
    pub(crate) fn answering(reply: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join("sock")).expect("a socket");
        let reply = reply.as_bytes().to_vec();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let reply = reply.clone();
                thread::spawn(move || answer(stream, &reply));
            }
        });
        Self { dir }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.dir.path().join("sock").display())
    }
}

fn answer(mut stream: UnixStream, reply: &[u8]) {
    let mut pending = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        pending.extend_from_slice(&buffer[..length]);
        while let Some(used) = length_of_command(&pending) {
            pending.drain(..used);
            if stream.write_all(reply).is_err() {
                return;
            }
        }
    }
}

/// The length of the first whole command in `bytes`: `*N`, then N times `$LENGTH` and text.
fn length_of_command(bytes: &[u8]) -> Option<usize> {
    let (parts, mut at) = number_line(bytes, 0)?;
    for _ in 0..parts {
        let (length, start) = number_line(bytes, at)?;
        at = start + length + 2;
    }
    (at <= bytes.len()).then_some(at)
}

/// The number on the line at `from` (after its type byte), and where the next line starts.
fn number_line(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    let rest = bytes.get(from + 1..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let number = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((number, from + 1 + end + 2))
}
