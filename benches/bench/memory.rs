//! What one holder needs in memory while its job runs.

use crate::server::Server;
use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Prints resident, proportional and private memory of the wrapper and of its guard.
pub(crate) fn show() {
    let mut holder = Command::new(env!("CARGO_BIN_EXE_redlock-run"))
        .args(["--url", Server::URL, "--key", "memory", "--", "sleep", "2"])
        .stdin(Stdio::null())
        .spawn()
        .expect("redlock-run can be run");
    let path = descent_to_sleep(holder.id());
    println!("\nMemory of one holder while `sleep` runs, KiB");
    println!("{:38}{:>8}{:>8}{:>10}", "", "RSS", "PSS", "private");
    for (name, pid) in ["wrapper", "guard"].into_iter().zip(&path) {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let private = kib(&rollup, "Private_Clean:") + kib(&rollup, "Private_Dirty:");
        println!("{name:38}{:>8}{:>8}{private:>10}", kib(&rollup, "Rss:"), kib(&rollup, "Pss:"));
    }
    assert!(holder.wait().is_ok_and(|status| status.success()), "the holder succeeds");
}

/// The pids from `wrapper` down to, and without, its descendant `sleep`.
fn descent_to_sleep(wrapper: u32) -> Vec<u32> {
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        let mut path = vec![wrapper];
        while let Some((child, name)) = path.last().and_then(|&parent| child_of(parent)) {
            if name == "sleep" {
                return path;
            }
            path.push(child);
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("no `sleep` below redlock-run, pid {wrapper}, within 5 s");
}

/// Pid and name of the first child of `parent`.
fn child_of(parent: u32) -> Option<(u32, String)> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // pid (name) state parent …, where the name may hold blanks and brackets.
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let its_parent: u32 = rest.split_whitespace().nth(1)?.parse().ok()?;
        (its_parent == parent).then(|| (pid, name.to_owned()))
    })
}

/// The value of one line of `smaps_rollup`.
fn kib(rollup: &str, field: &str) -> u64 {
    rollup
        .lines()
        .find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
