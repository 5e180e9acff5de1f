//! A driver that hangs, loses a card, counts processes in another way: what is said, and that everybody else goes on.
use crate::support::{assert_serves, model, taking, until_card};
use motorpool_testkit::{Behaviour, End, Exit, Load, Moment, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    cards::{CARDS, Cards},
    talk::{CHAT, Said, chat},
};
use motorpool_vocab::GIB;

const TOTALS: [u64; 2] = [24 * GIB, 16 * GIB];
const READ: &str = "nvmlDeviceGetMemoryInfo_v2";

async fn until_logged(daemon: &Daemon<'_>, text: &str) {
    eventually(&format!("the log says: {text}"), async || daemon.log().contains(text).then_some(())).await;
}

#[tokio::test]
async fn a_driver_that_hangs_delays_no_request() {
    let mut house = House::new();
    model(&mut house, "a", 6 << 10);
    house.fake_with("small", &Behaviour::default(), "declared = \"1GiB\"\ngpu_layers = 0\n");
    let cards = Cards::put_in(&mut house, TOTALS, "");
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let hang = cards.hang(READ, "").caught().await;
    assert_serves(&daemon, "a").await;
    assert_serves(&daemon, "small").await;
    drop(hang);
    daemon.stop().await;
}

#[tokio::test]
async fn a_start_goes_on_without_a_driver_that_hangs_and_takes_its_cards_up_when_it_answers() {
    let mut house = House::new();
    let cards = Cards::put_in(&mut house, TOTALS, "");
    let (daemon, hang) = tokio::join!(house.start(), cards.hang(READ, "").caught());
    assert!(daemon.status().await.pool.memory.iter().all(|pool| pool.device.is_none()), "nothing is known of cards");
    assert!(daemon.log().contains("NVIDIA's graphics driver does not answer"), "{}", daemon.log());
    cards.set("");
    drop(hang);
    eventually("the cards are there", async || {
        let status = daemon.status().await;
        let n_cards = status.pool.memory.iter().filter(|pool| pool.device.is_some()).count();
        (n_cards == CARDS.len()).then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_lost_card_takes_nothing_and_the_other_goes_on_until_it_is_back() {
    let mut house = House::new();
    let [a, b] = CARDS;
    model(&mut house, "large", 20 << 10);
    model(&mut house, "small", 6 << 10);
    let cards = Cards::put_in(&mut house, TOTALS, "");
    let daemon = house.start().await;
    until_card(&daemon, a, |card| card.foreign_bytes == Some(0)).await;
    cards.set(&format!("fault all {a} lost\n"));
    until_card(&daemon, a, |card| card.foreign_bytes.is_none() && card.share_now_bytes == 0).await;
    assert_serves(&daemon, "small").await;
    assert!(daemon.status().await.card(b).committed_bytes > 0);
    let answer = daemon.cli(&["load", "large"]).await;
    assert_ne!(answer.code, Some(0), "{answer:?}");
    cards.set("");
    until_card(&daemon, a, |card| card.foreign_bytes == Some(0)).await;
    assert_serves(&daemon, "large").await;
    daemon.stop().await;
}

#[tokio::test]
async fn process_ids_of_a_host_are_noticed_and_what_is_ours_is_taken_from_the_ledger() {
    let mut house = House::new();
    let [_, b] = CARDS;
    let said =
        ["load_tensors: CUDA0 model buffer size = 6144.00 MiB", "sched_reserve: CUDA0 compute buffer size = 0.50 MiB"];
    let load = Load { log: said.map(str::to_owned).to_vec(), ..Load::default() };
    house.fake_with("a", &Behaviour { load, ..taking(6 << 10) }, "declared = \"6GiB\"\n");
    let _cards = Cards::put_in(&mut house, TOTALS, "pid-offset 1000000\n");
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    until_logged(&daemon, "the graphics driver shows processes by ids that are not ours").await;
    until_card(&daemon, b, |card| card.foreign_bytes == Some(0) && card.committed_bytes >= 6 * GIB).await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_engine_that_computes_on_the_processor_in_spite_of_its_plan_serves_nobody() {
    let mut house = House::new();
    model(&mut house, "good", 6 << 10);
    house.fake_with("bad", &Behaviour::default(), "declared = \"4GiB\"\n");
    let _cards = Cards::put_in(&mut house, TOTALS, "");
    let daemon = house.start().await;
    assert_serves(&daemon, "good").await;
    let failed = daemon.cli(&["load", "bad"]).await;
    assert_ne!(failed.code, Some(0), "{failed:?}\n{}", daemon.log());
    until_logged(&daemon, "cpu-fallback").await;
    assert_serves(&daemon, "good").await;
    daemon.stop().await;
}

/// Serves one reply, and dies of a card that is gone in the second.
fn dies_of_its_card() -> Behaviour {
    let exit = Exit {
        at: Moment::Token(12),
        how: End::Code(1),
        log: vec!["NVRM: GPU has fallen off the bus".into()],
        first_starts: Some(1),
    };
    Behaviour { exit: Some(exit), ..taking(20 << 10) }
}

#[tokio::test]
async fn a_card_that_falls_off_under_an_engine_ends_that_one_alone_and_is_used_again_when_it_is_back() {
    let mut house = House::new();
    let [a, b] = CARDS;
    house.fake_with("large", &dies_of_its_card(), "declared = \"20480MiB\"\n");
    let small = model(&mut house, "small", 6 << 10);
    let cards = Cards::put_in(&mut house, TOTALS, "");
    let daemon = house.start().await;
    assert_serves(&daemon, "large").await;
    assert_serves(&daemon, "small").await;
    assert!(daemon.status().await.card(b).committed_bytes >= 6 * GIB);
    cards.set(&format!("fault all {a} lost\n"));
    until_card(&daemon, a, |card| card.share_now_bytes == 0).await;
    let broken = daemon.http().post(CHAT, &chat("large", "are you there?")).await.expect("an answer");
    assert!(Said::read(&broken.text()).error.is_some(), "{}", broken.text());
    until_logged(&daemon, "\"class\":\"device-lost\"").await;
    assert_serves(&daemon, "small").await;
    assert_eq!(small.starts().len(), 1, "the other card's engine goes on");
    let refused = daemon.cli(&["load", "large"]).await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains(&format!("Graphics device {a} is lost: reset it, or reboot.")), "{refused:?}");
    until_logged(&daemon, "a device is lost; nothing new goes there: reset it, or reboot").await;
    cards.set("");
    until_card(&daemon, a, |card| card.foreign_bytes == Some(0)).await;
    assert_serves(&daemon, "large").await;
    assert!(daemon.status().await.card(a).committed_bytes >= 20 * GIB);
    daemon.stop().await;
}
