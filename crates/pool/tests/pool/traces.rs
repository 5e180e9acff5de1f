//! One trace per edge of the diagram in the crate's documentation, in virtual time.

use crate::world::{Child, Outcome, World, catalog, key};
use motorpool_pool::{Answer, Ask, Force, Input, Refusal};
use motorpool_vocab::{Bytes, EventKind, ModelId, PhaseView, StopReason};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn evict(key: motorpool_vocab::EngineKey, force: Force) -> impl FnOnce(motorpool_pool::RequestId) -> Input {
    move |id| Input::Evict { id, key, force }
}

#[test]
fn a_first_request_builds_and_holds_the_lease_when_it_is_ready() {
    let mut w = World::new(1024);
    let id = w.acquire("a");
    assert_eq!(w.phase("a"), Some(PhaseView::Validating));
    assert_eq!(w.committed(), Bytes::ZERO, "nothing is reserved before the file was looked at");
    w.check_all();
    assert_eq!(w.committed(), Bytes::mib(600), "reserved before the child exists");
    let spawn = w.ready("a");
    assert_eq!(w.outcome(id), Some(&Outcome::Granted(spawn)));
}

#[test]
fn sixty_four_first_requests_make_one_child() {
    let mut w = World::new(1024);
    w.width = 2;
    let ids: Vec<_> = (0..64).map(|_| w.acquire("a")).collect();
    assert_eq!(w.checks.len(), 1);
    w.check_all();
    assert_eq!(w.children.len(), 1);
    w.ready("a");
    for pair in ids.chunks(2) {
        assert!(pair.iter().all(|id| w.is_granted(*id)), "oldest first");
        for id in pair {
            w.leave(*id);
        }
    }
}

#[test]
fn the_warm_path_is_shut_while_somebody_waits() {
    let mut w = World::new(1024);
    let first = w.resident("a");
    let second = w.acquire("a");
    let spawn = w.leave_untold(first);
    assert_eq!(w.enter("a"), None, "the slot is free, but somebody waits for it");
    w.feed(Input::Left { id: first, spawn });
    assert!(w.is_granted(second));
    w.leave(second);
    let third = w.enter("a").expect("nobody waits");
    w.leave(third);
}

#[test]
fn a_file_that_fails_its_check_evicts_nobody_and_every_joiner_is_told() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    w.leave(a);
    let (one, two) = (w.acquire("b"), w.acquire("b"));
    w.fail_check();
    for id in [one, two] {
        assert!(matches!(w.outcome(id), Some(Outcome::Refused(Refusal::StartFailed { .. }))));
    }
    assert_eq!(w.phase("a"), Some(PhaseView::Ready));
}

#[test]
fn an_idle_engine_goes_for_another_and_its_bytes_come_back_first() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    w.leave(a);
    let b = w.acquire("b");
    w.check_all();
    let old = w.child("a", Child::Asked);
    assert_eq!(w.committed(), Bytes::mib(600), "B1: b is not reserved beside a");
    w.gone(old);
    w.ready("b");
    assert!(w.is_granted(b));
}

#[test]
fn a_stream_is_not_ended_for_room_and_its_end_wakes_the_waiter() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    w.pass(11 * SECOND);
    let b = w.acquire("b");
    w.check_all();
    assert_eq!(w.phase("a"), Some(PhaseView::Ready), "P2");
    assert_eq!(w.notices.first(), Some(&(b, 1)), "the waiter is told at once who holds it");
    w.pass(5 * SECOND);
    assert_eq!(w.notices.len(), 2, "and every 5 s");
    w.leave(a);
    w.ended("a", Child::Asked);
    w.ready("b");
    assert!(w.is_granted(b));
}

#[test]
fn an_engine_that_somebody_just_entered_is_not_taken_although_the_pool_was_not_told() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    w.leave(a);
    let warm = w.enter_untold("a").expect("idle");
    let b = w.acquire("b");
    w.check_all();
    assert_eq!(w.phase("a"), Some(PhaseView::Ready), "P2");
    w.tell(warm);
    w.pass(11 * SECOND);
    w.leave(warm);
    w.ended("a", Child::Asked);
    w.ready("b");
    assert!(w.is_granted(b));
}

#[test]
fn a_fresh_engine_is_not_drained_before_its_minimum_residency() {
    let mut w = World::new(1024);
    w.resident("a");
    w.acquire("b");
    w.check_all();
    assert_eq!(w.n_events(|e| matches!(e, EventKind::DrainBegan { .. })), 0);
    w.pass(10 * SECOND);
    assert_eq!(w.n_events(|e| matches!(e, EventKind::DrainBegan { .. })), 1);
}

#[test]
fn more_important_work_is_not_drained_until_the_waiter_is_overdue() {
    let mut w = World::with(1024, catalog(&[("a", 600, "priority = 5"), ("b", 600, "")]));
    let a = w.resident("a");
    let b = w.acquire("b");
    w.check_all();
    w.pass(59 * SECOND);
    assert_eq!(w.n_events(|e| matches!(e, EventKind::DrainBegan { .. })), 0);
    w.pass(SECOND);
    assert_eq!(
        w.n_events(|e| matches!(e, EventKind::DrainBegan { .. })),
        1,
        "nothing else happened, time alone did it"
    );
    w.leave(a);
    w.ended("a", Child::Asked);
    w.ready("b");
    assert!(w.is_granted(b));
}

#[test]
fn a_drain_that_does_not_finish_is_refused_in_words_and_the_gate_opens_again() {
    let mut w = World::new(1024);
    w.resident("a");
    w.pass(11 * SECOND);
    let b = w.acquire("b");
    w.check_all();
    w.pass(30 * SECOND);
    let busy = Refusal::EngineBusy { key: key("a"), within: 30 * SECOND };
    assert_eq!(w.outcome(b), Some(&Outcome::Refused(busy)));
    assert_eq!(w.n_events(|e| matches!(e, EventKind::DrainGivenUp { .. })), 1);
    assert!(!w.open[&key("a")].gate.is_closed());
}

#[test]
fn requests_of_a_draining_engine_wait_and_are_let_in_after_their_own_deadline() {
    let mut w = World::new(1024);
    w.width = 2;
    w.resident("a");
    w.pass(11 * SECOND);
    let b = w.ask(Ask { drain_wait: Some(50 * SECOND), ..Ask::lease(ModelId::new("b").expect("id"), <_>::default()) });
    w.check_all();
    let late = w.acquire("a");
    assert_eq!(w.outcome(late), None, "the engine drains");
    w.pass(30 * SECOND);
    assert!(w.is_granted(late), "the drain is for a waiter younger than the maximum wait");
    assert_eq!(w.outcome(b), None);
}

#[test]
fn an_overdue_waiter_gets_the_engine_drained_without_new_leases() {
    let mut w = World::new(1024);
    w.width = 2;
    let first = w.resident("a");
    w.pass(11 * SECOND);
    let wait = Some(300 * SECOND);
    let b = w.ask(Ask { drain_wait: wait, ..Ask::lease(ModelId::new("b").expect("id"), <_>::default()) });
    w.check_all();
    w.pass(40 * SECOND);
    let late = w.acquire("a");
    w.pass(30 * SECOND);
    assert!(matches!(w.outcome(late), Some(Outcome::Refused(Refusal::EngineBusy { .. }))));
    w.leave(first);
    w.ended("a", Child::Asked);
    w.ready("b");
    assert!(w.is_granted(b));
}

#[test]
fn what_can_never_fit_is_denied_once_for_all_joiners_and_nobody_is_stopped() {
    let mut w = World::with(1024, catalog(&[("a", 600, ""), ("big", 2000, "")]));
    let a = w.resident("a");
    w.leave(a);
    let (one, two) = (w.acquire("big"), w.acquire("big"));
    w.check_all();
    assert_eq!(w.denials.len(), 1);
    assert_eq!(w.denials[0].to_string(), "budget exhausted: would commit 2097152000 against 1073741824");
    for id in [one, two] {
        assert!(matches!(w.outcome(id), Some(Outcome::Refused(Refusal::CapacityDenied(_)))));
    }
    assert_eq!(w.phase("a"), Some(PhaseView::Ready));
}

#[test]
fn a_pinned_engine_is_no_victim_and_is_named_in_the_denial() {
    let mut w = World::with(1024, catalog(&[("a", 600, "pinned = true"), ("b", 600, "")]));
    let a = w.resident("a");
    w.leave(a);
    let b = w.acquire("b");
    w.check_all();
    assert!(matches!(w.outcome(b), Some(Outcome::Refused(Refusal::CapacityDenied(_)))));
    assert_eq!(w.denials[0].holders, [(key("a"), Bytes::mib(600))]);
}

#[test]
fn a_start_that_fails_gives_back_what_it_took_and_the_next_request_tries_again() {
    let mut w = World::new(1024);
    let a = w.acquire("a");
    w.check_all();
    let spawn = w.child("a", Child::Loading);
    w.gone(spawn);
    assert!(matches!(w.outcome(a), Some(Outcome::Refused(Refusal::StartFailed { .. }))));
    assert_eq!((w.committed(), w.phase("a")), (Bytes::ZERO, Some(PhaseView::Idle)));
    let again = w.resident("a");
    assert!(w.is_granted(again));
}

#[test]
fn a_silent_load_is_killed_and_a_working_one_is_not() {
    let mut w = World::new(1024);
    let a = w.acquire("a");
    w.check_all();
    let spawn = w.child("a", Child::Loading);
    for _ in 0..5 {
        w.pass(50 * SECOND);
        w.feed(Input::Progress { spawn, per_mille: Some(200) });
    }
    assert_eq!(w.phase("a"), Some(PhaseView::Starting { progress: Some(200) }));
    w.pass(60 * SECOND);
    assert_eq!(w.child("a", Child::Killed), spawn);
    assert!(matches!(w.outcome(a), Some(Outcome::Refused(Refusal::StartFailed { .. }))));
}

#[test]
fn a_load_ends_at_the_cap_whatever_it_reports() {
    let mut w = World::new(1024);
    let a =
        w.ask(Ask { queue_wait: Some(3600 * SECOND), ..Ask::lease(ModelId::new("a").expect("id"), <_>::default()) });
    w.check_all();
    let spawn = w.child("a", Child::Loading);
    for _ in 0..36 {
        w.pass(50 * SECOND);
        w.feed(Input::Progress { spawn, per_mille: None });
    }
    assert!(matches!(w.outcome(a), Some(Outcome::Refused(Refusal::StartFailed { .. }))));
}

#[test]
fn a_crash_in_service_sends_the_waiting_to_a_new_child() {
    let mut w = World::new(1024);
    let first = w.resident("a");
    let second = w.acquire("a");
    let spawn = w.child("a", Child::Serving);
    w.gone(spawn);
    assert_eq!(w.committed(), Bytes::ZERO);
    w.leave(first);
    w.check_all();
    let new = w.ready("a");
    assert_eq!(w.outcome(second), Some(&Outcome::Granted(new)));
    assert!(new > spawn, "spawns are never reused");
}

#[test]
fn news_of_an_earlier_spawn_changes_nothing() {
    let mut w = World::new(1024);
    w.resident("a");
    let old = w.child("a", Child::Serving);
    w.gone(old);
    let held = w.resident("a");
    let before = w.pool.snapshot(w.now);
    w.feed(Input::Gone { spawn: old, exit: <_>::default() });
    w.feed(Input::Progress { spawn: old, per_mille: Some(1) });
    w.feed(Input::Left { id: motorpool_pool::RequestId(999), spawn: old });
    assert_eq!(w.pool.snapshot(w.now), before, "P4");
    assert!(w.is_granted(held));
}

#[test]
fn a_child_that_does_not_stop_is_killed_then_stuck_charged_and_built_anew_beside_it() {
    let mut w = World::with(2048, catalog(&[("a", 600, "")]));
    let a = w.resident("a");
    w.leave(a);
    let unload = w.admin(|id| Input::UnloadIdle { id, key: key("a") });
    let stuck = w.child("a", Child::Asked);
    w.pass(5 * SECOND);
    assert_eq!(w.child("a", Child::Killed), stuck);
    w.pass(10 * SECOND);
    assert_eq!(w.outcome(unload), Some(&Outcome::Answered(Answer::Stuck(key("a")))));
    let again = w.resident("a");
    assert!(w.is_granted(again));
    assert_eq!(w.committed(), Bytes::mib(1200), "the stuck one stays charged");
    w.gone(stuck);
    assert_eq!(w.committed(), Bytes::mib(600), "P4: only its own line");
}

#[test]
fn a_request_during_a_teardown_waits_for_it_and_then_builds() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    w.leave(a);
    w.admin(|id| Input::UnloadIdle { id, key: key("a") });
    let again = w.acquire("a");
    assert!(w.checks.is_empty(), "P1: not beside a child that may still go");
    w.ended("a", Child::Asked);
    w.check_all();
    w.ready("a");
    assert!(w.is_granted(again));
}

#[test]
fn unloading_an_idle_engine_is_answered_when_it_is_gone_and_a_busy_one_is_left_alone() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    let busy = w.admin(|id| Input::UnloadIdle { id, key: key("a") });
    assert_eq!(w.outcome(busy), Some(&Outcome::Answered(Answer::Serving(key("a")))));
    w.leave(a);
    let idle = w.admin(|id| Input::UnloadIdle { id, key: key("a") });
    assert_eq!(w.outcome(idle), None);
    w.ended("a", Child::Asked);
    assert_eq!(w.outcome(idle), Some(&Outcome::Answered(Answer::Unloaded)));
    let none = w.admin(|id| Input::UnloadIdle { id, key: key("a") });
    assert_eq!(w.outcome(none), Some(&Outcome::Answered(Answer::NotResident)));
}

#[test]
fn an_evict_waits_for_the_lease_and_force_does_not() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    let wish = w.admin(evict(key("a"), Force::No));
    assert_eq!(w.phase("a"), Some(PhaseView::Ready), "P2");
    w.pass(30 * SECOND);
    assert!(matches!(w.outcome(wish), Some(Outcome::Answered(Answer::Busy { .. }))));
    let wish = w.admin(evict(key("a"), Force::No));
    w.leave(a);
    w.ended("a", Child::Asked);
    assert_eq!(w.outcome(wish), Some(&Outcome::Answered(Answer::Unloaded)));
    w.resident("a");
    let forced = w.admin(evict(key("a"), Force::Yes));
    w.ended("a", Child::Killed);
    assert_eq!(w.outcome(forced), Some(&Outcome::Answered(Answer::Unloaded)));
}

#[test]
fn an_asker_that_went_away_no_longer_drains() {
    let mut w = World::new(1024);
    w.resident("a");
    let wish = w.admin(evict(key("a"), Force::No));
    w.cancel(wish);
    assert!(!w.open[&key("a")].gate.is_closed());
}

#[test]
fn releasing_the_idle_names_the_busy() {
    let mut w = World::new(2048);
    let a = w.resident("a");
    w.resident("b");
    w.leave(a);
    let release = w.admin(|id| Input::ReleaseIdle { id });
    w.ended("a", Child::Asked);
    assert_eq!(w.outcome(release), Some(&Outcome::Answered(Answer::Released(vec![key("b")]))));
}

#[test]
fn a_waiter_that_gives_up_leaves_no_drain_behind() {
    let mut w = World::new(1024);
    w.resident("a");
    w.pass(11 * SECOND);
    let b = w.acquire("b");
    w.check_all();
    assert!(w.open[&key("a")].gate.is_closed());
    w.cancel(b);
    assert!(!w.open[&key("a")].gate.is_closed());
    assert_eq!(w.phase("b"), Some(PhaseView::Idle));
}

#[test]
fn a_load_nobody_waits_for_any_more_is_let_finish() {
    let mut w = World::new(1024);
    let a = w.acquire("a");
    w.check_all();
    w.cancel(a);
    w.ready("a");
    assert_eq!(w.phase("a"), Some(PhaseView::Ready));
    assert!(w.enter("a").is_some());
}

#[test]
fn a_wait_has_an_end() {
    let mut w = World::new(1024);
    w.resident("a");
    let second = w.acquire("a");
    w.pass(600 * SECOND);
    assert!(matches!(w.outcome(second), Some(Outcome::Refused(Refusal::QueueTimeout { .. }))));
}

#[test]
fn two_builds_for_one_place_both_come_to_their_turn() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    let (b, c) = (w.acquire("b"), w.acquire("c"));
    w.check_all();
    w.leave(a);
    w.ended("a", Child::Asked);
    w.ready("b");
    assert!(w.is_granted(b), "the elder first");
    w.leave(b);
    w.ended("b", Child::Asked);
    w.ready("c");
    assert!(w.is_granted(c));
}

#[test]
fn retiring_refuses_the_parked_lets_the_rest_finish_and_kills_nobody() {
    let mut w = World::new(2048);
    let a = w.resident("a");
    let parked = w.acquire("a");
    let loading = w.acquire("b");
    w.check_all();
    let retire = w.admin(|id| Input::Retire { id });
    assert_eq!(w.outcome(parked), Some(&Outcome::Refused(Refusal::Retired)));
    let late = w.acquire("a");
    assert_eq!(w.outcome(late), Some(&Outcome::Refused(Refusal::Retired)));
    w.ready("b");
    assert!(w.is_granted(loading), "an admitted build is waited for");
    assert!(w.leases[&loading].gate.is_closed(), "and nobody enters it by themselves");
    w.leave(a);
    w.leave(loading);
    assert_eq!(w.outcome(retire), None);
    for model in ["a", "b"] {
        w.ended(model, Child::Asked);
    }
    assert_eq!(w.outcome(retire), Some(&Outcome::Answered(Answer::Ended(vec![]))));
    let again = w.admin(|id| Input::Retire { id });
    assert_eq!(w.outcome(again), Some(&Outcome::Answered(Answer::Ended(vec![]))));
}

#[test]
fn a_shutdown_ends_everything_at_once_and_says_when_it_is_done() {
    let mut w = World::new(2048);
    let a = w.resident("a");
    let loading = w.acquire("b");
    w.check_all();
    let shutdown = w.admin(|id| Input::Shutdown { id });
    assert_eq!(w.outcome(loading), Some(&Outcome::Refused(Refusal::ShuttingDown)));
    for model in ["a", "b"] {
        w.ended(model, Child::Killed);
    }
    assert_eq!(w.outcome(shutdown), Some(&Outcome::Answered(Answer::Ended(vec![]))));
    w.leave(a);
    let reasons =
        w.n_events(|e| matches!(e, EventKind::Exited { record, .. } if record.reason == StopReason::Shutdown));
    assert_eq!((reasons, w.committed()), (2, Bytes::ZERO));
}
