//! The whole program beside a real router: its models are served like ours, and given back.
use motorpool_testkit::{Behaviour, Client, eventually};
use motorpool_tests::e2e::{
    Daemon, House, Router,
    router::Tap,
    talk::{CHAT, Said, ask, chat},
};
use serde_json::{Value, json};

/// The daemon of `house` knows `router` as `id`, with more keys.
pub(crate) fn enter(house: &mut House, (id, router): (&str, &Router), more: &[(&'static str, &str)]) {
    let url = format!("http://127.0.0.1:{}", router.port());
    let keys = [("id", id), ("kind", "llama-cpp-router"), ("url", &url)];
    let more = more.iter().map(|(key, value)| (*key, (*value).into()));
    house.add("external", keys.map(|(key, value)| (key, value.into())).into_iter().chain(more));
}

/// A house that knows `routers` by these ids.
fn house(routers: &[(&str, &Router)]) -> House {
    let mut house = House::new();
    for (id, router) in routers {
        enter(&mut house, (id, router), &[]);
    }
    house
}

/// A chat of a few tokens.
pub(crate) fn short(mut body: Value) -> Value {
    body["max_tokens"] = 4.into();
    body
}

pub(crate) async fn listed(client: &Client) -> Vec<(String, String)> {
    let answer = client.get("/v1/models").await.expect("it answers");
    let rows = answer.json()["data"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    rows.iter().map(|row| (text(&row["id"]), text(&row["target"]))).collect()
}

async fn until_listed(client: &Client, id: &str) {
    let look = async || listed(client).await.iter().any(|(name, _)| name == id).then_some(());
    eventually("the listing shows the model", look).await;
}

pub(crate) async fn residency(daemon: &Daemon<'_>) -> Value {
    let answer = daemon.cli(&["residency", "status", "--json"]).await;
    assert_eq!(answer.code, Some(0), "{answer:?}");
    answer.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_of_a_router_answers_whole_and_in_a_stream_and_is_given_back_at_the_end() {
    let router = Router::open(1).await;
    let house = house(&[("desk", &router)]);
    let daemon = house.start().await;
    let http = daemon.http();
    let answer = http.post(CHAT, &short(ask("a", "hello"))).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.json()["choices"][0]["message"]["content"].is_string(), "{}", answer.text());
    let answer = http.post(CHAT, &short(chat("desk/a", "hello"))).await.expect("an answer");
    let said = Said::read(&answer.text());
    assert!(answer.status == 200 && said.is_done && said.error.is_none(), "{}", answer.text());
    assert_eq!(answer.headers.get("x-accel-buffering").map(http::HeaderValue::as_bytes), Some(&b"no"[..]));
    assert_eq!(router.residents().await, ["a"]);
    let idle = async || {
        let row = residency(&daemon).await["targets"][0]["residents"][0].clone();
        assert_eq!((&row["model"], &row["owner"]), (&json!("a"), &json!("ours")));
        (row["inUse"] == false).then_some(())
    };
    eventually("it is ours, and idle", idle).await;
    let events = daemon.cli(&["events"]).await.stdout;
    assert!(events.contains("external-changed") && events.contains("change load"), "{events}");
    daemon.stop().await;
    assert!(router.residents().await.is_empty(), "what we loaded is given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn ollamas_clients_use_a_model_of_a_router_as_one_of_ours() {
    let router = Router::open(1).await;
    let house = house(&[("desk", &router)]);
    let daemon = house.start().await;
    let http = daemon.http();
    until_listed(&http, "a").await;
    let names = async |path: &str| {
        let list = http.get(path).await.expect("an answer").json();
        let rows = list["models"].as_array().cloned().unwrap_or_default();
        rows.iter()
            .filter(|row| row["details"]["family"] == "llama-cpp-router")
            .map(|row| row["name"].clone())
            .collect::<Vec<_>>()
    };
    assert!(names("/api/tags").await.contains(&json!("a")));
    let shown = http.post("/api/show", &json!({"model": "desk/a"})).await.expect("an answer").json();
    assert_eq!(shown["model_info"]["general.basename"], "desk/a", "{shown}");
    let options = json!({"num_predict": 4, "num_ctx": 64});
    let messages = json!([{"role": "user", "content": "hello"}]);
    for (path, mut body, reply) in [
        ("/api/chat", json!({"model": "a", "messages": messages}), "/message/content"),
        ("/api/generate", json!({"model": "desk/a", "prompt": "hello"}), "/response"),
        ("/api/generate", json!({"model": "a:latest", "prompt": "hello", "raw": true}), "/response"),
    ] {
        body["options"] = options.clone();
        let streamed = http.post(path, &body).await.expect("an answer");
        assert_eq!(streamed.status, 200, "{path}: {}", streamed.text());
        let text = streamed.text();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let said: String = lines.iter().filter_map(|line| line.pointer(reply)?.as_str()).collect();
        let last = lines.last().expect("a last line");
        assert!(!said.is_empty() && lines.len() > 2, "{path}: {text}");
        assert_eq!(
            (&last["done"], &last["eval_count"], &last["model"]),
            (&json!(true), &json!(4), &body["model"]),
            "{path}"
        );
        body["stream"] = false.into();
        let whole = http.post(path, &body).await.expect("an answer");
        let document = whole.json();
        assert_eq!((whole.status.as_u16(), &document["done"]), (200, &json!(true)), "{path}: {document}");
        assert!(document.pointer(reply).and_then(Value::as_str).is_some_and(|text| !text.is_empty()), "{document}");
    }
    eventually("it is seen to be there", async || (names("/api/ps").await == ["a"]).then_some(())).await;
    let loaded = http.get("/api/ps").await.expect("an answer").json();
    assert!(
        loaded["models"][0]["expires_at"].is_string(),
        "without it a client shows that it is being stopped: {loaded}"
    );
    // How long it stays is no client's to say.
    let unload = json!({"model": "a", "keep_alive": 0});
    assert_eq!(http.post("/api/generate", &unload).await.expect("an answer").status, 501);
    assert_eq!(router.residents().await, ["a"]);
    let none = http.post("/api/embed", &json!({"model": "a", "input": "hello"})).await.expect("an answer");
    assert!(none.status.as_u16() >= 400 && none.json()["error"].is_string(), "the router's own word: {}", none.text());
    daemon.stop().await;
    assert!(router.residents().await.is_empty(), "it was ours");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_helper_tells_of_is_ours_goes_for_nobody_and_is_given_back_at_the_end() {
    let router = Router::open(1).await;
    router.load_by_others("b").await;
    let house = house(&[("desk", &router)]);
    let daemon = house.start().await;
    until_listed(&daemon.http(), "b").await;
    let unknown = daemon.cli(&["residency", "adopt", "b", "--target", "attic"]).await;
    assert!(unknown.code != Some(0) && unknown.stderr.contains("attic"), "{unknown:?}");
    let adopted = daemon.cli(&["residency", "adopt", "b", "--target", "desk", "--json"]).await;
    assert_eq!((adopted.code, &adopted.json()["adopted"]), (Some(0), &json!("desk/b")), "{adopted:?}");
    let row = &residency(&daemon).await["targets"][0]["residents"][0];
    assert_eq!((&row["model"], &row["owner"], &row["protection"]), (&json!("b"), &json!("ours"), &json!("worker")));
    let refused = daemon.http().post(CHAT, &short(ask("a", "hello"))).await.expect("an answer");
    assert_eq!((refused.status.as_u16(), router.residents().await), (503, vec!["b".to_owned()]), "{}", refused.text());
    daemon.stop().await;
    assert!(router.residents().await.is_empty(), "what the helper loaded is given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_others_stand_in_the_way_of_is_declined_and_never_reaches_the_router() {
    let router = Router::open(1).await;
    router.load_by_others("b").await;
    let house = house(&[("desk", &router)]);
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &short(ask("a", "hello"))).await.expect("an answer");
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(answer.json()["error"]["code"], "will_not_fit");
    assert!(answer.headers.contains_key("retry-after"));
    assert_eq!(router.residents().await, ["b"]);
    let plan = daemon.cli(&["residency", "plan", "a"]).await;
    assert!(plan.code == Some(10) && plan.stdout.contains("desk/a would be refused"), "{plan:?}");
    let explained = daemon.cli(&["explain", "b"]).await;
    assert!(explained.code == Some(0) && explained.stdout.contains("desk/b is there already"), "{explained:?}");
    let server = format!("http://{}", daemon.address());
    let elsewhere = daemon.cli(&["explain", "b", "--server", &server]).await;
    assert!(elsewhere.code == Some(0) && elsewhere.stdout.contains("desk/b is there already"), "{elsewhere:?}");
    let events = daemon.cli(&["events"]).await.stdout;
    assert!(events.contains("will-not-fit"), "{events}");
    daemon.stop().await;
    assert_eq!(router.residents().await, ["b"], "what others loaded stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_two_servers_and_of_ours_means_what_the_listing_says() {
    let (first, second) = (Router::open(0).await, Router::open(0).await);
    let mut house = House::new();
    let own = house.fake("b", &Behaviour::default());
    enter(&mut house, ("one", &first), &[]);
    enter(&mut house, ("two", &second), &[]);
    let daemon = house.start().await;
    let http = daemon.http();
    until_listed(&http, "one/a").await;
    until_listed(&http, "two/a").await;
    let rows = listed(&http).await;
    let target = |id: &str| rows.iter().filter(|(name, _)| name == id).map(|(_, at)| at.as_str()).collect::<Vec<_>>();
    assert_eq!((target("a"), target("one/a"), target("two/a")), (vec!["one"], vec!["one"], vec!["two"]));
    assert_eq!((target("b"), target("one/b"), target("two/b")), (vec![""], vec!["one"], vec!["two"]));
    for (name, ones, twos) in [("a", &["a"][..], &[][..]), ("two/a", &["a"], &["a"]), ("one/b", &["a", "b"], &["a"])] {
        let answer = http.post(CHAT, &short(ask(name, "hello"))).await.expect("an answer");
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        assert_eq!((first.residents().await, second.residents().await), (names(ones), names(twos)), "{name}");
    }
    let answer = http.post(CHAT, &ask("b", "hello")).await.expect("an answer");
    assert!(answer.status == 200 && own.starts().len() == 1, "ours: {}", answer.text());
    // The listing waits for nobody: it shows the last look.
    eventually("it is shown as loaded", async || {
        let row = http.get("/v1/models/two/a").await.expect("an answer").json();
        assert_eq!((&row["id"], &row["target"]), (&json!("two/a"), &json!("two")));
        (row["status"]["value"] == "loaded").then_some(())
    })
    .await;
    daemon.stop().await;
    assert!(first.residents().await.is_empty() && second.residents().await.is_empty());
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preferred_server_takes_a_name_from_ours() {
    let router = Router::open(0).await;
    let mut house = House::new();
    let own = house.fake("b", &Behaviour::default());
    enter(&mut house, ("desk", &router), &[("prefer", "external"), ("default_model", "c")]);
    let daemon = house.start().await;
    let http = daemon.http();
    until_listed(&http, "desk/b").await;
    let rows = listed(&http).await;
    assert_eq!(rows.iter().filter(|(name, _)| name == "b").collect::<Vec<_>>(), [&("b".to_owned(), "desk".to_owned())]);
    for name in ["b", "desk"] {
        let answer = http.post(CHAT, &short(ask(name, "hello"))).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert!(own.starts().is_empty());
    assert_eq!(router.residents().await, ["b", "c"]);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_gives_back_what_nobody_uses_and_a_dead_server_is_only_a_row() {
    let router = Router::open(0).await;
    let mut house = house(&[("desk", &router)]);
    let nobody = [("id", "gone"), ("kind", "ollama"), ("url", "http://127.0.0.1:9")];
    house.add("external", nobody.map(|(key, value)| (key, value.into())));
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &short(ask("a", "hello"))).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    router.load_by_others("b").await;
    let released = daemon.cli(&["residency", "release"]).await;
    assert_eq!((released.code, released.stdout.as_str()), (Some(0), "given back: desk/a\n"), "{released:?}");
    assert_eq!(router.residents().await, ["b"]);
    let released = daemon.cli(&["residency", "release", "desk/b"]).await;
    assert_eq!(released.code, Some(4), "it is not ours: {released:?}");
    let ps = daemon.cli(&["ps"]).await.stdout;
    assert!(ps.contains("desk") && ps.contains("gone: the last look failed"), "{ps}");
    let answer = daemon.http().post(CHAT, &ask("gone/x", "hello")).await.expect("an answer");
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (502, &json!("external_failed")));
    let answer = daemon.http().post(CHAT, &ask("nowhere", "hello")).await.expect("an answer");
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (404, &json!("model_not_found")));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_three_servers_a_dead_one_keeps_no_other_from_being_given_back_at_the_end() {
    let routers = [Router::open(1).await, Router::open(1).await, Router::open(1).await];
    let house = house(&[("one", &routers[0]), ("two", &routers[1]), ("three", &routers[2])]);
    let daemon = house.start().await;
    for id in ["one", "two", "three"] {
        let answer = daemon.http().post(CHAT, &short(ask(&format!("{id}/a"), "hello"))).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    routers[1].freeze();
    daemon.stop().await;
    routers[1].thaw();
    let left = [routers[0].residents().await, routers[1].residents().await, routers[2].residents().await];
    assert_eq!(left, [names(&[]), names(&["a"]), names(&[])]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_daemon_loaded_is_the_next_ones_to_give_back() {
    let router = Router::open(0).await;
    let house = house(&[("desk", &router)]);
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &short(ask("a", "hello"))).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    daemon.kill().await;
    router.load_by_others("b").await;
    let daemon = house.start().await;
    let taken = async || {
        let status = residency(&daemon).await;
        let residents = status["targets"][0]["residents"].as_array().cloned().unwrap_or_default();
        let owner = |model: &str| residents.iter().find(|one| one["model"] == model).map(|one| one["owner"].clone());
        (owner("a")? == "ours" && owner("b")? == "foreign").then_some(())
    };
    eventually("it is taken over", taken).await;
    daemon.stop().await;
    assert_eq!(router.residents().await, ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_gives_its_model_free() {
    let router = Router::open(1).await;
    let house = house(&[("desk", &router)]);
    let daemon = house.start().await;
    let mut long = chat("a", "hello");
    (long["max_tokens"], long["ignore_eos"]) = (4000.into(), true.into());
    let mut stream = daemon.http().open(CHAT, &long).await.expect("a head");
    assert_eq!(stream.status, 200);
    stream.until("data:").await.expect("it began");
    let in_use = async |wanted: bool| {
        let status = residency(&daemon).await;
        (status["targets"][0]["residents"][0]["inUse"] == wanted).then_some(())
    };
    eventually("it is in use", async || in_use(true).await).await;
    drop(stream);
    eventually("it is free", async || in_use(false).await).await;
    let answer = daemon.http().post(CHAT, &short(ask("b", "hello"))).await.expect("an answer");
    assert_eq!(answer.status, 200, "ours goes for it: {}", answer.text());
    assert_eq!(router.residents().await, ["b"]);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_to_a_managed_router_says_not_to_load_whatever_its_client_says() {
    let router = Router::open(1).await;
    let tap = Tap::open(router.port(), None).await;
    let mut house = House::new();
    let url = format!("http://127.0.0.1:{}", tap.port());
    let keys = [("id", "desk"), ("kind", "llama-cpp-router"), ("url", &url)];
    house.add("external", keys.map(|(key, value)| (key, value.into())));
    let daemon = house.start().await;
    for path in [CHAT.to_owned(), format!("{CHAT}?autoload=1"), format!("{CHAT}?%61utoload=1")] {
        let answer = daemon.http().post(&path, &short(ask("a", "hello"))).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let lines = tap.lines();
    let chats: Vec<_> = lines.iter().filter(|line| line.contains(CHAT)).collect();
    assert_eq!(chats.len(), 3, "{lines:?}");
    for line in chats {
        assert!(line.contains("?autoload=0") && !line.contains("=1"), "{line}");
    }
    daemon.stop().await;
}
