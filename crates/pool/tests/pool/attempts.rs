//! Traces of builds that nobody waits for: what they may cost others, and when they are tried again.
use crate::{
    cards::host as with_cards,
    machine::card,
    world::{Child, Outcome, World, catalog, host, in_lane, key, of_session, replica},
};
use motorpool_pool::{Answer, Ask, Force, Input, OnDeadline, PoolConfig, Refusal, RequestId, SizedBy, SlotChoice};
use motorpool_vocab::{Bytes, EventKind, Lane, ModelId, PhaseView, StopReason};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn reconcile(w: &mut World, model: &str, n: u32) {
    let targets = [(ModelId::new(model).expect("an id"), n)].into();
    w.admin(|id| Input::Reconcile { id, targets });
}

fn loading(w: &World) -> Vec<&str> {
    let loads = w.children.values().filter(|(_, child)| *child == Child::Loading);
    loads.map(|(key, _)| key.model().as_str()).collect()
}

/// Models on cards of so many GiB, with no engine yet.
fn on_card(gib: u64, models: &[(&str, u64, &str)]) -> World {
    let mut w = World::on(with_cards(SizedBy::Machine, &[gib]), catalog(models));
    w.read_cards();
    w
}

fn waits_in(w: &mut World, within: Duration) -> RequestId {
    let ask = Ask { queue_wait: Some(within), ..of_session("b", "s") };
    w.ask(ask)
}

#[test]
fn who_was_drained_for_a_build_that_nobody_waits_for_any_more_is_open_again_even_if_it_fits_now() {
    let mut w = World::new(1024);
    w.width = 2;
    w.resident("a");
    w.pass(11 * SECOND);
    reconcile(&mut w, "b", 1);
    waits_in(&mut w, 5 * SECOND);
    w.check_all();
    assert!(w.enter("a").is_none(), "it is drained for b");
    // In one step the request gives up and room appears.
    w.now = w.now.after(5 * SECOND);
    w.feed(Input::Host(host(4096)));
    assert_eq!(loading(&w), ["b"]);
    assert!(w.enter("a").is_some());
}

#[test]
fn an_attempt_that_is_measured_short_is_not_made_again_at_once() {
    let mut w = on_card(16, &[("h", 7168, "gpu_layers = 99\nhome = true")]);
    w.machine.foreign.insert(card(0), Bytes::gib(12));
    w.feed(Input::Tick);
    w.check_all();
    assert_eq!((w.children.len(), w.checks.len()), (0, 0));
    w.pass(10 * SECOND);
    assert_eq!(w.checks.len(), 1, "after a while it is");
}

#[test]
fn ambient_work_that_waits_locks_nobody_out() {
    let mut w = World::new(1024);
    let b = w.resident("b");
    w.leave(b);
    for _ in 0..64 {
        w.ask(in_lane("a", Lane::Ambient));
    }
    w.obey();
    assert_eq!(w.serving("b"), [0], "nobody goes for it");
    let a = w.acquire("a");
    w.obey();
    assert!(w.is_granted(a));
    let last = w.ask(in_lane("a", Lane::Ambient));
    assert!(matches!(w.outcome(last), Some(Outcome::Refused(Refusal::QueueFull { .. }))), "its own limit holds");
}

#[test]
fn ambient_work_for_what_never_fits_is_refused_without_a_line_of_denial() {
    let mut w = World::with(1024, catalog(&[("huge", 4096, "")]));
    let id = w.ask(in_lane("huge", Lane::Ambient));
    w.check_all();
    assert!(matches!(w.outcome(id), Some(Outcome::Refused(Refusal::CapacityDenied(_)))), "{:?}", w.outcome(id));
    assert!(w.denials.is_empty());
}

/// Three models that are always to be there, of 2 GiB each, and one that is not.
const HOMES: [(&str, u64, &str); 4] =
    [("h1", 2048, "home = true"), ("h2", 2048, "home = true"), ("h3", 2048, "home = true"), ("a", 2048, "")];

#[test]
fn a_build_that_somebody_waits_for_loads_before_those_that_nobody_waits_for() {
    let mut w = on_card(16, &HOMES);
    w.feed(Input::Tick);
    w.check_all();
    assert_eq!(loading(&w), ["h1"]);
    w.acquire("a");
    w.check_all();
    w.ready("h1");
    assert_eq!(loading(&w), ["a"]);
    w.obey();
    assert_eq!(w.children.len(), 4);
}

#[test]
fn lines_of_builds_that_nobody_waits_for_and_that_do_not_load_go_first() {
    let mut w = on_card(7, &HOMES);
    w.feed(Input::Tick);
    w.check_all();
    assert_eq!((w.phase("h2"), w.phase("h3")), (Some(PhaseView::WaitsForSlot), Some(PhaseView::WaitsForSlot)));
    w.acquire("a");
    w.check_all();
    assert_eq!(w.phase("a"), Some(PhaseView::WaitsForSlot));
    let stay = ["h2", "h3"].iter().filter(|model| w.phase(model) == Some(PhaseView::WaitsForSlot)).count();
    assert_eq!((stay, loading(&w)), (1, vec!["h1"]), "one of them is enough, and what loads goes on");
    w.ready("h1");
    assert_eq!(loading(&w), ["a"]);
}

#[test]
fn none_of_a_model_that_is_always_to_be_there_means_none() {
    let mut w = World::with(1024, catalog(&[("h", 600, "home = true")]));
    w.feed(Input::Tick);
    w.obey();
    reconcile(&mut w, "h", 0);
    w.obey();
    w.pass(600 * SECOND);
    assert_eq!((w.serving("h"), w.checks.len()), (vec![], 0));
    let asked = w.acquire("h");
    w.obey();
    assert!(w.is_granted(asked), "who asks for it gets it");
}

#[test]
fn the_last_engines_stay_whatever_their_numbers_are() {
    for (min, living) in [(1, vec![1]), (2, vec![1, 2])] {
        let replicas = format!("idle_ttl = \"0s\"\nreplicas = {{ min = {min}, max = 3 }}");
        let mut w = World::with(4096, catalog(&[("a", 600, &replicas)]));
        reconcile(&mut w, "a", 3);
        w.obey();
        reconcile(&mut w, "a", min);
        for n in (0..3).filter(|n| !living.contains(n)) {
            w.admin(|id| Input::Evict { id, key: replica("a", n), force: Force::No });
        }
        for n in living.iter().copied() {
            w.ask(Ask { replica: Some(n), ..Ask::resident(ModelId::new("a").expect("an id")) });
        }
        w.obey();
        w.pass(600 * SECOND);
        w.obey();
        assert_eq!(w.serving("a"), living, "at least {min}");
    }
}

#[test]
fn as_many_as_an_operator_wants_are_kept_while_requests_wait() {
    let mut w = World::with(4096, catalog(&[("a", 600, "")]));
    reconcile(&mut w, "a", 3);
    w.obey();
    for _ in 0..4 {
        w.acquire("a");
    }
    w.pass(3 * SECOND);
    let last = w.children.iter().find(|(_, (k, _))| *k == replica("a", 2)).map(|(spawn, _)| *spawn);
    w.gone(last.expect("three of them"));
    w.obey();
    assert_eq!(w.serving("a"), [0, 1, 2]);
}

#[test]
fn what_went_because_memory_ran_low_comes_home_a_while_later() {
    let mut w = on_card(20, &[("h", 7168, "gpu_layers = 99\nhome = true")]);
    w.feed(Input::Tick);
    w.obey();
    w.pass(60 * SECOND);
    w.use_card(0, Bytes::gib(13));
    w.read_cards();
    let pressed = |e: &EventKind| matches!(e, EventKind::Stopping { reason: StopReason::MemoryPressure, .. });
    assert_eq!(w.n_events(pressed), 1);
    w.obey();
    w.use_card(0, Bytes::ZERO);
    w.pass_reading(115);
    assert!(w.children.is_empty() && w.checks.is_empty(), "at once it would only have to go again");
    w.pass_reading(10);
    w.obey();
    assert_eq!(w.serving("h"), [0]);
}

#[test]
fn what_was_stopped_for_a_build_that_an_operator_takes_back_is_built_again() {
    let mut w = World::new(1024);
    let a = w.resident("a");
    w.leave(a);
    reconcile(&mut w, "b", 1);
    w.check_all();
    w.ended("a", Child::Asked);
    assert_eq!(loading(&w), ["b"]);
    reconcile(&mut w, "b", 0);
    w.obey();
    assert_eq!((w.serving("a"), w.serving("b")), (vec![0], vec![]));
}

#[test]
fn a_request_that_names_its_slot_itself_is_given_none() {
    let mut w = World::new(1024);
    w.width = 2;
    let ask = Ask { slots: SlotChoice::Engine, ..of_session("a", "s") };
    let s = w.ask(ask);
    w.obey();
    assert_eq!(w.lease(s).slot, None);
    let t = w.ask(of_session("a", "t"));
    assert_eq!(w.lease(t).slot, None, "the other one may be anywhere");
    w.leave(s);
    w.leave(t);
    let t = w.ask(of_session("a", "t"));
    assert_eq!(w.lease(t).slot, Some(0));
}

#[test]
fn nobody_is_cut_who_was_not_told_to_finish() {
    let config = PoolConfig { host: host(1850), on_deadline: OnDeadline::Cut, ..PoolConfig::default() };
    let mut w = World::configured(config, catalog(&[("a", 600, ""), ("c", 600, ""), ("b", 700, "")]));
    w.resident("a");
    w.resident("c");
    w.pass(11 * SECOND);
    let b = w.acquire("b");
    w.check_all();
    assert!(w.pool.snapshot(w.now).entries.iter().any(|e| e.key == key("a") && e.n_drainers == 1));
    // At the end of that drain both would have to go.
    w.now = w.now.after(30 * SECOND);
    w.feed(Input::Host(host(1250)));
    assert_eq!((w.serving("a"), w.serving("c")), (vec![0], vec![0]));
    w.pass(30 * SECOND);
    w.obey();
    assert_eq!((w.serving("a"), w.serving("c"), w.is_granted(b)), (vec![], vec![], true), "now both were told");
}

#[test]
fn a_build_that_waits_for_its_turn_and_that_nobody_waits_for_can_be_unloaded() {
    let mut w = on_card(16, &HOMES);
    w.feed(Input::Tick);
    w.check_all();
    assert_eq!((w.phase("h3"), w.committed()), (Some(PhaseView::WaitsForSlot), Bytes::gib(6)));
    let id = w.admin(|id| Input::Evict { id, key: key("h3"), force: Force::No });
    assert_eq!(w.outcome(id), Some(&Outcome::Answered(Answer::NotResident)));
    assert_eq!((w.phase("h3"), w.committed()), (Some(PhaseView::Idle), Bytes::gib(4)));
    w.acquire("a");
    w.check_all();
    let id = w.admin(|id| Input::Evict { id, key: key("a"), force: Force::No });
    assert_eq!(w.outcome(id), Some(&Outcome::Answered(Answer::Serving(key("a")))), "somebody waits for that one");
}
