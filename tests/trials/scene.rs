//! Everything that one trial needs: a Redis of its own, bystanders, a run, and eyes on all of it.
//! Dropped, passing, failing or interrupted, nothing of it is left.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::census::{Census, Stat};
use crate::fault::Who;
use crate::grants::{self, Change};
use crate::innocents::Innocents;
use crate::moment::Moment;
use crate::plan::Plan;
use crate::roles;
use crate::support::jobs::KEY;
use crate::support::{Proxy, Server};
use crate::tree::Tree;
use crate::watch::{Stalls, Watch};

/// Starts a child and then becomes the wrapper, so that the wrapper has a child that it knows nothing of.
const WITH_A_CHILD: &str = r#"self=$1 role=$2 owner=$3 notes=$4; shift 4
"$self" "$role" "$owner" "$notes" & exec "$@""#;

/// A fault of the product, played by the trials themselves: they must find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    Nothing,
    /// Runs get `--no-guard`.
    NoGuard,
    /// A bystander gets a signal.
    StraySignal,
    /// The new holder's lease is changed.
    TouchedKey,
}

/// What all trials share.
pub(crate) struct House {
    /// The file under test.
    pub(crate) program: String,
    /// What is wrong on purpose.
    pub(crate) plant: Plant,
    /// What the machine was late with is uncertain, not a violation.
    pub(crate) excuses: bool,
    /// This process, for those that must not outlive it.
    pub(crate) owner: String,
    pub(crate) census: Arc<Census>,
    pub(crate) stalls: Arc<Stalls>,
}

/// Why a trial has no verdict.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// By request.
    Interrupted,
    /// Something that the trial stands on did not work.
    Broken(String),
}

/// Fails as soon as somebody wants all of this to end.
pub(crate) fn go_on() -> Result<(), Trouble> {
    if crate::STOP.load(Ordering::Relaxed) { Err(Trouble::Interrupted) } else { Ok(()) }
}

/// The scene of one trial. Fields are dropped in this order.
pub(crate) struct Scene<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) house: &'a House,
    pub(crate) tree: Arc<Tree>,
    pub(crate) watch: Watch,
    pub(crate) innocents: Innocents,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) server: Server,
    mark: String,
    wrapper: Child,
    started: u64,
    /// What happened when, for whoever reads of a violation.
    pub(crate) story: Vec<(Moment, String)>,
}

impl<'a> Scene<'a> {
    /// Sets everything up and starts the wrapper.
    pub(crate) fn set(plan: &'a Plan, house: &'a House) -> Self {
        let server = Server::start_with(&grants::SERVER_ARGS);
        let proxy = plan.proxy.map(|mode| {
            let proxy = Proxy::on_socket(&server);
            proxy.set(mode);
            proxy
        });
        let mut innocents = Innocents::start(server.dir(), &house.owner);
        let mark = format!("trial-{}-{}", house.owner, plan.number);
        let tree = house.census.enter(&mark);
        let watch = Watch::start(&tree);
        let url = proxy.as_ref().map_or_else(|| server.url(), |proxy| proxy.url().to_owned());
        let notes = plan.had_child.then(|| innocents.notes_of_child().to_string_lossy().into_owned());
        let mut command = wrapper_command(plan, house, notes.as_deref(), &mark);
        let stderr = File::create(server.dir().join("stderr")).expect("a file for stderr");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("REDLOCK_RUN_URL", url).process_group(innocents.caller_group());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let launched = Moment::now();
        let wrapper = command.spawn().expect("the program under test to start");
        let started = Stat::read(wrapper.id().cast_signed()).map_or(0, |stat| stat.started);
        if plan.had_child {
            innocents.wait_for_child();
        }
        let story = vec![(launched, format!("wrapper {} starts", wrapper.id()))];
        Self { plan, house, tree, watch, innocents, proxy, server, mark, wrapper, started, story }
    }

    /// When the wrapper was started.
    pub(crate) fn launched(&self) -> Moment {
        self.story[0].0
    }

    /// Notes what happened now.
    pub(crate) fn tell(&mut self, what: impl Into<String>) {
        self.story.push((Moment::now(), what.into()));
    }

    /// Waits until `condition` holds.
    pub(crate) fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        mut condition: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Trouble> {
        let end = Moment::now() + limit;
        while !condition(self) {
            go_on()?;
            if end.left().is_zero() {
                return Err(Trouble::Broken(format!("waited {limit:?} in vain: {what}")));
            }
            // Any condition at all: there is no event that would tell of each.
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Sends a signal to the wrapper, the guard, or one right after the other.
    pub(crate) fn signal(&self, who: Who, signal: Signal) {
        let wrapper = Some((self.wrapper.id().cast_signed(), self.started));
        let guard = self.tree.guard();
        let targets = match who {
            Who::Wrapper => [wrapper, None],
            Who::Guard => [guard, None],
            Who::WrapperThenGuard => [wrapper, guard],
            Who::GuardThenWrapper => [guard, wrapper],
        };
        for (pid, started) in targets.into_iter().flatten() {
            send(pid, started, signal);
        }
    }

    /// Wrapper and guard are both stopped: nobody is left who could act.
    pub(crate) fn both_are_stopped(&self) -> bool {
        let stopped = |(pid, started): (i32, u64)| {
            Stat::read(pid).is_some_and(|stat| stat.started == started && stat.state == 'T')
        };
        stopped((self.wrapper.id().cast_signed(), self.started)) && self.tree.guard().is_some_and(stopped)
    }

    /// The wrapper's status, once it has ended.
    pub(crate) fn wrapper_status(&mut self) -> Option<ExitStatus> {
        self.wrapper.try_wait().expect("our child")
    }

    /// The guard was there and is gone, or never was.
    pub(crate) fn guard_is_gone(&self) -> bool {
        self.tree.guard().is_none_or(|(pid, started)| Stat::look(pid, started).dead)
    }

    /// What Redis has made of the key so far.
    pub(crate) fn changes(&self) -> Vec<Change> {
        grants::changes(self.server.dir(), KEY)
    }

    /// What the wrapper said.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.server.dir().join("stderr")).unwrap_or_default()
    }
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        // Frozen ones die too; the wrapper first, so that it starts nothing more.
        self.signal(Who::WrapperThenGuard, Signal::SIGKILL);
        let _ = self.wrapper.wait();
        for _ in 0..3 {
            self.house.census.wait_for_reading_after(Moment::now());
            for life in self.tree.living() {
                send(life.pid, life.started, Signal::SIGKILL);
            }
        }
        self.house.census.leave(&self.mark);
    }
}

/// `redlock-run … -- JOB`, in a shell that has a child first when there are `notes` for it to take.
fn wrapper_command(plan: &Plan, house: &House, notes: Option<&str>, mark: &str) -> Command {
    let program = roles::own_program();
    let mut words = vec![house.program.clone()];
    words.extend(["--key", KEY, "--ttl"].map(str::to_owned));
    words.push(format!("{}ms", plan.ttl.as_millis()));
    if let Some(length) = plan.kill_after {
        words.extend(["--kill-after".to_owned(), format!("{}ms", length.as_millis())]);
    }
    if house.plant == Plant::NoGuard {
        words.push("--no-guard".to_owned());
    }
    words.push("--".to_owned());
    if plan.job.bare {
        words.extend(["env", "-i"].map(str::to_owned));
    }
    let habits = if plan.job.stubborn { "stubborn" } else { "obedient" };
    words.extend([&program, roles::JOB, mark, &house.owner, plan.job.shape, habits].map(str::to_owned));
    if let Some(notes) = notes {
        let mut command = Command::new("sh");
        command.args(["-c", WITH_A_CHILD, "sh", &program, roles::BYSTANDER, &house.owner, notes]);
        command.args(words);
        return command;
    }
    let mut command = Command::new(&house.program);
    command.args(&words[1..]);
    command
}

/// Signals one process, unless it is gone.
fn send(pid: i32, started: u64, signal: Signal) {
    if pid > 1 && Stat::read(pid).is_some_and(|stat| stat.started == started) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}
