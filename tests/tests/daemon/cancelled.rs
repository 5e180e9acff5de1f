//! Requests that an operator ends while an engine works on them: what their clients hear, and that nothing of them is left.
use crate::support::{assert_refused, assert_serves, gate, pausing};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use motorpool_testkit::{Answer, Client, FakeModel, Gate, Incoming, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{CHAT, ask, chat, peek, until_count},
};
use serde_json::{Value, json};

/// A house whose model has one slot and stops before its fifth token.
fn house() -> (House, FakeModel, Gate) {
    house_with(1)
}

/// The same with so many slots.
fn house_with(n_slots: u32) -> (House, FakeModel, Gate) {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let lines = format!("declared = \"600MiB\"\nslots = {n_slots}\n");
    let model = house.fake_with("a", &pausing(20, 5, &go_on), &lines);
    (house, model, go_on)
}

fn named(path: &str, name: &str, body: &Value) -> Request<Full<Bytes>> {
    let request = Request::post(path).header("host", "localhost").header("content-type", "application/json");
    request.header("x-request-id", name).body(Full::new(Bytes::from(body.to_string()))).expect("a request")
}

/// A stream of this family that has come as far as its fourth token.
async fn begun(http: &Client, (path, name, body): (&str, &str, &Value)) -> (Incoming, String) {
    let mut stream = http.send(named(path, name, body)).await.expect("a head");
    assert_eq!(stream.status, 200);
    let seen = stream.until("4\"").await.expect("it goes on");
    (stream, seen)
}

async fn cancel(daemon: &Daemon<'_>, name: &str) -> Answer {
    let path = format!("/api/motorpool/v1/requests/{name}/cancel");
    daemon.control().post(&path, &json!({})).await.expect("an answer")
}

/// The engine noticed, and whoever comes next is served although nobody let the first one go on.
async fn assert_left(daemon: &Daemon<'_>, model: &FakeModel, n: u64) {
    until_count(model, "aborted", n).await;
    daemon.until_quiet().await;
    let slots = peek(model, "/slots").await.expect("it runs");
    assert_eq!(slots[0]["is_processing"], json!(false), "{slots}");
}

#[tokio::test]
async fn a_stream_that_is_cancelled_ends_with_the_error_event_of_its_api_and_leaves_nothing() {
    let (house, model, go_on) = house();
    let daemon = house.start().await;
    let content = |text: &str| json!([{"role": "user", "content": text}]);
    let families = [
        (CHAT, chat("a", "one"), "data: {\"error\":{", "\n\n"),
        (
            "/v1/messages",
            json!({"model": "a", "max_tokens": 64, "stream": true, "messages": content("two")}),
            "event: error\ndata: {\"type\":\"error\"",
            "\n\n",
        ),
        (
            "/v1/responses",
            json!({"model": "a", "stream": true, "input": "three"}),
            "event: error\ndata: {\"type\":\"error\",\"code\":\"cancelled\"",
            "\n\n",
        ),
        ("/completion", json!({"model": "a", "stream": true, "prompt": "four"}), "data: {\"error\":{", "\n\n"),
        ("/api/chat", json!({"model": "a", "messages": content("five")}), "{\"error\":\"", "\n"),
    ];
    for (n, (path, body, begin, end)) in (1..).zip(&families) {
        let name = format!("mine-{n}");
        let (stream, seen) = begun(&daemon.http(), (path, &name, body)).await;
        let done = cancel(&daemon, &name).await;
        assert_eq!((done.status.as_u16(), done.json()), (200, json!({"changed": true})), "{path}");
        let rest = stream.whole().await.unwrap_or_else(|e| panic!("{path}: an orderly end: {e}")).text();
        let at = rest.find(begin).unwrap_or_else(|| panic!("{path}: {seen}{rest}"));
        assert!(rest[at..].contains("an operator cancelled this request") && rest.ends_with(end), "{path}: {rest}");
        assert!(!rest.contains("[DONE]"), "{path}: {rest}");
        assert_left(&daemon, &model, n).await;
        assert_refused(&cancel(&daemon, &name).await, 404, "not_found");
    }
    go_on.open().expect("opened");
    assert_serves(&daemon, "a").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_whole_reply_that_is_cancelled_is_a_refusal_and_its_number_is_as_good_as_its_name() {
    let (house, model, go_on) = house();
    let daemon = house.start().await;
    for (n, (path, body)) in [
        (CHAT, ask("a", "one")),
        ("/v1/messages", json!({"model": "a", "max_tokens": 64, "messages": [{"role": "user", "content": "two"}]})),
    ]
    .iter()
    .enumerate()
    {
        let (http, request) = (daemon.http(), named(path, &format!("mine-{n}"), body));
        let asked = tokio::spawn(async move { http.send(request).await.expect("a head").whole().await });
        let number = eventually("it is served", async || {
            until_count(&model, "active", 1).await;
            let whole = daemon.cli(&["queue", "--json"]).await.json();
            whole["engines"][0]["active"][0]["id"].as_u64()
        })
        .await;
        let told = daemon.cli(&["cancel", &number.to_string()]).await;
        assert_eq!(told.code, Some(0), "{told:?}");
        let answer = asked.await.expect("no panic").expect("an answer");
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
        assert!(answer.text().contains("cancelled"), "{path}: {}", answer.text());
        assert_left(&daemon, &model, n as u64 + 1).await;
    }
    let row = eventually("both requests have their row", async || {
        let usage = daemon.cli(&["usage", "--json"]).await.json();
        Some(usage["rows"][0].clone()).filter(|row| row["requests"] == 2)
    })
    .await;
    assert_eq!([&row["errors"], &row["aborted"]], [&json!(2), &json!(0)], "{row}");
    go_on.open().expect("opened");
    assert_serves(&daemon, "a").await;
    daemon.stop().await;
}

/// The numbers of those that are served and of those that wait, once there are so many.
async fn numbers(daemon: &Daemon<'_>, n: (usize, usize)) -> (Vec<u64>, Vec<u64>) {
    eventually(&format!("{n:?} are served and wait"), async || {
        let queue = daemon.cli(&["queue", "--json"]).await.json();
        let of = |list: &str| -> Vec<u64> {
            let rows = queue["engines"][0][list].as_array().into_iter().flatten();
            rows.filter_map(|row| row["id"].as_u64()).collect()
        };
        let found = (of("active"), of("pending"));
        ((found.0.len(), found.1.len()) == n).then_some(found)
    })
    .await
}

/// Two clients of one name are served and a third one waits.
async fn three_of_one_name(daemon: &Daemon<'_>) -> Vec<tokio::task::JoinHandle<Answer>> {
    let mut asked = vec![];
    for n in [(1, 0), (2, 0), (2, 1)] {
        let (http, request) = (daemon.http(), named(CHAT, "mine", &ask("a", "one")));
        asked.push(tokio::spawn(
            async move { http.send(request).await.expect("a head").whole().await.expect("an answer") },
        ));
        numbers(daemon, n).await;
    }
    asked
}

#[tokio::test]
async fn a_number_ends_exactly_one_request_and_a_name_all_of_that_name_whether_they_wait_or_are_served() {
    let (house, model, go_on) = house_with(2);
    let daemon = house.start().await;
    let asked = three_of_one_name(&daemon).await;
    let (served, waits) = numbers(&daemon, (2, 1)).await;
    // The second of those that are served: the first and the one that waits have its name too.
    let told = daemon.cli(&["cancel", &served[1].to_string()]).await;
    assert_eq!(told.code, Some(0), "{told:?}");
    let (left, none) = numbers(&daemon, (2, 0)).await;
    assert_eq!((left, none), (vec![served[0], waits[0]], vec![]), "the other two go on");
    let (http, request) = (daemon.http(), named(CHAT, "mine", &ask("a", "one")));
    let fourth =
        tokio::spawn(async move { http.send(request).await.expect("a head").whole().await.expect("an answer") });
    let (_, waits) = numbers(&daemon, (2, 1)).await;
    assert_eq!(cancel(&daemon, &waits[0].to_string()).await.json(), json!({"changed": true}));
    assert_eq!(fourth.await.expect("no panic").status, 503);
    numbers(&daemon, (2, 0)).await;
    let told = daemon.cli(&["cancel", "mine"]).await;
    assert_eq!(told.code, Some(0), "{told:?}");
    for asked in asked {
        let answer = asked.await.expect("no panic");
        assert_eq!(answer.status, 503, "{}", answer.text());
    }
    assert_left(&daemon, &model, 3).await;
    let asked = three_of_one_name(&daemon).await;
    assert_eq!(cancel(&daemon, "mine").await.json(), json!({"changed": true}));
    for asked in asked {
        let answer = asked.await.expect("no panic");
        assert_eq!(answer.status, 503, "waiting or served: {}", answer.text());
    }
    daemon.until_quiet().await;
    go_on.open().expect("opened");
    assert_serves(&daemon, "a").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_keeps_nothing_of_a_request_that_was_cancelled() {
    let mut house = House::new();
    // More than every buffer on the way holds.
    let behaviour = motorpool_testkit::Behaviour {
        tokens: motorpool_testkit::Tokens { count: 400_000, ..motorpool_testkit::Tokens::default() },
        ..motorpool_testkit::Behaviour::default()
    };
    let model = house.fake_with("a", &behaviour, "declared = \"600MiB\"\nslots = 1\n");
    let daemon = house.start().await;
    let (stream, _) = begun(&daemon.http(), (CHAT, "mine", &chat("a", "one"))).await;
    assert_eq!(cancel(&daemon, "mine").await.status, 200);
    assert_left(&daemon, &model, 1).await;
    drop(stream);
    daemon.stop().await;
}
