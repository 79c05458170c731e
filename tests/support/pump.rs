//! The inside of the fault proxy: what happens to the bytes of one connection.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use socket2::Socket;

/// How soon a switched mode reaches a connection on which nothing moves.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What the proxy does to traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nothing.
    Pass,
    /// Replies come later by this much.
    Delay(Duration),
    /// Connections stay up and nothing moves in either direction; what was sent meanwhile
    /// arrives when the mode is switched back, as after a network that was cut.
    BlackHole,
    /// Requests arrive and are carried out; replies are thrown away.
    SwallowReplies,
    /// Replies come one byte at a time, this far apart.
    Trickle(Duration),
    /// Connections, open and new ones, are reset.
    Reset,
}

/// What has gone through a proxy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Connections taken.
    pub(crate) connections: usize,
    /// How often a client began to send after it had been answered (or had just connected).
    pub(crate) round_trips: usize,
    /// Everything clients sent.
    pub(crate) requests: Vec<u8>,
}

/// State that all connections of one proxy share.
pub(super) struct Line {
    mode: Mutex<Mode>,
    seen: Mutex<Seen>,
    closed: AtomicBool,
}

impl Default for Line {
    fn default() -> Self {
        Self { mode: Mutex::new(Mode::Pass), seen: Mutex::default(), closed: AtomicBool::new(false) }
    }
}

impl Line {
    pub(super) fn set(&self, mode: Mode) {
        *self.mode.lock().expect("no panic with it") = mode;
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().expect("no panic with it").clone()
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) fn count_connection(&self) {
        self.seen.lock().expect("no panic with it").connections += 1;
    }

    fn mode(&self) -> Mode {
        *self.mode.lock().expect("no panic with it")
    }
}

/// One connection: the two sockets, and whose turn it is.
struct Connection {
    line: Arc<Line>,
    /// The last bytes came from the client: more of them are the same round trip.
    client_is_sending: AtomicBool,
}

/// Starts moving bytes between `client` and `server` in both directions.
pub(super) fn connect(client: &Socket, server: &Socket, line: &Arc<Line>) {
    let connection =
        Arc::new(Connection { line: Arc::clone(line), client_is_sending: AtomicBool::new(false) });
    let clone = |socket: &Socket| socket.try_clone().expect("a second handle");
    let (from, to) = (clone(client), clone(server));
    let shared = Arc::clone(&connection);
    thread::spawn(move || shared.pump(&from, &to, Connection::requests));
    let (from, to) = (clone(server), clone(client));
    thread::spawn(move || connection.pump(&from, &to, Connection::replies));
}

impl Connection {
    /// Moves bytes one way until either end closes, the proxy is dropped, or a reset is due.
    fn pump(&self, from: &Socket, to: &Socket, forward: fn(&Self, &Socket, &[u8]) -> io::Result<()>) {
        let _ = from.set_read_timeout(Some(LOOK_EVERY));
        let mut buffer = [0; 16 * 1024];
        while !self.line.is_closed() && self.line.mode() != Mode::Reset {
            let moved = match (&*from).read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => forward(self, to, &buffer[..length]),
                Err(error) if is_pause(&error) => Ok(()),
                Err(error) => Err(error),
            };
            if moved.is_err() {
                break;
            }
        }
        self.end(from, to);
    }

    fn end(&self, from: &Socket, to: &Socket) {
        if self.line.mode() == Mode::Reset {
            // Closing with a linger of zero sends RST; the other direction's thread closes too.
            let _ = from.set_linger(Some(Duration::ZERO));
            let _ = to.set_linger(Some(Duration::ZERO));
        } else {
            let _ = to.shutdown(Shutdown::Write);
        }
    }

    fn requests(&self, server: &Socket, bytes: &[u8]) -> io::Result<()> {
        self.count(bytes);
        self.wait_out_a_black_hole()?;
        let mut server = server;
        server.write_all(bytes)
    }

    fn replies(&self, client: &Socket, bytes: &[u8]) -> io::Result<()> {
        self.wait_out_a_black_hole()?;
        self.client_is_sending.store(false, Ordering::Relaxed);
        let mut client = client;
        match self.line.mode() {
            Mode::SwallowReplies => Ok(()),
            Mode::Trickle(apart) => self.trickle(client, bytes, apart),
            Mode::Delay(length) => {
                self.pause(length)?;
                client.write_all(bytes)
            }
            // The mode was switched while it read: what comes with a reset is lost.
            Mode::Reset => Err(io::ErrorKind::ConnectionReset.into()),
            _ => client.write_all(bytes),
        }
    }

    fn trickle(&self, mut client: &Socket, bytes: &[u8], apart: Duration) -> io::Result<()> {
        for (index, byte) in bytes.iter().enumerate() {
            if !matches!(self.line.mode(), Mode::Trickle(_)) {
                return client.write_all(&bytes[index..]);
            }
            client.write_all(&[*byte])?;
            self.pause(apart)?;
        }
        Ok(())
    }

    /// The proxy's own fault: time that must pass, unless the mode is switched meanwhile.
    fn pause(&self, length: Duration) -> io::Result<()> {
        let (end, mode) = (Instant::now() + length, self.line.mode());
        while Instant::now() < end && self.line.mode() == mode {
            self.look()?;
        }
        Ok(())
    }

    fn wait_out_a_black_hole(&self) -> io::Result<()> {
        while self.line.mode() == Mode::BlackHole {
            self.look()?;
        }
        Ok(())
    }

    fn look(&self) -> io::Result<()> {
        if self.line.is_closed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // A switch of the mode, the end of a delay, the drop of the proxy: whichever comes first.
        thread::sleep(LOOK_EVERY);
        Ok(())
    }

    fn count(&self, bytes: &[u8]) {
        let mut seen = self.line.seen.lock().expect("no panic with it");
        if !self.client_is_sending.swap(true, Ordering::Relaxed) {
            seen.round_trips += 1;
        }
        seen.requests.extend_from_slice(bytes);
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
