//! What clients of llama.cpp's router rely on, here: models listed with their state, loaded and unloaded by name, given up
//! for each other one at a time, and never while they serve.
use crate::support::{assert_serves, gate, header, n_starts, pausing, stream_until};
use motorpool_testkit::{Answer, Behaviour, Client, FakeModel, Stop, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{Said, ask, chat},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Its own spelling of a chat.
const CHAT: &str = "/chat/completions";
/// Two models of these fit beside each other.
const HALF: &str = "declared = \"400MiB\"\nslots = 1\n";
/// Each of these takes all the room.
const WHOLE: &str = "declared = \"900MiB\"\nslots = 1\n";

fn models<const N: usize>(house: &mut House, ids: [&str; N], lines: &str) -> [FakeModel; N] {
    ids.map(|id| house.fake_with(id, &Behaviour::default(), lines))
}

/// What the list says of a model.
async fn state(daemon: &Daemon<'_>, model: &str) -> String {
    let list = daemon.http().get("/models").await.expect("an answer").json();
    let rows = list["data"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["id"] == model).expect("it is listed");
    row["status"]["value"].as_str().expect("a text").to_owned()
}

async fn until_state(daemon: &Daemon<'_>, model: &str, wanted: &str) {
    let what = format!("{model} is {wanted}");
    eventually(&what, async || (state(daemon, model).await == wanted).then_some(())).await;
}

async fn control(daemon: &Daemon<'_>, verb: &str, model: &str) -> Answer {
    daemon.http().post(&format!("/models/{verb}"), &json!({"model": model})).await.expect("an answer")
}

/// Asks in the background.
fn asking(daemon: &Daemon<'_>, model: &'static str) -> JoinHandle<Answer> {
    let http: Client = daemon.http();
    tokio::spawn(async move { http.post(CHAT, &ask(model, "hello")).await.expect("an answer") })
}

async fn is_answered(asked: JoinHandle<Answer>) {
    let answer = asked.await.expect("no panic");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

async fn until_waits(daemon: &Daemon<'_>, model: &str, n: u32) {
    let what = format!("{n} wait for {model}");
    eventually(&what, async || daemon.status().await.engine(model).filter(|e| e.queue == n).map(drop)).await;
}

#[tokio::test]
async fn it_says_that_it_is_a_router_and_lists_each_model_with_its_state() {
    let mut house = House::new();
    models(&mut house, ["a", "b"], HALF);
    let daemon = house.start().await;
    let list = daemon.http().get("/models").await.expect("an answer").json();
    let rows = list["data"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["status"]["value"] == "unloaded"), "{list}");
    let itself = daemon.http().get("/props").await.expect("an answer").json();
    assert_eq!((&itself["role"], &itself["max_instances"]), (&json!("router"), &json!(rows.len())));
    daemon.stop().await;
}

#[tokio::test]
async fn a_model_is_loaded_and_unloaded_by_its_name() {
    let mut house = House::new();
    let [a] = models(&mut house, ["a"], HALF);
    let daemon = house.start().await;
    let loaded = control(&daemon, "load", "a").await;
    assert_eq!((loaded.status.as_u16(), loaded.json()), (200, json!({"success": true})));
    until_state(&daemon, "a", "loaded").await;
    let again = control(&daemon, "load", "a").await;
    assert_eq!((again.status.as_u16(), &again.json()["error"]["type"]), (400, &json!("invalid_request_error")));
    let unloaded = control(&daemon, "unload", "a").await;
    assert_eq!((unloaded.status.as_u16(), unloaded.json()), (200, json!({"success": true})));
    until_state(&daemon, "a", "unloaded").await;
    assert_eq!(control(&daemon, "load", "none").await.status, 404);
    assert_eq!(n_starts(&a), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_stream_says_its_text_before_its_end_and_a_stranger_none() {
    let mut house = House::new();
    models(&mut house, ["a"], HALF);
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &chat("a", "hello")).await.expect("an answer");
    let events: Vec<Value> = answer
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("data: ").filter(|data| *data != "[DONE]"))
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect();
    let ends = |event: &&Value| event["choices"][0]["finish_reason"].is_string();
    let end = events.iter().find(ends).expect("an end");
    assert!(end["choices"][0]["delta"]["content"].is_null(), "{end}");
    assert_eq!(Said::read(&answer.text()), Said::whole("hello", 8));
    let stranger = daemon.http().post(CHAT, &chat("none", "hello")).await.expect("an answer");
    assert_eq!((stranger.status.as_u16(), &stranger.json()["error"]["code"]), (404, &json!(404)));
    daemon.stop().await;
}

#[tokio::test]
async fn a_third_model_takes_the_place_of_the_one_that_was_used_longest_ago() {
    let mut house = House::new();
    models(&mut house, ["a", "b", "c"], HALF);
    let daemon = house.start().await;
    for model in ["a", "b", "c"] {
        assert_serves(&daemon, model).await;
    }
    until_state(&daemon, "a", "unloaded").await;
    assert_eq!((state(&daemon, "b").await.as_str(), state(&daemon, "c").await.as_str()), ("loaded", "loaded"));
    daemon.stop().await;
}

#[tokio::test]
async fn many_requests_for_one_model_cost_one_other_its_place_and_a_busy_one_none() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let a = house.fake_with("a", &pausing(20, 10, &go_on), HALF);
    let [b, c] = models(&mut house, ["b", "c"], HALF);
    let daemon = house.start().await;
    assert_serves(&daemon, "b").await;
    let (stream, _) = stream_until(&daemon, ("a", "hello"), 9).await;
    let asked: Vec<_> = (0..3).map(|_| asking(&daemon, "c")).collect();
    for one in asked {
        is_answered(one).await;
    }
    go_on.open().expect("opened");
    stream.whole().await.expect("its end");
    daemon.until_quiet().await;
    assert_eq!((state(&daemon, "a").await.as_str(), state(&daemon, "b").await.as_str()), ("loaded", "unloaded"));
    assert_eq!((n_starts(&a), n_starts(&b), n_starts(&c)), (1, 1, 1));
    daemon.stop().await;
}

#[tokio::test]
async fn who_gives_up_while_it_waits_for_room_costs_nobody_a_place() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let a = house.fake_with("a", &pausing(20, 10, &go_on), WHOLE);
    let [b] = models(&mut house, ["b"], WHOLE);
    let daemon = house.start().await;
    let (stream, _) = stream_until(&daemon, ("a", "hello"), 9).await;
    let waits = asking(&daemon, "b");
    until_waits(&daemon, "b", 1).await;
    waits.abort();
    until_waits(&daemon, "b", 0).await;
    go_on.open().expect("opened");
    stream.whole().await.expect("its end");
    daemon.until_quiet().await;
    assert_serves(&daemon, "a").await;
    assert_eq!((n_starts(&a), n_starts(&b)), (1, 0));
    daemon.stop().await;
}

#[tokio::test]
async fn who_waits_for_room_is_served_in_the_order_of_its_coming() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    house.fake_with("a", &pausing(20, 10, &go_on), WHOLE);
    models(&mut house, ["b", "c", "d"], WHOLE);
    let daemon = house.start().await;
    let (stream, _) = stream_until(&daemon, ("a", "hello"), 9).await;
    let mut asked = Vec::new();
    for model in ["b", "c", "d"] {
        asked.push(asking(&daemon, model));
        daemon.until_phase(model, &["waits-for-room"]).await;
    }
    go_on.open().expect("opened");
    stream.whole().await.expect("its end");
    for one in asked {
        is_answered(one).await;
    }
    let log = daemon.log();
    let launches = log.lines().filter_map(|line| line.split_once("[llama-server] launch "));
    let models = launches.map(|(_, line)| serde_json::from_str::<Value>(line).expect("JSON")["model"].clone());
    assert_eq!(models.collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    daemon.stop().await;
}

#[tokio::test]
async fn two_that_want_the_place_of_the_same_model_are_both_served() {
    let mut house = House::new();
    let [a, b, c] = models(&mut house, ["a", "b", "c"], WHOLE);
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let both = [asking(&daemon, "b"), asking(&daemon, "c")];
    for one in both {
        is_answered(one).await;
    }
    assert_eq!(state(&daemon, "a").await, "unloaded");
    assert_eq!((n_starts(&a), n_starts(&b), n_starts(&c)), (1, 1, 1));
    daemon.stop().await;
}

#[tokio::test]
async fn a_model_that_is_on_its_way_out_is_asked_nothing_and_started_anew() {
    let mut house = House::new();
    let may_exit = gate(&house, "may-exit");
    let stop = Stop { gate: Some(may_exit.file()), ..Stop::default() };
    let a = house.fake_with("a", &Behaviour { stop, ..Behaviour::default() }, HALF);
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let unloads = tokio::spawn({
        let http = daemon.http();
        async move { http.post("/models/unload", &json!({"model": "a"})).await.expect("an answer") }
    });
    daemon.until_phase("a", &["stopping"]).await;
    let asked = asking(&daemon, "a");
    until_waits(&daemon, "a", 1).await;
    may_exit.open().expect("opened");
    is_answered(asked).await;
    assert_eq!(unloads.await.expect("no panic").status, 200);
    assert_eq!(n_starts(&a), 2);
    daemon.stop().await;
}

#[tokio::test]
async fn who_shows_no_key_is_told_so_in_its_words_and_who_shows_one_is_served() {
    let mut house = House::new();
    let [a] = models(&mut house, ["a"], HALF);
    house.write_config();
    let made = house.run(&["key", "new", "mine"]).await;
    let daemon = house.start().await;
    let refused = daemon.http().post(CHAT, &ask("a", "hello")).await.expect("an answer");
    assert_eq!((refused.status.as_u16(), header(&refused, "x-motorpool-code")), (401, "invalid_key"));
    let error = &refused.json()["error"];
    assert_eq!((&error["code"], &error["type"]), (&json!(401), &json!("authentication_error")));
    assert_eq!(n_starts(&a), 0);
    let request = http::Request::post(CHAT)
        .header("host", "localhost")
        .header("authorization", format!("Bearer {}", made.stdout.trim()))
        .body(http_body_util::Full::new(ask("a", "hello").to_string().into()))
        .expect("valid");
    let served = daemon.http().send(request).await.expect("an answer").whole().await.expect("its end");
    assert_eq!(served.status, 200, "{}", served.text());
    daemon.stop().await;
}
