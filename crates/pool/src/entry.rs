//! What the pool keeps: [`Entry`] by key, [`Ticket`] by request, [`Teardown`] by child.
//!
//! A phase owns its data. What an entry's child is asked to become is the phase; who asked is in the tickets, the
//! drain or the teardown.
use crate::{
    Ask, BuildId, Facts, KeepAlive, Launch, RequestId,
    attempt::Attempts,
    backoff::Backoff,
    failure::Failures,
    fallback::Proving,
    health::Health,
    queue::Shares,
    reclaim::Free,
    session::{Slots, Writing},
    shut::Admits,
};
use motorpool_broker::{Draft, Placement};
use motorpool_catalog::Model;
use motorpool_vocab::{Bytes, DeviceId, Endpoint, EngineKey, ExitRecord, Gate, Holder, Now, Spawn, StopReason};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

slotmap::new_key_type! {
    /// An entry inside the pool; its key is for the outside.
    pub(crate) struct EntryId;
}

/// Leases granted so long ago are no demand any more (pool.md §1).
const DEMAND_WINDOW: Duration = Duration::from_mins(1);

/// Everything known of one key.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: EngineKey,
    pub(crate) model: Arc<Model>,
    pub(crate) created: Now,
    pub(crate) phase: Phase,
    pub(crate) queue: BTreeSet<RequestId>,
    pub(crate) hits: VecDeque<Now>,
    pub(crate) last_use: Option<Now>,
    pub(crate) last_exit: Option<ExitRecord>,
    /// When it last served, or was asked for, anything but ambient work.
    pub(crate) last_work: Option<Now>,
    /// Who acted in its last lease.
    pub(crate) last_actor: Option<String>,
    /// What owners have had of it.
    pub(crate) shares: Shares,
    pub(crate) attempts: Attempts,
    pub(crate) backoff: Backoff,
    pub(crate) failures: Failures,
    /// Who was stopped for its build, and gets that back if it fails.
    pub(crate) owes: BTreeSet<EntryId>,
    /// Whether an operator has drained it.
    pub(crate) admits: Admits,
}

/// See the diagram in the crate's documentation.
#[derive(Debug)]
pub(crate) enum Phase {
    Idle,
    Checking { build: BuildId, since: Now, until: Now },
    WaitsForRoom(Box<Waiting>),
    Admission(Box<Admission>),
    Starting(Loading),
    Proving(Box<Proving>),
    Ready(Box<Serving>),
    Stopping { spawn: Spawn },
}

/// A build that is planned and has no bytes yet.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) facts: Facts,
    /// Everything of its launch but its place.
    pub(crate) draft: Draft,
    /// Where it was judged to go last.
    pub(crate) placement: Option<Placement>,
    pub(crate) since: Now,
    /// Its place among the builds that wait: when it began, however long its check took, and the build for those that
    /// began at the same instant. One that gave way to those behind it begins anew.
    pub(crate) turn: Now,
    pub(crate) build: BuildId,
    /// Until then it has no room, whatever the ledger says: it would have to stop others, and its last start failed.
    pub(crate) not_before: Now,
    /// Entries that are drained for it.
    pub(crate) drains: BTreeSet<EntryId>,
    /// Children that were stopped for it.
    pub(crate) evicted: BTreeSet<Spawn>,
    /// Cards whose drivers have not given back in time what one of those held.
    pub(crate) withheld: BTreeSet<DeviceId>,
}

/// A build that has its room, and with it its line, and no child yet.
#[derive(Debug)]
pub(crate) struct Admission {
    /// The number of the child to be.
    pub(crate) spawn: Spawn,
    pub(crate) launch: Arc<Launch>,
    /// What it goes back to when its place is no place any more.
    pub(crate) waiting: Box<Waiting>,
    pub(crate) step: Admitting,
    pub(crate) made_room: MadeRoom,
}

/// How far the last checks of a build are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitting {
    /// Others load where it is to go.
    WaitsForSlot,
    /// A look at the cards was asked for.
    Looks { asked_at: Now, until: Now },
    /// What was stopped for it has not given its memory back.
    AwaitsMemory,
}

/// Whether idle engines were stopped for what was measured to be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MadeRoom {
    No,
    Yes,
}

/// What came of stopping a set of idle engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evicted {
    All,
    /// Somebody was faster.
    None,
}

/// A child from the order to start it until it serves.
#[derive(Debug)]
pub(crate) struct Loading {
    pub(crate) spawn: Spawn,
    pub(crate) pid: Option<u32>,
    pub(crate) ordered_at: Now,
    pub(crate) stall_at: Now,
    pub(crate) cap_at: Now,
    pub(crate) progress: Option<u16>,
    /// Private memory beside the buffers that its engine will report; `None`: its parts are not known.
    pub(crate) beside: Option<Bytes>,
    /// Its devices as it numbers them.
    pub(crate) order: Vec<DeviceId>,
}

/// A child that serves.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) spawn: Spawn,
    pub(crate) pid: Option<u32>,
    pub(crate) ordered_at: Now,
    pub(crate) ready_at: Now,
    pub(crate) gate: Arc<Gate>,
    pub(crate) endpoint: Endpoint,
    pub(crate) drain: Drain,
    /// Leases whose end the pool was not told of; its gate may have counted them out.
    pub(crate) n_leases: u32,
    /// Leases that the pool granted and that are not interactive.
    pub(crate) n_background: u32,
    pub(crate) slots: Slots,
    /// How long it is kept without a request, by the word of the last one.
    pub(crate) keep: KeepAlive,
    pub(crate) health: Health,
}

impl Serving {
    /// Whether nobody new is let in: it is drained, or must prove first that it serves.
    pub(crate) fn is_shut(&self) -> bool {
        self.drain.is_active() || self.health.is_barred()
    }
}

/// For whom a serving child is drained. Empty: it is not, and its gate is open (unless the pool is closing).
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Builds that need its room.
    pub(crate) waiters: BTreeSet<EntryId>,
    /// Operators who want it gone, and until when they wait.
    pub(crate) askers: BTreeMap<RequestId, (Now, Duration)>,
    /// Why it goes whoever gives up: its entry is another, or gone (`reload.rs`).
    pub(crate) for_good: Option<StopReason>,
}

impl Drain {
    pub(crate) fn is_active(&self) -> bool {
        !self.waiters.is_empty() || !self.askers.is_empty() || self.for_good.is_some()
    }
}

/// A request without a lease yet.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) entry: EntryId,
    pub(crate) ask: Ask,
    pub(crate) since: Now,
    /// Until when it waits in all; `None`: for ever.
    pub(crate) queue_until: Option<Now>,
    pub(crate) turn: Turn,
    pub(crate) wait: Wait,
}

/// The place of a ticket among equals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The smaller is first.
    pub(crate) number: u64,
    /// Whether an operator put it there.
    pub(crate) placed: bool,
}

/// What a ticket waits for beside the phase of its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Its turn: a build, a teardown, a slot.
    Turn,
    /// A drain: of what must go for it, or of its own engine for somebody else.
    Drain { until: Now, notice_at: Now },
    /// A slot of its own engine that is drained for somebody else: its drain deadline passed.
    Entitled,
}

/// A lease that is held.
#[derive(Debug)]
pub(crate) struct LeaseLine {
    pub(crate) spawn: Spawn,
    pub(crate) holder: Holder,
    /// Which slot, where the pool named one.
    pub(crate) slot: Option<u32>,
}

/// A child that was told to end. It keeps its ledger line until it is gone.
#[derive(Debug)]
pub(crate) struct Teardown {
    pub(crate) entry: EntryId,
    pub(crate) key: EngineKey,
    pub(crate) reason: StopReason,
    pub(crate) step: Step,
    pub(crate) pid: Option<u32>,
    pub(crate) ordered_at: Now,
    pub(crate) ever_ready: EverReady,
    /// What was free on its cards when its stop began.
    pub(crate) free_before: Free,
    /// Operators who wait for its end.
    pub(crate) askers: Vec<RequestId>,
}

/// How far a teardown is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// These writings of what its slots hold are awaited.
    Writing {
        until: Now,
        left: BTreeSet<Writing>,
        then: Next,
    },
    Polite {
        kill_at: Now,
    },
    Killed {
        stuck_at: Now,
    },
    Stuck,
}

/// What becomes of a child once its slots are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Polite,
    /// It served when its stop began.
    Kill,
}

/// Whether a child served before it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EverReady {
    No,
    Yes,
}

impl Entry {
    pub(crate) fn new(now: Now, key: EngineKey, model: Arc<Model>) -> Self {
        Self {
            key,
            model,
            created: now,
            phase: Phase::Idle,
            queue: BTreeSet::new(),
            hits: VecDeque::new(),
            last_use: None,
            last_exit: None,
            last_work: None,
            last_actor: None,
            shares: Shares::default(),
            attempts: Attempts::default(),
            backoff: Backoff::default(),
            failures: Failures::default(),
            owes: BTreeSet::new(),
            admits: Admits::All,
        }
    }

    /// The child that lives, or is about to, and is not on its way out.
    pub(crate) fn spawn(&self) -> Option<Spawn> {
        match &self.phase {
            Phase::Admission(admission) => Some(admission.spawn),
            Phase::Proving(proving) => Some(proving.spawn),
            Phase::Starting(loading) => Some(loading.spawn),
            Phase::Ready(serving) => Some(serving.spawn),
            Phase::Idle | Phase::Checking { .. } | Phase::WaitsForRoom(_) | Phase::Stopping { .. } => None,
        }
    }

    pub(crate) fn serving(&self) -> Option<&Serving> {
        if let Phase::Ready(serving) = &self.phase { Some(serving) } else { None }
    }

    pub(crate) fn serving_mut(&mut self) -> Option<&mut Serving> {
        if let Phase::Ready(serving) = &mut self.phase { Some(serving) } else { None }
    }

    /// Whether its child takes nobody new any more, whoever gives up.
    pub(crate) fn goes_for_good(&self) -> bool {
        self.serving().is_some_and(|serving| serving.drain.for_good.is_some())
    }

    /// Whether somebody wants its child drained.
    pub(crate) fn is_draining(&self) -> bool {
        self.serving().is_some_and(|serving| serving.drain.is_active())
    }

    pub(crate) fn waiting(&self) -> Option<&Waiting> {
        if let Phase::WaitsForRoom(waiting) = &self.phase { Some(waiting) } else { None }
    }

    pub(crate) fn waiting_mut(&mut self) -> Option<&mut Waiting> {
        if let Phase::WaitsForRoom(waiting) = &mut self.phase { Some(waiting) } else { None }
    }

    pub(crate) fn admission(&self) -> Option<&Admission> {
        if let Phase::Admission(admission) = &self.phase { Some(admission) } else { None }
    }

    pub(crate) fn admission_mut(&mut self) -> Option<&mut Admission> {
        if let Phase::Admission(admission) = &mut self.phase { Some(admission) } else { None }
    }

    /// Its build, from the plan to the start of its child.
    pub(crate) fn planned_mut(&mut self) -> Option<&mut Waiting> {
        match &mut self.phase {
            Phase::WaitsForRoom(waiting) => Some(waiting),
            Phase::Admission(admission) => Some(&mut admission.waiting),
            _ => None,
        }
    }

    /// A lease was granted.
    pub(crate) fn hit(&mut self, now: Now) {
        self.forget_old_hits(now);
        self.hits.push_back(now);
        self.last_use = Some(now);
    }

    pub(crate) fn forget_old_hits(&mut self, now: Now) {
        while self.hits.front().is_some_and(|at| now.since(*at) > DEMAND_WINDOW) {
            self.hits.pop_front();
        }
    }

    /// Leases granted in the last 60 s.
    pub(crate) fn demand(&self, now: Now) -> u32 {
        let old = self.hits.partition_point(|at| now.since(*at) > DEMAND_WINDOW);
        u32::try_from(self.hits.len() - old).unwrap_or(u32::MAX)
    }
}
