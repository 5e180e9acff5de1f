//! P1–P4, P7 and P9 over random traces in virtual time, against a shell that answers in any order.

use crate::world::{Child, Outcome, World, catalog, key};
use motorpool_pool::{Answer, Ask, Exit, Force, Input, Refusal, RequestId};
use motorpool_vocab::{Bytes, EventKind, ModelId, PhaseView, Spawn, StopReason};
use proptest::prelude::*;
use std::{collections::BTreeSet, time::Duration};

const MODELS: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Copy, Debug)]
enum Op {
    Acquire(usize),
    Load(usize),
    Enter(usize),
    EnterUntold(usize),
    Tell,
    Leave(usize),
    Cancel(usize),
    CheckOk(usize),
    CheckBad,
    Progress(usize),
    Ready(usize),
    Gone(usize),
    OldNews(u64),
    UnloadIdle(usize),
    Evict(usize),
    Force(usize),
    ReleaseIdle,
    Pass(u64),
    Retire,
    Shutdown,
}

fn any_op() -> impl Strategy<Value = Op> {
    let n = 0usize..8;
    prop_oneof![
        12 => n.clone().prop_map(Op::Acquire),
        2 => n.clone().prop_map(Op::Load),
        4 => n.clone().prop_map(Op::Enter),
        3 => n.clone().prop_map(Op::EnterUntold),
        4 => Just(Op::Tell),
        14 => n.clone().prop_map(Op::Leave),
        3 => n.clone().prop_map(Op::Cancel),
        12 => n.clone().prop_map(Op::CheckOk),
        1 => Just(Op::CheckBad),
        2 => n.clone().prop_map(Op::Progress),
        12 => n.clone().prop_map(Op::Ready),
        10 => n.clone().prop_map(Op::Gone),
        2 => (0u64..40).prop_map(Op::OldNews),
        2 => n.clone().prop_map(Op::UnloadIdle),
        2 => n.clone().prop_map(Op::Evict),
        1 => n.prop_map(Op::Force),
        1 => Just(Op::ReleaseIdle),
        8 => prop_oneof![Just(100), Just(3_000), Just(12_000), Just(40_000), Just(700_000)].prop_map(Op::Pass),
    ]
}

/// A trace, and how it ends.
fn any_trace() -> impl Strategy<Value = (u32, Vec<Op>, Op)> {
    (1u32..4, prop::collection::vec(any_op(), 1..160), prop_oneof![Just(Op::Retire), Just(Op::Shutdown)])
}

/// The world and what the properties compare it with.
struct Run {
    w: World,
    asked: BTreeSet<RequestId>,
    /// Children that served nobody yet although somebody waited when they became ready.
    forced: BTreeSet<Spawn>,
    seen_events: usize,
}

impl Run {
    fn new(width: u32) -> Self {
        let models = catalog(&[("a", 600, ""), ("b", 500, "priority = 1"), ("c", 300, ""), ("d", 2000, "")]);
        let mut w = World::with(1200, models);
        w.width = width;
        Self { w, asked: BTreeSet::new(), forced: BTreeSet::new(), seen_events: 0 }
    }

    fn step(&mut self, op: Op) {
        let w = &mut self.w;
        match op {
            Op::Acquire(n) => {
                let id = w.acquire(MODELS[n % 4]);
                self.asked.insert(id);
            }
            Op::Load(n) => {
                let id = w.ask(Ask::resident(ModelId::new(MODELS[n % 4]).expect("an id")));
                self.asked.insert(id);
            }
            Op::Enter(n) => {
                w.enter(MODELS[n % 4]);
            }
            Op::EnterUntold(n) => {
                w.enter_untold(MODELS[n % 4]);
            }
            Op::Tell => {
                if let Some(id) = w.untold.keys().next().copied() {
                    w.tell(id);
                }
            }
            Op::Leave(n) => {
                if let Some(id) = nth(w.leases.keys(), n) {
                    w.leave(id);
                }
            }
            Op::Cancel(n) => {
                if let Some(id) = nth(self.asked.iter(), n).filter(|id| w.outcome(*id).is_none()) {
                    w.cancel(id);
                }
            }
            Op::CheckOk(n) if !w.checks.is_empty() => {
                let at = n % w.checks.len();
                let (build, _) = w.checks.remove(at);
                w.feed(Input::Checked { build, result: Ok(crate::world::facts()) });
            }
            Op::CheckBad if !w.checks.is_empty() => w.fail_check(),
            Op::CheckOk(_) | Op::CheckBad => {}
            Op::Progress(n) => {
                if let Some(spawn) = self.child(n, |s| s == Child::Loading) {
                    self.w.feed(Input::Progress { spawn, per_mille: Some(500) });
                }
            }
            Op::Ready(n) => {
                if let Some(spawn) = self.child(n, |s| s == Child::Loading) {
                    self.become_ready(spawn);
                }
            }
            Op::Gone(n) => {
                if let Some(spawn) = self.child(n, |_| true) {
                    self.w.gone(spawn);
                }
            }
            Op::OldNews(n) => self.old_news(Spawn(n)),
            Op::UnloadIdle(n) => {
                let asked = w.admin(|id| Input::UnloadIdle { id, key: key(MODELS[n % 4]) });
                self.asked.insert(asked);
            }
            Op::Evict(n) => {
                let asked = w.admin(|id| Input::Evict { id, key: key(MODELS[n % 4]), force: Force::No });
                self.asked.insert(asked);
            }
            Op::Force(n) => {
                let serving = w.open.get(&key(MODELS[n % 4])).map(|grant| grant.spawn);
                self.forced.extend(serving);
                let asked = w.admin(|id| Input::Evict { id, key: key(MODELS[n % 4]), force: Force::Yes });
                self.asked.insert(asked);
            }
            Op::ReleaseIdle => {
                let asked = w.admin(|id| Input::ReleaseIdle { id });
                self.asked.insert(asked);
            }
            Op::Pass(ms) => w.pass(Duration::from_millis(ms)),
            Op::Retire => {
                let asked = w.admin(|id| Input::Retire { id });
                self.asked.insert(asked);
            }
            Op::Shutdown => {
                self.forced.extend(w.children.keys());
                let asked = w.admin(|id| Input::Shutdown { id });
                self.asked.insert(asked);
            }
        }
    }

    fn child(&self, n: usize, is_it: impl Fn(Child) -> bool) -> Option<Spawn> {
        let found: Vec<_> = self.w.children.iter().filter(|(_, (_, s))| is_it(*s)).map(|(spawn, _)| *spawn).collect();
        nth(found.iter(), n)
    }

    /// P7: whoever waited for this child is served by it before it can be taken.
    fn become_ready(&mut self, spawn: Spawn) {
        let key = self.w.children[&spawn].0.clone();
        let waited = self.view(&key).n_tickets;
        let before = self.w.leases.len();
        self.w.ready_spawn(spawn);
        let now_served = self.w.leases.len() - before;
        let loaded = self.w.outcomes.values().flatten().filter(|o| **o == Outcome::Loaded(key.clone())).count();
        assert!(waited == 0 || now_served > 0 || loaded > 0, "P7: {waited} waited for {key}");
    }

    fn view(&self, key: &motorpool_vocab::EngineKey) -> motorpool_vocab::EntryView {
        let snapshot = self.w.pool.snapshot(self.w.now);
        snapshot.entries.into_iter().find(|e| e.key == *key && e.phase != PhaseView::Stuck).expect("an entry")
    }

    /// P4: news of a child that is gone changes nothing.
    fn old_news(&mut self, spawn: Spawn) {
        if self.w.children.contains_key(&spawn) {
            return;
        }
        let before = self.w.pool.snapshot(self.w.now);
        self.w.feed(Input::Gone { spawn, exit: Exit::default() });
        self.w.feed(Input::Progress { spawn, per_mille: Some(999) });
        self.w.feed(Input::Launched { spawn, pid: 1 });
        let endpoint = motorpool_vocab::Endpoint::Tcp(1);
        self.w.feed(Input::Ready { spawn, endpoint, width: 9 });
        assert_eq!(self.w.pool.snapshot(self.w.now), before, "P4");
    }

    fn check(&mut self) {
        let snapshot = self.w.pool.snapshot(self.w.now);
        self.check_children(&snapshot);
        self.check_ledger(&snapshot);
        self.check_leases();
        self.check_tickets(&snapshot);
    }

    /// P1, and every child the shell knows is one the pool knows.
    fn check_children(&self, snapshot: &motorpool_vocab::Snapshot) {
        for model in MODELS {
            let stuck: BTreeSet<_> =
                snapshot.entries.iter().filter(|e| e.phase == PhaseView::Stuck).filter_map(|e| e.spawn).collect();
            let living: Vec<_> =
                self.w.children.iter().filter(|(s, (k, _))| *k == key(model) && !stuck.contains(s)).collect();
            assert!(living.len() <= 1, "P1: {living:?}");
        }
        let known: BTreeSet<_> = snapshot.entries.iter().filter_map(|e| e.spawn).collect();
        let real: BTreeSet<_> = self.w.children.keys().copied().collect();
        assert_eq!(known, real, "every child is in exactly one view");
    }

    /// P9 and B1.
    fn check_ledger(&self, snapshot: &motorpool_vocab::Snapshot) {
        let declared = |k: &motorpool_vocab::EngineKey| match k.model().as_str() {
            "a" => Bytes::mib(600),
            "b" => Bytes::mib(500),
            "c" => Bytes::mib(300),
            _ => Bytes::mib(2000),
        };
        let real = Bytes::sum(self.w.children.values().map(|(k, _)| declared(k)));
        assert_eq!(snapshot.pool.committed, real, "P9");
        assert!(snapshot.pool.committed <= Bytes::mib(1200), "B1");
        let idle = snapshot.entries.iter().filter(|e| e.spawn.is_none());
        idle.for_each(|e| assert_eq!(e.reserved, Bytes::ZERO, "P12: {e:?}"));
    }

    /// P2: a child that holds a lease is told to end only by force.
    fn check_leases(&mut self) {
        for grant in self.w.leases.values() {
            let Some((k, state)) = self.w.children.get(&grant.spawn) else { continue };
            let forced = self.forced.contains(&grant.spawn);
            assert!(matches!(state, Child::Serving) || forced, "P2: {k} is {state:?} under a lease");
        }
        for grant in self.w.open.values() {
            let held = self.w.leases.values().filter(|lease| lease.spawn == grant.spawn).count();
            assert_eq!(usize::try_from(grant.gate.granted()), Ok(held), "the gate counts the leases");
        }
        for event in &self.w.events[self.seen_events..] {
            if let EventKind::Stopping { spawn, reason, .. } = &event.kind {
                let held = self.w.leases.values().any(|lease| lease.spawn == *spawn);
                assert!(!held || self.forced.contains(spawn) || *reason == StopReason::LoadTimeout, "P2: {event:?}");
            }
        }
        self.seen_events = self.w.events.len();
    }

    /// P3: ended at most once (checked by `outcome`), and whoever has not ended waits with a deadline.
    fn check_tickets(&self, snapshot: &motorpool_vocab::Snapshot) {
        let waits = self.asked.iter().filter(|id| !self.w.cancelled.contains(id) && self.w.outcome(**id).is_none());
        let n_tickets: u32 = snapshot.entries.iter().map(|e| e.n_tickets).sum();
        if waits.count() > 0 && n_tickets > 0 {
            assert!(self.w.pool.deadline().is_some(), "P3: a wait without an end");
        }
    }

    /// Every lease ends, every child obeys: then everybody was told, and nothing is left.
    fn wind_down(&mut self, last: Op) {
        self.step(last);
        self.check();
        for _ in 0..200 {
            if let Some(id) = self.w.leases.keys().next().copied() {
                self.w.leave(id);
            } else if let Some(spawn) = self.child(0, |s| matches!(s, Child::Asked | Child::Killed)) {
                self.w.gone(spawn);
            } else if let Some(spawn) = self.child(0, |s| s == Child::Loading) {
                self.become_ready(spawn);
            } else if !self.w.checks.is_empty() {
                self.w.check_all();
            } else {
                break;
            }
            self.check();
        }
        for id in &self.asked {
            let cancelled = self.w.cancelled.contains(id);
            assert!(cancelled || self.w.outcome(*id).is_some(), "P3: {id:?} was never told");
        }
        assert!(self.w.children.is_empty(), "P11: {:?}", self.w.children);
        assert_eq!(self.w.committed(), Bytes::ZERO, "P9: zero when all stopped");
    }
}

fn nth<'a, T: Copy + 'a>(all: impl Iterator<Item = &'a T>, n: usize) -> Option<T> {
    let all: Vec<_> = all.copied().collect();
    (!all.is_empty()).then(|| all[n % all.len()])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_interleaving_keeps_the_invariants((width, ops, last) in any_trace()) {
        let mut run = Run::new(width);
        for op in ops {
            run.step(op);
            run.check();
        }
        run.wind_down(last);
    }

    /// P5 for two models that fit one at a time and are asked for ever: neither starves.
    #[test]
    fn two_models_for_one_place_both_progress(gaps in prop::collection::vec(0u64..8_000, 30..60)) {
        let mut w = World::new(1024);
        let (mut granted, mut open) = ([0usize; 2], Vec::new());
        for (n, gap) in gaps.iter().enumerate() {
            let id = w.acquire(MODELS[n % 2]);
            open.push((n % 2, id));
            for _ in 0..4 {
                w.check_all();
                let stopping = w.children.iter().find(|(_, (_, s))| matches!(s, Child::Asked | Child::Killed));
                if let Some(spawn) = stopping.map(|(spawn, _)| *spawn) {
                    w.gone(spawn);
                }
                let loading = w.children.iter().find(|(_, (_, s))| *s == Child::Loading).map(|(spawn, _)| *spawn);
                if let Some(spawn) = loading {
                    w.ready_spawn(spawn);
                }
            }
            w.pass(Duration::from_millis(*gap));
            if let Some(id) = w.leases.keys().next().copied() {
                w.leave(id);
            }
        }
        for (model, id) in open {
            granted[model] += usize::from(w.is_granted(id));
        }
        prop_assert!(granted[0] > 0 && granted[1] > 0, "P5: {granted:?}");
    }
}

#[test]
fn a_refusal_names_what_was_waited_for() {
    let mut w = World::new(1024);
    w.resident("a");
    w.pass(Duration::from_secs(11));
    let b = w.acquire("b");
    w.check_all();
    w.pass(Duration::from_secs(30));
    let Some(Outcome::Refused(Refusal::EngineBusy { key: named, .. })) = w.outcome(b) else { panic!("busy") };
    assert_eq!(*named, key("a"));
    let gone = w.admin(|id| Input::UnloadIdle { id, key: key("nobody") });
    assert_eq!(w.outcome(gone), Some(&Outcome::Answered(Answer::NotResident)));
}
