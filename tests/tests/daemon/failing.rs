//! Starts that fail: what is tried again, how often, and what ends it (supervisor.md §4).
use crate::support::{assert_refused, assert_serves, header, n_starts, retry_after};
use motorpool_testkit::{Behaviour, End, Exit, FakeModel, Moment};
use motorpool_tests::e2e::{
    Daemon, House,
    house::read,
    talk::{CHAT, chat},
};
use serde_json::{Value, json};
use std::fs;

/// It ends while it loads, with these last words.
fn ending(how: End, log: &str, first_starts: Option<u32>) -> Behaviour {
    let exit = Exit { at: Moment::Loading, how, log: vec![log.into()], first_starts };
    Behaviour { exit: Some(exit), ..Behaviour::default() }
}

async fn ask(daemon: &Daemon<'_>, model: &str) -> motorpool_testkit::Answer {
    daemon.http().post(CHAT, &chat(model, "hello")).await.expect("an answer")
}

/// The lines of launches, oldest first.
fn launches(daemon: &Daemon<'_>) -> Vec<Value> {
    let log = daemon.log();
    let lines = log.lines().filter_map(|line| line.split_once("[llama-server] launch "));
    lines.map(|(_, line)| serde_json::from_str(line).expect("JSON to the end of the line")).collect()
}

/// The same model, written anew.
fn touch(model: &FakeModel) {
    let bytes = fs::read(model.path()).expect("there");
    fs::remove_file(model.path()).expect("ours");
    fs::write(model.path(), bytes).expect("writable");
}

#[tokio::test]
async fn what_must_fail_again_is_started_once_and_stops_nobody_until_its_file_changes_or_a_reset() {
    let mut house = House::new();
    let model = house.fake("a", &ending(End::Code(1), "error: invalid argument: --x", None));
    house.fake("b", &Behaviour::default());
    let daemon = house.start().await;
    let first = assert_refused(&ask(&daemon, "a").await, 500, "engine_start_failed");
    let message = first["message"].as_str().expect("a text");
    assert!(message.contains("(bad-arguments)") && message.contains("invalid argument: --x"), "{message}");
    assert_serves(&daemon, "b").await;
    for _ in 0..5 {
        let again = assert_refused(&ask(&daemon, "a").await, 500, "engine_start_failed");
        assert!(again["message"].as_str().is_some_and(|text| text.contains("motorpool reset a")), "{again}");
    }
    assert_eq!(n_starts(&model), 1, "a deterministic failure is no loop");
    assert_eq!(daemon.status().await.engine("b").expect("it is there").phase, "ready", "nobody was stopped for it");
    let ps = daemon.cli(&["ps"]).await.stdout;
    assert!(ps.lines().any(|line| line.contains(":a:0") && line.contains("failed")), "{ps}");
    let explained = daemon.cli(&["explain", "a"]).await;
    assert!(explained.stderr.contains("is failed") && explained.stderr.contains("bad-arguments"), "{explained:?}");

    touch(&model);
    assert_refused(&ask(&daemon, "a").await, 500, "engine_start_failed");
    assert_eq!(n_starts(&model), 2, "a changed file is tried");
    let reset = daemon.cli(&["reset", "a"]).await;
    assert_eq!((reset.code, reset.stdout.trim()), (Some(0), "forgotten: llama-server:a:0"), "{reset:?}");
    assert_refused(&ask(&daemon, "a").await, 500, "engine_start_failed");
    assert_eq!(n_starts(&model), 3, "a reset has it tried");
    daemon.stop().await;
}

#[tokio::test]
async fn three_failed_starts_open_the_breaker_and_a_reset_closes_it() {
    let mut house = House::new();
    let model = house.fake("a", &ending(End::Code(3), "something odd", Some(3)));
    let daemon = house.start().await;
    for _ in 0..3 {
        assert_refused(&ask(&daemon, "a").await, 502, "engine_start_failed");
    }
    for _ in 0..4 {
        let answer = ask(&daemon, "a").await;
        let error = assert_refused(&answer, 503, "breaker_open");
        assert!((1..=60).contains(&retry_after(&answer)), "{:?}", answer.headers);
        assert_eq!(header(&answer, "x-should-retry"), "true");
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains("too often") && message.contains("something odd"), "{message}");
    }
    assert_eq!(n_starts(&model), 3, "nothing is started while it is open");
    let ps = daemon.cli(&["ps"]).await.stdout;
    assert!(ps.contains("breaker-open"), "{ps}");
    assert_eq!(daemon.cli(&["reset"]).await.code, Some(0));
    assert_serves(&daemon, "a").await;
    assert_eq!(n_starts(&model), 4);
    daemon.stop().await;
}

#[tokio::test]
async fn after_its_pause_one_start_is_tried_and_a_success_closes_the_breaker() {
    let mut house = House::new();
    house.set("breaker.failures", 2);
    house.set("breaker.pause", "1s");
    let model = house.fake("a", &ending(End::Code(3), "something odd", Some(2)));
    let daemon = house.start().await;
    for _ in 0..2 {
        assert_refused(&ask(&daemon, "a").await, 502, "engine_start_failed");
    }
    motorpool_testkit::eventually("the pause is over", async || (ask(&daemon, "a").await.status == 200).then_some(()))
        .await;
    assert_eq!(n_starts(&model), 3);
    let engine = daemon.control().get("/api/motorpool/v1/engines/llama-server:a:0").await.expect("an answer").json();
    assert_eq!(engine["trouble"], Value::Null, "{engine}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_build_that_this_processor_cannot_run_is_not_used_again_and_the_next_one_is() {
    // While it loads, or while its first inference is asked.
    for at in [Moment::Loading, Moment::Token(1)] {
        cannot_be_run(at).await;
    }
}

async fn cannot_be_run(at: Moment) {
    let mut house = House::new();
    let mut behaviour = ending(End::Signal("SIGILL".into()), "", Some(1));
    behaviour.exit.as_mut().expect("it ends").at = at;
    let model = house.fake("a", &behaviour);
    let other = house.path("bin/llama-server");
    fs::create_dir_all(house.path("bin")).expect("made");
    fs::copy(motorpool_testkit::binary("motorpool-fake-engine"), &other).expect("copied");
    let path = std::env::var("PATH").unwrap_or_default();
    house.set_env("PATH", &format!("{}:{path}", house.path("bin").display()));
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    assert_eq!(n_starts(&model), 2, "the request went on to the next build: {at:?}");
    let programs: Vec<_> = launches(&daemon).iter().map(|launch| launch["program"].clone()).collect();
    assert_eq!(programs[1], json!(other.display().to_string()), "{programs:?}");
    assert_ne!(programs[0], programs[1]);
    daemon.stop().await;
}

#[tokio::test]
async fn when_no_build_is_left_that_is_said_and_nothing_is_started() {
    let mut house = House::new();
    let model = house.fake("a", &ending(End::Signal("SIGILL".into()), "", None));
    house.set_env("PATH", "/nonexistent");
    let daemon = house.start().await;
    for _ in 0..3 {
        let error = assert_refused(&ask(&daemon, "a").await, 500, "engine_start_failed");
        assert!(error["message"].as_str().is_some_and(|text| text.contains("(illegal-instruction)")), "{error}");
    }
    assert_eq!(n_starts(&model), 1);
    let ps = daemon.cli(&["ps"]).await.stdout;
    assert!(ps.contains("quarantined"), "{ps}");
    daemon.stop().await;
}

const SHORTER: &str = "declared = \"200MiB\"\nslots = 1\ncontext_min = 256\n";

#[tokio::test]
async fn what_ran_out_of_memory_is_started_once_more_and_smaller() {
    let mut house = House::new();
    let model = house.fake_with("a", &ending(End::Code(1), "failed to allocate buffer", Some(1)), SHORTER);
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let contexts: Vec<_> = launches(&daemon).iter().map(|launch| launch["contextPerSlot"].clone()).collect();
    assert_eq!((contexts, n_starts(&model)), (vec![json!(512), json!(256)], 2));
    daemon.stop().await;
}

#[tokio::test]
async fn what_runs_out_of_memory_again_is_told_and_an_explicit_size_is_never_changed() {
    let mut house = House::new();
    let oom = ending(End::Code(1), "failed to allocate buffer", None);
    let shorter = house.fake_with("a", &oom, SHORTER);
    let explicit = house.fake_with("b", &oom, "declared = \"200MiB\"\nslots = 1\n");
    let daemon = house.start().await;
    for (name, model, n) in [("a", &shorter, 2), ("b", &explicit, 1)] {
        let error = assert_refused(&ask(&daemon, name).await, 502, "engine_start_failed");
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains("(out-of-host-memory)") && message.contains("`context`"), "{message}");
        assert_eq!(n_starts(model), n, "{name}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn an_incident_tells_how_the_engine_was_launched_and_what_it_said_last() {
    let mut house = House::new();
    house.fake("a", &ending(End::Code(9), "api_key=hush, giving up", None));
    let daemon = house.start().await;
    assert_refused(&ask(&daemon, "a").await, 502, "engine_start_failed");
    let incident: Value = motorpool_testkit::eventually("the incident is written", async || {
        let text = read(&house.state("incidents.jsonl"));
        text.ends_with('\n').then(|| serde_json::from_str(text.lines().next().unwrap_or_default()).expect("JSON"))
    })
    .await;
    assert_eq!((&incident["code"], &incident["everReady"]), (&json!(9), &json!(false)), "{incident}");
    assert_eq!((&incident["plan"]["slots"], &incident["plan"]["contextPerSlot"]), (&json!(2), &json!(512)));
    let tail = incident["tail"].to_string();
    assert!(tail.contains("giving up") && !tail.contains("hush"), "{tail}");
    let exit = daemon.status().await.engine("a").expect("it is there").last_exit.clone().expect("a record");
    assert_eq!(exit["plan"]["slots"], json!(2), "{exit}");
    daemon.stop().await;
}

#[tokio::test]
async fn incidents_that_cannot_be_written_harm_nothing() {
    let mut house = House::new();
    let model = house.fake("a", &ending(End::Code(9), "odd", Some(1)));
    fs::create_dir_all(house.state("incidents.jsonl")).expect("a folder in its place");
    let daemon = house.start().await;
    assert_refused(&ask(&daemon, "a").await, 502, "engine_start_failed");
    assert_serves(&daemon, "a").await;
    assert_eq!(n_starts(&model), 2);
    assert!(daemon.log().contains("an incident is not written down"), "{}", daemon.log());
    daemon.stop().await;
}
