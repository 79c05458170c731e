//! How fast a lock passes from one waiter to the next, and what that costs Redis.
//!
//! The waiters are threads that use the crate's own waiting, each with a connection of its own: 200
//! processes would measure the scheduler of the machine instead.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use redlock_run::lease::{Holder, Key, Timing};
use redlock_run::lock::{Held, Patience, Released, Want, acquire, release};
use redlock_run::node::{Address, Never, Node, Timeouts};

use crate::server::Server;
use crate::table::{median, p90};

/// Waiters, and rounds in which each of them gets the lock once; a few hundred hand-offs for each.
const SIZES: [(u32, u32); 3] = [(1, 300), (20, 30), (200, 5)];

/// What each waiter does under the lock.
const HOLD: Duration = Duration::from_micros(500);

/// When somebody got the lock, and when it began to give it back.
type Turn = (Instant, Instant);

/// Prints the table.
pub(crate) fn show(server: &Server) {
    println!("\nHand-off: from the holder's release until the next of the waiters has the lock;");
    println!("each holds it for {HOLD:?}. Requests are EVAL and BLPOP as sent by clients.");
    println!("{:38}{:>8}{:>8}{:>10}", "", "median", "p90", "requests");
    for (waiters, rounds) in SIZES {
        server.ask("CONFIG RESETSTAT");
        let mut times: Vec<Duration> = (0..rounds).flat_map(|_| round(server, waiters)).collect();
        let requests = server.calls("eval") + server.calls("blpop");
        let requests = f64::from(requests) / f64::from(waiters * rounds);
        times.sort_unstable();
        let name = if waiters == 1 { "1 waiter".to_owned() } else { format!("{waiters} waiters") };
        println!("{name:38}{:>8.2}{:>8.2}{requests:>10.1}", median(&times), p90(&times));
    }
}

/// One holder, then each of the waiters once. Returns the times between release and acquisition.
fn round(server: &Server, waiters: u32) -> Vec<Duration> {
    let turns = Mutex::new(Vec::new());
    let (mut node, held) = take();
    thread::scope(|scope| {
        for _ in 0..waiters {
            scope.spawn(|| {
                let (mut node, held) = take();
                let got = Instant::now();
                thread::sleep(HOLD);
                let turn = (got, give_back(&mut node, &held));
                turns.lock().expect("no waiter panics").push(turn);
            });
        }
        // Released only once the last of them blocks, so that all hand-offs are alike.
        while server.blocked() < waiters {
            thread::sleep(Duration::from_millis(1));
        }
        let first: Turn = (Instant::now(), give_back(&mut node, &held));
        turns.lock().expect("no waiter panics").push(first);
    });
    let mut turns: Vec<Turn> = turns.into_inner().expect("no waiter panics");
    turns.sort_unstable();
    turns.windows(2).map(|pair| pair[1].0.duration_since(pair[0].1)).collect()
}

/// Waits for the lock, on a connection of its own.
fn take() -> (Node, Held) {
    let address = Address::parse(Server::URL).expect("the URL of the private Redis");
    let timeouts = Timeouts { connect: Duration::from_secs(2), command: Duration::from_secs(1) };
    let mut node = Node::new(address.clone(), address.credentials, timeouts);
    let want = Want {
        key: Key::new(b"handoff".to_vec()).expect("a key"),
        timing: Timing::new(Duration::from_secs(30), None),
        holder: Holder::new("bench", "localhost", std::process::id(), "bench", None),
        patience: Patience::Forever,
    };
    let held = acquire(&mut node, &want, &mut Never, &mut |_| ()).expect("the lock comes to everybody");
    (node, held)
}

/// Releases the lock, and tells when that began.
fn give_back(node: &mut Node, held: &Held) -> Instant {
    let key = Key::new(b"handoff".to_vec()).expect("a key");
    let began = Instant::now();
    assert_eq!(release(node, &key, &held.value, &mut Never), Released::Yes);
    began
}
