//! Clients that mean harm or know no better, over bare sockets: whatever they send, nothing panics, memory stays bounded,
//! no engine is started or held for them, and everybody else is served meanwhile and afterwards.
use crate::support::{assert_serves, endless, n_starts};
use motorpool_testkit::{Behaviour, FakeModel, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    processes::{memory_kib, n_descriptors},
    raw::Raw,
    talk::{CHAT, PROBES, chat, until_count},
};

const MIB: usize = 1 << 20;
/// Bounds what may be taken for any of this, in KiB: it takes 30 MiB to run at all.
const MOST_KIB: u64 = 100 << 10;

fn house() -> (House, FakeModel) {
    let mut house = House::new();
    let model = house.fake("a", &Behaviour::default());
    (house, model)
}

/// What came back for these bytes, until the daemon closed.
pub(crate) async fn said_to(daemon: &Daemon<'_>, bytes: &[u8]) -> String {
    let mut client = Raw::connect(daemon.address()).await.expect("connected");
    // It may close before it has read all.
    let _ = client.write(bytes).await;
    client.rest().await.unwrap_or_default()
}

/// Nothing is held, nothing panicked, and a request is served.
pub(crate) async fn is_well(daemon: Daemon<'_>) {
    daemon.until_quiet().await;
    assert_serves(&daemon, "a").await;
    let peak = memory_kib(daemon.pid(), "VmHWM");
    assert!(peak < MOST_KIB, "{peak} KiB");
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
    daemon.stop().await;
}

fn post(headers: &str, body: &str) -> Vec<u8> {
    format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n\r\n{body}").into_bytes()
}

#[tokio::test]
async fn heads_that_can_be_read_two_ways_are_refused_and_reach_no_engine() {
    let (house, model) = house();
    let daemon = house.start().await;
    let plain = chat("a", "smuggled").to_string();
    let (n, more) = (plain.len(), plain.len() + 5);
    // Whoever goes by one of its two framings finds a request that is in order.
    let chunked = format!("{n:x}\r\n{plain}\r\n0\r\n\r\n");
    let both = chunked.len();
    for headers in [
        format!("content-length: {both}\r\ntransfer-encoding: chunked"),
        format!("transfer-encoding: chunked\r\ncontent-length: {both}"),
        "transfer-encoding: chunked\r\ncontent-length: 0".into(),
        format!("content-length: {n}\r\ncontent-length: {more}"),
        format!("content-length: +{n}"),
        format!("content-length: -{n}"),
        format!("content-length: {n}, {more}"),
        "content-length: 99999999999999999999999".into(),
        format!("content-length: {n}\nx: y"),
        format!("x: y\r\n folded\r\ncontent-length: {n}"),
        format!("content-length : {n}"),
        format!("x: a\0b\r\ncontent-length: {n}"),
        "transfer-encoding: gzip".into(),
        "transfer-encoding: chunked, gzip".into(),
        ": nameless".into(),
        "no colon".into(),
    ] {
        let body = if headers.contains("chunked") { &chunked } else { &plain };
        let answer = said_to(&daemon, &post(&headers, body)).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{headers:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.").count(), 1, "{headers:?}: {answer}");
    }
    assert_eq!(n_starts(&model), 0);
    is_well(daemon).await;
}

#[tokio::test]
async fn chunks_that_are_none_are_refused_and_reach_no_engine() {
    let (house, model) = house();
    let daemon = house.start().await;
    let (body, long) = (chat("a", "smuggled").to_string(), "x".repeat(100_000));
    let n = body.len();
    for chunks in [
        format!("zz\r\n{body}\r\n0\r\n\r\n"),
        format!("-{n:x}\r\n{body}\r\n0\r\n\r\n"),
        format!("fffffffffffffffff{n:x}\r\n{body}\r\n0\r\n\r\n"),
        format!("{n:x}\n{body}\n0\n\n"),
        format!("{:x}\r\n{body}\r\n0\r\n\r\n", n - 1),
        format!("{:x}\r\n{body}\r\n0\r\n\r\n", n + 1),
        format!("{n:x};{long}\r\n{body}\r\n0\r\n\r\n"),
        format!("{n:x}\r\n{body}\r\n0\r\nx: {long}\r\n\r\n"),
    ] {
        let answer = said_to(&daemon, &post("transfer-encoding: chunked", &chunks)).await;
        let begin = &chunks[..chunks.len().min(40)];
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{begin:?}: {answer}");
    }
    assert_eq!(n_starts(&model), 0);
    is_well(daemon).await;
}

#[tokio::test]
async fn heads_without_measure_are_refused() {
    let (house, _) = house();
    let daemon = house.start().await;
    let long = "x".repeat(MIB);
    let many = "x: y\r\n".repeat(1000);
    for head in [
        format!("GET /{long} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n"),
        format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{long}: x\r\n\r\n"),
        format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"),
        // Never ends.
        long.clone(),
    ] {
        let answer = said_to(&daemon, head.as_bytes()).await;
        let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
        assert!(["", "400", "414", "431"].contains(&status.as_str()), "{:?}: {answer}", &head[..40]);
    }
    is_well(daemon).await;
}

#[tokio::test]
async fn what_is_sent_behind_a_request_is_answered_in_turn_or_refused() {
    let (house, model) = house();
    let daemon = house.start().await;
    let health = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let last = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let turns = said_to(&daemon, format!("{health}{health}{last}").as_bytes()).await;
    assert_eq!(turns.matches("HTTP/1.1 200 OK").count(), 3, "{turns}");
    let garbage = said_to(&daemon, format!("{health}\u{1}\u{2} garbage\r\n\r\n{health}").as_bytes()).await;
    assert_eq!(garbage.matches("HTTP/1.1 200 OK").count(), 1, "{garbage}");
    assert_eq!(garbage.matches("HTTP/1.1 400 ").count(), 1, "{garbage}");
    // A length that is too small: the rest is no request.
    let short = said_to(&daemon, &post("content-length: 2", "{}]]]]\r\n\r\n")).await;
    assert_eq!(short.matches("HTTP/1.1 400 ").count(), 2, "{short}");
    // Too large: the rest never comes.
    let mut client = Raw::connect(daemon.address()).await.expect("connected");
    client.write(&post("content-length: 1000", "{\"messages\":[")).await.expect("sent");
    client.close_half().await.expect("it was open");
    let long = client.rest().await.unwrap_or_default();
    assert!(long.is_empty() || long.starts_with("HTTP/1.1 400 "), "{long}");
    assert_eq!(n_starts(&model), 0);
    is_well(daemon).await;
}

#[tokio::test]
async fn connections_that_say_little_keep_nobody_out_but_those_past_the_limit() {
    let (mut house, _) = house();
    house.set("limits.connections", 16);
    let daemon = house.start().await;
    let mut slow = Vec::new();
    for n in 0..16 {
        let mut client = Raw::connect(daemon.address()).await.expect("connected");
        let body = post("content-length: 900", "{\"model\":\"a\"");
        let begin = if n % 2 == 0 { b"POST /v1/ch".to_vec() } else { body };
        client.write(&begin).await.expect("sent");
        slow.push(client);
    }
    let turned_away = eventually("a full house", async || {
        let answer = said_to(&daemon, b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
        answer.starts_with("HTTP/1.1 503 ").then_some(answer)
    })
    .await;
    assert!(turned_away.contains("\"code\":\"overloaded\""), "{turned_away}");
    // The operator gets in, and nobody of them holds an engine.
    assert!(daemon.status().await.engines.iter().all(|engine| engine.leases.is_empty()));
    slow.truncate(8);
    eventually("room again", async || daemon.http().get("/v1/models").await.ok().filter(|a| a.status == 200)).await;
    drop(slow);
    is_well(daemon).await;
}

#[tokio::test]
async fn a_body_that_stops_arriving_is_given_up() {
    let (mut house, model) = house();
    house.set("limits.write_stall", "1s");
    let daemon = house.start().await;
    let mut client = Raw::connect(daemon.address()).await.expect("connected");
    client.write(&post("content-length: 900", "{\"model\":\"a\",\"messages\":[")).await.expect("sent");
    let answer = client.until("\r\n\r\n").await.expect("a head");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("x-motorpool-code: invalid_request"), "{answer}");
    is_well(daemon).await;
    assert_eq!(n_starts(&model), 1, "it was loaded meanwhile");
}

#[tokio::test]
async fn a_gibibyte_with_the_model_last_is_refused_at_the_limit_and_costs_no_memory() {
    let (house, model) = house();
    let daemon = house.start().await;
    for framing in [format!("content-length: {}", 1024 * MIB), "transfer-encoding: chunked".into()] {
        let mut client = Raw::connect(daemon.address()).await.expect("connected");
        client.write(&post(&framing, "")).await.expect("sent");
        let (text, mut n_sent) = ("x".repeat(MIB - 64), 0);
        for n in 0..1024 {
            let piece = match n {
                0 => format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"{text}"),
                1023 => format!("{text}\"}}],\"model\":\"a\"}}"),
                _ => text.clone(),
            };
            let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
            let piece = if framing.starts_with('t') { chunk } else { piece };
            if client.write(piece.as_bytes()).await.is_err() {
                break;
            }
            n_sent = n;
        }
        let answer = client.until("\r\n\r\n").await.expect("a head");
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("body_too_large"), "{answer}");
        assert!(n_sent < 300, "{n_sent} MiB were taken");
    }
    assert_eq!(n_starts(&model), 0);
    is_well(daemon).await;
}

#[tokio::test]
async fn bodies_that_are_deep_or_odd_are_refused_by_us_or_by_the_engine() {
    let (house, _) = house();
    let daemon = house.start().await;
    let nested = |open: &str, close: &str, n| format!("{}{}", open.repeat(n), close.repeat(n));
    for (body, status) in [
        (format!("{{\"model\":\"a\",\"messages\":{}}}", nested("[", "]", MIB)), 400),
        (format!("{{\"model\":\"a\",\"messages\":{}}}", "[".repeat(MIB)), 400),
        (nested("{\"model\":", "}", MIB / 8), 400),
        ("{\"model\":\"\\ud800\",\"messages\":[]}".to_owned(), 400),
        (format!("{{\"model\":\"{}\",\"messages\":[]}}", "a".repeat(MIB)), 400),
        (format!("{{{}\"model\":\"a\",\"model\":\"a\"}}", "\"x\":1,".repeat(MIB / 8)), 400),
        ("{\"model\":\"a\",\"stream\":true,\"stream\":false,\"messages\":[]}".to_owned(), 400),
    ] {
        let headers = format!("connection: close\r\ncontent-length: {}", body.len());
        let answer = said_to(&daemon, &post(&headers, &body)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{:?}: {answer}", &body[..40]);
        assert!(answer.len() < 10_000, "{} bytes of answer", answer.len());
    }
    is_well(daemon).await;
}

#[tokio::test]
async fn uploads_that_break_off_leave_nothing_behind() {
    let (house, model) = house();
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    daemon.until_quiet().await;
    let before = n_descriptors(daemon.pid());
    let begin = format!("{{\"model\":\"a\",\"messages\":[{{\"role\":\"user\",\"content\":\"{}", "x".repeat(6 * MIB));
    for framing in ["content-length: 9000000", "transfer-encoding: chunked"] {
        for _ in 0..8 {
            let mut client = Raw::connect(daemon.address()).await.expect("connected");
            let chunk = format!("{:x}\r\n{begin}", 9 * MIB);
            let body = if framing.starts_with('t') { &chunk } else { &begin };
            client.write(&post(framing, body)).await.expect("sent");
        }
    }
    eventually("their files and sockets are closed", async || (n_descriptors(daemon.pid()) <= before).then_some(()))
        .await;
    let counts = until_count(&model, "active", 0).await;
    assert_eq!(counts["received"], PROBES + 1, "none of them reached the engine: {counts}");
    is_well(daemon).await;
}

#[tokio::test]
async fn streams_that_nobody_reads_are_held_back_and_given_up() {
    let (mut house, _) = house();
    let model = endless(&mut house);
    let daemon = house.start().await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Raw::connect(daemon.address()).await.expect("connected");
        client.post(CHAT, chat("endless", "hello").to_string().as_bytes()).await.expect("sent");
        clients.push(client);
    }
    let counts = until_count(&model, "aborted", 2).await;
    assert_eq!(counts["active"], 0, "{counts}");
    is_well(daemon).await;
}
