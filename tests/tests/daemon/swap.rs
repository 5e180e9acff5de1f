//! Two models of which the budget holds one.
use crate::support::{assert_serves, gate, n_starts, pausing, stream_until, whole_stream};
use motorpool_testkit::{Behaviour, Client, Tokens};
use motorpool_tests::e2e::{
    House,
    processes::is_alive,
    talk::{CHAT, Said, ask, chat},
};
use serde_json::json;

const GIB: u64 = 1 << 30;

#[tokio::test]
async fn a_stream_whose_engine_must_make_room_comes_whole_before_the_other_starts() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let a = house.fake("a", &pausing(40, 20, &go_on));
    let b = house.fake("b", &Behaviour::default());
    let daemon = house.start().await;
    let (stream, mut bytes) = stream_until(&daemon, ("a", "a long story"), 19).await;

    let asked = tokio::spawn({
        let http = daemon.http();
        async move { http.post(CHAT, &ask("b", "quick")).await.expect("an answer") }
    });
    daemon.until_phase("b", &["waits-for-room"]).await;
    let status = daemon.status().await;
    assert_eq!(status.pool.budget_bytes, Some(GIB));
    assert!(status.pool.committed_bytes <= GIB && n_starts(&b) == 0, "{status:#?}");

    let first = a.starts()[0].clone();
    go_on.open().expect("opened");
    bytes += &stream.whole().await.expect("its end").text();
    assert_eq!(Said::read(&bytes), Said::whole("a long story", 40));
    let answer = asked.await.expect("no panic");
    assert_eq!(answer.json()["choices"][0]["message"]["content"], json!(motorpool_testkit::text("quick", 8)));
    assert!(!is_alive(first.pid), "its room was taken");

    // Once more, undisturbed, and from the engine itself: the same bytes.
    assert_eq!(whole_stream(&daemon, "a", "a long story").await, bytes);
    let itself = Client::new(a.starts().pop().expect("started again").endpoint());
    assert_eq!(itself.post(CHAT, &chat("a", "a long story")).await.expect("an answer").text(), bytes);
    assert_eq!((n_starts(&a), n_starts(&b)), (2, 1));
    daemon.stop().await;
}

#[tokio::test]
async fn streams_on_both_come_whole_while_they_take_each_others_room() {
    let mut house = House::new();
    let tokens = Tokens { count: 30, pace_ms: 2, ..Tokens::default() };
    let (a, b) =
        ["a", "b"].map(|id| house.fake(id, &Behaviour { tokens: tokens.clone(), ..Behaviour::default() })).into();
    let daemon = house.start().await;
    let mut streams = tokio::task::JoinSet::new();
    for n in 0..16 {
        let (http, model) = (daemon.http(), if n % 2 == 0 { "a" } else { "b" });
        streams.spawn(async move {
            let prompt = format!("story {n}");
            let answer = http.post(CHAT, &chat(model, &prompt)).await.expect("an answer");
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(Said::read(&answer.text()), Said::whole(&prompt, 30));
        });
    }
    while let Some(done) = streams.join_next().await {
        done.expect("no panic");
        assert!(daemon.status().await.pool.committed_bytes <= GIB);
    }
    assert!(n_starts(&a) >= 1 && n_starts(&b) >= 1);
    for model in ["a", "b", "a"] {
        assert_serves(&daemon, model).await;
    }
    assert!(n_starts(&a) + n_starts(&b) >= 4, "each took the other's room");
    daemon.stop().await;
}

#[tokio::test]
async fn a_model_that_cannot_be_loaded_costs_nobody_its_place() {
    let mut house = House::new();
    let a = house.fake("a", &Behaviour::default());
    let damaged = house.path("models/damaged.gguf");
    let whole = std::fs::read(a.path()).expect("written");
    std::fs::write(&damaged, &whole[..whole.len() / 2]).expect("written");
    house.add_model("damaged", &damaged, "declared = \"600MiB\"\n");
    house.add_model("absent", &house.path("models/absent.gguf"), "declared = \"600MiB\"\n");
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    for (model, class) in [("damaged", "model-corrupt"), ("absent", "model-missing")] {
        let answer = daemon.http().post(CHAT, &chat(model, "hello")).await.expect("an answer");
        let error = crate::support::assert_refused(&answer, 500, "engine_start_failed");
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains(class) && message.contains(&format!("models/{model}.gguf")), "{message}");
        assert_eq!(daemon.until_phase("a", &["ready"]).await.pid, Some(a.starts()[0].pid), "not evicted for it");
    }
    assert_serves(&daemon, "a").await;
    assert_eq!(n_starts(&a), 1);
    daemon.stop().await;
}
