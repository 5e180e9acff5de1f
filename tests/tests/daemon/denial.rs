//! Refused for want of room: the line that harnesses look for, and what the client is told.
use crate::support::{Blockade, assert_refused, assert_serves, gate, n_starts, pausing, stream_until};
use motorpool_testkit::{Behaviour, FakeModel, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{CHAT, ask, chat},
};
use motorpool_vocab::{GIB, MIB};
use regex::Regex;
use serde_json::{Value, json};
use std::{fs, process::Stdio};

const JOINERS: u32 = 8;
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
const FORM: &str = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d) ERROR \[provider-pool\] capacity broker denied llama-server:big:0: budget exhausted: would commit 2147483648 against 1073741824$";

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
    assert!(Regex::new(FORM).expect("valid").is_match(line), "{line}");
    assert_eq!(daemon.until_phase("small", &["ready"]).await.phase, "ready", "nothing is evicted in vain");
    assert_eq!((denials(&daemon.log()).len(), n_starts(&big)), (1, 0));
    let again = daemon.http().post(CHAT, &chat("big", "hello")).await.expect("an answer");
    assert_refused(&again, 503, "capacity_denied");
    assert_eq!(denials(&daemon.log()).len(), 2, "another build, another line");
    let loaded = daemon.cli(&["load", "big"]).await;
    assert_eq!(loaded.code, Some(10), "{loaded:?}");
    assert!(loaded.stderr.contains("2.0 GiB"), "{}", loaded.stderr);
    let (log, counted) = (daemon.log(), counted(&house, &daemon.log()).await);
    assert_eq!((denials(&log).len(), &counted["denied"], &counted["deferred"]), (3, &json!(3), &json!(0)), "{counted}");
    let engine = &counted["engines"][0];
    assert_eq!((&engine["key"], &engine["count"]), (&json!("llama-server:big:0"), &json!(3)), "{counted}");
    assert_eq!(engine["largest"], json!({"wouldCommit": 2 * GIB, "against": GIB, "bound": "budget"}));
    assert!(engine["first"].as_str() < engine["last"].as_str(), "{counted}");
    daemon.stop().await;
}

/// What `motorpool denials -` makes of this log.
async fn counted(house: &House, log: &str) -> Value {
    let path = house.path("seen.log");
    fs::write(&path, log).expect("written");
    let mut command = house.command(&["denials", "-", "--json"]);
    command.stdin(fs::File::open(&path).expect("just written")).stdout(Stdio::piped());
    let output = command.output().await.expect("it runs");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("one document")
}

async fn assert_shown(level: &str, format: &str) {
    let mut house = House::new();
    two_models(&mut house);
    house.set("log.level", level);
    house.set("log.format", format);
    let daemon = house.start().await;
    let log = join_and_be_refused(&house, &daemon).await;
    let found = denials(&log);
    let [line] = found[..] else { panic!("one line at {level} in {format}: {found:#?}") };
    match format {
        "json" => assert_is_event(line),
        _ => assert!(Regex::new(FORM).expect("valid").is_match(line), "{line}"),
    }
    let counted = counted(&house, &log).await;
    assert_eq!((&counted["denied"], &counted["classes"]["capacity"]["denied"]), (&json!(1), &json!(1)), "{counted}");
    let engine = &counted["engines"][0];
    assert_eq!((&engine["key"], &engine["largest"]["wouldCommit"]), (&json!("llama-server:big:0"), &json!(2 * GIB)));
    assert!(engine["first"].is_string(), "{counted}");
    daemon.stop().await;
}

fn assert_is_event(line: &str) {
    let event: Value = serde_json::from_str(line).expect("one JSON document a line");
    assert_eq!((&event["level"], &event["event"]), (&json!("ERROR"), &json!("capacity-denied")), "{event}");
    assert_eq!((&event["key"], &event["which"]), (&json!("llama-server:big:0"), &json!("budget")), "{event}");
    let requested = json!({"total": 2 * GIB, "devices": {}, "systemPrivate": 2 * GIB, "systemFiles": 0});
    assert_eq!((&event["requested"], event["committed"].is_u64()), (&requested, true), "{event}");
    assert!(event["help"].as_str().is_some_and(|help| help.contains("larger budget")), "{event}");
    assert_eq!((&event["wouldCommit"], &event["bound"]), (&json!(2 * GIB), &json!(GIB)), "{event}");
    assert_eq!(event["holders"], json!([]));
    let sentence = Regex::new(r"^\[provider-pool\] capacity broker denied llama-server:big:0: budget exhausted: ");
    let message = event["message"].as_str().expect("a sentence");
    assert!(sentence.expect("valid").is_match(message), "{message}");
}

#[tokio::test]
async fn no_level_hides_it_in_a_log_for_people() {
    for level in LEVELS {
        assert_shown(level, "text").await;
    }
}

#[tokio::test]
async fn no_level_hides_it_in_a_log_for_machines() {
    for level in LEVELS {
        assert_shown(level, "json").await;
    }
}

#[tokio::test]
async fn who_holds_the_memory_and_may_not_go_is_named_to_people_and_to_machines() {
    let mut house = House::new();
    house.fake_with("pinned", &Behaviour::default(), "declared = \"600MiB\"\npinned = true\n");
    house.fake("other", &Behaviour::default());
    house.set("log.format", "json");
    let daemon = house.start().await;
    assert_serves(&daemon, "pinned").await;
    let answer = daemon.http().post(CHAT, &ask("other", "hello")).await.expect("an answer");
    let message = assert_refused(&answer, 503, "capacity_denied")["message"].to_string();
    assert!(message.contains("pinned") && message.contains("600.0 MiB"), "{message}");
    let log = daemon.log();
    let [line] = denials(&log)[..] else { panic!("one line: {log}") };
    let event: Value = serde_json::from_str(line).expect("one JSON document a line");
    assert_eq!(event["holders"], json!([{"key": "llama-server:pinned:0", "bytes": 600 * MIB}]));
    assert_eq!(
        (&event["requested"]["total"], &event["wouldCommit"]),
        (&json!(600 * MIB), &json!(1200 * MIB)),
        "{event}"
    );
    assert_eq!(event["committed"], json!(600 * MIB));
    assert_eq!(event["bound"], json!(GIB));
    daemon.stop().await;
}

/// Nothing that a harness would take for a denial.
async fn assert_no_denial(house: &House, log: &str) {
    assert_eq!(denials(log), [""; 0]);
    let counted = counted(house, log).await;
    assert_eq!(counted["classes"]["capacity"], json!({"denied": 0, "deferred": 0, "bounds": {}}), "{counted}");
}

#[tokio::test]
async fn what_is_cured_by_making_room_is_no_denial() {
    let mut house = House::new();
    for id in ["a", "b"] {
        house.fake(id, &Behaviour::default());
    }
    house.set("log.level", "trace");
    let daemon = house.start().await;
    for id in ["a", "b", "a"] {
        assert_serves(&daemon, id).await;
    }
    assert_no_denial(&house, &daemon.log()).await;
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_cured_by_waiting_is_no_denial_for_whoever_joined_the_wait_or_left_it() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    house.fake("busy", &pausing(20, 10, &go_on));
    house.fake("next", &Behaviour::default());
    house.set("log.level", "trace");
    let daemon = house.start().await;
    let (stream, _) = stream_until(&daemon, ("busy", "hello"), 9).await;
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..JOINERS {
        let http = daemon.http();
        requests.spawn(async move { http.post(CHAT, &ask("next", "hello")).await.expect("an answer") });
    }
    let left = tokio::spawn({
        let http = daemon.http();
        async move { http.post(CHAT, &ask("next", "hello")).await }
    });
    let waiting = async |n: u32| {
        let queued = async || daemon.status().await.engine("next").filter(|engine| engine.queue == n).map(drop);
        eventually("they wait for room", queued).await;
    };
    waiting(JOINERS + 1).await;
    left.abort();
    waiting(JOINERS).await;
    go_on.open().expect("opened");
    stream.whole().await.expect("its end");
    while let Some(answer) = requests.join_next().await {
        assert_eq!(answer.expect("no panic").status, 200, "{}", daemon.log());
    }
    assert_no_denial(&house, &daemon.log()).await;
    daemon.stop().await;
}

#[tokio::test]
async fn who_is_told_that_others_are_busy_was_not_denied_for_want_of_room() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    house.fake("busy", &pausing(20, 10, &go_on));
    house.fake("next", &Behaviour::default());
    house.set("pool.drain_wait", "0s");
    let daemon = house.start().await;
    let (stream, _) = stream_until(&daemon, ("busy", "hello"), 9).await;
    let answer = daemon.http().post(CHAT, &ask("next", "hello")).await.expect("an answer");
    assert_refused(&answer, 503, "engine_busy");
    go_on.open().expect("opened");
    stream.whole().await.expect("its end");
    let log = daemon.log();
    assert_eq!(denials(&log), [""; 0]);
    assert!(log.contains(" WARN ") && log.contains("engine busy llama-server:busy:0: "), "{log}");
    let counted = counted(&house, &log).await;
    assert_eq!(
        (&counted["classes"]["capacity"]["denied"], &counted["classes"]["engine-busy"]["denied"]),
        (&json!(0), &json!(1)),
        "{counted}"
    );
    daemon.stop().await;
}

/// A model with a context of its own, for `House::fake_with` gives all the same.
fn with_context(house: &House, id: &str, lines: &str) {
    let model = FakeModel::write(&house.path("models"), id, &Behaviour::default()).expect("written");
    let text = format!("id = \"{id}\"\n{lines}\n[source]\nfile = \"{}\"\n", model.path().display());
    house.write_beside(&format!("catalog/{id}.toml"), &text);
}

const CONTEXT_FORM: &str = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d) ERROR \[provider-pool\] context admission denied llama-server:long:0: 16777216 tokens/turn would commit \d+ against 1073741824; \d+ would fit$";

#[tokio::test]
async fn a_context_that_cannot_be_is_one_line_of_its_own_class_and_no_denial_for_want_of_capacity() {
    let form = Regex::new(CONTEXT_FORM).expect("valid");
    for (level, format) in [("error", "text"), ("trace", "text"), ("error", "json"), ("trace", "json")] {
        let mut house = House::new();
        house.set("log.level", level);
        house.set("log.format", format);
        with_context(&house, "long", "context = 16777216\nslots = 1");
        let daemon = house.start().await;
        let answer = daemon.http().post(CHAT, &chat("long", "hello")).await.expect("an answer");
        let log = daemon.log();
        let message = assert_refused(&answer, 503, "context_denied")["message"].to_string();
        assert!(message.contains("16777216 tokens of context") && message.contains("would fit"), "{message}");
        let found: Vec<_> = log.lines().filter(|line| line.contains("context admission denied")).collect();
        let [line] = found[..] else { panic!("one line at {level} in {format}: {log}") };
        let line = if format == "json" { assert_is_context_event(line) } else { line.to_owned() };
        assert!(form.is_match(&line), "{line}");
        assert_eq!(denials(&log), [""; 0]);
        let counted = counted(&house, &log).await;
        let classes = &counted["classes"];
        assert_eq!((&counted["denied"], &classes["context"]["denied"]), (&json!(1), &json!(1)), "{counted}");
        assert_eq!(
            (&classes["capacity"]["denied"], &counted["engines"][0]["largest"]["bound"]),
            (&json!(0), &json!("budget"))
        );
        daemon.stop().await;
    }
}

/// The line as it would be in a log for people.
fn assert_is_context_event(line: &str) -> String {
    let event: Value = serde_json::from_str(line).expect("one JSON document a line");
    assert_eq!((&event["level"], &event["event"]), (&json!("ERROR"), &json!("context-denied")), "{event}");
    assert_eq!((&event["context"]["asked"], &event["bound"]), (&json!(16_777_216), &json!(GIB)), "{event}");
    assert!(event["help"].as_str().is_some_and(|help| help.contains("would fit")), "{event}");
    let text = |name: &str| event[name].as_str().expect("a text").to_owned();
    format!("{} ERROR {}", text("timestamp"), text("message"))
}

#[tokio::test]
async fn the_context_that_a_refusal_names_is_the_most_that_fits() {
    let house = House::new();
    with_context(&house, "long", "slots = 1");
    let daemon = house.start().await;
    let planned = async |tokens: u64| daemon.cli(&["plan", "long", "--context", &tokens.to_string(), "--json"]).await;
    let refused = planned(16_777_216).await;
    assert_eq!(refused.code, Some(10), "{refused:?}");
    let verdict = refused.json()["launches"][0]["verdict"].clone();
    let reason = verdict["reason"].as_str().expect("the arithmetic").to_owned();
    let fits =
        Regex::new(r"; (\d+) would fit$").expect("valid").captures(&reason).expect("it is said")[1].parse::<u64>();
    let fits = fits.expect("a number");
    assert_eq!((planned(fits).await.code, planned(fits + 256).await.code), (Some(0), Some(10)), "{reason}");
    daemon.stop().await;
}
