//! What can end a network operation early.

use std::os::fd::BorrowedFd;

/// Something that may ask a network operation to end before its deadline. The operation watches
/// [`Interrupt::fd`]; when that is readable it asks [`Interrupt::interrupted`].
pub trait Interrupt {
    /// What to poll for; `None`: never interrupted.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Whether to give up. An implementation that answers no has emptied the fd.
    fn interrupted(&mut self) -> bool;

    /// A command is on its way and nothing is left to do but wait, or a thread is about to be started.
    /// Whoever has work that costs no time now, or that wants a process of one thread, does it here.
    fn idle(&mut self) {}
}

/// Never interrupted: for clean-up that has a short deadline anyway.
pub struct Never;

impl Interrupt for Never {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn interrupted(&mut self) -> bool {
        false
    }
}
