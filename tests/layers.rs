//! The order of the layers, read from the source: what is low knows nothing of what is high.

use std::fs;
use std::path::{Path, PathBuf};

/// A word, and where in `src/` it may stand.
struct Rule {
    word: &'static str,
    /// Beginnings of paths below `src/`.
    only_in: &'static [&'static str],
}

const RULES: &[Rule] = &[
    Rule { word: "redis::", only_in: &["node/"] },
    Rule { word: "clap::", only_in: &["cli.rs"] },
    // main.rs: the attribute that exports `main` to the C runtime.
    Rule { word: "unsafe", only_in: &["child/", "main.rs"] },
    // Processes and signals.
    Rule { word: "signal_hook::", only_in: &["child/"] },
    // Also messages.rs, whose thread blocks all signals.
    Rule { word: "nix::sys::signal", only_in: &["child/", "messages.rs"] },
    Rule { word: "nix::sys::wait", only_in: &["child/"] },
    Rule { word: "nix::sys::prctl", only_in: &["child/"] },
    Rule { word: "nix::unistd::fork", only_in: &["child/"] },
    Rule { word: "libc::kill", only_in: &["child/"] },
    Rule { word: "Command::new", only_in: &["child/"] },
];

/// Layer 0: numbers, words, time.
const WORDS: &[&str] = &["exit_status.rs", "messages.rs", "escape.rs", "duration.rs", "clock.rs"];

/// What is low, and what it must know nothing of. Files that are not named are above all these.
const ORDER: &[(&[&str], &[&str])] = &[
    (WORDS, &["crate::lease", "crate::node", "crate::lock", "crate::child", "crate::config", "anyhow::"]),
    (&["lease/"], &["crate::node", "crate::lock", "crate::child", "crate::config", "anyhow::"]),
    (&["node/"], &["crate::lock", "crate::child", "crate::config", "anyhow::"]),
    (&["lock/"], &["crate::child", "crate::config", "anyhow::"]),
    (&["child/"], &["crate::node", "crate::lock", "crate::config", "anyhow::"]),
    (&["cli.rs"], &["crate::node", "crate::lock", "crate::child", "crate::config"]),
];

/// What the vocabulary of the lock must do without: it is pure and never reads a clock.
const IMPURE: &[&str] =
    &["nix::", "libc::", "Instant::now", "SystemTime::now", "BootTime::now", "std::env", "std::fs"];

/// Everything below `src/` with its path there.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of src/").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push((below(&root, &path), read(&path)));
            }
        }
    }
    found
}

fn below(root: &Path, path: &Path) -> String {
    let relative: PathBuf = path.strip_prefix(root).expect("below src/").into();
    relative.display().to_string()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a source file")
}

/// The part of a line that is code. A `//` inside a string cuts too much, which hides nothing
/// here: no rule's word follows a URL.
fn code(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}

/// Whether `word` stands in `code` as a word of its own.
fn says(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let ends_open = word.ends_with(':') || !after.is_some_and(is_part);
        !before.is_some_and(is_part) && ends_open
    })
}

fn violations(path: &str, text: &str) -> Vec<String> {
    let mut found = impurities(path, text);
    found.extend(upward(path, text));
    for rule in RULES {
        if rule.only_in.iter().any(|place| path.starts_with(place)) {
            continue;
        }
        let lines = text.lines().enumerate();
        let wrong = lines.filter(|(_, line)| says(code(line), rule.word));
        found.extend(wrong.map(|(number, _)| {
            format!("src/{path}:{}: {} belongs into {:?}", number + 1, rule.word, rule.only_in)
        }));
    }
    found
}

/// Words of higher layers in a file of a lower one.
fn upward(path: &str, text: &str) -> Vec<String> {
    let below = |places: &[&str]| places.iter().any(|place| path.starts_with(place));
    let words = ORDER.iter().filter(|(places, _)| below(places)).flat_map(|(_, words)| *words);
    let found = words.filter(|word| text.lines().any(|line| says(code(line), word)));
    found.map(|word| format!("src/{path}: {word} is above it")).collect()
}

fn impurities(path: &str, text: &str) -> Vec<String> {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    let words = IMPURE.iter().filter(|_| path.starts_with("lease/"));
    let found = words.filter(|word| product.lines().any(|line| says(code(line), word)));
    found.map(|word| format!("src/{path}: {word} in the pure vocabulary")).collect()
}

#[test]
fn every_layer_uses_only_what_lies_below_it() {
    let sources = sources();
    assert!(!sources.is_empty());
    let wrong: Vec<String> = sources.iter().flat_map(|(path, text)| violations(path, text)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn main_is_a_few_lines_and_everything_is_in_the_library() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/main.rs");
    assert!(read(&root).lines().count() < 10);
}

#[test]
fn no_source_is_left_unfinished() {
    for (path, text) in sources() {
        for word in ["todo!", "unimplemented!", "dbg!"] {
            let left = text.lines().any(|line| code(line).contains(word));
            assert!(!left, "src/{path}: {word}");
        }
    }
}

#[test]
fn the_rules_find_what_they_forbid() {
    let wrong = [
        ("lease/key.rs", "use redis::Client;"),
        ("run.rs", "    nix::unistd::fork();"),
        ("lease/ttl.rs", "    let now = Instant::now();"),
        ("lock/mod.rs", "use clap::Parser;"),
        ("node/reply.rs", "    unsafe { x() }"),
        ("child/spawn.rs", "use crate::lock::Lease;"),
    ];
    for (path, line) in wrong {
        assert_eq!(violations(path, line).len(), 1, "{path}: {line}");
    }
    assert!(violations("lease/key.rs", "// as redis:: does").is_empty());
    assert!(violations("cli.rs", "let unsafely = my_redis::x;").is_empty());
}
