//! Forms with files from clients that mean harm: their lease begins while they still arrive, so one that breaks off, stops
//! or never ends must give it back.
use crate::{
    hostile::{is_well, said_to},
    support::n_starts,
};
use motorpool_testkit::{Behaviour, FakeModel, eventually};
use motorpool_tests::e2e::{Daemon, House, processes::n_descriptors, raw::Raw};

const MIB: usize = 1 << 20;
const CHUNKED: &str = "transfer-encoding: chunked";

fn house() -> (House, FakeModel) {
    let mut house = House::new();
    let lines = "declared = \"600MiB\"\nslots = 1\ncapabilities = [\"chat\", \"transcription\"]\n";
    let model = house.fake_with("a", &Behaviour::default(), lines);
    house.set("limits.write_stall", "1s");
    (house, model)
}

fn head(boundary: &str, framing: &str) -> String {
    format!(
        "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: multipart/form-data; boundary={boundary}\r\n{framing}\r\n\r\n"
    )
}

fn part(name: &str, content: &str) -> String {
    format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

async fn begun(daemon: &Daemon<'_>) -> Raw {
    let mut client = Raw::connect(daemon.address()).await.expect("connected");
    let form = part("model", "a") + "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nRIFF";
    client.write((head("b", CHUNKED) + &chunk(&form)).as_bytes()).await.expect("sent");
    eventually("it has its lease", async || {
        daemon.status().await.engine("a").filter(|engine| !engine.leases.is_empty()).map(drop)
    })
    .await;
    client
}

#[tokio::test]
async fn forms_that_break_off_or_stop_give_their_lease_back() {
    let (house, model) = house();
    let daemon = house.start().await;
    drop(begun(&daemon).await);
    daemon.until_quiet().await;
    let before = n_descriptors(daemon.pid());
    for _ in 0..4 {
        drop(begun(&daemon).await);
    }
    daemon.until_quiet().await;
    // It says no more, and goes on listening.
    let stopped = begun(&daemon).await;
    daemon.until_quiet().await;
    drop(stopped);
    eventually("their files and sockets are closed", async || (n_descriptors(daemon.pid()) <= before).then_some(()))
        .await;
    assert_eq!(n_starts(&model), 1);
    is_well(daemon).await;
}

#[tokio::test]
async fn forms_that_are_none_are_refused_and_reach_no_engine() {
    let (house, model) = house();
    let daemon = house.start().await;
    let long = "x".repeat(MIB);
    for (boundary, form) in [
        ("b", long.clone()),
        ("b", format!("{long}--b\r\n")),
        ("b", format!("--b\r\n{long}")),
        ("b", format!("--b\r\n{}", "x: y\r\n".repeat(10_000))),
        ("b", part("model", &long)),
        ("b", part("model", "\u{fffd}\0")),
        ("b", "--b\r\n".repeat(10_000)),
        ("b", part("file", &long)),
        ("", part("model", "a")),
        (&*"b".repeat(200), part("model", "a")),
        ("\"b", part("model", "a")),
    ] {
        let framing = format!("content-length: {}", form.len());
        let answer = said_to(&daemon, (head(boundary, &framing) + &form).as_bytes()).await;
        let is_refused = ["HTTP/1.1 400 ", "HTTP/1.1 404 "].iter().any(|status| answer.starts_with(status));
        assert!(is_refused, "{boundary:?} {:?}: {answer}", form.chars().take(60).collect::<String>());
    }
    assert_eq!(n_starts(&model), 0);
    is_well(daemon).await;
}

#[tokio::test]
async fn a_gibibyte_before_the_models_name_or_behind_it_is_refused_at_the_limit_and_costs_no_memory() {
    let (house, _) = house();
    let daemon = house.start().await;
    let file = "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n";
    for begin in [file.to_owned(), part("model", "a") + file] {
        let mut client = Raw::connect(daemon.address()).await.expect("connected");
        client.write((head("b", CHUNKED) + &chunk(&begin)).as_bytes()).await.expect("sent");
        let (piece, mut n_sent) = (chunk(&"x".repeat(MIB)), 0);
        while n_sent < 1024 && client.write(piece.as_bytes()).await.is_ok() {
            n_sent += 1;
        }
        assert!(n_sent < 300, "{n_sent} MiB were taken");
        let answer = client.until("\r\n\r\n").await.expect("a head");
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
    is_well(daemon).await;
}
