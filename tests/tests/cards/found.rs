//! What is found without a word of configuration.
use crate::support::{assert_serves, model, process_of, until_card};
use motorpool_tests::e2e::{
    House,
    cards::{CARDS, Cards},
};
use motorpool_vocab::GIB;
use serde_json::Value;

const TOTALS: [u64; 2] = [24 * GIB, 16 * GIB];

#[tokio::test]
async fn cards_are_found_with_their_sizes_and_what_others_use_is_subtracted() {
    let mut house = House::new();
    let [a, b] = CARDS;
    let foreign = format!("process uuid={a} pid=1 bytes={}\n", 3 * GIB);
    let mut cards = Cards::put_in(&mut house, TOTALS, "");
    let daemon = house.start().await;
    let seen = until_card(&daemon, a, |card| card.foreign_bytes == Some(0)).await;
    assert_eq!((seen.total_bytes, seen.share_bytes), (24 * GIB, 24 * GIB / 100 * 95 + 24 * GIB % 100 * 95 / 100));
    assert_eq!(daemon.status().await.card(b).total_bytes, 16 * GIB);
    cards.set_used(a, 3 * GIB, &foreign);
    let seen = until_card(&daemon, a, |card| card.foreign_bytes == Some(3 * GIB)).await;
    assert_eq!(seen.share_now_bytes, 21 * GIB);
    assert_eq!(daemon.status().await.card(b).foreign_bytes, Some(0), "of the other nobody uses anything");
    let log = daemon.log();
    assert!(log.contains(&format!("graphics card NVIDIA GeForce RTX 3090 ({a}) with 24.0 GiB")), "{log}");
    daemon.stop().await;
}

#[tokio::test]
async fn the_operators_word_stands_for_a_card_by_any_of_its_names_and_others_are_added() {
    let mut house = House::new();
    let [a, b] = CARDS;
    let _cards = Cards::put_in(&mut house, TOTALS, "");
    house.add_device("0000:01:00.0", "20GiB");
    let daemon = house.start().await;
    let status = daemon.status().await;
    let cards: Vec<_> = status.pool.memory.iter().map(|pool| (pool.device.as_deref(), pool.total_bytes)).collect();
    assert!(cards.contains(&(Some(a), 20 * GIB)) && cards.contains(&(Some(b), 16 * GIB)), "{cards:?}");
    assert_eq!(cards.iter().filter(|(id, _)| id.is_some()).count(), 2, "it is there once: {cards:?}");
    until_card(&daemon, a, |card| card.foreign_bytes.is_some()).await;
    daemon.stop().await;
}

#[tokio::test]
async fn cards_that_the_only_engine_cannot_use_are_none_and_it_is_told_so() {
    let mut house = House::new();
    let model = model(&mut house, "a", 600);
    let _cards = Cards::put_in(&mut house, TOTALS, "engine CUDA\n");
    let daemon = house.start().await;
    assert!(daemon.status().await.pool.memory.iter().all(|pool| pool.device.is_none()));
    assert_serves(&daemon, "a").await;
    let process = process_of(&model).await;
    assert_eq!(crate::support::after(&process, "--device"), Some("none"), "{process}");
    assert!(daemon.log().contains("no engine here can compute on it"), "{}", daemon.log());
    daemon.stop().await;
}

#[tokio::test]
async fn an_engine_that_could_use_no_card_is_asked_again_at_the_next_start() {
    let mut house = House::new();
    let cards = Cards::put_in(&mut house, TOTALS, "engine CUDA\n");
    let daemon = house.start().await;
    assert!(daemon.status().await.pool.memory.iter().all(|pool| pool.device.is_none()));
    daemon.stop().await;
    // Nothing of the program, its libraries, the driver or the devices is another.
    cards.set("");
    let daemon = house.start().await;
    assert_eq!(daemon.status().await.card(CARDS[0]).total_bytes, TOTALS[0]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_plan_sees_the_cards_without_a_daemon_and_leaves_nothing() {
    let mut house = House::new();
    model(&mut house, "a", 600);
    let _cards = Cards::put_in(&mut house, TOTALS, "");
    house.write_config();
    let outcome = house.run(&["plan", "a", "--json"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let sheet: Value = outcome.json();
    assert!(sheet.to_string().contains(CARDS[1]), "the smaller card fits best: {sheet}");
    assert!(!house.state("device-lists.json").exists(), "a plan writes nothing");
    let daemon = house.start().await;
    assert!(house.state("device-lists.json").exists());
    daemon.stop().await;
}
