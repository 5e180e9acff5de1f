//! A pool made for the measurement: its files, its process, what runs beside it, and what only a pool of our own can be
//! asked for: starts, swaps, thousands of open streams.
//!
//! All runs below keepers of the supervisor and ends when it is dropped; the folder goes with it.
mod house;
mod program;

use super::{
    Bench, BenchError,
    figures::{Watched, median, ms},
    frames::{self, End},
    machine::Machine,
    relay::Relay,
    report::{OpenStreams, Report, Row, Swap},
    rounds::Subject,
    running::{daemon_at, direct_of, others},
    way::{Address, Question, Way},
};
use crate::{client::Client, exit::Failure};
use house::{Home, Pool};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use program::{Running, free_port};
use serde_json::Value;
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// So long an idle pool is left alone before its memory is read.
const REST: Duration = Duration::from_secs(1);
/// Descriptors for as many streams as anybody asks for, on both sides of the pool.
const DESCRIPTORS: u64 = 131_072;

/// Measures all there is over `engine`.
pub(super) async fn measure(engine: &Path, command: &Bench) -> Result<Report, Failure> {
    raise_descriptors();
    let listening_ms = starts(engine, command).await?;
    let home = Home::make(engine, command.router.as_deref()).map_err(BenchError::Prepare)?;
    let pool = Pool::start(&home).await?;
    let report = measure_in(&home, &pool, (engine, command)).await;
    pool.end(&home).await;
    Ok(Report { listening_ms: Some(listening_ms), ..report? }.with_limits())
}

async fn measure_in(home: &Home, pool: &Pool, (engine, command): (&Path, &Bench)) -> Result<Report, Failure> {
    let daemon = daemon_at(&home.control()).await?;
    tokio::time::sleep(REST).await;
    let resident_kib = daemon.resident_kib()?;
    let subject = over_trivial(home, pool, (daemon, command)).await?;
    let mut requests = subject.small(command).await?;
    let streams = subject.streams(command).await?;
    if let Some(router) = &command.router {
        requests.extend(over_llama_server(home, pool, (router, command)).await?);
    }
    let swap = swaps(home, pool, (engine, command)).await?;
    let open_streams = open(&subject, command).await?;
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::here(),
        rounds: command.rounds,
        requests,
        streams,
        open_streams,
        swap: Some(swap),
        resident_kib,
        listening_ms: None,
        limits: Vec::new(),
    })
}

/// A process of ours inherits what we have: more than the usual limit, where we may.
fn raise_descriptors() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let most = hard.max(DESCRIPTORS);
        let _ =
            setrlimit(Resource::RLIMIT_NOFILE, most, most).or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    }
}

/// From the start of a pool to its address, each with directories of its own; in milliseconds.
async fn starts(engine: &Path, command: &Bench) -> Result<f64, BenchError> {
    let mut times = Vec::new();
    for _ in 0..command.rounds {
        let home = Home::make(engine, None).map_err(BenchError::Prepare)?;
        let began = Instant::now();
        let pool = Pool::start(&home).await?;
        times.push(ms(began.elapsed()));
        pool.end(&home).await;
    }
    Ok(median(&times))
}

async fn over_trivial(home: &Home, pool: &Pool, (daemon, command): (Watched, &Bench)) -> Result<Subject, Failure> {
    let rest = "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}".to_owned();
    let question = Question { path: "/v1/chat/completions", rest };
    let ours = pool.way("motorpool", house::TRIVIAL);
    ours.connect().await?.ask(&ours.request(&question)).await?;
    let direct = direct_of(&status(home).await?, (house::TRIVIAL, &home.control()))?;
    let relay = Relay::before(&direct)?;
    let ways = (direct, relay, ours, others(&command.beside, house::TRIVIAL));
    Ok(Subject::new(house::TRIVIAL.into(), ways, daemon, question))
}

/// The same llama-server behind the pool and behind its own router. What it is asked takes none of its slots.
async fn over_llama_server(home: &Home, pool: &Pool, (program, command): (&Path, &Bench)) -> Result<Vec<Row>, Failure> {
    let question = Question { path: "/tokenize", rest: "\"content\":\"hello\"}".into() };
    let ours = pool.way("motorpool", house::SMOKE);
    ours.connect().await?.ask(&ours.request(&question)).await?;
    let direct = direct_of(&status(home).await?, (house::SMOKE, &home.control()))?;
    let relay = Relay::before(&direct)?;
    let port = free_port().map_err(BenchError::Prepare)?;
    let running = Running::start(program, &home.router_arguments(port), home.path())?;
    let router = Way {
        name: "llama.cpp's router".into(),
        address: Address::Tcp(format!("127.0.0.1:{port}")),
        model: house::SMOKE.into(),
    };
    running.until_it_answers(&router, &question).await?;
    let daemon = daemon_at(&home.control()).await?;
    let subject = Subject::new("llama-server".into(), (direct, relay, ours, vec![router]), daemon, question);
    Ok(subject.small(command).await?)
}

async fn status(home: &Home) -> Result<Value, Failure> {
    Ok(Client::new(&home.control()).get("/api/motorpool/v1/status").await?)
}

/// Two models of which one fits, asked in turn, beside the same engine started by hand.
async fn swaps(home: &Home, pool: &Pool, (engine, command): (&Path, &Bench)) -> Result<Swap, BenchError> {
    let question = frames::streamed(1, Duration::ZERO, End::AfterFrames);
    let first_token = async |way: Way| {
        let began = Instant::now();
        way.connect().await?.begin(&way.request(&question)).await?;
        Ok::<_, BenchError>(ms(began.elapsed()))
    };
    first_token(pool.way("motorpool", house::TWINS[1])).await?;
    let (mut swapped, mut alone, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..command.rounds {
        let twin = house::TWINS[usize::from(round % 2 == 1)];
        let ours = first_token(pool.way("motorpool", twin)).await?;
        let socket = home.path().join(format!("alone-{round}.sock"));
        let began = Instant::now();
        let running = Running::start(engine, &["--socket".into(), socket.clone().into()], home.path())?;
        let way = Way { name: "the engine alone".into(), address: Address::Unix(socket), model: twin.into() };
        running.until_it_answers(&way, &question).await?;
        let by_hand = ms(began.elapsed());
        swapped.push(ours);
        alone.push(by_hand);
        added.push(ours - by_hand);
    }
    Ok(Swap { first_token_ms: median(&swapped), engine_alone_ms: median(&alone), added_ms: median(&added) })
}

/// Opens streams until all are open or descriptors have run out, and looks at what they take.
async fn open(subject: &Subject, command: &Bench) -> Result<Option<OpenStreams>, BenchError> {
    if command.open == 0 {
        return Ok(None);
    }
    let open = frames::open(subject.ours(), command.open).await?;
    let resident_kib = subject.daemon.resident_kib()?;
    let opened = u32::try_from(open.len()).unwrap_or(u32::MAX);
    Ok(Some(OpenStreams { wanted: command.open, opened, resident_kib }))
}
