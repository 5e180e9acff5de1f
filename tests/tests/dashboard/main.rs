//! The dashboard in a real Chromium, against the real program: the scripts beside this.
//!
//! Fake engines stand still at gates, which are files that a script makes when it has seen enough; the chat is tried with
//! the real engine too. Whatever a script does, the page asks nobody but us, logs no error, and breaks no rule of its policy.
#![cfg(target_os = "linux")]
use motorpool_testkit::{Behaviour, End, Exit, FakeModel, Gate, Load, Moment, TokenGate, Tokens, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    clients::run_in,
    house::outcome,
    installed::{self, MODEL},
};
use serde_json::{Value, json};
use std::{fs, path::Path};

mod picture;

const CHROMIUM: &str = "/usr/bin/chromium";
const INSTALL: &str = "apt-get install --yes --no-install-recommends chromium fonts-dejavu-core";

/// Runs a script against what `pool` says. It has a house of its own, which ends what a browser leaves behind.
async fn look(script: &str, pool: &Value) {
    assert!(Path::new(CHROMIUM).exists(), "the tests of the dashboard need Debian's chromium; as root: {INSTALL}");
    let said = run_in("dashboard", &House::new(), script, pool).await;
    assert!(said.contains("all of it holds"), "{script} ended early: {said}");
}

fn gates(house: &House, name: &str, n: usize) -> Vec<Gate> {
    (1..=n).map(|step| Gate::closed(house.folder(), &format!("{name}-{step}"))).collect()
}

fn files(gates: &[Gate]) -> Vec<String> {
    gates.iter().map(|gate| gate.file().display().to_string()).collect()
}

/// A model whose replies stand still before their third token until the gate is open.
fn pausing(house: &mut House, id: &str, gate: &Gate) -> FakeModel {
    let gates = vec![TokenGate { before: 3, file: gate.file() }];
    house.fake(id, &Behaviour { tokens: Tokens { count: 8, gates, ..Tokens::default() }, ..Behaviour::default() })
}

fn url(daemon: &Daemon<'_>) -> String {
    format!("http://{}", daemon.address())
}

#[tokio::test]
async fn the_page_shows_what_happens_and_does_what_it_is_told() {
    let mut house = House::new();
    let (steps, pause) = (gates(&house, "step", 4), gates(&house, "pause", 1));
    let load = Load {
        steps: 4,
        gates: steps.iter().map(Gate::file).collect(),
        log: vec!["a line that only this engine prints".into()],
        ..Load::default()
    };
    house.fake("steady", &Behaviour { load, ..Behaviour::default() });
    pausing(&mut house, "slow", &pause[0]);
    let exit = Exit {
        at: Moment::Loading,
        how: End::Code(1),
        log: vec!["error: invalid argument: --x".into()],
        first_starts: None,
    };
    house.fake("broken", &Behaviour { exit: Some(exit), ..Behaviour::default() });
    house.fake_with("big", &Behaviour::default(), "declared = \"100GiB\"\n");
    let daemon = house.start().await;
    let pool = json!({ "url": url(&daemon), "steps": files(&steps), "pause": files(&pause)[0] });
    look("pool.mjs", &pool).await;
    daemon.until_quiet().await;
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
    daemon.stop().await;
}

#[tokio::test]
async fn the_page_survives_a_restart_and_says_so() {
    let mut house = House::new();
    house.fake("m", &Behaviour::default());
    // The port that it gets is free again for the next ones.
    let daemon = house.start().await;
    let address = daemon.address().to_owned();
    daemon.stop().await;
    house.set("server.listen", vec![address]);
    let daemon = house.start().await;
    // Whoever has a path of the house in its environment counts as its process.
    let desk = tempfile::tempdir().expect("a directory");
    let (stop, start) = (desk.path().join("stop-it"), desk.path().join("start-it"));
    let pool = json!({ "url": url(&daemon), "stop": stop, "start": start });
    let script = look("restart.mjs", &pool);
    let keeper = async {
        eventually("the script wants it stopped", async || stop.exists().then_some(())).await;
        daemon.stop().await;
        fs::remove_file(&stop).expect("ours");
        eventually("the script wants it started", async || start.exists().then_some(())).await;
        let second = house.start().await;
        fs::remove_file(&start).expect("ours");
        second
    };
    let ((), second) = tokio::join!(script, keeper);
    second.stop().await;
}

#[tokio::test]
async fn a_server_with_keys_asks_for_one_and_shows_it_in_a_header_only() {
    let mut house = House::new();
    house.fake("m", &Behaviour::default());
    house.write_config();
    let mut keys = Vec::new();
    for (name, scope) in [("whole", "inference,read,manage"), ("narrow", "inference")] {
        let made = outcome(house.command(&["key", "new", name, "--scope", scope])).await;
        assert_eq!(made.code, Some(0), "{made:?}");
        keys.push(made.stdout.trim().to_owned());
    }
    let daemon = house.start().await;
    look("keys.mjs", &json!({ "url": url(&daemon), "whole": keys[0], "narrow": keys[1] })).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_chat_with_the_real_model_streams_and_stops() {
    let house = installed::house().await;
    let daemon = house.start().await;
    look("real.mjs", &json!({ "url": url(&daemon), "model": MODEL })).await;
    daemon.until_quiet().await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_modules_hold_without_a_browser() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/dashboard/tests");
    let mut node = tokio::process::Command::new("node");
    node.arg("--test")
        .args(["pure", "streams"].map(|name| tests.join(name).with_extension("test.mjs")))
        .stdin(std::process::Stdio::null());
    let ended = outcome(node).await;
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("# pass 24\n"), "some did not run: {}", ended.stdout);
}
