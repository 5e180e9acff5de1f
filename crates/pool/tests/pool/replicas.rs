//! Traces of replicas: who goes where, what comes and goes by itself, what operators want.
use crate::world::{Child, Outcome, World, catalog, host, key, of_session, replica};
use motorpool_pool::{Answer, Ask, BreakerTerms, Force, Input, PoolConfig, Reconciled, RequestId};
use motorpool_vocab::{EventKind, Holder, ModelId, PhaseView, StopReason};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Model a in up to three replicas of 600 MiB, and b, under a budget of `mib`.
fn up_to_three(mib: u64) -> World {
    World::with(mib, catalog(&[("a", 600, "idle_ttl = \"0s\"\nreplicas = { max = 3 }"), ("b", 600, "")]))
}

fn reconcile(w: &mut World, targets: &[(&str, u32)]) -> Reconciled {
    let targets = targets.iter().map(|(model, n)| (ModelId::new(model).expect("an id"), *n)).collect();
    let id = w.admin(|id| Input::Reconcile { id, targets });
    match w.outcome(id) {
        Some(Outcome::Answered(Answer::Reconciled(done))) => done.clone(),
        other => panic!("answered at once: {other:?}"),
    }
}

fn n_deferred(w: &World) -> usize {
    w.n_events(|e| matches!(e, EventKind::Deferred { .. }))
}

#[test]
fn requests_that_wait_two_seconds_for_a_slot_have_one_more_replica_started() {
    let mut w = up_to_three(4096);
    let first = w.resident("a");
    let second = w.acquire("a");
    w.pass(SECOND);
    assert_eq!(w.checks.len(), 0, "not yet");
    w.pass(SECOND);
    w.obey();
    assert_eq!((w.serving("a"), w.is_granted(second)), (vec![0, 1], true));
    assert_eq!((w.replica_of(first), w.replica_of(second)), (0, 1));
    let third = w.enter("a").or_else(|| Some(w.acquire("a"))).expect("a request");
    w.pass(2 * SECOND);
    w.obey();
    assert_eq!((w.serving("a"), w.replica_of(third)), (vec![0, 1, 2], 2));
    w.acquire("a");
    w.pass(60 * SECOND);
    assert!(w.checks.is_empty(), "three are the most");
}

#[test]
fn a_replica_that_would_stop_or_drain_others_is_not_started() {
    let mut w = up_to_three(1300);
    let b = w.resident("b");
    w.leave(b);
    w.resident("a");
    w.acquire("a");
    w.pass(3 * SECOND);
    w.obey();
    assert_eq!((w.serving("a"), w.serving("b")), (vec![0], vec![0]), "b is idle and stays");
    assert_eq!((n_deferred(&w), w.denials.len()), (1, 0));
    w.pass(30 * SECOND);
    w.obey();
    assert_eq!(n_deferred(&w), 1, "that it is put off again is no news");
    w.admin(|id| Input::UnloadIdle { id, key: key("b") });
    w.obey();
    w.pass(SECOND);
    w.obey();
    assert_eq!(w.serving("a"), [0, 1], "bytes came back");
}

#[test]
fn eight_sessions_and_a_budget_for_three_replicas() {
    let mut w = World::with(1900, catalog(&[("a", 600, "replicas = { max = 8 }")]));
    let ids: Vec<_> = (0..8).map(|n| w.ask(of_session("a", &format!("s{n}")))).collect();
    for _ in 0..20 {
        w.obey();
        w.pass(SECOND);
    }
    assert_eq!(w.serving("a"), [0, 1, 2]);
    assert_eq!(w.leases.len(), 3);
    assert!(w.denials.is_empty() && n_deferred(&w) == 1);
    for _ in 0..5 {
        let id = *w.leases.keys().next().expect("three at a time");
        w.leave(id);
    }
    assert!(ids.iter().all(|id| w.is_granted(*id)), "each was served");
    let of_each: Vec<_> = (0..8).map(|n| format!("s{n}")).collect();
    while let Some(id) = w.leases.keys().next().copied() {
        w.leave(id);
    }
    let homes: Vec<_> = of_each
        .iter()
        .map(|session| {
            let id = w.ask(of_session("a", session));
            let at = w.replica_of(id);
            w.leave(id);
            at
        })
        .collect();
    for _ in 0..2 {
        let again: Vec<_> = of_each
            .iter()
            .map(|session| {
                let id = w.ask(of_session("a", session));
                let at = w.replica_of(id);
                w.leave(id);
                at
            })
            .collect();
        assert_eq!(again, homes, "each session keeps its replica");
    }
}

#[test]
fn a_session_is_served_again_at_its_index_when_its_replica_was_stopped_and_there_is_room() {
    let mut w = up_to_three(1300);
    reconcile(&mut w, &[("a", 2)]);
    w.obey();
    let (s, t) = (w.ask(of_session("a", "s")), w.ask(of_session("a", "t")));
    assert_eq!((w.replica_of(s), w.replica_of(t)), (0, 1));
    w.leave(s);
    w.leave(t);
    w.admin(|id| Input::Evict { id, key: replica("a", 1), force: Force::No });
    w.obey();
    assert_eq!(w.serving("a"), [0]);
    let t = w.ask(of_session("a", "t"));
    assert_eq!(w.outcome(t), None, "it is not served elsewhere");
    w.obey();
    assert_eq!(w.replica_of(t), 1);
}

#[test]
fn a_session_whose_replica_would_cost_others_their_place_goes_to_one_that_serves() {
    let mut w = up_to_three(1300);
    reconcile(&mut w, &[("a", 2)]);
    w.obey();
    let (s, t) = (w.ask(of_session("a", "s")), w.ask(of_session("a", "t")));
    w.leave(s);
    w.leave(t);
    w.admin(|id| Input::Evict { id, key: replica("a", 1), force: Force::No });
    w.obey();
    let b = w.resident("b");
    w.leave(b);
    let t = w.ask(of_session("a", "t"));
    w.obey();
    assert_eq!((w.replica_of(t), w.serving("b")), (0, vec![0]), "b keeps its place");
}

#[test]
fn the_highest_replica_stops_after_two_minutes_without_a_request_and_the_first_stays() {
    let mut w = up_to_three(4096);
    let ids: Vec<_> = (0..3).map(|_| w.acquire("a")).collect();
    for _ in 0..10 {
        w.obey();
        w.pass(SECOND);
    }
    assert_eq!(w.serving("a"), [0, 1, 2]);
    for id in ids {
        w.leave(id);
    }
    w.pass(119 * SECOND);
    w.obey();
    assert_eq!(w.serving("a"), [0, 1, 2]);
    w.pass(SECOND);
    w.obey();
    assert_eq!(w.serving("a"), [0]);
    let scaled = |e: &EventKind| matches!(e, EventKind::Stopping { reason: StopReason::ScaleDown, .. });
    assert_eq!(w.n_events(scaled), 2);
    w.pass(600 * SECOND);
    assert_eq!(w.serving("a"), [0]);
}

#[test]
fn the_sessions_of_a_replica_that_is_not_needed_any_more_go_to_those_that_are() {
    let mut w = up_to_three(4096);
    let ids: Vec<_> = (0..2).map(|n| w.ask(of_session("a", &format!("s{n}")))).collect();
    for _ in 0..5 {
        w.obey();
        w.pass(SECOND);
    }
    assert_eq!(w.replica_of(ids[1]), 1);
    for id in ids {
        w.leave(id);
    }
    w.pass(121 * SECOND);
    w.obey();
    let again = w.ask(of_session("a", "s1"));
    assert_eq!((w.replica_of(again), w.serving("a")), (0, vec![0]));
}

#[test]
fn as_many_as_an_operator_wants_are_started_and_the_rest_stops_if_it_is_idle() {
    let mut w = up_to_three(4096);
    let done = reconcile(&mut w, &[("a", 3), ("nobody", 1), ("b", 65)]);
    assert_eq!(done.starting, [replica("a", 0), replica("a", 1), replica("a", 2)]);
    assert_eq!(done.refused.iter().map(ModelId::as_str).collect::<Vec<_>>(), ["b", "nobody"]);
    w.obey();
    assert_eq!(w.serving("a"), [0, 1, 2]);
    w.pass(600 * SECOND);
    assert_eq!(w.serving("a"), [0, 1, 2], "they are wanted, used or not");
    let held: Vec<_> = (0..2).map(|_| w.acquire("a")).collect();
    assert_eq!(w.replica_of(held[1]), 1);
    let done = reconcile(&mut w, &[("a", 1)]);
    assert_eq!((done.busy, done.stopping), (vec![replica("a", 1)], vec![replica("a", 2)]));
    w.obey();
    assert_eq!(w.serving("a"), [0, 1]);
    assert!(w.is_granted(held[1]), "P2");
    for id in held {
        w.leave(id);
    }
    w.pass(121 * SECOND);
    w.obey();
    assert_eq!(w.serving("a"), [0]);
}

#[test]
fn an_operators_wish_stops_what_is_idle_but_no_other_wish_and_is_put_off_otherwise() {
    let mut w = up_to_three(1300);
    let b = w.resident("b");
    w.leave(b);
    reconcile(&mut w, &[("a", 2)]);
    w.obey();
    assert_eq!((w.serving("a"), w.serving("b")), (vec![0, 1], vec![]));
    reconcile(&mut w, &[("b", 1)]);
    w.obey();
    assert_eq!((w.serving("a"), w.serving("b")), (vec![0, 1], vec![]));
    assert_eq!((n_deferred(&w), w.denials.len()), (1, 0), "put off, not denied");
    assert_eq!(w.phase("b"), Some(PhaseView::Idle));
}

#[test]
fn the_least_there_is_to_be_is_kept_once_a_model_was_used() {
    let mut w = World::with(4096, catalog(&[("a", 600, "idle_ttl = \"0s\"\nreplicas = { min = 2, max = 2 }")]));
    w.pass(60 * SECOND);
    assert!(w.checks.is_empty(), "nobody used it");
    let id = w.resident("a");
    w.obey();
    assert_eq!(w.serving("a"), [0, 1]);
    w.leave(id);
    w.pass(600 * SECOND);
    assert_eq!(w.serving("a"), [0, 1]);
}

#[test]
fn what_is_at_home_is_there_from_the_start_and_comes_back_when_there_is_room() {
    let mut w = World::with(1024, catalog(&[("h", 600, "home = true"), ("b", 600, "")]));
    w.feed(Input::Tick);
    w.obey();
    assert_eq!(w.serving("h"), [0]);
    let b = w.resident("b");
    w.obey();
    assert_eq!((w.serving("h"), w.serving("b")), (vec![], vec![0]), "a request goes first");
    w.pass(120 * SECOND);
    w.obey();
    assert_eq!(w.serving("b"), [0], "it takes nobody's place");
    w.leave(b);
    w.admin(|id| Input::UnloadIdle { id, key: key("b") });
    w.obey();
    assert_eq!(w.serving("h"), [0]);
    w.admin(|id| Input::UnloadIdle { id, key: key("h") });
    w.obey();
    w.pass(120 * SECOND);
    assert_eq!(w.serving("h"), [] as [u32; 0], "who unloads it means it");
}

#[test]
fn a_request_goes_where_there_is_a_slot_and_whoever_waits_elsewhere_gets_the_first_that_is_free() {
    let mut w = up_to_three(4096);
    reconcile(&mut w, &[("a", 2)]);
    w.obey();
    let held: Vec<_> = (0..2).map(|_| w.acquire("a")).collect();
    let waiting = w.acquire("a");
    assert_eq!(w.outcome(waiting), None);
    assert!(w.enter("a").is_none(), "nobody passes it, at either gate (G3)");
    w.leave(held[1]);
    assert_eq!(w.replica_of(waiting), 1);
}

#[test]
fn whoever_waits_for_a_replica_that_is_drained_goes_to_another_one() {
    let mut w = up_to_three(1900);
    reconcile(&mut w, &[("a", 2)]);
    w.obey();
    w.width = 2;
    let held: Vec<_> = (0..2).map(|n| w.ask(of_session("a", &format!("s{n}")))).collect();
    let waits = w.ask(of_session("a", "s1"));
    assert_eq!(w.outcome(waits), None, "its session is at 1, where the slot is taken");
    w.leave(held[0]);
    assert_eq!(w.outcome(waits), None, "and keeps it");
    w.admin(|id| Input::Evict { id, key: replica("a", 1), force: Force::No });
    assert_eq!(w.replica_of(waits), 0);
}

#[test]
fn a_certain_replica_can_be_asked_for_and_there_are_not_more_than_so_many() {
    let mut w = up_to_three(4096);
    let ask = |n| Ask { replica: Some(n), ..Ask::resident(ModelId::new("a").expect("an id")) };
    let id = w.ask(ask(2));
    w.obey();
    assert_eq!(w.outcome(id), Some(&Outcome::Loaded(replica("a", 2))));
    let id = w.ask(ask(64));
    assert!(matches!(w.outcome(id), Some(Outcome::Refused(_))));
}

#[test]
fn a_session_finds_its_slot_again_unless_somebody_is_in_one_that_nobody_knows() {
    let mut w = World::new(1024);
    w.width = 3;
    let slot = |w: &World, id: RequestId| w.lease(id).slot;
    let s = w.ask(of_session("a", "s"));
    w.obey();
    let t = w.ask(of_session("a", "t"));
    assert_eq!((slot(&w, s), slot(&w, t)), (Some(0), Some(1)));
    w.leave(s);
    w.leave(t);
    let t = w.ask(of_session("a", "t"));
    assert_eq!(slot(&w, t), Some(1));
    let warm = w.enter("a").expect("a slot is free");
    let s = w.ask(of_session("a", "s"));
    assert_eq!(slot(&w, s), None, "the engine may have put the other one there");
    for id in [warm, s, t] {
        w.leave(id);
    }
    let s = w.ask(of_session("a", "s"));
    assert_eq!(w.replica_of(s), 0);
}

#[test]
fn a_load_that_always_fails_stops_the_others_once_per_backoff_and_they_come_back() {
    // What its breaker adds to that is told elsewhere.
    let breaker = BreakerTerms { failures: 0, ..BreakerTerms::default() };
    let config = PoolConfig { host: host(1024), breaker, ..PoolConfig::default() };
    let mut w = World::configured(config, catalog(&[("a", 600, ""), ("b", 600, "")]));
    let a = w.resident("a");
    w.leave(a);
    let (mut n_evicted, mut n_asked) = (0, 0);
    for _ in 0..100 {
        let b = w.acquire("b");
        n_asked += 1;
        for _ in 0..4 {
            w.check_all();
            let asked: Vec<_> = w.children.iter().filter(|(_, (_, s))| *s != Child::Serving).map(|(s, _)| *s).collect();
            for spawn in asked {
                let (k, state) = w.children[&spawn].clone();
                match state {
                    Child::Loading if k == key("b") => w.gone(spawn),
                    Child::Loading => w.ready_spawn(spawn),
                    _ => {
                        n_evicted += 1;
                        w.gone(spawn);
                    }
                }
            }
        }
        // A is used now and then, so that it is worth bringing back.
        if let Some(a) = w.enter("a") {
            w.leave(a);
        }
        w.pass(SECOND);
        if w.outcome(b).is_none() {
            w.cancel(b);
        }
    }
    assert!(n_asked == 100 && (5..=10).contains(&n_evicted), "{n_evicted} times in 100 s: 1, 2, 4 … 60 s apart");
    w.check_all();
    w.obey();
    assert_eq!(w.serving("a"), [0], "it was stopped for nothing and came back");
}

#[test]
fn what_an_operator_unloads_does_not_come_back_after_a_failed_load() {
    for is_owed_already in [false, true] {
        let mut w = World::new(1024);
        let a = w.resident("a");
        w.leave(a);
        w.acquire("b");
        w.check_all();
        w.ended("a", Child::Asked);
        if is_owed_already {
            w.ended("b", Child::Loading);
            assert!(!w.checks.is_empty(), "it is about to come back");
        }
        w.admin(|id| Input::Evict { id, key: key("a"), force: Force::Yes });
        if !is_owed_already {
            w.ended("b", Child::Loading);
        }
        for _ in 0..3 {
            w.check_all();
            w.pass(20 * SECOND);
        }
        assert!(w.checks.is_empty() && w.children.is_empty(), "{is_owed_already}");
    }
}

#[test]
fn whoever_was_not_used_lately_does_not_come_back_after_a_failed_load() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    w.leave(a);
    w.pass(61 * SECOND);
    w.acquire("b");
    w.check_all();
    w.ended("a", Child::Asked);
    w.ended("b", Child::Loading);
    assert!(w.checks.is_empty() && w.children.is_empty());
}

#[test]
fn a_restored_engine_waits_until_nobody_else_waits_for_room() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    w.leave(a);
    w.acquire("b");
    w.check_all();
    let c = w.ask(Ask::lease(ModelId::new("c").expect("an id"), Holder::default()));
    w.ended("a", Child::Asked);
    w.ended("b", Child::Loading);
    w.obey();
    assert!(w.is_granted(c));
    assert_eq!(w.serving("a"), [] as [u32; 0], "c goes first, and then there is no room");
}

#[test]
fn a_session_that_waits_long_for_its_own_replica_is_served_by_another_by_time_alone() {
    let mut w = up_to_three(1300);
    reconcile(&mut w, &[("a", 2)]);
    w.obey();
    let held: Vec<_> = (0..2).map(|n| w.ask(of_session("a", &format!("s{n}")))).collect();
    let waits = w.ask(of_session("a", "s1"));
    w.leave(held[0]);
    w.pass(SECOND);
    assert_eq!(w.outcome(waits), None, "its session is at 1");
    w.pass(SECOND);
    assert_eq!(w.replica_of(waits), 0);
}
