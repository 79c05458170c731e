//! The binary: everything is in the library. Without Rust's `main`: `child/early.rs` says why.
#![no_main]

#[unsafe(no_mangle)]
extern "C" fn main(_argc: i32, _argv: *const *const std::ffi::c_char) -> i32 {
    redlock_run::main()
}

// Unwinding from the compiler's static library: std would load `libgcc_s.so` for it, 0.15 ms of each run. In a
// build without link-time optimisation this comes too early to have an effect.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[link(name = "gcc_eh")]
unsafe extern "C" {}
