//! Host names to addresses, within a deadline.

use super::connection::{Io, wait_readable};
use super::interrupt::Interrupt;
use crate::clock::BootTime;
use crate::messages::spawn_quiet;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

/// The addresses of `host`. A literal costs nothing; a name is looked up by a thread of its own,
/// because the system's resolver has neither a deadline nor a way to be interrupted: past the
/// deadline the thread is left to end by itself.
pub(super) fn resolve(
    host: &str,
    port: u16,
    until: BootTime,
    interrupt: &mut dyn Interrupt,
) -> Result<Vec<SocketAddr>, Io> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    interrupt.idle();
    let done = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC).map_err(io::Error::from)?);
    let found = Arc::new(Mutex::new(None));
    let (host, theirs, answer) = (host.to_owned(), Arc::clone(&done), Arc::clone(&found));
    spawn_quiet("resolver", move || {
        let addresses = (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        if let Ok(mut answer) = answer.lock() {
            *answer = Some(addresses);
        }
        let _ = theirs.write(1);
    })?;
    wait_readable(done.as_fd(), until, interrupt)?;
    match found.lock().ok().and_then(|mut found| found.take()) {
        Some(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
        Some(Err(error)) => Err(Io::Resolve(error.to_string())),
        _ => Err(Io::Resolve("the name has no address".into())),
    }
}
