//! Memory that runs low by others' doing.
use crate::{
    cards::{host, world},
    machine::{Health, card},
    world::{Child, World, catalog},
};
use motorpool_pool::{Exit, Host, Input, MemorySight, SizedBy};
use motorpool_vocab::{Bytes, DeviceId, EventKind, FailureClass, PhaseView, StopReason};
use std::time::Duration;

const MINUTE: Duration = Duration::from_mins(1);

fn pressed_out(w: &World) -> Vec<String> {
    let reason = |kind: &EventKind| match kind {
        EventKind::Stopping { key, reason: StopReason::MemoryPressure, .. } => Some(key.model().to_string()),
        _ => None,
    };
    w.events.iter().filter_map(|event| reason(&event.kind)).collect()
}

fn began(w: &World, device: Option<&DeviceId>) -> usize {
    w.n_events(|e| matches!(e, EventKind::Pressure { device: d, .. } if d.as_ref() == device))
}

fn ended(w: &World, device: Option<&DeviceId>) -> usize {
    w.n_events(|e| *e == EventKind::PressureOver { device: device.cloned() })
}

#[test]
fn a_card_that_we_filled_ourselves_and_that_is_idle_is_left_alone() {
    let host = host(SizedBy::Machine, &[24]);
    let mut w = World::on(host, catalog(&[("full", 23_347, "gpu_layers = 99\nidle_ttl = \"0s\"")]));
    w.read_cards();
    w.idles("full");
    w.pass(10 * MINUTE);
    w.use_card(0, Bytes::mib(400));
    w.pass_reading(120);
    assert_eq!((pressed_out(&w).len(), began(&w, Some(&card(0)))), (0, 0));
    assert_eq!(w.phase("full"), Some(PhaseView::Ready));
}

/// Idle: c, used before a; b, used just now.
fn idle_in_order() -> World {
    let mut w = world(&[20]);
    w.idles("c");
    w.pass(Duration::from_secs(1));
    w.idles("a");
    w.pass_reading(60);
    w.idles("b");
    w
}

#[test]
fn others_on_a_card_send_the_idle_away_one_by_one_until_there_is_enough() {
    let mut w = idle_in_order();
    w.use_card(0, Bytes::mib(2_500));
    w.read_cards();
    assert_eq!((pressed_out(&w), began(&w, Some(&card(0)))), (vec!["c".to_owned()], 1), "used before a");
    w.read_cards();
    assert_eq!(pressed_out(&w), ["c"], "its bytes are not back");
    w.ended("c", Child::Asked);
    assert_eq!(pressed_out(&w), ["c"], "3.3 GiB are free");
    assert_eq!(ended(&w, Some(&card(0))), 1);
}

#[test]
fn the_next_one_goes_by_a_reading_after_the_last_ones_memory_is_back_and_nobody_who_was_used_goes() {
    let mut w = idle_in_order();
    w.use_card(0, Bytes::gib(8));
    w.read_cards();
    w.ended("c", Child::Asked);
    assert_eq!(pressed_out(&w), ["c", "a"], "read when the memory of the first was back: still too little");
    w.ended("a", Child::Asked);
    w.use_card(0, Bytes::gib(13));
    w.pass_reading(50);
    assert_eq!(pressed_out(&w), ["c", "a"], "b was used a minute ago at most");
    w.pass_reading(15);
    assert_eq!(pressed_out(&w), ["c", "a", "b"]);
}

#[test]
fn nothing_busy_goes_and_a_card_that_cannot_be_read_is_not_judged() {
    let mut w = world(&[8]);
    let busy = w.resident("c");
    w.pass(2 * MINUTE);
    w.use_card(0, Bytes::mib(4_500));
    w.pass_reading(30);
    assert_eq!((pressed_out(&w).len(), began(&w, Some(&card(0)))), (0, 1));
    w.health(0, Health::Missing);
    w.leave(busy);
    w.pass(2 * MINUTE);
    w.read_cards();
    assert!(pressed_out(&w).is_empty());
    w.health(0, Health::Well);
    assert_eq!(pressed_out(&w), ["c"]);
}

#[test]
fn an_allocation_that_failed_is_pressure_until_enough_is_free() {
    let mut w = World::on(host(SizedBy::Machine, &[8]), catalog(&[("c", 3072, ""), ("d", 3600, "")]));
    w.read_cards();
    w.idles("c");
    w.pass_reading(60);
    w.acquire("d");
    w.check_all();
    let spawn = w.child("d", Child::Loading);
    w.children.remove(&spawn);
    w.machine.held.insert(spawn, [(card(0), Bytes::ZERO)].into());
    w.use_card(0, Bytes::gib(4));
    let exit = Exit { class: Some(FailureClass::OutOfDeviceMemory), ..Exit::default() };
    w.feed(Input::Gone { spawn, exit });
    assert_eq!(pressed_out(&w), ["c"]);
}

#[test]
fn an_allocation_that_failed_where_plenty_is_free_sends_nobody_away() {
    let mut w = world(&[20]);
    w.idles("c");
    w.pass_reading(60);
    w.acquire("a");
    w.check_all();
    let spawn = w.child("a", Child::Loading);
    w.children.remove(&spawn);
    w.machine.held.remove(&spawn);
    let exit = Exit { class: Some(FailureClass::OutOfDeviceMemory), ..Exit::default() };
    w.feed(Input::Gone { spawn, exit });
    w.pass_reading(10);
    assert!(pressed_out(&w).is_empty());
}

/// Two idle models in 16 GiB of system memory.
fn in_memory() -> World {
    let host = Host { ram: Bytes::gib(16), ..Host::default() };
    let mut w = World::on(host, catalog(&[("a", 2048, ""), ("b", 2048, "")]));
    w.idles("a");
    w.idles("b");
    w.pass(MINUTE);
    w
}

impl World {
    pub(crate) fn memory(&mut self, available: Option<u64>, stalled: Option<u16>) {
        let available = available.map(Bytes::mib);
        self.feed(Input::Memory(MemorySight { foreign: Some(Bytes::ZERO), available, stalled, servers: vec![] }));
    }
}

#[test]
fn little_system_memory_sends_one_away_and_the_next_after_a_reading_of_its_own() {
    let mut w = in_memory();
    w.memory(Some(1_311), Some(0));
    assert!(pressed_out(&w).is_empty(), "8 % of 16 GiB are 1,310.72 MiB");
    w.memory(Some(1_310), Some(0));
    assert_eq!((pressed_out(&w), began(&w, None)), (vec!["a".to_owned()], 1));
    w.memory(Some(1_310), Some(0));
    w.ended("a", Child::Asked);
    w.memory(Some(1_310), Some(0));
    assert_eq!(pressed_out(&w), ["a"], "this reading may have begun before its memory was back");
    w.pass(Duration::from_secs(5));
    w.memory(Some(1_900), Some(0));
    assert_eq!((pressed_out(&w), ended(&w, None)), (vec!["a".to_owned(), "b".to_owned()], 0), "until 1.5 times that");
    w.memory(Some(1_967), Some(0));
    assert_eq!(ended(&w, None), 1);
}

#[test]
fn tasks_that_stand_still_for_memory_are_pressure_and_nothing_known_is_none() {
    let mut w = in_memory();
    w.memory(None, None);
    w.memory(Some(9_000), Some(999));
    assert!(pressed_out(&w).is_empty());
    w.memory(Some(9_000), Some(1_000));
    assert_eq!(pressed_out(&w), ["a"]);
    w.ended("a", Child::Asked);
    w.pass(Duration::from_secs(5));
    w.memory(None, Some(600));
    assert_eq!((pressed_out(&w).len(), ended(&w, None)), (1, 1));
}

#[test]
fn what_stood_still_before_one_went_sends_nobody_else_away_unless_little_is_available_too() {
    let after_one = || {
        let mut w = in_memory();
        w.memory(Some(9_000), Some(6_000));
        w.ended("a", Child::Asked);
        w.pass(Duration::from_secs(5));
        w
    };
    let mut w = after_one();
    for stalled in [3_600, 2_200, 1_300] {
        w.memory(Some(9_000), Some(stalled));
        w.pass(Duration::from_millis(4_900));
    }
    w.memory(None, Some(1_000));
    assert_eq!(pressed_out(&w), ["a"], "the average tells of the time before it went");
    w.pass(Duration::from_secs(1));
    w.memory(Some(9_000), Some(1_000));
    assert_eq!(pressed_out(&w), ["a", "b"], "this was since then");
    let mut w = after_one();
    w.memory(Some(1_310), Some(3_600));
    assert_eq!(pressed_out(&w), ["a", "b"]);
}
