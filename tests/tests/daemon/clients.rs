//! Clients that go away, in every phase: their slot is free at once and nobody works for them.
use crate::support::{assert_serves, gate, loading_until, n_starts, pausing, stream_until};
use motorpool_testkit::{Aborts, Behaviour, FakeModel, Gate, Inference, Tokens, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    raw::Raw,
    talk::{CHAT, PROBES, ask, chat, peek, start_number, until_count},
};
use serde_json::json;

/// A model with one slot whose replies wait for `gate` before token `before`.
fn one_slot(house: &mut House, before: u32, gate: &Gate) -> FakeModel {
    house.fake_with("a", &pausing(20, before, gate), "declared = \"600MiB\"\nslots = 1\n")
}

async fn until_queue(daemon: &Daemon<'_>, n: u32) {
    let what = format!("{n} wait");
    eventually(&what, async || daemon.status().await.engine("a").filter(|e| e.queue == n).map(drop)).await;
}

/// The engine has nothing in work and the daemon holds no lease; the slot serves somebody else.
async fn assert_free(daemon: &Daemon<'_>, model: &FakeModel, go_on: &Gate) {
    let counts = until_count(model, "active", 0).await;
    assert_eq!((&counts["aborted"], &counts["finished"]), (&json!(1), &json!(PROBES)), "{counts}");
    daemon.until_quiet().await;
    go_on.open().expect("opened");
    assert_serves(daemon, "a").await;
    assert_eq!(n_starts(model), 1);
}

#[tokio::test]
async fn one_that_leaves_the_queue_never_reaches_the_engine() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let model = one_slot(&mut house, 10, &go_on);
    let daemon = house.start().await;
    let (stream, _) = stream_until(&daemon, ("a", "first"), 9).await;
    let mut second = Raw::connect(daemon.address()).await.expect("connected");
    second.post(CHAT, chat("a", "second").to_string().as_bytes()).await.expect("sent");
    until_queue(&daemon, 1).await;
    drop(second);
    until_queue(&daemon, 0).await;
    go_on.open().expect("opened");
    stream.whole().await.expect("its end");
    daemon.until_quiet().await;
    assert_eq!(peek(&model, "/fake/requests").await.expect("it runs")["received"], PROBES + 1);
    daemon.stop().await;
}

#[tokio::test]
async fn one_that_leaves_while_its_model_loads_never_reaches_the_engine() {
    let mut house = House::new();
    let load = gate(&house, "load");
    let model = house.fake("a", &loading_until(&load));
    let daemon = house.start().await;
    let mut client = Raw::connect(daemon.address()).await.expect("connected");
    client.post(CHAT, chat("a", "hello").to_string().as_bytes()).await.expect("sent");
    start_number(&model, 1).await;
    until_queue(&daemon, 1).await;
    drop(client);
    until_queue(&daemon, 0).await;
    load.open().expect("opened");
    daemon.until_phase("a", &["ready"]).await;
    assert_eq!(peek(&model, "/fake/requests").await.expect("it runs")["received"], PROBES);
    assert_serves(&daemon, "a").await;
    assert_eq!(n_starts(&model), 1, "a load that nobody waits for is let finish");
    daemon.stop().await;
}

#[tokio::test]
async fn one_that_leaves_during_prefill_frees_its_slot() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let model = one_slot(&mut house, 0, &go_on);
    let daemon = house.start().await;
    let mut client = Raw::connect(daemon.address()).await.expect("connected");
    client.post(CHAT, chat("a", "hello").to_string().as_bytes()).await.expect("sent");
    until_count(&model, "received", PROBES + 1).await;
    drop(client);
    assert_free(&daemon, &model, &go_on).await;
    daemon.stop().await;
}

#[tokio::test]
async fn one_that_leaves_its_stream_frees_its_slot() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let model = one_slot(&mut house, 10, &go_on);
    let daemon = house.start().await;
    drop(stream_until(&daemon, ("a", "hello"), 9).await);
    assert_free(&daemon, &model, &go_on).await;
    daemon.stop().await;
}

#[tokio::test]
async fn one_that_leaves_a_reply_in_one_piece_frees_its_slot_although_the_engine_heeds_only_streams() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let model = one_slot(&mut house, 10, &go_on);
    let daemon = house.start().await;
    let mut client = Raw::connect(daemon.address()).await.expect("connected");
    client.post(CHAT, ask("a", "hello").to_string().as_bytes()).await.expect("sent");
    until_count(&model, "tokens", PROBES + 10).await;
    assert!(client.is_silent());
    drop(client);
    assert_free(&daemon, &model, &go_on).await;
    daemon.stop().await;
}

#[tokio::test]
async fn one_that_closes_its_half_is_gone_too() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let model = one_slot(&mut house, 10, &go_on);
    let daemon = house.start().await;
    let mut client = Raw::connect(daemon.address()).await.expect("connected");
    client.post(CHAT, chat("a", "hello").to_string().as_bytes()).await.expect("sent");
    client.until("9\"}").await.expect("it streams");
    client.close_half().await.expect("it was open");
    assert_free(&daemon, &model, &go_on).await;
    daemon.stop().await;
}

#[tokio::test]
async fn one_that_reads_nothing_is_gone() {
    let mut house = House::new();
    // More than the buffers of all sockets on the way hold.
    let tokens = Tokens { count: 1_000_000, ..Tokens::default() };
    let behaviour = Behaviour { tokens, ..Behaviour::default() };
    let model = house.fake_with("a", &behaviour, "declared = \"600MiB\"\nslots = 1\n");
    house.set("limits.write_stall", "1s");
    let daemon = house.start().await;
    let mut client = Raw::connect(daemon.address()).await.expect("connected");
    client.post(CHAT, chat("a", "hello").to_string().as_bytes()).await.expect("sent");
    until_count(&model, "received", PROBES + 1).await;
    let counts = until_count(&model, "active", 0).await;
    assert_eq!(counts["aborted"], json!(1), "{counts}");
    daemon.until_quiet().await;
    drop(client);
    daemon.stop().await;
}

#[tokio::test]
async fn the_slot_of_an_engine_that_heeds_nobody_is_given_on_all_the_same() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let inference = Inference { aborts: Aborts::Never, ..Inference::default() };
    let behaviour = Behaviour { inference, ..pausing(20, 10, &go_on) };
    let model = house.fake_with("a", &behaviour, "declared = \"600MiB\"\nslots = 1\n");
    let daemon = house.start().await;
    drop(stream_until(&daemon, ("a", "hello"), 9).await);
    daemon.until_quiet().await;
    assert_eq!(peek(&model, "/fake/requests").await.expect("it runs")["active"], 1, "it goes on");
    go_on.open().expect("opened");
    assert_serves(&daemon, "a").await;
    daemon.stop().await;
}
