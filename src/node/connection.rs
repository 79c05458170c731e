//! A connection whose every step has a deadline and can be interrupted.

use super::address::{Address, Endpoint};
use super::interrupt::Interrupt;
use super::resolve::resolve;
use crate::clock::BootTime;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use redis::{Parser, Value};
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Most bytes that one reply may have. Ours are below 2 KiB; a server that announces more is none
/// that we know how to talk to.
const LONGEST_REPLY: usize = 64 * 1024;

/// Idle time before TCP probes the other side: below the idle limits of common proxies (30 s).
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A connected stream and what has been read of it.
pub(super) struct Connection {
    socket: Socket,
    parser: Parser,
}

/// Why an operation on a connection ended.
#[derive(Debug)]
pub(super) enum Io {
    /// The deadline came first.
    TimedOut,
    /// The interrupt came first.
    Interrupted,
    /// The host name has no address; the resolver's words.
    Resolve(String),
    /// Refused, reset, closed, no such socket …
    System(io::Error),
    /// The other side does not speak the Redis protocol.
    Protocol(String),
}

impl From<io::Error> for Io {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl Connection {
    /// Connects; name resolution and all addresses of a name share the deadline.
    pub(super) fn open(
        address: &Address,
        until: BootTime,
        response: Duration,
        interrupt: &mut dyn Interrupt,
    ) -> Result<Self, Io> {
        let (host, port) = match &address.endpoint {
            Endpoint::Unix(path) => {
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                return Self::connect(socket, &SockAddr::unix(path)?, until, interrupt);
            }
            Endpoint::Tcp(host, port) => (host, *port),
        };
        // The first address is the one that should work; the last ones are those that the system cannot use.
        let mut first = None;
        let targets = resolve(host, port, until, interrupt)?;
        for (tried, target) in targets.iter().enumerate() {
            // A fair share for each: one address that swallows everything must not use up the time of
            // one that answers.
            let now = BootTime::now();
            let share = until.after(now) / u32::try_from(targets.len() - tried).unwrap_or(1);
            let socket = Socket::new(Domain::for_address(*target), Type::STREAM, None).map_err(Io::from);
            let opened = socket.and_then(|socket| {
                prepare_tcp(&socket, response)?;
                Self::connect(socket, &(*target).into(), now + share, interrupt)
            });
            match opened {
                Err(error @ (Io::System(_) | Io::TimedOut)) => drop(first.get_or_insert(error)),
                done => return done,
            }
        }
        Err(first.unwrap_or_else(|| Io::Resolve("the name has no address".into())))
    }

    fn connect(
        socket: Socket,
        target: &SockAddr,
        until: BootTime,
        interrupt: &mut dyn Interrupt,
    ) -> Result<Self, Io> {
        socket.set_nonblocking(true)?;
        loop {
            match socket.connect(target) {
                Ok(()) => break,
                Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
                    wait(socket.as_fd(), PollFlags::POLLOUT, until, interrupt)?;
                    if let Some(error) = socket.take_error()? {
                        return Err(error.into());
                    }
                    break;
                }
                // The queue of a unix socket is full; the kernel offers nothing to wait for.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let soon = BootTime::now() + Duration::from_millis(5);
                    match wait_silent(soon.min(until), interrupt) {
                        Err(Io::TimedOut) if soon < until => {}
                        other => return Err(other.err().unwrap_or(Io::TimedOut)),
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { socket, parser: Parser::new() })
    }

    /// Sends all of `bytes`.
    pub(super) fn send(
        &mut self,
        bytes: &[u8],
        until: BootTime,
        interrupt: &mut dyn Interrupt,
    ) -> Result<(), Io> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match (&self.socket).write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait(self.socket.as_fd(), PollFlags::POLLOUT, until, interrupt)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads one reply.
    pub(super) fn receive(&mut self, until: BootTime, interrupt: &mut dyn Interrupt) -> Result<Value, Io> {
        let mut ended = None;
        let source =
            Bounded { socket: &self.socket, until, interrupt, budget: LONGEST_REPLY, ended: &mut ended };
        let parsed = self.parser.parse_value(source);
        match (ended, parsed) {
            (Some(io), _) => Err(io),
            (None, Ok(value)) => Ok(value),
            (None, Err(error)) => Err(Io::Protocol(error.to_string())),
        }
    }
}

/// What the parser reads from: never past the deadline, the interrupt or the budget. The parser
/// turns errors into its own, so the real reason is left in `ended`.
struct Bounded<'a> {
    socket: &'a Socket,
    until: BootTime,
    interrupt: &'a mut dyn Interrupt,
    budget: usize,
    ended: &'a mut Option<Io>,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.read_some(buffer) {
            Ok(count) => Ok(count),
            Err(io) => {
                *self.ended = Some(io);
                Err(ErrorKind::Other.into())
            }
        }
    }
}

impl Bounded<'_> {
    fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, Io> {
        let most = buffer.len().min(self.budget);
        if most == 0 {
            return Err(Io::Protocol("the reply is too long".into()));
        }
        loop {
            match self.socket.read(&mut buffer[..most]) {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(count) => {
                    self.budget -= count;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait(self.socket.as_fd(), PollFlags::POLLIN, self.until, self.interrupt)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn prepare_tcp(socket: &Socket, response: Duration) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    // The kernel gives up on unacknowledged data soon after we do, so that a dead peer shows as an
    // error and not as a socket that swallows a release.
    socket.set_tcp_user_timeout(Some(response * 2))
}

/// Waits until `fd` can be read.
pub(super) fn wait_readable(
    fd: BorrowedFd<'_>,
    until: BootTime,
    interrupt: &mut dyn Interrupt,
) -> Result<(), Io> {
    wait(fd, PollFlags::POLLIN, until, interrupt)
}

/// Waits for nothing but the deadline (`TimedOut`) or the interrupt.
pub(super) fn wait_silent(until: BootTime, interrupt: &mut dyn Interrupt) -> Result<(), Io> {
    wait_any(None, until, interrupt)
}

fn wait(
    fd: BorrowedFd<'_>,
    events: PollFlags,
    until: BootTime,
    interrupt: &mut dyn Interrupt,
) -> Result<(), Io> {
    wait_any(Some((fd, events)), until, interrupt)
}

fn wait_any(
    what: Option<(BorrowedFd<'_>, PollFlags)>,
    until: BootTime,
    interrupt: &mut dyn Interrupt,
) -> Result<(), Io> {
    loop {
        let left = until.after(BootTime::now());
        if left.is_zero() {
            return Err(Io::TimedOut);
        }
        let (ready, interrupted) = poll_once(what, left, &*interrupt)?;
        if interrupted && interrupt.interrupted() {
            return Err(Io::Interrupted);
        }
        if ready {
            return Ok(());
        }
    }
}

/// One poll(2): whether `what` is ready, and whether the interrupt's fd is.
fn poll_once(
    what: Option<(BorrowedFd<'_>, PollFlags)>,
    left: Duration,
    interrupt: &dyn Interrupt,
) -> Result<(bool, bool), Io> {
    let what = what.map(|(fd, events)| PollFd::new(fd, events));
    let interrupt = interrupt.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    let watched = what.is_some();
    let mut fds: Vec<PollFd<'_>> = what.into_iter().chain(interrupt).collect();
    // Rounded up: rounded down, the last millisecond would be spent in a busy loop.
    let timeout = PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => return Err(io::Error::from(error).into()),
    }
    let ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
    let interrupted = fds.get(usize::from(watched)).is_some_and(ready);
    Ok((watched && fds.first().is_some_and(ready), interrupted))
}
