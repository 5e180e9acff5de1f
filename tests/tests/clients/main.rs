//! Clients that nobody here wrote, unchanged, against the real program: the scripts beside this.
//!
//! What is said comes from the real engine. Fake ones stand in for what it does not do when asked: to be slow, too large,
//! broken, dying. Every request shows a key. Afterwards nobody holds a lease, nothing panicked, and nothing is left.
#![cfg(target_os = "linux")]
use motorpool_testkit::{Behaviour, End, Exit, Moment, TokenGate, Tokens, binary, corpus::FAMILIES};
use motorpool_tests::e2e::{
    House, clients,
    installed::{self, MODEL, model_file},
};
use serde_json::json;
use std::fs;

/// The real engine's manifest under another name, for the fake one.
fn add_fake_engine(house: &mut House) {
    let manifest = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../engines/llama-server.toml"));
    let manifest = manifest.expect("read").replace("name = \"llama-server\"", "name = \"fake\"");
    house.write_beside("engines/fake.toml", &manifest);
    let program = binary("motorpool-fake-engine");
    house.set("engine.fake.program", program.to_str().expect("UTF-8"));
}

/// Fake models by what is the matter with them.
fn add_fake_models(house: &mut House) {
    let gates = vec![TokenGate { before: 10, file: house.path("never") }];
    let exit = |at, how, log: &str| Exit { at, how, log: vec![log.into()], first_starts: None };
    let broken = exit(Moment::Loading, End::Code(1), "error loading model: unknown model architecture: 'x'");
    let dying = exit(Moment::Token(5), End::Signal("SIGABRT".into()), "");
    for (id, lines, behaviour) in [
        (
            "slow",
            "declared = \"100MiB\"\nslots = 1",
            Behaviour { tokens: Tokens { count: 20, gates, ..Tokens::default() }, ..Behaviour::default() },
        ),
        ("big", "declared = \"100GiB\"", Behaviour::default()),
        ("broken", "declared = \"100MiB\"", Behaviour { exit: Some(broken), ..Behaviour::default() }),
        ("dying", "declared = \"100MiB\"", Behaviour { exit: Some(dying), ..Behaviour::default() }),
    ] {
        house.fake_with(id, &behaviour, &format!("engine = \"fake\"\n{lines}\n"));
    }
}

/// What the real engine serves beside its default model.
fn add_real_models(house: &mut House) {
    let template = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/tools.jinja");
    let arguments = format!(
        "slots = 1\nprompt_cache = \"0MiB\"\n\
         extra_args = [\"--jinja\", \"--chat-template-file\", \"{template}\", \"--reverse-prompt\", \"\\nQ:\", \"--temp\", \"0\"]\n"
    );
    house.add_model("tooled", &model_file(), &arguments);
    let file = house.path("models/bert.gguf");
    let bert = FAMILIES.iter().find(|family| family.name == "bert").expect("it is one");
    fs::write(&file, bert.writer().finish()).expect("written");
    house.add_model("embedder", &file, "slots = 1\nprompt_cache = \"0MiB\"\ncapabilities = [\"embeddings\"]\n");
}

async fn key(house: &House, name: &str, more: &[&str]) -> String {
    let made = house.run(&[&["key", "new", name], more].concat()).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    made.stdout.trim().to_owned()
}

async fn is_served(script: &str) {
    let mut house = installed::house().await;
    house.set("capacity.budget", "3GiB");
    add_fake_engine(&mut house);
    add_fake_models(&mut house);
    add_real_models(&mut house);
    house.write_config();
    let keys = json!({
        "all": key(&house, "all", &["--scope", "inference,read,manage"]).await,
        "single": key(&house, "single", &["--concurrent", "1"]).await,
        "reader": key(&house, "reader", &["--scope", "read"]).await,
        "narrow": key(&house, "narrow", &["--model", "embedder"]).await,
    });
    let daemon = house.start().await;
    let url = format!("http://{}", daemon.address());
    clients::run(&house, script, &json!({"url": url, "keys": keys, "model": MODEL})).await;
    daemon.until_quiet().await;
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
    daemon.stop().await;
}

#[tokio::test]
async fn openai_of_python_is_served() {
    is_served("openai_python.py").await;
}

#[tokio::test]
async fn openai_of_node_is_served() {
    is_served("openai_node.mjs").await;
}

#[tokio::test]
async fn anthropic_of_python_is_served() {
    is_served("anthropic_python.py").await;
}

#[tokio::test]
async fn ollama_of_python_is_served() {
    is_served("ollama_python.py").await;
}

#[tokio::test]
async fn langchain_is_served() {
    is_served("langchain_python.py").await;
}

#[tokio::test]
async fn prometheus_reads_what_is_measured() {
    is_served("prometheus_python.py").await;
}

#[tokio::test]
async fn litellm_is_served() {
    is_served("litellm_python.py").await;
}
