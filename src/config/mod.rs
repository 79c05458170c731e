//! Arguments and environment to values of the layers below, with the rules that span several options.
//!
//! Precedence: option, then environment, then default. There is no configuration file. A value that
//! cannot be read as its option's type ends with 64; values that are each fine but contradict, and
//! whatever is wrong in a file or an environment variable, with 78.

mod server;

pub use server::node;

use crate::child::command::{CannotRun, base_name, look_up};
use crate::child::signal_number;
use crate::cli::{OutputArgs, RunArgs};
use crate::duration;
use crate::escape::{escape, quote};
use crate::exit_status::ExitStatus;
use crate::lease::{Holder, Key, KeyError, LONGEST_NOTE, LONGEST_TTL, SHORTEST_TTL, Timing};
use crate::lock::{Patience, Want};
use crate::node::Node;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

const DEFAULT_TTL: Duration = Duration::from_secs(30);
const DEFAULT_KILL_AFTER: Duration = Duration::from_secs(10);

/// Something is wrong with what the user gave us.
#[derive(Debug)]
pub struct ConfigError {
    /// What this ends with.
    pub status: ExitStatus,
    /// One line.
    pub fact: String,
    /// What to type.
    pub hint: Option<String>,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.fact)
    }
}

impl std::error::Error for ConfigError {}

type Result<T> = std::result::Result<T, ConfigError>;

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loudness {
    /// Faults and lost locks.
    Quiet,
    /// Also who we wait for.
    Normal,
    /// Also what goes well.
    Verbose,
}

/// A run, as it is to be carried out.
pub struct RunConfig {
    /// The lock.
    pub want: Want,
    /// The Redis.
    pub node: Node,
    /// The address came from nowhere: the default.
    pub default_url: bool,
    /// Program and arguments.
    pub argv: Vec<CString>,
    /// Status when the lock is held.
    pub conflict: u8,
    /// Whether the end of the lease ends the job.
    pub stops_on_loss: bool,
    /// For what is left of a stopped job.
    pub kill_after: Duration,
    /// In place of TERM.
    pub signal: i32,
    /// Whether there is a guard.
    pub guarded: bool,
    /// How much is said.
    pub loudness: Loudness,
}

impl RunConfig {
    /// Reads and checks everything, and looks for the command, before anything is done.
    pub fn new(args: &RunArgs) -> Result<Self> {
        let key = key(args.key.as_deref())?;
        let command = command(args)?;
        let loudness = loudness(&args.output)?;
        let patience = patience(args.nonblock, args.wait.as_deref())?;
        let kill_after = optional_duration("--kill-after", args.kill_after.as_deref())?;
        let timing = Timing::new(ttl(args.ttl.as_deref())?, kill_after);
        let conflict = conflict(args.conflict_exit_code.as_deref())?;
        let signal = signal(args.signal.as_deref())?;
        let note = note(args.note.as_deref())?;
        let (mut node, default_url) = node(&args.server)?;
        if args.no_fencing {
            node.without_fencing();
        }
        check_command(&command)?;
        let holder = holder(&base_name(&command[0]), note.as_deref());
        let argv = command.into_iter().map(|word| CString::new(word.into_vec()));
        Ok(Self {
            want: Want { key, timing, holder, patience },
            node,
            default_url,
            argv: argv
                .collect::<std::result::Result<_, _>>()
                .map_err(|_| usage("an argument contains a NUL byte"))?,
            conflict,
            stops_on_loss: args.on_lost.as_deref() != Some("warn"),
            kill_after: kill_after.unwrap_or(DEFAULT_KILL_AFTER),
            signal,
            guarded: !args.no_guard,
            loudness,
        })
    }
}

/// A lock's key as given.
pub fn key(given: Option<&OsStr>) -> Result<Key> {
    let Some(given) = given else {
        return Err(usage("no lock is named").hint("redlock-run --key NAME -- COMMAND"));
    };
    Key::new(given.as_bytes().to_vec()).map_err(|error| match error {
        KeyError::Empty => usage(format!("--key '': {error}")),
        KeyError::Reserved { .. } => {
            contradiction(format!("--key {}: {error}", quote(given.as_bytes()))).hint("choose another name")
        }
    })
}

fn command(args: &RunArgs) -> Result<Vec<OsString>> {
    match (&args.shell_command, args.command.is_empty()) {
        (Some(_), false) => Err(contradiction("-c and a command after the options contradict")
            .hint("give one of them; arguments of the shell go into the string")),
        (Some(text), true) => Ok(["/bin/sh".into(), "-c".into(), text.clone()].to_vec()),
        (None, false) => Ok(args.command.clone()),
        (None, true) => Err(usage("no command is given").hint("redlock-run --key NAME -- COMMAND")),
    }
}

fn check_command(command: &[OsString]) -> Result<()> {
    look_up(&command[0]).map_err(|why| cannot_run(&command[0], command.len() == 1, why))
}

/// The error for a command that cannot be started.
#[must_use]
pub fn cannot_run(command: &OsStr, alone: bool, why: CannotRun) -> ConfigError {
    let name = quote(command.as_bytes());
    let looks_like_shell = alone && command.as_bytes().contains(&b' ');
    match why {
        CannotRun::NotFound => {
            let error = ConfigError {
                status: ExitStatus::NotFound,
                fact: format!("{name}: command not found"),
                hint: None,
            };
            if looks_like_shell {
                error.hint(format!("-- sh -c {name}"))
            } else {
                error.hint("check its spelling and PATH")
            }
        }
        CannotRun::NotExecutable(reason) => {
            let fact = format!("{name}: cannot be executed: {}", reason.to_lowercase());
            ConfigError {
                status: ExitStatus::NotExecutable,
                fact,
                hint: Some("it must be a file with execute permission (chmod +x)".into()),
            }
        }
    }
}

fn loudness(args: &OutputArgs) -> Result<Loudness> {
    match (args.quiet, args.verbose) {
        (true, true) => Err(contradiction("--quiet and --verbose contradict").hint("give one of them")),
        (true, false) => Ok(Loudness::Quiet),
        (false, true) => Ok(Loudness::Verbose),
        (false, false) => Ok(Loudness::Normal),
    }
}

fn patience(nonblock: bool, wait: Option<&OsStr>) -> Result<Patience> {
    let given = optional_duration("--wait", wait)?;
    if nonblock {
        return match given {
            Some(wait) if !wait.is_zero() => {
                Err(contradiction("--nonblock and --wait contradict").hint("give one of them"))
            }
            _ => Ok(Patience::Once),
        };
    }
    let limit = match given {
        None => variable("REDLOCK_RUN_WAIT")
            .map(|text| environment_duration("REDLOCK_RUN_WAIT", &text))
            .transpose()?,
        some => some,
    };
    Ok(match limit {
        None => Patience::Forever,
        Some(limit) if limit.is_zero() => Patience::Once,
        Some(limit) => Patience::Limit(limit),
    })
}

fn ttl(given: Option<&OsStr>) -> Result<Duration> {
    let variable = variable("REDLOCK_RUN_TTL");
    let range = |name: &str, ttl: Duration| {
        (SHORTEST_TTL..=LONGEST_TTL)
            .contains(&ttl)
            .then_some(ttl)
            .ok_or(format!("{name}: a TTL is 100ms to 24h"))
    };
    match (given, variable) {
        (Some(text), _) => {
            let ttl = option_duration("--ttl", text)?;
            range(&format!("--ttl {}", quote(text.as_bytes())), ttl)
                .map_err(|fact| usage(fact).hint("the default is 30s"))
        }
        (None, Some(text)) => {
            let ttl = environment_duration("REDLOCK_RUN_TTL", &text)?;
            range(&format!("REDLOCK_RUN_TTL {}", quote(text.as_bytes())), ttl).map_err(contradiction)
        }
        (None, None) => Ok(DEFAULT_TTL),
    }
}

fn conflict(given: Option<&OsStr>) -> Result<u8> {
    let Some(text) = given else { return Ok(ExitStatus::Busy as u8) };
    let digits = text.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|text| text.parse().ok()).ok_or_else(|| {
        usage(format!("--conflict-exit-code {}: a status is 0 to 255", quote(text.as_bytes())))
    })
}

fn signal(given: Option<&str>) -> Result<i32> {
    let Some(text) = given else { return Ok(libc::SIGTERM) };
    signal_number(text).ok_or_else(|| {
        usage(format!("--signal {}: not a signal", quote(text.as_bytes())))
            .hint("a name or number, as in INT, SIGQUIT or 2")
    })
}

fn note(given: Option<&OsStr>) -> Result<Option<String>> {
    let (text, wrong): (_, fn(String) -> ConfigError) = match given {
        Some(text) => (Some(text.to_owned()), usage),
        None => (variable("REDLOCK_RUN_NOTE"), contradiction),
    };
    let name = if given.is_some() { "--note" } else { "REDLOCK_RUN_NOTE" };
    let text = text.map(|text| text.to_string_lossy().into_owned());
    match text {
        Some(text) if text.chars().count() > LONGEST_NOTE => {
            Err(wrong(format!("{name}: longer than {LONGEST_NOTE} characters")))
        }
        text => Ok(text),
    }
}

fn option_duration(name: &str, text: &OsStr) -> Result<Duration> {
    read_duration(text)
        .map_err(|reason| usage(format!("{name} {}: {reason}", quote(text.as_bytes()))).hint(duration::HINT))
}

fn optional_duration(name: &str, text: Option<&OsStr>) -> Result<Option<Duration>> {
    text.map(|text| option_duration(name, text)).transpose()
}

fn environment_duration(name: &str, text: &OsStr) -> Result<Duration> {
    read_duration(text).map_err(|reason| {
        contradiction(format!("{name} {}: {reason}", quote(text.as_bytes()))).hint(duration::HINT)
    })
}

fn read_duration(text: &OsStr) -> std::result::Result<Duration, String> {
    let text = text.to_str().ok_or("not a duration")?;
    duration::parse(text).map_err(|error| error.to_string())
}

/// An environment variable that says something.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn holder(program: &str, note: Option<&str>) -> Holder {
    let host = nix::unistd::gethostname().unwrap_or_default();
    Holder::new(&user(), &host.to_string_lossy(), std::process::id(), program, note)
}

/// The user's name: from the environment, as cron and login set it, since the system's user database
/// may be slow (and costs more than the lock itself).
fn user() -> String {
    let uid = nix::unistd::geteuid();
    let named =
        || variable("LOGNAME").or_else(|| variable("USER")).map(|name| name.to_string_lossy().into_owned());
    let root = || uid.is_root().then(|| "root".to_owned());
    let known = || nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name);
    named().or_else(root).or_else(known).unwrap_or_else(|| uid.to_string())
}

fn usage(fact: impl Into<String>) -> ConfigError {
    ConfigError { status: ExitStatus::Usage, fact: fact.into(), hint: None }
}

fn contradiction(fact: impl Into<String>) -> ConfigError {
    ConfigError { status: ExitStatus::Config, fact: fact.into(), hint: None }
}

impl ConfigError {
    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(escape(hint.into().as_bytes())), ..self }
    }
}
