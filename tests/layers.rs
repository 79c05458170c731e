//! The order of the layers, read from the source: what is low knows nothing of what is high.

use std::fs;
use std::path::{Path, PathBuf};

/// A word, and where in `src/` it may stand.
struct Rule {
    word: &'static str,
    /// Beginnings of paths below `src/`.
    only_in: &'static [&'static str],
}

/// nix is also what layer 0 reads clocks and writes with, and what a connection's sockets need.
const SYSTEM: &[&str] =
    &["child/", "exit_status.rs", "messages.rs", "escape.rs", "duration.rs", "clock.rs", "node/connection"];

const RULES: &[Rule] = &[
    Rule { word: "redis::", only_in: &["node/"] },
    Rule { word: "nix::", only_in: SYSTEM },
    Rule { word: "libc::", only_in: SYSTEM },
    Rule { word: "signal_hook::", only_in: &["child/"] },
    Rule { word: "clap::", only_in: &["cli.rs"] },
    Rule { word: "unsafe", only_in: &["child/"] },
    Rule { word: "crate::lock", only_in: &["lock/", "config.rs", "run.rs", "verbs/"] },
    Rule { word: "crate::child", only_in: &["child/", "config.rs", "run.rs", "verbs/"] },
    Rule { word: "crate::node", only_in: &["node/", "lock/", "config.rs", "run.rs", "verbs/"] },
    Rule { word: "crate::cli", only_in: &["cli.rs", "config.rs", "run.rs", "verbs/", "lib.rs"] },
    Rule { word: "anyhow::", only_in: &["cli.rs", "config.rs", "run.rs", "verbs/", "lib.rs"] },
];

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
    let mut found = Vec::new();
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
