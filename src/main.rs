//! The binary: everything is in the library. Without Rust's `main`: `child/early.rs` says why.
#![no_main]

#[unsafe(no_mangle)]
extern "C" fn main(_argc: i32, _argv: *const *const std::ffi::c_char) -> i32 {
    redlock_run::main()
}
