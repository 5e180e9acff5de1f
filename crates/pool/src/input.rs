//! What goes into the pool and what comes out: [`Input`], [`Action`], and the values they carry.
use crate::{
    Beside, Calibration, Denial, Experience, Host, LaunchPlan, Lessons, ModelShape, Outlook, Prospect, Refusal,
    Reported, Split,
};
use motorpool_catalog::Model;
use motorpool_vocab::{
    Bytes, Claim, DeviceId, Endpoint, EngineKey, Event, FailureClass, FileId, Gate, Holder, ModelId, Now, Spawn,
};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

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
    /// How long this caller waits in all; `None`: the configured time.
    pub queue_wait: Option<Duration>,
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
        Self { model, want: Want::Lease, holder, drain_wait: None, queue_wait: None }
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
    /// Unload everything idle; answered by `Reply`.
    ReleaseIdle {
        /// The request.
        id: RequestId,
    },
    /// End everything now; answered by `Reply` when all is gone.
    Shutdown {
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
    /// The machine, or what the operator lets us use of it, is another from now on.
    Host(Host),
    /// A deadline is due.
    Tick,
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
    },
    /// Start a child; its bytes are reserved.
    Start {
        /// Its number.
        spawn: Spawn,
        /// How.
        launch: Arc<Launch>,
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
}

/// One lease that a drain waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The engine.
    pub key: EngineKey,
    /// Who holds it.
    pub holder: Holder,
}

/// The answer to an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is gone; its bytes are back.
    Unloaded,
    /// There was nothing to unload.
    NotResident,
    /// Somebody uses it: nothing changed.
    Serving(EngineKey),
    /// It did not drain in time: nothing changed.
    Busy {
        /// The engine.
        key: EngineKey,
        /// How long was waited.
        within: Duration,
    },
    /// It cannot be killed and stays charged.
    Stuck(EngineKey),
    /// What would become of the launches.
    Outlook(Vec<Outlook>),
    /// Everything idle is gone; these were busy.
    Released(Vec<EngineKey>),
    /// Everything is gone; these could not be killed.
    Ended(Vec<EngineKey>),
}

/// What was found when program and model file were looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The program to run.
    pub program: PathBuf,
    /// The file it is given: the first shard.
    pub model_path: PathBuf,
    /// Every shard with its size, then those of its draft model.
    pub files: Vec<(FileId, Bytes)>,
    /// The model's own context length.
    pub context_length: Option<u32>,
    /// The model's architecture.
    pub architecture: Option<String>,
    /// What its header says about what it takes; `None` when nothing can be read there.
    pub shape: Option<Arc<ModelShape>>,
    /// What is loaded beside it.
    pub beside: Beside,
    /// What was measured of the program.
    pub calibration: Calibration,
    /// What earlier loads of it taught.
    pub learned: Lessons,
}

/// What was seen of one child, by part. `None` is what could not be had: never zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// The buffers that its engine reported while it loaded, all of them; `None` when it does not, or some were missed.
    pub reported: Option<Reported>,
    /// Anonymous memory of its tree, swapped or not.
    pub private: Option<Bytes>,
    /// Bytes of each of the model's files that its tree has mapped.
    pub files: Option<BTreeMap<FileId, Bytes>>,
}

/// What was seen of system memory at one look. `None` is what could not be had: never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySight {
    /// What others than our children use.
    pub foreign: Option<Bytes>,
    /// What can be had now without anybody swapping.
    pub available: Option<Bytes>,
    /// How much of the last 10 s some task stood still for want of memory (`some avg10` of the kernel's pressure stall
    /// information), in hundredths of a percent: 0 to 10,000.
    pub stalled: Option<u16>,
}

/// What was seen of one graphics card at one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardSight {
    /// Its figures.
    Seen(CardFigures),
    /// None: the driver did not answer, or not in time.
    Missing,
    /// It fell off the bus, is gone, or must be reset.
    Lost,
}

impl CardSight {
    /// Its figures, when it was seen.
    pub fn figures(&self) -> Option<&CardFigures> {
        if let Self::Seen(figures) = self { Some(figures) } else { None }
    }
}

/// Figures of one graphics card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardFigures {
    /// All its memory.
    pub total: Bytes,
    /// What can be had now.
    pub free: Bytes,
    /// What the tree of each of our children holds there, loading, stopping and stuck ones included; a child that is
    /// left out holds nothing. `None`: the driver does not tell, or not by our process ids.
    pub by_spawn: Option<BTreeMap<Spawn, Bytes>>,
    /// Processes there that are not ours, the largest first; empty when they cannot be told apart.
    pub tenants: Vec<Tenant>,
}

/// A process that is not ours and holds graphics memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its process id.
    pub pid: u32,
    /// What it is called, when that can be read.
    pub name: Option<String>,
    /// What it holds.
    pub bytes: Bytes,
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
    /// What was found.
    pub facts: Facts,
    /// What was planned.
    pub plan: LaunchPlan,
    /// Which layers go where, on a host whose devices have memory of their own.
    pub split: Option<Split>,
    /// What is reserved.
    pub claim: Claim,
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
