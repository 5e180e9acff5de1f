//! Measures what the README promises, with the real program, engine and model, and prints a table.
//!
//! ```sh
//! cargo build --release -p motorpool -p motorpool-testkit --bins
//! cargo run --release -p motorpool-tests --example figures            # or some: -- start memory cold cycles kills
//!                                                                    # share reading exit: graphics cards, of a fake driver
//!                                                                    # trees: how soon an end is noticed, a tree gone
//!                                                                    # learned: how near a plan is after one load
//!                                                                    # gone: how soon a slot is free behind a client
//!                                                                    # reload: fifty models, of which one changed
//! ```
//!
//! What serving costs beside the engine itself is measured by `motorpool bench`. What is compared is measured in turns in one run. The time of a warm acquire is measured by criterion:
//! `cargo bench -p motorpool-pool --bench gate`, `cargo bench -p motorpool-supervisor`.
mod cards;
mod gone;
mod learned;
mod reload;
mod trees;

use motorpool_testkit::{Behaviour, Bind, Client, Incoming};
use motorpool_tests::e2e::{
    Daemon, House,
    installed::{MODEL, engine_pid, house},
    processes::{left_of, memory_kib, n_descriptors, one, zombies_of},
    talk::{CHAT, chat},
};
use motorpool_vocab::Endpoint;
use serde_json::{Value, json};
use std::{
    fs,
    io::Write as _,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};
use tokio::process::{Child, Command};

const N_STARTS: usize = 21;
const N_COLD: usize = 7;
const N_CYCLES: usize = 200;
const N_KILLS: usize = 10;
const API: &str = "/api/motorpool/v1";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|one| one == name);
    if is_wanted("start") {
        start_to_listening().await;
    }
    if is_wanted("memory") {
        idle_memory().await;
    }
    if is_wanted("cold") {
        cold_starts().await;
    }
    if is_wanted("cycles") {
        cycles().await;
    }
    if is_wanted("kills") {
        kills().await;
    }
    if is_wanted("trees") {
        trees::trees().await;
    }
    if is_wanted("gone") {
        gone::gone().await;
    }
    if is_wanted("share") {
        cards::share().await;
    }
    if is_wanted("reading") {
        cards::reading().await;
    }
    if is_wanted("exit") {
        cards::exit().await;
    }
    if is_wanted("reload") {
        reload::reload().await;
    }
    if is_wanted("learned") {
        learned::error().await;
    }
}

fn row(name: &str, figure: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{name:<52} {figure}");
}

/// Median, and the range.
fn spread(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let (least, median, most) = (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
    format!("{:.1} ms (median of {}; {:.1} to {:.1})", ms(median), times.len(), ms(least), ms(most))
}

/// From `execve` to the line that names the address. The catalog and the journal are small.
async fn start_to_listening() {
    let mut times = Vec::new();
    for _ in 0..N_STARTS {
        let house = House::new();
        house.write_config();
        let began = Instant::now();
        let daemon = house.start().await;
        times.push(began.elapsed());
        daemon.stop().await;
    }
    row("start to listening", &spread(&times));
}

async fn idle_memory() {
    let mut house = House::new();
    let model = house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    row("RSS of the supervisor, nothing started", &memory(daemon.pid()));
    drop(daemon.http().post(CHAT, &chat("a", "hello")).await.expect("an answer"));
    daemon.until_quiet().await;
    row("RSS of the supervisor, one engine idle", &memory(daemon.pid()));
    let engine = one(model.starts()[0].pid).expect("it runs");
    row("RSS of a keeper, just after a request", &memory(engine.parent));
    // A keeper gives pages back when nothing happened for a second.
    tokio::time::sleep(Duration::from_secs(3)).await;
    row("RSS of a keeper at rest", &memory(engine.parent));
    daemon.stop().await;
}

fn memory(pid: u32) -> String {
    let mib = |name| f64::from(u32::try_from(memory_kib(pid, name)).unwrap_or(u32::MAX)) / 1024.0;
    format!("{:.1} MiB (of it {:.1} anonymous)", mib("VmRSS"), mib("RssAnon"))
}

fn question() -> Value {
    json!({
        "model": MODEL, "stream": true, "temperature": 0, "max_tokens": 8,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
    })
}

/// Until the first token of a stream has come.
async fn first_token(mut stream: Incoming) {
    assert_eq!(stream.status, 200);
    stream.until("\"content\":\"").await.expect("a token");
    stream.whole().await.expect("its end");
}

/// A first request through the daemon beside the same engine started and asked by hand, in turns.
async fn cold_starts() {
    let house = house().await;
    let daemon = house.start().await;
    let (mut ours, mut theirs, mut warm) = (Vec::new(), Vec::new(), Vec::new());
    // Once for the page cache, and to see how the engine is started.
    first_token(daemon.http().open(CHAT, &question()).await.expect("a head")).await;
    let command = command_of(engine_pid(&daemon, MODEL).await);
    for _ in 0..N_COLD {
        unload(&daemon).await;
        let began = Instant::now();
        first_token(daemon.http().open(CHAT, &question()).await.expect("a head")).await;
        ours.push(began.elapsed());
        let began = Instant::now();
        first_token(daemon.http().open(CHAT, &question()).await.expect("a head")).await;
        warm.push(began.elapsed());
        unload(&daemon).await;
        theirs.push(by_hand(&command, &house.path("hand.sock")).await);
    }
    row("first request to first token, cold, through us", &spread(&ours));
    row("start to first token of the engine itself", &spread(&theirs));
    row("the same request warm, to its end", &spread(&warm));
    daemon.stop().await;
}

async fn unload(daemon: &Daemon<'_>) {
    let answer = daemon.control().post(&format!("{API}/models/{MODEL}/unload"), &json!({})).await;
    assert_eq!(answer.expect("an answer").status, 200);
}

/// Arguments and environment of a running process.
fn command_of(pid: u32) -> (Vec<String>, Vec<(String, String)>) {
    let list = |name: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{name}")).expect("it runs");
        let texts = bytes.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
        texts.collect::<Vec<_>>()
    };
    let mut arguments = list("cmdline");
    arguments.pop();
    let pairs = list("environ").into_iter().filter_map(|pair| pair.split_once('=').map(|(n, v)| (n.into(), v.into())));
    (arguments, pairs.collect())
}

/// Starts the engine as the daemon did, on another socket, and asks it as soon as it is ready.
async fn by_hand((arguments, environment): &(Vec<String>, Vec<(String, String)>), socket: &Path) -> Duration {
    let _ = fs::remove_file(socket);
    let mut arguments = arguments.clone();
    let host = arguments.iter().position(|word| word == "--host").expect("its socket") + 1;
    socket.to_str().expect("UTF-8").clone_into(&mut arguments[host]);
    let mut command = Command::new(&arguments[0]);
    command.args(&arguments[1..]).env_clear().envs(environment.iter().cloned()).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let mut child = command.spawn().expect("it runs");
    let client = Client::new(Endpoint::Unix(socket.to_owned()));
    while client.get("/health").await.map_or(0, |answer| answer.status.as_u16()) != 200 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    first_token(client.open(CHAT, &question()).await.expect("a head")).await;
    let took = began.elapsed();
    end(&mut child).await;
    took
}

async fn end(child: &mut Child) {
    child.kill().await.expect("ours");
}

/// Descriptors and zombies before and after many starts, a quarter of them in vain.
async fn cycles() {
    let mut house = House::new();
    house.fake("works", &Behaviour::default());
    house.fake("fails", &Behaviour { bind: Bind::Refused, ..Behaviour::default() });
    let daemon = house.start().await;
    let cycle = async |n: usize| {
        let model = if n % 4 == 3 { "fails" } else { "works" };
        let control = daemon.control();
        drop(control.post(&format!("{API}/models/{model}/load"), &json!({})).await.expect("an answer"));
        drop(control.post(&format!("{API}/models/{model}/unload"), &json!({})).await.expect("an answer"));
    };
    for n in 0..8 {
        cycle(n).await;
    }
    daemon.until_quiet().await;
    let before = (n_descriptors(daemon.pid()), memory(daemon.pid()));
    let began = Instant::now();
    for n in 0..N_CYCLES {
        cycle(n).await;
    }
    let each = began.elapsed() / u32::try_from(N_CYCLES).expect("small");
    daemon.until_quiet().await;
    let (pid, after) = (daemon.pid(), n_descriptors(daemon.pid()));
    let left = left_of(&house, Some(pid)).len();
    let figure = format!("{} then {after}; zombies {}; processes {left}", before.0, zombies_of(pid).len());
    row(&format!("descriptors before and after {N_CYCLES} cycles"), &figure);
    row("RSS before and after them", &format!("{} then {}", before.1, memory(pid)));
    row("one start and stop of a fake engine", &format!("{:.1} ms", each.as_secs_f64() * 1000.0));
    daemon.stop().await;
}

/// From SIGKILL of a supervisor with a streaming engine to nothing left.
async fn kills() {
    let mut times = Vec::new();
    for _ in 0..N_KILLS {
        let house = house().await;
        let daemon = house.start().await;
        let mut body = question();
        body["max_tokens"] = json!(4000);
        body["ignore_eos"] = json!(true);
        let mut stream = daemon.http().open(CHAT, &body).await.expect("a head");
        stream.until("\"content\":\"").await.expect("a token");
        times.push(daemon.kill().await);
    }
    row("SIGKILL while the real engine streams, to nothing left", &spread(&times));
}
