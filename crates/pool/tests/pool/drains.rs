//! Traces of drains: who waits on them, who is let in past them, when they are given up and when they must not be.

use crate::world::{Child, Outcome, World, catalog, key};
use motorpool_pool::{Ask, Force, Input, Refusal, RequestId};
use motorpool_vocab::{EventKind, Holder, ModelId, PhaseView};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A lease on `model` for somebody who waits so many seconds for others to finish.
fn patient(model: &str, seconds: u32) -> Ask {
    let ask = Ask::lease(ModelId::new(model).expect("an id"), Holder::default());
    Ask { drain_wait: Some(seconds * SECOND), ..ask }
}

fn is_busy(w: &World, id: RequestId) -> bool {
    matches!(w.outcome(id), Some(Outcome::Refused(Refusal::EngineBusy { .. })))
}

/// Two engines that serve one request each, old enough to be drained, and a waiter that needs the room of both.
fn two_in_the_way() -> (World, [RequestId; 2], RequestId) {
    let mut w = World::with(1300, catalog(&[("a", 600, ""), ("b", 600, ""), ("big", 1200, "")]));
    let held = [w.resident("a"), w.resident("b")];
    w.pass(11 * SECOND);
    let big = w.acquire("big");
    w.check_all();
    (w, held, big)
}

#[test]
fn a_drain_that_finished_in_time_is_not_called_busy_while_the_engine_stops() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    w.pass(11 * SECOND);
    let b = w.acquire("b");
    w.check_all();
    w.pass(29 * SECOND);
    w.leave(a);
    let old = w.child("a", Child::Asked);
    w.pass(3 * SECOND);
    assert_eq!(w.outcome(b), None, "the last lease's end ended the wait on the drain");
    w.gone(old);
    w.ready("b");
    assert!(w.is_granted(b));
}

#[test]
fn what_drained_first_stays_closed_until_the_others_have() {
    let (mut w, [a, b], big) = two_in_the_way();
    let late = w.acquire("a");
    w.leave(a);
    assert_eq!(w.outcome(late), None, "let in again, it would never drain together with b");
    assert_eq!(w.n_events(|e| matches!(e, EventKind::DrainGivenUp { .. })), 0);
    assert_eq!(w.phase("a"), Some(PhaseView::Ready), "nothing is stopped before all can be");
    w.leave(b);
    for model in ["a", "b"] {
        w.ended(model, Child::Asked);
    }
    w.ready("big");
    assert!(w.is_granted(big));
}

#[test]
fn what_drained_for_an_elder_is_not_stopped_for_a_younger_build() {
    let models = [("a", 600, ""), ("b", 600, ""), ("big", 1200, ""), ("c", 300, "")];
    let mut w = World::with(1300, catalog(&models));
    let (a, _) = (w.resident("a"), w.resident("b"));
    w.pass(11 * SECOND);
    w.acquire("big");
    w.check_all();
    w.leave(a);
    w.acquire("c");
    w.check_all();
    assert_eq!(w.phase("a"), Some(PhaseView::Ready), "c has to come after big, whom a alone does not help");
}

#[test]
fn what_drained_first_serves_again_when_the_others_do_not_drain() {
    let (mut w, [a, _], big) = two_in_the_way();
    let late = w.ask(patient("a", 50));
    w.leave(a);
    w.pass(30 * SECOND);
    assert!(is_busy(&w, big));
    assert!(w.is_granted(late));
    assert!(w.open.values().all(|grant| !grant.gate.is_closed()));
}

#[test]
fn what_drained_stays_closed_when_an_idle_one_is_entered_at_the_last_moment() {
    let mut w = World::with(1300, catalog(&[("a", 600, ""), ("b", 600, ""), ("big", 1200, "")]));
    let (a, b) = (w.resident("a"), w.resident("b"));
    w.leave(b);
    w.pass(11 * SECOND);
    let big = w.acquire("big");
    w.check_all();
    let late = w.acquire("a");
    let warm = w.enter_untold("b").expect("an idle one of the set is not closed");
    w.leave(a);
    assert_eq!(w.outcome(late), None, "a is left for the teardown");
    w.tell(warm);
    w.leave(warm);
    for model in ["a", "b"] {
        w.ended(model, Child::Asked);
    }
    w.ready("big");
    assert!(w.is_granted(big));
}

#[test]
fn whoever_waited_on_a_drain_that_was_given_up_waits_for_a_slot_again() {
    let mut w = World::new(1024);
    let held = w.resident("a");
    w.pass(11 * SECOND);
    let b = w.ask(patient("b", 5));
    w.check_all();
    let second = w.acquire("a");
    w.pass(5 * SECOND);
    assert!(is_busy(&w, b), "and in the same instant the second was to be told who holds a");
    let b = w.ask(patient("b", 300));
    w.check_all();
    w.pass(61 * SECOND);
    w.leave(held);
    assert_eq!(w.outcome(second), None, "it began to wait on this drain a second ago");
    w.ended("a", Child::Asked);
    w.ready("b");
    assert!(w.is_granted(b));
}

#[test]
fn who_is_entitled_to_a_slot_of_a_draining_engine_is_not_once_the_drain_is_overdue() {
    let mut w = World::new(1024);
    w.resident("a");
    w.pass(11 * SECOND);
    w.ask(patient("b", 300));
    w.check_all();
    let second = w.acquire("a");
    w.pass(59 * SECOND);
    assert_eq!(w.outcome(second), None, "its drain deadline passed, the only slot is taken");
    w.pass(SECOND);
    assert!(is_busy(&w, second), "nothing but time happened");
}

#[test]
fn who_is_entitled_to_a_slot_is_told_when_somebody_unloads_the_engine() {
    let mut w = World::new(1024);
    w.resident("a");
    w.pass(11 * SECOND);
    w.ask(patient("b", 300));
    w.check_all();
    let second = w.acquire("a");
    w.pass(31 * SECOND);
    assert_eq!(w.outcome(second), None);
    w.admin(|id| Input::Evict { id, key: key("a"), force: Force::No });
    assert!(is_busy(&w, second));
}

#[test]
fn who_does_not_wait_for_others_is_refused_in_the_instant_a_drain_would_begin() {
    let mut w = World::new(1024);
    w.resident("a");
    w.pass(11 * SECOND);
    let b = w.ask(patient("b", 0));
    w.check_all();
    assert!(is_busy(&w, b));
    assert!(w.pool.deadline().is_none_or(|at| at > w.now), "and no deadline stays due");
}

#[test]
fn nothing_idle_is_stopped_for_room_that_only_an_elders_drain_could_complete() {
    let models = [("a", 900, ""), ("c", 300, ""), ("b", 600, ""), ("d", 600, "")];
    let mut w = World::with(1300, catalog(&models));
    let c = w.resident("c");
    w.leave(c);
    w.resident("a");
    w.pass(11 * SECOND);
    let (b, d) = (w.acquire("b"), w.acquire("d"));
    w.check_all();
    assert!(w.open[&key("a")].gate.is_closed(), "b drains a");
    assert_eq!(w.phase("c"), Some(PhaseView::Ready), "without c, d still needs a to go");
    w.pass(31 * SECOND);
    assert!(is_busy(&w, b));
    assert_eq!((w.outcome(d), w.phase("c")), (None, Some(PhaseView::Ready)));
}

#[test]
fn a_build_whose_drain_did_not_finish_lets_those_behind_it_pass() {
    let mut w = World::with(1300, catalog(&[("a", 600, ""), ("b", 900, ""), ("c", 600, "")]));
    w.resident("a");
    w.pass(11 * SECOND);
    let first = w.acquire("b");
    w.check_all();
    w.pass(20 * SECOND);
    let second = w.acquire("b");
    let c = w.acquire("c");
    w.check_all();
    assert_eq!(w.phase("c"), Some(PhaseView::WaitsForRoom), "c fits beside a, but then b could not come");
    w.pass(10 * SECOND);
    assert!(is_busy(&w, first));
    assert_eq!(w.outcome(second), None);
    w.ready("c");
    assert!(w.is_granted(c), "b is asked for without end and a never drains: c does not wait for them");
}

#[test]
fn a_load_of_a_full_engine_with_a_queue_is_answered_at_once() {
    let mut w = World::new(1024);
    w.resident("a");
    w.acquire("a");
    let load = w.ask(Ask::resident(ModelId::new("a").expect("an id")));
    assert_eq!(w.outcome(load), Some(&Outcome::Loaded(key("a"))));
}
