//! The job: its process, its tree, its signals, its terminal, its end. Knows nothing of Redis.
//!
//! # Theory of operation
//!
//! ```text
//! redlock-run   main thread: one poll loop over file descriptors; forwards signals, waits for the end
//!  └ guard      forked first, while there is one thread: parent and subreaper of everything below
//!     └ job     forked by the guard on the word "go"
//! ```
//!
//! No thread of ours can end a job when the wrapper itself is killed or stopped, and a parent-death
//! signal reaches only the direct child. So the job's parent is a small process of its own, the
//! *guard*. It is a *subreaper*: descendants whose parents died become its children, wherever they
//! moved (own sessions included), and the job's leader stays a zombie until the guard reaps it, so
//! that neither its pid nor its group can be reused under a kill.
//!
//! The wrapper and the guard share one *page* of memory (module `page`): until when the lease lasts, whether
//! the job must end, what became of it. Both judge by the page and the boot-time clock at the moment
//! when they act, never by a message that may be old: a process that was stopped and wakes up must not
//! kill a healthy job.
//!
//! Ending a tree (module `warden`) is the guard's work, and the wrapper's own with `--no-guard`. If the
//! guard dies, the kernel kills the job's leader (`PR_SET_PDEATHSIG`), what is left of the tree comes
//! to the wrapper, which is a subreaper too, and module `second_line` ends it. If the guard hangs at the
//! deadline, the wrapper kills the guard and does the same.
//!
//! Nothing is ever signalled but the job's own group (when it was made for the job), its leader, and
//! direct children, all of them pinned by an unreaped child of the one who sends; and, when the lease is
//! over, descendants that are pinned by a pidfd (module `roster` says why they have to be, and how).

pub mod command;
pub mod early;
mod forward;
mod guard;
mod page;
mod roster;
mod second_line;
mod signals;
mod spawn;
mod start;
mod status;
mod supervise;
mod sys;
mod terminal;
mod tree;
mod warden;

pub use page::{Page, Standing};
pub use signals::{Arrived, Signals, signal_name, signal_number};
pub use spawn::{Group, Policy};
pub use start::{Prepared, StartError};
pub use status::JobStatus;
pub use supervise::{Cause, Dismissed, End, Events, Job};
pub use sys::{die_of, exit_now};
pub use terminal::Terminal;
