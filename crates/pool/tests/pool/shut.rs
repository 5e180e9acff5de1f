//! Traces of what operators drain: D1 to D3.
use crate::world::{Child, Outcome, World, catalog, host, key, replica};
use motorpool_pool::{Answer, Ask, Input, PoolConfig, Refusal, Reload};
use motorpool_vocab::{Holder, ModelId, PhaseView, Spawn};
use std::time::Duration;

fn is_drained(w: &World, id: motorpool_pool::RequestId) -> bool {
    matches!(w.outcome(id), Some(Outcome::Refused(Refusal::Drained(_))))
}

fn drain(w: &mut World, model: &str) -> motorpool_pool::RequestId {
    w.admin(|id| Input::Drain { id, key: key(model) })
}

fn drain_second(w: &mut World) -> motorpool_pool::RequestId {
    w.admin(|id| Input::Drain { id, key: replica("a", 1) })
}

/// The only model is this from now on.
fn reload(w: &mut World, more: &str) {
    let terms = Box::new(PoolConfig { host: host(4096), ..PoolConfig::default() });
    w.admin(|id| Input::Reload { id, reload: Reload { catalog: catalog(&[("a", 600, more)]), terms } });
}

/// Two replicas, each with a lease.
fn two_busy() -> (World, [motorpool_pool::RequestId; 2]) {
    let mut w = World::with(4096, catalog(&[("a", 600, "replicas = { min = 2, max = 2 }")]));
    let first = w.acquire("a");
    w.obey();
    w.pass(Duration::from_secs(1));
    w.obey();
    let second = w.acquire("a");
    assert_eq!((w.replica_of(first), w.replica_of(second)), (0, 1));
    (w, [first, second])
}

fn admit(w: &mut World, model: &str) {
    w.feed(Input::Admit { model: ModelId::new(model).expect("an id") });
}

#[test]
fn a_drained_engine_ends_with_its_last_lease_however_late_and_takes_nobody_until_it_is_loaded() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    let asked = drain(&mut w, "a");
    let late = w.acquire("a");
    assert!(is_drained(&w, late), "D1");
    w.pass(Duration::from_hours(30));
    assert_eq!((w.phase("a"), w.outcome(asked)), (Some(PhaseView::Ready), None), "D3: no time ends it");
    w.leave(a);
    w.ended("a", Child::Asked);
    assert_eq!(w.outcome(asked), Some(&Outcome::Answered(Answer::Unloaded)));
    let again = w.acquire("a");
    w.pass(Duration::from_mins(30));
    assert!(is_drained(&w, again), "D2");
    assert_eq!(w.phase("a"), Some(PhaseView::Idle), "D2");
    admit(&mut w, "a");
    let welcome = w.acquire("a");
    w.check_all();
    w.ready("a");
    assert!(w.is_granted(welcome));
}

#[test]
fn a_load_ends_a_drain_that_goes_on_and_so_does_a_reset() {
    for how in ["load", "reset"] {
        let mut w = World::new(1024);
        let a = w.resident("a");
        let asked = drain(&mut w, "a");
        match how {
            "load" => admit(&mut w, "a"),
            _ => drop(w.admin(|id| Input::Reset { id, model: None })),
        }
        assert_eq!(w.outcome(asked), Some(&Outcome::Answered(Answer::Serving(key("a")))), "{how}");
        w.leave(a);
        assert_eq!(w.phase("a"), Some(PhaseView::Ready), "{how}: it serves on");
        let next = w.acquire("a");
        assert!(w.is_granted(next), "{how}");
    }
}

#[test]
fn a_load_answers_everybody_who_drained_it() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    let both = [drain(&mut w, "a"), drain(&mut w, "a")];
    admit(&mut w, "a");
    for asked in both {
        assert_eq!(w.outcome(asked), Some(&Outcome::Answered(Answer::Serving(key("a")))));
    }
    w.leave(a);
    assert_eq!(w.phase("a"), Some(PhaseView::Ready), "no drain is left that it would end for");
    let next = w.acquire("a");
    assert!(w.is_granted(next));
}

#[test]
fn one_of_two_who_drained_it_leaves_and_the_wish_of_the_other_stands() {
    for leaves_first in [true, false] {
        let mut w = World::new(1024);
        let a = w.resident("a");
        let (first, second) = (drain(&mut w, "a"), drain(&mut w, "a"));
        let (gone, stays) = if leaves_first { (first, second) } else { (second, first) };
        w.cancel(gone);
        let late = w.acquire("a");
        assert!(is_drained(&w, late), "D1");
        w.leave(a);
        w.ended("a", Child::Asked);
        assert_eq!(w.outcome(stays), Some(&Outcome::Answered(Answer::Unloaded)));
    }
}

#[test]
fn requests_go_to_another_replica_than_the_drained_one() {
    let mut w = World::with(2048, catalog(&[("a", 600, "replicas = { max = 2 }\nslots = 1\n")]));
    let a = w.resident("a");
    drain(&mut w, "a");
    let other = w.acquire("a");
    w.check_all();
    assert_eq!(w.outcome(other), None, "the second one is built for it");
    w.ready_spawn(Spawn(2));
    assert_eq!(w.replica_of(other), 1);
    let both = w.admin(|id| Input::Drain { id, key: replica("a", 1) });
    let refused = w.acquire("a");
    assert!(is_drained(&w, refused));
    let exact = w.ask(Ask { replica: Some(1), ..Ask::lease(ModelId::new("a").expect("an id"), Holder::default()) });
    assert!(is_drained(&w, exact) && w.outcome(both).is_none());
    w.leave(a);
    w.leave(other);
}

#[test]
fn one_that_loads_is_stopped_and_who_waited_is_told() {
    let mut w = World::new(1024);
    let a = w.acquire("a");
    w.check_all();
    drain(&mut w, "a");
    assert!(is_drained(&w, a));
    assert_eq!(w.phase("a"), Some(PhaseView::Stopping));
    w.ended("a", Child::Killed);
    assert_eq!(w.phase("a"), Some(PhaseView::Idle));
}

#[test]
fn what_is_not_there_and_what_is_at_home_stays_away() {
    let mut w = World::with(1024, catalog(&[("a", 300, "home = true\n")]));
    w.feed(Input::Tick);
    drain(&mut w, "a");
    w.obey();
    w.pass(Duration::from_hours(1));
    w.obey();
    assert_eq!(w.phase("a"), Some(PhaseView::Idle), "D2");
    let nothing = w.admin(|id| Input::Drain { id, key: key("nobody") });
    assert_eq!(w.outcome(nothing), Some(&Outcome::Answered(Answer::NotResident)));
}

#[test]
fn a_reload_has_no_drained_replica_take_over_from_one_that_goes() {
    let (mut w, [first, second]) = two_busy();
    drain_second(&mut w);
    let waits = w.acquire("a");
    reload(&mut w, "replicas = { min = 2, max = 2 }\nslots = 2");
    w.leave(second);
    w.obey();
    assert_eq!((w.outcome(waits), w.serving("a")), (None, vec![0]), "D1, D2");
    w.leave(first);
    w.obey();
    assert_eq!(w.replica_of(waits), 0);
}

#[test]
fn who_waits_for_a_replica_that_is_one_too_many_is_sent_to_no_drained_one() {
    let (mut w, [first, second]) = two_busy();
    drain(&mut w, "a");
    let waits = w.acquire("a");
    w.leave(first);
    w.obey();
    assert_eq!((w.outcome(waits), w.serving("a")), (None, vec![1]), "it waits for the other one");
    reload(&mut w, "replicas = { max = 1 }");
    assert!(is_drained(&w, waits), "D1: {:?}", w.outcome(waits));
    w.leave(second);
    w.obey();
    assert!(w.serving("a").is_empty(), "D2");
}

#[test]
fn requests_for_a_drained_replica_go_to_one_that_stays_before_one_that_goes() {
    let (mut w, _) = two_busy();
    drain(&mut w, "a");
    reload(&mut w, "replicas = { min = 2, max = 3 }\nslots = 2");
    let new = w.acquire("a");
    w.obey();
    assert_eq!(w.replica_of(new), 2, "N2: the second one ends");
}
