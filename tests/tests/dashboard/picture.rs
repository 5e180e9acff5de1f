//! The picture of the README: a scene with two cards, played by fake engines and the fake NVML library.
//!
//! It is drawn in every run; with `MOTORPOOL_PICTURE=<file>` it is written there:
//! `MOTORPOOL_PICTURE=crates/dashboard/picture.png cargo test -p motorpool-tests --test dashboard picture`.
use crate::{files, gates, look, url};
use motorpool_testkit::{Behaviour, ClaimTime, FakeModel, Gate, GraphicsClaim, Load, Tokens};
use motorpool_tests::e2e::{Cards, House, cards::CARDS};
use motorpool_vocab::{GIB, MIB};
use serde_json::json;
use std::fs;

const MOST_BYTES: usize = 150_000;

fn taking(mib: u64, when: ClaimTime) -> Behaviour {
    let claim = GraphicsClaim { bytes: mib * MIB, when, ..GraphicsClaim::default() };
    Behaviour { graphics: vec![claim], ..Behaviour::default() }
}

fn speaking(mib: u64, pace_ms: u64) -> Behaviour {
    let tokens = Tokens { count: 100_000, pace_ms, ..Tokens::default() };
    Behaviour { tokens, ..taking(mib, ClaimTime::Start) }
}

/// What is mapped of a small file is soon all of it, and counts as progress.
fn grow(model: &FakeModel) {
    let file = fs::File::options().write(true).open(model.path()).expect("it is there");
    file.set_len(GIB).expect("a hole");
}

#[tokio::test]
async fn the_picture_shows_the_product_at_work() {
    let mut house = House::new();
    let mut cards = Cards::put_in(&mut house, [24 * GIB; 2], "");
    cards.set_used(CARDS[1], 1300 * MIB, "");
    let steps = gates(&house, "step", 8);
    let load = Load { steps: 8, gates: steps.iter().map(Gate::file).collect(), ..Load::default() };
    house.fake_with("qwen3-coder-30b", &speaking(17_650, 24), "declared = \"18GiB\"\nslots = 4\n");
    house.fake_with("gemma3-12b", &speaking(8_300, 45), "declared = \"9GiB\"\nslots = 2\n");
    let loading = Behaviour { load, ..taking(9_000, ClaimTime::Ready) };
    let model = house.fake_with("mistral-small-24b", &loading, "declared = \"10GiB\"\nslots = 2\n");
    grow(&model);
    house.fake_with("gpt-oss-20b", &taking(12_000, ClaimTime::Start), "declared = \"13GiB\"\n");
    house.fake_with("llama-3.3-405b", &Behaviour::default(), "declared = \"800GiB\"\n");
    house.fake_with("nomic-embed-text", &Behaviour::default(), "declared = \"300MiB\"\n");
    let daemon = house.start().await;
    let file = house.path("picture.png");
    let pool = json!({ "url": url(&daemon), "steps": files(&steps), "file": file });
    look("picture.mjs", &pool).await;
    let drawn = fs::read(&file).expect("drawn");
    assert!(drawn.len() < MOST_BYTES, "{} bytes, at most {MOST_BYTES}", drawn.len());
    if let Some(wanted) = std::env::var_os("MOTORPOOL_PICTURE") {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member lies below the root");
        fs::write(root.join(wanted), drawn).expect("written");
    }
    daemon.stop().await;
}
