//! System calls that need `unsafe`, each wrapped so that its callers do not.

use super::page::Fields;
use super::status::JobStatus;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};
use std::ffi::CStr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

/// Page size that is asked for; the kernel rounds up.
const PAGE: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Descriptors of our own are below this, or below the guard's socket: a handful, at the lowest free numbers.
const HIGHEST_OWN: i32 = 256;

/// A mapping that stays for the life of the process and is shared with its children: the fields, and
/// behind them room for text that is written once.
#[derive(Clone, Copy)]
pub(super) struct SharedPage {
    fields: NonNull<Fields>,
    room: usize,
}

// SAFETY: all fields are atomics, the text is written by one process before it tells the others, and the
// mapping is never unmapped.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// With room for `room` bytes of text.
    pub(super) fn new(room: usize) -> nix::Result<Self> {
        let size = NonZeroUsize::new(size_of::<Fields>() + room).unwrap_or(PAGE);
        // SAFETY: an anonymous mapping at an address that the kernel chooses.
        let page = unsafe {
            let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
            mmap_anonymous(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags)?
        };
        Ok(Self { fields: page.cast(), room })
    }

    pub(super) fn get(&self) -> &Fields {
        // SAFETY: mapped, page-aligned, zeroed (a value of every atomic), never unmapped.
        unsafe { self.fields.as_ref() }
    }

    /// Writes the text. The caller orders this before whatever tells others to read it.
    ///
    /// # Panics
    /// When there is no room for it.
    pub(super) fn write_text(self, text: &[u8]) {
        assert!(text.len() <= self.room, "no room for the additions to the environment");
        // SAFETY: inside the mapping; nobody reads before being told, nobody else writes.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), self.fields.add(1).cast().as_ptr(), text.len());
        };
    }

    /// The text, and the zeroes behind it.
    pub(super) fn text(&self) -> &[u8] {
        // SAFETY: inside the mapping; not written any more once somebody reads.
        unsafe { std::slice::from_raw_parts(self.fields.add(1).cast().as_ptr(), self.room) }
    }
}

/// fork(2), of which only the system call is made. The caller must be single-threaded, and the child must
/// neither start threads nor use what the C library keeps of its thread (its id, in raise(3) and in mutexes
/// that know their owner): the library's own function renews that, and each page it writes to is a page
/// to be copied, in both processes.
pub(super) fn fork_process() -> nix::Result<ForkResult> {
    let (flags, none) = (libc::c_long::from(libc::SIGCHLD), 0 as libc::c_long);
    // SAFETY: a copy of our memory goes on with a stack of its own, by the conditions above. (Everywhere but
    // on s390x the flags come first.)
    let pid = unsafe {
        if cfg!(target_arch = "s390x") {
            libc::syscall(libc::SYS_clone, none, flags, none, none, none)
        } else {
            libc::syscall(libc::SYS_clone, flags, none, none, none, none)
        }
    };
    match i32::try_from(pid) {
        Ok(0) => Ok(ForkResult::Child),
        Ok(pid) if pid > 0 => Ok(ForkResult::Parent { child: Pid::from_raw(pid) }),
        _ => Err(Errno::last()),
    }
}

/// What execve(2) takes, as it lies in the memory of whoever is about to be replaced by it.
pub(super) struct Image {
    argv: *const *const libc::c_char,
    environment: *const *const libc::c_char,
}

/// Stack of a child that shares our memory, besides what its argument list needs: execvpe(3) keeps a
/// path and, for a script without `#!`, a copy of the list on it.
const CHILD_STACK: usize = 64 * 1024;

/// Starts a child that shares our memory until it executes something, as vfork(2) does: nothing is
/// copied, and this thread sleeps until then. `body` runs in the child on a stack of its own; it
/// must neither allocate nor take a lock, since other threads of ours go on.
///
/// `argv` (not empty) and `environment` are listed on that stack, not on the heap: in a process that was just
/// forked each page of the heap that is written to must be copied first.
pub(super) fn spawn_sharing<'a, F: Fn(&Image)>(
    argv: impl Iterator<Item = &'a CStr> + Clone,
    environment: impl Iterator<Item = &'a CStr> + Clone,
    body: &F,
) -> nix::Result<i32> {
    extern "C" fn enter<F: Fn(&Image)>(context: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `context` is the reference passed below, alive while the parent sleeps.
        let (body, image) = unsafe { &*context.cast::<(&F, Image)>() };
        body(image);
        exit_now(127)
    }
    let arguments = argv.clone().count() + 1;
    let listed = (arguments + environment.clone().count() + 1) * size_of::<usize>();
    let needed = CHILD_STACK + 2 * size_of::<usize>() * arguments + listed;
    let size = NonZeroUsize::new(needed.next_multiple_of(PAGE.get())).unwrap_or(PAGE);
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_STACK;
    // SAFETY: an anonymous mapping at an address that the kernel chooses.
    let stack = unsafe { mmap_anonymous(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags)? };
    // SAFETY: the lists end where the mapping ends, and each ends with a NULL that is there already: fresh
    // memory is zero. The stack grows down from where they begin, aligned as it must be. CLONE_VFORK keeps
    // us asleep, and so `context` and the stack alive, until the child has left our memory.
    let pid = unsafe {
        let bottom = stack.cast::<u8>();
        let lists = bottom.add(size.get() - listed).cast::<*const libc::c_char>();
        let image = Image { argv: lists.as_ptr(), environment: lists.add(arguments).as_ptr() };
        argv.enumerate().for_each(|(at, entry)| lists.add(at).write(entry.as_ptr()));
        environment.enumerate().for_each(|(at, entry)| lists.add(arguments + at).write(entry.as_ptr()));
        let top = bottom.add((size.get() - listed) & !15).as_ptr().cast();
        let mut context = (body, image);
        libc::clone(
            enter::<F>,
            top,
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut context).cast(),
        )
    };
    let errno = Errno::last();
    // SAFETY: nobody uses the stack any more.
    let _ = unsafe { nix::sys::mman::munmap(stack, size.get()) };
    if pid < 0 { Err(errno) } else { Ok(pid) }
}

/// Ends the process at once: no destructors, no flushing of what is buffered, which a child would do for its
/// parent, and nothing of what the C library does last: with a guard, each page that it writes to would be
/// copied first.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// The caller's environment exactly as it stands in memory, malformed entries included.
pub(super) fn raw_environment() -> impl Iterator<Item = &'static CStr> + Clone {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    // SAFETY: environ is a NULL-terminated array of C strings or NULL, and nothing in this program changes
    // the environment: the strings live as long as the process.
    unsafe {
        let mut at = environ;
        std::iter::from_fn(move || {
            if at.is_null() || (*at).is_null() {
                return None;
            }
            let entry = CStr::from_ptr(*at);
            at = at.add(1);
            Some(entry)
        })
    }
}

/// execvpe(3): PATH search as in the C library, `/bin/sh` for scripts without `#!`. Returns on failure.
pub(super) fn execute(image: &Image) -> Errno {
    // SAFETY: both lists are NULL-terminated and their strings are alive; argv is not empty.
    unsafe { libc::execvpe(*image.argv, image.argv, image.environment) };
    Errno::last()
}

/// What a child did.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Ended(JobStatus),
    Stopped(i32),
    Continued,
}

/// Which children waitid(2) looks at.
#[derive(Clone, Copy)]
pub(super) enum Which {
    Any,
    One(i32),
}

/// waitid(2) without hanging: the next change of a child. `options` as there; `WNOHANG` is added.
pub(super) fn wait_child(which: Which, options: i32) -> Option<(i32, Change)> {
    let (kind, id) = match which {
        Which::Any => (libc::P_ALL, 0),
        Which::One(pid) => (libc::P_PID, pid.unsigned_abs()),
    };
    // SAFETY: siginfo_t is plain data for which all zeroes is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` outlives the call.
    let done = unsafe { libc::waitid(kind, id, &raw mut info, options | libc::WNOHANG) };
    // SAFETY: waitid filled the SIGCHLD members, or left zeroes.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if done != 0 || pid == 0 {
        return None;
    }
    let change = match info.si_code {
        libc::CLD_STOPPED | libc::CLD_TRAPPED => Change::Stopped(status),
        libc::CLD_CONTINUED => Change::Continued,
        code => Change::Ended(JobStatus::from_raw(code, status)),
    };
    Some((pid, change))
}

/// Waits for a child to end and reaps it, however long that takes.
pub(super) fn reap(pid: Pid) {
    while waitpid(pid, None) == Err(Errno::EINTR) {}
}

/// Sends `signal` to a process (`target` > 1) or a group (`target` < -1). Everything that this
/// program signals goes through here or through a [`Pin`].
///
/// # Panics
/// On a target that means "everybody" or "my own group".
pub(super) fn send(target: i32, signal: i32) {
    assert!(!(-1..=1).contains(&target), "refusing to signal {target}");
    // SAFETY: kill has no memory preconditions. (Not through nix: it knows no real-time signals.)
    unsafe { libc::kill(target, signal) };
}

/// A process that a signal can be sent to without ever meeting another that got its pid.
pub(super) struct Pin(OwnedFd);

impl Pin {
    /// `None` when there is no such process, or where there are no pidfds.
    pub(super) fn new(pid: i32) -> Option<Self> {
        use std::os::fd::FromRawFd;
        // SAFETY: the descriptor is new and owned by nobody else.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            i32::try_from(fd).ok().filter(|fd| *fd >= 0).map(|fd| Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Whether it has not ended.
    pub(super) fn lives(&self) -> bool {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO) == Ok(0)
    }

    /// Sends `signal`, unless it has ended.
    pub(super) fn send(&self, signal: i32) {
        use std::os::fd::AsRawFd;
        let info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: no information is passed.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, info, 0) };
    }
}

/// Reaps a child that is a zombie.
pub(super) fn reap_child(pid: i32) {
    wait_child(Which::One(pid), libc::WEXITED);
}

/// Lets this process open as many descriptors as it may. For the guard, after the job has its own limits.
pub(super) fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Sets what `signal` does.
pub(super) fn set_disposition(signal: i32, handler: SigHandler) {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    let raw: libc::sigaction = action.into();
    // SAFETY: only ever SIG_DFL or SIG_IGN: no code of ours runs in a handler.
    unsafe { libc::sigaction(signal, &raw const raw, std::ptr::null_mut()) };
}

/// Stops this process as `signal` (a stop signal) would by default; returns when it goes on. In an
/// orphaned process group, where nobody could continue it, nothing happens.
pub(super) fn stop_as(signal: i32) {
    // SAFETY: raise has no preconditions. The signal is blocked in all threads, so it is delivered when
    // it is unblocked here, and nowhere else.
    unsafe { libc::raise(signal) };
    let mut one = RawMask::empty();
    one.add(signal);
    one.apply(libc::SIG_UNBLOCK);
    one.apply(libc::SIG_BLOCK);
}

/// Whether `signal` is ignored.
pub(super) fn is_ignored(signal: i32) -> bool {
    // SAFETY: plain data, filled by the kernel when the call succeeds.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Whether descriptor `fd` is closed.
pub(super) fn is_closed(fd: i32) -> bool {
    // SAFETY: only asks.
    unsafe { libc::fcntl(fd, libc::F_GETFD) == -1 }
}

/// A signal mask that may hold real-time signals.
#[derive(Clone, Copy)]
pub(super) struct RawMask(libc::sigset_t);

impl RawMask {
    /// Nothing.
    pub(super) fn empty() -> Self {
        // SAFETY: plain data, initialised by sigemptyset.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut mask);
            Self(mask)
        }
    }

    /// This thread's mask.
    pub(super) fn current() -> Self {
        let mut mask = Self::empty();
        // SAFETY: writes an initialised set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut mask.0) };
        mask
    }

    /// Everything but `open`.
    pub(super) fn all_but(open: &[i32]) -> Self {
        // SAFETY: plain data, initialised by sigfillset.
        unsafe {
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut mask);
            for signal in open {
                libc::sigdelset(&raw mut mask, *signal);
            }
            Self(mask)
        }
    }

    fn add(&mut self, signal: i32) {
        // SAFETY: an initialised set.
        unsafe { libc::sigaddset(&raw mut self.0, signal) };
    }

    /// Makes it this thread's mask.
    pub(super) fn install(&self) {
        self.apply(libc::SIG_SETMASK);
    }

    fn apply(&self, how: i32) {
        // SAFETY: reads an initialised set.
        unsafe { libc::pthread_sigmask(how, &raw const self.0, std::ptr::null_mut()) };
    }

    /// As nix has it.
    pub(super) fn set(&self) -> SigSet {
        // SAFETY: initialised by sigemptyset or sigfillset.
        unsafe { SigSet::from_sigset_t_unchecked(self.0) }
    }
}

/// close(2) of a descriptor that no object owns.
pub(super) fn close_raw(fd: i32) {
    // SAFETY: the caller closes what it was started without; no Rust object owns it.
    unsafe { libc::close(fd) };
}

/// In a fresh child: closes what the parent has opened itself, except `keep`. All of that is
/// close-on-exec; what the parent was given when it was executed cannot be, and is left for the job.
pub(super) fn close_inherited_but(keep: [i32; 3]) {
    // These are among the newest of them.
    let newest = keep.into_iter().max().unwrap_or(0);
    for fd in (3..HIGHEST_OWN.max(newest + 16)).filter(|fd| !keep.contains(fd)) {
        // SAFETY: the objects that own these descriptors are never used again in this process.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) == libc::FD_CLOEXEC {
                libc::close(fd);
            }
        }
    }
}

/// Closes every descriptor except `keep`. Only for the guard, which owns nothing else any more.
pub(super) fn close_all_but(mut keep: [i32; 3]) {
    keep.sort_unstable();
    let mut first = 0;
    for fd in keep.into_iter().chain([i32::MAX]) {
        if fd > first {
            let (from, to) = (first.unsigned_abs(), fd.unsigned_abs() - 1);
            // SAFETY: the objects that own these descriptors are never used again in this process.
            if unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) } == -1 {
                // Kernels before 5.9.
                (first..fd.min(65_536)).for_each(close_raw);
            }
        }
        first = fd.saturating_add(1);
    }
}

/// Asks the kernel for a signal when the parent dies.
pub(super) fn die_with_parent(signal: Signal) {
    let _ = nix::sys::prctl::set_pdeathsig(signal);
}

/// A timer on the boot-time clock.
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    pub(super) fn new() -> nix::Result<Self> {
        use std::os::fd::FromRawFd;
        // SAFETY: the descriptor is new and owned by nobody else.
        unsafe {
            let fd = libc::timerfd_create(libc::CLOCK_BOOTTIME, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK);
            if fd < 0 { Err(Errno::last()) } else { Ok(Self(OwnedFd::from_raw_fd(fd))) }
        }
    }

    /// Makes the descriptor readable at `moment` (at once when it has passed).
    pub(super) fn set(&self, moment: crate::clock::BootTime) {
        use std::os::fd::AsRawFd;
        // Zero would disarm it; a moment that never comes is disarmed.
        let nanos = if moment == crate::clock::BootTime::NEVER { 0 } else { moment.nanos().max(1) };
        let time = libc::timespec {
            tv_sec: (nanos / 1_000_000_000).try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: (nanos % 1_000_000_000).try_into().unwrap_or(0),
        };
        let spec = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: time };
        // SAFETY: `spec` outlives the call; setting it again also clears a past expiry.
        unsafe {
            libc::timerfd_settime(
                self.0.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const spec,
                std::ptr::null_mut(),
            )
        };
    }
}

impl std::os::fd::AsFd for Alarm {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Dies of `signal` as if there had been no wrapper. As the init process of a container, which the
/// kernel protects from its own signals, exits with 128+N instead. No core dump of ours: the job has
/// left one.
pub fn die_of(signal: i32) -> ! {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let _ = nix::sys::prctl::set_dumpable(false);
    set_disposition(signal, SigHandler::SigDfl);
    RawMask::all_but(&[signal]).install();
    // SAFETY: raise has no preconditions.
    unsafe { libc::raise(signal) };
    exit_now(128 + signal)
}
