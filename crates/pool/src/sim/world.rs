//! [`World`]: the pool and a shell made of nothing.
use super::{
    editions::Editions,
    kept::Kept,
    obey::facts,
    trace::{Parent, Place, Setting, Sickness, Step, Telling, Which, Wish},
};
use crate::{
    Action, Answer, Ask, BudgetSetting, BuildId, Denial, Exit, Force, Grant, Host, Input, Measured, Pool, PoolConfig,
    Probe, Probed, Refusal, RequestId, StartFault, Writing,
};
use motorpool_catalog::{Manifest, shipped};
use motorpool_vocab::{
    Bytes, Endpoint, EngineKey, EntryView, Event, EventKind, FailureClass, Holder, ModelId, Now, PhaseView, Spawn,
    StopReason, TryEnter,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
    time::Duration,
};

/// The engine of every model of a trace.
pub(super) const ENGINE: &str = "llama-server";

/// Parsed once: a search begins many worlds.
pub(super) static MANIFESTS: LazyLock<Vec<Manifest>> = LazyLock::new(|| shipped().0);

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With a lease of this child.
    Granted(Granted),
    /// The model is there.
    Loaded(EngineKey),
    /// No.
    Refused(Refusal),
    /// An operator was answered.
    Answered(Answer),
}

/// Who granted a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The engine.
    pub key: EngineKey,
    /// Its child.
    pub spawn: Spawn,
}

/// What the shell does with a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// It loads.
    Loading,
    /// It serves.
    Serving,
    /// It was asked to end.
    Asked,
    /// It was killed.
    Killed,
}

/// The pool and a shell made of nothing.
#[derive(Debug)]
pub struct World {
    pub(super) pool: Pool,
    pub(super) setting: Setting,
    pub(super) editions: Editions,
    pub(super) now: Now,
    pub(super) outcomes: BTreeMap<RequestId, Vec<Outcome>>,
    /// Every request that was made and wants an answer, with its terms.
    pub(super) asked: BTreeMap<RequestId, Option<Ask>>,
    pub(super) asked_at: BTreeMap<RequestId, Now>,
    pub(super) cancelled: BTreeSet<RequestId>,
    pub(super) leases: BTreeMap<RequestId, (Grant, Holder)>,
    pub(super) children: BTreeMap<Spawn, (EngineKey, Child)>,
    pub(super) checks: Vec<(BuildId, EngineKey)>,
    pub(super) open: BTreeMap<EngineKey, Grant>,
    pub(super) events: Vec<Event>,
    /// With what was there that never goes.
    pub(super) denials: Vec<(Denial, Bytes)>,
    /// What gates count and the pool was not told.
    pub(super) untold: BTreeMap<RequestId, Vec<Input>>,
    /// Children whose leases somebody ended by force.
    pub(super) forced: BTreeSet<Spawn>,
    /// Children that serve and are of less use than they were, and since when.
    pub(super) sick: BTreeMap<Spawn, (Sickness, Now)>,
    /// Questions to engines that were not answered yet.
    questions: Vec<(Spawn, Probe)>,
    pub(super) kept: Kept,
    pub(super) closing: bool,
}

impl World {
    /// As it is at the beginning of a trace; names that are no ids are left out.
    pub fn new(setting: &Setting) -> Self {
        let editions = Editions::default();
        let config = PoolConfig { host: host_of(setting), ..PoolConfig::default() };
        Self {
            pool: Pool::new(config, editions.catalog(setting), Spawn(1)),
            editions,
            setting: setting.clone(),
            now: Now::from_nanos(1_000_000_000_000),
            outcomes: BTreeMap::new(),
            asked: BTreeMap::new(),
            asked_at: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            leases: BTreeMap::new(),
            children: BTreeMap::new(),
            checks: Vec::new(),
            open: BTreeMap::new(),
            events: Vec::new(),
            denials: Vec::new(),
            untold: BTreeMap::new(),
            forced: BTreeSet::new(),
            sick: BTreeMap::new(),
            questions: Vec::new(),
            kept: Kept::default(),
            closing: false,
        }
    }

    /// What is the time, since the beginning of the clock.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Lets one thing happen; what the pool wanted done for it, in order.
    pub fn step(&mut self, step: &Step) -> Vec<Action> {
        let mut actions = self.begin(step);
        actions.extend(self.answer());
        actions
    }

    fn begin(&mut self, step: &Step) -> Vec<Action> {
        match step {
            Step::Acquire(id, model, wish) => self.acquire(*id, model, wish),
            Step::Load(id, model) => match ModelId::new(model) {
                Ok(model) => self.ask(*id, Ask::resident(model)),
                Err(_) => vec![],
            },
            Step::Enter(id, model, telling) => self.enter(*id, model, *telling),
            Step::Leave(id, telling) => self.leave(*id, *telling),
            Step::Tell(id) => self.tell(*id),
            Step::Cancel(id) => self.cancel(*id),
            Step::Check(at, found) => self.check(at, *found),
            Step::Progress(at) => {
                self.with_child(at, Child::Loading, |spawn| Input::Progress { spawn, per_mille: Some(500) })
            }
            Step::Ready(at, width) => self.ready(at, *width),
            Step::Gone(at, which) => self.gone(at, *which),
            Step::Fail(at, class) => self.fail(at, *class),
            Step::Sick(at, sickness) => {
                let spawn = self.child(at, Child::Serving);
                self.sick.extend(spawn.map(|spawn| (spawn, (*sickness, self.now))));
                vec![]
            }
            Step::Fails(at) => self.have_failures(at),
            Step::Written(at) => self.written(at),
            Step::Reset(id, model) => {
                let model = model.as_deref().and_then(|model| ModelId::new(model).ok());
                self.operate(*id, Input::Reset { id: *id, model })
            }
            Step::UnloadIdle(..) | Step::Evict(..) | Step::ReleaseIdle(_) => self.unload(step),
            Step::Reconcile(id, model, n) => match ModelId::new(model) {
                Ok(model) => self.operate(*id, Input::Reconcile { id: *id, targets: [(model, *n)].into() }),
                Err(_) => vec![],
            },
            Step::Reload(id, model, edit) => self.reload(*id, model, *edit),
            Step::Drain(id, at) => match key_of(at) {
                Some(key) => self.operate(*id, Input::Drain { id: *id, key }),
                None => vec![],
            },
            Step::Withdraw(id, ticket) => self.operate(*id, Input::Withdraw { id: *id, ticket: *ticket }),
            Step::Move(id, ticket, direction) => {
                self.operate(*id, Input::Move { id: *id, ticket: *ticket, direction: *direction })
            }
            Step::Pass(ms) => self.pass(Duration::from_millis(*ms)),
            Step::OldNews(spawn) => self.old_news(Spawn(*spawn)),
            Step::Retire(id) => {
                self.closing = true;
                self.operate(*id, Input::Retire { id: *id })
            }
            Step::Shutdown(id) => {
                self.closing = true;
                self.forced.extend(self.children.keys());
                self.operate(*id, Input::Shutdown { id: *id })
            }
            Step::Obey => self.obey(),
        }
    }

    /// Hands an input to the pool and does what it wants.
    pub(super) fn feed(&mut self, input: Input) -> Vec<Action> {
        let actions = self.pool.on_event(self.now, input);
        for action in &actions {
            self.perform(action);
        }
        actions
    }

    /// Every engine that was asked answers, or its time is up.
    pub(super) fn answer(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some((spawn, probe)) = self.questions.pop() {
            let is_deaf =
                self.sick.get(&spawn).is_some_and(|(sick, _)| *sick == Sickness::Deaf || probe == Probe::Inference);
            let probed = if is_deaf { Probed::Missed } else { Probed::Well(None) };
            actions.extend(self.feed(Input::Probed { spawn, probe, probed }));
        }
        actions
    }

    /// What is served goes on where nothing is sick.
    fn move_leases(&self) {
        let moving = self.leases.values().filter(|(grant, _)| !self.sick.contains_key(&grant.spawn));
        moving.for_each(|(grant, _)| grant.gate.vital().moved());
    }

    fn fail(&mut self, at: &Place, class: FailureClass) -> Vec<Action> {
        let child = self.child(at, Child::Loading).or_else(|| self.child(at, Child::Serving));
        let Some(spawn) = child else { return vec![] };
        self.children.remove(&spawn);
        self.kept.gone(spawn);
        self.feed(Input::Gone { spawn, exit: Exit { class: Some(class), ..Exit::default() } })
    }

    fn have_failures(&mut self, at: &Place) -> Vec<Action> {
        let grant = key_of(at).and_then(|key| self.open.get(&key));
        let Some(grant) = grant else { return vec![] };
        (0..3).for_each(|_| grant.gate.vital().failed());
        let mut actions = self.feed(Input::Tick);
        actions.extend(self.answer());
        actions
    }

    fn perform(&mut self, action: &Action) {
        match action {
            Action::Check { build, key, .. } => self.checks.push((*build, key.clone())),
            Action::Start { spawn, launch } => {
                self.children.insert(*spawn, (launch.key.clone(), Child::Loading));
                self.editions.launches(*spawn, &launch.model);
            }
            Action::StopPolitely { spawn } => self.turn(*spawn, Child::Asked),
            Action::Kill { spawn } => self.turn(*spawn, Child::Killed),
            Action::Open { spawn, key, gate, endpoint } => {
                let (gate, endpoint) = (Arc::clone(gate), endpoint.clone());
                let grant = Grant { key: key.clone(), spawn: *spawn, endpoint, gate, slot: None, returning: None };
                self.open.insert(key.clone(), grant);
            }
            Action::Close { spawn } => self.open.retain(|_, grant| grant.spawn != *spawn),
            Action::Grant { id, grant } => {
                let asker = self.asked.get(id).and_then(Option::as_ref).map(|ask| ask.holder.clone());
                let holder = asker.unwrap_or_default();
                self.kept.granted(grant, holder.session.as_deref().unwrap_or_default());
                self.leases.insert(*id, (grant.clone(), holder));
                self.end(*id, Outcome::Granted(Granted { key: grant.key.clone(), spawn: grant.spawn }));
            }
            Action::Loaded { id, key } => self.end(*id, Outcome::Loaded(key.clone())),
            Action::Refuse { id, refusal } => self.end(*id, Outcome::Refused(refusal.clone())),
            Action::Reply { id, answer } => self.end(*id, Outcome::Answered(answer.clone())),
            Action::Publish(event) => {
                if let EventKind::Stopping { spawn, reason: StopReason::Evicted, .. } = event.kind
                    && self.editions.cuts()
                {
                    self.forced.insert(spawn);
                }
                self.events.push(event.clone());
            }
            Action::Deny(denial) => self.denials.push((denial.clone(), self.fixed())),
            Action::WriteSlot { spawn, slot, session, writing } => {
                let taken = self.leases.values().filter_map(|(grant, _)| Some((grant.spawn, grant.slot?)));
                self.kept.asked(((*spawn, *slot), *writing), session, taken);
            }
            Action::Probe { spawn, probe } => self.questions.push((*spawn, *probe)),
            Action::Notice { .. } | Action::Look | Action::Learn { .. } => {}
        }
    }

    pub(super) fn turn(&mut self, spawn: Spawn, to: Child) {
        if let Some((_, child)) = self.children.get_mut(&spawn) {
            *child = to;
        }
    }

    fn end(&mut self, id: RequestId, outcome: Outcome) {
        self.outcomes.entry(id).or_default().push(outcome);
    }

    fn ask(&mut self, id: RequestId, ask: Ask) -> Vec<Action> {
        self.asked.insert(id, Some(ask.clone()));
        self.asked_at.insert(id, self.now);
        self.feed(Input::Acquire { id, ask })
    }

    fn acquire(&mut self, id: RequestId, model: &str, wish: &Wish) -> Vec<Action> {
        let Ok(model) = ModelId::new(model) else { return vec![] };
        let holder = Holder {
            request: format!("r{}", id.0),
            lane: wish.lane,
            session: wish.session.clone(),
            actor: wish.actor.clone(),
            parent: (wish.parent == Parent::Some).then(|| "another".to_owned()),
            ..Holder::default()
        };
        let ask = Ask {
            drain_wait: wish.drain.map(Duration::from_secs),
            queue_wait: wish.queue.map(Duration::from_secs),
            replica: wish.replica,
            priority: wish.priority,
            ..Ask::lease(model, holder)
        };
        self.ask(id, ask)
    }

    pub(super) fn operate(&mut self, id: RequestId, input: Input) -> Vec<Action> {
        self.asked.insert(id, None);
        self.feed(input)
    }

    fn unload(&mut self, step: &Step) -> Vec<Action> {
        match step {
            Step::UnloadIdle(id, at) => match key_of(at) {
                Some(key) => self.operate(*id, Input::UnloadIdle { id: *id, key }),
                None => vec![],
            },
            Step::Evict(id, at, force) => {
                let Some(key) = key_of(at) else { return vec![] };
                if *force == Force::Yes {
                    let of_it = self.children.iter().filter(|(_, (k, _))| *k == key).map(|(spawn, _)| *spawn);
                    self.forced.extend(of_it);
                }
                self.operate(*id, Input::Evict { id: *id, key, force: *force })
            }
            Step::ReleaseIdle(id) => self.operate(*id, Input::ReleaseIdle { id: *id }),
            _ => vec![],
        }
    }

    fn enter(&mut self, id: RequestId, model: &str, telling: Telling) -> Vec<Action> {
        let of_it = self.open.values().filter(|grant| grant.key.model().as_str() == model);
        let best = of_it.filter(|grant| !grant.gate.is_closed()).min_by_key(|grant| grant.gate.granted());
        let Some(grant) = best.filter(|grant| grant.gate.try_enter() == TryEnter::Entered).cloned() else {
            return vec![];
        };
        let holder = Holder { request: format!("r{}", id.0), ..Holder::default() };
        let news = Input::Entered { id, spawn: grant.spawn, holder: holder.clone() };
        self.leases.insert(id, (grant, holder));
        self.news(id, news, telling)
    }

    fn leave(&mut self, id: RequestId, telling: Telling) -> Vec<Action> {
        let Some((grant, _)) = self.leases.remove(&id) else { return vec![] };
        grant.gate.leave();
        self.news(id, Input::Left { id, spawn: grant.spawn }, telling)
    }

    /// News of one lease are told in order.
    fn news(&mut self, id: RequestId, news: Input, telling: Telling) -> Vec<Action> {
        self.untold.entry(id).or_default().push(news);
        if telling == Telling::Later { vec![] } else { self.tell(id) }
    }

    fn tell(&mut self, id: RequestId) -> Vec<Action> {
        let news = self.untold.remove(&id).unwrap_or_default();
        news.into_iter().flat_map(|news| self.feed(news)).collect()
    }

    fn cancel(&mut self, id: RequestId) -> Vec<Action> {
        if !self.asked.contains_key(&id) || self.outcomes.contains_key(&id) || !self.cancelled.insert(id) {
            return vec![];
        }
        self.feed(Input::Cancel { id })
    }

    fn check(&mut self, at: &Place, found: Result<(), ()>) -> Vec<Action> {
        let Some(n) = self.checks.iter().position(|(_, key)| Some(key) == key_of(at).as_ref()) else { return vec![] };
        let (build, _) = self.checks.remove(n);
        let fault = |()| StartFault { class: FailureClass::ModelCorrupt, message: "bad magic".into(), tail: vec![] };
        self.feed(Input::Checked { build, result: found.map(|()| facts()).map_err(fault) })
    }

    /// The child of this engine that is in this state.
    pub(super) fn child(&self, at: &Place, state: Child) -> Option<Spawn> {
        let key = key_of(at)?;
        self.children.iter().find(|(_, (k, s))| *k == key && *s == state).map(|(spawn, _)| *spawn)
    }

    fn with_child(&mut self, at: &Place, state: Child, make: impl FnOnce(Spawn) -> Input) -> Vec<Action> {
        match self.child(at, state) {
            Some(spawn) => self.feed(make(spawn)),
            None => vec![],
        }
    }

    fn ready(&mut self, at: &Place, width: u32) -> Vec<Action> {
        let Some(spawn) = self.child(at, Child::Loading) else { return vec![] };
        self.turn(spawn, Child::Serving);
        self.feed(Input::Ready { spawn, endpoint: Endpoint::Tcp(1), width })
    }

    fn gone(&mut self, at: &Place, which: Which) -> Vec<Action> {
        let Some(key) = key_of(at) else { return vec![] };
        let mut of_it = self.children.iter().filter(|(_, (k, _))| *k == key).map(|(spawn, _)| *spawn);
        let spawn = if which == Which::Oldest { of_it.next() } else { of_it.next_back() };
        spawn.map_or_else(Vec::new, |spawn| self.end_child(spawn))
    }

    pub(super) fn end_child(&mut self, spawn: Spawn) -> Vec<Action> {
        self.children.remove(&spawn);
        self.kept.gone(spawn);
        self.feed(Input::Gone { spawn, exit: Exit::default() })
    }

    /// Time passes, stopping at every deadline on the way.
    fn pass(&mut self, within: Duration) -> Vec<Action> {
        let end = self.now.after(within);
        let mut actions = Vec::new();
        while let Some(at) = self.pool.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.move_leases();
            actions.extend(self.feed(Input::Tick));
            actions.extend(self.answer());
            // One that stays due is found by the rules.
            if self.pool.deadline().is_some_and(|at| at <= self.now) {
                break;
            }
        }
        self.now = end;
        actions
    }

    fn old_news(&mut self, spawn: Spawn) -> Vec<Action> {
        if self.children.contains_key(&spawn) {
            return vec![];
        }
        let measured = Measured { private: Some(Bytes::gib(9)), ..Measured::default() };
        [
            Input::Gone { spawn, exit: Exit::default() },
            Input::Ended { spawn, exit: Exit::default() },
            Input::Progress { spawn, per_mille: Some(999) },
            Input::Launched { spawn, pid: 1 },
            Input::Measured { spawn, measured },
            Input::Ready { spawn, endpoint: Endpoint::Tcp(1), width: 9 },
            Input::SlotWritten { spawn, writing: Writing(1) },
        ]
        .into_iter()
        .flat_map(|news| self.feed(news))
        .collect()
    }

    /// What pinned engines and stuck children hold.
    fn fixed(&self) -> Bytes {
        let pinned = |e: &EntryView| self.setting.models.iter().any(|m| m.stays[0] && m.id == e.key.model().as_str());
        let entries = self.pool.snapshot(self.now).entries.into_iter();
        let stays = entries.filter(|e| e.phase == PhaseView::Stuck || e.phase != PhaseView::Stopping && pinned(e));
        Bytes::sum(stays.map(|e| e.reserved))
    }

    /// What a model of the trace takes.
    pub(super) fn size_of(&self, key: &EngineKey) -> Bytes {
        let of_it = self.setting.models.iter().find(|model| model.id == key.model().as_str());
        Bytes::mib(of_it.map_or(0, |model| model.mib))
    }
}

/// A machine without devices, and as much memory as anybody could want.
pub(super) fn host_of(setting: &Setting) -> Host {
    let budget = BudgetSetting::explicit(Bytes::mib(setting.budget));
    Host { ram: Bytes::mib(1 << 31), budget, ..Host::default() }
}

pub(super) fn key_of((model, replica): &Place) -> Option<EngineKey> {
    EngineKey::new(ENGINE, ModelId::new(model).ok()?, *replica).ok()
}
