//! Fault trials: random faults at random moments against random jobs, judged from outside.
//!
//! Each trial starts a run with a short lease on a Redis of its own, inflicts a fault (kill -9 and
//! STOP of wrapper, guard and Redis, dead and trickling networks, a stolen or deleted key, pauses, a
//! freeze between acquisition and start) and then, reading only Redis and `/proc`, checks that
//!
//! - no process of the job is alive when another client can take the lock that Redis let run out,
//!   where "dead" is gone, zombie, or exiting;
//! - a job whose lock was stolen or deleted is told to end by the next renewal and dead after the
//!   grace, and the new holder's key is left alone;
//! - processes that have nothing to do with the job get no signal;
//! - a pause shorter than the lease, and a stopped guard, end nothing;
//! - wrapper and guard end too, and a wrapper that is left says 79 when the lease ended the job.
//!
//! Documented holes are not drawn: wrapper and guard killed in one instant; the guard killed while the
//! wrapper had children before and a process of the job has left its group and its environment. Both
//! *stopped* past the lease's end leaves nobody who could act either: then the job must be dead at once
//! when they go on.
//!
//! # Use
//!
//! `make trials N=1000`, or `cargo test --test trials`. From the environment:
//!
//! | variable | default | |
//! |---|---|---|
//! | `N` | 20 | how many trials |
//! | `JOBS` | 4 | how many at once |
//! | `SEED` | random | printed first; the same seed draws the same trials |
//! | `TRIAL` | | only this one of them |
//! | `FAULT` | all | only these faults, separated by commas |
//! | `PLANT` | | what is wrong on purpose: see below |
//! | `EXCUSE` | `machine` without `N` and `TRIAL` | `machine`: see below |
//! | `REDLOCK_RUN_BIN` | the one just built | the file under test |
//!
//! A process that lives too long is a violation whatever the cause. Where the cause shows, it is told
//! and counted: SIGKILL was pending and the kernel had not run the process to its exit, or the machine
//! stood still. On a machine that is too busy for leases this short, `EXCUSE=machine` counts these two as
//! uncertain; a result got that way is not the same as one without, and the first lines say so.
//!
//! # It can fail
//!
//! - `PLANT=no-guard` adds `--no-guard` to every run: with `FAULT=wrapper-kill,wrapper-stop` there must be
//!   violations (with the other faults there must be none).
//! - `PLANT=stray-signal` sends a bystander a signal, `PLANT=touched-key` changes the new holder's lease:
//!   every trial must be a violation (the second where there is a new holder).
//! - A lease that is taken to be longer than it is must give violations, too. In a copy of the sources:
//!   ```sh
//!   git clone -q . /tmp/planted && cd /tmp/planted
//!   sed -i 's/kill_at = valid_until - self.margin();/kill_at = valid_until - self.margin() + self.ttl;/' \
//!       src/lease/validity.rs
//!   CARGO_TARGET_DIR=/tmp/planted-target cargo build
//!   ```
//!   and here `REDLOCK_RUN_BIN=/tmp/planted-target/debug/redlock-run cargo test --test trials`.

mod census;
mod course;
mod fault;
mod grants;
mod innocents;
mod limit;
mod moment;
mod plan;
mod report;
mod rng;
mod roles;
mod scene;
mod settings;
mod story;
mod strike;
#[allow(dead_code, unused_imports)] // The tests use all of it.
#[path = "../support/mod.rs"]
mod support;
mod tree;
mod verdict;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use moment::Moment;
use plan::Plan;
use report::Report;
use scene::{House, Scene, Trouble};
use settings::Settings;
use verdict::Verdict;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [roles::JOB, _, owner, shape, habits] => roles::be_a_job(owner, shape, habits),
        [roles::BYSTANDER, owner, notes] => roles::be_a_bystander(owner, notes),
        _ if !settings::is_wanted(&words) => return ExitCode::SUCCESS,
        _ => {}
    }
    let settings = match Settings::read() {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("trials: {error}");
            return ExitCode::from(64);
        }
    };
    let house = settings.house();
    end_on_signals();
    println!("{}", settings.heading());
    let report = run_all(&settings, &house);
    report.show();
    if STOP.load(Ordering::Relaxed) {
        println!("interrupted");
        return ExitCode::from(130);
    }
    let all_is_well = report.violations() == 0 && report.broken == 0;
    if all_is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Somebody wants all of this to end.
static STOP: AtomicBool = AtomicBool::new(false);

/// The first signal ends the trials in good order, the second at once (what they started follows
/// within a second: see `roles.rs`). A handler, because a blocked signal would be blocked in every
/// process of every trial.
fn end_on_signals() {
    extern "C" fn note(_: i32) {
        if STOP.swap(true, Ordering::Relaxed) {
            // SAFETY: _exit has no preconditions.
            unsafe { libc::_exit(130) }
        }
    }
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler touches an atomic and _exit, nothing else.
        let before = unsafe { sigaction(signal, &action) }.expect("to handle signals");
        if matches!(before.handler(), SigHandler::SigIgn) {
            // `nohup make trials &`
            // SAFETY: as it was.
            unsafe { sigaction(signal, &before) }.expect("to handle signals");
        }
    }
}

/// Every trial's number, and what came of it.
type Done = (u64, Result<Verdict, Trouble>);

/// Runs the trials, some at once, and tells of each that broke something.
fn run_all(settings: &Settings, house: &House) -> Report {
    let mut report = Report::default();
    let (tell, told) = mpsc::channel::<Done>();
    let next = AtomicU64::new(settings.first);
    thread::scope(|scope| {
        for _ in 0..settings.jobs {
            let tell = tell.clone();
            scope.spawn({
                let next = &next;
                move || work(settings, house, next, &tell)
            });
        }
        drop(tell);
        for (number, outcome) in told {
            match outcome {
                Ok(verdict) => {
                    report.add(number, &verdict);
                    tell_of(settings, number, &verdict);
                }
                Err(Trouble::Broken(why)) => {
                    report.broken += 1;
                    println!("trial {number} broke down: {why}\n  again: {}", settings.replay(number));
                }
                Err(Trouble::Interrupted) => {}
            }
            if number % 100 == 0 {
                eprintln!("trials: {} done, {} violations", report.trials(), report.violations());
            }
        }
    });
    report
}

/// How often a trial is set up that breaks down.
const TRIES: u32 = 3;

fn work(settings: &Settings, house: &House, next: &AtomicU64, tell: &Sender<Done>) {
    while !STOP.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number > settings.last {
            return;
        }
        let plan = settings.plan(number);
        let mut tried = Err(Trouble::Interrupted);
        for _ in 0..TRIES {
            let began = Moment::now();
            tried = try_once(&plan, house);
            let Err(Trouble::Broken(why)) = &tried else { break };
            let stood_still = house.stalls.total(began, Moment::now()).as_duration();
            // A machine that stands still lets a lease run out before the trial has begun; and sockets with
            // a timeout are interrupted now and then.
            let machine = stood_still > plan.renewal() / 2 || why.contains("Interrupted system call");
            if !machine {
                break;
            }
            println!("trial {number} again, the machine stood still for {stood_still:?}: {why}");
        }
        if tell.send((number, tried)).is_err() {
            return;
        }
    }
}

fn try_once(plan: &Plan, house: &House) -> Result<Verdict, Trouble> {
    let tried = catch_unwind(AssertUnwindSafe(|| verdict::try_out(&mut Scene::set(plan, house))));
    tried.unwrap_or_else(|_| Err(Trouble::Broken("panicked; the message is above".into())))
}

/// Everything about a trial that broke a rule, or may have.
fn tell_of(settings: &Settings, number: u64, verdict: &Verdict) {
    let plan: Plan = settings.plan(number);
    for (kind, lines) in [("VIOLATION", &verdict.violations), ("uncertain", &verdict.uncertain)] {
        for line in lines {
            println!("{kind} in trial {number}: {line}");
        }
    }
    if !verdict.violations.is_empty() || !verdict.uncertain.is_empty() || settings.tells_all {
        println!("  again: {}\n  {plan}\n{}", settings.replay(number), verdict.story);
    }
}
