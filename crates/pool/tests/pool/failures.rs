//! Starts that fail: one trace per edge of the diagram in `failure.rs`.

use crate::{
    cards::world as on_cards,
    machine::card,
    world::{Child, Outcome, World, catalog, facts, host, key},
};
use motorpool_pool::{Answer, BreakerTerms, Build, Facts, Input, LoadSlots, PoolConfig, Refusal, RequestId};
use motorpool_vocab::{Bytes, DeviceId, EventKind, FailureClass, ModelId, Now, PhaseView, TroubleKind, TroubleView};
use std::{num::NonZeroU32, time::Duration};

const SECOND: Duration = Duration::from_secs(1);
const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// What the look at program and files found.
fn checked(w: &mut World, facts: Facts) {
    let (build, _) = w.checks.remove(0);
    w.feed(Input::Checked { build, result: Ok(facts) });
}

fn failed_with(w: &World, id: RequestId) -> FailureClass {
    match w.outcome(id) {
        Some(Outcome::Refused(Refusal::StartFailed { fault, .. })) => fault.class,
        other => panic!("a failed start, not {other:?}"),
    }
}

fn trouble(w: &World, model: &str) -> Option<TroubleView> {
    let entries = w.pool.snapshot(w.now).entries;
    entries.into_iter().find(|entry| entry.key == key(model)).and_then(|entry| entry.trouble)
}

fn reset(w: &mut World, model: Option<&str>) -> Vec<String> {
    let model = model.map(|model| ModelId::new(model).expect("an id"));
    let id = w.admin(|id| Input::Reset { id, model });
    match w.outcome(id) {
        Some(Outcome::Answered(Answer::Reset(keys))) => keys.iter().map(ToString::to_string).collect(),
        other => panic!("an answer, not {other:?}"),
    }
}

/// A start of `a` that fails so, from the request to its refusal.
fn fails(w: &mut World, class: FailureClass) -> RequestId {
    let id = w.acquire("a");
    w.check_all();
    w.load_dies_of("a", class);
    id
}

const PERMANENT: [FailureClass; 5] = [
    FailureClass::BadArguments,
    FailureClass::ModelMissing,
    FailureClass::ModelCorrupt,
    FailureClass::ModelUnsupported,
    FailureClass::EngineMissing,
];

#[test]
fn what_must_fail_again_is_not_started_and_stops_nobody_until_an_input_changes() {
    for class in PERMANENT {
        let mut w = World::new(1024);
        let first = fails(&mut w, class);
        assert_eq!(failed_with(&w, first), class);
        let b = w.resident("b");
        w.leave(b);
        w.pass(120 * SECOND);
        for _ in 0..5 {
            let again = w.acquire("a");
            w.check_all();
            assert_eq!(failed_with(&w, again), class, "F1");
        }
        assert_eq!(w.phase("b"), Some(PhaseView::Ready), "nobody goes for it");
        assert_eq!(trouble(&w, "a").map(|t| (t.kind, t.until)), Some((TroubleKind::Failed, None)));
        let changed = w.acquire("a");
        checked(&mut w, Facts { build: Build { size: 7, mtime_nanos: 7 }, ..facts() });
        w.ended("b", Child::Asked);
        w.ready("a");
        assert!(w.is_granted(changed), "another build of the engine is tried");
        assert_eq!(trouble(&w, "a"), None);
    }
}

#[test]
fn a_reset_has_what_is_held_tried_as_it_is() {
    let mut w = World::new(1024);
    fails(&mut w, FailureClass::ModelCorrupt);
    assert_eq!(reset(&mut w, Some("b")), [""; 0], "another model's");
    assert_eq!(reset(&mut w, Some("a")), ["llama-server:a:0"]);
    let again = w.acquire("a");
    w.check_all();
    w.ready("a");
    assert!(w.is_granted(again));
}

#[test]
fn the_third_failed_start_opens_the_breaker_and_after_a_minute_one_start_is_tried() {
    let mut w = World::new(1024);
    for _ in 0..3 {
        let id = fails(&mut w, FailureClass::Assertion);
        assert_eq!(failed_with(&w, id), FailureClass::Assertion);
    }
    let refused = w.acquire("a");
    assert!(w.checks.is_empty() && w.children.is_empty(), "nothing is looked at, nothing is started");
    let Some(Outcome::Refused(Refusal::BreakerOpen { retry_in, fault, .. })) = w.outcome(refused) else {
        panic!("{:?}", w.outcome(refused))
    };
    assert_eq!((*retry_in, fault.class), (60 * SECOND, FailureClass::Assertion));
    assert_eq!(trouble(&w, "a").map(|t| t.kind), Some(TroubleKind::BreakerOpen));
    w.pass(60 * SECOND);
    fails(&mut w, FailureClass::Assertion);
    let refused = w.acquire("a");
    assert!(matches!(w.outcome(refused), Some(Outcome::Refused(Refusal::BreakerOpen { .. }))), "half-open, once");
    w.pass(60 * SECOND);
    let served = w.acquire("a");
    w.check_all();
    w.ready("a");
    assert!(w.is_granted(served));
    assert_eq!(w.n_events(|event| matches!(event, EventKind::BreakerOpened { .. })), 2);
}

#[test]
fn an_address_that_was_taken_is_followed_by_three_others_at_once_and_only_then_counts_as_a_failed_start() {
    let breaker = BreakerTerms { failures: 2, ..BreakerTerms::default() };
    let config = PoolConfig { host: host(1024), breaker, ..PoolConfig::default() };
    let mut w = World::configured(config, catalog(&[("a", 600, ""), ("b", 600, "")]));
    for round in 0..2 {
        let id = fails(&mut w, FailureClass::BindFailed);
        for n in 0..3 {
            assert_eq!(w.outcome(id), None, "F5: {round}, {n}");
            assert_eq!(trouble(&w, "a"), None, "no backoff");
            w.check_all();
            w.load_dies_of("a", FailureClass::BindFailed);
        }
        assert_eq!(failed_with(&w, id), FailureClass::BindFailed);
        let opened = w.n_events(|event| matches!(event, EventKind::BreakerOpened { .. }));
        assert_eq!(opened, round, "the fourth of each row is one failed start");
        w.pass(2 * SECOND);
    }
    w.pass(60 * SECOND);
    let id = fails(&mut w, FailureClass::BindFailed);
    w.check_all();
    w.ready("a");
    assert!(w.is_granted(id), "the next address is free");
}

#[test]
fn an_engine_that_ends_before_it_answered_anybody_counts_as_a_failed_start_and_one_that_did_does_not() {
    let mut w = World::new(1024);
    for n in 0..4 {
        let id = w.resident("a");
        let grant = w.lease(id).clone();
        grant.gate.vital().answered();
        w.leave(id);
        w.dies_of(grant.spawn, FailureClass::Assertion);
        assert_eq!(w.n_events(|event| matches!(event, EventKind::BreakerOpened { .. })), 0, "{n}");
    }
    for _ in 0..3 {
        let id = w.resident("a");
        let grant = w.lease(id).clone();
        w.leave(id);
        w.dies_of(grant.spawn, FailureClass::Assertion);
    }
    assert_eq!(w.n_events(|event| matches!(event, EventKind::BreakerOpened { .. })), 1);
}

#[test]
fn a_build_that_cannot_run_here_is_avoided_by_everybody_and_who_waited_gets_the_next() {
    let mut w = World::new(2048);
    let bad = Build { size: 1, mtime_nanos: 1 };
    let of = |build| Facts { build, ..facts() };
    let (a, b) = (w.acquire("a"), w.acquire("b"));
    checked(&mut w, of(bad));
    checked(&mut w, of(bad));
    w.load_dies_of("a", FailureClass::IllegalInstruction);
    assert_eq!(w.n_events(|event| matches!(event, EventKind::Quarantined { .. })), 1);
    assert_eq!(w.checks.len(), 2, "the one that died, and the one that waited for its turn to load");
    let next = Build { size: 2, mtime_nanos: 2 };
    checked(&mut w, of(next));
    checked(&mut w, of(next));
    w.obey();
    assert!(w.is_granted(a) && w.is_granted(b), "F3");
}

/// A model that may be shorter than it is wanted.
fn shorter() -> World {
    World::with(1024, catalog(&[("a", 600, "context = 8192\ncontext_min = 2048\nslots = 1"), ("b", 600, "")]))
}

#[test]
fn out_of_memory_is_followed_by_one_smaller_start_and_then_told() {
    for class in [FailureClass::OutOfHostMemory, FailureClass::OutOfDeviceMemory] {
        let mut w = shorter();
        let id = fails(&mut w, class);
        assert_eq!(w.outcome(id), None, "F2");
        w.check_all();
        w.load_dies_of("a", class);
        assert_eq!(failed_with(&w, id), class);
        let plans = w.events.iter().filter_map(|event| match &event.kind {
            EventKind::Exited { record, .. } => Some(record.plan.as_ref()?.context_per_slot),
            _ => None,
        });
        assert_eq!(plans.collect::<Vec<_>>(), [8192, 4096]);
    }
}

#[test]
fn what_is_explicit_is_not_made_smaller() {
    let mut w = World::with(1024, catalog(&[("a", 600, "context = 8192\nslots = 1")]));
    let id = fails(&mut w, FailureClass::OutOfHostMemory);
    assert_eq!(failed_with(&w, id), FailureClass::OutOfHostMemory);
}

#[test]
fn the_smaller_start_waits_until_the_dead_ones_bytes_are_back() {
    let mut w = World::on(
        crate::cards::host(motorpool_pool::SizedBy::Machine, &[24]),
        catalog(&[("a", 7168, "gpu_layers = 99\ncontext = 8192\ncontext_min = 2048\nslots = 1")]),
    );
    w.read_cards();
    w.machine.lag = Duration::from_secs(2);
    let id = w.acquire("a");
    w.check_all();
    let dead = w.load_dies_of("a", FailureClass::OutOfDeviceMemory);
    w.check_all();
    assert!(w.children.is_empty(), "F2: there is room beside it, and it waits: {:?}", w.children);
    for _ in 0..30 {
        w.pass(Duration::from_millis(100));
    }
    assert!(w.children.keys().all(|spawn| *spawn > dead) && w.children.len() == 1, "{:?}", w.children);
    w.ready("a");
    assert!(w.is_granted(id));
}

#[test]
fn a_device_that_an_engine_was_lost_on_takes_nothing_and_others_go_on() {
    let mut w = on_cards(&[8, 8]);
    let id = w.acquire("a");
    w.check_all();
    w.load_dies_of("a", FailureClass::DeviceLost);
    assert_eq!(failed_with(&w, id), FailureClass::DeviceLost);
    assert!(w.outcome(id).is_some_and(|end| format!("{end:?}").contains("DeviceLost")));
    let lost = |w: &World| -> Vec<DeviceId> {
        let of = |event: &EventKind| match event {
            EventKind::DeviceLost { device } => Some(device.clone()),
            _ => None,
        };
        w.events.iter().filter_map(|event| of(&event.kind)).collect()
    };
    assert_eq!(lost(&w).len(), 1);
    w.read_cards();
    let other = w.acquire("b");
    w.check_all();
    let spawn = w.ready("b");
    assert!(w.is_granted(other), "the other card serves");
    assert!(!w.machine.held[&spawn].contains_key(&lost(&w)[0]), "{:?}", w.machine.held);
    let third = w.acquire("a");
    w.check_all();
    let loads = w.children.values().any(|(k, _)| *k == key("a"));
    assert!(!loads, "nothing goes to the lost one, whatever its driver shows: {:?}", w.children);
    w.cancel(third);
    reset(&mut w, None);
    assert_eq!(w.n_events(|event| matches!(event, EventKind::DeviceBack { .. })), 1, "F4");
    assert!([card(0), card(1)].contains(&lost(&w)[0]));
    let again = w.acquire("a");
    w.check_all();
    w.ready("a");
    assert!(w.is_granted(again));
}

#[test]
fn a_lost_device_is_given_another_chance_after_five_minutes() {
    let mut w = on_cards(&[8]);
    let id = w.acquire("a");
    w.check_all();
    w.load_dies_of("a", FailureClass::DeviceLost);
    assert_eq!(failed_with(&w, id), FailureClass::DeviceLost);
    w.pass_reading(305);
    let again = w.acquire("a");
    w.check_all();
    w.ready("a");
    assert!(w.is_granted(again), "F4");
    assert!(w.now > Now::ZERO);
}

#[test]
fn who_was_stopped_for_a_smaller_start_that_everybody_left_comes_back() {
    let mut w = shorter();
    let b = w.resident("b");
    w.leave(b);
    let a = w.acquire("a");
    w.check_all();
    w.ended("b", Child::Asked);
    w.load_dies_of("a", FailureClass::OutOfHostMemory);
    w.cancel(a);
    w.check_all();
    w.obey();
    assert_eq!((w.serving("a"), w.serving("b")), (vec![], vec![0]));
}

#[test]
fn what_an_engine_says_that_answered_holds_nothing_for_good() {
    let classes = PERMANENT.into_iter().chain([FailureClass::IllegalInstruction, FailureClass::DeviceLost]);
    for class in classes {
        let mut w = World::new(1024);
        let id = w.resident("a");
        let grant = w.lease(id).clone();
        grant.gate.vital().answered();
        w.leave(id);
        w.dies_of(grant.spawn, class);
        let again = w.acquire("a");
        w.obey();
        assert!(w.is_granted(again), "{class}: a client may have written that into its log");
        let held = |event: &EventKind| matches!(event, EventKind::Quarantined { .. });
        assert_eq!(w.n_events(held), 0);
    }
}

#[test]
fn a_second_start_of_a_build_that_cannot_run_here_gets_the_next_one_too() {
    let config = PoolConfig { host: host(2048), load_slots: LoadSlots::PerDevice(TWO), ..PoolConfig::default() };
    let mut w = World::configured(config, catalog(&[("a", 600, ""), ("b", 600, "")]));
    let ids = [w.acquire("a"), w.acquire("b")];
    w.check_all();
    w.load_dies_of("a", FailureClass::IllegalInstruction);
    w.load_dies_of("b", FailureClass::IllegalInstruction);
    let next = Build { size: 2, mtime_nanos: 2 };
    for _ in 0..2 {
        checked(&mut w, Facts { build: next, ..facts() });
    }
    w.obey();
    assert!(ids.iter().all(|id| w.is_granted(*id)), "F3");
}

/// The first process of `a` ended so; others of its tree live.
fn first_ends(w: &mut World, state: Child, class: FailureClass) -> motorpool_vocab::Spawn {
    let spawn = w.child("a", state);
    w.feed(Input::Ended { spawn, exit: motorpool_pool::Exit { class: Some(class), ..<_>::default() } });
    spawn
}

#[test]
fn who_waits_for_a_load_is_told_of_its_end_at_once_and_its_line_stays_until_its_tree_is_gone() {
    let mut w = World::new(1024);
    let first = w.acquire("a");
    w.check_all();
    let spawn = first_ends(&mut w, Child::Loading, FailureClass::BadArguments);
    assert_eq!(failed_with(&w, first), FailureClass::BadArguments);
    assert_eq!((w.phase("a"), w.committed().is_zero()), (Some(PhaseView::Stopping), false));
    // Later news of it changes nothing.
    w.feed(Input::Ended { spawn, exit: <_>::default() });
    w.gone(spawn);
    assert_eq!((w.phase("a"), w.committed()), (Some(PhaseView::Idle), Bytes::ZERO));
    let exits = w.n_events(|e| matches!(e, EventKind::Exited { .. }));
    assert_eq!((exits, w.n_events(|e| matches!(e, EventKind::StartFailed { .. }))), (1, 1));
}

#[test]
fn a_load_that_is_tried_again_is_when_nothing_of_the_one_before_is_left() {
    let mut w = World::new(1024);
    let first = w.acquire("a");
    w.check_all();
    let spawn = first_ends(&mut w, Child::Loading, FailureClass::IllegalInstruction);
    w.pass(SECOND);
    assert!(w.checks.is_empty() && w.outcome(first).is_none(), "P1: its key is not free");
    w.gone(spawn);
    w.pass(SECOND);
    w.check_all();
    w.ready("a");
    assert!(w.is_granted(first));
}

#[test]
fn one_that_served_is_closed_at_its_end_and_serves_anew_when_its_tree_is_gone_or_stuck() {
    for gone in [true, false] {
        let mut w = World::new(4096);
        let lease = w.resident("a");
        let spawn = first_ends(&mut w, Child::Serving, FailureClass::Assertion);
        assert!(w.open.is_empty(), "nobody enters any more");
        w.leave(lease);
        let next = w.acquire("a");
        assert_eq!((w.checks.len(), w.phase("a")), (0, Some(PhaseView::Stopping)));
        if gone {
            w.gone(spawn);
        } else {
            w.pass(10 * SECOND);
            assert_eq!(w.n_events(|e| matches!(e, EventKind::Stuck { .. })), 1);
        }
        w.check_all();
        w.ready("a");
        assert!(w.is_granted(next));
    }
}
