//! Traces of operators and of the end: each is answered once, when it is done or cannot be, and nothing begins after it.

use crate::world::{Child, Outcome, World, catalog, host, key};
use motorpool_pool::{Answer, Ask, Force, Input, OnAbandon, PoolConfig, Refusal};
use motorpool_vocab::{Holder, ModelId, PhaseView, StopReason};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_crash_while_retiring_is_not_followed_by_a_new_build() {
    let mut w = World::new(1024);
    let (first, second) = (w.acquire("a"), w.acquire("a"));
    w.check_all();
    let retire = w.admin(|id| Input::Retire { id });
    let spawn = w.ready("a");
    assert!(w.is_granted(first), "an admitted build serves who waited for it");
    w.gone(spawn);
    assert_eq!(w.outcome(second), Some(&Outcome::Refused(Refusal::Retired)));
    assert_eq!(w.outcome(retire), Some(&Outcome::Answered(Answer::Ended(vec![]))));
    w.leave(first);
}

#[test]
fn an_unload_while_retiring_is_not_followed_by_a_new_build() {
    let mut w = World::new(1024);
    let (first, second) = (w.acquire("a"), w.acquire("a"));
    w.check_all();
    let retire = w.admin(|id| Input::Retire { id });
    w.ready("a");
    let evict = w.admin(|id| Input::Evict { id, key: key("a"), force: Force::No });
    w.leave(first);
    w.ended("a", Child::Asked);
    assert_eq!(w.outcome(second), Some(&Outcome::Refused(Refusal::Retired)));
    assert_eq!(w.outcome(evict), Some(&Outcome::Answered(Answer::Unloaded)));
    assert_eq!(w.outcome(retire), Some(&Outcome::Answered(Answer::Ended(vec![]))));
}

#[test]
fn a_shutdown_after_a_retire_answers_both_and_names_what_is_stuck() {
    let mut w = World::with(2048, catalog(&[("a", 600, ""), ("b", 600, ""), ("c", 600, "")]));
    let a = w.resident("a");
    w.acquire("b");
    w.check_all();
    w.acquire("c");
    let retire = w.admin(|id| Input::Retire { id });
    assert_eq!(w.outcome(retire), None, "a serves, b loads");
    let shutdown = w.admin(|id| Input::Shutdown { id });
    w.pass(9 * SECOND);
    w.ended("b", Child::Killed);
    w.check_all();
    w.pass(SECOND);
    for id in [retire, shutdown] {
        assert_eq!(w.outcome(id), Some(&Outcome::Answered(Answer::Ended(vec![key("a")]))));
    }
    let again = w.admin(|id| Input::Shutdown { id });
    assert_eq!(w.outcome(again), Some(&Outcome::Answered(Answer::Ended(vec![key("a")]))));
    w.leave(a);
}

#[test]
fn whoever_has_no_time_has_everything_killed_also_what_was_asked_to_end() {
    let mut w = World::with(2048, catalog(&[("a", 600, ""), ("b", 600, ""), ("c", 600, "")]));
    let (a, b) = (w.resident("a"), w.resident("b"));
    w.acquire("c");
    w.check_all();
    w.leave(a);
    w.admin(|id| Input::Retire { id });
    let polite = w.child("a", Child::Asked);
    let killed = w.admin(|id| Input::KillAll { id });
    assert_eq!(w.child("a", Child::Killed), polite);
    for model in ["a", "b", "c"] {
        w.ended(model, Child::Killed);
    }
    assert_eq!(w.outcome(killed), Some(&Outcome::Answered(Answer::Ended(vec![]))));
    w.leave(b);
}

#[test]
fn whoever_has_no_time_does_not_wait_for_a_stop_that_was_orderly() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    w.leave(a);
    let shutdown = w.admin(|id| Input::Shutdown { id });
    w.child("a", Child::Asked);
    let killed = w.admin(|id| Input::KillAll { id });
    w.ended("a", Child::Killed);
    for id in [shutdown, killed] {
        assert_eq!(w.outcome(id), Some(&Outcome::Answered(Answer::Ended(vec![]))));
    }
}

#[test]
fn a_retire_waits_for_no_load_that_nobody_waits_for() {
    // A model that is always there, and a load whose caller left.
    for (more, is_asked_for) in [("home = true", false), ("", true)] {
        let config = PoolConfig { host: host(2048), on_abandon: OnAbandon::Finish, ..PoolConfig::default() };
        let mut w = World::configured(config, catalog(&[("a", 600, more)]));
        w.feed(Input::Tick);
        let asked = is_asked_for.then(|| w.acquire("a"));
        w.check_all();
        let loading = w.child("a", Child::Loading);
        if let Some(asked) = asked {
            w.cancel(asked);
        }
        assert_eq!(w.child("a", Child::Loading), loading, "it goes on");
        let retire = w.admin(|id| Input::Retire { id });
        w.ended("a", Child::Killed);
        assert_eq!(w.outcome(retire), Some(&Outcome::Answered(Answer::Ended(vec![]))));
    }
}

#[test]
fn a_load_whose_last_waiter_leaves_while_retiring_is_not_waited_for() {
    let config = PoolConfig { host: host(2048), on_abandon: OnAbandon::Finish, ..PoolConfig::default() };
    let mut w = World::configured(config, catalog(&[("a", 600, "")]));
    let a = w.acquire("a");
    w.check_all();
    let retire = w.admin(|id| Input::Retire { id });
    w.child("a", Child::Loading);
    w.cancel(a);
    w.ended("a", Child::Killed);
    assert_eq!(w.outcome(retire), Some(&Outcome::Answered(Answer::Ended(vec![]))));
}

#[test]
fn the_end_of_a_stuck_child_does_not_rewrite_the_history_of_a_later_one() {
    let mut w = World::with(2048, catalog(&[("a", 600, "")]));
    let a = w.resident("a");
    w.leave(a);
    w.admin(|id| Input::UnloadIdle { id, key: key("a") });
    let stuck = w.child("a", Child::Asked);
    w.pass(15 * SECOND);
    w.resident("a");
    let later = w.child("a", Child::Serving);
    w.gone(later);
    w.gone(stuck);
    let view = w.pool.snapshot(w.now).entries.remove(0);
    let last = view.last_exit.expect("it crashed");
    assert_eq!((last.spawn, last.reason), (later, StopReason::Crash), "P4");
}

#[test]
fn an_engine_that_drained_at_the_last_moment_is_unloaded_and_not_called_busy() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    let evict = w.admin(|id| Input::Evict { id, key: key("a"), force: Force::No });
    let spawn = w.leave_untold(a);
    // Nothing is heard of it before its time is up.
    w.now = w.now.after(30 * SECOND);
    w.feed(Input::Tick);
    assert_eq!(w.child("a", Child::Asked), spawn);
    w.gone(spawn);
    w.feed(Input::Left { id: a, spawn });
    assert_eq!(w.outcome(evict), Some(&Outcome::Answered(Answer::Unloaded)));
}

#[test]
fn operators_that_went_away_get_no_answer() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    w.leave(a);
    let release = w.admin(|id| Input::ReleaseIdle { id });
    let unload = w.admin(|id| Input::UnloadIdle { id, key: key("a") });
    let retire = w.admin(|id| Input::Retire { id });
    let stays = w.admin(|id| Input::UnloadIdle { id, key: key("a") });
    for id in [release, unload, retire] {
        w.cancel(id);
    }
    w.ended("a", Child::Asked);
    assert_eq!(w.outcome(stays), Some(&Outcome::Answered(Answer::Unloaded)));
}

#[test]
fn a_load_that_nobody_waits_for_can_be_unloaded_and_one_that_is_waited_for_cannot() {
    let mut w = World::new(1024);
    let a = w.acquire("a");
    w.check_all();
    for force in [Force::No, Force::Yes] {
        let wish = w.admin(|id| Input::Evict { id, key: key("a"), force });
        let serving = Outcome::Answered(Answer::Serving(key("a")));
        assert_eq!(w.outcome(wish), (force == Force::No).then_some(&serving));
    }
    assert_eq!(w.outcome(a), Some(&Outcome::Refused(Refusal::Evicted(key("a")))));
    assert_eq!(w.phase("a"), Some(PhaseView::Stopping));
}

#[test]
fn a_retire_ends_although_callers_reach_their_drain_deadlines_every_second() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    w.pass(Duration::from_secs(11));
    let holder = Holder::default();
    let mut parked = Vec::new();
    let mut retired = None;
    for second in 0..40 {
        let ask = Ask::lease(ModelId::new("b").expect("an id"), holder.clone());
        parked.push(w.ask(Ask { drain_wait: Some(Duration::from_secs(5)), ..ask }));
        w.check_all();
        if second == 20 {
            retired = Some(w.admin(|id| Input::Retire { id }));
            assert!(parked.iter().all(|id| w.outcome(*id).is_some()), "who is parked is told at once");
        }
        w.pass(Duration::from_secs(1));
        assert!(w.leases.contains_key(&a), "P2");
    }
    let retired = retired.expect("asked for");
    assert_eq!(w.outcome(retired), None, "a serves");
    w.leave(a);
    w.obey();
    assert!(w.outcome(retired).is_some() && w.children.is_empty(), "P11");
    let busy = parked.iter().filter(|id| matches!(w.outcome(**id), Some(Outcome::Refused(Refusal::EngineBusy { .. }))));
    assert!(busy.count() >= 10, "deadlines came all the while");
}
