//! Another catalog while children run: what was launched is what was looked at.
use crate::house::{House, ask, key, until};
use motorpool_pool::{PoolConfig, Reload};
use motorpool_vocab::{PhaseView, StopReason};

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_child_ends_after_its_leases_and_the_next_one_is_launched_as_the_catalog_says_now() {
    let house = House::new();
    let pool = house.open(&[("a", &[]), ("b", &[])]);
    let (on_a, on_b) = (pool.acquire(ask("a")).await.expect("a lease"), pool.acquire(ask("b")).await.expect("a lease"));
    let same = Reload { catalog: house.catalog(&[("a", &[]), ("b", &[])], 3), terms: Box::new(PoolConfig::default()) };
    let nothing = pool.reload(same).await.expect("it runs").draining;
    assert_eq!(nothing, [], "equal entries are no change, whoever read them");
    // `b` is not in it any more, and `a` has other slots.
    let next = Reload { catalog: house.catalog(&[("a", &[])], 2), terms: Box::new(PoolConfig::default()) };
    let going = pool.reload(next).await.expect("it runs").draining;
    assert_eq!(going, [key("a"), key("b")]);
    let refused = pool.acquire(ask("b")).await.expect_err("there is no such model");
    assert_eq!(refused.to_string(), "model b is not in the catalog");
    let other = pool.clone();
    let waits = tokio::spawn(async move { other.acquire(ask("a")).await });
    until(&pool, "a", |entry| entry.n_tickets == 1 && entry.phase == PhaseView::Ready).await;
    let (old_a, old_b) = (on_a.spawn(), on_b.spawn());
    drop((on_a, on_b));
    let lease = waits.await.expect("no panic").expect("a lease");
    assert!(lease.spawn() > old_a, "the new one");
    assert_eq!(lease.gate().width(), 2, "as it says now");
    for spawn in [old_a, old_b] {
        let exit = pool.exit_of(spawn, std::time::Duration::from_mins(1)).await.expect("it ended");
        assert_eq!(exit.reason, StopReason::Reload);
    }
    pool.shutdown().await;
}
