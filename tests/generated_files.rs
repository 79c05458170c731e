//! The checked-in completions and man page are what the program prints now.

use std::fs;
use std::path::Path;

use crate::support::Run;

/// Asserts that `redlock-run ARGS` prints the checked-in file.
#[track_caller]
fn is_fresh(args: &[&str], file: &str) {
    let outcome = Run::without_url(args).finish();
    let printed = outcome.stdout_text();
    outcome.stdout(&printed).expect_status(0);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let checked_in = fs::read_to_string(path).unwrap_or_default();
    assert!(!printed.is_empty() && printed == checked_in, "{file} is stale: run `make generate`");
}

#[test]
fn the_bash_completion_is_fresh() {
    is_fresh(&["completions", "bash"], "completions/redlock-run.bash");
}

#[test]
fn the_zsh_completion_is_fresh() {
    is_fresh(&["completions", "zsh"], "completions/_redlock-run");
}

#[test]
fn the_fish_completion_is_fresh() {
    is_fresh(&["completions", "fish"], "completions/redlock-run.fish");
}

#[test]
fn the_man_page_is_fresh() {
    is_fresh(&["man"], "man/redlock-run.1");
}

#[test]
fn an_unknown_shell_is_64() {
    Run::without_url(["completions", "tcsh"]).finish().stderr_contains("tcsh").expect_status(64);
}

#[test]
fn the_bash_completion_loads_and_completes() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("completions/redlock-run.bash");
    // The function's name is the generator's business; `complete -p` tells it.
    let script = "source \"$1\"; f=$(complete -p redlock-run | sed 's/.*-F \\([^ ]*\\).*/\\1/'); \
                  COMP_WORDS=(redlock-run --no); COMP_CWORD=1; \
                  $f redlock-run --no redlock-run; echo \"${COMPREPLY[@]}\"";
    let args = ["--norc", "-c", script, "bash", file.to_str().expect("a path")];
    Run::of("bash", args).finish().stdout_contains("--no-fencing").stdout_contains("--note").expect_status(0);
}
