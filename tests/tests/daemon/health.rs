//! Engines that are ready and of no use, and such as only look so (supervisor.md §3).
use crate::support::{assert_serves, gate, n_starts, pausing, stream_until, whole_stream};
use motorpool_testkit::{Behaviour, Deaf, Health, Inference, Stop, Switch, Tokens};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{CHAT, PROBES, Said, ask, chat, until_count},
};
use serde_json::{Value, json};

const ONE_SLOT: &str = "declared = \"200MiB\"\nslots = 1\n";

/// How the last engine of `a` ended.
async fn last_exit(daemon: &Daemon<'_>) -> Value {
    motorpool_testkit::eventually("it has ended", async || daemon.status().await.engine("a")?.last_exit.clone()).await
}

#[tokio::test]
async fn an_engine_that_is_healthy_and_fails_every_inference_is_stopped_although_it_is_deaf() {
    let mut house = House::new();
    let broken = house.path("broken");
    let behaviour = Behaviour {
        inference: Inference { fails: Switch::WhileFile(broken.clone()), ..Inference::default() },
        stop: Stop { deaf_to: vec![Deaf::Sigterm, Deaf::ExitCommand], ..Stop::default() },
        ..Behaviour::default()
    };
    house.set("stop.polite", "200ms");
    let model = house.fake("a", &behaviour);
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    std::fs::write(&broken, "").expect("writable");
    for _ in 0..3 {
        let answer = daemon.http().post(CHAT, &ask("a", "hello")).await.expect("an answer");
        assert!(answer.status.is_server_error(), "{}", answer.text());
    }
    let exit = last_exit(&daemon).await;
    assert_eq!((&exit["reason"], &exit["signal"]), (&json!("health"), &json!(9)), "{exit}");
    std::fs::remove_file(&broken).expect("ours");
    assert_serves(&daemon, "a").await;
    assert_eq!(n_starts(&model), 2);
    daemon.stop().await;
}

#[tokio::test]
async fn failures_that_one_inference_disproves_cost_nobody_his_engine() {
    let mut house = House::new();
    let broken = house.path("broken");
    let fails = Switch::WhileFile(broken.clone());
    let behaviour = Behaviour { inference: Inference { fails, ..Inference::default() }, ..Behaviour::default() };
    house.set("health.failures", 2);
    let model = house.fake("a", &behaviour);
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    std::fs::write(&broken, "").expect("writable");
    let answer = daemon.http().post(CHAT, &ask("a", "hello")).await.expect("an answer");
    assert!(answer.status.is_server_error(), "{}", answer.text());
    std::fs::remove_file(&broken).expect("ours");
    // The row is over: one more failure is the first again.
    assert_serves(&daemon, "a").await;
    std::fs::write(&broken, "").expect("writable");
    let answer = daemon.http().post(CHAT, &ask("a", "hello")).await.expect("an answer");
    assert!(answer.status.is_server_error(), "{}", answer.text());
    std::fs::remove_file(&broken).expect("ours");
    assert_serves(&daemon, "a").await;
    assert_eq!(n_starts(&model), 1);
    assert!(!daemon.log().contains("suspect"), "{}", daemon.log());
    daemon.stop().await;
}

#[tokio::test]
async fn a_stream_in_which_nothing_moves_is_cut_with_a_typed_error_and_the_next_request_is_served() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    house.set("health.silent", "500ms");
    let model = house.fake_with("a", &pausing(8, 3, &go_on), ONE_SLOT);
    let daemon = house.start().await;
    let (stream, mut events) = stream_until(&daemon, ("a", "hello"), 2).await;
    events += &stream.whole().await.expect("an orderly end").text();
    let error = Said::read(&events).error.expect("an event");
    assert_eq!(error["code"], "engine_crashed", "{events}");
    assert_eq!(last_exit(&daemon).await["reason"], json!("health"));
    go_on.open().expect("opened");
    assert_serves(&daemon, "a").await;
    assert_eq!(n_starts(&model), 2);
    daemon.stop().await;
}

#[tokio::test]
async fn a_request_on_an_engine_that_was_stopped_because_it_hung_hangs_no_second_one() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    house.set("health.silent", "500ms");
    let model = house.fake_with("a", &pausing(8, 0, &go_on), ONE_SLOT);
    let daemon = house.start().await;
    let asked = tokio::spawn({
        let http = daemon.http();
        async move { http.post(CHAT, &chat("a", "hello")).await.expect("an answer") }
    });
    let answer = asked.await.expect("no panic");
    assert_eq!(answer.status.as_u16(), 502, "{}", answer.text());
    assert_eq!(answer.headers["x-motorpool-code"], "engine_crashed");
    assert!(answer.text().contains("unresponsive"), "{}", answer.text());
    assert_eq!(last_exit(&daemon).await["class"], json!("unresponsive"));
    assert_eq!(n_starts(&model), 1);
    go_on.open().expect("opened");
    assert_serves(&daemon, "a").await;
    daemon.stop().await;
}

#[tokio::test]
async fn while_tokens_flow_nothing_else_counts() {
    let mut house = House::new();
    let hung = house.path("hung");
    let behaviour = Behaviour {
        health: Health { hangs: Switch::WhileFile(hung.clone()), ..Health::default() },
        tokens: Tokens { count: 100, pace_ms: 30, ..Tokens::default() },
        ..Behaviour::default()
    };
    // Asked at all, it would be suspect after one second, and the stream takes three.
    for (key, value) in [("health.every", "500ms"), ("health.timeout", "500ms")] {
        house.set(key, value);
    }
    house.set("health.misses", 1);
    let model = house.fake("a", &behaviour);
    let daemon = house.start().await;
    let loaded = daemon.cli(&["load", "a"]).await;
    assert_eq!(loaded.code, Some(0), "{loaded:?}");
    std::fs::write(&hung, "").expect("writable");
    let events = whole_stream(&daemon, "a", "hello").await;
    let log = daemon.log();
    assert!(Said::read(&events).is_done && !log.contains("suspect"), "{log}");
    assert_eq!(n_starts(&model), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_busy_engine_is_asked_for_no_inference_and_a_free_one_is_believed_by_it() {
    let mut house = House::new();
    let (hung, go_on) = (house.path("hung"), gate(&house, "go-on"));
    let health = Health { hangs: Switch::WhileFile(hung.clone()), ..Health::default() };
    let behaviour = Behaviour { health, ..pausing(8, 3, &go_on) };
    for (key, value) in [("health.every", "200ms"), ("health.timeout", "200ms")] {
        house.set(key, value);
    }
    house.set("health.misses", 2);
    let model = house.fake_with("a", &behaviour, ONE_SLOT);
    let daemon = house.start().await;
    let (stream, mut events) = stream_until(&daemon, ("a", "hello"), 2).await;
    std::fs::write(&hung, "").expect("writable");
    daemon.until_phase("a", &["suspect"]).await;
    until_count(&model, "received", PROBES + 1).await;
    go_on.open().expect("opened");
    events += &stream.whole().await.expect("its end").text();
    assert!(Said::read(&events).is_done, "{events}");
    // Its slot is free, and its health still hangs: now it is asked, and what it answers counts.
    let asked = async || {
        let counts = motorpool_tests::e2e::talk::peek(&model, "/fake/requests").await?;
        (counts["received"].as_u64()? > PROBES + 1).then_some(())
    };
    motorpool_testkit::eventually("it is asked for an inference", asked).await;
    std::fs::remove_file(&hung).expect("ours");
    daemon.until_phase("a", &["ready"]).await;
    assert_serves(&daemon, "a").await;
    assert_eq!(n_starts(&model), 1);
    daemon.stop().await;
}
