//! What the tests stand on: a private Redis, faults on the way to it, runs of the program
//! with a clean environment, a real terminal, and conditions to wait for.

pub(crate) mod bash;
pub(crate) mod client;
pub(crate) mod container;
pub(crate) mod fake;
pub(crate) mod freezer;
pub(crate) mod hang;
pub(crate) mod jobs;
pub(crate) mod lease;
pub(crate) mod nest;
pub(crate) mod outcome;
pub(crate) mod proc;
pub(crate) mod proxy;
pub(crate) mod pty;
pub(crate) mod pump;
pub(crate) mod run;
pub(crate) mod running;
pub(crate) mod server;
pub(crate) mod stalls;
pub(crate) mod tools;
pub(crate) mod wait;

pub(crate) use client::Client;
pub(crate) use nest::Nest;
pub(crate) use outcome::Outcome;
pub(crate) use proc::Process;
pub(crate) use proxy::Proxy;
pub(crate) use pump::Mode;
pub(crate) use run::Run;
pub(crate) use running::Running;
pub(crate) use server::Server;
pub(crate) use wait::wait_until;
