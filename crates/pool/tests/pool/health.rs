//! Engines that are ready and may not serve: one trace per edge of the diagram in `health.rs`.

use crate::world::{Child, Outcome, World, catalog, host};
use motorpool_pool::{HealthTerms, PoolConfig, Probe, Probed};
use motorpool_vocab::{EventKind, PhaseView, Spawn, StopReason};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn stopped_for_health(w: &World) -> usize {
    w.n_events(|event| matches!(event, EventKind::Stopping { reason: StopReason::Health, .. }))
}

/// `a` serves one request that shows no progress.
fn hung() -> (World, Spawn, motorpool_pool::RequestId) {
    let mut w = World::new(1024);
    let lease = w.resident("a");
    let spawn = w.lease(lease).spawn;
    w.still.insert(spawn);
    (w, spawn, lease)
}

/// `a` is idle and failed three requests.
fn failing() -> (World, Spawn) {
    let mut w = World::new(1024);
    let lease = w.resident("a");
    let grant = w.lease(lease).clone();
    w.leave(lease);
    (0..3).for_each(|_| grant.gate.vital().failed());
    w.feed(motorpool_pool::Input::Tick);
    (w, grant.spawn)
}

/// An engine that failed requests while it serves one on one of its two slots.
fn failing_at_work() -> (World, motorpool_pool::RequestId) {
    let mut w = World::new(1024);
    w.width = 2;
    let lease = w.resident("a");
    (0..3).for_each(|_| w.lease(lease).gate.vital().failed());
    w.feed(motorpool_pool::Input::Tick);
    (w, lease)
}

#[test]
fn an_idle_engine_is_asked_every_fifteen_seconds_and_an_answer_is_enough() {
    let mut w = World::new(1024);
    let lease = w.resident("a");
    w.leave(lease);
    for _ in 0..9 {
        w.pass(15 * SECOND);
        assert_eq!(w.answer(Probed::Well(Some(1))), Probe::Liveness);
        assert!(w.probes.is_empty(), "H3");
    }
    assert_eq!(w.phase("a"), Some(PhaseView::Ready));
}

#[test]
fn three_misses_lead_to_one_inference_and_its_answer_opens_the_gate_again() {
    let mut w = World::new(1024);
    let lease = w.resident("a");
    w.leave(lease);
    for _ in 0..3 {
        w.pass(15 * SECOND);
        assert_eq!(w.answer(Probed::Missed), Probe::Liveness);
    }
    assert_eq!(w.phase("a"), Some(PhaseView::Suspect));
    assert_eq!(w.enter("a"), None, "nobody new enters");
    let waits = w.acquire("a");
    assert_eq!(w.answer(Probed::Well(None)), Probe::Inference);
    assert!(w.is_granted(waits), "who came meanwhile is served");
    assert_eq!(w.phase("a"), Some(PhaseView::Ready));
}

#[test]
fn failed_requests_in_a_row_and_a_failed_inference_are_its_end_and_the_next_request_gets_another() {
    let (mut w, spawn) = failing();
    assert_eq!(w.phase("a"), Some(PhaseView::Suspect));
    let waits = w.acquire("a");
    assert!(w.is_granted(waits), "the others are served meanwhile");
    assert_eq!(w.answer(Probed::Failed), Probe::Inference);
    assert_eq!(w.enter("a"), None, "now nobody new enters");
    let next = w.acquire("a");
    assert_eq!(stopped_for_health(&w), 0, "P2");
    w.leave(waits);
    assert_eq!(stopped_for_health(&w), 1);
    w.ended("a", Child::Asked);
    w.check_all();
    let other = w.ready("a");
    assert_ne!(spawn, other);
    assert_eq!(w.outcome(next), Some(&Outcome::Granted(other)));
}

#[test]
fn failures_that_an_inference_disproves_are_forgiven() {
    let (mut w, _) = failing();
    assert_eq!(w.answer(Probed::Well(None)), Probe::Inference);
    w.pass(SECOND);
    assert_eq!((w.phase("a"), stopped_for_health(&w)), (Some(PhaseView::Ready), 0));
}

#[test]
fn where_no_inference_can_be_asked_failures_are_forgiven_once_and_again_only_after_an_answer() {
    let mut w = World::new(1024);
    let lease = w.resident("a");
    let grant = w.lease(lease).clone();
    w.leave(lease);
    let fails_thrice = |w: &mut World| {
        (0..3).for_each(|_| grant.gate.vital().failed());
        w.feed(motorpool_pool::Input::Tick);
        assert_eq!(w.answer(Probed::Lives), Probe::Inference);
        w.feed(motorpool_pool::Input::Tick);
    };
    for _ in 0..3 {
        fails_thrice(&mut w);
        assert_eq!(
            (w.phase("a"), stopped_for_health(&w)),
            (Some(PhaseView::Ready), 0),
            "they may be their senders' fault"
        );
        grant.gate.vital().answered();
    }
    fails_thrice(&mut w);
    assert_eq!(stopped_for_health(&w), 0);
    fails_thrice(&mut w);
    assert_eq!(stopped_for_health(&w), 1, "H7");
}

#[test]
fn with_all_slots_taken_no_inference_is_asked_and_what_stays_still_for_four_minutes_is_cut() {
    let (mut w, spawn, lease) = hung();
    w.pass(119 * SECOND);
    assert_eq!(w.phase("a"), Some(PhaseView::Ready));
    w.pass(2 * SECOND);
    assert_eq!(w.phase("a"), Some(PhaseView::Suspect));
    for _ in 0..118 {
        w.pass(SECOND);
        while !w.probes.is_empty() {
            assert_eq!(w.answer(Probed::Well(Some(1))), Probe::Liveness, "H2");
        }
    }
    assert_eq!(stopped_for_health(&w), 0);
    w.pass(2 * SECOND);
    assert_eq!(stopped_for_health(&w), 1);
    assert_eq!(w.children[&spawn].1, Child::Killed, "it serves and is cut");
    assert_eq!(w.leave_untold(lease), spawn);
}

#[test]
fn what_moves_again_is_suspect_no_more() {
    let (mut w, _, lease) = hung();
    w.pass(130 * SECOND);
    assert_eq!(w.phase("a"), Some(PhaseView::Suspect));
    w.lease(lease).gate.vital().moved();
    w.pass(SECOND);
    w.feed(motorpool_pool::Input::Tick);
    assert_eq!((w.phase("a"), stopped_for_health(&w)), (Some(PhaseView::Ready), 0), "H1");
}

#[test]
fn what_moves_while_it_is_condemned_comes_to_its_end_first() {
    let (mut w, lease) = failing_at_work();
    assert_eq!(w.answer(Probed::Failed), Probe::Inference, "a slot is free");
    w.pass(600 * SECOND);
    assert_eq!(stopped_for_health(&w), 0, "P2: its stream goes on");
    w.leave(lease);
    assert_eq!(stopped_for_health(&w), 1);
}

/// `a` has two slots, serves one request that shows no progress, does not answer, and is asked for an inference.
fn mute() -> (World, motorpool_pool::RequestId) {
    let mut w = World::new(1024);
    w.width = 2;
    let lease = w.resident("a");
    let spawn = w.lease(lease).spawn;
    w.still.insert(spawn);
    for _ in 0..3 {
        w.pass(15 * SECOND);
        assert_eq!(w.answer(Probed::Missed), Probe::Liveness);
    }
    assert_eq!(w.phase("a"), Some(PhaseView::Suspect));
    (w, lease)
}

#[test]
fn what_recovered_is_not_condemned_by_what_it_was_asked_before() {
    for verdict in [Probed::Missed, Probed::Failed] {
        let (mut w, lease) = mute();
        w.pass(SECOND);
        w.lease(lease).gate.vital().moved();
        w.feed(motorpool_pool::Input::Tick);
        assert_eq!(w.phase("a"), Some(PhaseView::Ready), "H1");
        w.leave(lease);
        assert_eq!(w.answer(verdict), Probe::Inference);
        assert_eq!((w.phase("a"), stopped_for_health(&w)), (Some(PhaseView::Ready), 0), "H5");
        assert!(w.enter("a").is_some(), "its gate is open");
    }
}

#[test]
fn what_moved_in_the_moment_of_the_verdict_is_not_condemned_by_it() {
    let (mut w, lease) = mute();
    w.pass(SECOND);
    w.lease(lease).gate.vital().moved();
    assert_eq!(w.answer(Probed::Failed), Probe::Inference);
    assert_eq!((w.phase("a"), stopped_for_health(&w)), (Some(PhaseView::Ready), 0), "H5");
}

#[test]
fn an_inference_that_is_late_while_others_are_served_is_asked_again_and_may_succeed() {
    let (mut w, lease) = mute();
    w.pass(30 * SECOND);
    assert_eq!(w.answer(Probed::Missed), Probe::Inference);
    assert_eq!((w.phase("a"), stopped_for_health(&w)), (Some(PhaseView::Suspect), 0), "H5");
    assert_eq!(w.answer(Probed::Well(None)), Probe::Liveness);
    w.pass(14 * SECOND);
    assert!(w.probes.is_empty(), "not at once");
    w.pass(SECOND);
    w.leave(lease);
    assert_eq!(w.answer(Probed::Well(None)), Probe::Inference);
    assert_eq!((w.phase("a"), stopped_for_health(&w)), (Some(PhaseView::Ready), 0));
}

#[test]
fn an_inference_that_is_late_with_nobody_else_served_is_the_end() {
    let (mut w, lease) = mute();
    w.pass(30 * SECOND);
    w.leave_untold(lease);
    assert_eq!(w.answer(Probed::Missed), Probe::Inference);
    assert_eq!(stopped_for_health(&w), 0, "somebody was served since it was asked");
    w.pass(15 * SECOND);
    while w.answer(Probed::Missed) == Probe::Liveness {}
    assert_eq!(stopped_for_health(&w), 1);
}

#[test]
fn what_is_late_with_everything_and_moves_nothing_is_cut_although_a_slot_is_free() {
    let (mut w, _) = mute();
    w.pass(30 * SECOND);
    assert_eq!(w.answer(Probed::Missed), Probe::Inference);
    for _ in 0..119 {
        w.pass(SECOND);
        while !w.probes.is_empty() {
            w.answer(Probed::Missed);
        }
    }
    assert_eq!((w.phase("a"), stopped_for_health(&w)), (Some(PhaseView::Suspect), 0));
    w.pass(2 * SECOND);
    assert_eq!(stopped_for_health(&w), 1, "from the first that was late");
}

#[test]
fn an_engine_that_failed_requests_is_asked_before_the_slot_that_is_left_is_given_away() {
    let mut w = World::new(1024);
    let lease = w.resident("a");
    let waits = w.acquire("a");
    (0..3).for_each(|_| w.lease(lease).gate.vital().failed());
    w.feed(motorpool_pool::Input::Tick);
    assert_eq!((w.phase("a"), w.probes.len()), (Some(PhaseView::Suspect), 0), "H2");
    w.leave(lease);
    assert!(w.is_granted(waits), "it costs the others nothing");
    assert_eq!(w.answer(Probed::Well(None)), Probe::Inference);
    assert_eq!(w.phase("a"), Some(PhaseView::Ready));
}

#[test]
fn a_suspect_engine_that_is_idle_may_go_for_others() {
    let (mut w, spawn) = failing();
    let b = w.acquire("b");
    w.check_all();
    assert_eq!(w.children[&spawn].1, Child::Asked);
    w.gone(spawn);
    w.ready("b");
    assert!(w.is_granted(b));
    w.answer(Probed::Missed);
    assert_eq!(stopped_for_health(&w), 0, "P4: what was asked of it means nothing any more");
}

#[test]
fn what_moved_is_not_asked_for_fifteen_seconds_and_what_it_missed_before_does_not_count() {
    let mut w = World::new(1024);
    w.width = 2;
    let lease = w.resident("a");
    w.still.insert(w.lease(lease).spawn);
    for _ in 0..2 {
        w.pass(15 * SECOND);
        assert_eq!(w.answer(Probed::Missed), Probe::Liveness);
    }
    w.pass(10 * SECOND);
    w.lease(lease).gate.vital().moved();
    w.feed(motorpool_pool::Input::Tick);
    w.pass(14 * SECOND);
    assert!(w.probes.is_empty(), "H1");
    w.pass(SECOND);
    assert_eq!(w.answer(Probed::Missed), Probe::Liveness);
    assert_eq!(w.phase("a"), Some(PhaseView::Ready), "three in a row");
}

#[test]
fn while_a_question_is_out_no_other_is_asked() {
    let mut w = World::new(1024);
    let lease = w.resident("a");
    w.leave(lease);
    w.pass(300 * SECOND);
    assert_eq!(w.probes.len(), 1, "H3");
    let (mut w, _) = mute();
    assert_eq!(w.probes.len(), 1);
    w.pass(60 * SECOND);
    assert_eq!(w.probes.len(), 1, "H3");
    assert_eq!(w.answer(Probed::Well(None)), Probe::Inference);
}

#[test]
fn failed_requests_make_nobody_suspect_where_they_are_not_counted() {
    let health = HealthTerms { failures: 0, ..HealthTerms::default() };
    let config = PoolConfig { host: host(1024), health, ..PoolConfig::default() };
    let mut w = World::configured(config, catalog(&[("a", 600, "")]));
    let lease = w.resident("a");
    let tick = |w: &mut World| w.feed(motorpool_pool::Input::Tick);
    tick(&mut w);
    assert_eq!(w.phase("a"), Some(PhaseView::Ready));
    (0..100).for_each(|_| w.lease(lease).gate.vital().failed());
    tick(&mut w);
    assert_eq!(w.phase("a"), Some(PhaseView::Ready));
}

#[test]
fn what_is_condemned_and_moves_nothing_is_cut_after_two_minutes() {
    let (mut w, lease) = failing_at_work();
    let grant = w.lease(lease).clone();
    w.still.insert(grant.spawn);
    assert_eq!(w.answer(Probed::Failed), Probe::Inference, "a slot is free");
    w.pass(119 * SECOND);
    assert_eq!(stopped_for_health(&w), 0);
    w.pass(2 * SECOND);
    assert_eq!((stopped_for_health(&w), w.child("a", Child::Killed)), (1, grant.spawn));
}

#[test]
fn nothing_is_asked_or_judged_while_the_pool_closes() {
    let (mut w, spawn, lease) = hung();
    w.admin(|id| motorpool_pool::Input::Retire { id });
    (0..3).for_each(|_| w.lease(lease).gate.vital().failed());
    w.pass(600 * SECOND);
    assert_eq!((w.probes.len(), stopped_for_health(&w)), (0, 0), "H4");
    assert_eq!(w.child("a", Child::Serving), spawn);
}
