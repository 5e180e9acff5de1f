//! [`Pool`]: the value, the dispatch of inputs, the one deadline.
use crate::{
    Action, Answer, BuildId, GpuPause, Input, Launch, LoadSlots, OnAbandon, OnCpuFallback, OnDeadline, QueueTerms,
    RequestId, ScaleTerms, SessionsKept,
    breaker::BreakerTerms,
    correct::Account,
    entry::{Admitting, Entry, EntryId, LeaseLine, Phase, Step, Teardown, Ticket, Turn, Wait},
    failure::Quarantine,
    health::HealthTerms,
    learned::Study,
    overflow::Owed,
    pressure::Pressures,
    reclaim::Reclaims,
    replica::Family,
    session::Sessions,
    sight::Sights,
    upkeep::Upkeep,
};
use motorpool_broker::{Host, Ledger, Policy};
use motorpool_catalog::{Catalog, Manifest};
use motorpool_vocab::{DeviceId, EngineKey, Event, EventKind, ModelId, Now, Spawn};
use slotmap::SlotMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Everything the pool is told once.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// The machine, and what the operator lets us use of it; see `Input::Host`.
    pub host: Host,
    /// How engines that go for room are ranked.
    pub policy: Policy,
    /// From then on nothing protects a busy engine from a waiter (60 s).
    pub max_wait: Duration,
    /// A fresh engine is not drained before it is so old (10 s).
    pub min_residency: Duration,
    /// How long a caller waits for others to finish, unless it says otherwise (30 s).
    pub drain_wait: Duration,
    /// How long a caller waits in all, unless it says otherwise (10 min).
    pub queue_wait: Duration,
    /// A look at a program and a model's files that takes longer is given up (60 s): their file system hangs.
    pub check_within: Duration,
    /// A loading child without any sign of life for so long is killed (60 s).
    pub stall_within: Duration,
    /// A loading child is killed after so long in any case (30 min).
    pub load_within: Duration,
    /// From the polite stop to the kill (5 s).
    pub polite_within: Duration,
    /// From the kill to giving it up as stuck (10 s).
    pub kill_within: Duration,
    /// How long queues may grow.
    pub queue: QueueTerms,
    /// When replicas come and go by themselves.
    pub scale: ScaleTerms,
    /// What becomes of an engine that did not drain in time.
    pub on_deadline: OnDeadline,
    /// What becomes of a load that nobody waits for any more.
    pub on_abandon: OnAbandon,
    /// Where the jitter of retries begins.
    pub seed: u64,
    /// From the end of a child until its devices have to have given its memory back (5 s).
    pub reclaim_within: Duration,
    /// How many engines load at a time.
    pub load_slots: LoadSlots,
    /// What becomes of an engine that was planned for graphics devices and computes on the processor.
    pub on_cpu_fallback: OnCpuFallback,
    /// When starts are given up for a while.
    pub breaker: BreakerTerms,
    /// When an engine is asked whether it serves, and given up.
    pub health: HealthTerms,
    /// Whether contexts of sessions outlive engines that can be asked for them.
    pub sessions_kept: SessionsKept,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            host: Host::default(),
            policy: Policy::default(),
            max_wait: Duration::from_mins(1),
            min_residency: Duration::from_secs(10),
            drain_wait: Duration::from_secs(30),
            queue_wait: Duration::from_mins(10),
            check_within: Duration::from_mins(1),
            stall_within: Duration::from_mins(1),
            load_within: Duration::from_mins(30),
            polite_within: Duration::from_secs(5),
            kill_within: Duration::from_secs(10),
            queue: QueueTerms::default(),
            scale: ScaleTerms::default(),
            on_deadline: OnDeadline::default(),
            on_abandon: OnAbandon::default(),
            seed: 0,
            reclaim_within: Duration::from_secs(5),
            load_slots: LoadSlots::default(),
            on_cpu_fallback: OnCpuFallback::default(),
            breaker: BreakerTerms::default(),
            health: HealthTerms::default(),
            sessions_kept: SessionsKept::Yes,
        }
    }
}

/// The pool as a value. See the crate's documentation.
#[derive(Debug)]
pub struct Pool {
    pub(crate) config: PoolConfig,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) ledger: Ledger,
    pub(crate) entries: SlotMap<EntryId, Entry>,
    pub(crate) by_key: BTreeMap<EngineKey, EntryId>,
    pub(crate) families: BTreeMap<ModelId, Family>,
    /// Entries of no model any more.
    pub(crate) strays: BTreeSet<EntryId>,
    pub(crate) sessions: Sessions,
    pub(crate) upkeep: Upkeep,
    pub(crate) by_spawn: BTreeMap<Spawn, EntryId>,
    pub(crate) tickets: BTreeMap<RequestId, Ticket>,
    pub(crate) leases: BTreeMap<RequestId, LeaseLine>,
    pub(crate) teardowns: BTreeMap<Spawn, Teardown>,
    /// What is known of the memory of every child that served, until it is gone.
    pub(crate) accounts: BTreeMap<Spawn, Account>,
    /// Of whom something may be learned, until its tree is gone.
    pub(crate) studies: BTreeMap<Spawn, Study>,
    /// How every child that is not gone was launched.
    pub(crate) launches: BTreeMap<Spawn, Arc<Launch>>,
    pub(crate) quarantine: Quarantine,
    /// Devices that an engine died of, and when they are given another chance.
    pub(crate) condemned: BTreeMap<DeviceId, Now>,
    pub(crate) owed: Owed,
    /// Children that are gone and whose devices have not agreed.
    pub(crate) reclaims: Reclaims,
    pub(crate) pressures: Pressures,
    pub(crate) sights: Sights,
    pub(crate) gpu_pause: Option<GpuPause>,
    pub(crate) mode: Mode,
    pub(crate) releases: Vec<Release>,
    /// When the last input was taken.
    at: Now,
    next_spawn: Spawn,
    next_build: BuildId,
    next_turn: u64,
    seq: u64,
    actions: Vec<Action>,
}

/// Whether new work is taken.
#[derive(Debug)]
pub(crate) enum Mode {
    Open,
    /// Nothing new; everything finishes. Who asked for it.
    Retiring(Vec<RequestId>),
    /// Nothing new; everything is ended. Who asked for it, retirers included.
    ShuttingDown(Vec<RequestId>),
}

/// A `ReleaseIdle` that waits for teardowns.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) id: RequestId,
    pub(crate) pending: Vec<Spawn>,
    pub(crate) busy: Vec<EngineKey>,
}

impl Pool {
    /// An empty pool whose first child gets the number `next_spawn`.
    pub fn new(config: PoolConfig, catalog: Arc<Catalog>, next_spawn: Spawn) -> Self {
        let ledger = Ledger::new(config.host.bounds());
        let upkeep = Upkeep::new(&catalog, config.seed);
        Self {
            config,
            catalog,
            ledger,
            entries: SlotMap::with_key(),
            by_key: BTreeMap::new(),
            families: BTreeMap::new(),
            strays: BTreeSet::new(),
            sessions: Sessions::default(),
            upkeep,
            by_spawn: BTreeMap::new(),
            tickets: BTreeMap::new(),
            leases: BTreeMap::new(),
            teardowns: BTreeMap::new(),
            accounts: BTreeMap::new(),
            studies: BTreeMap::new(),
            launches: BTreeMap::new(),
            quarantine: Quarantine::default(),
            condemned: BTreeMap::new(),
            owed: Owed::default(),
            reclaims: Reclaims::default(),
            pressures: Pressures::default(),
            sights: Sights::default(),
            gpu_pause: None,
            mode: Mode::Open,
            releases: Vec::new(),
            at: Now::ZERO,
            next_spawn,
            next_build: BuildId(0),
            next_turn: 0,
            seq: 0,
            actions: Vec::new(),
        }
    }

    /// Takes one input and everything that is due at `now`; says what is to be done, in order.
    #[must_use]
    pub fn on_event(&mut self, now: Now, input: Input) -> Vec<Action> {
        let before = std::mem::replace(&mut self.at, now);
        match input {
            Input::Acquire { id, ask } => self.on_acquire(now, id, ask),
            Input::Cancel { id } => self.on_cancel(now, id),
            Input::Entered { id, spawn, holder } => self.on_entered(now, id, (spawn, holder)),
            Input::Left { id, spawn } => self.on_left(now, id, spawn),
            Input::Checked { build, result } => self.on_checked(now, build, result),
            Input::Launched { spawn, pid } => self.on_launched(spawn, pid),
            Input::Progress { spawn, per_mille } => self.on_progress(now, spawn, per_mille),
            Input::Ready { spawn, endpoint, width } => self.on_ready(now, spawn, endpoint, width),
            Input::Measured { spawn, measured } => self.on_measured(now, spawn, &measured),
            Input::Memory(memory) => self.on_memory(now, memory),
            Input::Probed { spawn, probe, probed } => self.on_probed(now, spawn, (probe, probed)),
            Input::Reset { id, model } => self.on_reset(now, id, model),
            Input::SlotWritten { spawn, writing } => self.on_slot_written(now, spawn, writing),
            Input::Ended { spawn, exit } => self.on_ended(now, spawn, exit),
            Input::Gone { spawn, exit } => self.on_gone(now, spawn, exit),
            Input::UnloadIdle { id, key } => self.on_unload_idle(now, id, &key),
            Input::Evict { id, key, force } => self.on_evict(now, id, &key, force),
            Input::Drain { id, key } => self.on_drain(now, id, &key),
            Input::Admit { model } => self.on_admit(now, &model),
            Input::ReleaseIdle { id } => self.on_release_idle(now, id),
            Input::Shutdown { id } => self.on_shutdown(now, id),
            Input::KillAll { id } => self.on_kill_all(now, id),
            Input::Retire { id } => self.on_retire(now, id),
            Input::Consider { id, prospects } => {
                let outlook = self.outlook(now, prospects);
                self.reply(id, Answer::Outlook(outlook));
            }
            Input::Reconcile { id, targets } => self.on_reconcile(now, id, targets),
            Input::Reload { id, reload } => self.on_reload(now, id, reload),
            Input::Withdraw { id, ticket } => self.on_withdraw(now, id, ticket),
            Input::Move { id, ticket, direction } => self.on_move(now, id, (ticket, direction)),
            Input::Host(host) => self.on_host(now, host),
            Input::Cards { begun_at, cards } => self.on_cards(now, begun_at, &cards),
            Input::GpuPause(pause) => self.gpu_pause = pause,
            Input::Tell(kind) => self.publish(now, kind),
            Input::Woke => self.on_woke(now, before),
            Input::Tick => {}
        }
        self.on_due(now);
        self.settle(now);
        // Who does not wait at all is due as soon as a drain begins, and what it gives up may begin another.
        for _ in 0..self.entries.len() {
            if self.deadline().is_none_or(|at| at > now) {
                break;
            }
            self.on_due(now);
            self.settle(now);
        }
        std::mem::take(&mut self.actions)
    }

    /// The bytes of `spawn` are back.
    pub(crate) fn release(&mut self, spawn: Spawn) {
        self.ledger.release(spawn);
        self.upkeep.freed += 1;
    }

    /// Nothing is evicted by itself: what waits for room is judged by the new bounds from now on.
    fn on_host(&mut self, now: Now, host: Host) {
        let _ = self.ledger.set_bounds(host.bounds());
        self.config.host = host;
        self.sights.are_of_another_host();
        self.forget_fallbacks();
        self.observe_cards();
        self.readmit(now);
    }

    /// When the next `Tick` is due, if nothing happens before.
    pub fn deadline(&self) -> Option<Now> {
        let tickets = self.tickets.values().flat_map(|t| {
            let waits = match t.wait {
                Wait::Drain { until, notice_at } => [Some(until), Some(notice_at)],
                Wait::Turn | Wait::Entitled => [None, None],
            };
            waits.into_iter().flatten().chain(t.queue_until)
        });
        let teardowns = self.teardowns.values().filter_map(|t| match t.step {
            Step::Writing { until, .. } => Some(until),
            Step::Polite { kill_at } => Some(kill_at),
            Step::Killed { stuck_at } => Some(stuck_at),
            Step::Stuck => None,
        });
        let phases = self.entries.values().filter_map(|e| match &e.phase {
            Phase::Starting(l) => Some(l.stall_at.min(l.cap_at)),
            Phase::Proving(p) => Some(p.until),
            Phase::Ready(s) => s.drain.askers.values().map(|(until, _)| *until).min(),
            Phase::Admission(a) => match a.step {
                Admitting::Looks { until, .. } => Some(until),
                Admitting::WaitsForSlot | Admitting::AwaitsMemory => None,
            },
            Phase::Checking { until, .. } => Some(*until),
            Phase::Idle | Phase::WaitsForRoom(_) | Phase::Stopping { .. } => None,
        });
        let machine = self.sights.trust_ends().chain(self.reclaims.deadlines()).chain(self.condemned.values().copied());
        let own = self.protection_ends().chain(self.upkeep_ends()).chain(self.health_ends()).chain(self.write_ends());
        tickets.chain(teardowns).chain(phases).chain(own).chain(machine).min()
    }

    /// Does what is due: each kind of deadline in one place, in the order sights, tickets, looks, loads, drains,
    /// teardowns, reclaims.
    fn on_due(&mut self, now: Now) {
        self.on_due_sights(now);
        self.on_due_chances(now);
        self.watch_health(now);
        self.on_due_tickets(now);
        self.on_due_checks(now);
        self.on_due_loads(now);
        self.on_due_looks(now);
        self.on_due_proofs(now);
        self.write_unused(now);
        self.end_finished_drains(now);
        self.on_due_askers(now);
        self.on_due_teardowns(now);
        self.on_due_reclaims(now);
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(crate) fn reply(&mut self, id: RequestId, answer: Answer) {
        self.act(Action::Reply { id, answer });
    }

    pub(crate) fn publish(&mut self, now: Now, kind: EventKind) {
        self.seq += 1;
        let event = Event { seq: self.seq, at: now, kind };
        self.act(Action::Publish(event));
    }

    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    pub(crate) fn number_spawn(&mut self) -> Spawn {
        let spawn = self.next_spawn;
        self.next_spawn = Spawn(spawn.0 + 1);
        spawn
    }

    pub(crate) fn number_build(&mut self) -> BuildId {
        self.next_build = BuildId(self.next_build.0 + 1);
        self.next_build
    }

    pub(crate) fn number_turn(&mut self) -> Turn {
        self.next_turn += 1;
        Turn { number: self.next_turn, placed: false }
    }

    /// The entry whose child `spawn` is, if that is its present one.
    pub(crate) fn entry_of(&self, spawn: Spawn) -> Option<EntryId> {
        self.by_spawn.get(&spawn).copied()
    }

    /// When the waiting builds were judged last.
    pub(crate) fn judged_at(&self) -> Now {
        self.at
    }

    /// The manifest of the engine with this name, of the catalog that counts now.
    pub fn manifest(&self, engine: &str) -> Option<&Arc<Manifest>> {
        self.catalog.manifest(engine)
    }

    /// How long memory of a child that is gone is waited for.
    pub fn reclaim_within(&self) -> Duration {
        self.config.reclaim_within
    }

    pub(crate) fn is_closing(&self) -> bool {
        !matches!(self.mode, Mode::Open)
    }
}
