//! How soon a slot is free after its client has gone, in each phase of a request.
use crate::{row, spread};
use motorpool_testkit::{Behaviour, FakeModel, Gate, Load, TokenGate, Tokens, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    raw::Raw,
    talk::{CHAT, PROBES, ask, chat, peek, until_count},
};
use std::time::{Duration, Instant};

const N_TIMES: usize = 21;
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How far a request has come when its client goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queue,
    Load,
    Prefill,
    Stream,
    Whole,
    HalfClosed,
    Upload,
}

/// Measures each phase with a fake engine of one slot: the lease back and, where the engine was reached, nothing in its work.
pub(crate) async fn gone() {
    for (phase, name) in [
        (Phase::Queue, "client gone in the queue, to its ticket gone"),
        (Phase::Load, "during a load, to its ticket gone"),
        (Phase::Prefill, "during prefill, to the slot free"),
        (Phase::Stream, "in a stream, to the slot free"),
        (Phase::Whole, "before a reply in one piece, to the slot free"),
        (Phase::HalfClosed, "half closed in a stream, to the slot free"),
        (Phase::Upload, "in the middle of a form, to the slot free"),
    ] {
        let mut times = Vec::new();
        for _ in 0..N_TIMES {
            times.push(once(phase).await);
        }
        row(name, &spread(&times));
    }
}

async fn once(phase: Phase) -> Duration {
    let mut house = House::new();
    let go_on = Gate::closed(house.folder(), "go-on");
    let before = if phase == Phase::Prefill { 0 } else { 10 };
    let tokens = Tokens { count: 20, gates: vec![TokenGate { before, file: go_on.file() }], ..Tokens::default() };
    let load = match phase {
        Phase::Load => Load { gates: vec![go_on.file()], ..Load::default() },
        _ => Load::default(),
    };
    let lines = "declared = \"600MiB\"\nslots = 1\ncapabilities = [\"chat\", \"transcription\"]\n";
    let model = house.fake_with("a", &Behaviour { tokens, load, ..Behaviour::default() }, lines);
    let daemon = house.start().await;
    let mut first = Raw::connect(daemon.address()).await.expect("connected");
    if phase == Phase::Queue {
        first.post(CHAT, chat("a", "first").to_string().as_bytes()).await.expect("sent");
        first.until("9\"}").await.expect("it streams");
    }
    let mut client = Raw::connect(daemon.address()).await.expect("connected");
    send(&mut client, phase).await;
    has_come(&daemon, &model, (phase, &mut client)).await;
    let began = Instant::now();
    if phase == Phase::HalfClosed {
        client.close_half().await.expect("it was open");
    } else {
        drop(client);
    }
    while !is_free(&daemon, &model, phase).await {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let took = began.elapsed();
    go_on.open().expect("opened");
    drop(first);
    daemon.kill().await;
    took
}

async fn send(client: &mut Raw, phase: Phase) {
    let body = match phase {
        Phase::Whole => ask("a", "hello"),
        _ => chat("a", "hello"),
    };
    if phase != Phase::Upload {
        return client.post(CHAT, body.to_string().as_bytes()).await.expect("sent");
    }
    let form = "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\na\r\n\
                --b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n";
    let head = "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\n\
                content-type: multipart/form-data; boundary=b\r\ncontent-length: 100000\r\n\r\n";
    client.write(format!("{head}{form}").as_bytes()).await.expect("sent");
}

/// The engine of `a`, as the daemon shows it.
async fn engine(daemon: &Daemon<'_>) -> Option<(usize, u32)> {
    daemon.status().await.engine("a").map(|engine| (engine.leases.len(), engine.queue))
}

async fn has_come(daemon: &Daemon<'_>, model: &FakeModel, (phase, client): (Phase, &mut Raw)) {
    match phase {
        Phase::Queue | Phase::Load => {
            let waits = async || engine(daemon).await.filter(|(_, queue)| *queue == 1).map(drop);
            eventually("it waits", waits).await;
        }
        Phase::Prefill => drop(until_count(model, "received", PROBES + 1).await),
        Phase::Whole => drop(until_count(model, "tokens", PROBES + 10).await),
        Phase::Stream | Phase::HalfClosed => drop(client.until("9\"}").await.expect("it streams")),
        Phase::Upload => {
            let leased = async || engine(daemon).await.filter(|(leases, _)| *leases == 1).map(drop);
            eventually("it has its slot", leased).await;
        }
    }
}

async fn is_free(daemon: &Daemon<'_>, model: &FakeModel, phase: Phase) -> bool {
    let wanted = if phase == Phase::Queue { (1, 0) } else { (0, 0) };
    if engine(daemon).await.is_some_and(|seen| seen != wanted) {
        return false;
    }
    match phase {
        Phase::Queue | Phase::Load | Phase::Upload => true,
        _ => peek(model, "/fake/requests").await.is_some_and(|counts| counts["active"] == 0),
    }
}
