//! The page of memory that wrapper and guard share.
//!
//! Each field has one direction in which it moves, so that readers need no order between fields:
//! `kill_at` and `term_at` only forward (the keeper), `stop_by` only backward (whoever must end the
//! job), the flags only up. A process that was stopped for an hour and wakes reads the truth of now.

use super::status::JobStatus;
use super::sys::SharedPage;
use crate::clock::BootTime;
use crate::lease::Lease;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The fields. Lives in shared memory: nothing but atomics, all zeroes at first.
#[derive(Default)]
#[repr(C)]
pub(super) struct Fields {
    kill_at: AtomicU64,
    term_at: AtomicU64,
    /// Stored inverted, so that the zero of a fresh page means "never".
    stop_by: AtomicU64,
    standing: AtomicU32,
    demand: AtomicU32,
    settled: AtomicU32,
    term_sent: AtomicU32,
    rounds: AtomicU32,
    lease_killed_at: AtomicU64,
    leftovers_killed_at: AtomicU64,
    job: AtomicI32,
    exec_error: AtomicI32,
    fork_error: AtomicI32,
    stopped_by: AtomicI32,
    stops: AtomicU32,
    ended: AtomicU32,
    status_code: AtomicI32,
    status_value: AtomicI32,
}

/// How far the start of the job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Standing {
    /// No lock yet.
    Idle = 0,
    /// There is a lease, the job may start.
    Armed = 1,
    /// The job is about to be, or has been, executed.
    Running = 2,
    /// The lease ended first: the job must not start any more.
    Expired = 3,
}

/// What must come to an end before the lock may be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(super) enum Demand {
    /// The leader: what it leaves behind may live on.
    Leader = 0,
    /// The leader and its process group: somebody asked the job to stop.
    Group = 1,
    /// Every process of the job: the lease is over.
    Tree = 2,
}

impl Demand {
    fn from(number: u32) -> Self {
        [Self::Leader, Self::Group, Self::Tree][number.min(2) as usize]
    }
}

/// Sets a moment that has not been set yet.
fn set_first(field: &AtomicU64, at: BootTime) {
    let _ = field.compare_exchange(0, at.nanos(), Ordering::SeqCst, Ordering::SeqCst);
}

/// A moment, once it has been set.
fn moment(field: &AtomicU64) -> Option<BootTime> {
    let at = field.load(Ordering::SeqCst);
    (at != 0).then(|| BootTime::from_nanos(at))
}

/// A handle to the page; copies share it.
#[derive(Clone, Copy)]
pub struct Page(SharedPage);

impl Page {
    /// A fresh page, shared with every process forked from now on, with room for `room` bytes of additions
    /// to the environment.
    pub(super) fn new(room: usize) -> nix::Result<Self> {
        SharedPage::new(room).map(Self)
    }

    /// Leaves the additions to the job's environment (`NAME=value`) here. Before the job may start.
    pub(super) fn write_additions(self, additions: &[CString]) {
        self.0.write_text(
            &additions.iter().flat_map(|entry| entry.to_bytes_with_nul()).copied().collect::<Vec<_>>(),
        );
    }

    /// The additions.
    pub(super) fn additions(self) -> impl Iterator<Item = &'static CStr> + Clone {
        let entries = self.0.text().split_inclusive(|byte| *byte == 0);
        // Behind the last there are only zeroes.
        entries.take_while(|entry| entry.len() > 1).filter_map(|entry| CStr::from_bytes_with_nul(entry).ok())
    }

    fn fields(self) -> &'static Fields {
        self.0.get()
    }

    /// The lease was granted or extended.
    pub fn extend(self, lease: Lease) {
        self.fields().kill_at.fetch_max(lease.kill_at.nanos(), Ordering::SeqCst);
        self.fields().term_at.fetch_max(lease.term_at.nanos(), Ordering::SeqCst);
    }

    /// Everything of the job must be dead by `moment`; no extension counts any more.
    pub(super) fn stop_by(self, moment: BootTime) {
        self.fields().stop_by.fetch_max(!moment.nanos(), Ordering::SeqCst);
        self.demand(Demand::Tree);
    }

    /// The lock is lost: everything of the job must be dead after `grace`, and never later than the lease
    /// would have allowed.
    pub fn lose(self, grace: Duration) {
        self.stop_by(BootTime::now() + grace);
    }

    /// The moment at which everything of the job must be killed.
    pub(super) fn deadline(self) -> BootTime {
        let stop_by = BootTime::from_nanos(!self.fields().stop_by.load(Ordering::SeqCst));
        BootTime::from_nanos(self.fields().kill_at.load(Ordering::SeqCst)).min(stop_by)
    }

    /// The moment at which the job gets its TERM because the lease runs out.
    pub(super) fn term_at(self) -> BootTime {
        BootTime::from_nanos(self.fields().term_at.load(Ordering::SeqCst))
    }

    /// Moves on from one standing to the next; false when it was not `from`.
    pub(super) fn advance(self, from: Standing, to: Standing) -> bool {
        let (from, to) = (from as u32, to as u32);
        self.fields().standing.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// How far the start of the job has come.
    #[must_use]
    pub fn standing(self) -> Standing {
        match self.fields().standing.load(Ordering::SeqCst) {
            0 => Standing::Idle,
            1 => Standing::Armed,
            2 => Standing::Running,
            _ => Standing::Expired,
        }
    }

    /// Asks for more to come to an end; never for less.
    pub(super) fn demand(self, demand: Demand) {
        self.fields().demand.fetch_max(demand as u32, Ordering::SeqCst);
    }

    /// What must come to an end.
    pub(super) fn demanded(self) -> Demand {
        Demand::from(self.fields().demand.load(Ordering::SeqCst))
    }

    /// What `demand` asks for has come to an end.
    pub(super) fn settle(self, demand: Demand) {
        self.fields().settled.fetch_max(demand as u32 + 1, Ordering::SeqCst);
    }

    /// Whether what is demanded has come to an end.
    pub(super) fn is_settled(self) -> bool {
        self.settled() > self.fields().demand.load(Ordering::SeqCst)
    }

    /// How much has come to an end: only to be compared.
    pub(super) fn settled(self) -> u32 {
        self.fields().settled.load(Ordering::SeqCst)
    }

    /// Claims the one TERM that the end of the lease sends; true for the first caller.
    pub(super) fn claim_term(self) -> bool {
        self.fields().term_sent.swap(1, Ordering::SeqCst) == 0
    }

    /// Whether the end of the lease has sent its TERM.
    pub(super) fn term_sent(self) -> bool {
        self.fields().term_sent.load(Ordering::SeqCst) == 1
    }

    /// Notes that the end of the lease killed.
    pub(super) fn note_lease_kill(self, at: BootTime) {
        set_first(&self.fields().lease_killed_at, at);
    }

    /// When it did first.
    pub(super) fn lease_killed_at(self) -> Option<BootTime> {
        moment(&self.fields().lease_killed_at)
    }

    /// Whether the end of the lease sent a TERM or a KILL.
    #[must_use]
    pub fn lease_ended_it(self) -> bool {
        self.term_sent() || self.lease_killed_at().is_some()
    }

    /// What a stopped leader left of its group got its KILL.
    pub(super) fn note_leftovers_killed(self, at: BootTime) {
        set_first(&self.fields().leftovers_killed_at, at);
    }

    /// When it first got it.
    pub(super) fn leftovers_killed_at(self) -> Option<BootTime> {
        moment(&self.fields().leftovers_killed_at)
    }

    /// One more round of killing is done: whoever does it is at work.
    pub(super) fn count_round(self) {
        self.fields().rounds.fetch_add(1, Ordering::SeqCst);
    }

    /// How many rounds of killing there were.
    pub(super) fn rounds(self) -> u32 {
        self.fields().rounds.load(Ordering::SeqCst)
    }

    pub(super) fn set_job(self, pid: i32) {
        self.fields().job.store(pid, Ordering::SeqCst);
    }

    /// The job's process id; 0 while there is none.
    #[must_use]
    pub fn job(self) -> i32 {
        self.fields().job.load(Ordering::SeqCst)
    }

    pub(super) fn set_exec_error(self, errno: i32) {
        self.fields().exec_error.store(errno, Ordering::SeqCst);
    }

    /// Why execve(2) failed, if it did.
    pub(super) fn exec_error(self) -> Option<i32> {
        Some(self.fields().exec_error.load(Ordering::SeqCst)).filter(|errno| *errno != 0)
    }

    pub(super) fn set_fork_error(self, errno: i32) {
        self.fields().fork_error.store(errno, Ordering::SeqCst);
    }

    /// Why fork(2) failed, if it did.
    pub(super) fn fork_error(self) -> Option<i32> {
        Some(self.fields().fork_error.load(Ordering::SeqCst)).filter(|errno| *errno != 0)
    }

    /// The job's leader was stopped by `signal`, or goes on (0).
    pub(super) fn set_stopped_by(self, signal: i32) {
        // Before it is counted: who sees the count reads the signal next.
        self.fields().stopped_by.store(signal, Ordering::SeqCst);
        if signal != 0 {
            self.fields().stops.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The signal that the job's leader is stopped by.
    pub(super) fn stopped_by(self) -> Option<i32> {
        Some(self.fields().stopped_by.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
    }

    /// How often the job's leader was stopped: also tells of a stop that came right after the end of
    /// another.
    pub(super) fn stops(self) -> u32 {
        self.fields().stops.load(Ordering::SeqCst)
    }

    /// The job's leader has ended.
    pub(super) fn set_status(self, status: JobStatus) {
        let (code, value) = status.to_raw();
        self.fields().status_code.store(code, Ordering::SeqCst);
        self.fields().status_value.store(value, Ordering::SeqCst);
        self.fields().ended.store(1, Ordering::SeqCst);
    }

    /// How the job's leader has ended, if it has.
    #[must_use]
    pub fn status(self) -> Option<JobStatus> {
        (self.fields().ended.load(Ordering::SeqCst) == 1).then(|| {
            let value = self.fields().status_value.load(Ordering::SeqCst);
            JobStatus::from_raw(self.fields().status_code.load(Ordering::SeqCst), value)
        })
    }
}
