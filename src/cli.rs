//! The command line: clap and help texts, nothing else. What the values mean is decided in `config.rs`.
//!
//! A verb is one only as the first word; otherwise everything from the first word that is no option on
//! belongs to the command, whatever it looks like. So there are two parsers, and a third definition that
//! joins them for the man page and completions.

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// Leads the long help.
const EXAMPLES: &str = "\
Examples:
  redlock-run --key backup -- ./backup.sh        wait for the lock, then run
  redlock-run -n -E 0 -k report -- make report   skip silently when it runs elsewhere
  redlock-run -w 10m -k deploy -- ./deploy.sh    wait ten minutes at most
  redlock-run status deploy                      who holds it?";

/// Closes the help.
const STATUSES: &str = "\
Exit status: the command's own; if a signal killed it, redlock-run dies of that
signal. Of redlock-run itself: 64 wrong usage, 69 Redis unavailable, 75 held by
another, 76 not a lock, 77 refused, 78 contradictory settings, 79 the lock was
lost while the command ran, 126 and 127 the command cannot be executed or found.";

/// Options of a run.
#[derive(Debug, Parser)]
#[command(
    name = "redlock-run",
    version,
    about = "Run a command while holding a named Redis lock",
    override_usage = "redlock-run [OPTIONS] --key KEY [--] COMMAND [ARG]...\n       redlock-run status [OPTIONS] KEY...\n       redlock-run completions SHELL | man",
    before_long_help = EXAMPLES,
    after_help = STATUSES,
    max_term_width = 80,
    infer_long_args = false,
    disable_help_subcommand = true
)]
pub struct RunArgs {
    /// The lock: a Redis key, used exactly as given
    #[arg(short, long, value_name = "KEY")]
    pub key: Option<OsString>,

    /// Which Redis, and who we are to it
    #[command(flatten)]
    pub server: ServerArgs,

    /// How long the lock outlives its holder; renewed while the command runs [default: 30s]
    #[arg(
        short,
        long,
        value_name = "TIME",
        long_help = "How long the lock outlives a holder that vanished, 100ms to 24h; renewed while the command runs [default: 30s] [env: REDLOCK_RUN_TTL]"
    )]
    pub ttl: Option<OsString>,

    /// Do not wait: exit with 75 when the lock is held
    #[arg(short, long, visible_aliases = ["nb", "nonblocking"])]
    pub nonblock: bool,

    /// Wait at most this long [default: for ever]
    #[arg(
        short,
        long,
        value_name = "TIME",
        visible_alias = "timeout",
        long_help = "Wait at most this long; 0 is --nonblock [default: for ever, but 10s for a Redis that never answered] [env: REDLOCK_RUN_WAIT]"
    )]
    pub wait: Option<OsString>,

    /// Status when the lock is held or the wait runs out, 0 to 255 [default: 75]
    #[arg(
        short = 'E',
        long,
        value_name = "N",
        long_help = "Status when the lock is held or the wait runs out, 0 to 255; 0 is also silent [default: 75]"
    )]
    pub conflict_exit_code: Option<OsString>,

    /// What a lost lock does to the command: stop or warn [default: stop]
    #[arg(long, value_name = "ACTION", value_parser = ["stop", "warn"], hide_possible_values = true)]
    pub on_lost: Option<String>,

    /// Between our TERM and our KILL [default: 10s]
    #[arg(
        long,
        value_name = "TIME",
        long_help = "Between TERM and KILL when redlock-run itself ends the command; 0 sends both together. When a lease runs out at most half of the TTL [default: min(5s, TTL/4)], for what a stopped command leaves running [default: 10s]. A signal that is passed on never starts it"
    )]
    pub kill_after: Option<OsString>,

    /// Signal sent instead of TERM when redlock-run itself ends the command
    #[arg(long, value_name = "SIGNAL")]
    pub signal: Option<String>,

    /// No fencing token: its counter is neither read nor written
    #[arg(long)]
    pub no_fencing: bool,

    /// No guard process: the command may outlive a killed redlock-run
    #[arg(long)]
    pub no_guard: bool,

    /// Shown to whoever asks who holds the lock
    #[arg(
        long,
        value_name = "TEXT",
        long_help = "Shown to whoever asks who holds the lock, up to 200 characters [env: REDLOCK_RUN_NOTE]"
    )]
    pub note: Option<OsString>,

    /// Run STRING with /bin/sh -c instead of a command
    #[arg(short = 'c', long = "command", value_name = "STRING")]
    pub shell_command: Option<OsString>,

    /// How much is said
    #[command(flatten)]
    pub output: OutputArgs,

    /// The command and its arguments, taken as they are
    #[arg(trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Which Redis, and who we are to it.
#[derive(Debug, Default, Args)]
pub struct ServerArgs {
    /// Redis to use [default: <redis://127.0.0.1:6379/0>]
    #[arg(short, long, value_name = "URL", value_hint = ValueHint::Url, long_help = "Redis to use: redis://[user[:password]@]host[:port][/db], unix://path[?db=N] or the path of a socket [default: redis://127.0.0.1:6379/0] [env: REDLOCK_RUN_URL, then REDIS_URL]")]
    pub url: Option<OsString>,

    /// ACL user
    #[arg(long, value_name = "NAME")]
    pub user: Option<OsString>,

    /// File that holds the password
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, long_help = "File that holds the password; a final newline is dropped [env: REDLOCK_RUN_PASSWORD, then REDISCLI_AUTH, hold the password itself]")]
    pub password_file: Option<PathBuf>,

    /// To reach Redis, name resolution included [default: 2s]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub connect_timeout: Option<OsString>,

    /// For one answer of Redis [default: 1s]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    pub command_timeout: Option<OsString>,
}

/// How much is said.
#[derive(Debug, Default, Args)]
pub struct OutputArgs {
    /// Say nothing when the lock is held, and nothing while waiting
    #[arg(short, long)]
    pub quiet: bool,

    /// Say what happens
    #[arg(short, long)]
    pub verbose: bool,
}

/// `redlock-run status`.
#[derive(Debug, Parser)]
#[command(
    name = "redlock-run status",
    about = "Show who holds a lock; exit 0 if held, 1 if free",
    max_term_width = 80,
    infer_long_args = false
)]
pub struct StatusArgs {
    /// Which Redis, and who we are to it
    #[command(flatten)]
    pub server: ServerArgs,

    /// One JSON object per key and line
    #[arg(long)]
    pub json: bool,

    /// Show it again every second, until interrupted
    #[arg(long)]
    pub watch: bool,

    /// The locks
    #[arg(required = true, value_name = "KEY")]
    pub keys: Vec<OsString>,
}

/// `redlock-run completions`.
#[derive(Debug, Parser)]
#[command(name = "redlock-run completions", about = "Print a completion script", max_term_width = 80)]
pub struct CompletionsArgs {
    /// bash, zsh, fish, elvish or powershell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// `redlock-run man`.
#[derive(Debug, Parser)]
#[command(name = "redlock-run man", about = "Print the manual page", max_term_width = 80)]
pub struct ManArgs {}

/// Run and verbs as one definition.
#[derive(Debug, Parser)]
#[command(name = "redlock-run", args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct Everything {
    #[command(flatten)]
    run: RunArgs,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show who holds a lock; exit 0 if held, 1 if free
    Status(StatusArgs),
    /// Print a completion script
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

/// What was asked for.
#[derive(Debug)]
pub enum Asked {
    /// A command under a lock.
    Run(Box<RunArgs>),
    /// `status`.
    Status(StatusArgs),
    /// `completions`.
    Completions(CompletionsArgs),
    /// `man`.
    Man,
    /// `--help`, `--version`: a text for standard output.
    Text(String),
}

/// Why the words were not understood.
#[derive(Debug)]
pub struct UsageError {
    /// One line.
    pub fact: String,
    /// What to type.
    pub hint: Option<String>,
}

/// Reads the words after the program's name.
pub fn parse(words: &[OsString]) -> Result<Asked, UsageError> {
    let verb = words.first().and_then(|word| word.to_str()).unwrap_or_default().to_owned();
    let rest = || words.iter().skip(1).cloned();
    let result = match verb.as_str() {
        "status" => StatusArgs::try_parse_from(named("redlock-run status", rest())).map(Asked::Status),
        "completions" => {
            CompletionsArgs::try_parse_from(named("redlock-run completions", rest())).map(Asked::Completions)
        }
        "man" => ManArgs::try_parse_from(named("redlock-run man", rest())).map(|_| Asked::Man),
        _ => RunArgs::try_parse_from(named("redlock-run", words.iter().cloned()))
            .map(|args| Asked::Run(Box::new(args))),
    };
    match result {
        Err(error) if !error.use_stderr() => Ok(Asked::Text(error.render().to_string())),
        other => other.map_err(|error| usage_error(&error)),
    }
}

fn named(name: &str, words: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    std::iter::once(OsString::from(name)).chain(words)
}

/// clap's paragraphs as a fact and a hint.
fn usage_error(error: &clap::Error) -> UsageError {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let mut paragraph = text.split("\n\n").next().unwrap_or_default().lines().map(str::trim);
    let mut fact = paragraph.next().unwrap_or_default().to_owned();
    for more in paragraph {
        fact.push(' ');
        fact.push_str(more);
    }
    // Only "a similar argument exists": the other tip, to put `--` before it, would run it as a command.
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: a similar"));
    let hint = match error.kind() {
        ErrorKind::UnknownArgument => tip.map(|tip| format!("a similar{tip}")),
        _ => None,
    };
    let hint = hint.or_else(|| Some("redlock-run --help".to_owned()));
    UsageError { fact: crate::escape::escape(fact.as_bytes()), hint }
}

/// The whole command line, for documentation that is generated from it.
#[must_use]
pub fn command() -> clap::Command {
    Everything::command()
}

/// The options of a run alone.
#[must_use]
pub fn run_command() -> clap::Command {
    RunArgs::command()
}
