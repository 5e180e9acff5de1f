//! Traces of reloads: a new catalog and new terms while engines run (N1 to N5).
use crate::world::{Child, Outcome, World, catalog, host, key, of_session, replica};
use motorpool_pool::{Answer, Input, OnDeadline, PoolConfig, QueueTerms, Refusal, Reload, Reloaded, RequestId};
use motorpool_vocab::{EngineKey, EventKind, FailureClass, ModelId, PhaseView, StopReason};
use std::{collections::BTreeMap, time::Duration};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

type Models<'a> = &'a [(&'a str, u64, &'a str)];

const A: Models<'static> = &[("a", 600, "")];
/// The same model, with another launch.
const A2: Models<'static> = &[("a", 600, "slots = 2")];

/// The catalog is this from now on; whom it drains.
fn reload(w: &mut World, models: Models<'_>) -> Vec<EngineKey> {
    reload_with(w, models, PoolConfig { host: host(4096), ..PoolConfig::default() })
}

fn reload_with(w: &mut World, models: Models<'_>, terms: PoolConfig) -> Vec<EngineKey> {
    let reload = Reload { catalog: catalog(models), terms: Box::new(terms) };
    let id = w.admin(|id| Input::Reload { id, reload });
    match w.outcome(id) {
        Some(Outcome::Answered(Answer::Reloaded(Reloaded { draining }))) => draining.clone(),
        other => panic!("{other:?}"),
    }
}

fn n_stopping(w: &World, wanted: StopReason) -> usize {
    w.n_events(|e| matches!(e, EventKind::Stopping { reason, .. } if *reason == wanted))
}

fn is_refused(w: &World, id: RequestId, refusal: &Refusal) -> bool {
    w.outcome(id) == Some(&Outcome::Refused(refusal.clone()))
}

fn unknown(model: &str) -> Refusal {
    Refusal::UnknownModel(ModelId::new(model).expect("an id"))
}

fn phase(w: &World, key: &EngineKey) -> Option<PhaseView> {
    w.pool.snapshot(w.now).entries.into_iter().find(|e| e.key == *key).map(|e| e.phase)
}

#[test]
fn the_same_catalog_again_touches_nothing() {
    let mut w = World::with(4096, catalog(A));
    let a = w.resident("a");
    let before = w.pool.snapshot(w.now);
    assert_eq!(reload(&mut w, A), []);
    let after = w.pool.snapshot(w.now);
    assert_eq!(after.entries, before.entries, "N3");
    assert!(w.enter("a").is_none(), "its one slot is taken");
    w.leave(a);
    assert!(w.enter("a").is_some());
}

#[test]
fn what_did_not_change_goes_on_beside_what_did_and_what_is_gone() {
    let three: Models<'_> = &[("a", 600, ""), ("b", 600, ""), ("c", 600, "")];
    let mut w = World::with(4096, catalog(three));
    let (a, b, c) = (w.resident("a"), w.resident("b"), w.resident("c"));
    let going = reload(&mut w, &[("a", 600, "tags = [\"x\"]"), ("b", 600, "slots = 2")]);
    assert_eq!(going, [key("b"), key("c")]);
    assert_eq!(n_stopping(&w, StopReason::Reload), 0, "N1: all three serve somebody");
    w.pass(10 * MINUTE);
    assert!(w.leases.contains_key(&b) && w.leases.contains_key(&c), "N1, however long it takes");
    w.leave(b);
    w.leave(c);
    assert_eq!(n_stopping(&w, StopReason::Reload), 2, "at the last byte");
    w.obey();
    assert_eq!((w.serving("a"), w.serving("b"), w.serving("c")), (vec![0], vec![], vec![]));
    w.leave(a);
    assert!(w.enter("a").is_some(), "N3: its gate was never closed");
    assert_eq!(phase(&w, &key("c")), None, "nothing is remembered of a model that is gone");
}

#[test]
fn a_changed_engine_takes_nobody_new_and_whoever_waits_is_served_by_the_next_one() {
    let mut w = World::with(4096, catalog(A));
    let first = w.resident("a");
    let old = w.child("a", Child::Serving);
    let queued = w.acquire("a");
    assert_eq!(reload(&mut w, A2), [key("a")]);
    assert!(w.enter("a").is_none(), "N2");
    let later = w.acquire("a");
    w.leave(first);
    w.width = 2;
    w.obey();
    for id in [queued, later] {
        assert!(matches!(w.outcome(id), Some(Outcome::Granted(spawn)) if *spawn > old), "N2: {:?}", w.outcome(id));
    }
    assert_eq!(w.child("a", Child::Serving).0, old.0 + 1);
}

#[test]
fn who_asks_for_a_changed_model_to_be_there_is_told_by_the_new_one() {
    let mut w = World::with(4096, catalog(A));
    let held = w.resident("a");
    reload(&mut w, A2);
    let there = w.ask(motorpool_pool::Ask::resident(ModelId::new("a").expect("an id")));
    assert_eq!(w.outcome(there), None, "N2: the old one is not it");
    w.leave(held);
    w.obey();
    assert_eq!(w.outcome(there), Some(&Outcome::Loaded(key("a"))));
}

#[test]
fn an_idle_changed_engine_goes_at_once_and_comes_back_when_it_is_asked_for() {
    let mut w = World::with(4096, catalog(A));
    let a = w.resident("a");
    w.leave(a);
    assert_eq!(reload(&mut w, A2), [key("a")]);
    w.obey();
    assert!(w.serving("a").is_empty());
    w.pass(10 * MINUTE);
    assert!(w.serving("a").is_empty(), "at its next use");
    let again = w.acquire("a");
    w.obey();
    assert!(w.is_granted(again));
}

#[test]
fn one_that_is_changed_back_before_it_ended_goes_on() {
    let mut w = World::with(4096, catalog(A));
    let held = w.resident("a");
    let spawn = w.child("a", Child::Serving);
    let queued = w.acquire("a");
    reload(&mut w, A2);
    assert_eq!(reload(&mut w, A), []);
    w.leave(held);
    assert_eq!(w.outcome(queued), Some(&Outcome::Granted(spawn)), "N4: it is what would be launched");
    w.leave(queued);
    assert!(w.enter("a").is_some());
}

#[test]
fn ten_quick_edits_end_with_one_child_that_is_launched_as_the_last_says() {
    for load in [Child::Loading, Child::Serving] {
        let mut w = World::with(4096, catalog(A));
        let first = w.acquire("a");
        w.check_all();
        if load == Child::Serving {
            w.ready("a");
        }
        for n in 2..12 {
            let more = format!("slots = {n}");
            reload(&mut w, &[("a", 600, &more)]);
        }
        let asked = w.acquire("a");
        if w.leases.contains_key(&first) {
            w.leave(first);
        }
        w.obey();
        assert_eq!(w.serving("a"), [0], "N4");
        assert!(w.is_granted(first) && (w.is_granted(asked) || load == Child::Loading));
        let n_starts = w.n_events(|e| matches!(e, EventKind::Reserved { .. }));
        assert_eq!(n_starts, 2, "the one before, and the last one");
    }
}

#[test]
fn one_that_loads_is_ended_for_its_change_and_its_waiters_get_the_next_one() {
    let mut w = World::with(4096, catalog(A));
    let asked = w.acquire("a");
    w.check_all();
    let old = w.child("a", Child::Loading);
    assert_eq!(reload(&mut w, A2), [key("a")]);
    assert_eq!(w.child("a", Child::Killed), old);
    // A change while it ends is one more that the next one is made of.
    assert_eq!(reload(&mut w, &[("a", 600, "slots = 3")]), []);
    w.obey();
    assert!(matches!(w.outcome(asked), Some(Outcome::Granted(spawn)) if *spawn > old));
}

#[test]
fn a_look_for_the_entry_before_is_nobodys() {
    let mut w = World::with(4096, catalog(A));
    let asked = w.acquire("a");
    let (old, _) = w.checks[0].clone();
    reload(&mut w, A2);
    assert_eq!(w.checks.len(), 2, "it is looked at again");
    w.fail_check();
    assert_eq!(w.outcome(asked), None, "N5: what was found of {old:?} is not what is launched");
    w.obey();
    assert!(w.is_granted(asked));
}

#[test]
fn a_build_that_waits_for_room_is_planned_anew_and_drains_no_one_for_what_it_was() {
    let two: Models<'_> = &[("a", 600, ""), ("b", 600, "")];
    let mut w = World::with(1024, catalog(two));
    let a = w.resident("a");
    w.pass(11 * SECOND);
    let b = w.acquire("b");
    w.check_all();
    assert!(w.pool.snapshot(w.now).entries.iter().any(|e| e.key == key("a") && e.n_drainers > 0));
    // Now there is room for both.
    let terms = PoolConfig { host: host(1024), ..PoolConfig::default() };
    assert_eq!(reload_with(&mut w, &[("a", 600, ""), ("b", 300, "")], terms), []);
    w.obey();
    assert!(w.is_granted(b) && w.leases.contains_key(&a), "N1");
}

#[test]
fn a_model_that_is_gone_refuses_who_waits_and_ends_after_those_it_serves() {
    for load in [Child::Loading, Child::Serving] {
        let mut w = World::with(4096, catalog(&[("a", 600, "pinned = true"), ("b", 600, "")]));
        let first = w.acquire("a");
        w.check_all();
        if load == Child::Serving {
            w.ready("a");
        }
        let waits = w.acquire("a");
        assert_eq!(reload(&mut w, &[("b", 600, "")]), [key("a")]);
        assert!(is_refused(&w, waits, &unknown("a")), "{:?}", w.outcome(waits));
        let late = w.acquire("a");
        assert!(is_refused(&w, late, &unknown("a")));
        if load == Child::Serving {
            w.pass(MINUTE);
            w.leave(first);
        } else {
            assert!(is_refused(&w, first, &unknown("a")), "nobody waits for its load any more");
        }
        w.obey();
        assert_eq!((w.serving("a"), phase(&w, &key("a"))), (vec![], None));
        assert_eq!(reload(&mut w, &[("a", 600, ""), ("b", 600, "")]), []);
        let again = w.acquire("a");
        w.obey();
        assert!(w.is_granted(again));
    }
}

#[test]
fn a_model_that_comes_back_before_its_engine_ended_has_one_engine() {
    let mut w = World::with(4096, catalog(A));
    let held = w.resident("a");
    reload(&mut w, &[]);
    assert_eq!(reload(&mut w, A), [], "it is what would be launched");
    assert!(w.enter("a").is_none(), "its one slot is taken");
    w.leave(held);
    assert!(w.enter("a").is_some());
    let mut w = World::with(4096, catalog(A));
    let held = w.resident("a");
    reload(&mut w, &[]);
    assert_eq!(reload(&mut w, A2), [key("a")]);
    let waits = w.acquire("a");
    w.obey();
    assert_eq!(w.outcome(waits), None, "P1");
    w.leave(held);
    w.obey();
    assert!(w.is_granted(waits));
}

#[test]
fn a_model_of_another_engine_has_a_new_key_and_those_who_wait_go_there() {
    let mut w = World::with(4096, catalog(A));
    let held = w.resident("a");
    let waits = w.acquire("a");
    let vllm: Models<'_> = &[("a", 600, "")];
    let reload = Reload {
        catalog: crate::world::catalog_of("vllm", vllm),
        terms: Box::new(PoolConfig { host: host(4096), ..PoolConfig::default() }),
    };
    w.admin(|id| Input::Reload { id, reload });
    w.obey();
    assert!(w.is_granted(waits), "beside the old one, which still serves: {:?}", w.outcome(waits));
    assert!(w.leases.contains_key(&held), "N1");
    w.leave(held);
    w.obey();
    let keys: Vec<String> = w.pool.snapshot(w.now).entries.iter().map(|e| e.key.to_string()).collect();
    assert_eq!(keys, ["vllm:a:0"]);
}

#[test]
fn what_failed_for_good_is_tried_again_when_its_entry_is_another() {
    let mut w = World::with(4096, catalog(A));
    let fails = w.acquire("a");
    w.check_all();
    w.load_dies_of("a", FailureClass::BadArguments);
    assert!(matches!(w.outcome(fails), Some(Outcome::Refused(Refusal::StartFailed { .. }))));
    reload(&mut w, A2);
    assert!(w.pool.snapshot(w.now).entries.iter().all(|e| e.trouble.is_none()));
    let again = w.acquire("a");
    w.obey();
    assert!(w.is_granted(again));
}

#[test]
fn how_long_an_engine_is_kept_is_live_and_so_is_what_keeps_it() {
    let mut w = World::with(4096, catalog(A));
    let a = w.resident("a");
    w.leave(a);
    w.pass(MINUTE);
    assert_eq!(reload(&mut w, &[("a", 600, "idle_ttl = \"90s\"")]), []);
    w.pass(29 * SECOND);
    assert_eq!(n_stopping(&w, StopReason::Idle), 0);
    assert_eq!(reload(&mut w, &[("a", 600, "idle_ttl = \"90s\"\npinned = true")]), []);
    w.pass(MINUTE);
    assert_eq!(n_stopping(&w, StopReason::Idle), 0, "pinned");
    assert_eq!(reload(&mut w, &[("a", 600, "idle_ttl = \"90s\"")]), []);
    assert_eq!(n_stopping(&w, StopReason::Idle), 1, "it is due");
}

#[test]
fn a_model_that_is_at_home_from_now_on_comes_by_itself() {
    let mut w = World::with(4096, catalog(A));
    assert_eq!(reload(&mut w, &[("a", 600, "home = true")]), []);
    w.obey();
    assert_eq!(w.serving("a"), [0]);
    assert_eq!(reload(&mut w, &[("a", 600, "home = true\nslots = 2")]), [key("a")]);
    w.obey();
    assert_eq!(w.serving("a"), [0], "anew");
}

#[test]
fn more_replicas_may_come_at_once_and_those_that_are_too_many_go_after_their_last_lease() {
    let mut w = World::with(4096, catalog(A));
    let (first, second) = (w.resident("a"), w.acquire("a"));
    w.pass(3 * SECOND);
    w.obey();
    assert_eq!((w.serving("a"), w.is_granted(second)), (vec![0], false));
    assert_eq!(reload(&mut w, &[("a", 600, "replicas = { max = 3 }")]), []);
    w.obey();
    assert_eq!((w.serving("a"), w.is_granted(second)), (vec![0, 1], true), "it waited long enough");
    assert_eq!(reload(&mut w, A), [replica("a", 1)]);
    w.pass(MINUTE);
    assert!(w.leases.contains_key(&second), "N1");
    let third = w.acquire("a");
    w.leave(second);
    w.obey();
    assert_eq!((w.serving("a"), n_stopping(&w, StopReason::ScaleDown)), (vec![0], 1));
    assert_eq!(w.outcome(third), None, "it waits for the one that stays");
    w.leave(first);
    assert!(w.is_granted(third));
}

#[test]
fn every_replica_of_a_changed_model_goes_and_nobody_is_sent_to_one_that_goes() {
    let wide: Models<'_> = &[("a", 600, "replicas = { min = 2, max = 2 }")];
    let mut w = World::with(4096, catalog(wide));
    let first = w.acquire("a");
    w.obey();
    w.pass(SECOND);
    w.obey();
    assert_eq!(w.serving("a"), [0, 1]);
    let second = w.acquire("a");
    assert!(w.is_granted(second));
    let changed: Models<'_> = &[("a", 600, "replicas = { min = 2, max = 2 }\nslots = 2")];
    assert_eq!(reload(&mut w, changed), [replica("a", 0), replica("a", 1)]);
    let old: BTreeMap<_, _> = w.children.clone();
    let waits = w.acquire("a");
    w.leave(second);
    w.obey();
    // One of them is free: whoever waits needs not wait for the other.
    assert!(w.is_granted(waits) && w.leases.contains_key(&first));
    let Some(Outcome::Granted(spawn)) = w.outcome(waits) else { panic!("granted") };
    assert!(!old.contains_key(spawn), "N2");
}

#[test]
fn a_session_of_a_changed_engine_comes_back_to_the_new_one() {
    let mut w = World::with(4096, catalog(A));
    let id = w.ask(of_session("a", "s"));
    w.obey();
    w.leave(id);
    reload(&mut w, A2);
    let again = w.ask(of_session("a", "s"));
    w.obey();
    assert!(w.is_granted(again));
}

#[test]
fn new_terms_count_at_once() {
    let mut w = World::with(4096, catalog(A));
    w.resident("a");
    let one = PoolConfig {
        host: host(1),
        queue: QueueTerms { per_model: 1, ..QueueTerms::default() },
        queue_wait: 5 * SECOND,
        ..PoolConfig::default()
    };
    assert_eq!(reload_with(&mut w, A, one), []);
    assert_eq!(w.pool.snapshot(w.now).pool.budget, World::new(4096).pool.snapshot(w.now).pool.budget, "the machine is");
    let (waits, full) = (w.acquire("a"), w.acquire("a"));
    assert!(matches!(w.outcome(full), Some(Outcome::Refused(Refusal::QueueFull { limit: 1, .. }))));
    w.pass(5 * SECOND);
    assert!(matches!(w.outcome(waits), Some(Outcome::Refused(Refusal::QueueTimeout { .. }))));
}

#[test]
fn a_caller_that_waits_for_a_changed_engine_has_its_own_deadline() {
    let mut w = World::with(4096, catalog(A));
    let held = w.resident("a");
    reload(&mut w, A2);
    let waits = w.acquire("a");
    w.pass(30 * SECOND);
    assert!(is_refused(&w, waits, &Refusal::EngineBusy { key: key("a"), within: 30 * SECOND }));
    assert!(w.leases.contains_key(&held), "N1");
}

#[test]
fn nothing_is_taken_over_while_the_pool_closes() {
    let mut w = World::with(4096, catalog(A));
    let held = w.resident("a");
    let retire = w.admin(|id| Input::Retire { id });
    assert_eq!(reload(&mut w, &[]), []);
    w.leave(held);
    w.obey();
    assert_eq!(w.outcome(retire), Some(&Outcome::Answered(Answer::Ended(vec![]))));
}

#[test]
fn who_waits_for_a_changed_engine_longer_than_for_any_drain_is_told_that_it_is_busy() {
    let mut w = World::with(4096, catalog(A));
    w.resident("a");
    let waits = w.acquire("a");
    reload(&mut w, A2);
    w.pass(29 * SECOND);
    assert_eq!(w.outcome(waits), None);
    w.pass(SECOND);
    assert!(matches!(w.outcome(waits), Some(Outcome::Refused(Refusal::EngineBusy { .. }))), "N1");
}

#[test]
fn an_engine_that_goes_is_seen_to_go_until_its_model_is_changed_back() {
    let mut w = World::with(4096, catalog(A));
    w.resident("a");
    let goes = |w: &World| w.pool.snapshot(w.now).entries.iter().any(|entry| entry.goes_for_good);
    assert!(!goes(&w));
    reload(&mut w, A2);
    assert!(goes(&w));
    reload(&mut w, A);
    assert!(!goes(&w));
}

#[test]
fn a_model_that_is_gone_does_not_come_back_for_a_load_that_cut_it() {
    let mut w = World::with(1024, catalog(&[("a", 600, ""), ("b", 600, "")]));
    w.resident("a");
    w.pass(11 * SECOND);
    let cuts = PoolConfig { host: host(1024), on_deadline: OnDeadline::Cut, ..PoolConfig::default() };
    assert_eq!(reload_with(&mut w, &[("b", 600, "")], cuts), [key("a")]);
    let b = w.acquire("b");
    w.check_all();
    w.pass(31 * SECOND);
    assert_eq!(n_stopping(&w, StopReason::Evicted), 1, "it was used a moment ago, and did not end in time");
    w.cancel(b);
    w.ended("a", Child::Killed);
    assert!(w.checks.is_empty(), "nobody looks at the files of a model that is gone");
    assert_eq!(phase(&w, &key("a")), None);
}
