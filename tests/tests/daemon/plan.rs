//! What models would take and whether they fit, asked before anything is started.
use crate::support::{assert_refused, assert_serves, n_starts};
use motorpool_testkit::Behaviour;
use motorpool_tests::e2e::{House, Outcome};
use motorpool_vocab::GIB;
use serde_json::{Value, json};

const TWO_CARDS: &str = "[host]\nram = \"64GiB\"\n[capacity]\nshape = \"discrete-gpu\"\n\
    [[device]]\nid = \"small\"\ntotal = \"8GiB\"\n[[device]]\nid = \"large\"\ntotal = \"24GiB\"\nreserve = \"1GiB\"\n";

/// `motorpool plan <args>`; with `host`, on that machine.
async fn plan(house: &House, args: &[&str], host: Option<&str>) -> Outcome {
    house.write_config();
    let file = house.path("config/host.toml");
    let mut all = vec!["plan"];
    all.extend(args);
    if let Some(text) = host {
        house.write_beside("host.toml", text);
        all.extend(["--on", file.to_str().expect("named in UTF-8")]);
    }
    house.run(&all).await
}

fn bytes(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("bytes: {value}"))
}

#[tokio::test]
async fn a_model_is_told_by_part_from_its_header_and_nothing_is_started_or_written() {
    let mut house = House::new();
    let model = house.fake_with("a", &Behaviour::default(), "slots = 2\n");
    let outcome = plan(&house, &["a", "--json"], None).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let whole = outcome.json();
    let launch = &whole["launches"][0];
    assert_eq!((&launch["key"], &launch["source"]), (&json!("llama-server:a:0"), &json!("estimated")), "{whole:#}");
    assert_eq!((&launch["context"], &launch["slots"]), (&json!(512), &json!(2)), "as the catalog says");
    assert_eq!(launch["verdict"], json!({"outcome": "fits"}));
    let parts = launch["parts"].as_array().expect("a list");
    for name in ["weights", "cache", "compute", "process"] {
        assert!(parts.iter().any(|part| part["part"] == name), "{name} in {launch:#}");
    }
    let sum: u64 = parts.iter().map(|part| bytes(&part["systemMemory"])).sum();
    assert_eq!((sum, bytes(&whole["host"]["committedBytes"])), (bytes(&launch["total"]["systemMemory"]), sum));
    assert_eq!(whole["host"]["budgetBytes"], json!(GIB), "the budget of the configuration");
    assert_eq!(n_starts(&model), 0);
    assert!(!house.state("").exists(), "no state directory was made");
}

#[tokio::test]
async fn a_machine_one_does_not_have_is_planned_on_by_place() {
    let mut house = House::new();
    house.fake_with("a", &Behaviour::default(), "");
    house.fake_with("big", &Behaviour::default(), "declared = \"20GiB\"\n");
    let outcome = plan(&house, &["big", "a", "--json"], Some(TWO_CARDS)).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let whole = outcome.json();
    let (big, small) = (&whole["launches"][0], &whole["launches"][1]);
    assert_eq!(big["total"]["devices"], json!({"large": 20 * GIB}), "the only card that holds it");
    assert!(bytes(&small["total"]["devices"]["large"]) > 0, "the least free that fits: {small:#}");
    assert_eq!(bytes(&whole["host"]["devices"]["large"]["shareBytes"]), 24 * GIB * 95 / 100);
    let table = plan(&house, &["big", "a"], Some(TWO_CARDS)).await.stdout;
    for words in ["SYSTEM MEMORY", "large", "20.0 GiB", "estimated", "declared", "discrete-gpu: "] {
        assert!(table.contains(words), "{words} in {table}");
    }
}

#[tokio::test]
async fn a_hundred_and_twenty_nine_of_a_hundred_and_ninety_two_fit_side_by_side() {
    let mut house = House::new();
    house.fake_with("hundred", &Behaviour::default(), "declared = \"100GiB\"\n");
    house.fake_with("rest", &Behaviour::default(), "declared = \"29GiB\"\n");
    let host = "[host]\nram = \"192GiB\"\n[capacity]\nshape = \"unified\"\n";
    let whole = plan(&house, &["hundred", "rest", "--json"], Some(host)).await.json();
    assert_eq!(whole["host"]["committedBytes"], json!(129 * GIB));
    assert!(
        whole["launches"].as_array().expect("a list").iter().all(|l| l["verdict"]["outcome"] == "fits"),
        "{whole:#}"
    );
}

#[tokio::test]
async fn replicas_map_one_file() {
    let mut house = House::new();
    house.fake_with("a", &Behaviour::default(), "");
    let whole = plan(&house, &["a", "--replicas", "2", "--json"], None).await.json();
    let shared = |n: usize| bytes(&whole["launches"][n]["sharedBytes"]);
    assert_eq!((whole["launches"][1]["key"].as_str(), shared(0)), (Some("llama-server:a:1"), 0));
    assert!(shared(1) > 0, "{whole:#}");
}

#[tokio::test]
async fn what_does_not_fit_is_printed_whole_and_ends_as_a_refusal() {
    let mut house = House::new();
    house.fake_with("big", &Behaviour::default(), "declared = \"2GiB\"\n");
    let outcome = plan(&house, &["big", "--json"], None).await;
    assert_eq!(outcome.code, Some(10), "{outcome:?}");
    let verdict = &outcome.json()["launches"][0]["verdict"];
    let reason = format!("budget exhausted: would commit {} against {GIB}", 2 * GIB);
    assert_eq!((&verdict["outcome"], &verdict["reason"]), (&json!("never"), &json!(reason)));
    assert!(outcome.stderr.contains("does not fit") && outcome.stderr.contains("2.0 GiB"), "{}", outcome.stderr);
    let found = outcome.stderr.contains("capacity broker denied");
    assert!(!found, "a question is no refused build: {}", outcome.stderr);
}

#[tokio::test]
async fn what_cannot_be_planned_is_said_with_what_to_do() {
    let mut house = House::new();
    house.fake_with("here", &Behaviour::default(), "");
    house.add_model("gone", &house.path("models/gone.gguf"), "");
    for (args, host, code, words) in [
        (&["heer"][..], None, 4, "did you mean `here`?"),
        (&["here", "gone"], None, 4, "gone.gguf"),
        (&["here"], Some("[host]\nram = \"8\"\n"), 3, "host.toml:2:7"),
        (&["here"], Some("[host]\nram = \"8GiB\"\n[pool]\n"), 3, "unknown key `pool`"),
        (&["here", "--context", "12"], None, 2, "256 to 16777216, or max"),
        (&[], None, 2, "MODEL"),
    ] {
        let outcome = plan(&house, args, host).await;
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(code), ""), "{args:?}: {outcome:?}");
        assert!(outcome.stderr.contains(words), "{words} in {}", outcome.stderr);
    }
}

#[tokio::test]
async fn a_running_daemon_says_what_would_go_and_nothing_goes() {
    let mut house = House::new();
    for id in ["a", "b", "big"] {
        let declared = if id == "big" { "2GiB" } else { "600MiB" };
        house.fake_with(id, &Behaviour::default(), &format!("declared = \"{declared}\"\n"));
    }
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    daemon.until_quiet().await;
    let outcome = daemon.cli(&["plan", "a", "b", "big", "--json"]).await;
    assert_eq!(outcome.code, Some(10), "one does not fit: {outcome:?}");
    let launches = outcome.json()["launches"].clone();
    assert_eq!(launches[0]["verdict"], json!({"outcome": "resident"}));
    assert_eq!(launches[1]["verdict"], json!({"outcome": "evicts", "keys": ["llama-server:a:0"]}));
    let never = &launches[2]["verdict"];
    assert_eq!(never["outcome"], "never", "{never}");
    let reason = never["reason"].as_str().expect("the arithmetic");
    // Beside the one that was asked for before it.
    assert!(reason.starts_with("budget exhausted: would commit 2776629248 against 1073741824"), "{reason}");
    let explained = daemon.cli(&["explain", "b"]).await;
    assert!(explained.stdout.contains("fits once what is idle is unloaded: llama-server:a:0"), "{explained:?}");
    assert_eq!(daemon.until_phase("a", &["ready"]).await.phase, "ready");
    assert!(!daemon.log().contains("capacity broker denied"), "a question is no refusal");
    daemon.stop().await;
}

#[tokio::test]
async fn a_question_to_the_daemon_is_bounded_and_a_wrong_one_says_what_is_right() {
    let mut house = House::new();
    house.fake_with("a", &Behaviour::default(), "");
    let daemon = house.start().await;
    let path = "/api/motorpool/v1/plan";
    for (question, param) in [
        (json!({"models": []}), "models"),
        (json!({"models": ["a"], "replicas": 257}), "models"),
        (json!({"models": ["a", "a"], "replicas": 129}), "models"),
        (json!({"models": ["a"], "replicas": 0}), "models"),
        (json!({"models": ["a"], "context": 255}), "context"),
        (json!({"models": ["a"], "context": 16_777_217}), "context"),
        (json!({"models": ["a"], "context": "all"}), "models"),
    ] {
        let answer = daemon.control().post(path, &question).await.expect("an answer");
        let error = assert_refused(&answer, 400, "invalid_request");
        assert_eq!(error["param"], param, "{question}: {error}");
    }
    for context in [json!(256), json!("max"), json!(null)] {
        let question = json!({"models": ["a"], "context": context, "replicas": 256});
        let answer = daemon.control().post(path, &question).await.expect("an answer");
        assert_eq!((answer.status.as_u16(), answer.json()["outlooks"].as_array().map(Vec::len)), (200, Some(256)));
    }
    daemon.stop().await;
}
