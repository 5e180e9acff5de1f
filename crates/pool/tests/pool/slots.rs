//! Whose turn it is to load.
use crate::{
    cards::host,
    world::{Child, Outcome, World, catalog, key},
};
use motorpool_pool::{Answer, Input, LoadSlots, PoolConfig, Refusal, SizedBy};
use motorpool_vocab::{Bytes, EventKind, PhaseView};
use std::{num::NonZeroU32, time::Duration};

/// Models of 2 GiB, on any card, and two that compute on the processor.
const MODELS: [(&str, u64, &str); 5] = [
    ("a", 2048, ""),
    ("b", 2048, ""),
    ("c", 2048, ""),
    ("cpu", 1024, "gpu_layers = 0"),
    ("cpu2", 1024, "gpu_layers = 0"),
];

fn world(gib: &[u64], load_slots: LoadSlots) -> World {
    let config = PoolConfig { host: host(SizedBy::Machine, gib), load_slots, ..PoolConfig::default() };
    let mut w = World::configured(config, catalog(&MODELS));
    w.read_cards();
    w
}

fn one_each() -> LoadSlots {
    LoadSlots::default()
}

fn loading(w: &World) -> Vec<String> {
    let loads = w.children.values().filter(|(_, child)| *child == Child::Loading);
    loads.map(|(key, _)| key.model().to_string()).collect()
}

fn acquire(w: &mut World, models: &[&str]) -> Vec<motorpool_pool::RequestId> {
    let ids = models.iter().map(|model| w.acquire(model)).collect();
    w.check_all();
    ids
}

#[test]
fn one_engine_at_a_time_loads_on_a_card_and_the_next_has_its_line_already() {
    let mut w = world(&[16], one_each());
    acquire(&mut w, &["a", "b", "c"]);
    assert_eq!(loading(&w), ["a"]);
    assert_eq!(w.phase("b"), Some(PhaseView::WaitsForSlot));
    assert_eq!(w.committed(), Bytes::gib(6), "B2: what waits for its turn has its line");
    w.ready("a");
    assert_eq!(loading(&w), ["b"], "first come, first served");
    w.gone(w.child("b", Child::Loading));
    assert_eq!(loading(&w), ["c"], "a load that failed gives its slot back");
}

#[test]
fn cards_and_system_memory_have_slots_of_their_own() {
    let mut w = world(&[4, 3], one_each());
    acquire(&mut w, &["a", "b", "cpu", "cpu2"]);
    assert_eq!(loading(&w), ["a", "b", "cpu"]);
    assert_eq!(w.phase("cpu2"), Some(PhaseView::WaitsForSlot));
    w.ready("cpu");
    assert_eq!(w.children.len(), 4);
}

#[test]
fn a_wider_slot_takes_more_and_one_for_all_takes_one_of_everything() {
    let two = LoadSlots::PerDevice(NonZeroU32::new(2).expect("not zero"));
    let mut w = world(&[16], two);
    acquire(&mut w, &["a", "b", "c"]);
    assert_eq!(loading(&w), ["a", "b"]);
    let mut w = world(&[4, 3], LoadSlots::OneForAll);
    acquire(&mut w, &["a", "b", "cpu"]);
    assert_eq!(loading(&w), ["a"]);
    w.ready("a");
    assert_eq!(loading(&w), ["b"]);
}

#[test]
fn a_waiter_that_everybody_left_gives_its_line_and_its_place_back() {
    let mut w = world(&[16], one_each());
    let ids = acquire(&mut w, &["a", "b", "c"]);
    w.cancel(ids[1]);
    assert_eq!((w.phase("b"), w.committed()), (Some(PhaseView::Idle), Bytes::gib(4)));
    assert_eq!(w.n_events(|e| matches!(e, EventKind::Released { key: k, .. } if *k == key("b"))), 1);
    w.ready("a");
    assert_eq!(loading(&w), ["c"]);
}

#[test]
fn who_retires_or_shuts_down_lets_nobody_wait_for_a_turn() {
    for close in [|id| Input::Retire { id }, |id| Input::Shutdown { id }] {
        let mut w = world(&[16], one_each());
        let ids = acquire(&mut w, &["a", "b"]);
        let closed = w.admin(close);
        let refused = w.outcome(ids[1]);
        assert!(matches!(refused, Some(Outcome::Refused(Refusal::Retired | Refusal::ShuttingDown))), "{refused:?}");
        w.obey();
        w.leases.keys().copied().collect::<Vec<_>>().into_iter().for_each(|id| w.leave(id));
        w.obey();
        assert_eq!(w.outcome(closed), Some(&Outcome::Answered(Answer::Ended(vec![]))), "P11");
        assert_eq!(w.committed(), Bytes::ZERO, "P9");
    }
}

#[test]
fn what_waits_for_its_turn_is_no_victim_and_serves_whoever_asks_for_it() {
    let mut w = world(&[5], one_each());
    acquire(&mut w, &["a", "b"]);
    let unloaded = w.admin(|id| Input::UnloadIdle { id, key: key("b") });
    assert_eq!(w.outcome(unloaded), Some(&Outcome::Answered(Answer::Serving(key("b")))));
    let c = acquire(&mut w, &["c"])[0];
    w.pass(Duration::from_secs(10));
    assert_eq!((w.phase("b"), w.phase("c")), (Some(PhaseView::WaitsForSlot), Some(PhaseView::WaitsForRoom)));
    w.cancel(c);
    w.ready("a");
    w.ready("b");
}

#[test]
fn a_load_that_stalls_gives_its_slot_to_the_next() {
    let mut w = world(&[16], one_each());
    acquire(&mut w, &["a", "b"]);
    w.pass(Duration::from_secs(61));
    assert_eq!(loading(&w), ["b"]);
}

/// Models over both cards in opposite order, and one on each, as their operator wants it.
fn over_two_cards() -> World {
    let models = [
        ("x", 0, "devices = [\"GPU-0\", \"GPU-1\"]\ngpu_layers = 99"),
        ("y", 0, "devices = [\"GPU-1\", \"GPU-0\"]\ngpu_layers = 99"),
        ("first", 1024, "devices = [\"GPU-0\"]\ngpu_layers = 99"),
        ("second", 1024, "devices = [\"GPU-1\"]\ngpu_layers = 99"),
    ];
    let mut w = World::on(host(SizedBy::Machine, &[8, 8]), catalog(&models));
    w.read_cards();
    w
}

/// `model` is asked for and its header read.
fn build(w: &mut World, model: &str) {
    w.acquire(model);
    let (build, _) = w.checks.remove(0);
    w.feed(Input::Checked { build, result: Ok(crate::hosts::with_header()) });
}

#[test]
fn two_loads_over_two_cards_in_opposite_order_do_not_wait_for_each_other() {
    let mut w = over_two_cards();
    build(&mut w, "x");
    build(&mut w, "y");
    let lines = w.pool.snapshot(w.now).pool.memory;
    assert!(lines[0].committed > Bytes::ZERO && lines[1].committed > Bytes::ZERO, "over both: {lines:?}");
    assert_eq!((loading(&w), w.phase("y")), (vec!["x".to_owned()], Some(PhaseView::WaitsForSlot)));
    w.ready("x");
    assert_eq!(loading(&w), ["y"]);
    w.ready("y");
}

#[test]
fn slots_of_several_cards_are_taken_together_and_nobody_younger_overtakes_on_one_of_them() {
    let mut w = over_two_cards();
    build(&mut w, "first");
    build(&mut w, "y");
    build(&mut w, "second");
    assert_eq!(loading(&w), ["first"], "all or nothing: y holds no slot of the card that is free");
    assert_eq!(w.phase("second"), Some(PhaseView::WaitsForSlot), "y came before it");
    w.ready("first");
    assert_eq!(loading(&w), ["y"]);
    w.ready("y");
    w.ready("second");
}
