//! What a handle answers, and what becomes of those who stop waiting.
use crate::house::{House, ask, id, key, until};
use motorpool_pool::{Answer, Force, Refusal};
use motorpool_vocab::{EventKind, FailureClass, PhaseView, Spawn};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_first_request_builds_and_later_ones_enter_by_themselves() {
    let house = House::new();
    let pool = house.open(&[("a", &[])]);
    let mut events = pool.events();
    let lease = pool.acquire(ask("a")).await.expect("a lease");
    assert_eq!((lease.key(), lease.spawn(), lease.gate().width()), (&key("a"), Spawn(1), 3));
    let others = [pool.acquire(ask("a")).await, pool.acquire(ask("a")).await];
    assert!(others.iter().flatten().all(|other| other.spawn() == Spawn(1) && other.endpoint() == lease.endpoint()));
    let entry = until(&pool, "a", |entry| entry.leases.len() == 3).await;
    assert!(entry.leases.iter().all(|l| l.holder.request == "a" && l.holder.since > motorpool_vocab::Now::ZERO));
    drop((lease, others));
    until(&pool, "a", |entry| entry.leases.is_empty() && entry.demand == 3).await;
    let numbers = std::iter::from_fn(|| events.try_recv().ok()).map(|event| event.seq).collect::<Vec<_>>();
    assert_eq!(numbers, (1..=u64::try_from(numbers.len()).expect("few")).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_first_requests_make_one_child() {
    let house = House::new();
    let pool = house.open(&[("a", &[])]);
    let all = (0..64).map(|_| {
        let pool = pool.clone();
        tokio::spawn(async move { pool.acquire(ask("a")).await.map(|lease| lease.spawn()) })
    });
    for one in all.collect::<Vec<_>>() {
        assert_eq!(one.await.expect("no panic"), Ok(Spawn(1)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_engine_is_waited_for_and_one_who_leaves_gives_way() {
    let house = House::new();
    let pool = house.open(&[("a", &[])]);
    let held = [pool.acquire(ask("a")).await, pool.acquire(ask("a")).await, pool.acquire(ask("a")).await];
    let other = pool.clone();
    let gone = tokio::spawn(async move { other.acquire(ask("a")).await });
    until(&pool, "a", |entry| entry.n_tickets == 1).await;
    gone.abort();
    until(&pool, "a", |entry| entry.n_tickets == 0).await;
    let other = pool.clone();
    let waits = tokio::spawn(async move { other.acquire(ask("a")).await.map(|lease| lease.spawn()) });
    until(&pool, "a", |entry| entry.n_tickets == 1).await;
    drop(held);
    assert_eq!(waits.await.expect("no panic"), Ok(Spawn(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_granted_to_one_who_left_comes_back() {
    let house = House::new();
    let pool = house.open(&[("a", &[])]);
    for _ in 0..50 {
        // Polled once and dropped, at whatever the loop is doing.
        let _ = futures_once(pool.acquire(ask("a"))).await;
    }
    until(&pool, "a", |entry| entry.phase == PhaseView::Ready && entry.n_tickets == 0 && entry.leases.is_empty()).await;
    let all = [pool.acquire(ask("a")).await, pool.acquire(ask("a")).await, pool.acquire(ask("a")).await];
    assert!(all.iter().all(Result::is_ok), "every slot is free again");
}

async fn futures_once<F: Future>(future: F) -> Option<F::Output> {
    tokio::time::timeout(Duration::ZERO, future).await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn loading_takes_no_lease_and_unloading_gives_everything_back() {
    let house = House::new();
    let pool = house.open(&[("a", &[])]);
    assert_eq!(pool.load(id("a")).await, Ok(key("a")));
    let entry = until(&pool, "a", |entry| entry.phase == PhaseView::Ready).await;
    assert!(entry.leases.is_empty() && entry.pid.is_some());
    let lease = pool.acquire(ask("a")).await.expect("a lease");
    assert_eq!(pool.unload_idle(key("a")).await, Answer::Serving(key("a")));
    assert_eq!(pool.release_idle().await, [key("a")], "busy");
    drop(lease);
    assert_eq!(pool.unload_idle(key("a")).await, Answer::Unloaded);
    assert_eq!(pool.snapshot().pool.committed, motorpool_vocab::Bytes::ZERO, "seen by who is answered");
    assert_eq!(pool.unload_idle(key("a")).await, Answer::NotResident);
    assert_eq!(pool.exit_of(Spawn(1), Duration::ZERO).await.map(|exit| exit.code), Some(Some(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_on_a_drain_is_told_who_holds_it() {
    let house = House::new();
    let pool = house.open(&[("a", &[]), ("b", &[]), ("c", &[])]);
    let held = [pool.acquire(ask("a")).await.expect("a lease"), pool.acquire(ask("b")).await.expect("a lease")];
    let (notices, mut told) = tokio::sync::mpsc::unbounded_channel();
    let waits = {
        let pool = pool.clone();
        tokio::spawn(async move { pool.acquire_told(ask("c"), Some(notices)).await.map(|lease| lease.spawn()) })
    };
    let holders = told.recv().await.expect("a notice");
    assert_eq!(holders.len(), 1, "one of both is enough");
    drop(held);
    assert_eq!(waits.await.expect("no panic"), Ok(Spawn(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_fits_is_denied_once_before_anybody_hears_it() {
    let house = House::new();
    let pool = house.open(&[("huge", &[]), ("a", &[])]);
    drop(pool.acquire(ask("a")).await.expect("a lease"));
    assert!(matches!(pool.acquire(ask("huge")).await, Err(Refusal::CapacityDenied(_))));
    assert_eq!(house.denials.lock().len(), 1);
    until(&pool, "a", |entry| entry.phase == PhaseView::Ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_model_and_an_absent_file_are_refusals() {
    let house = House::new();
    let pool = house.open(&[("absent", &[])]);
    assert!(matches!(pool.acquire(ask("nobody")).await, Err(Refusal::UnknownModel(_))));
    match pool.acquire(ask("absent")).await {
        Err(Refusal::StartFailed { fault, .. }) => assert_eq!(fault.class, FailureClass::ModelMissing),
        other => panic!("a refusal, not {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retired_pool_lets_its_leases_end_and_takes_nothing_new() {
    let house = House::new();
    let pool = house.open(&[("a", &[])]);
    let lease = pool.acquire(ask("a")).await.expect("a lease");
    let mut events = pool.events();
    let other = pool.clone();
    let retires = tokio::spawn(async move { other.retire().await });
    while !matches!(events.recv().await.expect("an event").kind, EventKind::Closing) {}
    assert!(matches!(pool.acquire(ask("a")).await, Err(Refusal::Retired)));
    assert!(!pool.is_open() && !retires.is_finished());
    drop(lease);
    assert_eq!(retires.await.expect("no panic"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_who_leaves_leaves_the_engine_undrained() {
    let house = House::new();
    let pool = house.open(&[("a", &[])]);
    let lease = pool.acquire(ask("a")).await.expect("a lease");
    let other = pool.clone();
    let evicts = tokio::spawn(async move { other.evict(key("a"), Force::No).await });
    until(&pool, "a", |entry| entry.n_drainers == 1).await;
    evicts.abort();
    until(&pool, "a", |entry| entry.n_drainers == 0).await;
    let again = pool.acquire(ask("a")).await.expect("a lease");
    assert_eq!(again.spawn(), lease.spawn());
}
