//! What goes into the pool and what comes out: [`Input`], [`Action`], and the values they carry.
use crate::{
    Answer, Build, CardSight, Denial, Experience, Facts, GpuPause, Held, Host, KeepAlive, LaunchPlan, Measured,
    MemorySight, Probe, Probed, Prospect, Refusal, Reload, SessionsKept, Source, Split, Writing,
};
use motorpool_catalog::{Manifest, Model};
use motorpool_vocab::{
    Claim, DeviceId, Endpoint, EngineKey, Event, EventKind, FailureClass, Gate, Holder, ModelId, Now, Spawn,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// One request to the pool; numbered by the handle in order of arrival. A lease keeps the number of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One attempt to build one key. Never reused; news of an earlier one is ignored by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId(pub u64);

/// What somebody wants of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The model, resolved.
    pub model: ModelId,
    /// A lease, or only that it be there.
    pub want: Want,
    /// Who asks; shown to others while the lease is held.
    pub holder: Holder,
    /// How long this caller waits for others to finish; `None`: the configured time.
    pub drain_wait: Option<Duration>,
    /// How long this caller waits in all; `None`: the configured time for an interactive request, else for ever.
    pub queue_wait: Option<Duration>,
    /// Exactly this replica, 0 to 63; `None`: any.
    pub replica: Option<u32>,
    /// How important it is among those that wait in its lane, and to those whose room it needs; the greater is first.
    /// `None`: 0 in the lane, the model's own to others.
    pub priority: Option<i32>,
    /// Who says which slot of the engine is used.
    pub slots: SlotChoice,
    /// How many of its access key may wait at a time; `None`: a share of the queue.
    pub most_waiting: Option<u32>,
    /// How long its engine is kept after it, unless a later request says otherwise; `None`: as its model says.
    pub keep_alive: Option<KeepAlive>,
}

/// Who says which slot of an engine a request uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotChoice {
    /// The pool, for a session: the lease names it and the caller passes it on.
    #[default]
    Pool,
    /// The engine, or the request itself: no slot is named, nor counted as taken.
    Engine,
}

/// What an acquire ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A lease on a ready engine.
    Lease,
    /// A ready engine, without a lease.
    Resident,
}

impl Ask {
    /// A lease on `model` for `holder`, on the configured terms.
    pub fn lease(model: ModelId, holder: Holder) -> Self {
        let (drain_wait, queue_wait, replica, priority) = (None, None, None, None);
        let (slots, most_waiting, keep_alive) = (SlotChoice::default(), None, None);
        let want = Want::Lease;
        Self { model, want, holder, drain_wait, queue_wait, replica, priority, slots, most_waiting, keep_alive }
    }

    /// `model` made resident, on the configured terms.
    pub fn resident(model: ModelId) -> Self {
        Self { want: Want::Resident, ..Self::lease(model, Holder::default()) }
    }
}

/// Whether live work may be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Leases are waited for.
    No,
    /// Leases are cut.
    Yes,
}

/// Where a ticket goes in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// One place nearer.
    Up,
    /// One place farther.
    Down,
}

/// What happened, or what somebody asks.
#[derive(Clone, Debug)]
pub enum Input {
    /// Somebody wants a model; answered by `Grant`, `Loaded` or `Refuse`.
    Acquire {
        /// The request.
        id: RequestId,
        /// What it wants.
        ask: Ask,
    },
    /// The asker is gone. No answer.
    Cancel {
        /// The request.
        id: RequestId,
    },
    /// Somebody entered a gate by themselves.
    Entered {
        /// The request.
        id: RequestId,
        /// Whose gate.
        spawn: Spawn,
        /// Who.
        holder: Holder,
    },
    /// A lease was given back; the gate already counts it out.
    Left {
        /// The request.
        id: RequestId,
        /// Whose gate.
        spawn: Spawn,
    },
    /// Program and model file were looked at.
    Checked {
        /// The build that asked for it.
        build: BuildId,
        /// What was found.
        result: Result<Facts, StartFault>,
    },
    /// The child runs.
    Launched {
        /// The child.
        spawn: Spawn,
        /// Its process id.
        pid: u32,
    },
    /// The loading child showed life: a log line, a report, growth.
    Progress {
        /// The child.
        spawn: Spawn,
        /// How far, in thousandths, when it says so.
        per_mille: Option<u16>,
    },
    /// The child serves.
    Ready {
        /// The child.
        spawn: Spawn,
        /// Where.
        endpoint: Endpoint,
        /// How many requests at a time it really has slots for.
        width: u32,
    },
    /// What the tree of a child holds now; counts from ready on.
    Measured {
        /// The child.
        spawn: Spawn,
        /// What was seen.
        measured: Measured,
    },
    /// System memory was read, or could not be.
    Memory(MemorySight),
    /// The drivers of the graphics cards were asked; every card of the host is in it.
    Cards {
        /// When the look began: it shows everything that ended before.
        begun_at: Now,
        /// What each said.
        cards: BTreeMap<DeviceId, CardSight>,
    },
    /// What a child that serves was asked, and what came of it.
    Probed {
        /// The child.
        spawn: Spawn,
        /// What it was asked.
        probe: Probe,
        /// What came of it.
        probed: Probed,
    },
    /// What a slot holds was written down, or could not be.
    SlotWritten {
        /// Whose slot.
        spawn: Spawn,
        /// Which of its writings that was.
        writing: Writing,
    },
    /// The first process of a child ended by itself, and the rest of its tree is being killed; `Gone` follows.
    Ended {
        /// The child.
        spawn: Spawn,
        /// How it ended.
        exit: Exit,
    },
    /// The child and its whole tree are gone and reaped; or it never came to be.
    Gone {
        /// The child.
        spawn: Spawn,
        /// How it ended.
        exit: Exit,
    },
    /// Unload if idle; answered by `Reply`.
    UnloadIdle {
        /// The request.
        id: RequestId,
        /// The engine.
        key: EngineKey,
    },
    /// Unload, after a drain or by force; answered by `Reply`.
    Evict {
        /// The request.
        id: RequestId,
        /// The engine.
        key: EngineKey,
        /// Whether leases are cut.
        force: Force,
    },
    /// Take nothing new on an engine and stop it after its last lease, however late; answered by `Reply` then.
    Drain {
        /// The request.
        id: RequestId,
        /// The engine.
        key: EngineKey,
    },
    /// A model is to be loaded: its engines that were drained take requests again. No answer.
    Admit {
        /// The model.
        model: ModelId,
    },
    /// Unload everything idle; answered by `Reply`.
    ReleaseIdle {
        /// The request.
        id: RequestId,
    },
    /// End everything now, contexts of idle sessions saved; answered by `Reply` when all is gone.
    Shutdown {
        /// The request.
        id: RequestId,
    },
    /// The same, and nothing is waited for: what runs, and what was asked to end already, is killed.
    KillAll {
        /// The request.
        id: RequestId,
    },
    /// Take nothing new, let everything finish, end; answered by `Reply` when all is gone.
    Retire {
        /// The request.
        id: RequestId,
    },
    /// What would become of these launches; answered by `Reply`, and nothing changes.
    Consider {
        /// The request.
        id: RequestId,
        /// The launches, in order.
        prospects: Vec<Prospect>,
    },
    /// So many engines of each model are wanted from now on; answered by `Reply` at once.
    Reconcile {
        /// The request.
        id: RequestId,
        /// The models by name, each with its number.
        targets: BTreeMap<ModelId, u32>,
    },
    /// The files say something else from now on; answered by `Reply` at once.
    Reload {
        /// The request.
        id: RequestId,
        /// What they say.
        reload: Reload,
    },
    /// A ticket is taken out of the queue; answered by `Reply`.
    Withdraw {
        /// The request.
        id: RequestId,
        /// The ticket.
        ticket: RequestId,
    },
    /// A ticket changes places with its neighbour in its lane; answered by `Reply`.
    Move {
        /// The request.
        id: RequestId,
        /// The ticket.
        ticket: RequestId,
        /// Which neighbour.
        direction: Direction,
    },
    /// What failures led to is forgotten: backoff, breaker, what is held, quarantine; answered by `Reply`.
    Reset {
        /// The request.
        id: RequestId,
        /// Of this model; `None`: all.
        model: Option<ModelId>,
    },
    /// The machine, or what the operator lets us use of it, is another from now on.
    Host(Host),
    /// The graphics driver panicked; `None`: long enough ago.
    GpuPause(Option<GpuPause>),
    /// Something that happened outside of the pool takes its place among the events.
    Tell(EventKind),
    /// A deadline is due.
    Tick,
    /// Since the last input nothing ran: the machine slept, or this process was stopped (H6).
    Woke,
}

/// What the loop is to do.
#[derive(Clone, Debug)]
pub enum Action {
    /// Look at program and model file, touching nothing.
    Check {
        /// Goes back in `Checked`.
        build: BuildId,
        /// For whom.
        key: EngineKey,
        /// What to look at.
        model: Arc<Model>,
        /// The manifest of its engine.
        manifest: Arc<Manifest>,
        /// Builds that are of no use here: the first of the engine's chain that is none of these is the one.
        avoid: Arc<BTreeSet<Build>>,
    },
    /// Start a child; its bytes are reserved.
    Start {
        /// Its number.
        spawn: Spawn,
        /// How.
        launch: Arc<Launch>,
    },
    /// Ask a child that serves; answered by `Probed` in any case.
    Probe {
        /// The child.
        spawn: Spawn,
        /// What it is asked.
        probe: Probe,
    },
    /// Write down what a slot holds; answered by `SlotWritten` in any case.
    WriteSlot {
        /// Whose slot.
        spawn: Spawn,
        /// Which.
        slot: u32,
        /// Whose context it holds.
        session: Arc<str>,
        /// The number of this writing.
        writing: Writing,
    },
    /// Ask the drivers of the graphics cards now; answered by `Cards` of a look that began later.
    Look,
    /// Ask a child to stop.
    StopPolitely {
        /// The child.
        spawn: Spawn,
    },
    /// Kill a child and its tree.
    Kill {
        /// The child.
        spawn: Spawn,
    },
    /// Requests may enter this gate by themselves from now on.
    Open {
        /// The child.
        spawn: Spawn,
        /// Its key.
        key: EngineKey,
        /// Its gate.
        gate: Arc<Gate>,
        /// Where it answers.
        endpoint: Endpoint,
    },
    /// Out of routing.
    Close {
        /// The child.
        spawn: Spawn,
    },
    /// A lease; already counted in at the gate.
    Grant {
        /// The request.
        id: RequestId,
        /// The lease.
        grant: Grant,
    },
    /// The model is resident, as asked.
    Loaded {
        /// The request.
        id: RequestId,
        /// The engine.
        key: EngineKey,
    },
    /// No.
    Refuse {
        /// The request.
        id: RequestId,
        /// Why not.
        refusal: Refusal,
    },
    /// What a request waits for: who holds what it drains.
    Notice {
        /// The request.
        id: RequestId,
        /// Who.
        holders: Vec<Held>,
    },
    /// Answer of an operator's request.
    Reply {
        /// The request.
        id: RequestId,
        /// The answer.
        answer: Answer,
    },
    /// A state change, numbered.
    Publish(Event),
    /// What a child taught: to be given back with the facts of its model from now on.
    Learn {
        /// As it stood in those facts.
        about: Arc<str>,
        /// What it taught.
        experience: Experience,
    },
    /// The denial line of a refused build, written before its first refusal is sent.
    Deny(Denial),
}

/// A lease on a ready engine.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The engine.
    pub key: EngineKey,
    /// Its child.
    pub spawn: Spawn,
    /// Where it answers.
    pub endpoint: Endpoint,
    /// Where the lease is given back.
    pub gate: Arc<Gate>,
    /// The slot that is named to the engine, so that a session finds its context; `None`: the engine chooses.
    pub slot: Option<u32>,
    /// The session whose context is to be read back into that slot before anything else, if it was written down; `None`:
    /// the slot holds it, or there is none.
    pub returning: Option<Arc<str>>,
}

/// Why a start failed, or could not be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFault {
    /// What kind of failure.
    pub class: FailureClass,
    /// What is wrong, for people.
    pub message: String,
    /// The last lines of the engine, oldest first.
    pub tail: Vec<String>,
}

/// Everything that a start needs.
#[derive(Clone, Debug)]
pub struct Launch {
    /// For which key.
    pub key: EngineKey,
    /// The model.
    pub model: Arc<Model>,
    /// Its engine's manifest.
    pub manifest: Arc<Manifest>,
    /// What was found.
    pub facts: Facts,
    /// What was planned.
    pub plan: LaunchPlan,
    /// Which layers go where, on a host whose devices have memory of their own.
    pub split: Option<Split>,
    /// What is reserved.
    pub claim: Claim,
    /// Where that comes from.
    pub sized_from: Source,
    /// Whether contexts of its sessions outlive it.
    pub sessions: SessionsKept,
}

/// How a child ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Its process id, when it had one.
    pub pid: Option<u32>,
    /// Exit code.
    pub code: Option<i32>,
    /// Signal that killed it.
    pub signal: Option<i32>,
    /// What kind of failure its output tells.
    pub class: Option<FailureClass>,
    /// Its last lines, oldest first.
    pub tail: Vec<String>,
}
