//! Where the Redis is and who we are there.

use super::{Result, contradiction, option_duration, usage, variable};
use crate::cli::ServerArgs;
use crate::escape::quote;
use crate::messages::reason;
use crate::node::{Address, Credentials, Node, Timeouts};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

const DEFAULT_URL: &str = "redis://127.0.0.1:6379/0";
const DEFAULT_CONNECT: Duration = Duration::from_secs(2);
const DEFAULT_COMMAND: Duration = Duration::from_secs(1);

/// Longest network timeout that makes sense.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// A password file is read to this many bytes: more is some other file.
const LONGEST_PASSWORD: u64 = 64 * 1024;

/// The Redis to use; also whether it is the default because nothing was said.
pub fn node(args: &ServerArgs) -> Result<(Node, bool)> {
    let (address, source) = address(args.url.as_deref())?;
    let credentials = credentials(args, &address, source)?;
    let timeouts = Timeouts {
        connect: timeout("--connect-timeout", args.connect_timeout.as_deref(), DEFAULT_CONNECT)?,
        command: timeout("--command-timeout", args.command_timeout.as_deref(), DEFAULT_COMMAND)?,
    };
    Ok((Node::new(address, credentials, timeouts), source == Source::Default))
}

/// Where a value came from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Option,
    Environment,
    Default,
}

fn address(given: Option<&OsStr>) -> Result<(Address, Source)> {
    let (name, text, source) = if let Some(url) = given {
        ("--url", url.to_owned(), Source::Option)
    } else if let Some(url) = variable("REDLOCK_RUN_URL") {
        ("REDLOCK_RUN_URL", url, Source::Environment)
    } else if let Some(url) = variable("REDIS_URL") {
        ("REDIS_URL", url, Source::Environment)
    } else {
        ("the default", DEFAULT_URL.into(), Source::Default)
    };
    let wrong = |fact: String| match source {
        Source::Environment => contradiction(fact),
        _ => usage(fact),
    };
    // The text is never shown: it may hold a password.
    let Some(text) = text.to_str() else { return Err(wrong(format!("{name}: not valid UTF-8"))) };
    if text.split([' ', ',']).filter(|part| part.contains("://")).count() > 1 {
        return Err(contradiction(format!("{name}: several nodes are not supported by this version"))
            .hint("name one Redis"));
    }
    match Address::parse(text) {
        Ok(address) => Ok((address, source)),
        Err(error) => Err(wrong(format!("{name}: {error}")).hint(error.hint())),
    }
}

/// Who we are: what is nearer to the command line wins.
fn credentials(args: &ServerArgs, address: &Address, source: Source) -> Result<Credentials> {
    let mut credentials = address.credentials.clone();
    if let Some(user) = &args.user {
        let Some(user) = user.to_str().filter(|user| !user.is_empty()) else {
            return Err(usage(format!("--user {}: not a name", quote(user.as_bytes()))));
        };
        credentials.user = Some(user.to_owned());
    }
    if let Some(file) = &args.password_file {
        credentials.password = Some(password_from(file)?);
    } else if credentials.password.is_none() || source != Source::Option {
        let own = variable("REDLOCK_RUN_PASSWORD").map(OsStringExt::into_vec);
        let shared = || variable("REDISCLI_AUTH").map(OsStringExt::into_vec);
        credentials.password = own.or(credentials.password).or_else(shared);
    }
    if credentials.password.is_none() && credentials.user.is_some() {
        return Err(contradiction("a Redis user is given but no password")
            .hint("a password alone is redis://:PASSWORD@host; for a user add --password-file or REDLOCK_RUN_PASSWORD"));
    }
    Ok(credentials)
}

fn password_from(file: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let wrong = |reason: String| {
        contradiction(format!("--password-file {}: {reason}", quote(file.as_os_str().as_bytes())))
    };
    let mut password = Vec::new();
    std::fs::File::open(file)
        .and_then(|open| open.take(LONGEST_PASSWORD + 1).read_to_end(&mut password))
        .map_err(|error| wrong(reason(&error)).hint("it must be a readable file that holds the password"))?;
    if password.len() as u64 > LONGEST_PASSWORD {
        return Err(wrong("too long for a password".into()));
    }
    if password.last() == Some(&b'\n') {
        password.pop();
        if password.last() == Some(&b'\r') {
            password.pop();
        }
    }
    if password.is_empty() { Err(wrong("empty".into())) } else { Ok(password) }
}

fn timeout(name: &str, given: Option<&OsStr>, default: Duration) -> Result<Duration> {
    let Some(text) = given else { return Ok(default) };
    let timeout = option_duration(name, text)?;
    if timeout < Duration::from_millis(1) || timeout > LONGEST_TIMEOUT {
        return Err(usage(format!("{name} {}: a timeout is 1ms to 1h", quote(text.as_bytes()))));
    }
    Ok(timeout)
}
