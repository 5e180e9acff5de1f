//! H6: time in which nothing ran counts against nobody; and looks that hang, which are bounded as loads are.
use crate::world::{Child, Outcome, World};
use motorpool_pool::{Input, Probe, Probed, Refusal};
use motorpool_vocab::{EventKind, FailureClass, PhaseView, StopReason};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Longer than any limit but that of a queue.
const NAP: Duration = Duration::from_mins(5);

/// The machine sleeps and wakes; the loop had just turned.
fn sleep(w: &mut World) {
    w.feed(Input::Tick);
    w.now = w.now.after(NAP);
    w.feed(Input::Woke);
}

fn stopped(w: &World, why: StopReason) -> usize {
    w.n_events(|event| matches!(event, EventKind::Stopping { reason, .. } if *reason == why))
}

#[test]
fn a_machine_that_slept_has_stalled_no_load() {
    let mut w = World::new(1024);
    let asked = w.acquire("a");
    w.check_all();
    w.pass(59 * SECOND);
    sleep(&mut w);
    let spawn = w.child("a", Child::Loading);
    w.feed(Input::Progress { spawn, per_mille: None });
    w.pass(59 * SECOND);
    assert_eq!((w.outcome(asked), stopped(&w, StopReason::LoadTimeout)), (None, 0), "H6");
    w.pass(SECOND);
    assert_eq!(stopped(&w, StopReason::LoadTimeout), 1, "what stands still is still found out");
}

#[test]
fn the_cap_of_a_load_is_of_time_in_which_it_ran() {
    let mut w = World::new(1024);
    w.acquire("a");
    w.check_all();
    let spawn = w.child("a", Child::Loading);
    for _ in 0..40 {
        w.pass(44 * SECOND);
        w.feed(Input::Progress { spawn, per_mille: None });
        if w.now.since(motorpool_vocab::Now::from_nanos(1_000_000_000_000)) < Duration::from_hours(1) {
            sleep(&mut w);
        }
    }
    assert_eq!(stopped(&w, StopReason::LoadTimeout), 0, "H6: 29 minutes of 30");
    w.pass(41 * SECOND);
    assert_eq!(stopped(&w, StopReason::LoadTimeout), 1);
}

#[test]
fn a_machine_that_slept_has_no_silent_engine() {
    let mut w = World::new(1024);
    let lease = w.resident("a");
    w.still.insert(w.lease(lease).spawn);
    w.pass(119 * SECOND);
    sleep(&mut w);
    assert_eq!(w.phase("a"), Some(PhaseView::Ready), "H6");
    w.pass(2 * SECOND);
    assert_eq!(w.phase("a"), Some(PhaseView::Suspect));
    w.pass(118 * SECOND);
    sleep(&mut w);
    assert_eq!(stopped(&w, StopReason::Health), 0, "H6");
    w.pass(3 * SECOND);
    assert_eq!(stopped(&w, StopReason::Health), 1);
}

#[test]
fn an_engine_that_was_late_or_condemned_before_a_sleep_has_the_rest_of_its_time_after_it() {
    for verdict in [Probed::Missed, Probed::Failed] {
        let mut w = World::new(1024);
        w.width = 2;
        let lease = w.resident("a");
        w.still.insert(w.lease(lease).spawn);
        for _ in 0..3 {
            w.pass(15 * SECOND);
            assert_eq!(w.answer(Probed::Missed), Probe::Liveness);
        }
        assert_eq!(w.answer(verdict), Probe::Inference);
        w.pass(100 * SECOND);
        sleep(&mut w);
        assert_eq!(stopped(&w, StopReason::Health), 0, "H6: {verdict:?}");
        w.pass(21 * SECOND);
        assert_eq!(stopped(&w, StopReason::Health), 1, "{verdict:?}");
    }
}

#[test]
fn an_engine_that_slept_while_it_was_asked_to_end_is_not_killed_for_it() {
    let mut w = World::new(1024);
    let lease = w.resident("a");
    w.leave(lease);
    w.admin(|id| Input::UnloadIdle { id, key: crate::world::key("a") });
    let spawn = w.child("a", Child::Asked);
    sleep(&mut w);
    w.pass(4 * SECOND);
    assert_eq!(w.children[&spawn].1, Child::Asked, "H6");
    w.pass(SECOND);
    assert_eq!(w.children[&spawn].1, Child::Killed);
    w.pass(9 * SECOND);
    sleep(&mut w);
    assert_eq!(w.n_events(|event| matches!(event, EventKind::Stuck { .. })), 0, "H6");
}

#[test]
fn what_callers_were_promised_goes_on_while_the_machine_sleeps() {
    let mut w = World::new(1024);
    w.resident("a");
    let waits = w.acquire("a");
    (0..2).for_each(|_| sleep(&mut w));
    assert!(matches!(w.outcome(waits), Some(Outcome::Refused(Refusal::QueueTimeout { .. }))));
}

#[test]
fn a_look_that_hangs_is_given_up_and_the_next_request_looks_again() {
    let mut w = World::new(1024);
    let asked = w.acquire("a");
    w.pass(59 * SECOND);
    assert_eq!(w.outcome(asked), None);
    sleep(&mut w);
    w.pass(999 * SECOND / 1000);
    assert_eq!(w.phase("a"), Some(PhaseView::Validating), "H6");
    w.pass(SECOND);
    let Some(Outcome::Refused(Refusal::StartFailed { fault, .. })) = w.outcome(asked) else {
        panic!("told why, not {:?}", w.outcome(asked))
    };
    assert_eq!(fault.class, FailureClass::LoadStalled);
    assert!(fault.message.contains("file system does not answer"), "{}", fault.message);
    w.check_all();
    assert_eq!((w.phase("a"), w.children.len()), (Some(PhaseView::Idle), 0), "P4: what it finds after all is nobody's");
    w.pass(61 * SECOND);
    let again = w.acquire("a");
    w.check_all();
    w.ready("a");
    assert!(w.is_granted(again));
}
