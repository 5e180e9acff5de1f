//! What clients are told when somebody else's server fails them: in each API's own words, before a stream and inside it.
use crate::served_fakes::{enter, run_of_user};
use http::Request;
use motorpool_external::TargetLock;
use motorpool_testkit::{
    Client, eventually,
    servers::{FakeOllama, Fault},
};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{CHAT, ask},
};
use motorpool_vocab::ServerUrl;
use serde_json::{Value, json};
use std::time::Duration;

/// A path of each family that streams, and how an error begins inside its stream; `None`: nothing is committed there.
const STREAMING: [(&str, Option<&str>); 5] = [
    (CHAT, Some("data: {\"error\"")),
    ("/v1/messages", Some("event: error\n")),
    ("/v1/responses", Some("event: error\n")),
    ("/completion", Some("data: {\"error\"")),
    ("/api/chat", None),
];

/// A body that every family takes.
fn body(model: &str) -> Value {
    let messages = json!([{"role": "user", "content": "hello"}]);
    json!({"model": model, "stream": true, "max_tokens": 4, "messages": messages, "prompt": "hello", "input": "hello"})
}

/// Asks for `model` in every family, before a commit and behind one.
async fn assert_told(client: &Client, model: &str, (status, code): (u16, &str)) {
    for (path, event) in STREAMING {
        for loading in ["off", "0"] {
            let request = Request::post(path).header("host", "localhost").header("x-motorpool-loading", loading);
            let request = request.body(body(model).to_string().into()).expect("a request");
            let answer = client.send(request).await.expect("a head").whole().await.expect("an answer");
            let (head, text) = (answer.headers.clone(), answer.text());
            let within = event.filter(|_| loading == "0");
            assert_eq!(answer.status.as_u16(), if within.is_some() { 200 } else { status }, "{path} {loading}: {text}");
            if let Some(event) = within {
                assert!(text.contains(event), "{path} {loading}: {text}");
            } else {
                assert_eq!(
                    head.get("x-motorpool-code").map(http::HeaderValue::as_bytes),
                    Some(code.as_bytes()),
                    "{path}"
                );
                assert_eq!(head.contains_key("retry-after"), status == 503, "{path} {loading}");
            }
            // Two families' errors have no place for a code of ours.
            let told = if matches!(path, "/completion" | "/api/chat") { "\"error\"" } else { code };
            assert!(text.contains(told), "{path} {loading}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_another_one_of_us_changes_is_busy_in_every_family() {
    let server = FakeOllama::open(&["x:latest"]).await.expect("a port");
    let mut house = House::new();
    enter(&mut house, ("home", "ollama", server.port()), &[]);
    let soon = toml::Table::from_iter([("load".to_owned(), "200ms".into())]);
    house.add_to_last("external", "timeouts", soon.into());
    let daemon = house.start().await;
    let url: ServerUrl = format!("http://localhost:{}/v1", server.port()).parse().expect("an address");
    let lock = TargetLock::take(&run_of_user(&house), &url.key(), Duration::ZERO).await.expect("free");
    assert_told(&daemon.http(), "home/x:latest", (503, "residency_busy")).await;
    drop(lock);
    assert!(server.residents().is_empty());
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_up_has_failed_in_every_family() {
    let server = FakeOllama::open(&["x:latest"]).await.expect("a port");
    server.load("x:latest");
    let mut house = House::new();
    enter(&mut house, ("home", "ollama", server.port()), &[]);
    let daemon = house.start().await;
    for (path, _) in STREAMING {
        server.fail(path, Fault::HangUp, 99);
    }
    assert_told(&daemon.http(), "home/x:latest", (502, "external_failed")).await;
    daemon.stop().await;
}

/// Whether the one request of `daemon` so far is counted as an error.
async fn is_an_error(daemon: &Daemon<'_>) -> bool {
    eventually("the request has its row", async || {
        let shown = daemon.cli(&["usage", "--by", "model", "--since", "1d", "--json"]).await;
        let row = shown.json()["rows"].as_array()?.first()?.clone();
        (row["requests"] == 1).then(|| row["errors"] == 1)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_refuses_in_its_own_words_is_recorded_as_refused() {
    let server = FakeOllama::open(&["x:latest"]).await.expect("a port");
    server.load("x:latest");
    server.fail(CHAT, Fault::Status(400, "too long".into()), 1);
    let mut house = House::new();
    enter(&mut house, ("home", "ollama", server.port()), &[]);
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &ask("home/x:latest", "hello")).await.expect("an answer");
    assert!(answer.status == 400 && answer.text().contains("too long"), "{}", answer.text());
    assert!(is_an_error(&daemon).await);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_for_some_models_learns_by_no_raw_path_which_others_a_server_has() {
    let server = FakeOllama::open(&["x:latest", "y:latest"]).await.expect("a port");
    let mut house = House::new();
    enter(&mut house, ("home", "ollama", server.port()), &[]);
    house.write_config();
    let key = house.run(&["key", "new", "team", "--model", "home/x:latest"]).await.stdout.trim().to_owned();
    let daemon = house.start().await;
    let client = daemon.http();
    let told = async |name: &str, body: Value| {
        let request = Request::post(format!("/m/{name}/v1/chat/completions")).header("host", "localhost");
        let request = request.header("authorization", format!("Bearer {key}"));
        let request = request.body(body.to_string().into()).expect("a request");
        let answer = client.send(request).await.expect("a head").whole().await.expect("an answer");
        (answer.status.as_u16(), answer.text())
    };
    let own = async || (told("x:latest", ask("x:latest", "hello")).await.0 == 200).then_some(());
    eventually("its own is seen, and answers", own).await;
    let (status, unknown) = told("nothing", ask("nothing", "hello")).await;
    assert_eq!(status, 404, "{unknown}");
    for name in ["y:latest", "home%2Fy:latest"] {
        let (status, text) = told(name, ask(name, "hello")).await;
        let written = name.replace("%2F", "/");
        assert_eq!((status, text), (404, unknown.replace("`nothing`", &format!("`{written}`"))), "{name}");
    }
    for other in ["y:latest", "home/y:latest", "none"] {
        let (status, text) = told("home/x:latest", ask(other, "hello")).await;
        assert_eq!(status, 200, "{other}: {text}");
    }
    daemon.stop().await;
}
