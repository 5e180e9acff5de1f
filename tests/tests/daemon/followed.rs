//! One request, followed by its id through gateway, pool and engine.
use http::Request;
use http_body_util::Full;
use motorpool_testkit::{Answer, Behaviour, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{CHAT, ask, peek},
};
use serde_json::Value;

async fn asked(daemon: &Daemon<'_>, model: &str, id: Option<&str>) -> Answer {
    let request = Request::post(CHAT).header("host", "localhost").header("content-type", "application/json");
    let request = match id {
        Some(id) => request.header("x-request-id", id),
        None => request,
    };
    let request = request.body(Full::new(ask(model, "hello").to_string().into())).expect("a request");
    daemon.http().send(request).await.expect("an answer").whole().await.expect("whole")
}

/// The lines of the log about a request, without their fields: who says it, and what.
async fn said_of(daemon: &Daemon<'_>, id: &str, last: &str) -> Vec<(String, String)> {
    eventually("the last line is there", async || {
        let log = daemon.log();
        let lines =
            log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{e}: {line}")));
        let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let layer = |line: &Value| text(line, "target").split(':').next().unwrap_or_default().to_owned();
        let of_it: Vec<_> =
            lines.filter(|line| line["request"] == id).map(|line| (layer(&line), text(&line, "message"))).collect();
        of_it.iter().any(|(_, message)| message == last).then_some(of_it)
    })
    .await
}

#[tokio::test]
async fn one_id_is_in_the_lines_of_gateway_and_pool_in_the_start_it_caused_and_in_what_the_engine_is_asked() {
    let mut house = House::new();
    let model = house.fake("a", &Behaviour::default());
    house.fake_with("big", &Behaviour::default(), "declared = \"2GiB\"\n");
    house.set("log.format", "json");
    house.set("log.level", "debug");
    let daemon = house.start().await;
    let (gateway, pool) = ("motorpool_gateway", "motorpool_supervisor");
    let line = |layer: &str, message: &str| (layer.to_owned(), message.to_owned());
    let answer = asked(&daemon, "a", Some("follow-me-1")).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["x-request-id"]),
        (200, &"follow-me-1".parse().expect("a value"))
    );
    let said = said_of(&daemon, "follow-me-1", "a request was served").await;
    assert_eq!(said, [line(pool, "starting"), line(pool, "granted"), line(gateway, "a request was served")]);
    let seen =
        async || peek(&model, "/fake/requests").await.expect("it runs")["last"]["headers"]["x-request-id"].clone();
    assert_eq!(seen().await, "follow-me-1");
    // One that has none gets one, and its engine hears the same.
    let answer = asked(&daemon, "a", None).await;
    let id = answer.headers["x-request-id"].to_str().expect("a text").to_owned();
    assert_eq!(seen().await, id.as_str());
    assert_eq!(said_of(&daemon, &id, "a request was served").await.len(), 1, "it found its engine ready");
    // One that is refused.
    assert_eq!(asked(&daemon, "big", Some("follow-me-2")).await.status, 503);
    let said = said_of(&daemon, "follow-me-2", "a request failed").await;
    assert_eq!(said, [line(pool, "a build was refused"), line(pool, "refused"), line(gateway, "a request failed")]);
    daemon.stop().await;
}
