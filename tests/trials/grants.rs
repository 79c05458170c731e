//! What Redis has granted, read from its append-only file.
//!
//! Redis writes the file before it sends the replies (and never later than that with
//! `appendfsync no`), with the moments at which leases end as absolute times. So every lease that a
//! client was told of stands there, and is still to be read when Redis was stopped or killed: no
//! extension can slip in between a question of ours and the fault.

use std::fs;
use std::path::{Path, PathBuf};

/// What the server is started with, so that there is such a file.
pub(crate) const SERVER_ARGS: [&str; 6] =
    ["--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"];

/// One change of the key, in the order in which Redis made them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A value was set; until when (Unix time in ms), if it has an end.
    Set { value: Vec<u8>, until: Option<i64> },
    /// It lasts until then instead.
    Extended { until: i64 },
    /// It is gone: released, run out, or deleted by us.
    Gone,
}

/// All changes of `key` in the server whose directory this is.
pub(crate) fn changes(dir: &Path, key: &str) -> Vec<Change> {
    let commands = files(dir).into_iter().flat_map(|file| commands(&fs::read(file).unwrap_or_default()));
    commands.filter_map(|words| change(&words, key.as_bytes())).collect()
}

/// When the last lease before `foreign` was set (or the last of all) ends; Unix time in ms.
pub(crate) fn last_lease(changes: &[Change], foreign: &[u8]) -> Option<i64> {
    let ours = changes.iter().take_while(|change| !is_foreign(change, foreign));
    let ends = ours.filter_map(|change| match change {
        Change::Set { until, .. } => *until,
        Change::Extended { until } => Some(*until),
        Change::Gone => None,
    });
    ends.last()
}

/// What came after `foreign` was set: nothing may.
pub(crate) fn after_foreign<'a>(changes: &'a [Change], foreign: &[u8]) -> &'a [Change] {
    let at = changes.iter().position(|change| is_foreign(change, foreign));
    at.map_or(&[], |at| &changes[at + 1..])
}

fn is_foreign(change: &Change, foreign: &[u8]) -> bool {
    matches!(change, Change::Set { value, .. } if value == foreign)
}

/// Redis 7 has a directory of numbered parts, Redis 6.2 one file.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("appendonlydir")).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| path.to_string_lossy().ends_with(".incr.aof"));
    found.sort();
    found.push(dir.join("appendonly.aof"));
    found
}

/// The commands in such a file, the last of which may be incomplete: `*N`, N times `$LENGTH` and a word.
fn commands(bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some((words, after)) = command(rest) {
        found.push(words);
        rest = after;
    }
    found
}

fn command(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, &[u8])> {
    let (count, mut rest) = number_line(bytes, b'*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (length, after) = number_line(rest, b'$')?;
        words.push(after.get(..length)?.to_vec());
        rest = after.get(length + 2..)?;
    }
    Some((words, rest))
}

fn number_line(bytes: &[u8], kind: u8) -> Option<(usize, &[u8])> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let number = std::str::from_utf8(bytes.strip_prefix(&[kind])?.get(..end - 1)?).ok()?;
    Some((number.parse().ok()?, &bytes[end + 2..]))
}

fn change(words: &[Vec<u8>], key: &[u8]) -> Option<Change> {
    let (name, rest) = words.split_first()?;
    match name.to_ascii_uppercase().as_slice() {
        b"SET" if rest.first()? == key => {
            let option = rest.iter().position(|word| word.eq_ignore_ascii_case(b"PXAT"));
            let until = option.and_then(|at| unix_ms(rest.get(at + 1)?));
            Some(Change::Set { value: rest.get(1)?.clone(), until })
        }
        b"PEXPIREAT" if rest.first()? == key => Some(Change::Extended { until: unix_ms(rest.get(1)?)? }),
        b"DEL" | b"UNLINK" if rest.iter().any(|word| word == key) => Some(Change::Gone),
        _ => None,
    }
}

fn unix_ms(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}
