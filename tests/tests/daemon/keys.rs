//! Access keys, from the command that makes one to the address that other machines reach.
use http::Request;
use http_body_util::Full;
use motorpool_testkit::{Behaviour, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{CHAT, chat},
};
use serde_json::json;
use std::process::Stdio;
use tokio::{io::AsyncWriteExt as _, process::Child};

/// A house with a model that listens where other machines reach it.
fn reachable() -> House {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    house.set("server.listen", vec!["0.0.0.0:0"]);
    house.write_config();
    house
}

async fn status_with(daemon: &Daemon<'_>, key: Option<&str>) -> u16 {
    let body = Full::new(chat("a", "hello").to_string().into());
    let request = Request::post(CHAT).header("host", "localhost").header("content-type", "application/json");
    let request = match key {
        Some(key) => request.header("authorization", format!("Bearer {key}")),
        None => request,
    };
    let answer = daemon.http().send(request.body(body).expect("a request")).await.expect("an answer");
    answer.whole().await.expect("an orderly end").status.as_u16()
}

#[tokio::test]
async fn other_machines_are_let_in_with_a_key_or_when_the_operator_says_so_and_not_by_oversight() {
    let house = reachable();
    let refused = house.start_in_vain().await;
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("0.0.0.0:") && refused.stderr.contains("motorpool key new"), "{refused:?}");
    let open = Daemon::start_as(&house, &["serve", "--insecure"], "listening on http://").await;
    assert_eq!(status_with(&open, None).await, 200);
    assert!(open.log().contains("may do everything"), "{}", open.log());
    open.stop().await;
    let made = house.run(&["key", "new", "ann", "--scope", "inference,read"]).await;
    let key = made.stdout.trim().to_owned();
    assert!(key.starts_with("mp_") && key.len() == 67, "{made:?}");
    let daemon = house.start().await;
    for (shown, status) in [(None, 401), (Some("mp_other"), 401), (Some(key.as_str()), 200)] {
        assert_eq!(status_with(&daemon, shown).await, status, "{shown:?}");
    }
    let listed = daemon.cli(&["key", "list"]).await;
    assert!(listed.stdout.contains("ann") && !listed.stdout.contains(&key), "{listed:?}");
    assert_eq!(daemon.cli(&["key", "revoke", "ann"]).await.code, Some(0));
    eventually("the last key is gone and nobody gets in", async || {
        (status_with(&daemon, Some(&key)).await == 401).then_some(())
    })
    .await;
    assert_eq!(daemon.cli(&["ps"]).await.code, Some(0), "the operator always does");
    daemon.stop().await;
}

#[tokio::test]
async fn a_file_of_keys_that_the_configuration_names_is_the_one_and_must_be_there() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    let file = house.path("keys of the house.json");
    house.set("keys.file", file.to_str().expect("a path of ours"));
    house.write_config();
    let refused = house.start_in_vain().await;
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains(&*file.to_string_lossy()) && refused.stderr.contains("key new"), "{refused:?}");
    let key = house.run(&["key", "new", "ann"]).await.stdout.trim().to_owned();
    assert!(file.is_file(), "made where it is said to be");
    let daemon = house.start().await;
    for (shown, status) in [(None, 401), (Some(key.as_str()), 200)] {
        assert_eq!(status_with(&daemon, shown).await, status, "{shown:?}");
    }
    assert!(daemon.cli(&["key", "list"]).await.stdout.contains("ann"));
    // Whatever is wrong elsewhere, a key that leaked is revoked.
    house.write_beside("catalog/wrong.toml", "id =");
    assert_eq!(daemon.cli(&["key", "revoke", "ann"]).await.code, Some(0));
    assert!(daemon.cli(&["key", "list"]).await.stdout.lines().all(|line| !line.contains("ann")));
    daemon.stop().await;
}

#[tokio::test]
async fn a_pool_at_an_address_is_asked_with_a_key_that_has_the_right() {
    let house = reachable();
    for (name, scope) in [("reader", "read"), ("manager", "inference,read,manage")] {
        let made = house.run(&["key", "new", name, "--scope", scope]).await;
        std::fs::write(house.path(name), made.stdout).expect("written");
    }
    let narrow = house.run(&["key", "new", "narrow", "--model", "b"]).await.stdout;
    let wide = house.run(&["key", "new", "odd", "--scope", "inference,manage", "--model", "a"]).await;
    assert_eq!(wide.code, Some(2), "{wide:?}");
    let daemon = house.start().await;
    let server = format!("http://{}", daemon.address().replace("0.0.0.0", "127.0.0.1"));
    let ask = async |key: Option<&str>, args: &[&str]| {
        let file = key.map(|name| house.path(name).display().to_string());
        let key = file.iter().flat_map(|file| ["--key-file", file.as_str()]);
        let args: Vec<_> = args.iter().copied().chain(["--server", &server]).chain(key).collect();
        house.run(&args).await
    };
    let denied = ask(None, &["ps"]).await;
    assert_eq!(denied.code, Some(11), "{denied:?}");
    assert!(denied.stderr.contains("--key-file"), "{denied:?}");
    let denied = ask(Some("reader"), &["load", "a"]).await;
    assert_eq!(denied.code, Some(11), "{denied:?}");
    assert!(denied.stderr.contains("manage"), "{denied:?}");
    assert_eq!(ask(Some("manager"), &["load", "a"]).await.code, Some(0));
    let seen = ask(Some("reader"), &["ps"]).await;
    assert!(seen.code == Some(0) && seen.stdout.contains("llama-server:a:0"), "{seen:?}");
    for (key, n) in [(narrow, 0), (std::fs::read_to_string(house.path("manager")).expect("written"), 1)] {
        let running = Request::get("/running").header("host", "localhost").header("x-api-key", key.trim());
        let running = daemon.http().send(running.body(Full::default()).expect("a request")).await.expect("an answer");
        let running = running.whole().await.expect("an orderly end").json();
        assert_eq!(running["running"].as_array().map(Vec::len), Some(n), "{running}");
    }
    let said = ask(Some("manager"), &["run", "a", "hello"]).await;
    assert!(said.code == Some(0) && !said.stdout.trim().is_empty(), "{said:?}");
    let planned = ask(Some("reader"), &["plan", "a", "--context", "512", "--json"]).await;
    assert_eq!(planned.code, Some(0), "{planned:?}");
    let launch = &planned.json()["launches"][0];
    assert_eq!((&launch["verdict"]["outcome"], &launch["context"]), (&json!("resident"), &json!(512)), "{launch:#}");
    assert!(launch["total"]["systemMemory"].as_u64().is_some_and(|bytes| bytes > 0), "{launch:#}");
    let explained = ask(Some("reader"), &["explain", "a"]).await;
    assert!(explained.code == Some(0) && explained.stdout.contains("runs already"), "{explained:?}");
    let unknown = ask(Some("reader"), &["explain", "nobody"]).await;
    assert_eq!(unknown.code, Some(4), "{unknown:?}");
    let both = ask(Some("reader"), &["plan", "a", "--on", "host.toml"]).await;
    assert!(both.code == Some(2) && both.stderr.contains("--server"), "{both:?}");
    assert_eq!(ask(Some("manager"), &["serve"]).await.code, Some(2), "that is about this machine");
    daemon.stop().await;
    let nobody = ask(Some("reader"), &["ps"]).await;
    assert_eq!(nobody.code, Some(8), "{nobody:?}");
}

async fn own_key(house: &House, key: &str) -> (Option<i32>, String) {
    let mut command = house.command(&["key", "new", "own", "--own"]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child: Child = command.spawn().expect("it runs");
    child.stdin.take().expect("piped").write_all(key.as_bytes()).await.expect("it reads");
    let output = child.wait_with_output().await.expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[tokio::test]
async fn a_key_made_by_hand_is_taken_from_standard_input_if_it_is_one() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    house.write_config();
    for bad in ["", "short\n", "with spaces in it\n", "sch\u{f6}ner-schl\u{fc}ssel\n"] {
        let (code, said) = own_key(&house, bad).await;
        assert_eq!(code, Some(2), "{bad:?}: {said}");
        assert!(said.contains("8 visible ASCII characters"), "{said}");
    }
    assert_eq!(own_key(&house, "hunter22\n").await.0, Some(0));
    let daemon = house.start().await;
    assert_eq!((status_with(&daemon, Some("hunter22")).await, status_with(&daemon, None).await), (200, 401));
    daemon.stop().await;
}
