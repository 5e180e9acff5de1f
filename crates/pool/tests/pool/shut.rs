//! Traces of what operators drain: D1 to D3.
use crate::world::{Child, Outcome, World, catalog, key, replica};
use motorpool_pool::{Answer, Ask, Input, Refusal};
use motorpool_vocab::{Holder, ModelId, PhaseView, Spawn};
use std::time::Duration;

fn is_drained(w: &World, id: motorpool_pool::RequestId) -> bool {
    matches!(w.outcome(id), Some(Outcome::Refused(Refusal::Drained(_))))
}

fn drain(w: &mut World, model: &str) -> motorpool_pool::RequestId {
    w.admin(|id| Input::Drain { id, key: key(model) })
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
