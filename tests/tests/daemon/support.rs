//! What these tests share.
use motorpool_testkit::{Answer, Behaviour, Deaf, FakeModel, Gate, Incoming, Load, Stop, TokenGate, Tokens, binary};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{CHAT, Said, chat},
};
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

/// Replies have `count` tokens, and token `before` waits for `gate`.
pub(crate) fn pausing(count: u32, before: u32, gate: &Gate) -> Behaviour {
    let gates = vec![TokenGate { before, file: gate.file() }];
    Behaviour { tokens: Tokens { count, gates, ..Tokens::default() }, ..Behaviour::default() }
}

/// A model whose replies outlast any test. A client that reads nothing of one for a second is gone.
pub(crate) fn endless(house: &mut House) -> FakeModel {
    house.set("limits.write_stall", "1s");
    let tokens = Tokens { count: 1_000_000, ..Tokens::default() };
    let behaviour = Behaviour { tokens, ..Behaviour::default() };
    house.fake_with("endless", &behaviour, "declared = \"100MiB\"\nslots = 2\n")
}

/// A house whose engine is this shell script; in it `$ENGINE` is the fake engine.
pub(crate) fn with_wrapper(script: &str) -> House {
    let mut house = House::new();
    let wrapper = house.path("wrapper");
    let engine = binary("motorpool-fake-engine");
    fs::write(&wrapper, format!("#!/bin/sh\nENGINE='{}'\n{script}\n", engine.display())).expect("written");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("ours");
    house.set("engine.llama-server.program", wrapper.to_str().expect("UTF-8"));
    house
}

/// An engine that hears no request to end.
pub(crate) fn deaf() -> Stop {
    Stop { deaf_to: vec![Deaf::Sigterm, Deaf::ExitCommand, Deaf::EndOfStdin], ..Stop::default() }
}

/// Loading ends when `gate` opens.
pub(crate) fn loading_until(gate: &Gate) -> Behaviour {
    Behaviour { load: Load { gates: vec![gate.file()], ..Load::default() }, ..Behaviour::default() }
}

/// A gate in the house's folder, closed.
pub(crate) fn gate(house: &House, name: &str) -> Gate {
    Gate::closed(house.folder(), name)
}

/// A stream that has come as far as token `index`, and its bytes so far.
pub(crate) async fn stream_until(daemon: &Daemon<'_>, (model, prompt): (&str, &str), index: u32) -> (Incoming, String) {
    let mut stream = daemon.http().open(CHAT, &chat(model, prompt)).await.expect("a head");
    assert_eq!(stream.status, 200, "{}", daemon.log());
    let seen = stream.until(&format!("{index}\"}}")).await.expect("it goes on");
    (stream, seen)
}

/// A stream to its end.
pub(crate) async fn whole_stream(daemon: &Daemon<'_>, model: &str, prompt: &str) -> String {
    let answer = daemon.http().post(CHAT, &chat(model, prompt)).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

/// A model answers through the daemon: the proof that all is well.
pub(crate) async fn assert_serves(daemon: &Daemon<'_>, model: &str) {
    let events = whole_stream(daemon, model, "are you there?").await;
    let said = Said::read(&events);
    assert!(said.is_done && said.error.is_none(), "{events}");
}

/// An error in OpenAI's shape, with our code in body and header; returns it.
pub(crate) fn assert_refused(answer: &Answer, status: u16, code: &str) -> Value {
    assert_eq!((answer.status.as_u16(), header(answer, "x-motorpool-code")), (status, code), "{}", answer.text());
    assert!(header(answer, "content-type").starts_with("application/json"), "{:?}", answer.headers);
    assert!(!header(answer, "x-request-id").is_empty(), "{:?}", answer.headers);
    let error = assert_members(&answer.json(), &["code", "message", "param", "type"]);
    assert_eq!(error["code"], code);
    error
}

/// The same inside a stream, with the status that it would have had.
pub(crate) fn assert_event(event: &Value) -> Value {
    assert_members(event, &["code", "message", "param", "status", "type"])
}

/// OpenAI's shape of an error with these members, nothing more and nothing less.
fn assert_members(document: &Value, members: &[&str]) -> Value {
    let error = &document["error"];
    let mut names: Vec<_> = error.as_object().expect("an error").keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, members, "{document}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()) && error["type"].is_string());
    error.clone()
}

/// The seconds of `Retry-After`.
pub(crate) fn retry_after(answer: &Answer) -> u8 {
    header(answer, "retry-after").parse().unwrap_or_else(|e| panic!("whole seconds: {e}: {:?}", answer.headers))
}

/// A header's text; empty when it is not there.
pub(crate) fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).map_or("", |value| value.to_str().expect("visible ASCII"))
}

/// A file whose opening blocks whoever wants to read it, until somebody opens it to write.
#[derive(Debug)]
pub(crate) struct Blockade(PathBuf);

impl Blockade {
    /// In the place of what the data directory knows of `model`, so that its check takes as long as we like.
    pub(crate) fn of_check(house: &House, model: &str) -> Self {
        let folder = house.data().join("motorpool/models").join(model);
        fs::create_dir_all(&folder).expect("made");
        let path = folder.join("model.json");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("made");
        Self(path)
    }

    /// In the place of the configuration, so that a reload takes as long as we like.
    pub(crate) fn of_configuration(house: &House) -> Self {
        let path = house.path("config/motorpool.toml");
        fs::remove_file(&path).expect("written");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("made");
        Self(path)
    }

    /// Once somebody waits for it: the way to tell what is in it.
    pub(crate) async fn caught(&self) -> fs::File {
        let path = self.0.clone();
        let opened = tokio::task::spawn_blocking(move || fs::File::options().write(true).open(path)).await;
        opened.expect("no panic").expect("somebody reads")
    }

    /// Lets whoever waits go on.
    pub(crate) async fn lift(&self) {
        drop(self.caught().await);
        fs::remove_file(&self.0).expect("ours");
    }
}

/// How often the engine of a model was started.
pub(crate) fn n_starts(model: &FakeModel) -> usize {
    model.starts().len()
}
