//! What loads teach outlives the supervisor, in a real file.
use crate::house::{House, id, key, until};
use motorpool_pool::Refusal;
use motorpool_supervisor::PoolHandle;
use motorpool_vocab::{Bytes, EntryView, FailureClass};
use std::{fs, time::Duration};

const MODEL: &str = "estimated";

/// A supervisor whose engine is told these words; the one before may still be giving its directory back.
async fn open(house: &House, words: &[&str]) -> PoolHandle {
    let opened = async {
        loop {
            match house.try_open(&[(MODEL, words)]) {
                Ok(pool) => return pool,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), opened).await.expect("in time")
}

/// Waits until nobody has the file any more: whoever closes it last takes this one away.
async fn closed(house: &House) {
    let closed = async {
        while house.path("state/learned.sqlite-wal").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), closed).await.expect("in time");
}

/// A load by one supervisor from its start to its end, as it was once it was measured.
async fn life(house: &House, words: &[&str]) -> EntryView {
    let pool = open(house, words).await;
    assert_eq!(pool.load(id(MODEL)).await, Ok(key(MODEL)));
    let entry = until(&pool, MODEL, |entry| entry.measured.is_some()).await;
    assert_eq!(pool.shutdown().await, []);
    drop(pool);
    closed(house).await;
    entry
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_learned_is_the_next_estimate_after_a_restart() {
    for megabytes in [200, 600] {
        let (house, words) = (House::new(), format!("report={megabytes}"));
        let first = life(&house, &[&words]).await;
        assert_ne!(first.planned, first.reserved, "the estimate knew nothing of this engine");
        let second = life(&house, &[&words]).await;
        let off = second.planned.get().abs_diff(first.reserved.get());
        // A whole page more or less is mapped of a file.
        assert!(off < 1 << 20, "{} {}", second.planned, first.reserved);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_file_or_other_words_to_the_engine_are_estimated_anew() {
    let house = House::new();
    let first = life(&house, &["report=600"]).await;
    assert_eq!(life(&house, &["report=601"]).await.planned, first.planned);
    let bytes = fs::read(house.path("model.gguf")).expect("there");
    fs::remove_file(house.path("model.gguf")).expect("there");
    fs::write(house.path("model.gguf"), bytes).expect("writable");
    assert_eq!(life(&house, &["report=600"]).await.planned, first.planned, "another file of the same content");
    assert_ne!(life(&house, &["report=600"]).await.planned, first.planned, "the same again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_keeps_nobody_from_starting_and_is_begun_anew() {
    let house = House::new();
    let first = life(&house, &["report=600"]).await;
    let file = house.path("state/learned.sqlite");
    fs::write(&file, "nothing of it can be read").expect("writable");
    assert_eq!(life(&house, &["report=600"]).await.planned, first.planned, "all is forgotten");
    assert_eq!(fs::read(house.path("state/learned.sqlite.damaged")).expect("set aside"), b"nothing of it can be read");
    assert_ne!(life(&house, &["report=600"]).await.planned, first.planned, "and learned again");
    fs::remove_file(&file).expect("there");
    fs::create_dir(&file).expect("writable");
    assert_eq!(life(&house, &["report=600"]).await.planned, first.planned, "without any file");
}

#[tokio::test(flavor = "multi_thread")]
async fn loads_that_died_of_memory_are_denied_with_the_numbers_after_a_restart() {
    let house = House::new();
    for _ in 0..2 {
        let pool = open(&house, &["exit=1"]).await;
        let refused = pool.load(id(MODEL)).await.expect_err("it dies");
        let Refusal::StartFailed { fault, .. } = refused else { panic!("a failed start, not {refused:?}") };
        assert_eq!(fault.class, FailureClass::OutOfHostMemory);
        assert_eq!(pool.shutdown().await, []);
        drop(pool);
        closed(&house).await;
    }
    let pool = open(&house, &["exit=1"]).await;
    let refused = pool.load(id(MODEL)).await.expect_err("no such memory");
    let Refusal::CapacityDenied(denial) = refused else { panic!("denied, not {refused:?}") };
    assert!(denial.requested.total() > Bytes::gib(16), "more than was there when it died: {denial}");
    assert_eq!(house.denials.lock().len(), 1);
}
