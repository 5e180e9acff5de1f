//! Files of people that are wrong: configuration, manifests, models.
use crate::support::{assert_refused, assert_serves, n_starts};
use motorpool_testkit::Behaviour;
use motorpool_tests::e2e::{
    House,
    talk::{CHAT, chat},
};
use serde_json::json;

#[tokio::test]
async fn malformed_configuration_is_shown_with_file_line_column_and_caret() {
    for (text, place, says) in [
        ("[server]\nlisten = [\"127.0.0.1:0\"\n", ":", "listen"),
        ("[server]\nlisen = [\"127.0.0.1:0\"]\n", ":2:1", "`listen`"),
        ("[pool]\nmax_wait = \"soon\"\n", ":2:12", "60s"),
        ("[capacity]\nbudget = \"-3GiB\"\n", ":2:10", "24GiB"),
    ] {
        let house = House::new();
        house.write_config();
        house.write_beside("motorpool.toml", text);
        let outcome = house.start_in_vain().await;
        assert_eq!(outcome.code, Some(3), "{outcome:?}");
        let file = house.path("config/motorpool.toml").display().to_string();
        assert!(outcome.stderr.contains(&(file + place)) && outcome.stderr.contains('^'), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "{}", outcome.stderr);
        assert!(!house.path("state").exists(), "nothing is made for it");
    }
}

#[tokio::test]
async fn a_line_is_shown_without_the_password_of_its_address() {
    let house = House::new();
    house.write_config();
    let text = "[[external]]\nid = \"desk\"\nkind = \"ollama\"\nurl = \"ftp://me:hunter2@desk:21\"\n";
    house.write_beside("motorpool.toml", text);
    let mut said = house.start_in_vain().await.stderr;
    assert!(said.contains(":4:7") && said.contains("4 | url = \"ftp://**********@desk:21\""), "{said}");
    for args in [&["config", "check"][..], &["config", "check", "--json"], &["doctor"], &["doctor", "--json"]] {
        let outcome = house.run(args).await;
        said += &(outcome.stdout + &outcome.stderr);
    }
    assert!(!said.contains("hunter2"), "{said}");
}

#[tokio::test]
async fn a_password_that_should_have_been_escaped_is_shown_nowhere_either() {
    for password in ["hunt/xyzzy9", "hunt#xyzzy9", "hunt?xyzzy9", "hunt'/xyzzy9"] {
        let house = House::new();
        let text = format!("[[external]]\nid = \"desk\"\nkind = \"ollama\"\nurl = \"http://me:{password}@desk:x1\"\n");
        house.write_config();
        house.write_beside("motorpool.toml", &text);
        let mut said = house.start_in_vain().await.stderr;
        assert!(said.contains(":4:7") && said.contains("@desk:x1"), "{said}");
        for args in [&["config", "check"][..], &["config", "check", "--json"], &["doctor"], &["doctor", "--json"]] {
            let outcome = house.run(args).await;
            said += &(outcome.stdout + &outcome.stderr);
        }
        let daemon = house.start().await;
        house.write_beside("motorpool.toml", &text);
        let answer = daemon.control().post("/api/motorpool/v1/reload", &json!({})).await.expect("an answer");
        assert_eq!(answer.status, 400, "{}", answer.text());
        said += &(answer.text() + &daemon.log());
        assert!(!said.contains("xyzzy9"), "{password}: {said}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_catalog_that_contradicts_itself_is_refused_before_anything_starts() {
    for (name, text, says) in [
        ("catalog/twice.toml", "id = \"other\"\naliases = [\"a\"]\n[source]\nfile = \"/m.gguf\"\n", "`a`"),
        ("catalog/engine.toml", "id = \"b\"\nengine = \"no-such\"\n[source]\nfile = \"/m.gguf\"\n", "no-such"),
        (
            "catalog/refused.toml",
            "id = \"b\"\nextra_args = [\"--host\", \"0.0.0.0\"]\n[source]\nfile = \"/m.gguf\"\n",
            "--host",
        ),
        ("engines/mine.toml", "name = \"mine\"\n", "mine.toml"),
    ] {
        let mut house = House::new();
        house.fake("a", &Behaviour::default());
        house.write_config();
        house.write_beside(name, text);
        let outcome = house.start_in_vain().await;
        assert_eq!(outcome.code, Some(3), "{name}: {outcome:?}");
        assert!(outcome.stderr.contains(says) && outcome.stderr.contains(".toml"), "{name}: {}", outcome.stderr);
    }
}

/// A manifest that gives its engine words that mean nothing to it.
const WRONG_FLAGS: &str = r#"
name = "wrong"
transport = "unix"
paths = ["POST /v1/chat/completions"]
args = ["--model", "{model.path}", "--host", "{endpoint.socket}", "--port", "many"]
[program]
names = ["motorpool-fake-engine"]
version_args = ["--version"]
version_pattern = "version: (.+)"
[ready]
path = "/health"
status = 200
[stop]
signal = "SIGTERM"
[[log_class]]
class = "bad-arguments"
pattern = "error: invalid"
"#;

#[tokio::test]
async fn wrong_flags_in_a_manifest_are_the_engines_own_words_and_fail_for_good() {
    let mut house = House::new();
    let program = motorpool_testkit::binary("motorpool-fake-engine");
    house.set("engine.wrong.program", program.to_str().expect("UTF-8"));
    house.write_beside("engines/wrong.toml", WRONG_FLAGS);
    let a = house.fake("a", &Behaviour::default());
    house.fake_with("b", &Behaviour::default(), "declared = \"100MiB\"\nengine = \"wrong\"\n");
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let error = assert_refused(
        &daemon.http().post(CHAT, &chat("b", "hello")).await.expect("an answer"),
        500,
        "engine_start_failed",
    );
    let message = error["message"].as_str().expect("a text");
    assert!(message.contains("bad-arguments") && message.contains("invalid number: many"), "{message}");
    let outcome = daemon.cli(&["load", "b"]).await;
    assert_eq!(outcome.code, Some(10), "{outcome:?}");
    assert!(daemon.cli(&["logs", "b"]).await.stdout.contains("invalid number: many"));
    assert_serves(&daemon, "a").await;
    assert_eq!(n_starts(&a), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn an_engine_that_is_not_there_is_told_with_the_line_that_brings_it() {
    let mut house = House::without_engine();
    house.fake("a", &Behaviour::default());
    house.set("engine.llama-server.program", "/no/such/llama-server");
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &chat("a", "hello")).await.expect("an answer");
    let error = assert_refused(&answer, 500, "engine_start_failed");
    assert!(error["message"].as_str().is_some_and(|message| message.contains("/no/such/llama-server")), "{error}");
    daemon.stop().await;
}
