//! `make bench`: what a run costs beside flock(1), a C program and the redis-cli idiom; how fast a
//! lock passes from one waiter to the next; what memory a holder needs.
//!
//! No limits are enforced: the machine it runs on decides the absolute figures, so read the ratios,
//! which come from one and the same run. `ROUNDS` (default 1000) sets the length of the first table.

mod cycle;
mod handoff;
mod memory;
mod server;
mod table;

use std::{env, process::ExitCode};

use server::Server;

fn main() -> ExitCode {
    // `cargo test --benches` asks for a test run; there is nothing to test here.
    if env::args().any(|argument| argument == "--test") {
        return ExitCode::SUCCESS;
    }
    let rounds = match env::var("ROUNDS").map(|text| text.parse::<usize>()) {
        Err(_) => 1000,
        Ok(Ok(rounds)) if rounds > 0 => rounds,
        Ok(_) => {
            eprintln!("bench: ROUNDS must be a whole number above 0, as in ROUNDS=200");
            return ExitCode::from(64);
        }
    };
    let server = Server::start();
    cycle::compare(&server, rounds);
    handoff::show(&server);
    memory::show();
    ExitCode::SUCCESS
}
