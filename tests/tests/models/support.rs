//! What these tests share.
use motorpool_gguf::{
    TensorType,
    write::{Smoke, Writer, smoke_model},
};
use motorpool_testkit::servers::hub::FakeHub;
use motorpool_tests::e2e::{House, Outcome};
use serde_json::Value;
use std::path::PathBuf;

/// A repository of one model in four quantisations, one of them in two files, with a projector.
pub(crate) const REPO: &str = "org/tiny-GGUF";

/// A house that asks this hub.
pub(crate) fn house_at(hub: &FakeHub) -> House {
    let mut house = House::new();
    house.set_env("HF_ENDPOINT", &hub.endpoint());
    house.write_config();
    house
}

/// A model that is not like that of another seed.
pub(crate) fn model(seed: u64) -> Vec<u8> {
    Smoke { seed, ..Smoke::default() }.writer().finish()
}

/// The two files of a split model.
pub(crate) fn shards() -> [Vec<u8>; 2] {
    let count = |writer: Writer, no: u16| writer.set("split.no", no).set("split.count", 2u16);
    let second = Writer::new().tensor("more.weight", TensorType::F32, &[4], vec![0; 16]);
    [count(Smoke::default().writer(), 0).finish(), count(second, 1).finish()]
}

/// A projector, as far as its header goes.
pub(crate) fn projector() -> Vec<u8> {
    let writer = Writer::new().set("general.architecture", "clip").set("general.type", "mmproj");
    writer.tensor("v.weight", TensorType::F32, &[4], vec![0; 16]).finish()
}

/// A hub with [`REPO`].
pub(crate) async fn hub() -> FakeHub {
    let hub = FakeHub::open().await.expect("free ports");
    let [first, second] = shards();
    hub.put(REPO, "README.md", "a model");
    hub.put(REPO, "LICENSE", "Do what you like.\n\u{1b}[31mBut not everything.\n");
    hub.put(REPO, "tiny-Q4_K_M.gguf", smoke_model());
    hub.put(REPO, "tiny-Q8_0.gguf", model(8));
    hub.put(REPO, "big/tiny-BF16-00001-of-00002.gguf", first);
    hub.put(REPO, "big/tiny-BF16-00002-of-00002.gguf", second);
    hub.put(REPO, "mmproj-F16.gguf", projector());
    hub.set_card(REPO, serde_json::json!({ "license": "own-1.0", "license_link": "https://example.com/own" }));
    hub
}

/// `motorpool model pull hf:REPO<rest>`.
pub(crate) async fn pull(house: &House, rest: &str) -> Outcome {
    house.run(&["model", "pull", &format!("hf:{REPO}{rest}")]).await
}

/// `motorpool model show ID --json`.
pub(crate) async fn card(house: &House, id: &str) -> Value {
    let shown = house.run(&["model", "show", id, "--json"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    shown.json()
}

/// The folder in which a pulled model lies.
pub(crate) fn home_of(house: &House, id: &str) -> PathBuf {
    house.data().join("motorpool/models").join(id)
}

/// Nothing of any model is on disk.
pub(crate) fn assert_no_model(house: &House) {
    let left = std::fs::read_dir(house.data().join("motorpool/models")).into_iter().flatten().flatten();
    let left: Vec<_> = left.map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// What a failed command says, its exit code and that it printed nothing.
pub(crate) fn said(outcome: &Outcome, code: i32) -> &str {
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(code), ""), "{outcome:?}");
    &outcome.stderr
}
