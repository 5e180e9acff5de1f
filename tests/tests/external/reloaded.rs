//! `[[external]]` and `[[protect]]` read again while requests run on the servers.
use crate::{
    served::{enter, listed, residency, short},
    served_fakes,
};
use motorpool_testkit::{
    Answer, eventually,
    servers::{FakeOllama, Fault},
};
use motorpool_tests::e2e::{
    Daemon, House, Router,
    talk::{CHAT, ask},
};
use serde_json::{Value, json};
use std::fs;
use tokio::task::JoinHandle;

const RELOAD: &str = "/api/motorpool/v1/reload";

fn written(house: &House) -> String {
    fs::read_to_string(house.path("config/motorpool.toml")).expect("there")
}

/// The outcome of a key in the report of a reload that must be done.
async fn reload((house, daemon): (&House, &Daemon<'_>), text: &str, key: &str) -> Value {
    house.write_beside("motorpool.toml", text);
    let answer = daemon.control().post(RELOAD, &json!({})).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let report = answer.json();
    let row = report["items"].as_array().and_then(|rows| rows.iter().find(|row| row["name"] == key));
    row.unwrap_or_else(|| panic!("{key} in {report}"))["outcome"].clone()
}

async fn status_of(daemon: &Daemon<'_>, model: &str) -> u16 {
    daemon.http().post(CHAT, &short(ask(model, "hello"))).await.expect("an answer").status.as_u16()
}

/// A chat on `home` that is answered when its server is told to go on.
async fn held_on(home: &FakeOllama, daemon: &Daemon<'_>) -> JoinHandle<Answer> {
    home.fail(CHAT, Fault::AnswerHeld, 1);
    let http = daemon.http();
    let held = tokio::spawn(async move { http.post(CHAT, &ask("home/x:latest", "hello")).await.expect("an answer") });
    eventually("it is there", async || (home.asked(CHAT).len() == 1).then_some(())).await;
    held
}

async fn is_listed(daemon: &Daemon<'_>, id: &str) -> bool {
    listed(&daemon.http()).await.iter().any(|(name, _)| name == id)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_new_is_served_and_one_that_is_gone_gets_ours_back_after_its_last_request() {
    let home = FakeOllama::open(&["x:latest"]).await.expect("a port");
    let attic = FakeOllama::open(&["y:latest"]).await.expect("a port");
    let mut house = House::new();
    served_fakes::enter(&mut house, ("home", "ollama", home.port()), &[]);
    let daemon = house.start().await;
    let with_home = written(&house);
    let held = held_on(&home, &daemon).await;

    let url = format!("http://127.0.0.1:{}", attic.port());
    let of_attic = format!("[[external]]\nid = \"attic\"\nkind = \"ollama\"\nurl = \"{url}\"\n");
    assert_eq!(reload((&house, &daemon), &format!("{with_home}\n{of_attic}"), "external").await, "live");
    assert!(is_listed(&daemon, "y:latest").await && is_listed(&daemon, "x:latest").await);
    assert_eq!(status_of(&daemon, "attic/y:latest").await, 200);
    assert_eq!(attic.residents().len(), 1);

    assert_eq!(reload((&house, &daemon), &of_attic, "external").await, "live");
    assert!(is_listed(&daemon, "y:latest").await && !is_listed(&daemon, "x:latest").await);
    assert_eq!(status_of(&daemon, "home/x:latest").await, 404);
    assert_eq!(home.residents().len(), 1, "a request is there");
    home.release();
    let answer = held.await.expect("no panic");
    assert_eq!(answer.status, 200, "{}", answer.text());
    eventually("what was ours is given back", async || home.residents().is_empty().then_some(())).await;
    assert_eq!(attic.residents().len(), 1);
    daemon.stop().await;
    assert!(attic.residents().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_before_its_last_request_ended_keeps_what_is_ours() {
    let home = FakeOllama::open(&["x:latest"]).await.expect("a port");
    let mut house = House::new();
    served_fakes::enter(&mut house, ("home", "ollama", home.port()), &[]);
    let daemon = house.start().await;
    let with_home = written(&house);
    let held = held_on(&home, &daemon).await;
    assert_eq!(reload((&house, &daemon), "", "external").await, "live");
    assert_eq!(reload((&house, &daemon), &with_home.replace("\"home\"", "\"house\""), "external").await, "live");
    home.release();
    assert_eq!(held.await.expect("no panic").status, 200);
    assert_eq!(status_of(&daemon, "house/x:latest").await, 200);
    let ours = residency(&daemon).await["targets"][0]["residents"][0]["owner"].clone();
    assert_eq!((ours, home.residents().len()), (json!("ours"), 1));
    daemon.stop().await;
    assert!(home.residents().is_empty());
    let unloads = home.asked("/api/generate").into_iter().filter(|one| one.body["keep_alive"] == 0).count();
    assert_eq!(unloads, 1, "at the end, and not before");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_protected_from_now_on_goes_last_and_stays_ours() {
    let router = Router::open(2).await;
    let mut house = House::new();
    enter(&mut house, ("desk", &router), &[]);
    let daemon = house.start().await;
    for model in ["a", "b"] {
        assert_eq!(status_of(&daemon, model).await, 200);
    }
    let protect = "[[protect]]\nmodel = \"a\"\nrole = \"memory\"\n";
    assert_eq!(reload((&house, &daemon), &format!("{}\n{protect}", written(&house)), "protect").await, "live");
    assert_eq!(status_of(&daemon, "c").await, 200);
    assert_eq!(router.residents().await, ["a", "c"], "before, the first of the listing would have gone");
    daemon.stop().await;
    assert!(router.residents().await.is_empty(), "both are given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_spoken_to_changes_nothing() {
    let home = FakeOllama::open(&["x:latest"]).await.expect("a port");
    let mut house = House::new();
    served_fakes::enter(&mut house, ("home", "ollama", home.port()), &[]);
    let daemon = house.start().await;
    let missing = house.path("no such key");
    let key = format!("kind = \"ollama\"\nkey_file = \"{}\"", missing.display());
    let wrong = written(&house).replace("kind = \"ollama\"", &key);
    house.write_beside("motorpool.toml", &wrong);
    let refused = daemon.control().post(RELOAD, &json!({})).await.expect("an answer");
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("no such key"), "{}", refused.text());
    assert_eq!(status_of(&daemon, "home/x:latest").await, 200);
    daemon.stop().await;
}
