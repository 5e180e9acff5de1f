//! What these tests share.
use motorpool_testkit::{Behaviour, Client, FakeModel, GraphicsClaim, eventually};
use motorpool_tests::e2e::{
    Daemon, House, Memory,
    talk::{CHAT, Said, chat},
};
use motorpool_vocab::MIB;
use serde_json::Value;

/// A model that is declared to take so many MiB, and takes them of the first card it is told to use.
pub(crate) fn model(house: &mut House, id: &str, mib: u64) -> FakeModel {
    house.fake_with(id, &taking(mib), &format!("declared = \"{mib}MiB\"\n"))
}

/// Takes so many MiB when loading begins.
pub(crate) fn taking(mib: u64) -> Behaviour {
    let claim = GraphicsClaim { bytes: mib * MIB, ..GraphicsClaim::default() };
    // Room in system memory is none of these tests' business.
    Behaviour { graphics: vec![claim], ..Behaviour::default() }
}

/// The model answers.
pub(crate) async fn assert_serves(daemon: &Daemon<'_>, model: &str) {
    let answer = daemon.http().post(CHAT, &chat(model, "are you there?")).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}\n{}", answer.text(), daemon.log());
    let events = answer.text();
    assert!(Said::read(&events).is_done, "{events}");
}

/// The card, once it is seen so.
pub(crate) async fn until_card(daemon: &Daemon<'_>, id: &str, is_so: impl Fn(&Memory) -> bool) -> Memory {
    eventually(&format!("{id} is seen as wanted"), async || {
        Some(daemon.status().await.card(id).clone()).filter(|memory| is_so(memory))
    })
    .await
}

/// How the latest engine of a model was started, as it says itself.
pub(crate) async fn process_of(model: &FakeModel) -> Value {
    let start = model.starts().pop().expect("it was started");
    Client::new(start.endpoint()).get("/fake/process").await.expect("it answers").json()
}

/// What follows `flag` on an engine's command line.
pub(crate) fn after<'a>(process: &'a Value, flag: &str) -> Option<&'a str> {
    let words = process["arguments"].as_array().expect("words");
    let at = words.iter().position(|word| word == flag)?;
    words.get(at + 1)?.as_str()
}
