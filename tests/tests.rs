//! The integration tests: one binary, one file per behaviour. Every test has a Redis of its own.
//!
//! `REDLOCK_TRIALS=50` runs the fault trials of `deadline` 50 times each instead of 5;
//! `REDLOCK_RUNS` changes the thousand runs of `contention`.

/// Private servers, faults, runs, terminals, conditions.
mod support;

/// The harness itself: that it sees what it should, and can fail.
mod harness;

// The lock.

/// Taking a free lock, and answers that get lost.
mod acquire;
/// One at a time, under load.
mod contention;
/// The job's death before the lease's end, in trials.
mod deadline;
/// Numbers that only grow.
mod fencing;
/// Other tools on the same key.
mod interop;
/// Losing it, by deletion, by another's value, for want of answers.
mod lease_loss;
/// Giving it back.
mod release;
/// Keeping it, unseen by the job.
mod renewal;
/// What a run costs in requests.
mod round_trips;
/// Waiting for a lock that another holds.
mod wait;

// The job.

/// The job's own status, and ours.
mod exit_status;
/// The whole tree is dead in time, whatever of ours is killed or stopped.
mod guard;
/// Forwarding, and the end of a wait.
mod signals;
/// Job control, keys, prompts, modes: in a real terminal with a real shell.
mod terminal;

// The command line.

/// Arguments, durations, sources of values.
mod cli;
/// Bad input.
mod errors;
/// What is printed and what is not.
mod output;
/// Who holds what.
mod status;

// The server's side.

/// Passwords and rights.
mod acl;
/// A Redis that refuses, hangs, or is none.
mod faults;

/// Public reports, by their numbers.
mod cases;

// The project.

/// Completions and man page are fresh.
mod generated_files;
/// The order of the layers.
mod layers;
