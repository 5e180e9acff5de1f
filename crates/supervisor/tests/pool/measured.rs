//! What real trees hold and say becomes what is reserved for them.
use crate::house::{House, ask, id, key, until};
use motorpool_supervisor::PoolHandle;
use motorpool_vocab::{Bytes, Event, EventKind};
use std::time::Duration;
use tokio::sync::broadcast::Receiver;

/// From what to what the line of `model` was corrected next.
async fn correction(events: &mut Receiver<Event>, model: &str) -> (Bytes, Bytes) {
    let wanted = key(model);
    let next = async {
        loop {
            match events.recv().await.expect("an event").kind {
                EventKind::Corrected { key, from, to, .. } if key == wanted => return (from, to),
                _ => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), next).await.expect("in time")
}

async fn loaded(words: &[&str]) -> (House, PoolHandle, Receiver<Event>) {
    let house = House::new();
    let pool = house.open(&[("estimated", words)]);
    let events = pool.events();
    assert_eq!(pool.load(id("estimated")).await, Ok(key("estimated")));
    (house, pool, events)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_reports_its_buffers_is_charged_them_and_what_comes_beside_them() {
    let (_house, pool, mut events) = loaded(&["report=300"]).await;
    let (from, to) = correction(&mut events, "estimated").await;
    let entry = until(&pool, "estimated", |entry| entry.measured.is_some()).await;
    assert_eq!((entry.planned, entry.reserved), (from, to));
    let (reported, measured) = (Bytes::mib(304), entry.measured.expect("just seen"));
    assert!(to > reported, "the process itself, and the prompt cache: {entry:?}");
    assert!(measured < reported, "nothing of them is touched yet: {entry:?}");
    let (_house, pool, mut events) = loaded(&["report=200"]).await;
    let (_, less) = correction(&mut events, "estimated").await;
    assert_eq!(to.saturating_sub(less), Bytes::mib(100), "all else is equal");
    drop(pool);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_holds_more_than_was_planned_or_reported_is_charged_what_it_holds() {
    for words in [&["hold=1100"][..], &["hold=1100", "report=8"]] {
        let (_house, pool, mut events) = loaded(words).await;
        let (from, to) = correction(&mut events, "estimated").await;
        let entry = until(&pool, "estimated", |entry| entry.measured.is_some()).await;
        assert!(from < Bytes::mib(1100) && to >= Bytes::mib(1100), "{from} {to}");
        assert!(Some(entry.reserved) >= entry.measured, "{entry:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_word_is_not_corrected_by_less() {
    let house = House::new();
    let pool = house.open(&[("a", &["report=8"])]);
    drop(pool.acquire(ask("a")).await.expect("a lease"));
    let entry = until(&pool, "a", |entry| entry.measured.is_some()).await;
    assert_eq!((entry.reserved, entry.planned), (Bytes::gib(1), Bytes::gib(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_use_of_the_machine_is_read_and_shown() {
    let house = House::new();
    let pool = house.open(&[]);
    let mut watch = pool.watch();
    let read = watch.wait_for(|snapshot| snapshot.pool.memory.iter().any(|memory| memory.foreign.is_some()));
    let snapshot = tokio::time::timeout(Duration::from_mins(1), read).await.expect("in time").expect("a loop").clone();
    let memory = snapshot.pool.memory.last().expect("system memory");
    assert!(memory.foreign.is_some_and(|foreign| foreign < memory.total), "{memory:?}");
}
