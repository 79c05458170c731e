//! flock(1) for a fleet.
/// Runs the program.
#[must_use]
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
