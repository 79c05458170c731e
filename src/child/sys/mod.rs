//! System calls that need `unsafe`, each wrapped so that its callers do not.

mod descriptor;
mod memory;
mod signal;
mod start;
mod wait;

pub(super) use descriptor::{
    Alarm, close_all_but, close_inherited_but, close_raw, is_closed, raise_descriptor_limit,
};
pub(super) use memory::SharedPage;
pub use signal::die_of;
pub(super) use signal::{Pin, RawMask, is_ignored, send, set_disposition, stop_as};
pub use start::exit_now;
pub(super) use start::{
    Image, Sharing, die_with_parent, execute, fork_process, raw_environment, spawn_sharing,
};
pub(super) use wait::{Change, Which, reap, reap_child, wait_child};
