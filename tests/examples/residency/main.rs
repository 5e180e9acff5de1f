//! Figures of what guests do on a real router: requests lost when two processes compete for its one place, and what a
//! decision costs.
//!
//! ```text
//! cargo run --release -p motorpool-tests --example residency            # 200 rounds; another number as the argument
//! ```
//!
//! In each round both processes want their own model at once, on a router that takes one; each asks until it is let in,
//! sends one request, and gives its model back. A request is lost when it was let in and not answered well.
mod worker;

use motorpool_external::{Guest, Guests, Setting, Target};
use motorpool_residency::Kind;
use motorpool_tests::e2e::Router;
use std::{
    env, fs,
    io::Write as _,
    path::Path,
    process::{Child, Command},
    sync::Arc,
    time::{Duration, Instant},
};

/// Decisions measured of each kind.
const N_TRUSTED: usize = 20_000;
const N_FRESH: usize = 500;

#[tokio::main]
async fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", port, folder, model, n_rounds] => {
            let [port, n_rounds] = [port, n_rounds].map(|word| word.parse().expect("a number"));
            let guest = guest(u16::try_from(port).expect("a port"), Path::new(folder));
            worker::work(&guest, (Path::new(folder), model), n_rounds).await;
        }
        [] => measure(200).await,
        [n_rounds] => measure(n_rounds.parse().expect("a number of rounds")).await,
        _ => panic!("residency [ROUNDS]"),
    }
}

fn guest(port: u16, run: &Path) -> Guest {
    let url = format!("http://127.0.0.1:{port}").parse().expect("an address");
    let setting = Setting {
        run: run.to_owned(),
        journal: None,
        lock_within: Duration::from_mins(2),
        now: motorpool_devices::now,
        sink: Arc::new(drop),
    };
    let guests = Guests::open(vec![Target::new("house", Kind::Router, url)], setting).expect("no journal");
    guests.iter().next().expect("a target").clone()
}

async fn measure(n_rounds: u32) {
    let house = Router::open(1).await;
    compete(&house, n_rounds);
    decide(&guest(house.port(), house.folder())).await;
}

fn compete(house: &Router, n_rounds: u32) {
    let began = Instant::now();
    let workers = ["a", "b"].map(|model| start(house, (model, n_rounds)));
    for mut worker in workers {
        assert!(worker.wait().expect("it is ours").success());
    }
    let tallies = ["a", "b"].map(|model| worker::read(&house.folder().join(model)));
    let sum = |of: fn(&worker::Tally) -> u32| tallies.iter().map(of).sum::<u32>();
    say(&format!(
        "{n_rounds} rounds of two processes on one place: {} answered, {} lost, {} times told to wait, {:.1} s",
        sum(|tally| tally.answered),
        sum(|tally| tally.lost),
        sum(|tally| tally.declined),
        began.elapsed().as_secs_f64()
    ));
}

fn start(house: &Router, (model, n_rounds): (&str, u32)) -> Child {
    let mut command = Command::new(env::current_exe().expect("a running program has a path"));
    command.args(["worker", &house.port().to_string()]).arg(house.folder()).args([model, &n_rounds.to_string()]);
    fs::write(house.folder().join(model), "").expect("written");
    command.spawn().expect("it starts")
}

async fn decide(guest: &Guest) {
    let _stay = guest.prepare("c").await.expect("it fits");
    let mut trusted = Vec::with_capacity(N_TRUSTED);
    for _ in 0..N_TRUSTED {
        let began = Instant::now();
        drop(guest.prepare("c").await.expect("it is there"));
        trusted.push(began.elapsed());
    }
    let mut fresh = Vec::with_capacity(N_FRESH);
    for _ in 0..N_FRESH {
        guest.distrust();
        let began = Instant::now();
        drop(guest.prepare("c").await.expect("it is there"));
        fresh.push(began.elapsed());
    }
    tell("a decision from the trusted cache", trusted);
    tell("a fresh one", fresh);
}

fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |per_mille: usize| times[(times.len() - 1) * per_mille / 1000].as_secs_f64() * 1e6;
    say(&format!("{what}: p50 {:.1} µs, p99 {:.1} µs, max {:.1} µs of {}", at(500), at(990), at(1000), times.len()));
}

fn say(line: &str) {
    writeln!(std::io::stdout().lock(), "{line}").expect("somebody reads it");
}
