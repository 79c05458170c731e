//! The integration tests: one binary, one file per behaviour. Every test has a Redis of its own.
//!
//! `REDLOCK_TRIALS=50` runs the fault trials of `deadline` 50 times each instead of 5;
//! `REDLOCK_RUNS` changes the thousand runs of `contention`.

/// Private servers, faults, runs, terminals, conditions.
mod support;

/// The harness itself: that it sees what it should, and can fail.
mod harness;

// The lock.

/// Taking a free lock.
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
/// Attempts whose answers get lost.
mod lost_replies;
/// Giving it back.
mod release;
/// Keeping it, unseen by the job.
mod renewal;
/// What a run costs in requests.
mod round_trips;
/// Waiting for a lock that another holds.
mod wait;

// The job.

/// Runs as the first process of a container.
mod containers;
/// The order in which job, lease and run come to their ends.
mod endings;
/// The job's own status, and ours.
mod exit_status;
/// The whole tree is dead in time, whatever of ours is killed or stopped.
mod guard;
/// Signals while there is none yet.
mod interrupts;
/// Signals that come at the worst moment.
mod races;
/// Signals while there is a job.
mod signals;
/// Job control, keys, prompts, modes: in a real terminal with a real shell.
mod terminal;
/// What the job could notice of us.
mod transparency;

// The command line.

/// Arguments, durations, help.
mod cli;
/// Bad input.
mod errors;
/// A system that refuses descriptors, or room on the disk.
mod limits;
/// What is printed and what is not.
mod output;
/// Who holds what.
mod status;
/// A stderr that is closed or full.
mod stderr_trouble;
/// Where the Redis is.
mod urls;

// The server's side.

/// Missing rights.
mod acl;
/// A Redis that refuses or hangs.
mod faults;
/// Passwords.
mod passwords;
/// The table of replies, from a fake.
mod replies;

/// Public reports, by their numbers.
mod cases;

// The project.

/// Completions and man page are fresh.
mod generated_files;
/// The order of the layers.
mod layers;
