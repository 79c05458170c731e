//! One uncontended cycle (take the lock, run `/bin/true`, release it), beside its competitors.

use std::{
    ffi::OsStr,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::server::Server;
use crate::table::{median, p10, p90};

/// The rows whose differences are the guard's, and the least that a guard can cost.
const FLOOR: &str = "C floor, unix socket";
const GUARDED_FLOOR: &str = "C floor with an idle guard";
const GUARDED: &str = "redlock-run, unix socket";
const UNGUARDED: &str = "redlock-run --no-guard, unix socket";

/// One row of the table: a command line that runs `/bin/true`, and the times it took.
struct Contender {
    name: &'static str,
    words: Vec<String>,
    times: Vec<Duration>,
}

impl Contender {
    fn new<'a>(name: &'static str, words: impl IntoIterator<Item = &'a str>) -> Self {
        let words = words.into_iter().chain(["/bin/true"]).map(str::to_owned).collect();
        Self { name, words, times: Vec::new() }
    }

    /// Runs it once; `None` when it did not succeed.
    fn run(&self) -> Option<Duration> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        let began = Instant::now();
        let status = command.status().ok()?;
        let took = began.elapsed();
        status.success().then_some(took)
    }
}

/// Prints the table. The commands take turns, in a new order each round: a machine that drifts then
/// does so for all of them alike.
pub(crate) fn compare(server: &Server, rounds: usize) {
    let floor = compile_floor();
    let tcp = format!("redis://127.0.0.1:{}", server.port);
    let program = env!("CARGO_BIN_EXE_redlock-run");
    let idiom = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/idiom.sh");
    let unix = Server::URL;
    let mut contenders = vec![
        Contender::new("/bin/true alone", []),
        Contender::new("flock FILE", ["flock", "flock.lock"]),
        Contender::new(FLOOR, [floor.as_str(), Server::SOCKET, "floor"]),
        Contender::new(GUARDED_FLOOR, [floor.as_str(), "-g", Server::SOCKET, "guarded"]),
        Contender::new(GUARDED, [program, "--url", unix, "--key", "unix", "--"]),
        Contender::new("redlock-run, TCP", [program, "--url", &tcp, "--key", "tcp", "--"]),
        Contender::new(UNGUARDED, [program, "--no-guard", "--url", unix, "--key", "bare", "--"]),
        Contender::new("redis-cli idiom in sh, unix socket", [idiom, Server::SOCKET, "idiom"]),
    ];
    // Also warms the page cache.
    contenders.retain(|contender| {
        let works = contender.run().is_some();
        if !works {
            eprintln!("bench: left out, it does not work here: {}", contender.words.join(" "));
        }
        works
    });

    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    for _ in 0..rounds {
        shuffle(&mut order, &mut dice);
        for &turn in &order {
            let took = contenders[turn].run().expect("what worked before works again");
            contenders[turn].times.push(took);
        }
    }

    let guard_adds = added(&contenders, GUARDED, UNGUARDED);
    let floor_adds = added(&contenders, GUARDED_FLOOR, FLOOR);
    for contender in &mut contenders {
        contender.times.sort_unstable();
    }
    let flock = contenders.iter().find(|contender| contender.words[0] == "flock");
    let flock = flock.map(|flock| median(&flock.times));
    println!(
        "One cycle around /bin/true, {rounds} interleaved rounds, milliseconds; the ratio is of medians"
    );
    println!("{:38}{:>8}{:>8}{:>8}{:>10}", "", "p10", "median", "p90", "x flock");
    for Contender { name, times, .. } in &contenders {
        let ratio = flock.map_or("-".to_owned(), |flock| format!("{:.2}", median(times) / flock));
        println!("{name:38}{:>8.2}{:>8.2}{:>8.2}{ratio:>10}", p10(times), median(times), p90(times));
    }
    if let (Some(guard), Some(floor)) = (guard_adds, floor_adds) {
        println!(
            "The guard adds {guard:.2}, an idle one {floor:.2}: medians of the differences in each round."
        );
    }
}

/// What one contender takes longer than another, in milliseconds: the median of the differences in each
/// round, which a drift of the machine touches less than the difference of the medians.
fn added(contenders: &[Contender], with: &str, without: &str) -> Option<f64> {
    let times = |name| contenders.iter().find(|contender| contender.name == name).map(|found| &found.times);
    let pairs = times(with)?.iter().zip(times(without)?);
    let mut differences: Vec<f64> =
        pairs.map(|(with, without)| (with.as_secs_f64() - without.as_secs_f64()) * 1e3).collect();
    differences.sort_by(f64::total_cmp);
    differences.get(differences.len() / 2).copied()
}

/// Compiles `benches/floor.c` into the current directory and returns the program's path.
fn compile_floor() -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/floor.c");
    let compiled = Command::new("cc")
        .args([OsStr::new("-O2"), OsStr::new("-o"), OsStr::new("floor"), source.as_os_str()])
        .status()
        .is_ok_and(|status| status.success());
    assert!(compiled, "cc cannot compile {}", source.display());
    "./floor".to_owned()
}

/// Fisher and Yates, with xorshift for the dice: no more chance is needed here.
fn shuffle(order: &mut [usize], dice: &mut u64) {
    for last in (1..order.len()).rev() {
        *dice ^= *dice << 13;
        *dice ^= *dice >> 7;
        *dice ^= *dice << 17;
        #[expect(clippy::cast_possible_truncation, reason = "a remainder by a usize")]
        let other = (*dice % (last as u64 + 1)) as usize;
        order.swap(last, other);
    }
}
