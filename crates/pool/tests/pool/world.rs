//! A shell made of nothing: it performs the pool's actions in virtual time and remembers what everybody was told.
pub(crate) use crate::machine::facts;
use crate::machine::{Answers, Machine};
use motorpool_catalog::{Catalog, Manifest, Model, Source, embedded_manifests, parse_manifest, parse_model};
use motorpool_pool::{
    Action, Answer, Ask, BudgetSetting, BuildId, Denial, Exit, Experience, Grant, Host, Input, Measured, Pool,
    PoolConfig, Probe, Probed, Refusal, Reported, RequestId, StartFault, Writing,
};
use motorpool_vocab::{
    Bytes, DeviceId, Endpoint, EngineKey, Event, EventKind, FailureClass, Holder, Lane, ModelId, Now, PhaseView, Spawn,
    TryEnter,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
    time::Duration,
};

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted(Spawn),
    Loaded(EngineKey),
    Refused(Refusal),
    Answered(Answer),
}

/// A slot that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WriteOf {
    pub(crate) spawn: Spawn,
    pub(crate) slot: u32,
    pub(crate) session: String,
    pub(crate) writing: Writing,
}

/// What the shell does with a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    Loading,
    Serving,
    Asked,
    Killed,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) pool: Pool,
    catalog: Arc<Catalog>,
    pub(crate) now: Now,
    pub(crate) outcomes: BTreeMap<RequestId, Vec<Outcome>>,
    pub(crate) cancelled: Vec<RequestId>,
    pub(crate) leases: BTreeMap<RequestId, Grant>,
    pub(crate) children: BTreeMap<Spawn, (EngineKey, Child)>,
    pub(crate) checks: Vec<(BuildId, EngineKey)>,
    pub(crate) open: BTreeMap<EngineKey, Grant>,
    pub(crate) events: Vec<Event>,
    pub(crate) denials: Vec<Denial>,
    pub(crate) learned: Vec<Experience>,
    /// Children whose requests show no progress.
    pub(crate) still: BTreeSet<Spawn>,
    /// Probes that were asked for and not answered.
    pub(crate) probes: Vec<(Spawn, Probe)>,
    /// Slots that are to be written and are not yet, with whose contexts.
    pub(crate) writings: Vec<WriteOf>,
    pub(crate) writes: Writes,
    pub(crate) notices: Vec<(RequestId, usize)>,
    pub(crate) width: u32,
    /// Entries by the warm path that the pool has not been told of yet.
    pub(crate) untold: BTreeMap<RequestId, Input>,
    pub(crate) machine: Machine,
    /// When each child was gone, and which cards the pool had seen in its last look.
    pub(crate) gone_at: BTreeMap<Spawn, (Now, BTreeSet<DeviceId>)>,
    /// What the last look showed, and when it was: the pool relies on it for 15 s.
    seen: (Now, BTreeSet<DeviceId>),
    /// A look at the cards was asked for.
    looks: bool,
    next: u64,
}

/// When engines write what their slots hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    AtOnce,
    WhenTold,
}

pub(crate) fn key(model: &str) -> EngineKey {
    replica(model, 0)
}

pub(crate) fn replica(model: &str, replica: u32) -> EngineKey {
    EngineKey::new("llama-server", ModelId::new(model).expect("an id"), replica).expect("a key")
}

/// A lease on `model` for a session.
pub(crate) fn of_session(model: &str, session: &str) -> Ask {
    let holder = Holder { session: Some(session.into()), ..Holder::default() };
    Ask::lease(ModelId::new(model).expect("an id"), holder)
}

/// A lease on `model` in a lane.
pub(crate) fn in_lane(model: &str, lane: Lane) -> Ask {
    Ask::lease(ModelId::new(model).expect("an id"), Holder { lane, ..Holder::default() })
}

/// A catalog of models with declared MiB, or 0 for one that is estimated; `more` is TOML added to a model's file.
pub(crate) fn catalog(models: &[(&str, u64, &str)]) -> Arc<Catalog> {
    catalog_of("llama-server", models)
}

pub(crate) fn catalog_of(engine: &str, models: &[(&str, u64, &str)]) -> Arc<Catalog> {
    static MANIFESTS: LazyLock<Vec<Manifest>> = LazyLock::new(|| {
        let parsed = embedded_manifests().iter().map(|(file, text)| parse_manifest(Source { file, text }, &|_| None));
        parsed.map(|manifest| manifest.expect("a shipped manifest")).collect()
    });
    let models = models.iter().map(|(id, mib, more)| {
        let declared = if *mib == 0 { String::new() } else { format!("declared = \"{mib}MiB\"\n") };
        let text =
            format!("id = \"{id}\"\nengine = \"{engine}\"\n{declared}{more}\n[source]\nfile = \"/models/{id}.gguf\"\n");
        parse_model(Source { file: id, text: &text }, &|_| None).expect("a model")
    });
    Arc::new(Catalog::new(MANIFESTS.clone(), models.collect()).expect("a catalog"))
}

/// A machine without devices and much more memory than its budget of `mib`.
pub(crate) fn host(mib: u64) -> Host {
    Host { ram: Bytes::gib(64), budget: BudgetSetting::explicit(Bytes::mib(mib)), ..Host::default() }
}

impl World {
    /// Models a, b, c of 600 MiB each under a budget of `mib`.
    pub(crate) fn new(mib: u64) -> Self {
        static CATALOG: LazyLock<Arc<Catalog>> =
            LazyLock::new(|| catalog(&[("a", 600, ""), ("b", 600, ""), ("c", 600, "")]));
        Self::with(mib, CATALOG.clone())
    }

    pub(crate) fn with(mib: u64, catalog: Arc<Catalog>) -> Self {
        Self::on(host(mib), catalog)
    }

    pub(crate) fn on(host: Host, catalog: Arc<Catalog>) -> Self {
        Self::configured(PoolConfig { host, ..PoolConfig::default() }, catalog)
    }

    pub(crate) fn configured(config: PoolConfig, catalog: Arc<Catalog>) -> Self {
        Self {
            machine: Machine::of(&config.host),
            gone_at: BTreeMap::new(),
            seen: (Now::ZERO, BTreeSet::new()),
            looks: false,
            pool: Pool::new(config, catalog.clone(), Spawn(1)),
            catalog,
            now: Now::from_nanos(1_000_000_000_000),
            outcomes: BTreeMap::new(),
            cancelled: Vec::new(),
            leases: BTreeMap::new(),
            children: BTreeMap::new(),
            checks: Vec::new(),
            open: BTreeMap::new(),
            events: Vec::new(),
            denials: Vec::new(),
            learned: Vec::new(),
            still: BTreeSet::new(),
            probes: Vec::new(),
            writings: Vec::new(),
            writes: Writes::AtOnce,
            notices: Vec::new(),
            width: 1,
            untold: BTreeMap::new(),
            next: 0,
        }
    }

    pub(crate) fn model(&self, id: &str) -> Arc<Model> {
        self.catalog.model(&ModelId::new(id).expect("an id")).expect("in the catalog").clone()
    }

    pub(crate) fn feed(&mut self, input: Input) {
        for action in self.pool.on_event(self.now, input) {
            self.perform(action);
        }
        if self.writes == Writes::AtOnce {
            self.write_all();
        }
        if std::mem::take(&mut self.looks) && self.machine.answers == Answers::AtOnce {
            self.read_cards();
        }
    }

    /// Everything that is to be written is.
    pub(crate) fn write_all(&mut self) {
        for written in std::mem::take(&mut self.writings) {
            self.feed(Input::SlotWritten { spawn: written.spawn, writing: written.writing });
        }
    }

    /// What a look at the cards shows now.
    pub(crate) fn read_cards(&mut self) {
        let cards = self.machine.look(self.now);
        let seen = cards.iter().filter(|(_, sight)| sight.figures().is_some());
        self.seen = (self.now, seen.map(|(id, _)| id.clone()).collect());
        self.feed(Input::Cards { begun_at: self.now, cards });
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Check { build, key, .. } => {
                assert!(!self.is_closing(), "P11: {key} is built although the pool closes");
                self.checks.push((build, key));
            }
            Action::Start { spawn, launch } => {
                assert!(!self.is_closing(), "P11: {spawn} is started although the pool closes");
                self.children.insert(spawn, (launch.key.clone(), Child::Loading));
                self.machine.started(spawn, &launch.claim);
            }
            Action::StopPolitely { spawn } => self.children.get_mut(&spawn).expect("a child").1 = Child::Asked,
            Action::Kill { spawn } => self.children.get_mut(&spawn).expect("a child").1 = Child::Killed,
            Action::Open { spawn, key, gate, endpoint } => {
                self.open.insert(key.clone(), Grant { key, spawn, endpoint, gate, slot: None, returning: None });
            }
            Action::Close { spawn } => self.open.retain(|_, grant| grant.spawn != spawn),
            Action::Grant { id, grant } => {
                self.end(id, Outcome::Granted(grant.spawn));
                self.leases.insert(id, grant);
            }
            Action::Loaded { id, key } => self.end(id, Outcome::Loaded(key)),
            Action::Refuse { id, refusal } => {
                if let Refusal::EngineBusy { key, .. } = &refusal {
                    // One that became ready while the pool closes serves who waited for it and is open to nobody.
                    let serves = self.children.values().any(|(k, child)| k == key && *child == Child::Serving);
                    assert!(serves, "{id:?}: {key} is called busy and does not serve");
                }
                self.end(id, Outcome::Refused(refusal));
            }
            Action::Reply { id, answer } => self.end(id, Outcome::Answered(answer)),
            Action::Notice { id, holders } => self.notices.push((id, holders.len())),
            Action::Publish(event) => self.events.push(event),
            Action::Learn { experience, .. } => self.learned.push(experience),
            Action::Look => self.looks = true,
            Action::Probe { spawn, probe } => self.probes.push((spawn, probe)),
            Action::WriteSlot { spawn, slot, session, writing } => {
                self.writings.push(WriteOf { spawn, slot, session: session.to_string(), writing });
            }
            Action::Deny(denial) => self.denials.push(denial),
        }
    }

    fn is_closing(&self) -> bool {
        self.n_events(|e| matches!(e, EventKind::Closing)) > 0
    }

    fn end(&mut self, id: RequestId, outcome: Outcome) {
        assert!(!self.cancelled.contains(&id), "{id:?} is gone and wants no answer");
        self.outcomes.entry(id).or_default().push(outcome);
    }

    pub(crate) fn number(&mut self) -> RequestId {
        self.next += 1;
        RequestId(self.next)
    }

    pub(crate) fn ask(&mut self, ask: Ask) -> RequestId {
        let id = self.number();
        self.feed(Input::Acquire { id, ask });
        id
    }

    pub(crate) fn acquire(&mut self, model: &str) -> RequestId {
        let holder = Holder { request: model.to_owned(), ..Holder::default() };
        self.ask(Ask::lease(ModelId::new(model).expect("an id"), holder))
    }

    pub(crate) fn admin(&mut self, make: impl FnOnce(RequestId) -> Input) -> RequestId {
        let id = self.number();
        self.feed(make(id));
        id
    }

    pub(crate) fn cancel(&mut self, id: RequestId) {
        self.cancelled.push(id);
        self.feed(Input::Cancel { id });
    }

    /// The only end of `id` so far, if any.
    pub(crate) fn outcome(&self, id: RequestId) -> Option<&Outcome> {
        let all = self.outcomes.get(&id).map_or(&[][..], Vec::as_slice);
        assert!(all.len() <= 1, "P3: {id:?} ended {all:?}");
        all.first()
    }

    pub(crate) fn is_granted(&self, id: RequestId) -> bool {
        matches!(self.outcome(id), Some(Outcome::Granted(_)))
    }

    pub(crate) fn check_all(&mut self) {
        for (build, _) in std::mem::take(&mut self.checks) {
            self.feed(Input::Checked { build, result: Ok(facts()) });
        }
    }

    pub(crate) fn fail_check(&mut self) {
        let (build, _) = self.checks.remove(0);
        let fault = StartFault { class: FailureClass::ModelCorrupt, message: "bad magic".into(), tail: vec![] };
        self.feed(Input::Checked { build, result: Err(fault) });
    }

    /// Everything the pool wants done is done at once, until it wants nothing more.
    pub(crate) fn obey(&mut self) {
        loop {
            self.check_all();
            let next =
                self.children.iter().find(|(_, (_, s))| *s != Child::Serving).map(|(spawn, (_, s))| (*spawn, *s));
            match next {
                Some((spawn, Child::Loading)) => self.ready_spawn(spawn),
                Some((spawn, _)) => self.gone(spawn),
                None => return,
            }
        }
    }

    /// The child of `model` that is in `state`.
    pub(crate) fn child(&self, model: &str, state: Child) -> Spawn {
        let of_it = |(_, (k, s)): &(&Spawn, &(EngineKey, Child))| *k == key(model) && *s == state;
        let found = self.children.iter().find(of_it);
        *found.unwrap_or_else(|| panic!("no {state:?} child of {model} in {:?}", self.children)).0
    }

    pub(crate) fn ready(&mut self, model: &str) -> Spawn {
        let spawn = self.child(model, Child::Loading);
        self.ready_spawn(spawn);
        spawn
    }

    pub(crate) fn ready_spawn(&mut self, spawn: Spawn) {
        self.children.get_mut(&spawn).expect("a child").1 = Child::Serving;
        let endpoint = Endpoint::Unix(format!("/run/{spawn}.sock").into());
        self.feed(Input::Ready { spawn, endpoint, width: self.width });
        if let Some(line) = self.machine.reports {
            let mut reported = Reported::default();
            reported.on_line(line);
            self.feed(Input::Measured {
                spawn,
                measured: Measured { reported: Some(reported), ..Measured::default() },
            });
        }
    }

    /// The child of `model` that was asked to end, or killed, is gone.
    pub(crate) fn ended(&mut self, model: &str, state: Child) {
        let spawn = self.child(model, state);
        self.gone(spawn);
    }

    pub(crate) fn gone(&mut self, spawn: Spawn) {
        self.ends(spawn, Exit::default());
    }

    fn ends(&mut self, spawn: Spawn, exit: Exit) {
        self.children.remove(&spawn);
        self.machine.gone(self.now, spawn);
        let (at, seen) = self.seen.clone();
        let seen = if self.now.since(at) < Duration::from_secs(15) { seen } else { BTreeSet::new() };
        self.gone_at.insert(spawn, (self.now, seen));
        self.feed(Input::Gone { spawn, exit });
    }

    /// The child of `model` ends, and its log tells why.
    pub(crate) fn dies_of(&mut self, spawn: Spawn, class: FailureClass) {
        self.ends(
            spawn,
            Exit { class: Some(class), code: Some(1), tail: vec!["last words".into()], ..Exit::default() },
        );
    }

    /// The loading child of `model` ends so.
    pub(crate) fn load_dies_of(&mut self, model: &str, class: FailureClass) -> Spawn {
        let spawn = self.child(model, Child::Loading);
        self.dies_of(spawn, class);
        spawn
    }

    /// What was asked of an engine, answered.
    pub(crate) fn answer(&mut self, probed: Probed) -> Probe {
        let (spawn, probe) = self.probes.remove(0);
        self.feed(Input::Probed { spawn, probe, probed });
        probe
    }

    /// Acquire, check, start, ready.
    pub(crate) fn resident(&mut self, model: &str) -> RequestId {
        let id = self.acquire(model);
        self.check_all();
        if self.children.values().any(|(k, s)| *k == key(model) && *s == Child::Loading) {
            self.ready(model);
        }
        id
    }

    /// What the lease of `id` was granted.
    pub(crate) fn lease(&self, id: RequestId) -> &Grant {
        self.leases.get(&id).unwrap_or_else(|| panic!("{id:?} has a lease, not {:?}", self.outcome(id)))
    }

    /// The replica whose lease `id` has.
    pub(crate) fn replica_of(&self, id: RequestId) -> u32 {
        self.lease(id).key.replica()
    }

    /// Replicas of `model` that serve.
    pub(crate) fn serving(&self, model: &str) -> Vec<u32> {
        let of_it = |k: &EngineKey| k.model().as_str() == model;
        let mut serving: Vec<_> = self
            .children
            .values()
            .filter(|(k, s)| of_it(k) && *s == Child::Serving)
            .map(|(k, _)| k.replica())
            .collect();
        serving.sort_unstable();
        serving
    }

    /// A lease ends; its guard counts it out at the gate before the pool is told.
    pub(crate) fn leave(&mut self, id: RequestId) {
        let spawn = self.leave_untold(id);
        self.feed(Input::Left { id, spawn });
    }

    /// A lease ends and the pool does not know yet.
    pub(crate) fn leave_untold(&mut self, id: RequestId) -> Spawn {
        self.tell(id);
        let grant = self.leases.remove(&id).expect("a lease");
        grant.gate.leave();
        grant.spawn
    }

    /// The warm path.
    pub(crate) fn enter(&mut self, model: &str) -> Option<RequestId> {
        let id = self.enter_untold(model)?;
        self.tell(id);
        Some(id)
    }

    /// The warm path, and the pool does not know yet.
    pub(crate) fn enter_untold(&mut self, model: &str) -> Option<RequestId> {
        let grant = self.open.get(&key(model))?.clone();
        if grant.gate.try_enter() != TryEnter::Entered {
            return None;
        }
        let id = self.number();
        let holder = Holder { request: "warm".into(), ..Holder::default() };
        self.untold.insert(id, Input::Entered { id, spawn: grant.spawn, holder });
        self.leases.insert(id, grant);
        Some(id)
    }

    pub(crate) fn tell(&mut self, id: RequestId) {
        if let Some(news) = self.untold.remove(&id) {
            self.feed(news);
        }
    }

    /// What is served goes on, but where nothing moves.
    fn move_leases(&self) {
        let moving = self.leases.values().filter(|grant| !self.still.contains(&grant.spawn));
        moving.for_each(|grant| grant.gate.vital().moved());
    }

    /// Lets time pass, stopping at every deadline on the way.
    pub(crate) fn pass(&mut self, within: Duration) {
        let end = self.now.after(within);
        while let Some(at) = self.pool.deadline().filter(|at| *at <= end) {
            assert!(at > self.now || self.now == at, "a deadline in the past is never left behind");
            let before = self.now;
            self.now = at.max(before);
            self.move_leases();
            self.feed(Input::Tick);
            assert!(self.pool.deadline() != Some(at), "a due deadline is dealt with");
        }
        self.now = end;
    }

    pub(crate) fn phase(&self, model: &str) -> Option<PhaseView> {
        self.pool.snapshot(self.now).entries.into_iter().find(|e| e.key == key(model)).map(|e| e.phase)
    }

    pub(crate) fn committed(&self) -> Bytes {
        self.pool.snapshot(self.now).pool.committed
    }

    pub(crate) fn n_events(&self, is_it: impl Fn(&EventKind) -> bool) -> usize {
        self.events.iter().filter(|event| is_it(&event.kind)).count()
    }
}
