//! Reading `/proc` from end to end again and again: who belongs to the job of which trial.
//!
//! A process belongs to a job when its argument list holds the trial's mark and not the program under
//! test: the wrapper, the guard, and the child that has not yet executed the job have the whole
//! command line. One thread does this for all trials.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::moment::Moment;
use crate::tree::{Look, Tree};

/// SIGKILL among the pending signals: the process is dead as soon as the machine gets round to it, and
/// runs no code of its own before.
const KILL_PENDING: u64 = 1 << 8;

/// What the guard calls itself.
const GUARD: &str = "redlock-guard";

/// In the flags of `/proc/PID/stat`: the process is being torn down and runs no code any more.
const PF_EXITING: u64 = 0x4;

/// Between two readings of everything. One takes about 5 ms of one processor here.
const PAUSE: Duration = Duration::from_millis(25);

/// How long after a process was first seen it may still execute another program. What a trial needs
/// starts by fork and exec; everything else on the machine is not looked at again and again.
const SETTLES: Duration = Duration::from_secs(1);

/// The reader of `/proc`, and the trees that it fills.
pub(crate) struct Census {
    program: String,
    trees: Mutex<Vec<(String, Arc<Tree>)>>,
    /// When the last complete reading began.
    last: Mutex<Option<Moment>>,
    done: Condvar,
}

/// The fields of `/proc/PID/stat` that matter here.
pub(crate) struct Stat {
    pub(crate) name: String,
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) started: u64,
    pub(crate) dead: bool,
    /// Dead, or killed and not yet dead.
    pub(crate) doomed: bool,
}

/// What was made of a process.
enum Class {
    /// None of ours; holds when it was first seen.
    Foreign(Moment),
    /// The wrapper, its guard, or a child of theirs before its exec.
    Ours,
    Job(Arc<Tree>),
}

type Classes = HashMap<(i32, u64), Class>;

impl Census {
    /// Starts reading; `program` is the file under test.
    pub(crate) fn start(program: &str) -> Arc<Self> {
        let census = Arc::new(Self {
            program: program.to_owned(),
            trees: Mutex::default(),
            last: Mutex::default(),
            done: Condvar::new(),
        });
        let reader = Arc::clone(&census);
        thread::spawn(move || {
            let mut classes = Classes::new();
            loop {
                reader.read_all(&mut classes);
                // `/proc` tells nobody of a new process: it is read again and again.
                thread::sleep(PAUSE);
            }
        });
        census
    }

    /// From now on processes with `mark` in their argument list are noted in the tree.
    pub(crate) fn enter(&self, mark: &str) -> Arc<Tree> {
        let tree = Arc::new(Tree::default());
        self.trees.lock().expect("no panic with it").push((mark.to_owned(), Arc::clone(&tree)));
        tree
    }

    /// The trial with this mark is over.
    pub(crate) fn leave(&self, mark: &str) {
        self.trees.lock().expect("no panic with it").retain(|(entered, _)| entered != mark);
    }

    /// Waits until everything was read once more, beginning after `moment`.
    pub(crate) fn wait_for_reading_after(&self, moment: Moment) {
        let last = self.last.lock().expect("no panic with it");
        drop(self.done.wait_while(last, |last| last.is_none_or(|began| began <= moment)));
    }

    fn read_all(&self, classes: &mut Classes) {
        let all_began = Moment::now();
        let trees = self.trees.lock().expect("no panic with it").clone();
        let mut seen = Classes::new();
        for pid in pids() {
            let began = Moment::now();
            let Some(stat) = Stat::read(pid) else { continue };
            let key = (pid, stat.started);
            let class = match classes.remove(&key) {
                Some(Class::Job(tree)) => Class::Job(tree),
                Some(Class::Foreign(since)) if Moment::now() > since + SETTLES => Class::Foreign(since),
                Some(Class::Foreign(since)) => self.classify(pid, &stat, &trees, since),
                Some(Class::Ours) | None => self.classify(pid, &stat, &trees, began),
            };
            if let Class::Job(tree) = &class {
                tree.note(pid, stat.started, stat.looked(began));
            }
            seen.insert(key, class);
        }
        *classes = seen;
        *self.last.lock().expect("no panic with it") = Some(all_began);
        self.done.notify_all();
    }

    fn classify(&self, pid: i32, stat: &Stat, trees: &[(String, Arc<Tree>)], since: Moment) -> Class {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let Some((_, tree)) = trees.iter().find(|(mark, _)| words.contains(&mark.as_bytes())) else {
            return Class::Foreign(since);
        };
        if !words.contains(&self.program.as_bytes()) {
            return Class::Job(Arc::clone(tree));
        }
        // Its child has its name until it executes the job.
        let is_guard = |stat: &Stat| stat.name == GUARD;
        if is_guard(stat)
            && tree.guard().is_none()
            && !Stat::read(stat.parent).is_some_and(|up| is_guard(&up))
        {
            tree.note_guard(pid, stat.started);
        }
        Class::Ours
    }
}

impl Stat {
    /// Reads it, unless the process is gone.
    pub(crate) fn read(pid: i32) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let text = String::from_utf8_lossy(&text);
        let (head, fields) = text.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        // Field 3 of the manual is the first one here.
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let flags: u64 = fields.nth(4)?.parse().ok()?;
        let started = fields.nth(12)?.parse().ok()?;
        let pending: u64 = fields.nth(8)?.parse().ok()?;
        let dead = matches!(state, 'Z' | 'X') || flags & PF_EXITING != 0;
        let doomed = dead || pending & KILL_PENDING != 0;
        Some(Self { name, state, parent, started, dead, doomed })
    }

    /// Looks at one process; gone is dead.
    pub(crate) fn look(pid: i32, started: u64) -> Look {
        let began = Moment::now();
        match Self::read(pid).filter(|stat| stat.started == started) {
            Some(stat) => stat.looked(began),
            None => Look { began, ended: Moment::now(), dead: true, doomed: true },
        }
    }

    /// A look that ends now.
    fn looked(&self, began: Moment) -> Look {
        Look { began, ended: Moment::now(), dead: self.dead, doomed: self.doomed }
    }
}

/// The numbers of all processes.
pub(crate) fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("/proc");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}
