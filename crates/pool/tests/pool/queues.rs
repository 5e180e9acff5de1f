//! Traces of queues: lanes, limits, quiet times, and what operators do to them.
use crate::world::{Child, Outcome, World, catalog, host, in_lane, key};
use motorpool_pool::{Answer, Ask, Direction, Input, OnDeadline, PoolConfig, Queue, QueueTerms, Refusal, RequestId};
use motorpool_vocab::{EntryView, Holder, Lane, ModelId};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn view(w: &World, model: &str) -> EntryView {
    w.pool.snapshot(w.now).entries.into_iter().find(|e| e.key == key(model)).expect("an entry")
}

fn pending(w: &World) -> Vec<u64> {
    view(w, "a").pending.iter().map(|p| p.id).collect()
}

/// Model a with `width` slots, nobody in.
fn idle(width: u32) -> World {
    let mut w = World::new(1024);
    w.width = width;
    let id = w.resident("a");
    w.leave(id);
    w
}

#[test]
fn background_work_leaves_a_slot_to_whoever_watches() {
    let mut w = idle(3);
    let ids: Vec<_> = (0..4).map(|_| w.ask(in_lane("a", Lane::Background))).collect();
    assert_eq!(w.leases.len(), 2);
    let watched = w.ask(in_lane("a", Lane::Interactive));
    assert!(w.is_granted(watched));
    w.leave(watched);
    assert!(!w.is_granted(ids[2]), "the slot is kept");
    w.leave(ids[0]);
    assert!(w.is_granted(ids[2]) && !w.is_granted(ids[3]));
}

#[test]
fn old_background_work_goes_before_young_interactive_work_once_a_slot_of_its_lane_is_free() {
    let mut w = idle(2);
    let held = [w.ask(in_lane("a", Lane::Background)), w.ask(in_lane("a", Lane::Interactive))];
    let old = w.ask(in_lane("a", Lane::Background));
    w.pass(61 * SECOND);
    let young = w.ask(in_lane("a", Lane::Interactive));
    w.leave(held[1]);
    assert!(w.is_granted(young) && !w.is_granted(old), "that slot is not for background work");
    let next = w.ask(in_lane("a", Lane::Interactive));
    w.leave(held[0]);
    assert!(w.is_granted(old) && !w.is_granted(next));
}

#[test]
fn a_request_inside_another_one_may_use_the_slot_that_is_kept() {
    let mut w = idle(2);
    w.ask(in_lane("a", Lane::Background));
    let holder = Holder { lane: Lane::Background, parent: Some("req_1".into()), ..Holder::default() };
    let child = w.ask(Ask::lease(ModelId::new("a").expect("an id"), holder));
    assert!(w.is_granted(child));
}

#[test]
fn ambient_work_begins_when_nothing_else_was_there_for_three_minutes() {
    let mut w = idle(2);
    let ambient = w.ask(in_lane("a", Lane::Ambient));
    w.pass(179 * SECOND);
    assert_eq!(w.outcome(ambient), None);
    let warm = w.enter("a").expect("ambient work lets everybody pass");
    w.pass(300 * SECOND);
    assert_eq!(w.outcome(ambient), None, "somebody is served all the time");
    w.leave(warm);
    w.pass(179 * SECOND);
    assert_eq!(w.outcome(ambient), None);
    w.pass(SECOND);
    assert!(w.is_granted(ambient));
}

#[test]
fn ambient_work_takes_nobodys_place_and_holds_no_engine() {
    let mut w = idle(1);
    let ambient = w.ask(in_lane("b", Lane::Ambient));
    w.obey();
    assert_eq!((w.outcome(ambient), w.serving("a")), (None, vec![0]), "a is idle and stays");
    assert!(w.denials.is_empty());
    w.admin(|id| Input::UnloadIdle { id, key: key("a") });
    w.obey();
    assert!(w.is_granted(ambient), "nobody ever worked with b, and now there is room");
    let more = w.ask(in_lane("b", Lane::Ambient));
    w.leave(ambient);
    assert!(w.is_granted(more));
    w.leave(more);
    let c = w.acquire("c");
    w.obey();
    assert!(w.is_granted(c), "an engine that only ambient work used is as idle as any");
}

#[test]
fn without_a_quiet_time_ambient_work_begins_at_once_after_all_other() {
    let queue = QueueTerms { quiet: Duration::ZERO, ..QueueTerms::default() };
    let mut w =
        World::configured(PoolConfig { host: host(1024), queue, ..PoolConfig::default() }, catalog(&[("a", 600, "")]));
    let held = w.resident("a");
    let (ambient, other) = (w.ask(in_lane("a", Lane::Ambient)), w.ask(in_lane("a", Lane::Background)));
    w.leave(held);
    assert!(w.is_granted(other) && !w.is_granted(ambient));
    w.leave(other);
    assert!(w.is_granted(ambient));
}

/// A request for `a` that came with this key.
fn with_key(key: &str) -> Ask {
    let holder = Holder { owner: Some(key.into()), ..Holder::default() };
    Ask::lease(ModelId::new("a").expect("an id"), holder)
}

#[test]
fn one_keys_flood_neither_delays_another_nor_fills_the_queue_for_it() {
    let queue = QueueTerms { per_model: 8, in_all: 100, ..QueueTerms::default() };
    let mut w =
        World::configured(PoolConfig { host: host(1024), queue, ..PoolConfig::default() }, catalog(&[("a", 600, "")]));
    let held = w.resident("a");
    let flood: Vec<_> = (0..7).map(|_| w.ask(with_key("flood"))).collect();
    let refused = Some(&Outcome::Refused(Refusal::QueueFull { queue: Queue::Key, limit: 6 }));
    assert_eq!((w.outcome(flood[5]), w.outcome(flood[6])), (None, refused), "three quarters of the queue");
    let own = w.ask(Ask { most_waiting: Some(1), ..with_key("few") });
    let more = w.ask(Ask { most_waiting: Some(1), ..with_key("few") });
    assert_eq!(w.outcome(more), Some(&Outcome::Refused(Refusal::QueueFull { queue: Queue::Key, limit: 1 })));
    let other = w.ask(with_key("other"));
    w.leave(held);
    assert!(w.is_granted(flood[0]));
    w.leave(flood[0]);
    let (first, second) = if w.is_granted(own) { (own, other) } else { (other, own) };
    w.pass(Duration::from_mins(2));
    w.leave(first);
    assert!(w.is_granted(second), "the flood is overdue, and it had its turn");
    w.leave(second);
    assert!(w.is_granted(flood[1]));
}

#[test]
fn beyond_so_many_a_request_is_refused_at_once_unless_there_is_a_slot() {
    let queue = QueueTerms { per_model: 3, in_all: 5, ..QueueTerms::default() };
    let models = [("a", 100, ""), ("b", 100, ""), ("c", 100, "")];
    let mut w = World::configured(PoolConfig { host: host(1024), queue, ..PoolConfig::default() }, catalog(&models));
    let full = |w: &World, id: RequestId, of: Option<&str>| {
        let queue = of.map_or(Queue::All, |of| Queue::Model(ModelId::new(of).expect("an id")));
        let limit = if of.is_some() { 3 } else { 5 };
        assert_eq!(w.outcome(id), Some(&Outcome::Refused(Refusal::QueueFull { queue, limit })));
    };
    for model in ["a", "a", "a"] {
        w.acquire(model);
    }
    let fourth = w.acquire("a");
    full(&w, fourth, Some("a"));
    let load = w.ask(Ask::resident(ModelId::new("a").expect("an id")));
    assert_eq!(w.outcome(load), None, "who only wants it there does not count");
    for model in ["b", "b"] {
        w.acquire(model);
    }
    let sixth = w.acquire("c");
    full(&w, sixth, None);
    assert_eq!(w.checks.len(), 2, "nothing was begun for it");
    w.width = 3;
    w.obey();
    while let Some(id) = w.leases.keys().next().copied() {
        w.leave(id);
    }
    let background: Vec<_> = (0..6).map(|_| w.ask(in_lane("b", Lane::Background))).collect();
    assert_eq!(w.leases.len(), 2);
    full(&w, background[5], Some("b"));
    let watched = w.acquire("b");
    assert!(w.is_granted(watched), "a slot is kept for it, however many wait in the other lane");
}

#[test]
fn background_work_waits_without_end_and_interactive_work_ten_minutes() {
    let mut w = idle(1);
    let _held = w.acquire("a");
    let (background, interactive) = (w.ask(in_lane("a", Lane::Background)), w.ask(in_lane("a", Lane::Interactive)));
    w.pass(Duration::from_mins(10));
    assert!(matches!(w.outcome(interactive), Some(Outcome::Refused(Refusal::QueueTimeout { .. }))));
    w.pass(Duration::from_hours(100));
    assert_eq!(w.outcome(background), None);
}

#[test]
fn an_operator_sees_who_waits_and_takes_out_or_moves_whom_it_wants() {
    let mut w = idle(1);
    let held = w.acquire("a");
    let ids: Vec<_> = (0..3).map(|_| w.ask(in_lane("a", Lane::Background))).collect();
    let first = w.ask(in_lane("a", Lane::Interactive));
    assert_eq!(pending(&w), [first.0, ids[0].0, ids[1].0, ids[2].0], "as they would be served");
    assert_eq!(view(&w, "a").leases[0].id, held.0);
    let move_it = |w: &mut World, ticket, direction| {
        let id = w.admin(|id| Input::Move { id, ticket, direction });
        w.outcome(id).cloned()
    };
    let done = |answer| Some(Outcome::Answered(answer));
    assert_eq!(move_it(&mut w, ids[2], Direction::Up), done(Answer::Requeued));
    assert_eq!(pending(&w), [first.0, ids[0].0, ids[2].0, ids[1].0]);
    assert_eq!(move_it(&mut w, ids[2], Direction::Up), done(Answer::Requeued));
    assert_eq!(move_it(&mut w, ids[2], Direction::Up), done(Answer::AtTheEnd), "its lane ends there");
    assert_eq!(pending(&w), [first.0, ids[2].0, ids[0].0, ids[1].0]);
    assert_eq!(move_it(&mut w, ids[0], Direction::Down), done(Answer::Requeued));
    assert_eq!(pending(&w), [first.0, ids[2].0, ids[1].0, ids[0].0]);
    assert_eq!(move_it(&mut w, RequestId(999), Direction::Up), done(Answer::NoTicket));
    let out = w.admin(|id| Input::Withdraw { id, ticket: ids[2] });
    assert_eq!(w.outcome(out), done(Answer::Requeued).as_ref());
    assert_eq!(w.outcome(ids[2]), Some(&Outcome::Refused(Refusal::Cancelled)));
    let out = w.admin(|id| Input::Withdraw { id, ticket: held });
    assert_eq!(w.outcome(out), done(Answer::NoTicket).as_ref(), "it does not wait any more");
}

#[test]
fn age_goes_before_an_operators_word() {
    let mut w = idle(1);
    let _held = w.acquire("a");
    let old = w.ask(Ask { queue_wait: Some(Duration::from_hours(1)), ..in_lane("a", Lane::Interactive) });
    w.pass(61 * SECOND);
    let young = w.acquire("a");
    let id = w.admin(|id| Input::Move { id, ticket: young, direction: Direction::Up });
    assert_eq!(w.outcome(id), Some(&Outcome::Answered(Answer::AtTheEnd)));
    assert_eq!(pending(&w), [old.0, young.0]);
}

#[test]
fn what_a_caller_says_of_its_importance_orders_a_lane_and_lets_it_past_a_models_priority() {
    let models = [("a", 600, "priority = 5"), ("b", 600, "")];
    let mut w = World::with(1024, catalog(&models));
    let _held = w.resident("a");
    let ask = |priority| Ask { priority: Some(priority), ..in_lane("a", Lane::Interactive) };
    let (low, high) = (w.ask(ask(-1)), w.ask(ask(3)));
    assert_eq!(pending(&w), [high.0, low.0]);
    w.cancel(low);
    w.cancel(high);
    w.pass(11 * SECOND);
    w.acquire("b");
    w.check_all();
    assert_eq!(view(&w, "a").n_drainers, 0, "a is more important than b");
    w.ask(Ask { priority: Some(5), ..in_lane("b", Lane::Interactive) });
    assert_eq!(view(&w, "a").n_drainers, 1);
}

#[test]
fn where_it_is_so_configured_what_did_not_drain_in_time_is_ended_if_its_room_is_still_needed() {
    let models = [("a", 600, ""), ("b", 600, "")];
    let config = || PoolConfig { host: host(1024), on_deadline: OnDeadline::Cut, ..PoolConfig::default() };
    let mut w = World::configured(config(), catalog(&models));
    let _held = w.resident("a");
    w.pass(11 * SECOND);
    let b = w.acquire("b");
    w.check_all();
    w.pass(29 * SECOND);
    assert_eq!(view(&w, "a").n_drainers, 1);
    w.pass(SECOND);
    w.ended("a", Child::Killed);
    w.ready("b");
    assert!(w.is_granted(b));
}
