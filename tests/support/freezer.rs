//! A frozen control group: its processes are in state D, and not even SIGKILL ends them until they
//! are thawed. (A v1 freezer; in v2 a frozen process can be killed.)

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::proc::Process;
use super::wait::{SOON, wait_until};

const ROOT: &str = "/sys/fs/cgroup/freezer";

/// A control group of the test's own. Declare it after the run, so that it is dropped, and its
/// processes thawed, before they are to be killed.
pub(crate) struct Freezer {
    dir: PathBuf,
}

impl Freezer {
    /// An empty one; else says that `test` was skipped.
    pub(crate) fn new(test: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = Path::new(ROOT).join(format!("redlock-test-{}-{number}", std::process::id()));
        if let Err(error) = fs::create_dir(&dir) {
            println!("{test}: skipped, since no control group can be made in {ROOT}: {error}");
            return None;
        }
        Some(Self { dir })
    }

    /// Takes the process in, with all that it will start.
    #[track_caller]
    pub(crate) fn take(&self, process: &Process) {
        fs::write(self.dir.join("cgroup.procs"), process.pid.to_string()).expect("a control group");
    }

    /// Freezes what it has.
    #[track_caller]
    pub(crate) fn freeze(&self) {
        self.set("FROZEN").expect("a freezer");
        wait_until("it is frozen", SOON, || {
            fs::read_to_string(self.dir.join("freezer.state")).is_ok_and(|state| state.trim() == "FROZEN")
        });
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        let _ = self.set("THAWED");
    }

    fn set(&self, state: &str) -> io::Result<()> {
        fs::write(self.dir.join("freezer.state"), state)
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        // What is still in it, thawed and perhaps just dying, would keep the group.
        let gone = || {
            let inside = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
            for pid in inside.lines() {
                let _ = fs::write(Path::new(ROOT).join("cgroup.procs"), pid);
            }
            fs::remove_dir(&self.dir).is_ok()
        };
        if std::thread::panicking() {
            (0..100).any(|_| gone());
        } else {
            wait_until("the control group is gone", SOON, gone);
        }
    }
}
