//! Where engines are told to compute, and that this is where they compute.
use crate::support::{after, assert_serves, model, process_of, taking, until_card};
use motorpool_gguf::write::Smoke;
use motorpool_testkit::{Behaviour, GraphicsClaim};
use motorpool_tests::e2e::{
    Daemon, House,
    cards::{CARDS, Cards},
};
use motorpool_vocab::{GIB, MIB};
use serde_json::Value;
use std::fs;

const TOTALS: [u64; 2] = [24 * GIB, 16 * GIB];

#[tokio::test]
async fn a_claim_lands_on_the_card_that_was_chosen_and_the_driver_shows_it_as_ours_whatever_the_orders_are() {
    let [a, b] = CARDS;
    let orders = [
        String::new(),
        format!("order {b} {a}\n"),
        format!("engine CUDA {b} {a}\n"),
        format!("order {b} {a}\nengine CUDA {b} {a}\n"),
    ];
    for order in orders {
        let mut house = House::new();
        let (small, large) = (model(&mut house, "small", 6 << 10), model(&mut house, "large", 20 << 10));
        let cards = Cards::put_in(&mut house, TOTALS, &order);
        let daemon = house.start().await;
        for (model, id, card, mib) in [(&small, "small", b, 6 << 10), (&large, "large", a, 20 << 10)] {
            assert_serves(&daemon, id).await;
            let process = process_of(model).await;
            assert_eq!(process["environment"]["CUDA_VISIBLE_DEVICES"], card, "{order}");
            assert_eq!(process["environment"]["CUDA_DEVICE_ORDER"], "PCI_BUS_ID");
            assert_eq!((after(&process, "--device"), after(&process, "--tensor-split")), (Some("CUDA0"), None));
            let pid = daemon.until_phase(id, &["ready"]).await.pid.expect("it runs");
            assert_eq!(cards.claimed(pid), [(card.to_owned(), mib * MIB)], "{order}");
            assert_is_ours(&daemon, card, mib * MIB).await;
            assert_launched_on(&daemon, id, &[card]);
        }
        daemon.stop().await;
    }
}

#[tokio::test]
async fn instances_of_a_card_that_is_cut_up_are_cards_of_their_own_and_engines_see_their_own_alone() {
    let [a, b] = CARDS;
    let mut house = House::new();
    let mut cards = Cards::put_in(&mut house, TOTALS, "");
    cards.cut(a, &[("MIG-1111", 10 * GIB), ("MIG-2222", 20 * GIB)], "");
    let places = [("small", "MIG-1111", 6 << 10), ("middle", b, 12 << 10), ("large", "MIG-2222", 17 << 10)];
    let models = places.map(|(id, _, mib)| model(&mut house, id, mib));
    let daemon = house.start().await;
    for (model, (id, card, mib)) in models.iter().zip(places) {
        assert_serves(&daemon, id).await;
        let process = process_of(model).await;
        assert_eq!(process["environment"]["CUDA_VISIBLE_DEVICES"], card);
        assert_eq!(after(&process, "--device"), Some("CUDA0"));
        let pid = daemon.until_phase(id, &["ready"]).await.pid.expect("it runs");
        assert_eq!(cards.claimed(pid), [(card.to_owned(), mib * MIB)]);
        assert_is_ours(&daemon, card, mib * MIB).await;
    }
    let status = daemon.status().await;
    assert!(status.pool.memory.iter().all(|pool| pool.device.as_deref() != Some(a)), "nothing lies on the card itself");
    assert!(daemon.log().contains(&format!("({a}) is cut into instances (MIG), which count instead")));
    daemon.stop().await;
}

/// All that is used there is reserved, and nothing of it counts as others'.
async fn assert_is_ours(daemon: &Daemon<'_>, card: &str, bytes: u64) {
    until_card(daemon, card, |seen| seen.committed_bytes == bytes && seen.foreign_bytes == Some(0)).await;
}

/// The line of a launch names the cards.
fn assert_launched_on(daemon: &Daemon<'_>, model: &str, cards: &[&str]) {
    let log = daemon.log();
    let is_it = |line: &&str| line.contains("[llama-server] launch {") && line.contains(&format!(":{model}:"));
    let line = log.lines().find(is_it).unwrap_or_else(|| panic!("no launch of {model}: {log}"));
    let (_, text) = line.split_once("launch ").expect("just found");
    let launch: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(launch["devices"], serde_json::json!(cards));
    assert_eq!(launch["backend"], "gpu");
}

/// A model whose cache of 2 GiB fits no single card of 2.5 GiB beside what each card takes anyway.
fn wide(house: &mut House) -> motorpool_testkit::FakeModel {
    let claims = [0, 1].map(|device| GraphicsClaim { device, bytes: 1200 * MIB, ..GraphicsClaim::default() });
    let behaviour = Behaviour { graphics: claims.to_vec(), ..Behaviour::default() };
    let model = motorpool_testkit::FakeModel::write(&house.path("models"), "wide", &behaviour).expect("written");
    let file = Smoke { context: 1 << 18, n_blocks: 64, seed: 1 }.writer().finish();
    fs::write(model.path(), file).expect("written");
    let entry = format!(
        "id = \"wide\"\ncontext = {}\nslots = 1\nkv_type = \"f16\"\n[source]\nfile = \"{}\"\n",
        1 << 18,
        model.path().display()
    );
    house.write_beside("catalog/wide.toml", &entry);
    model
}

#[tokio::test]
async fn layers_over_two_cards_are_split_in_one_order_whatever_driver_and_engine_count() {
    let [a, b] = CARDS;
    let mut seen = vec![];
    for order in [String::new(), format!("order {b} {a}\nengine CUDA {b} {a}\n")] {
        let mut house = House::new();
        let model = wide(&mut house);
        let cards = Cards::put_in(&mut house, [2560 * MIB, 2400 * MIB], &order);
        let daemon = house.start().await;
        assert_serves(&daemon, "wide").await;
        let process = process_of(&model).await;
        let visible = process["environment"]["CUDA_VISIBLE_DEVICES"].as_str().expect("shown").to_owned();
        assert_eq!(after(&process, "--device"), Some("CUDA0,CUDA1"), "{process}");
        let shares = after(&process, "--tensor-split").expect("two shares").to_owned();
        let pid = daemon.until_phase("wide", &["ready"]).await.pid.expect("it runs");
        let on: Vec<_> = cards.claimed(pid).into_iter().map(|(card, _)| card).collect();
        assert_eq!(on.join(","), visible, "the first share is the first card's");
        assert_launched_on(&daemon, "wide", &visible.split(',').collect::<Vec<_>>());
        seen.push((visible, shares));
        daemon.stop().await;
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].0, format!("{a},{b}"), "the larger first");
}

#[tokio::test]
async fn a_card_that_its_operator_and_a_model_call_as_engines_do_is_that_card() {
    let mut house = House::new();
    let model = house.fake_with("a", &taking(6 << 10), "declared = \"6GiB\"\ndevices = [\"CUDA1\"]\n");
    let cards = Cards::put_in(&mut house, TOTALS, "");
    house.add_device("CUDA1", "16GiB");
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let process = process_of(&model).await;
    assert_eq!(after(&process, "--device"), Some("CUDA0"), "the only one that it sees");
    assert_eq!(process["environment"]["CUDA_VISIBLE_DEVICES"], CARDS[1]);
    let pid = daemon.until_phase("a", &["ready"]).await.pid.expect("it runs");
    assert_eq!(cards.claimed(pid), [(CARDS[1].to_owned(), 6 * GIB)]);
    assert_is_ours(&daemon, CARDS[1], 6 * GIB).await;
    daemon.stop().await;
}

/// Committed in all, in GiB (of system memory a little more or less is measured at any time), and on the card; the processes
/// of both models.
async fn held_on(daemon: &Daemon<'_>, card: &str) -> (u64, u64, [Option<u32>; 2]) {
    let status = daemon.status().await;
    let pid = |model| status.engine(model).and_then(|engine| engine.pid);
    (status.pool.committed_bytes / GIB, status.card(card).committed_bytes, ["x", "y"].map(pid))
}

#[tokio::test]
async fn naming_a_card_by_another_name_moves_nothing_and_charges_nobody_twice() {
    for name in ["CUDA1", "0000:02:00.0"] {
        let mut house = House::new();
        for id in ["x", "y"] {
            model(&mut house, id, 6 << 10);
        }
        let cards = Cards::put_in(&mut house, TOTALS, "");
        let daemon = house.start().await;
        for id in ["x", "y"] {
            assert_serves(&daemon, id).await;
        }
        daemon.until_quiet().await;
        assert_is_ours(&daemon, CARDS[1], 12 * GIB).await;
        let before = held_on(&daemon, CARDS[1]).await;
        let text = fs::read_to_string(house.path("config/motorpool.toml")).expect("written");
        let device = format!("{text}\n[[device]]\nid = \"{name}\"\ntotal = \"16GiB\"\n");
        house.write_beside("motorpool.toml", &device);
        let reloaded = daemon.cli(&["reload"]).await;
        assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
        cards.after_a_look("").await;
        assert_eq!(held_on(&daemon, CARDS[1]).await, before, "{name}\n{}", daemon.log());
        let status = daemon.status().await;
        assert_eq!(status.pool.memory.iter().filter(|memory| memory.device.is_some()).count(), 2, "{status:?}");
        for id in ["x", "y"] {
            assert_serves(&daemon, id).await;
        }
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_build_for_another_backend_is_told_its_own_names() {
    let mut house = House::new();
    let [a, b] = CARDS;
    let model = house.fake_with("a", &taking(20 << 10), "declared = \"20GiB\"\n");
    let cards = Cards::put_in(&mut house, TOTALS, &format!("engine Vulkan {a} {b}\n"));
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let process = process_of(&model).await;
    assert_eq!(
        (after(&process, "--device"), &process["environment"]["CUDA_VISIBLE_DEVICES"]),
        (Some("Vulkan0"), &Value::Null)
    );
    let pid = daemon.until_phase("a", &["ready"]).await.pid.expect("it runs");
    assert_eq!(cards.claimed(pid), [(a.to_owned(), 20 * GIB)]);
    daemon.stop().await;
}
