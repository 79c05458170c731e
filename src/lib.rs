//! flock(1) for a fleet: run a command while holding a named Redis lock.
//!
//! `redlock-run --key job -- ./backup.sh` takes the lock `job` in Redis, runs the command, renews the
//! lease while it runs, and releases the lock when it has ended. Two promises stand above everything:
//! the job never runs past the lease that Redis granted, and from inside the job nobody can tell that
//! it is wrapped.
//!
//! The modules in order, lower layers first; what is low knows nothing of what is high:
//!
//! | layer | modules | |
//! |---|---|---|
//! | 0 | [`exit_status`], [`messages`], [`escape`], [`duration`], [`clock`] | numbers, words, time |
//! | 1 | [`lease`] | the vocabulary of the lock, pure |
//! | 2 | [`node`] | one Redis |
//! | 3 | [`lock`], [`child`] | acquire, keep, release · the job and its end; they do not know each other |
//! | 4 | [`cli`], [`config`], [`report`] | words to values and back |
//! | 5 | [`run`] (with its private `story`), [`verbs`] | what is done |

pub mod clock;
pub mod duration;
pub mod escape;
pub mod exit_status;
pub mod messages;

pub mod lease;

pub mod node;

pub mod child;
pub mod lock;

pub mod cli;
pub mod config;
pub mod report;

pub mod run;
mod story;
pub mod verbs;

use anyhow::Context;
use config::ConfigError;
use exit_status::{Ending, ExitStatus};
use std::io::{ErrorKind, Write};

/// Runs the program on the process's arguments, and ends the process.
pub fn main() -> ! {
    child::early::note();
    // Nothing may unwind into C; what panicked has said so.
    let ending = std::panic::catch_unwind(run_arguments).unwrap_or(ExitStatus::Bug.into());
    messages::flush();
    match ending {
        Ending::Code(code) => child::exit_now(code.into()),
        Ending::Signal(signal) => child::die_of(signal),
    }
}

fn run_arguments() -> Ending {
    match cli::parse(&std::env::args_os().skip(1).collect::<Vec<_>>()) {
        Ok(asked) => carry_out(asked).unwrap_or_else(|error| explain(&error)),
        Err(error) => tell(&error.fact, error.hint.as_deref(), ExitStatus::Usage),
    }
}

fn carry_out(asked: cli::Asked) -> anyhow::Result<Ending> {
    match asked {
        cli::Asked::Run(args) => run::run(&args),
        cli::Asked::Status(args) => verbs::status(&args),
        cli::Asked::Completions(args) => print(&verbs::completions(&args)),
        cli::Asked::Man => print(&verbs::man()?),
        cli::Asked::Text(text) => print(text.as_bytes()),
    }
}

/// Writes a verb's result; a reader that went away has seen enough.
fn print(text: &[u8]) -> anyhow::Result<Ending> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(ExitStatus::Success.into()),
    }
}

fn explain(error: &anyhow::Error) -> Ending {
    if let Some(error) = error.downcast_ref::<ConfigError>() {
        return tell(&error.fact, error.hint.as_deref(), error.status);
    }
    messages::say(&report::system(error));
    ExitStatus::System.into()
}

fn tell(fact: &str, hint: Option<&str>, status: ExitStatus) -> Ending {
    let hint = hint.map(|hint| format!("\n{}", report::hint(hint))).unwrap_or_default();
    messages::say(&format!("{fact}{hint}"));
    status.into()
}
