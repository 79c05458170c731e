//! What the environment asks for.

use std::env;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::census::Census;
use crate::fault::{FAULTS, Fault};
use crate::plan::Plan;
use crate::roles;
use crate::scene::{House, Plant};
use crate::watch::Stalls;

/// Trials inside a plain `cargo test`: less than a minute.
const DEFAULT_TRIALS: u64 = 20;

/// Trials at once.
const DEFAULT_JOBS: u64 = 4;

/// Which trials, and against what.
pub(crate) struct Settings {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) jobs: u64,
    /// One trial was asked for: its story is told whatever came of it.
    pub(crate) tells_all: bool,
    seed: u64,
    deck: Vec<Fault>,
    faults: Option<String>,
    plant: Plant,
    excuses: bool,
    program: String,
}

impl Settings {
    /// From the environment; the error says what is wrong with it.
    pub(crate) fn read() -> Result<Self, String> {
        let seed = number("SEED")?.unwrap_or_else(random_seed);
        let trial = number("TRIAL")?;
        let count = number("N")?.unwrap_or(DEFAULT_TRIALS);
        let (first, last) = trial.map_or((1, count), |trial| (trial, trial));
        if first == 0 {
            return Err("TRIAL counts from 1".into());
        }
        let plant = match text("PLANT").as_deref() {
            None => Plant::Nothing,
            Some("no-guard") => Plant::NoGuard,
            Some("stray-signal") => Plant::StraySignal,
            Some("touched-key") => Plant::TouchedKey,
            Some(_) => return Err("PLANT is one of no-guard, stray-signal, touched-key".into()),
        };
        let excuses = match text("EXCUSE").as_deref() {
            // A suite that runs on every change, on any machine, must be red for nothing else.
            None => text("N").is_none() && trial.is_none(),
            Some("machine") => true,
            Some(_) => return Err("EXCUSE is machine, or not set".into()),
        };
        let faults = text("FAULT");
        let deck = deck(faults.as_deref(), plant)?;
        let program = text("REDLOCK_RUN_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_redlock-run").to_owned());
        let program = std::fs::canonicalize(&program).map_err(|error| format!("{program}: {error}"))?;
        let program = program.to_string_lossy().into_owned();
        let jobs = number("JOBS")?.unwrap_or(DEFAULT_JOBS).max(1);
        Ok(Self {
            first,
            last,
            jobs,
            tells_all: trial.is_some(),
            seed,
            deck,
            faults,
            plant,
            excuses,
            program,
        })
    }

    /// Trial `number`.
    pub(crate) fn plan(&self, number: u64) -> Plan {
        Plan::draw(self.seed, number, &self.deck)
    }

    /// What all trials share.
    pub(crate) fn house(&self) -> House {
        House {
            program: self.program.clone(),
            plant: self.plant,
            excuses: self.excuses,
            owner: roles::owner(),
            census: Census::start(&self.program),
            stalls: Stalls::start(),
        }
    }

    /// The first lines of the output.
    pub(crate) fn heading(&self) -> String {
        let count = self.last + 1 - self.first;
        let excuses = if self.excuses { ", EXCUSE=machine" } else { "" };
        format!("binary {}\nSEED={}: {count} trials, {} at once{excuses}", self.program, self.seed, self.jobs)
    }

    /// What to type to have the same trial again.
    pub(crate) fn replay(&self, number: u64) -> String {
        let mut line = format!("SEED={} TRIAL={number}", self.seed);
        if let Some(faults) = &self.faults {
            let _ = write!(line, " FAULT={faults}");
        }
        for name in ["PLANT", "EXCUSE", "REDLOCK_RUN_BIN"] {
            if let Some(value) = text(name) {
                let _ = write!(line, " {name}={value}");
            }
        }
        line + " cargo test --test trials"
    }
}

/// What the words after the program's name want of a test program: all of it, or nothing, when they
/// ask for other tests or only for a list.
pub(crate) fn is_wanted(words: &[&str]) -> bool {
    if words.contains(&"--list") {
        println!("trials: test");
        return false;
    }
    let mut filters = words.iter().filter(|word| !word.starts_with('-')).peekable();
    let all = filters.peek().is_none();
    !words.contains(&"--ignored") && (all || filters.any(|filter| "trials".contains(filter)))
}

fn deck(faults: Option<&str>, plant: Plant) -> Result<Vec<Fault>, String> {
    let find = |name: &str| FAULTS.iter().find(|(_, known)| *known == name).map(|(fault, _)| *fault);
    let mut deck = Vec::new();
    for name in faults.into_iter().flat_map(|names| names.split(',')) {
        deck.push(find(name).ok_or_else(|| format!("FAULT={name} is not known; there are {}", names()))?);
    }
    if deck.is_empty() {
        deck = FAULTS.map(|(fault, _)| fault).into();
    }
    deck.retain(|fault| plant != Plant::NoGuard || fault.needs_no_guard());
    if deck.is_empty() { Err("PLANT=no-guard leaves none of these faults".into()) } else { Ok(deck) }
}

fn names() -> String {
    FAULTS.map(|(_, name)| name).join(", ")
}

fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}

fn number(name: &str) -> Result<Option<u64>, String> {
    let text = text(name);
    text.map(|text| text.parse().map_err(|_| format!("{name} must be a whole number, not {text:?}")))
        .transpose()
}

fn random_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos()) ^ now.as_secs() << 20 & 0xffff_ffff
}
