//! The only writer to standard error.
//!
//! Standard error can be closed, full, or a terminal that somebody stopped with ^S; a write to it may
//! then fail or never return. So a thread of its own does the writing, fed through a bounded queue
//! that drops what does not fit: nothing that supervises a job ever waits for a reader of messages.
//! The thread starts with the first message; a run that has nothing to say never has it.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// What every line of ours begins with, so that it can be told from the job's.
pub const PREFIX: &str = "redlock-run: ";

/// Messages that may wait to be written; more means that nobody reads.
const QUEUE: usize = 64;

/// How long the end of the program waits for a reader of standard error.
const PATIENCE: Duration = Duration::from_millis(500);

enum Item {
    /// Lines that stay.
    Lines(String),
    /// A line that the next item overwrites; only on a terminal.
    Transient(String),
    /// Everything before this is written.
    Flush(SyncSender<()>),
}

static WRITER: OnceLock<Option<SyncSender<Item>>> = OnceLock::new();

/// What the system says about an error, in the words of a message: without Rust's "(os error N)".
#[must_use]
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// Queues a message: a fact, and perhaps further lines (hints), without the prefix and final newline.
pub fn say(text: &str) {
    let mut lines = String::new();
    for line in text.lines() {
        lines.push_str(PREFIX);
        lines.push_str(line);
        lines.push('\n');
    }
    send(Item::Lines(lines));
}

/// Shows a line that the next message overwrites (the state of a wait). Only for a terminal.
pub fn show_transient(text: &str) {
    send(Item::Transient(format!("{PREFIX}{text}")));
}

/// Removes the line that [`show_transient`] left.
pub fn clear_transient() {
    send(Item::Lines(String::new()));
}

/// Whether standard error is a terminal that can rewrite a line.
#[must_use]
pub fn on_terminal() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Waits until everything said so far is written, at most half a second.
pub fn flush() {
    if WRITER.get().is_none() {
        return;
    }
    let (done, written) = sync_channel(1);
    send(Item::Flush(done));
    let _ = written.recv_timeout(PATIENCE);
}

fn send(item: Item) {
    let Some(writer) = WRITER.get_or_init(start) else { return send_directly(&item) };
    match writer.try_send(item) {
        Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
    }
}

/// Without the thread: what is written at once, or not at all.
fn send_directly(item: &Item) {
    let Item::Lines(lines) = item else { return };
    let mut stderr = std::io::stderr();
    if poll(&mut [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)], PollTimeout::ZERO) == Ok(1) {
        let _ = stderr.write(lines.as_bytes());
    }
}

/// Starts the thread; `None` when the system has no room for one.
fn start() -> Option<SyncSender<Item>> {
    let (sender, receiver) = sync_channel(QUEUE);
    spawn_quiet("messages", move || write_all(&receiver)).ok()?;
    Some(sender)
}

/// Spawns a thread that never handles a signal: every signal is blocked in it from its first
/// instruction (also SIGTTOU, so that `stty tostop` cannot stop a writer in the background).
pub fn spawn_quiet<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<T>> {
    let before = SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK)?;
    let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(256 * 1024).spawn(body);
    before.thread_set_mask()?;
    thread
}

fn write_all(items: &Receiver<Item>) {
    let mut transient = false;
    while let Ok(item) = items.recv() {
        match item {
            Item::Lines(lines) => {
                if transient {
                    write("\r\x1b[K");
                }
                transient = false;
                write(&lines);
            }
            Item::Transient(line) => {
                // Without line wrap (mode 7): a line longer than the terminal is wide could not be
                // overwritten by a carriage return.
                write(&format!("\r\x1b[?7l{line}\x1b[K\x1b[?7h"));
                transient = true;
            }
            Item::Flush(done) => {
                let _ = done.try_send(());
            }
        }
    }
}

/// Writes all of `text`, waiting as long as it takes; a closed standard error loses it.
fn write(text: &str) {
    let mut rest = text.as_bytes();
    let mut stderr = std::io::stderr();
    while !rest.is_empty() {
        match stderr.write(rest) {
            Ok(0) => return,
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The caller shares a non-blocking standard error with us; wait, as its owner would.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
                if poll(&mut fds, PollTimeout::NONE).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}
