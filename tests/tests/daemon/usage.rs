//! What requests took, from one daemon to the next; and what was refused, with its proof.
use http::Request;
use http_body_util::Full;
use motorpool_testkit::{Behaviour, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{CHAT, ask},
};
use motorpool_vocab::GIB;
use serde_json::{Value, json};
use std::fs;

/// Rows of a table of the command line, once there are so many requests in them.
async fn rows_of(daemon: &Daemon<'_>, by: &str, requests: u64) -> Vec<Value> {
    eventually("every request has its row", async || {
        let shown = daemon.cli(&["usage", "--by", by, "--since", "7d", "--json"]).await;
        assert_eq!(shown.code, Some(0), "{shown:?}");
        let rows = shown.json()["rows"].as_array().expect("rows").clone();
        let sum: u64 = rows.iter().filter_map(|row| row["requests"].as_u64()).sum();
        (sum == requests).then_some(rows)
    })
    .await
}

async fn asked_with(daemon: &Daemon<'_>, key: &str, body: &Value) -> u16 {
    let request = Request::post(CHAT)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {key}"))
        .body(Full::new(body.to_string().into()))
        .expect("a request");
    daemon.http().send(request).await.expect("an answer").whole().await.expect("whole").status.as_u16()
}

#[tokio::test]
async fn what_requests_took_outlives_the_daemon_and_holds_no_secret_and_no_word_of_theirs() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    house.write_config();
    let key = house.run(&["key", "new", "team"]).await.stdout.trim().to_owned();
    let daemon = house.start().await;
    assert_eq!(asked_with(&daemon, &key, &ask("a", "a very private matter")).await, 200);
    assert_eq!(asked_with(&daemon, &key, &ask("unheard-of", "a very private matter")).await, 404);
    let (before, hours) = (rows_of(&daemon, "key", 2).await, rows_of(&daemon, "hour", 2).await);
    daemon.stop().await;
    let daemon = house.start().await;
    assert_eq!(rows_of(&daemon, "hour", 2).await, hours, "they are the same");
    let row = before.iter().find(|row| row["model"] == "a").expect("the one that was served");
    assert_eq!((&row["key"], &row["errors"]), (&json!("team"), &json!(0)), "{row}");
    assert!(row["prompt"].as_u64().is_some_and(|n| n > 0) && row["generated"].as_u64().is_some_and(|n| n > 0), "{row}");
    assert!(before.iter().any(|row| row["model"].is_null() && row["errors"] == 1), "{before:?}");
    assert!(hours.iter().all(|row| row["from"].as_str().is_some_and(|from| from.ends_with(":00:00Z"))), "{hours:?}");
    let table = daemon.cli(&["usage"]).await;
    assert!(table.stdout.contains("GENERATED") && table.stdout.contains("(none)"), "{table:?}");
    assert_eq!(daemon.cli(&["usage", "--since", "yesterday"]).await.code, Some(2));
    daemon.stop().await;
    for name in ["requests.sqlite", "requests.sqlite-wal"] {
        let bytes = fs::read(house.state(name)).unwrap_or_default();
        for secret in [key.as_str(), "private matter"] {
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret} is in {name}");
        }
    }
}

#[tokio::test]
async fn who_wants_no_history_has_none() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    house.set("usage.disk", "0B");
    let daemon = house.start().await;
    assert_eq!(daemon.http().post(CHAT, &ask("a", "hello")).await.expect("an answer").status, 200);
    let shown = daemon.cli(&["usage"]).await;
    assert!(shown.stdout.contains("not kept"), "{shown:?}");
    daemon.stop().await;
    assert!(!house.state("requests.sqlite").exists());
}

#[tokio::test]
async fn a_refused_build_is_shown_with_its_arithmetic_until_the_daemon_ends() {
    let mut house = House::new();
    house.fake_with("big", &Behaviour::default(), "declared = \"2GiB\"\n");
    let daemon = house.start().await;
    let path = "/api/motorpool/v1/denials";
    let shown: Value = daemon.http().get(path).await.expect("an answer").json();
    assert_eq!(shown, json!({"denials": []}));
    assert_eq!(daemon.http().post(CHAT, &ask("big", "hello")).await.expect("an answer").status, 503);
    let shown: Value = daemon.http().get(path).await.expect("an answer").json();
    let denial = &shown["denials"][0];
    let (requested, would) = (&denial["requested"]["totalBytes"], &denial["wouldCommitBytes"]);
    assert_eq!((requested, would, &denial["boundBytes"]), (&json!(2 * GIB), &json!(2 * GIB), &json!(GIB)), "{shown}");
    assert_eq!((&denial["model"], &denial["which"]), (&json!("big"), &json!("budget")));
    let reason = denial["reason"].as_str().expect("a text");
    assert!(daemon.log().contains(reason), "the log says the same: {reason}");
    daemon.stop().await;
}
