//! P1–P4, P7 and P9 over random traces in virtual time, against a shell that answers in any order.

use crate::{
    ops::{Obedience, Op, any_trace},
    world::{Child, Outcome, World, catalog, host, key},
};
use motorpool_catalog::Catalog;
use motorpool_pool::{Answer, Ask, Card, Exit, Force, Host, HostShape, Input, Measured, Refusal, RequestId, SizedBy};
use motorpool_vocab::{
    Bytes, EngineKey, EntryView, EventKind, Holder, ModelId, Now, PhaseView, Snapshot, Spawn, StopReason, TryEnter,
};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
    time::Duration,
};

/// What is asked for, with its MiB: `d` never fits, `e` is pinned, `f` needs almost everything.
const MODELS: [(&str, u64, &str); 6] = [
    ("a", 600, ""),
    ("b", 500, "priority = 1"),
    ("c", 300, ""),
    ("d", 2000, ""),
    ("e", 150, "pinned = true"),
    ("f", 1000, ""),
];
const BUDGET: u64 = 1200;
/// A wait in all, as configured.
const QUEUE_WAIT: Duration = Duration::from_mins(10);

fn model(n: usize) -> &'static str {
    MODELS[n % MODELS.len()].0
}

static CATALOG: LazyLock<Arc<Catalog>> = LazyLock::new(|| catalog(&MODELS));

/// The same, some of which come by themselves.
pub(crate) static EAGER: LazyLock<Arc<Catalog>> = LazyLock::new(|| {
    let mut models = MODELS;
    models[0].2 = "replicas = { min = 2, max = 3 }";
    models[2].2 = "home = true\nreplicas = { max = 2 }";
    catalog(&models)
});

/// Whether what the machine shows is what our lines say, and nothing else is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quiet {
    Yes,
    No,
}

/// The world and what the properties compare it with.
pub(crate) struct Run {
    pub(crate) w: World,
    pub(crate) quiet: Quiet,
    asked: BTreeSet<RequestId>,
    /// Tickets among them, and when each ends at the latest.
    until: BTreeMap<RequestId, Now>,
    /// Leases that ended and the pool does not know.
    left: Vec<(RequestId, Spawn)>,
    /// Children whose leases somebody ended by force.
    forced: BTreeSet<Spawn>,
    seen_events: usize,
}

impl Run {
    pub(crate) fn new(host: Host) -> Self {
        Self::with(host, CATALOG.clone())
    }

    pub(crate) fn with(host: Host, catalog: Arc<Catalog>) -> Self {
        let w = World::on(host, catalog);
        Self {
            w,
            quiet: Quiet::Yes,
            asked: BTreeSet::new(),
            until: BTreeMap::new(),
            left: vec![],
            forced: BTreeSet::new(),
            seen_events: 0,
        }
    }

    fn ask(&mut self, ask: Ask) {
        let until = self.w.now.after(ask.queue_wait.unwrap_or(QUEUE_WAIT));
        let id = self.w.ask(ask);
        self.until.insert(id, until);
        self.asked.insert(id);
    }

    pub(crate) fn step(&mut self, op: Op) {
        let w = &mut self.w;
        match op {
            Op::Acquire(n) => self.ask(lease(n)),
            Op::Hurry(n, drain, queue) => {
                let (drain_wait, queue_wait) = (Duration::from_secs(drain), Duration::from_secs(queue));
                self.ask(Ask { drain_wait: Some(drain_wait), queue_wait: Some(queue_wait), ..lease(n) });
            }
            Op::Load(n) => self.ask(Ask::resident(ModelId::new(model(n)).expect("an id"))),
            Op::Width(width) => w.width = width,
            Op::Enter(n) => {
                w.enter(model(n));
            }
            Op::EnterUntold(n) => {
                w.enter_untold(model(n));
            }
            Op::Tell => {
                if let Some(id) = w.untold.keys().next().copied() {
                    w.tell(id);
                } else if !self.left.is_empty() {
                    let (id, spawn) = self.left.remove(0);
                    w.feed(Input::Left { id, spawn });
                }
            }
            Op::LeaveUntold(n) => {
                if let Some(id) = nth(w.leases.keys(), n) {
                    let spawn = w.leave_untold(id);
                    self.left.push((id, spawn));
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
                let asked = w.admin(|id| Input::UnloadIdle { id, key: key(model(n)) });
                self.asked.insert(asked);
            }
            Op::Evict(n) => {
                let asked = w.admin(|id| Input::Evict { id, key: key(model(n)), force: Force::No });
                self.asked.insert(asked);
            }
            Op::Force(n) => {
                let of_it = w.children.iter().filter(|(_, (k, _))| *k == key(model(n)));
                self.forced.extend(of_it.map(|(spawn, _)| *spawn));
                let asked = w.admin(|id| Input::Evict { id, key: key(model(n)), force: Force::Yes });
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
            Op::KillAll => {
                self.forced.extend(w.children.keys());
                let asked = w.admin(|id| Input::KillAll { id });
                self.asked.insert(asked);
                let alive = |(_, child): &&(_, Child)| *child != Child::Killed;
                assert_eq!(w.children.values().find(alive), None, "nobody is waited for");
            }
        }
    }

    fn all(mut self, (ops, close, late, obedience): (Vec<Op>, Op, Vec<Op>, Obedience)) {
        for op in ops.into_iter().chain([close]).chain(late) {
            self.step(op);
            self.check();
        }
        self.wind_down(obedience);
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
        // On a restless machine it may not be seen on its card yet, or never.
        let serves = self.quiet == Quiet::Yes || self.view(&key).phase == PhaseView::Ready;
        assert!(!serves || waited == 0 || now_served > 0 || loaded > 0, "P7: {waited} waited for {key}");
    }

    fn view(&self, key: &EngineKey) -> EntryView {
        let snapshot = self.w.pool.snapshot(self.w.now);
        snapshot
            .entries
            .into_iter()
            .find(|e| e.key == *key && !matches!(e.phase, PhaseView::Stuck | PhaseView::Reclaiming))
            .expect("an entry")
    }

    /// P4: news of a child that is gone changes nothing.
    fn old_news(&mut self, spawn: Spawn) {
        if self.w.children.contains_key(&spawn) {
            return;
        }
        // What a gate alone knows so far is found by any input, so by this one and not by the old news.
        self.w.feed(Input::Tick);
        let before = self.w.pool.snapshot(self.w.now);
        self.w.feed(Input::Gone { spawn, exit: Exit::default() });
        self.w.feed(Input::Progress { spawn, per_mille: Some(999) });
        self.w.feed(Input::Launched { spawn, pid: 1 });
        let private = Some(Bytes::gib(9));
        self.w.feed(Input::Measured { spawn, measured: Measured { private, ..Measured::default() } });
        let endpoint = motorpool_vocab::Endpoint::Tcp(1);
        self.w.feed(Input::Ready { spawn, endpoint, width: 9 });
        assert_eq!(self.w.pool.snapshot(self.w.now), before, "P4");
    }

    pub(crate) fn check(&mut self) {
        self.check_deadline();
        let snapshot = self.w.pool.snapshot(self.w.now);
        self.check_children(&snapshot);
        self.check_ledger(&snapshot);
        self.check_leases();
        self.check_tickets(&snapshot);
        self.check_gates(&snapshot);
        self.check_waiters(&snapshot);
    }

    /// P1, and every child the shell knows is one the pool knows.
    fn check_children(&self, snapshot: &Snapshot) {
        for (model, ..) in MODELS {
            let stuck: BTreeSet<_> =
                snapshot.entries.iter().filter(|e| e.phase == PhaseView::Stuck).filter_map(|e| e.spawn).collect();
            let of_it = |(s, (k, _)): &(&Spawn, &(EngineKey, Child))| k.model().as_str() == model && !stuck.contains(s);
            let living: Vec<_> = self.w.children.iter().filter(of_it).map(|(_, (k, _))| k).collect();
            let keys: BTreeSet<_> = living.iter().copied().collect();
            assert_eq!(living.len(), keys.len(), "P1: {living:?}");
        }
        let lives = |e: &&EntryView| e.phase != PhaseView::Reclaiming;
        let known: BTreeSet<_> = snapshot.entries.iter().filter(lives).filter_map(|e| e.spawn).collect();
        let real: BTreeSet<_> = self.w.children.keys().copied().collect();
        assert_eq!(known, real, "every child is in exactly one view");
    }

    /// P9 and B1.
    fn check_ledger(&self, snapshot: &Snapshot) {
        let declared = |k: &EngineKey| {
            let mib = MODELS.iter().find(|(id, ..)| *id == k.model().as_str()).expect("a model").1;
            Bytes::mib(mib)
        };
        // Builds that wait for their turn to load and lines that a device has not agreed to give back hold theirs, too.
        let holds = |e: &&EntryView| matches!(e.phase, PhaseView::WaitsForSlot | PhaseView::Reclaiming);
        let others = snapshot.entries.iter().filter(holds).map(|e| &e.key);
        let real = Bytes::sum(self.w.children.values().map(|(k, _)| k).chain(others).map(declared));
        // A restless machine shows more or less of a child than was declared: corrections have properties of their own.
        assert!(snapshot.pool.committed == real || self.quiet == Quiet::No, "P9: {snapshot:?}");
        assert!(Some(snapshot.pool.committed) <= snapshot.pool.budget, "B1");
        for memory in snapshot.pool.memory.iter().filter(|_| self.quiet == Quiet::Yes) {
            assert!(memory.committed <= memory.share_now, "B1: {memory:?}");
        }
        let idle = snapshot.entries.iter().filter(|e| e.spawn.is_none() && e.phase != PhaseView::WaitsForSlot);
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

    /// P3: ended at most once (checked by `outcome`), in time, and never waiting without an end.
    fn check_tickets(&self, snapshot: &Snapshot) {
        let waits = |id: &&RequestId| !self.w.cancelled.contains(*id) && self.w.outcome(**id).is_none();
        for id in self.asked.iter().filter(waits) {
            let until = self.until.get(id).copied().unwrap_or(Now::from_nanos(u64::MAX));
            assert!(until > self.w.now, "P3: {id:?} waits past its time");
        }
        let n_waiting = self.asked.iter().filter(waits).filter(|id| self.until.contains_key(*id)).count();
        let n_tickets: u32 = snapshot.entries.iter().map(|e| e.n_tickets).sum();
        assert_eq!(usize::try_from(n_tickets), Ok(n_waiting), "P3: who waits is in exactly one queue");
    }

    /// A gate is closed exactly while somebody drains its engine or the pool closes; who waits at an open one waits
    /// for a slot; nobody waiting means that one may enter by oneself.
    fn check_gates(&self, snapshot: &Snapshot) {
        for entry in snapshot.entries.iter().filter(|e| e.phase == PhaseView::Ready) {
            let Some(grant) = self.w.open.get(&entry.key) else { continue };
            let shut = entry.n_drainers > 0 || snapshot.closing;
            assert_eq!(grant.gate.is_closed(), shut, "{entry:?}");
            let has_slot = grant.gate.granted() < grant.gate.width();
            if shut || !has_slot {
                continue;
            }
            let news = self.left.iter().any(|(_, spawn)| *spawn == grant.spawn);
            assert!(entry.n_tickets == 0 || news, "a slot is free and somebody waits: {entry:?}");
            let family = snapshot.entries.iter().filter(|e| e.key.model() == entry.key.model());
            let n_waiting: u32 = family.map(|e| e.n_tickets).sum();
            let entered = grant.gate.try_enter() == TryEnter::Entered;
            assert_eq!(entered, n_waiting == 0, "the warm path of {}", entry.key);
            if entered {
                grant.gate.leave();
            }
        }
    }

    /// P3: a build that waits has something that will end or wake it: what leaves, drains, loads, or a time.
    fn check_waiters(&self, snapshot: &Snapshot) {
        let drained: BTreeSet<_> = snapshot.entries.iter().filter(|e| e.n_drainers > 0).map(|e| &e.key).collect();
        let on_its_way = |p: PhaseView| {
            use PhaseView::{Reclaiming, Starting, Stopping, WaitsForSlot};
            matches!(p, Starting { .. } | Stopping | WaitsForSlot | Reclaiming)
        };
        for (n, waiter) in snapshot.waiters.iter().enumerate() {
            let young = self.w.now.since(waiter.since) < Duration::from_mins(1);
            let moves = snapshot.entries.iter().any(|e| on_its_way(e.phase)) || !drained.is_empty();
            let news = !self.left.is_empty() || !self.w.untold.is_empty();
            let timed = self.w.pool.deadline().is_some_and(|at| at.since(self.w.now) <= Duration::from_mins(1));
            assert!(young || moves || news || timed || n > 0, "P3: what does {waiter:?} wait for? {snapshot:?}");
        }
    }

    /// No deadline stays due: a loop that ticks at each would turn for ever, or serve it late.
    fn check_deadline(&self) {
        assert!(self.w.pool.deadline().is_none_or(|at| at > self.w.now), "a deadline stays due");
    }

    /// Every lease ends, every child obeys: then everybody was told, and nothing is left.
    pub(crate) fn wind_down(&mut self, obedience: Obedience) {
        for _ in 0..300 {
            if let Some(id) = self.w.leases.keys().next().copied() {
                self.w.leave(id);
            } else if !self.left.is_empty() {
                self.step(Op::Tell);
            } else if let Obedience::Stick = obedience
                && self.w.pool.deadline().is_some()
            {
                self.w.pass(Duration::from_secs(5));
            } else if let Some(spawn) = self.child(0, |s| matches!(s, Child::Asked | Child::Killed)) {
                self.w.gone(spawn);
            } else if let Some(spawn) = self.child(0, |s| s == Child::Loading) {
                self.become_ready(spawn);
            } else if !self.w.checks.is_empty() {
                self.w.check_all();
            } else if !self.w.children.is_empty() && self.w.pool.deadline().is_some() {
                self.w.pass(Duration::from_secs(1));
            } else {
                break;
            }
            self.check();
        }
        // Devices have so long to agree.
        self.w.pass(Duration::from_secs(5));
        self.check_all_told();
        assert!(self.w.children.is_empty(), "P11: {:?}", self.w.children);
        assert_eq!(self.w.committed(), Bytes::ZERO, "P9: zero when all stopped");
    }

    fn check_all_told(&self) {
        for id in &self.asked {
            let cancelled = self.w.cancelled.contains(id);
            assert!(cancelled || self.w.outcome(*id).is_some(), "P3: {id:?} was never told");
        }
    }
}

fn lease(n: usize) -> Ask {
    Ask::lease(ModelId::new(model(n)).expect("an id"), Holder::default())
}

fn nth<'a, T: Copy + 'a>(all: impl Iterator<Item = &'a T>, n: usize) -> Option<T> {
    let all: Vec<_> = all.copied().collect();
    (!all.is_empty()).then(|| all[n % all.len()])
}

proptest! {
    #[test]
    fn any_interleaving_keeps_the_invariants((ops, close, late, obedience) in any_trace()) {
        Run::new(host(BUDGET)).all((ops, close, late, obedience));
    }

    /// On two cards and a little memory, where where something goes decides who has to go.
    #[test]
    fn any_interleaving_keeps_them_on_several_pools((ops, close, late, obedience) in any_trace()) {
        // Nobody reads them here.
        let card = |id, mib| Card { sized: SizedBy::Operator, ..Card::new(id, Bytes::mib(mib)) };
        let cards = vec![card("GPU-0", 800), card("GPU-1", 1100)];
        let host = Host { shape: HostShape::DiscreteGpu, ram: Bytes::gib(3), cards, ..Host::default() };
        Run::new(host).all((ops, close, late, obedience));
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
