//! The start and the end of a process.

use super::memory::PAGE;
use crate::child::tree::Process;
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::sys::signal::Signal;
use nix::unistd::{ForkResult, Pid};
use std::ffi::CStr;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, Ordering};

/// fork(2), of which only the system call is made. The caller must be single-threaded, and the child must
/// neither start threads nor use what the C library keeps of its thread (its id, in raise(3) and in mutexes
/// that know their owner): the library's own function renews that, and each page it writes to is a page
/// to be copied, in both processes.
pub(in crate::child) fn fork_process() -> nix::Result<ForkResult> {
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

/// What a child needs that shares our memory: its words for execve(2), and whether its parent is ready.
pub(in crate::child) struct Image {
    argv: *const *const libc::c_char,
    environment: *const *const libc::c_char,
    ready: AtomicU32,
}

impl Image {
    /// In the child: waits until the parent has done what it does meanwhile.
    pub(in crate::child) fn wait_for_parent(&self) {
        wait_while(&self.ready, 0, || false);
    }
}

/// Sleeps while `word` is `value`: until another process that shares our memory, or the kernel, wakes us, or
/// `gives_up`, which is asked every [`PATIENCE`]. False when it did.
fn wait_while(word: &AtomicU32, value: u32, gives_up: impl Fn() -> bool) -> bool {
    while word.load(Ordering::SeqCst) == value {
        // SAFETY: the kernel compares the word, which is alive, and sleeps, and reads the time. It fails when
        // the word is another already, and when the time is over.
        let woken = unsafe {
            libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const PATIENCE) == 0
        };
        if !woken && word.load(Ordering::SeqCst) == value && gives_up() {
            return false;
        }
    }
    true
}

/// How long a process that shares our memory is waited for before anybody asks what it does.
static PATIENCE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Stack of a child that shares our memory, besides what its argument list needs: execvpe(3) keeps a
/// path and, for a script without `#!`, a copy of the list on it.
const CHILD_STACK: usize = 64 * 1024;

/// All that a child that shares our memory uses of ours.
struct Shared<F> {
    body: F,
    image: Image,
    /// Cleared, and its waiter woken, by the kernel when the child leaves our memory: by execve(2) or its end.
    present: AtomicU32,
}

/// A child that still shares our memory, because it was stopped before it could execute anything.
#[must_use]
pub(in crate::child) struct Sharing(Option<(i32, &'static AtomicU32)>);

impl Sharing {
    /// Sleeps until the child has left our memory, or is stopped (again): while both run they would set
    /// `errno` for each other.
    pub(in crate::child) fn wait(&mut self) {
        if let Some((pid, present)) = self.0
            && wait_while(present, 1, || Process::is_stopped(pid))
        {
            self.0 = None;
        }
    }
}

/// Starts a child that shares our memory until it executes something, as vfork(2) does: nothing is
/// copied, and this thread sleeps until then. `body` runs in the child on a stack of its own; it
/// must neither allocate nor take a lock, since other threads of ours go on.
///
/// Before it sleeps this thread does `meanwhile` with the child's pid, under the same conditions and without
/// looking at `errno`, of which there is one for both.
///
/// A child that is stopped before it executes anything may stay so for as long as it likes: it is not waited
/// for. What it uses is on its stack, which is left to it then, but for the strings. The caller has to see
/// to it that the two do not run at once: [`Sharing`].
///
/// `argv` (not empty) and `environment` are listed on that stack, not on the heap: in a process that was just
/// forked each page of the heap that is written to must be copied first.
pub(in crate::child) fn spawn_sharing<F: Fn(&Image) + Copy + 'static>(
    argv: impl Iterator<Item = &'static CStr> + Clone,
    environment: impl Iterator<Item = &'static CStr> + Clone,
    body: F,
    meanwhile: impl FnOnce(Pid),
) -> nix::Result<(i32, Sharing)> {
    extern "C" fn enter<F: Fn(&Image)>(shared: *mut libc::c_void) -> libc::c_int {
        // SAFETY: what is passed below, alive for as long as this process shares the memory.
        let shared = unsafe { &*shared.cast::<Shared<F>>() };
        (shared.body)(&shared.image);
        exit_now(127)
    }
    let arguments = argv.clone().count() + 1;
    let listed = (arguments + environment.clone().count() + 1) * size_of::<usize>();
    // Stacks and what is put on them are aligned to 16 bytes.
    let above = (listed + size_of::<Shared<F>>()).next_multiple_of(16);
    let needed = CHILD_STACK + 2 * size_of::<usize>() * arguments + above;
    let size = NonZeroUsize::new(needed.next_multiple_of(PAGE.get())).unwrap_or(PAGE);
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_STACK;
    // SAFETY: an anonymous mapping at an address that the kernel chooses.
    let stack = unsafe { mmap_anonymous(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags)? };
    let bottom = stack.cast::<u8>();
    // SAFETY: the lists end where the mapping ends, and each ends with a NULL that is there already: fresh
    // memory is zero.
    let lists = unsafe {
        let lists = bottom.add(size.get() - listed).cast::<*const libc::c_char>();
        argv.enumerate().for_each(|(at, entry)| lists.add(at).write(entry.as_ptr()));
        environment.enumerate().for_each(|(at, entry)| lists.add(arguments + at).write(entry.as_ptr()));
        lists
    };
    let image = Image {
        argv: lists.as_ptr(),
        // SAFETY: inside the mapping.
        environment: unsafe { lists.add(arguments) }.as_ptr(),
        ready: AtomicU32::new(0),
    };
    const { assert!(align_of::<Shared<F>>() <= 16) };
    // SAFETY: below the lists and above where the stack begins, inside the mapping, and aligned.
    let (place, shared) = unsafe {
        let place = bottom.add(size.get() - above).cast::<Shared<F>>().as_ptr();
        place.write(Shared { body, image, present: AtomicU32::new(1) });
        (place, &*place)
    };
    // SAFETY: the stack grows down from where `shared` begins, aligned as it must be. All that the child sees is
    // alive until `present` is cleared.
    let pid = unsafe {
        libc::clone(
            enter::<F>,
            place.cast(),
            libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD,
            place.cast(),
            std::ptr::null_mut::<libc::pid_t>(),
            std::ptr::null_mut::<libc::c_void>(),
            shared.present.as_ptr(),
        )
    };
    let errno = Errno::last();
    let mut sharing = Sharing(None);
    if pid > 0 {
        meanwhile(Pid::from_raw(pid));
        shared.image.ready.store(1, Ordering::SeqCst);
        // SAFETY: wakes whoever waits for the word.
        unsafe { libc::syscall(libc::SYS_futex, shared.image.ready.as_ptr(), libc::FUTEX_WAKE, 1) };
        sharing = Sharing(Some((pid, &shared.present)));
        sharing.wait();
    }
    if sharing.0.is_none() {
        // SAFETY: nobody uses the stack any more.
        let _ = unsafe { nix::sys::mman::munmap(stack, size.get()) };
    }
    if pid < 0 { Err(errno) } else { Ok((pid, sharing)) }
}

/// Ends the process at once: no destructors, no flushing of what is buffered, which a child would do for its
/// parent, and nothing of what the C library does last: with a guard, each page that it writes to would be
/// copied first.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// The caller's environment exactly as it stands in memory, malformed entries included.
pub(in crate::child) fn raw_environment() -> impl Iterator<Item = &'static CStr> + Clone {
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
pub(in crate::child) fn execute(image: &Image) -> Errno {
    // SAFETY: both lists are NULL-terminated and their strings are alive; argv is not empty.
    unsafe { libc::execvpe(*image.argv, image.argv, image.environment) };
    Errno::last()
}

/// Asks the kernel for a signal when the parent dies.
pub(in crate::child) fn die_with_parent(signal: Signal) {
    let _ = nix::sys::prctl::set_pdeathsig(signal);
}
