//! Programs that a test borrows from the machine, and may not find there.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The program `name` in PATH; else says that `test` was skipped.
pub(crate) fn find(test: &str, name: &str) -> Option<PathBuf> {
    let found = all(name).into_iter().next();
    if found.is_none() {
        println!("{test}: skipped, since there is no {name} on this machine");
    }
    found
}

/// A Python; not one of the scripts that look for the real one, which take long and are seen as
/// shells at first. Else says that `test` was skipped.
pub(crate) fn python(test: &str) -> Option<String> {
    let runs = |program: &PathBuf| {
        if std::fs::read(program).is_ok_and(|bytes| bytes.starts_with(b"#!")) {
            return false;
        }
        let mut probe = Command::new(program);
        probe.args(["-c", "import getpass, signal"]).env_clear().stdin(Stdio::null());
        let status = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let found = all("python3").into_iter().find(runs);
    if found.is_none() {
        println!("{test}: skipped, since there is no python3 on this machine");
    }
    found?.into_os_string().into_string().ok()
}

fn all(name: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).filter(|file| file.is_file()).collect()
}
