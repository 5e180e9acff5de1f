//! `motorpool doctor` beside a driver that answers, loses a card, hangs, or is not there.
use motorpool_tests::e2e::{
    House,
    cards::{CARDS, Cards},
};
use motorpool_vocab::GIB;
use serde_json::Value;

const TOTALS: [u64; 2] = [24 * GIB, 16 * GIB];

/// The findings, and the exit code.
async fn doctor(house: &House) -> (Vec<Value>, Option<i32>) {
    house.write_config();
    let outcome = house.run(&["doctor", "--json"]).await;
    let findings: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    (findings.as_array().expect("a list").clone(), outcome.code)
}

/// State and words of those about `what` that say `text`.
fn about<'a>(findings: &'a [Value], what: &str, text: &str) -> Vec<&'a str> {
    let says = |finding: &&Value| {
        finding["what"] == what && finding["found"].as_str().is_some_and(|found| found.contains(text))
    };
    findings.iter().filter(says).filter_map(|finding| finding["state"].as_str()).collect()
}

#[tokio::test]
async fn cards_are_told_with_their_driver_and_what_is_free() {
    let mut house = House::new();
    let _cards = Cards::put_in(&mut house, TOTALS, "driver 570.86.10");
    let (findings, code) = doctor(&house).await;
    assert_eq!(about(&findings, "driver", "NVIDIA"), ["good"], "{findings:#?}");
    for (card, total) in CARDS.iter().zip(["24.0 GiB", "16.0 GiB"]) {
        assert_eq!(
            about(&findings, "device", &format!("({card}): {total} free of {total}")),
            ["good"],
            "{findings:#?}"
        );
    }
    assert!(!findings.iter().any(|finding| finding["what"] == "graphics"), "there are devices");
    assert_eq!(code, Some(0), "{findings:#?}");
    for finding in &findings {
        assert_eq!(finding["cure"].is_null(), finding["state"] == "good", "{finding}");
    }
    let words = house.run(&["doctor"]).await.stdout;
    assert!(words.contains("device: ") && words.contains(CARDS[0]), "{words}");
}

#[tokio::test]
async fn what_an_engine_listed_at_an_earlier_start_is_not_believed() {
    let mut house = House::new();
    let cards = Cards::put_in(&mut house, TOTALS, "");
    house.start().await.stop().await;
    assert!(house.state("device-lists.json").exists(), "it was kept");
    cards.set("engine CUDA");
    let (findings, _) = doctor(&house).await;
    assert_eq!(about(&findings, "device", "no engine here can compute on it"), ["note"; 2], "{findings:#?}");
}

#[tokio::test]
async fn a_lost_card_is_a_fault_with_its_cure_and_the_other_one_is_well() {
    let mut house = House::new();
    let cards = Cards::put_in(&mut house, TOTALS, "");
    cards.set(&format!("fault all {} lost", CARDS[0]));
    let (findings, code) = doctor(&house).await;
    assert_eq!(about(&findings, "device", "is lost"), ["fault"], "{findings:#?}");
    assert_eq!(about(&findings, "device", "free of 16.0 GiB"), ["good"], "{findings:#?}");
    assert_eq!(code, Some(12));
}

#[tokio::test]
async fn a_driver_that_hangs_is_named_and_keeps_nobody_waiting_for_ever() {
    let mut house = House::new();
    let cards = Cards::put_in(&mut house, TOTALS, "");
    let trap = cards.hang("nvmlDeviceGetMemoryInfo_v2", "");
    let ((findings, _), hang) = tokio::join!(doctor(&house), trap.caught());
    assert_eq!(about(&findings, "driver", "NVIDIA's does not answer"), ["note"], "{findings:#?}");
    drop(hang);
}

#[tokio::test]
async fn without_a_driver_engines_compute_on_the_processor_and_that_is_well() {
    let house = House::new();
    let (findings, code) = doctor(&house).await;
    assert_eq!(about(&findings, "graphics", "engines compute on the processor"), ["good"], "{findings:#?}");
    assert_eq!(code, Some(0), "{findings:#?}");
}
