//! Engines that operators take out of use, and requests that they take out of queues, over real processes.
use crate::support::{assert_refused, assert_serves, gate, n_starts, pausing, stream_until};
use motorpool_testkit::eventually;
use motorpool_tests::e2e::{
    House,
    talk::{CHAT, Said, chat},
};
use serde_json::json;

#[tokio::test]
async fn a_drained_engine_ends_what_it_serves_and_takes_nothing_until_it_is_loaded() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    house.fake("a", &pausing(20, 10, &go_on));
    house.set("pool.drain_wait", "100ms");
    let daemon = house.start().await;
    let (stream, mut events) = stream_until(&daemon, ("a", "hello"), 9).await;
    let drained = daemon.cli(&["drain", "a", "--json"]).await;
    assert_eq!(drained.code, Some(0), "{drained:?}");
    assert_eq!(drained.json(), json!({"draining": ["llama-server:a:0"], "serving": 1}));
    let refused = eventually("it is shut", async || {
        let answer = daemon.http().post(CHAT, &chat("a", "late")).await.expect("an answer");
        (answer.status == 503).then_some(answer)
    })
    .await;
    assert_refused(&refused, 503, "drained");
    go_on.open().expect("opened");
    events += &stream.whole().await.expect("an orderly end").text();
    assert_eq!(Said::read(&events), Said::whole("hello", 20), "nothing was cut");
    daemon.until_phase("a", &["idle"]).await;
    let listed = daemon.cli(&["ps"]).await;
    assert!(listed.stdout.contains("drained"), "{listed:?}");
    let asked = daemon.cli(&["run", "a", "hello"]).await;
    assert!(asked.code == Some(10) && asked.stderr.contains("motorpool load MODEL"), "{asked:?}");
    assert_eq!(daemon.cli(&["load", "a"]).await.code, Some(0));
    assert_serves(&daemon, "a").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_restart_is_another_process_and_force_cuts_what_runs() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let model = house.fake("a", &pausing(20, 10, &go_on));
    let daemon = house.start().await;
    let (stream, mut events) = stream_until(&daemon, ("a", "hello"), 9).await;
    let restarted = daemon.cli(&["restart", "a", "--force", "--json"]).await;
    assert_eq!(restarted.json(), json!({"restarted": ["llama-server:a:0"]}));
    events += &stream.whole().await.expect("an orderly end").text();
    assert_eq!(Said::read(&events).error.expect("an event")["code"], "evicted");
    assert_eq!(n_starts(&model), 2);
    go_on.open().expect("opened");
    assert_eq!(daemon.cli(&["restart", "llama-server:a:0"]).await.code, Some(0));
    assert_eq!(n_starts(&model), 3);
    assert_eq!(daemon.cli(&["restart", "nobody"]).await.code, Some(4));
    daemon.stop().await;
}

#[tokio::test]
async fn a_request_that_waits_is_cancelled_by_its_name_and_the_one_that_is_served_goes_on() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    house.fake_with("a", &pausing(20, 10, &go_on), "slots = 1\n");
    let daemon = house.start().await;
    let (stream, _) = stream_until(&daemon, ("a", "hello"), 9).await;
    let http = daemon.http();
    let waits = tokio::spawn(async move { http.post(CHAT, &chat("a", "second")).await });
    let waiting = eventually("it waits", async || {
        let whole = daemon.cli(&["queue", "--json"]).await.json();
        whole["engines"][0]["pending"][0]["request"].as_str().map(str::to_owned)
    })
    .await;
    assert_eq!(daemon.cli(&["cancel", &waiting]).await.code, Some(0));
    let answer = waits.await.expect("no panic").expect("an answer");
    assert!(answer.text().contains("cancelled"), "{}", answer.text());
    let refused = daemon.cli(&["cancel", &waiting]).await;
    assert!(refused.code == Some(4) && refused.stderr.contains("it is over"), "{refused:?}");
    go_on.open().expect("opened");
    stream.whole().await.expect("an orderly end");
    daemon.stop().await;
}
