//! `motorpool up FILE`: whose model it becomes, what `default` means then, and what a pool that runs does with it.
use crate::support::{gate, pausing};
use motorpool_testkit::{Behaviour, FakeModel, eventually};
use motorpool_tests::e2e::{
    Daemon, House, processes,
    talk::{CHAT, chat},
};
use nix::sys::signal::Signal;
use serde_json::json;
use std::path::Path;

/// What `up` prints last before it serves on.
const UP: &str = "serving on http://";

fn file(house: &House, folder: &str, name: &str) -> FakeModel {
    let folder = house.path(folder);
    std::fs::create_dir_all(&folder).expect("made");
    FakeModel::write(&folder, name, &Behaviour::default()).expect("written")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[tokio::test]
async fn the_model_of_a_file_is_the_default_while_that_runs_and_keeps_its_name() {
    let house = House::new();
    let (first, second) = (file(&house, "first", "mine"), file(&house, "second", "mine"));
    house.write_config();
    for (model, id) in [(&first, "mine"), (&second, "mine-2"), (&first, "mine")] {
        let daemon = Daemon::start_as(&house, &["up", text(model.path())], UP).await;
        let printed = daemon.printed();
        let (head, pool) = printed.split_once("\nENGINE").unwrap_or_else(|| panic!("the pool: {printed}"));
        assert!(head.contains("OpenAI-compatible address: http://") && head.contains("stop with Ctrl-C"), "{head}");
        assert!(pool.contains(&format!("llama-server:{id}:0")), "{pool}");
        assert!(!daemon.log().contains("no chat template"), "{}", daemon.log());
        let n_starts = model.starts().len();
        for name in ["default", id] {
            let answer = daemon.http().post(CHAT, &chat(name, "hello")).await.expect("an answer");
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        assert_eq!(model.starts().len(), n_starts, "the engine that was there");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_file_that_the_catalog_knows_is_no_second_model_and_is_loaded_where_a_pool_runs() {
    let mut house = House::new();
    let known = house.fake("a", &Behaviour::default());
    let unknown = file(&house, "other", "b");
    let daemon = house.start().await;
    let loaded = daemon.cli(&["up", text(known.path())]).await;
    assert_eq!((loaded.code, known.starts().len()), (Some(0), 1), "{loaded:?}");
    assert!(
        loaded.stderr.contains("is loaded there as `a`") && loaded.stdout.contains("llama-server:a:0"),
        "{loaded:?}"
    );
    let entered = daemon.cli(&["up", text(unknown.path())]).await;
    assert_eq!((entered.code, unknown.starts().len()), (Some(0), 1), "{entered:?}");
    assert!(entered.stderr.contains("is loaded there as `b`"), "the pool read its catalog again: {entered:?}");
    assert_eq!(known.starts().len(), 1, "and touched nothing else");
    daemon.stop().await;
    let daemon = Daemon::start_as(&house, &["up", text(known.path())], UP).await;
    assert!(daemon.printed().contains("llama-server:a:0"), "{}", daemon.printed());
    let models = daemon.http().get("/v1/models").await.expect("an answer");
    let ids: Vec<_> = models.json()["data"].as_array().into_iter().flatten().map(|row| row["id"].clone()).collect();
    assert_eq!(ids, ["a", "b", "gemma3-270m"]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_folder_is_entered_and_one_of_it_loaded_where_a_pool_runs() {
    let mut house = House::new();
    let there = house.fake("a", &Behaviour::default());
    let (first, second) = (file(&house, "other", "b"), file(&house, "other", "c"));
    let daemon = house.start().await;
    let folder = house.path("other");
    for _ in 0..2 {
        let entered = daemon.cli(&["up", text(&folder)]).await;
        assert_eq!((entered.code, first.starts().len()), (Some(0), 1), "{entered:?}");
        assert!(entered.stderr.contains("is loaded there as `b`"), "{entered:?}");
        assert!(entered.stdout.contains("llama-server:b:0"), "{entered:?}");
    }
    assert_eq!((second.starts().len(), there.starts().len()), (0, 0), "one of it");
    let answer = daemon.http().post(CHAT, &chat("c", "hello")).await.expect("an answer");
    assert_eq!(answer.status, 200, "all of it is entered: {}", answer.text());
    // One that comes later stands behind the one that is asked.
    let third = file(&house, "other", "d");
    let entered = daemon.cli(&["up", text(&folder)]).await;
    assert!(entered.stderr.contains("is loaded there as `b`"), "{entered:?}");
    let answer = daemon.http().post(CHAT, &chat("d", "hello")).await.expect("an answer");
    assert_eq!((answer.status.as_u16(), third.starts().len()), (200, 1), "it is entered too: {}", answer.text());
    daemon.stop().await;
}

#[tokio::test]
async fn a_star_in_an_alias_of_the_pool_that_runs_is_not_the_model_of_a_file() {
    let mut house = House::new();
    let any = house.fake_with("any", &Behaviour::default(), "aliases = [\"*\"]");
    let mine = file(&house, "other", "mine");
    let daemon = house.start().await;
    let loaded = daemon.cli(&["up", text(mine.path())]).await;
    assert_eq!((loaded.code, mine.starts().len(), any.starts().len()), (Some(0), 1, 0), "{loaded:?}");
    assert!(loaded.stderr.contains("is loaded there as `mine`"), "{loaded:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_model_that_does_not_chat_is_asked_nothing_and_serves_on_whatever_form_is_printed() {
    let mut house = House::new();
    let model = house.fake_with("e", &Behaviour::default(), "capabilities = [\"embeddings\"]\n");
    house.write_config();
    for (form, before) in [(&["--json"][..], "\"http://"), (&[], UP)] {
        let args = [form, &["up", text(model.path())]].concat();
        let daemon = Daemon::start_as(&house, &args, before).await;
        assert_eq!(daemon.printed().contains("\"reply\": null"), !form.is_empty(), "{}", daemon.printed());
        let wanted = json!({"model": "e", "input": "hello"});
        let answer = daemon.control().post("/v1/embeddings", &wanted).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_file_without_a_chat_template_is_told_of() {
    let house = House::new();
    let model = file(&house, "other", "m");
    let (mut bytes, key) = (std::fs::read(model.path()).expect("written"), b"tokenizer.chat_template");
    let at = bytes.windows(key.len()).position(|part| part == key).expect("it has one");
    bytes[at + key.len() - 1] = b'_';
    std::fs::write(model.path(), bytes).expect("ours");
    house.write_config();
    let daemon = Daemon::start_as(&house, &["up", text(model.path())], UP).await;
    assert!(daemon.log().contains("no chat template"), "{}", daemon.log());
    daemon.stop().await;
}

#[tokio::test]
async fn an_answer_that_does_not_end_hides_neither_address_nor_prompt_and_can_be_interrupted() {
    let house = House::new();
    let folder = house.path("other");
    std::fs::create_dir_all(&folder).expect("made");
    let never = gate(&house, "never");
    let model = FakeModel::write(&folder, "m", &pausing(20, 10, &never)).expect("written");
    house.write_config();
    let before = "OpenAI-compatible address: http://";
    let mut daemon = Daemon::start_as(&house, &["up", text(model.path())], before).await;
    daemon.until_phase("m", &["ready"]).await;
    // The load had a lease, too.
    eventually("it is asked", async || daemon.log().contains("of France?").then_some(())).await;
    eventually("it answers", async || {
        daemon.status().await.engine("m").is_some_and(|engine| !engine.leases.is_empty()).then_some(())
    })
    .await;
    daemon.signal(Signal::SIGINT);
    assert_eq!(daemon.ended().await.code(), Some(0), "{}", daemon.log());
    assert!(daemon.log().contains("of France?\n\n"), "the answer's line is ended: {}", daemon.log());
    processes::assert_none(&house);
}
