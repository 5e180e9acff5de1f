//! Which headers reach an engine, and which of its own come back.
use crate::support::assert_serves;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use motorpool_testkit::{Answer, Behaviour};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{CHAT, ask, chat, peek},
};
use serde_json::{Value, json};

/// Sends headers that an engine must not see among some that it may.
async fn send(daemon: &Daemon<'_>, body: &Value, path: &str) -> Answer {
    let request = Request::post(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "text/event-stream")
        .header("user-agent", "a-client/1.0")
        .header("openai-organization", "org")
        .header("anthropic-version", "2023-06-01")
        .header("x-stainless-lang", "rust")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .header("x-request-id", "mine-1")
        .header("authorization", "Bearer secret")
        .header("x-api-key", "secret")
        .header("api-key", "secret")
        .header("proxy-authorization", "Basic secret")
        .header("cookie", "session=secret")
        .header("referer", "http://localhost/page")
        .header("x-motorpool-session", "s")
        .header("x-conversation-id", "c")
        .header("x-whatever", "w")
        .header("connection", "x-stainless-os, keep-alive")
        .header("x-stainless-os", "named by connection")
        .body(Full::new(Bytes::from(body.to_string())))
        .expect("valid");
    daemon.http().send(request).await.expect("an answer").whole().await.expect("its end")
}

const PASS: [&str; 11] = [
    "accept",
    "anthropic-version",
    "content-length",
    "content-type",
    "host",
    "openai-organization",
    "traceparent",
    "transfer-encoding",
    "user-agent",
    "x-request-id",
    "x-stainless-lang",
];

#[tokio::test]
async fn an_engine_sees_no_key_no_cookie_and_nothing_of_ours() {
    let mut house = House::new();
    let model = house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    for (body, path) in
        [(chat("a", "hello"), CHAT), (ask("a", "hello"), CHAT), (ask("a", "hello"), "/m/a/v1/chat/completions")]
    {
        let answer = send(&daemon, &body, path).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let counts = peek(&model, "/fake/requests").await.expect("it runs");
        let reached = counts["last"]["headers"].as_object().expect("headers");
        for (name, value) in reached {
            assert!(PASS.contains(&name.as_str()), "{name}: {value} reached the engine by {path}");
        }
        assert!(!counts.to_string().contains("secret"), "{counts}");
        for (name, value) in [
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ("x-request-id", "mine-1"),
            ("x-stainless-lang", "rust"),
            ("openai-organization", "org"),
            ("user-agent", "a-client/1.0"),
        ] {
            assert_eq!(reached[name], json!(value), "{name}");
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_client_sees_ours_and_not_the_engines() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    for body in [chat("a", "hello"), ask("a", "hello")] {
        let answer = send(&daemon, &body, CHAT).await;
        for name in ["server", "access-control-allow-origin", "keep-alive", "set-cookie"] {
            assert!(!answer.headers.contains_key(name), "{name}: {:?}", answer.headers);
        }
        assert_eq!(answer.headers["x-request-id"], "mine-1");
        if body["stream"] == json!(true) {
            assert_eq!(answer.headers["content-type"], "text/event-stream");
            assert_eq!(
                (&answer.headers["x-accel-buffering"], &answer.headers["cache-control"]),
                (&"no".parse().expect("valid"), &"no-cache".parse().expect("valid"))
            );
        } else {
            assert!(answer.headers["content-type"].as_bytes().starts_with(b"application/json"));
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn pages_of_others_and_names_of_others_are_turned_away() {
    let mut house = House::new();
    let model = house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    let body = chat("a", "hello").to_string();
    for (name, value, code) in [
        ("origin", "https://evil.example", "origin_not_allowed"),
        ("sec-fetch-site", "cross-site", "origin_not_allowed"),
        ("host", "evil.example", "host_not_allowed"),
    ] {
        let mut request = Request::post(CHAT).header("content-type", "application/json");
        if name != "host" {
            request = request.header("host", "localhost");
        }
        let request = request.header(name, value).body(Full::new(Bytes::from(body.clone()))).expect("valid");
        let answer = daemon.http().send(request).await.expect("an answer").whole().await.expect("its end");
        crate::support::assert_refused(&answer, 403, code);
    }
    assert_eq!(model.starts(), []);
    daemon.stop().await;
}
