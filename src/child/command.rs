//! Whether a command can be started at all, found out before the lock is taken.

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where execvp(3) looks when there is no PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Why a command cannot be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CannotRun {
    /// There is no such file.
    NotFound,
    /// There is one, but it cannot be executed; holds the system's reason.
    NotExecutable(&'static str),
}

impl CannotRun {
    /// From the failure of execve(2).
    #[must_use]
    pub fn from_errno(errno: i32) -> Self {
        match Errno::from_raw(errno) {
            Errno::ENOENT | Errno::ENOTDIR => Self::NotFound,
            errno => Self::NotExecutable(errno.desc()),
        }
    }
}

/// Looks for `command` as execvp(3) will. `Ok` when it can be started or when only trying can tell.
pub fn look_up(command: &OsStr) -> Result<(), CannotRun> {
    if command.as_bytes().contains(&b'/') {
        return check(Path::new(command));
    }
    if command.is_empty() {
        return Err(CannotRun::NotFound);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from(DEFAULT_PATH));
    let mut result = Err(CannotRun::NotFound);
    for directory in path.as_bytes().split(|byte| *byte == b':') {
        let directory =
            if directory.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(directory)) };
        let candidate: PathBuf = directory.join(command);
        match check(&candidate) {
            Ok(()) => return Ok(()),
            Err(CannotRun::NotFound) => {}
            refused => result = refused,
        }
    }
    result
}

fn check(path: &Path) -> Result<(), CannotRun> {
    match std::fs::metadata(path) {
        Err(error) => match error.raw_os_error() {
            Some(
                errno @ (libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::ELOOP | libc::ENAMETOOLONG),
            ) => Err(CannotRun::from_errno(errno)),
            _ => Ok(()),
        },
        Ok(file) if file.is_dir() => Err(CannotRun::NotExecutable("is a directory")),
        Ok(file) if !file.is_file() => Err(CannotRun::NotExecutable("not a regular file")),
        Ok(_) => access(path, AccessFlags::X_OK).map_err(|errno| CannotRun::from_errno(errno as i32)),
    }
}

/// The base name, as other people are shown it.
#[must_use]
pub fn base_name(command: &OsStr) -> String {
    let name = Path::new(command).file_name().unwrap_or(command);
    name.to_string_lossy().into_owned()
}
