//! Lines that follow from what was measured, what that puts over a bound, and readings of the machine.
use crate::{
    machine::card,
    world::{Child, Outcome, World, catalog, facts, host, key},
};
use motorpool_pool::{Card, Force, Host, HostShape, Input, Measured, MemorySight, Refusal};
use motorpool_vocab::{Bytes, EntryView, EventKind, FileId, PhaseView, Spawn, StopReason};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

fn file() -> FileId {
    facts().files[0].0
}

/// MiB of private memory and of the one file that all models share here.
fn measured(private: u64, mapped: u64) -> Measured {
    let files = if mapped == 0 { BTreeMap::new() } else { [(file(), Bytes::mib(mapped))].into() };
    Measured { private: Some(Bytes::mib(private)), files: Some(files), ..Measured::default() }
}

impl World {
    fn measure(&mut self, spawn: Spawn, private: u64, mapped: u64) {
        self.feed(Input::Measured { spawn, measured: measured(private, mapped) });
    }

    fn read_ram(&mut self, foreign: Option<Bytes>) {
        self.feed(Input::Memory(MemorySight { foreign, ..MemorySight::default() }));
    }

    fn view_of(&self, model: &str) -> EntryView {
        self.pool.snapshot(self.now).entries.into_iter().find(|e| e.key == key(model)).expect("an entry")
    }

    /// `model` resident and idle.
    fn idle(&mut self, model: &str) -> Spawn {
        let id = self.resident(model);
        self.leave(id);
        self.child(model, Child::Serving)
    }
}

fn stopped_by_overflow(w: &World) -> Vec<String> {
    let reason = |kind: &EventKind| match kind {
        EventKind::Stopping { key, reason: StopReason::Overflow, .. } => Some(key.model().to_string()),
        _ => None,
    };
    w.events.iter().filter_map(|event| reason(&event.kind)).collect()
}

#[test]
fn a_line_follows_what_was_measured_and_both_are_shown() {
    let mut w = World::new(2000);
    let a = w.idle("a");
    let before = w.view_of("a");
    assert_eq!((before.reserved, before.planned, before.measured), (Bytes::mib(600), Bytes::mib(600), None));
    w.measure(a, 700, 0);
    let view = w.view_of("a");
    let (planned, seen) = (Bytes::mib(600), Bytes::mib(700));
    assert_eq!((view.reserved, view.planned, view.measured), (seen, planned, Some(seen)));
    assert_eq!(w.committed(), seen);
    let memory = view.memory.expect("it runs");
    assert_eq!((memory.from, memory.weights), ("declared", Bytes::mib(100)));
    let private = [&memory.planned, &memory.reserved, &memory.measured].map(|parts| parts.private);
    assert_eq!(private, [planned, seen, seen].map(Some));
    let corrected = EventKind::Corrected { key: key("a"), spawn: a, from: planned, to: seen };
    assert_eq!(w.n_events(|e| *e == corrected), 1);
    w.measure(a, 650, 0);
    assert_eq!(w.committed(), seen, "the most that was seen");
    assert_eq!(w.n_events(|e| matches!(e, EventKind::Corrected { .. })), 1, "nothing changed");
}

#[test]
fn a_file_that_two_have_mapped_is_charged_once() {
    let mut w = World::new(2000);
    let (a, b) = (w.idle("a"), w.idle("b"));
    w.measure(a, 100, 400);
    w.measure(b, 100, 400);
    assert_eq!(w.committed(), Bytes::mib(200 + 200 + 400), "P9");
    w.feed(Input::Gone { spawn: a, exit: motorpool_pool::Exit::default() });
    assert_eq!(w.committed(), Bytes::mib(200 + 400));
}

#[test]
fn what_loads_is_charged_what_was_planned() {
    let mut w = World::new(2000);
    w.acquire("a");
    w.check_all();
    let a = w.child("a", Child::Loading);
    w.measure(a, 900, 0);
    assert_eq!(w.committed(), Bytes::mib(600));
    w.ready("a");
    w.measure(a, 610, 0);
    assert_eq!(w.committed(), Bytes::mib(610), "what it took to load is gone");
}

#[test]
fn a_stopping_child_is_charged_until_it_is_gone_and_old_news_change_nothing() {
    let mut w = World::new(2000);
    let a = w.idle("a");
    w.measure(a, 700, 0);
    w.admin(|id| Input::Evict { id, key: key("a"), force: Force::Yes });
    w.measure(a, 800, 0);
    assert_eq!((w.committed(), w.view_of("a").measured), (Bytes::mib(800), Some(Bytes::mib(800))));
    w.gone(a);
    w.measure(a, 900, 0);
    assert_eq!((w.committed(), w.view_of("a").measured), (Bytes::ZERO, None), "P4");
}

#[test]
fn an_overflow_by_correction_is_cured_by_the_least_demanded_idle_engine() {
    let mut w = World::new(2000);
    let (a, b, c) = (w.idle("a"), w.idle("b"), w.idle("c"));
    let again = w.enter("a").expect("warm");
    w.leave(again);
    w.measure(c, 900, 0);
    assert_eq!(stopped_by_overflow(&w), ["b"], "100 MiB over; a has more demand, c was used later");
    assert_eq!(w.n_events(|e| *e == EventKind::Overflow { by: Bytes::mib(100) }), 1);
    w.measure(a, 610, 0);
    assert_eq!(stopped_by_overflow(&w), ["b"], "what is on its way out counts as gone");
    w.gone(b);
    assert_eq!(w.n_events(|e| *e == EventKind::OverflowCured), 1);
    assert_eq!(w.committed(), Bytes::mib(1510));
}

#[test]
fn nothing_busy_is_touched_and_nothing_is_granted_until_a_lease_ends() {
    let mut w = World::new(1300);
    let busy = w.resident("a");
    let other = w.resident("b");
    let (a, b) = (w.child("a", Child::Serving), w.child("b", Child::Serving));
    w.measure(a, 1000, 0);
    w.measure(b, 700, 0);
    assert_eq!(stopped_by_overflow(&w), [""; 0]);
    let c = w.acquire("c");
    w.check_all();
    assert_eq!((w.outcome(c), w.phase("c")), (None, Some(PhaseView::WaitsForRoom)), "B1");
    w.cancel(c);
    w.leave(other);
    assert_eq!(stopped_by_overflow(&w), ["b"], "idle now");
    assert!(w.leases.contains_key(&busy), "M4");
    w.gone(b);
    w.leave(busy);
    assert_eq!(w.phase("a"), Some(PhaseView::Ready));
}

#[test]
fn the_last_one_stays_although_it_is_over_and_goes_for_another() {
    let mut w = World::new(1024);
    let a = w.idle("a");
    w.measure(a, 1200, 0);
    assert_eq!((stopped_by_overflow(&w), w.phase("a")), (vec![], Some(PhaseView::Ready)));
    w.acquire("b");
    w.check_all();
    w.ended("a", Child::Asked);
    w.ready("b");
    assert_eq!(w.n_events(|e| *e == EventKind::OverflowCured), 1);
}

#[test]
fn pinned_engines_and_overflows_that_no_correction_made_evict_nobody() {
    let mut w = World::with(2000, catalog(&[("a", 600, "pinned = true"), ("b", 600, ""), ("c", 600, "")]));
    let (a, b) = (w.idle("a"), w.idle("b"));
    w.idle("c");
    w.feed(Input::Host(host(1100)));
    assert_eq!(w.n_events(|e| *e == EventKind::Overflow { by: Bytes::mib(700) }), 1, "it is visible");
    assert_eq!(stopped_by_overflow(&w), [""; 0]);
    w.measure(a, 650, 0);
    assert_eq!(stopped_by_overflow(&w), ["b"], "enough for the 50 MiB of the correction");
    w.gone(b);
    w.pass(Duration::from_mins(1));
    assert_eq!((stopped_by_overflow(&w), w.committed()), (vec!["b".to_owned()], Bytes::mib(1250)));
}

#[test]
fn what_is_over_on_a_card_is_cured_on_that_card() {
    let cards = vec![Card::new("GPU-0", Bytes::gib(8)), Card::new("GPU-1", Bytes::gib(10))];
    let host = Host { shape: HostShape::DiscreteGpu, ram: Bytes::gib(64), cards, ..Host::default() };
    let models = [("c", 9000, ""), ("p", 300, "gpu_layers = 0"), ("a", 3000, ""), ("b", 3000, "")];
    let mut w = World::on(host, catalog(&models));
    w.machine.takes = 700;
    let [_, _, a, _] = models.map(|(id, ..)| w.idle(id));
    w.machine.held.insert(a, [(card(0), Bytes::gib(6))].into());
    w.read_cards();
    assert_eq!(stopped_by_overflow(&w), ["a"], "less wanted than b, although it is the larger one");
    w.gone(a);
    assert_eq!(w.view_of("b").reserved, Bytes::mib(2100), "its driver shows less than was planned");
    assert_eq!(w.n_events(|e| matches!(e, EventKind::Stopping { .. })), 1);
}

/// 16 GiB of memory and no explicit budget: the share is 9.6 GiB.
fn small_machine() -> World {
    let host = Host { ram: Bytes::gib(16), ..Host::default() };
    World::on(host, catalog(&[("a", 6000, ""), ("b", 3000, "")]))
}

#[test]
fn others_use_of_a_machine_with_plenty_free_takes_nothing_from_the_share() {
    let mut w = small_machine();
    w.read_ram(Some(Bytes::gib(4)));
    w.idle("a");
    w.idle("b");
    let memory = &w.pool.snapshot(w.now).pool.memory[0];
    assert_eq!((memory.foreign, memory.share_now), (Some(Bytes::gib(4)), Bytes::gib(16).per_mille(600)));
    assert_eq!(w.n_events(|e| matches!(e, EventKind::Stopping { .. })), 0);
}

#[test]
fn what_others_use_is_not_given_away_and_evicts_nobody_by_itself() {
    let mut w = small_machine();
    w.idle("a");
    w.read_ram(Some(Bytes::gib(10)));
    assert_eq!(w.pool.snapshot(w.now).pool.memory[0].share_now, Bytes::gib(4));
    assert_eq!((w.n_events(|e| matches!(e, EventKind::Overflow { .. })), w.phase("a")), (1, Some(PhaseView::Ready)));
    w.acquire("b");
    w.check_all();
    w.ended("a", Child::Asked);
    w.ready("b");
    let servers = [("external server lap", 1), ("external server desk", 9)];
    let servers = servers.map(|(name, gib)| (name.to_owned(), Bytes::gib(gib))).to_vec();
    w.feed(Input::Memory(MemorySight { foreign: Some(Bytes::gib(14)), servers, ..MemorySight::default() }));
    let a = w.acquire("a");
    w.check_all();
    let Some(Outcome::Refused(Refusal::CapacityDenied(denial))) = w.outcome(a) else { panic!("{:?}", w.outcome(a)) };
    let named = "In system memory, external server desk uses 9.0 GiB, external server lap uses 1.0 GiB.";
    assert!(denial.prose().contains(named), "{}", denial.prose());
}

#[test]
fn a_reading_that_fails_is_bridged_for_a_while_and_then_nothing_new_is_granted() {
    let mut w = small_machine();
    w.read_ram(Some(Bytes::gib(1)));
    for _ in 0..2 {
        w.pass(Duration::from_secs(5));
        w.read_ram(None);
    }
    let memory = w.pool.snapshot(w.now).pool.memory[0].clone();
    assert_eq!((memory.foreign, memory.share_now), (None, Bytes::gib(16).per_mille(600)), "the ledger alone decides");
    assert_eq!(w.n_events(|e| *e == EventKind::ReadingMissing { device: None }), 1, "told once");
    let b = w.idle("b");
    w.pass(Duration::from_secs(15));
    w.read_ram(None);
    w.measure(b, 3100, 0);
    assert_eq!(w.n_events(|e| matches!(e, EventKind::Overflow { .. })), 0, "not known is not over");
    let a = w.acquire("a");
    w.check_all();
    assert!(matches!(w.outcome(a), Some(Outcome::Refused(Refusal::CapacityDenied(_)))));
    assert_eq!(w.phase("b"), Some(PhaseView::Ready), "what is there stays");
    w.read_ram(Some(Bytes::gib(1)));
    let a = w.acquire("a");
    w.check_all();
    w.ready("a");
    assert!(w.is_granted(a));
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Acquire(usize),
    Check,
    Ready(usize),
    Enter(usize),
    Leave(usize),
    Measure(usize, u64, u64),
    Gone(usize),
    Foreign(Option<u64>),
    Pass(u64),
}

fn any_op() -> impl Strategy<Value = Op> {
    let n = 0usize..8;
    prop_oneof![
        6 => n.clone().prop_map(Op::Acquire),
        6 => Just(Op::Check),
        6 => n.clone().prop_map(Op::Ready),
        2 => n.clone().prop_map(Op::Enter),
        5 => n.clone().prop_map(Op::Leave),
        8 => (n.clone(), 0u64..900, 0u64..300).prop_map(|(n, private, mapped)| Op::Measure(n, private, mapped)),
        4 => n.prop_map(Op::Gone),
        1 => prop::option::of(0u64..64).prop_map(Op::Foreign),
        3 => prop_oneof![Just(5), Just(20), Just(90)].prop_map(Op::Pass),
    ]
}

/// The world, and for each child that was ready the most that was seen of it, in MiB.
struct Run {
    w: World,
    ready: BTreeSet<Spawn>,
    most: BTreeMap<Spawn, (u64, u64)>,
    seen_events: usize,
}

const MODELS: [(&str, u64, &str); 3] = [("a", 600, ""), ("b", 500, ""), ("c", 300, "pinned = true")];
const BUDGET: u64 = 1300;

impl Run {
    fn step(&mut self, op: Op) {
        let w = &mut self.w;
        let children: Vec<_> = w.children.iter().map(|(spawn, (_, child))| (*spawn, *child)).collect();
        let nth = |n: usize, is_it: &dyn Fn(&Child) -> bool| {
            let of: Vec<_> = children.iter().filter(|(_, child)| is_it(child)).map(|(spawn, _)| *spawn).collect();
            (!of.is_empty()).then(|| of[n % of.len()])
        };
        match op {
            Op::Acquire(n) => drop(w.acquire(MODELS[n % 3].0)),
            Op::Check => w.check_all(),
            Op::Ready(n) => {
                if let Some(spawn) = nth(n, &|child| *child == Child::Loading) {
                    w.ready_spawn(spawn);
                    self.ready.insert(spawn);
                }
            }
            Op::Enter(n) => drop(w.enter(MODELS[n % 3].0)),
            Op::Leave(n) => {
                let held: Vec<_> = w.leases.keys().copied().collect();
                if !held.is_empty() {
                    w.leave(held[n % held.len()]);
                }
            }
            Op::Measure(n, private, mapped) => {
                if let Some(spawn) = nth(n, &|_| true) {
                    w.measure(spawn, private, mapped);
                    if self.ready.contains(&spawn) {
                        let most = self.most.entry(spawn).or_default();
                        *most = (most.0.max(private), most.1.max(mapped));
                    }
                }
            }
            Op::Gone(n) => {
                if let Some(spawn) = nth(n, &|child| matches!(child, Child::Asked | Child::Killed)) {
                    w.gone(spawn);
                    self.most.remove(&spawn);
                }
            }
            Op::Foreign(gib) => w.read_ram(gib.map(Bytes::gib)),
            Op::Pass(seconds) => w.pass(Duration::from_secs(seconds)),
        }
    }

    fn check(&mut self) {
        let snapshot = self.w.pool.snapshot(self.w.now);
        for entry in &snapshot.entries {
            let Some((private, mapped)) = entry.spawn.and_then(|spawn| self.most.get(&spawn)) else { continue };
            assert!(entry.reserved >= Bytes::mib(private + mapped), "M1: {entry:?}");
        }
        // P9, from what was declared and seen alone: a whole, of which what is mapped is shared.
        let (mut private, mut shared) = (0, 0);
        for (spawn, (key, _)) in &self.w.children {
            let declared = MODELS.iter().find(|(id, ..)| *id == key.model().as_str()).expect("a model").1;
            let (seen, mapped) = self.most.get(spawn).copied().unwrap_or_default();
            private += seen.max(declared.saturating_sub(mapped));
            shared = shared.max(mapped);
        }
        // What waits for its turn to load holds what was planned.
        let waits = snapshot.entries.iter().filter(|e| e.phase == PhaseView::WaitsForSlot).map(|e| e.reserved);
        let real = Bytes::sum(waits.chain([Bytes::mib(private + shared)]));
        assert_eq!(snapshot.pool.committed, real, "P9");
        for (id, grant) in &self.w.leases {
            let child = self.w.children.get(&grant.spawn);
            assert!(matches!(child, Some((_, Child::Serving))), "M4: {id:?} on {child:?}");
        }
        let granted = self.w.events[self.seen_events..].iter().any(|e| matches!(e.kind, EventKind::Reserved { .. }));
        let memory = &snapshot.pool.memory[0];
        assert!(!granted || memory.committed <= memory.share_now, "B1: {memory:?}");
        self.seen_events = self.w.events.len();
    }
}

proptest! {
    #[test]
    fn corrections_keep_the_ledger_above_what_is_there_and_every_lease(ops in prop::collection::vec(any_op(), 1..150)) {
        let w = World::on(host(BUDGET), catalog(&MODELS));
        let mut run = Run { w, ready: BTreeSet::new(), most: BTreeMap::new(), seen_events: 0 };
        for op in ops {
            run.step(op);
            run.check();
        }
    }
}
