//! The whole program beside servers that look like Ollama and LM Studio, and what it does when a server is not its own.
use crate::served;
use motorpool_external::TargetLock;
use motorpool_testkit::{
    Behaviour, Client, eventually,
    servers::{FakeLmStudio, FakeOllama, FakeRouter, Fault, Tier},
};
use motorpool_tests::e2e::{
    House, Router,
    talk::{CHAT, ask},
};
use motorpool_vocab::ServerUrl;
use serde_json::json;
use std::{fs, path::PathBuf, time::Duration};

pub(crate) fn enter(house: &mut House, (id, kind, port): (&str, &str, u16), more: &[(&'static str, toml::Value)]) {
    let keys = [("id", id.to_owned()), ("kind", kind.to_owned()), ("url", format!("http://localhost:{port}/v1"))];
    house.add("external", keys.map(|(key, value)| (key, value.into())).into_iter().chain(more.iter().cloned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_of_ollama_is_served_with_the_operators_headers_and_given_back_at_the_end() {
    let server = FakeOllama::open(&["x:latest", "y:latest"]).await.expect("a port");
    let mut house = House::new();
    let headers = toml::Table::from_iter([("x-team".to_owned(), "lab".into())]);
    enter(&mut house, ("home", "ollama", server.port()), &[("headers", headers.into()), ("keep_alive", "10m".into())]);
    let daemon = house.start().await;
    let http = daemon.http();
    let answer = http.post(CHAT, &ask("home/x:latest", "hello")).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let asked = server.asked(CHAT);
    assert_eq!((asked.len(), &asked[0].body["model"], asked[0].query.as_str()), (1, &json!("x:latest"), ""));
    assert_eq!(asked[0].headers.get("x-team").map(http::HeaderValue::as_bytes), Some(&b"lab"[..]));
    assert!(!asked[0].headers.contains_key("authorization"));
    let kept = async || (server.residents() == [("x:latest".to_owned(), 600)]).then_some(());
    eventually("it is kept as long as the configuration says", kept).await;
    let rows = http.get("/v1/models").await.expect("an answer").json();
    let row = |id: &str| rows["data"].as_array().and_then(|rows| rows.iter().find(|row| row["id"] == id)).cloned();
    let value = |id: &str| row(id).map(|row| row["status"]["value"].clone());
    let loaded =
        async || (http.get("/v1/models/x:latest").await.ok()?.json()["status"]["value"] == "loaded").then_some(());
    eventually("the listing shows it", loaded).await;
    assert_eq!(value("y:latest"), Some(json!("unloaded")));
    daemon.stop().await;
    assert!(server.residents().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_says_how_long_a_model_stays_on_somebodys_ollama() {
    let server = FakeOllama::open(&["x:latest"]).await.expect("a port");
    server.load("x:latest");
    let theirs = server.residents();
    let mut house = House::new();
    enter(&mut house, ("home", "ollama", server.port()), &[]);
    let daemon = house.start().await;
    for (path, keep_alive) in [("/api/generate", json!(0)), ("/api/generate", json!(-1)), (CHAT, json!(0))] {
        let mut body = ask("home/x:latest", "hello");
        body["prompt"] = "hello".into();
        body["keep_alive"] = keep_alive;
        let answer = daemon.http().post(path, &body).await.expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let asked = server.asked(path);
        let last = &asked.last().expect("it came").body;
        assert!(last.get("keep_alive").is_none() && last["model"] == "x:latest", "{path}: {last}");
    }
    assert_eq!(server.residents(), theirs);
    daemon.stop().await;
    assert_eq!(server.residents(), theirs);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_has_a_model_loaded_anew_on_somebodys_ollama_and_too_much_context_is_told() {
    let server = FakeOllama::open(&["x:latest"]).await.expect("a port");
    server.load_with("x:latest", 16384);
    let mut house = House::new();
    enter(&mut house, ("home", "ollama", server.port()), &[]);
    let daemon = house.start().await;
    for path in ["/api/chat", "/api/generate", "/api/embed"] {
        let mut body = ask("home/x:latest", "hello");
        (body["prompt"], body["input"], body["stream"]) = ("hello".into(), "hello".into(), false.into());
        body["options"] = json!({"num_ctx": 32768, "num_gpu": 0, "temperature": 0.5});
        let answer = daemon.http().post(path, &body).await.expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let asked = server.asked(path);
        assert_eq!(asked.last().expect("it came").body["options"], json!({"temperature": 0.5, "num_ctx": 16384}));
    }
    let answer = daemon.http().post("/api/chat", &ask("home/x:latest", "hello")).await.expect("an answer");
    assert_eq!((answer.status.as_u16(), server.n_reloads()), (200, 0), "{}", answer.text());
    let mut hidden = ask("home/x:latest", "hello");
    hidden["Options"] = json!({"num_ctx": 32768});
    let answer = daemon.http().post("/api/chat", &hidden).await.expect("an answer");
    assert_eq!((answer.status.as_u16(), server.n_reloads()), (400, 0), "{}", answer.text());
    let events = daemon.cli(&["events"]).await.stdout;
    assert!(events.contains("stress") && events.contains("32768 tokens is asked for"), "{events}");
    daemon.stop().await;
    assert_eq!(server.residents().len(), 1, "what others loaded stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_says_how_long_a_model_stays_on_somebodys_lm_studio() {
    let server = FakeLmStudio::open(Tier::V1, &["k"]).await.expect("a port");
    let mut house = House::new();
    enter(&mut house, ("desk", "lmstudio", server.port()), &[]);
    let daemon = house.start().await;
    let mut body = ask("k", "hello");
    (body["ttl"], body["keep_alive"]) = (1.into(), 0.into());
    let answer = daemon.http().post(CHAT, &body).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = server.asked(CHAT).pop().expect("it came").body;
    assert!(sent.get("ttl").is_none() && sent.get("keep_alive").is_none() && sent["model"] == "k", "{sent}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_is_had_by_its_own_name_and_what_is_not_there_is_told_with_what_is() {
    let server = FakeLmStudio::open(Tier::V1, &["c"]).await.expect("a port");
    for _ in 0..3 {
        server.load("c");
    }
    server.unload("c");
    let mut house = House::new();
    enter(&mut house, ("desk", "lmstudio", server.port()), &[("default_model", "c:3".into())]);
    let daemon = house.start().await;
    let http = daemon.http();
    for (name, sent) in [("desk/c:2", "c:2"), ("c:2", "c:2"), ("desk/c", "c:3"), ("desk", "c:3")] {
        let answer = http.post(CHAT, &ask(name, "hello")).await.expect("an answer");
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        assert_eq!(server.asked(CHAT).pop().expect("it came").body["model"], sent, "{name}");
    }
    // It is offered by the last look, and not there any more. Another look may come between.
    let is_told = async || {
        server.add("d");
        eventually("it is offered", async || is_offered(&http, "d").await.then_some(())).await;
        server.forget("d");
        let answer = http.post(CHAT, &ask("desk/d", "hello")).await.expect("an answer");
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (404, &json!("model_not_found")));
        answer.text().contains("resident there: c:2, c:3").then_some(())
    };
    eventually("it is told what is there", is_told).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_a_full_router_does_not_have_is_not_found() {
    let router = FakeRouter::open(1, &["a"]).await.expect("a port");
    let mut house = House::new();
    enter(&mut house, ("desk", "llama-cpp-router", router.port()), &[]);
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &ask("a", "hello")).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    // It is offered by the last look, and not there any more. Another look may come between.
    let is_told = async || {
        router.add("b");
        eventually("it is offered", async || is_offered(&daemon.http(), "b").await.then_some(())).await;
        router.forget("b");
        let answer = daemon.http().post(CHAT, &ask("desk/b", "hello")).await.expect("an answer");
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (404, &json!("model_not_found")));
        answer.text().contains("the server does not have this model").then_some(())
    };
    eventually("it is told", is_told).await;
    assert_eq!(router.residents(), ["a"]);
    daemon.stop().await;
}

async fn is_offered(client: &Client, model: &str) -> bool {
    let rows = client.get("/v1/models").await.expect("an answer").json();
    rows["data"].as_array().is_some_and(|rows| rows.iter().any(|row| row["id"] == model))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_refusal_is_the_callers_whatever_was_tried_for_it() {
    let server = FakeLmStudio::open(Tier::V1, &["a", "c"]).await.expect("a port");
    let mut house = House::new();
    enter(&mut house, ("desk", "lmstudio", server.port()), &[]);
    let daemon = house.start().await;
    let http = daemon.http();
    let answer = http.post(CHAT, &ask("a", "hello")).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    server.fail(CHAT, Fault::Status(507, "no room".into()), 1);
    server.fail(CHAT, Fault::Status(500, "broken".into()), 1);
    let answer = http.post(CHAT, &ask("c", "hello")).await.expect("an answer");
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["message"]), (507, &json!("no room")));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_helpers_load_that_is_not_there_is_not_adopted() {
    let router = FakeRouter::open(1, &["a"]).await.expect("a port");
    let mut house = House::new();
    enter(&mut house, ("desk", "llama-cpp-router", router.port()), &[]);
    let daemon = house.start().await;
    let refused = daemon.cli(&["residency", "adopt", "a", "--target", "desk"]).await;
    assert!(refused.code != Some(0) && refused.stderr.contains("desk/a"), "{refused:?}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_key_gets_its_own_and_never_the_callers() {
    let server = FakeLmStudio::open(Tier::V1, &["k", "hidden"]).await.expect("a port");
    server.lock("sk-theirs");
    let mut house = House::new();
    let path = house.path("desk.key");
    fs::write(&path, "sk-theirs\n").expect("written");
    let key = toml::Value::from(path.to_str().expect("UTF-8"));
    enter(&mut house, ("desk", "lmstudio", server.port()), &[("key_file", key), ("models", vec!["k*"].into())]);
    let daemon = house.start().await;
    let http = daemon.http();
    let request = http::Request::post(CHAT).header("host", "localhost").header("authorization", "Bearer sk-ours");
    let request = request.body(ask("k", "hello").to_string().into()).expect("a request");
    let answer = http.send(request).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", daemon.log());
    let keys: Vec<_> = server.asked(CHAT).iter().map(|asked| asked.headers["authorization"].clone()).collect();
    assert_eq!(keys, ["Bearer sk-theirs"]);
    let hidden = http.post(CHAT, &ask("hidden", "hello")).await.expect("an answer");
    assert_eq!(hidden.status, 404, "it is not offered: {}", hidden.text());
    let rows = http.get("/v1/models").await.expect("an answer").text();
    assert!(rows.contains("\"k\"") && !rows.contains("hidden") && !rows.contains("sk-theirs"), "{rows}");
    daemon.stop().await;
    assert!(server.residents().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn while_another_one_of_us_changes_a_server_what_is_not_there_is_busy_and_what_is_there_is_used() {
    let router = Router::open(0).await;
    router.load_by_others("b").await;
    let mut house = House::new();
    served::enter(&mut house, ("desk", &router), &[]);
    house.add_to_last("external", "timeouts", toml::Table::from_iter([("load".to_owned(), "1s".into())]).into());
    let daemon = house.start().await;
    let url: ServerUrl = format!("http://localhost:{}", router.port()).parse().expect("an address");
    let lock = TargetLock::take(&run_of_user(&house), &url.key(), Duration::ZERO).await.expect("free");
    let answer = daemon.http().post(CHAT, &ask("a", "hello")).await.expect("an answer");
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (503, &json!("residency_busy")));
    assert!(answer.headers.contains_key("retry-after"));
    let answer = daemon.http().post(CHAT, &ask("b", "hello")).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    drop(lock);
    assert_eq!(router.residents().await, ["b"]);
    daemon.stop().await;
}

/// Where the program puts what all pools of a user share.
pub(crate) fn run_of_user(house: &House) -> PathBuf {
    let usual = PathBuf::from(format!("/run/user/{}", nix::unistd::geteuid()));
    if usual.is_dir() { usual } else { house.path("home/.local/state") }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_its_user_manages_is_only_looked_at_and_loads_by_itself() {
    let router = Router::open(0).await;
    let mut house = House::new();
    served::enter(&mut house, ("desk", &router), &[("lifecycle", "user-managed")]);
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &ask("a", "hello")).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(router.residents().await, ["a"], "the router itself loaded it");
    let plan = daemon.cli(&["residency", "plan", "b"]).await;
    assert!(plan.code == Some(0) && plan.stdout.contains("its user says"), "{plan:?}");
    daemon.stop().await;
    assert_eq!(router.residents().await, ["a"], "nothing there is ours");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_names_what_of_ours_a_person_may_give_back_on_a_server_of_this_machine() {
    let router = Router::open(0).await;
    let mut house = House::new();
    house.fake_with("big", &Behaviour::default(), "declared = \"4GiB\"\n");
    served::enter(&mut house, ("desk", &router), &[]);
    let daemon = house.start().await;
    let http = daemon.http();
    let answer = http.post(CHAT, &ask("a", "hello")).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let idle = async || {
        let answer = http.post(CHAT, &ask("big", "hello")).await.expect("an answer");
        assert_eq!(answer.json()["error"]["code"], "capacity_denied");
        answer.text().contains("ours: desk/a; `motorpool residency release`").then_some(())
    };
    eventually("the denial names it", idle).await;
    let planned = daemon.cli(&["explain", "big"]).await;
    assert!(planned.code == Some(10) && planned.stderr.contains("ours: desk/a"), "{planned:?}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_not_there_or_a_server_that_may_not_be_keeps_the_daemon_from_starting() {
    for (keys, wrong) in [
        (("http://127.0.0.1:9", Some("NO_SUCH_VARIABLE")), "NO_SUCH_VARIABLE, which is not set"),
        (("http://169.254.169.254", None), "no model server is there"),
    ] {
        let mut house = House::new();
        let (url, variable) = keys;
        let plain = [("id", "desk"), ("kind", "ollama"), ("url", url)];
        let key = variable.map(|name| ("key_env", name));
        house.add("external", plain.into_iter().chain(key).map(|(name, value)| (name, value.into())));
        house.write_config();
        let outcome = house.start_in_vain().await;
        assert!(outcome.code == Some(3) && outcome.stderr.contains(wrong), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decline_is_said_in_each_apis_own_words_before_a_stream_and_inside_it() {
    let router = Router::open(1).await;
    router.load_by_others("b").await;
    let mut house = House::new();
    served::enter(&mut house, ("desk", &router), &[]);
    let daemon = house.start().await;
    let messages = json!([{"role": "user", "content": "hello"}]);
    for (path, body, event) in [
        (CHAT, json!({"model": "a", "stream": true, "messages": messages}), "data: {\"error\""),
        ("/v1/messages", json!({"model": "a", "stream": true, "max_tokens": 4, "messages": messages}), "event: error"),
        ("/v1/responses", json!({"model": "a", "stream": true, "input": "hello"}), "event: error"),
        ("/completion", json!({"model": "a", "stream": true, "prompt": "hello"}), "data: {\"error\""),
    ] {
        for (loading, status) in [("off", 503), ("0", 200)] {
            let request = http::Request::post(path).header("host", "localhost").header("x-motorpool-loading", loading);
            let request = request.body(body.to_string().into()).expect("a request");
            let answer = daemon.http().send(request).await.expect("a head").whole().await.expect("an answer");
            let text = answer.text();
            assert_eq!(answer.status.as_u16(), status, "{path} {loading}: {text}");
            let code = if path == "/completion" { "unavailable_error" } else { "will_not_fit" };
            assert!(text.contains(code) && text.contains("the server is full"), "{path} {loading}: {text}");
            assert_eq!(answer.headers.contains_key("retry-after"), status == 503, "{path}");
            assert_eq!(text.contains(event), status == 200, "{path}: {text}");
        }
    }
    // Ollama's clients get no byte before the result.
    for (path, body) in [
        ("/api/chat", json!({"model": "a", "messages": messages})),
        ("/api/generate", json!({"model": "a", "prompt": "hello"})),
    ] {
        let answer = daemon.http().post(path, &body).await.expect("an answer");
        let header = |name| answer.headers.get(name).and_then(|value| value.to_str().ok());
        assert_eq!((answer.status.as_u16(), header("x-motorpool-code")), (503, Some("will_not_fit")), "{path}");
        assert!(header("retry-after").is_some(), "{path}");
        let told = answer.json();
        assert!(told["error"].as_str().is_some_and(|text| text.contains("the server is full")), "{path}: {told}");
    }
    assert_eq!(router.residents().await, ["b"]);
    daemon.stop().await;
}
