//! Refused for want of room: the line that harnesses look for, and what the client is told.
use crate::support::{Blockade, assert_refused, assert_serves, n_starts};
use motorpool_testkit::{Behaviour, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{CHAT, ask, chat},
};
use regex::Regex;
use serde_json::Value;

const JOINERS: u32 = 8;

/// Lines that an evaluation harness takes for a denial, by its own two expressions.
fn denials(log: &str) -> Vec<&str> {
    let strict =
        Regex::new(r"capacity broker denied [^\n]+: budget exhausted: would commit \d+ against \d+").expect("valid");
    let loose = Regex::new(r"capacity broker denied [^\n]*budget exhausted").expect("valid");
    let found: Vec<_> = log.lines().filter(|line| strict.is_match(line)).collect();
    assert_eq!(loose.find_iter(log).count(), found.len(), "{log}");
    found
}

fn two_models(house: &mut House) -> motorpool_testkit::FakeModel {
    house.fake("small", &Behaviour::default());
    house.fake_with("big", &Behaviour::default(), "declared = \"2GiB\"\n")
}

/// Eight requests that join one build, and are refused together. The log is read before the first answer is.
async fn join_and_be_refused(house: &House, daemon: &Daemon<'_>) -> String {
    let blockade = Blockade::of_check(house, "big");
    let mut requests = tokio::task::JoinSet::new();
    for n in 0..JOINERS {
        let http = daemon.http();
        let body = if n % 2 == 0 { chat("big", "hello") } else { ask("big", "hello") };
        requests.spawn(async move { http.post(CHAT, &body).await.expect("an answer") });
    }
    eventually("all wait for one build", async || {
        daemon.status().await.engine("big").filter(|engine| engine.queue == JOINERS).map(drop)
    })
    .await;
    blockade.lift().await;
    let (mut log, ten_digits) = (None, Regex::new(r"\d{10}").expect("valid"));
    while let Some(answer) = requests.join_next().await {
        let answer = answer.expect("no panic");
        log.get_or_insert_with(|| daemon.log());
        let error = assert_refused(&answer, 503, "capacity_denied");
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains("2.0 GiB") && message.contains("1.0 GiB"), "for people: {message}");
        assert!(!ten_digits.is_match(message), "{message}");
    }
    log.expect("an answer came")
}

#[tokio::test]
async fn a_refused_build_is_one_line_of_the_contract_whoever_joined_it_and_before_any_of_them_hears() {
    let mut house = House::new();
    let big = two_models(&mut house);
    let daemon = house.start().await;
    assert_serves(&daemon, "small").await;
    let log = join_and_be_refused(&house, &daemon).await;
    let found = denials(&log);
    let [line] = found[..] else { panic!("one line: {found:#?}") };
    let form = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d) ERROR \[provider-pool\] capacity broker denied llama-server:big:0: budget exhausted: would commit 2147483648 against 1073741824$";
    assert!(Regex::new(form).expect("valid").is_match(line), "{line}");
    assert_eq!(daemon.until_phase("small", &["ready"]).await.phase, "ready", "nothing is evicted in vain");
    assert_eq!((denials(&daemon.log()).len(), n_starts(&big)), (1, 0));
    let again = daemon.http().post(CHAT, &chat("big", "hello")).await.expect("an answer");
    assert_refused(&again, 503, "capacity_denied");
    assert_eq!(denials(&daemon.log()).len(), 2, "another build, another line");
    daemon.stop().await;
}

#[tokio::test]
async fn no_level_and_no_format_hides_it() {
    for (level, format) in [("error", "text"), ("error", "json")] {
        let mut house = House::new();
        two_models(&mut house);
        house.set("log.level", level);
        house.set("log.format", format);
        let daemon = house.start().await;
        let log = join_and_be_refused(&house, &daemon).await;
        let found = denials(&log);
        let [line] = found[..] else { panic!("one line: {found:#?}") };
        if format == "json" {
            let event: Value = serde_json::from_str(line).expect("one JSON document a line");
            assert_eq!((event["level"].as_str(), event["event"].as_str()), (Some("ERROR"), Some("capacity-denied")));
        }
        daemon.stop().await;
    }
}

#[tokio::test]
async fn what_is_cured_by_making_room_is_no_denial() {
    let mut house = House::new();
    for id in ["a", "b"] {
        house.fake(id, &Behaviour::default());
    }
    let daemon = house.start().await;
    for id in ["a", "b", "a"] {
        assert_serves(&daemon, id).await;
    }
    assert_eq!(denials(&daemon.log()), [""; 0]);
    daemon.stop().await;
}
