//! The command line against a running daemon.
use crate::support::{assert_serves, gate, pausing, stream_until};
use motorpool_testkit::{Behaviour, eventually, text};
use motorpool_tests::e2e::{House, talk::Said};
use nix::sys::signal::Signal;
use serde_json::json;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

#[tokio::test]
async fn engines_and_models_are_shown_to_people_and_to_programs() {
    let mut house = House::new();
    let model =
        house.fake_with("a", &Behaviour::default(), "declared = \"600MiB\"\nslots = 2\naliases = [\"first\"]\n");
    let daemon = house.start().await;
    assert!(daemon.cli(&["ps"]).await.stdout.contains("no engine has been started"));
    let load = daemon.cli(&["load", "first"]).await;
    assert_eq!(load.code, Some(0), "{load:?}");
    let ps = daemon.cli(&["ps"]).await.stdout;
    let row = ps.lines().find(|line| line.starts_with("llama-server:a:0")).unwrap_or_else(|| panic!("its row: {ps}"));
    let pid = model.starts()[0].pid;
    assert!(row.contains("ready") && row.contains(&pid.to_string()), "{ps}");
    assert!(row.contains("600.0 MiB declared") && row.contains("RAM") && !row.contains("1000"), "{ps}");
    assert_serves(&daemon, "a").await;
    let measured = eventually("its last request is counted", async || {
        let whole = daemon.cli(&["ps", "--json"]).await.json();
        Some(whole["engines"][0]["tokensPerSecond"].clone()).filter(|rate| !rate.is_null())
    })
    .await;
    // As the engine says of it.
    assert_eq!(measured, json!(1000.0));
    let ps = daemon.cli(&["ps"]).await.stdout;
    assert!(ps.lines().any(|line| line.starts_with("llama-server:a:0") && line.contains(" 1000 ")), "{ps}");
    let whole = daemon.cli(&["ps", "--json"]).await.json();
    assert_eq!((&whole["engines"][0]["pid"], &whole["pool"]["budgetBytes"]), (&json!(pid), &json!(1 << 30)), "{whole}");
    let models = daemon.cli(&["models"]).await.stdout;
    assert!(models.lines().any(|line| line.starts_with('a') && line.contains("loaded")), "{models}");
    assert!(daemon.cli(&["models", "--json"]).await.json()["models"].is_array());
    daemon.stop().await;
}

#[tokio::test]
async fn a_daemon_that_hangs_is_a_finding_with_its_cure() {
    let house = House::new();
    let daemon = house.start().await;
    daemon.signal(Signal::SIGSTOP);
    let findings = daemon.cli(&["doctor", "--json"]).await;
    daemon.signal(Signal::SIGCONT);
    assert!(findings.code.is_some_and(|code| code != 0), "{findings:?}");
    let findings = findings.json();
    let is_it = |finding: &&serde_json::Value| finding["what"] == "daemon";
    let found = findings.as_array().and_then(|all| all.iter().find(is_it)).expect("a finding");
    let text = |key: &str| found[key].as_str().unwrap_or_default();
    assert!(text("state") == "fault" && text("found").contains("does not answer within 5 s"), "{found}");
    assert!(text("cure").contains(&format!("kill -CONT {}", daemon.pid())), "{found}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_question_is_answered_on_standard_output() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    let outcome = daemon.cli(&["run", "a", "hello"]).await;
    assert_eq!((outcome.code, outcome.stdout.trim()), (Some(0), text("hello", 8).trim()));
    let whole = daemon.cli(&["run", "a", "hello", "--json"]).await.json();
    assert_eq!(whole["choices"][0]["message"]["content"], text("hello", 8));
    daemon.stop().await;
}

#[tokio::test]
async fn what_can_never_fit_is_not_cured_by_unloading_and_what_never_ran_has_no_log() {
    let mut house = House::new();
    house.fake_with("big", &Behaviour::default(), "declared = \"2GiB\"\n");
    house.add_model("gone", &house.path("models/gone.gguf"), "declared = \"100MiB\"\n");
    let daemon = house.start().await;
    let big = daemon.cli(&["load", "big"]).await;
    assert!(big.code == Some(10) && big.stderr.contains("use a smaller model"), "{big:?}");
    let gone = daemon.cli(&["load", "gone"]).await;
    assert!(gone.code == Some(10) && gone.stderr.contains("model list"), "{gone:?}");
    assert!(!gone.stderr.contains("logs"), "{gone:?}");
    daemon.stop().await;
}

/// `motorpool <args>` in this house, whose reader takes so many bytes and goes. It must end by itself, quietly.
async fn read_only(house: &House, args: &[&str], n_bytes: usize) {
    let mut command = house.command(args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_exact(&mut vec![0; n_bytes]).await.expect("so much is printed");
    drop(stdout);
    let output = child.wait_with_output().await.expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.trim()), (Some(0), ""), "{args:?}");
}

#[tokio::test]
async fn whoever_reads_no_more_of_an_answer_or_a_log_ends_the_command_and_frees_the_slot() {
    let mut house = House::new();
    let never = gate(&house, "never");
    house.fake("a", &pausing(20, 10, &never));
    let daemon = house.start().await;
    read_only(&house, &["run", "a", "hello"], 10).await;
    daemon.until_quiet().await;
    read_only(&house, &["logs", "-f", "a"], 10).await;
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_busy_is_unloaded_only_after_its_work_or_by_force() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    house.fake("a", &pausing(20, 10, &go_on));
    let daemon = house.start().await;
    let (stream, mut events) = stream_until(&daemon, ("a", "hello"), 9).await;
    let refused = daemon.cli(&["unload", "a", "--idle"]).await;
    assert_eq!(refused.code, Some(10), "{refused:?}");
    let words = "engine llama-server:a:0 is currently serving requests and cannot be unloaded yet. Wait for current turns to finish.";
    assert!(refused.stderr.contains(words), "{}", refused.stderr);
    let forced = daemon.cli(&["unload", "a", "--force"]).await;
    assert_eq!(forced.code, Some(0), "{forced:?}");
    events += &stream.whole().await.expect("an orderly end").text();
    let said = Said::read(&events);
    assert_eq!(said.error.expect("an event")["code"], "evicted");
    daemon.until_phase("a", &["idle"]).await;

    let (stream, mut events) = stream_until(&daemon, ("a", "hello"), 9).await;
    let unload = daemon.cli(&["unload", "a"]);
    let release = async {
        eventually("it drains", async || daemon.log().contains("drain").then_some(())).await;
        go_on.open().expect("opened");
        stream.whole().await.expect("its end").text()
    };
    let (unloaded, rest) = tokio::join!(unload, release);
    events += &rest;
    assert_eq!((unloaded.code, Said::read(&events)), (Some(0), Said::whole("hello", 20)));
    let told = "waiting for 1 request at llama-server:a:0; --force cuts it";
    assert!(unloaded.stderr.contains(told), "{unloaded:?}");
    let again = daemon.cli(&["unload", "a"]).await;
    assert_eq!(again.code, Some(0), "nothing is left to do: {again:?}");
    assert_serves(&daemon, "a").await;
    assert_eq!(daemon.cli(&["unload", "--idle"]).await.code, Some(0));
    daemon.until_phase("a", &["idle"]).await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_engines_words_are_followed_as_they_come() {
    let mut house = House::new();
    let load = gate(&house, "load");
    house.fake("a", &crate::support::loading_until(&load));
    let daemon = house.start().await;
    let http = daemon.http();
    let asked =
        tokio::spawn(
            async move { http.post("/v1/chat/completions", &motorpool_tests::e2e::talk::ask("a", "hello")).await },
        );
    daemon.until_phase("a", &["starting"]).await;
    let mut follower = house.command(&["logs", "-f", "a"]).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(follower.stdout.take().expect("piped")).lines();
    let mut until = async |words: &str| loop {
        let line = lines.next_line().await.expect("text").expect("it follows");
        if line.contains(words) {
            break;
        }
    };
    until("loading model").await;
    load.open().expect("opened");
    until("server is listening").await;
    follower.kill().await.expect("ours");
    asked.await.expect("no panic").expect("an answer");
    daemon.stop().await;
}
