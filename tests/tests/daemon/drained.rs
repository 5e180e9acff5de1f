//! Engines that cannot bear an abort (`on_disconnect = "drain"`): what their clients leave is read to its end.
use crate::support::{assert_serves, gate, pausing};
use motorpool_testkit::{FakeModel, Gate, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    raw::Raw,
    talk::{CHAT, PROBES, ask, chat, peek, until_count},
};
use serde_json::{Value, json};

/// A model with one slot whose replies of 20 tokens wait for `gate` before token `before`.
fn patient(house: &mut House, before: u32, gate: &Gate) -> FakeModel {
    house.set("engine.llama-server.on_disconnect", "drain");
    house.fake_with("a", &pausing(20, before, gate), "declared = \"600MiB\"\nslots = 1\n")
}

async fn n_leases(daemon: &Daemon<'_>) -> usize {
    daemon.status().await.engine("a").map_or(0, |engine| engine.leases.len())
}

/// The engine works on for somebody who has gone, then serves somebody else.
async fn assert_finishes(daemon: &Daemon<'_>, model: &FakeModel, go_on: &Gate) {
    // Somebody who waits for the slot is not served meanwhile.
    let mut second = Raw::connect(daemon.address()).await.expect("connected");
    second.post(CHAT, chat("a", "second").to_string().as_bytes()).await.expect("sent");
    let waits = async || daemon.status().await.engine("a").filter(|engine| engine.queue == 1).map(drop);
    eventually("one waits", waits).await;
    let counts = peek(model, "/fake/requests").await.expect("it runs");
    assert_eq!((&counts["active"], &counts["aborted"]), (&json!(1), &json!(0)), "{counts}");
    assert_eq!(n_leases(daemon).await, 1);
    go_on.open().expect("opened");
    second.until("[DONE]").await.expect("its reply");
    let counts: Value = until_count(model, "finished", PROBES + 2).await;
    assert_eq!(counts["aborted"], json!(0), "{counts}");
    daemon.until_quiet().await;
    assert_serves(daemon, "a").await;
}

#[tokio::test]
async fn a_stream_that_is_left_comes_to_its_end_before_its_slot_is_free() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let model = patient(&mut house, 10, &go_on);
    let daemon = house.start().await;
    let mut client = Raw::connect(daemon.address()).await.expect("connected");
    client.post(CHAT, chat("a", "hello").to_string().as_bytes()).await.expect("sent");
    client.until("9\"}").await.expect("it streams");
    drop(client);
    assert_finishes(&daemon, &model, &go_on).await;
    daemon.stop().await;
}

#[tokio::test]
async fn who_leaves_before_the_first_token_or_a_whole_reply_leaves_one_that_comes_to_its_end() {
    for (before, body) in [(0, chat("a", "hello")), (10, ask("a", "hello"))] {
        let mut house = House::new();
        let go_on = gate(&house, "go-on");
        let model = patient(&mut house, before, &go_on);
        let daemon = house.start().await;
        let mut client = Raw::connect(daemon.address()).await.expect("connected");
        client.post(CHAT, body.to_string().as_bytes()).await.expect("sent");
        until_count(&model, "received", PROBES + 1).await;
        until_count(&model, "tokens", PROBES + u64::from(before)).await;
        drop(client);
        assert_finishes(&daemon, &model, &go_on).await;
        daemon.stop().await;
    }
}

#[tokio::test]
async fn who_leaves_the_queue_never_reaches_such_an_engine_either() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let model = patient(&mut house, 10, &go_on);
    let daemon = house.start().await;
    let mut first = Raw::connect(daemon.address()).await.expect("connected");
    first.post(CHAT, chat("a", "hello").to_string().as_bytes()).await.expect("sent");
    first.until("9\"}").await.expect("it streams");
    let mut second = Raw::connect(daemon.address()).await.expect("connected");
    second.post(CHAT, chat("a", "second").to_string().as_bytes()).await.expect("sent");
    let queue = async |n: u32| daemon.status().await.engine("a").filter(|engine| engine.queue == n).map(drop);
    eventually("one waits", async || queue(1).await).await;
    drop(second);
    eventually("nobody waits", async || queue(0).await).await;
    go_on.open().expect("opened");
    first.until("[DONE]").await.expect("its end");
    daemon.until_quiet().await;
    assert_eq!(peek(&model, "/fake/requests").await.expect("it runs")["received"], PROBES + 1);
    daemon.stop().await;
}
