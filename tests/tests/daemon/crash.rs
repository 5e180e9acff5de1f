//! Engines that die while they serve.
use crate::support::{assert_refused, assert_serves, gate, loading_until, n_starts, pausing, stream_until};
use motorpool_testkit::{Behaviour, End, Exit, Moment};
use motorpool_tests::e2e::{
    House,
    daemon::send,
    house::read,
    talk::{CHAT, PROBES, Said, ask, chat, start_number, until_count},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn kill_engine(pid: u32) {
    send(pid, Signal::SIGKILL);
}

#[tokio::test]
async fn a_stream_whose_engine_is_killed_ends_with_a_typed_error_and_the_next_request_gets_a_new_one() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let model = house.fake("a", &pausing(8, 5, &go_on));
    let daemon = house.start().await;
    let (stream, mut events) = stream_until(&daemon, ("a", "hello"), 4).await;
    kill_engine(model.starts()[0].pid);
    events += &stream.whole().await.expect("an orderly end").text();
    let said = Said::read(&events);
    assert_eq!(said.text, motorpool_testkit::text("hello", 5));
    assert!(!said.is_done && said.finish.is_none(), "{events}");
    let error = crate::support::assert_event(&json!({"error": said.error.expect("an event")}));
    assert_eq!(error["code"], "engine_crashed", "{events}");

    go_on.open().expect("opened");
    assert_serves(&daemon, "a").await;
    assert_eq!(n_starts(&model), 2);
    let exit = daemon.status().await.engine("a").expect("it is there").last_exit.clone().expect("a record");
    assert_eq!((&exit["signal"], &exit["reason"]), (&json!(9), &json!("crash")), "{exit}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_request_that_heard_nothing_yet_is_asked_again_of_the_next_engine_byte_for_byte() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let model = house.fake("a", &pausing(8, 0, &go_on));
    let daemon = house.start().await;
    let body = chat("a", "hello");
    let asked = tokio::spawn({
        let (http, body) = (daemon.http(), body.clone());
        async move { http.post(CHAT, &body).await.expect("an answer") }
    });
    let first = until_asked(&model).await;
    kill_engine(model.starts()[0].pid);
    start_number(&model, 2).await;
    go_on.open().expect("opened");
    let answer = asked.await.expect("no panic");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(Said::read(&answer.text()), Said::whole("hello", 8));
    let again = until_count(&model, "received", PROBES + 1).await;
    assert_eq!((&first["last"]["body"], n_starts(&model)), (&json!(body.to_string()), 2));
    assert_eq!(first["last"]["body"], again["last"]["body"]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_request_is_asked_again_once_and_not_for_ever() {
    let mut house = House::new();
    let never = gate(&house, "never");
    let model = house.fake("a", &pausing(8, 0, &never));
    let daemon = house.start().await;
    let asked = tokio::spawn({
        let http = daemon.http();
        async move { http.post(CHAT, &chat("a", "hello")).await.expect("an answer") }
    });
    for n in 1..=2 {
        let pid = start_number(&model, n).await.pid;
        until_asked(&model).await;
        kill_engine(pid);
    }
    assert_refused(&asked.await.expect("no panic"), 502, "engine_crashed");
    assert_eq!(n_starts(&model), 2);
    daemon.stop().await;
}

#[tokio::test]
async fn an_engine_that_dies_while_it_loads_is_noticed_within_100_ms() {
    let mut house = House::new();
    // So many failed starts in a row would be given up for a while.
    house.set("breaker.failures", 0);
    let never = gate(&house, "never");
    let model = house.fake("a", &loading_until(&never));
    let daemon = house.start().await;
    let mut fastest = Duration::MAX;
    // The promise is ours, the delays of a busy machine are not: the best of some.
    for n in 1..=5 {
        let asked = tokio::spawn({
            let http = daemon.http();
            async move { http.post(CHAT, &chat("a", "hello")).await.expect("an answer") }
        });
        let pid = start_number(&model, n).await.pid;
        daemon.until_phase("a", &["starting"]).await;
        let since = Instant::now();
        send(pid, Signal::SIGKILL);
        let error = assert_refused(&asked.await.expect("no panic"), 502, "engine_start_failed");
        fastest = fastest.min(since.elapsed());
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains("signal 9 while loading") && !message.contains("cmd_"), "{message}");
    }
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_crash_is_told_with_its_class_in_the_log_and_in_the_incidents() {
    let mut house = House::new();
    let exit = Exit {
        at: Moment::Token(3),
        how: End::Signal("SIGABRT".into()),
        log: vec!["/src/ggml.c:12: GGML_ASSERT(x > 0) failed".into()],
        first_starts: Some(1),
    };
    let model = house.fake("a", &Behaviour { exit: Some(exit), ..Behaviour::default() });
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &chat("a", "hello")).await.expect("an answer");
    let error = Said::read(&answer.text()).error.expect("an event");
    assert_eq!(error["code"], "engine_crashed");
    assert_serves(&daemon, "a").await;
    let log = daemon.log();
    let line = log.lines().find_map(|line| line.split_once("[llama-server] exit ")).expect("its line").1;
    let told: Value = serde_json::from_str(line).expect("JSON to the end of the line");
    assert_eq!(told["pid"], json!(model.starts()[0].pid));
    assert_eq!((&told["key"], &told["signal"]), (&json!("llama-server:a:0"), &json!(6)));
    assert_eq!((&told["expected"], &told["class"]), (&json!(false), &json!("assertion")));
    let incidents = motorpool_testkit::eventually("the incident is written", async || {
        Some(read(&house.state("incidents.jsonl"))).filter(|text| text.ends_with('\n'))
    })
    .await;
    assert!(incidents.contains("\"class\":\"assertion\""), "{incidents}");
    daemon.stop().await;
    assert_eq!(read(&house.state("incidents.jsonl")).lines().count(), 1, "a stop that was asked for is none");
}

#[tokio::test]
async fn a_reply_in_one_piece_whose_engine_dies_is_an_error_with_a_status() {
    let mut house = House::new();
    let exit = Exit { at: Moment::Token(3), how: End::Code(1), log: vec![], first_starts: None };
    let model = house.fake("a", &Behaviour { exit: Some(exit), ..Behaviour::default() });
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &ask("a", "hello")).await.expect("an answer");
    assert_refused(&answer, 502, "engine_crashed");
    assert!(n_starts(&model) <= 2, "asked again at most once");
    daemon.stop().await;
}

/// The first request has reached the newest engine.
async fn until_asked(model: &motorpool_testkit::FakeModel) -> Value {
    until_count(model, "received", PROBES + 1).await
}
