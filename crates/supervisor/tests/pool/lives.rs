//! Children from start to end, as the loop sees them.
use crate::house::{House, ask, id, is_alive, key, until, until_dead};
use motorpool_pool::{Answer, Force, Refusal};
use motorpool_supervisor::{LockError, OpenError};
use motorpool_vocab::{FailureClass, PhaseView, Spawn, StopReason};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{fs, time::Duration};

fn shoot(pid: u32) {
    kill(Pid::from_raw(i32::try_from(pid).expect("a process id")), Signal::SIGKILL).expect("ours");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_is_told_with_class_and_last_words_and_written_down() {
    let house = House::new();
    let pool = house.open(&[("a", &["exit=3"])]);
    match pool.acquire(ask("a")).await {
        Err(Refusal::StartFailed { fault, .. }) => {
            assert_eq!(fault.class, FailureClass::OutOfHostMemory, "its log tells");
            assert_eq!(fault.tail, ["last words: out of everything"]);
            assert!(fault.message.contains("code 3"), "{}", fault.message);
        }
        other => panic!("a refusal, not {other:?}"),
    }
    let log = fs::read_to_string(pool.log_path(&key("a"))).expect("a log");
    assert_eq!(log, "last words: out of everything\n");
    let incidents = house.path("state/incidents.jsonl");
    let written = async {
        while !fs::read_to_string(&incidents).is_ok_and(|text| text.ends_with('\n')) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), written).await.expect("in time");
    let incident = fs::read_to_string(&incidents).expect("written");
    assert!(
        incident.contains("\"expected\":false,\"reason\":\"crash\",\"class\":\"out-of-host-memory\""),
        "{incident}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_in_service_is_seen_and_the_next_request_starts_anew() {
    let house = House::new();
    let pool = house.open(&[("a", &[])]);
    let lease = pool.acquire(ask("a")).await.expect("a lease");
    let entry = until(&pool, "a", |entry| entry.pid.is_some()).await;
    shoot(entry.pid.expect("just seen"));
    let exit = pool.exit_of(lease.spawn(), Duration::from_mins(1)).await.expect("an end");
    assert_eq!((exit.signal, exit.reason, exit.class), (Some(9), StopReason::Crash, Some(FailureClass::Killed)));
    drop(lease);
    assert_eq!(pool.acquire(ask("a")).await.expect("a lease").spawn(), Spawn(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_does_not_hear_is_killed_after_its_time() {
    let house = House::new();
    let pool = house.open(&[("a", &["deaf"])]);
    assert_eq!(pool.load(id("a")).await, Ok(key("a")));
    assert_eq!(pool.unload_idle(key("a")).await, Answer::Unloaded);
    let exit = pool.exit_of(Spawn(1), Duration::ZERO).await.expect("an end");
    assert_eq!((exit.signal, exit.reason, exit.class), (Some(9), StopReason::User, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_loads_for_ever_can_be_ended_by_force() {
    for word in ["refuse", "mute"] {
        let house = House::new();
        let pool = house.open(&[("a", &[word])]);
        let other = pool.clone();
        let waits = tokio::spawn(async move { other.acquire(ask("a")).await });
        let loads = |entry: &motorpool_vocab::EntryView| matches!(entry.phase, PhaseView::Starting { .. });
        let entry = until(&pool, "a", |entry| loads(entry) && entry.pid.is_some()).await;
        assert_eq!(pool.evict(key("a"), Force::Yes).await, Answer::Unloaded);
        assert!(matches!(waits.await.expect("no panic"), Err(Refusal::Evicted(_))));
        assert!(!is_alive(entry.pid.expect("just seen")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_engine_makes_room_and_is_gone_before_the_other_comes() {
    let house = House::new();
    let pool = house.open(&[("a", &[]), ("b", &[]), ("c", &[])]);
    drop(pool.acquire(ask("a")).await.expect("a lease"));
    drop(pool.acquire(ask("b")).await.expect("a lease"));
    let victim = until(&pool, "a", |entry| entry.leases.is_empty()).await.pid.expect("it serves");
    until(&pool, "b", |entry| entry.leases.is_empty()).await;
    drop(pool.acquire(ask("c")).await.expect("a lease"));
    assert!(!is_alive(victim));
    assert_eq!(until(&pool, "a", |entry| entry.last_exit.is_some()).await.phase, PhaseView::Idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_leaves_nothing_and_its_state_directory_to_the_next() {
    let house = House::new();
    let pool = house.open(&[("a", &["deaf"])]);
    assert!(pool.snapshot().pool.budget.is_some(), "the budget is shown before anybody asked for anything");
    let lease = pool.acquire(ask("a")).await.expect("a lease");
    let pid = until(&pool, "a", |entry| entry.pid.is_some()).await.pid.expect("just seen");
    match house.try_open(&[]) {
        Err(OpenError::Lock(LockError::Held { .. })) => {}
        other => panic!("held, not {other:?}"),
    }
    assert_eq!(pool.shutdown().await, []);
    assert!(!is_alive(pid));
    assert!(matches!(pool.acquire(ask("a")).await, Err(Refusal::ShuttingDown)));
    assert!(pool.is_turning() && pool.is_settled());
    drop((pool, lease));
    let next = reopened(&house).await;
    assert_eq!(next.acquire(ask("a")).await.expect("a lease").spawn(), Spawn(2), "numbers go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_last_handle_everything_ends() {
    let house = House::new();
    let pool = house.open(&[("a", &["deaf"]), ("b", &["mute"])]);
    drop(pool.acquire(ask("a")).await.expect("a lease"));
    let other = pool.clone();
    let waits = tokio::spawn(async move { other.acquire(ask("b")).await });
    let mut pids = Vec::new();
    for model in ["a", "b"] {
        pids.extend(until(&pool, model, |entry| entry.pid.is_some()).await.pid);
    }
    assert_eq!(pool.pids().len(), 2);
    waits.abort();
    let _ = waits.await;
    drop(pool);
    for pid in pids {
        until_dead(pid).await;
    }
    reopened(&house).await;
}

/// The lock goes with the last task that may still write for an engine.
async fn reopened(house: &House) -> motorpool_supervisor::PoolHandle {
    let opened = async {
        loop {
            match house.try_open(&[("a", &[])]) {
                Ok(pool) => return pool,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), opened).await.expect("in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_gets_of_our_environment_only_what_its_manifest_allows() {
    let house = House::new();
    let pool = house.open(&[("a", &[])]);
    drop(pool.acquire(ask("a")).await.expect("a lease"));
    let pid = until(&pool, "a", |entry| entry.pid.is_some()).await.pid.expect("just seen");
    assert_eq!(motorpool_devices::has_environment(pid, "TINY_ALLOWED=1"), Some(true));
    assert_eq!(motorpool_devices::environment_value(pid, "SECRET"), None);
}
