//! Replicas, queues and events over real processes.
use crate::support::{assert_refused, gate, n_starts, pausing, stream_until};
use http::{Request, header};
use motorpool_testkit::{Answer, Client, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{CHAT, Said, chat},
};
use serde_json::{Value, json};

/// A chat in the background, to its end.
async fn in_background(http: Client, body: Value) -> Answer {
    let request = Request::post(CHAT)
        .header(header::HOST, "localhost")
        .header("x-motorpool-lane", "background")
        .body(body.to_string().into())
        .expect("a request");
    http.send(request).await.expect("a head").whole().await.expect("an answer")
}

/// The queue of the only engine, once so many wait.
async fn pending(daemon: &Daemon<'_>, n: usize) -> Vec<Value> {
    eventually("they wait", async || {
        let whole = daemon.cli(&["queue", "--json"]).await.json();
        whole["engines"][0]["pending"].as_array().filter(|pending| pending.len() == n).cloned()
    })
    .await
}

#[tokio::test]
async fn a_request_that_waits_for_a_slot_gets_a_replica_which_stops_when_it_is_idle() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let lines = "declared = \"300MiB\"\nslots = 1\nreplicas = { max = 2 }\n";
    let model = house.fake_with("a", &pausing(10, 5, &go_on), lines);
    house.set("pool.fan_out_after", "100ms");
    house.set("pool.scale_down_after", "200ms");
    let daemon = house.start().await;
    let (first, first_bytes) = stream_until(&daemon, ("a", "one"), 4).await;
    let (second, second_bytes) = stream_until(&daemon, ("a", "two"), 4).await;
    assert_eq!(n_starts(&model), 2, "neither waits for the other");
    let queue = daemon.cli(&["queue"]).await.stdout;
    assert!(queue.contains("llama-server:a:0") && queue.contains("llama-server:a:1"), "{queue}");
    go_on.open().expect("opened");
    let whole = first_bytes + &first.whole().await.expect("its end").text();
    assert_eq!(Said::read(&whole), Said::whole("one", 10));
    let whole = second_bytes + &second.whole().await.expect("its end").text();
    assert_eq!(Said::read(&whole), Said::whole("two", 10));
    eventually("the second one stops", async || {
        let status = daemon.status().await;
        let phase = |key: &str| status.engines.iter().find(|e| e.key == key).map(|e| e.phase.clone());
        (phase("llama-server:a:1")? == "idle" && phase("llama-server:a:0")? == "ready").then_some(())
    })
    .await;
    let events = daemon.cli(&["events"]).await.stdout;
    assert!(events.lines().any(|line| line.contains("stopping") && line.contains("scale-down")), "{events}");
    let first = daemon.cli(&["events", "--json"]).await.stdout;
    let numbers: Vec<u64> = first
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("one document a line")["seq"].as_u64().expect("a number")
        })
        .collect();
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "without a gap: {numbers:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn an_operator_moves_and_takes_out_whoever_waits() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    house.fake_with("a", &pausing(10, 5, &go_on), "declared = \"300MiB\"\nslots = 1\n");
    house.set("limits.queue_model", 2);
    let daemon = house.start().await;
    let (stream, _) = stream_until(&daemon, ("a", "one"), 4).await;
    let first = tokio::spawn(in_background(daemon.http(), chat("a", "two")));
    let ids = pending(&daemon, 1).await;
    let second = tokio::spawn(in_background(daemon.http(), chat("a", "three")));
    let before = pending(&daemon, 2).await;
    assert_eq!((&before[0]["id"], &before[0]["lane"]), (&ids[0]["id"], &json!("background")));
    assert_refused(&in_background(daemon.http(), chat("a", "four")).await, 429, "queue_full");
    let id = |row: &Value| row["id"].to_string();
    let moved = daemon.cli(&["queue", "move", &id(&before[1]), "up"]).await;
    assert!(moved.code == Some(0) && moved.stdout.contains("went up"), "{moved:?}");
    let after = pending(&daemon, 2).await;
    assert_eq!([&after[0]["id"], &after[1]["id"]], [&before[1]["id"], &before[0]["id"]]);
    assert!(daemon.cli(&["queue", "move", &id(&after[0]), "up"]).await.stdout.contains("stays"));
    assert_eq!(daemon.cli(&["queue", "cancel", &id(&after[0])]).await.code, Some(0));
    assert_refused(&second.await.expect("no panic"), 503, "cancelled");
    assert_ne!(daemon.cli(&["queue", "cancel", &id(&after[0])]).await.code, Some(0), "it does not wait any more");
    go_on.open().expect("opened");
    stream.whole().await.expect("its end");
    let answer = first.await.expect("no panic");
    assert_eq!(Said::read(&answer.text()), Said::whole("two", 10));
    daemon.stop().await;
}

#[tokio::test]
async fn as_many_engines_as_are_wanted_run_and_the_rest_stops() {
    let mut house = House::new();
    let model = house.fake_with("a", &motorpool_testkit::Behaviour::default(), "declared = \"300MiB\"\n");
    let daemon = house.start().await;
    let wanted = |n: u32| json!({ "targets": { "a": n } });
    let reconcile = "/api/motorpool/v1/reconcile";
    let begun = daemon.control().post(reconcile, &wanted(3)).await.expect("an answer").json();
    assert_eq!(begun["starting"], json!(["llama-server:a:0", "llama-server:a:1", "llama-server:a:2"]));
    let serving = async |n: usize| {
        eventually("so many serve", async || {
            let engines = daemon.status().await.engines;
            let living = engines.iter().filter(|e| e.phase != "idle").count();
            (living == n && engines.iter().filter(|e| e.phase == "ready").count() == n).then_some(())
        })
        .await;
    };
    serving(3).await;
    let begun = daemon.control().post(reconcile, &wanted(1)).await.expect("an answer").json();
    assert_eq!((&begun["busy"], begun["stopping"].as_array().map(Vec::len)), (&json!([]), Some(2)));
    serving(1).await;
    assert_eq!(n_starts(&model), 3);
    let wrong = daemon.control().post(reconcile, &json!({"targets": {"nobody": 1}})).await.expect("an answer");
    assert_refused(&wrong, 404, "model_not_found");
    daemon.stop().await;
}
