//! Bodies that are wrong, and models that are not there.
use crate::support::{assert_refused, assert_serves, header};
use motorpool_testkit::{Answer, Behaviour};
use motorpool_tests::e2e::{
    Daemon, House,
    processes::memory_kib,
    raw::Raw,
    talk::{CHAT, Said, chat},
};
use serde_json::Value;

/// Any bytes as the body.
async fn post(daemon: &Daemon<'_>, body: impl Into<bytes::Bytes>) -> Answer {
    let request = http::Request::post(CHAT).header("host", "localhost").header("content-type", "application/json");
    let request = request.body(http_body_util::Full::new(body.into())).expect("valid");
    daemon.http().send(request).await.expect("an answer").whole().await.expect("its end")
}

fn message(error: &Value) -> &str {
    error["message"].as_str().expect("a text")
}

#[tokio::test]
async fn an_unknown_model_is_told_with_the_nearest_names() {
    let mut house = House::new();
    house.fake("mistral-small", &Behaviour::default());
    house.fake_with("other", &Behaviour::default(), "declared = \"600MiB\"\naliases = [\"gpt-4o\"]\n");
    let daemon = house.start().await;
    for (name, nearest) in [("mistral-smal", "mistral-small"), ("gpt-4", "gpt-4o")] {
        let error = assert_refused(&post(&daemon, chat(name, "hello").to_string()).await, 404, "model_not_found");
        assert!(
            message(&error).contains(&format!("`{name}`")) && message(&error).contains(&format!("`{nearest}`")),
            "{error}"
        );
        assert_eq!(error["param"], "model");
    }
    let outcome = daemon.cli(&["load", "mistral-smal"]).await;
    assert_eq!(outcome.code, Some(4), "{outcome:?}");
    assert!(outcome.stderr.contains("mistral-small"), "{outcome:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_body_that_is_no_request_is_refused_and_says_what_is_wrong() {
    let mut house = House::new();
    let model = house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    for (body, says) in [
        (&br#"{"messages":[]}"#[..], "model"),
        (br#"{"model":"a","messages":[],"model":"a"}"#, "model"),
        (br#"{"model":"a","messages":[],"model":"b"}"#, "model"),
        (br#"{"model":"a","messages":[],"\u006dodel":"b"}"#, "model"),
        (br#"{"model":7,"messages":[]}"#, "model"),
        (br#"{"model":null,"messages":[]}"#, "model"),
        (b"{\"model\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}", "UTF-8"),
        (b"{\"model\":\"\xc3\"}", "UTF-8"),
        (br#"{"model":"a","messages":["#, ""),
        (br#"{"model":"a"} trailing"#, ""),
        (br#"["model","a"]"#, ""),
        (b"", ""),
    ] {
        let error = assert_refused(&post(&daemon, body).await, 400, "invalid_request");
        assert!(message(&error).contains(says), "{error} for {}", String::from_utf8_lossy(body));
    }
    assert_eq!(model.starts(), [], "nothing is loaded for them");
    daemon.stop().await;
}

#[tokio::test]
async fn an_escaped_key_names_the_model_like_any_other() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    let body = r#"{"\u006do\u0064el":"\u0061","stream":true,"messages":[{"role":"user","content":"hello"}]}"#;
    let answer = post(&daemon, body).await;
    assert_eq!((answer.status.as_u16(), Said::read(&answer.text())), (200, Said::whole("hello", 8)));
    daemon.stop().await;
}

#[tokio::test]
async fn two_places_that_name_different_models_are_a_conflict() {
    let mut house = House::new();
    for id in ["a", "b"] {
        house.fake_with(id, &Behaviour::default(), "declared = \"100MiB\"\n");
    }
    let daemon = house.start().await;
    let send = async |path: &str, header: (&str, &str)| {
        let request = http::Request::post(path).header("host", "localhost").header("content-type", "application/json");
        let body = http_body_util::Full::new(chat("b", "hello").to_string().into());
        let request = request.header(header.0, header.1).body(body).expect("valid");
        daemon.http().send(request).await.expect("an answer").whole().await.expect("its end")
    };
    assert_refused(&send(CHAT, ("x-motorpool-model", "a")).await, 400, "model_conflict");
    let by_path = send("/m/a/v1/chat/completions", ("accept", "*/*")).await;
    assert_eq!((by_path.status.as_u16(), header(&by_path, "x-motorpool-code")), (400, "model_conflict"));
    assert_eq!(by_path.json()["error"]["code"], 400, "in llama-server's own shape: {}", by_path.text());
    assert_serves(&daemon, "a").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_compressed_body_is_refused() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    let request = http::Request::post(CHAT)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("content-encoding", "gzip");
    let request = request.body(http_body_util::Full::new(chat("a", "hello").to_string().into())).expect("valid");
    let answer = daemon.http().send(request).await.expect("an answer").whole().await.expect("its end");
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["x-motorpool-code"]),
        (415, &"unsupported_media_type".parse().expect("valid"))
    );
    daemon.stop().await;
}

const MIB: usize = 1 << 20;

/// Sends a chat of `n` MiB, announced by its length or in chunks, until the daemon answers or has it all.
async fn pour(daemon: &Daemon<'_>, n: usize, framing: &str) -> String {
    let mut client = Raw::connect(daemon.address()).await.expect("connected");
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{framing}\r\n\r\n");
    client.write(head.as_bytes()).await.expect("sent");
    let begin = r#"{"model":"a","messages":[{"role":"user","content":""#;
    for n in 0..n {
        let text = if n == 0 { begin.to_owned() + &"x".repeat(MIB - begin.len()) } else { "x".repeat(MIB) };
        let piece = if framing.starts_with("transfer") { format!("{MIB:x}\r\n{text}\r\n") } else { text };
        // It may stop listening when it has heard enough.
        if client.write(piece.as_bytes()).await.is_err() {
            break;
        }
    }
    client.until("\r\n\r\n").await.expect("a head")
}

#[tokio::test]
async fn a_body_of_300_mib_is_refused_and_costs_no_memory() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let announced = format!("content-length: {}", 300 * MIB);
    let asks_first = format!("{announced}\r\nexpect: 100-continue");
    // Whoever says how long it will be is refused before the first byte of it.
    for (framing, n) in [(&*announced, 300), ("transfer-encoding: chunked", 300), (&announced, 0), (&asks_first, 0)] {
        let head = pour(&daemon, n, framing).await;
        assert!(head.starts_with("HTTP/1.1 413 ") && head.contains("x-motorpool-code: body_too_large"), "{head}");
    }
    assert!(memory_kib(daemon.pid(), "VmHWM") < 100 << 10, "{} KiB", memory_kib(daemon.pid(), "VmHWM"));
    assert_serves(&daemon, "a").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_body_larger_than_its_memory_reaches_the_engine_whole_and_costs_no_memory() {
    let mut house = House::new();
    let model = house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    let prompt = "long ".repeat(4 * MIB);
    let answer = post(&daemon, chat("a", &prompt).to_string()).await;
    assert_eq!(Said::read(&answer.text()), Said::whole(&prompt, 8));
    assert!(memory_kib(daemon.pid(), "VmHWM") < 100 << 10, "{} KiB", memory_kib(daemon.pid(), "VmHWM"));
    assert_eq!(model.starts().len(), 1);
    daemon.stop().await;
}
