//! Engines that are ready and may not serve: one trace per edge of the diagram in `health.rs`.

use crate::world::{Child, Outcome, World};
use motorpool_pool::{Probe, Probed};
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
    assert_eq!(w.answer(Probed::Missed), Probe::Inference);
    assert_eq!(stopped_for_health(&w), 1);
    w.ended("a", Child::Asked);
    w.check_all();
    let next = w.ready("a");
    assert_ne!(spawn, next);
    assert_eq!(w.outcome(waits), Some(&Outcome::Granted(next)));
}

#[test]
fn failures_that_an_inference_disproves_are_forgiven() {
    let (mut w, _) = failing();
    assert_eq!(w.answer(Probed::Well(None)), Probe::Inference);
    w.pass(SECOND);
    assert_eq!((w.phase("a"), stopped_for_health(&w)), (Some(PhaseView::Ready), 0));
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
    let mut w = World::new(1024);
    w.width = 2;
    let lease = w.resident("a");
    let grant = w.lease(lease).clone();
    (0..3).for_each(|_| grant.gate.vital().failed());
    w.feed(motorpool_pool::Input::Tick);
    assert_eq!(w.answer(Probed::Missed), Probe::Inference, "a slot is free");
    w.pass(600 * SECOND);
    assert_eq!(stopped_for_health(&w), 0, "P2: its stream goes on");
    w.leave(lease);
    assert_eq!(stopped_for_health(&w), 1);
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
