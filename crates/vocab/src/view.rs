//! What outsiders may see: [`Snapshot`] of the pool, numbered [`Event`]s.
//!
//! Values only; the wire types of the management API are made from these beside their routes.
use crate::{
    Bytes, DeviceId, EngineKey, ExitRecord, FailureClass, Holder, LeaseView, ModelId, Now, PendingView, Spawn,
    StopReason,
};
use std::{path::PathBuf, time::Duration};

/// Where a ready engine answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A unix socket.
    Unix(PathBuf),
    /// A port on the loopback address.
    Tcp(u16),
}

/// The whole pool at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// When it was taken.
    pub at: Now,
    /// Number of the last event that went into it.
    pub seq: u64,
    /// Every engine that lives or has a history, by key.
    pub entries: Vec<EntryView>,
    /// Builds that wait for room, oldest first.
    pub waiters: Vec<WaiterView>,
    /// The budget and what is taken of it.
    pub pool: PoolView,
    /// Whether new work is refused.
    pub closing: bool,
}

/// The budget, the pools of memory, and what is taken of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// The bound; `None` when not enforced.
    pub budget: Option<Bytes>,
    /// What the bound would be without an explicit setting.
    pub automatic: Bytes,
    /// The bound on accelerated bytes of two or more residents; `None` when not enforced.
    pub ceiling: Option<Bytes>,
    /// The accelerated bytes of our reservations.
    pub accelerated: Bytes,
    /// The cards, then system memory.
    pub memory: Vec<MemoryView>,
    /// What our reservations take.
    pub committed: Bytes,
    /// The memory of the system that we may use.
    pub system_ram: Bytes,
}

/// One pool of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryView {
    /// The card; `None` is system memory.
    pub device: Option<DeviceId>,
    /// All of it.
    pub total: Bytes,
    /// What of it may be reserved at best.
    pub share: Bytes,
    /// What of it may be reserved now.
    pub share_now: Bytes,
    /// What our reservations take.
    pub committed: Bytes,
    /// What others use, when that was read.
    pub foreign: Option<Bytes>,
}

/// One engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryView {
    /// Which.
    pub key: EngineKey,
    /// Its live child.
    pub spawn: Option<Spawn>,
    /// The process id of that child.
    pub pid: Option<u32>,
    /// What it is doing.
    pub phase: PhaseView,
    /// Whether it is drained, and by how many.
    pub n_drainers: u32,
    /// The engines that need its room, among them; the others are operators.
    pub drained_for: Vec<EngineKey>,
    /// When it stops for want of requests, unless one comes.
    pub unload_at: Option<Now>,
    /// Requests it serves now.
    pub leases: Vec<LeaseView>,
    /// Requests that wait for it, for a lease or only to find it there.
    pub n_tickets: u32,
    /// Those that wait for a lease: lane by lane, in the order in which they would be served.
    pub pending: Vec<PendingView>,
    /// Sessions that come back to it.
    pub n_sessions: u32,
    /// Requests it can serve at a time, once ready.
    pub width: Option<u32>,
    /// Leases granted in the last 60 s.
    pub demand: u32,
    /// What it holds in the ledger.
    pub reserved: Bytes,
    /// What was planned for its child before it ran; zero without one.
    pub planned: Bytes,
    /// The most that was seen of its child since that was ready: private memory and mapped files. `None`: nothing
    /// was measured yet.
    pub measured: Option<Bytes>,
    /// When it last began or ended a lease.
    pub last_use: Option<Now>,
    /// When its first build began.
    pub created: Now,
    /// How its last child ended.
    pub last_exit: Option<ExitRecord>,
    /// What its failures mean for its next start; `None`: nothing.
    pub trouble: Option<TroubleView>,
}

/// What failures of an engine mean for its next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TroubleView {
    /// What is made of them.
    pub kind: TroubleKind,
    /// The class of the last one.
    pub class: FailureClass,
    /// Until when, where time alone ends it; else a changed input or a reset does.
    pub until: Option<Now>,
    /// What went wrong, for people.
    pub message: String,
}

/// What is made of the failures of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// It would fail again: nothing is started until an input changes or somebody resets it.
    Failed,
    /// Nobody is stopped for its next start.
    Backoff,
    /// It failed too often: nothing is started for a while.
    BreakerOpen,
    /// Every build of its program that is known is of no use here.
    Quarantined,
}

impl TroubleKind {
    /// The stable name in the API and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Backoff => "backoff",
            Self::BreakerOpen => "breaker-open",
            Self::Quarantined => "quarantined",
        }
    }
}

/// The phases of supervisor.md §3, as outsiders see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseView {
    /// No child; the last exit record says why.
    Idle,
    /// Its model file is being checked.
    Validating,
    /// It waits for room.
    WaitsForRoom,
    /// It has its room and waits for its turn to load, or for what the device says right before.
    WaitsForSlot,
    /// The child runs and loads; progress in per-mille when known.
    Starting {
        /// 0 to 1000.
        progress: Option<u16>,
    },
    /// It serves.
    Ready,
    /// It serves who is in and takes nobody new until it proved that it can; one that only failed requests takes them
    /// until it failed to prove it.
    Suspect,
    /// It was asked to stop, or killed.
    Stopping,
    /// Its child is gone and its device has not given the memory back yet.
    Reclaiming,
    /// It cannot be killed and stays charged.
    Stuck,
}

impl PhaseView {
    /// The stable name in the API and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Validating => "validating",
            Self::WaitsForRoom => "waits-for-room",
            Self::WaitsForSlot => "waits-for-slot",
            Self::Starting { .. } => "starting",
            Self::Ready => "ready",
            Self::Suspect => "suspect",
            Self::Stopping => "stopping",
            Self::Reclaiming => "reclaiming",
            Self::Stuck => "stuck",
        }
    }
}

/// A build that waits for room, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterView {
    /// The engine to build.
    pub key: EngineKey,
    /// Since when.
    pub since: Now,
    /// The bytes it needs.
    pub needs: Bytes,
    /// Engines whose end it waits for.
    pub waits_for: Vec<EngineKey>,
}

/// One state change, numbered without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub seq: u64,
    /// When.
    pub at: Now,
    /// What.
    pub kind: EventKind,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Bytes were reserved for a child; it is started when it is its turn to load.
    Reserved {
        /// The engine.
        key: EngineKey,
        /// Its child.
        spawn: Spawn,
        /// The bytes.
        bytes: Bytes,
    },
    /// A child serves.
    Ready {
        /// The engine.
        key: EngineKey,
        /// Its child.
        spawn: Spawn,
        /// From the order to start until now.
        within: Duration,
    },
    /// What is reserved for a child follows from what was measured of it now.
    Corrected {
        /// The engine.
        key: EngineKey,
        /// Its child.
        spawn: Spawn,
        /// The bytes that were reserved, mapped files whole.
        from: Bytes,
        /// The bytes that are; the same where only another part holds them.
        to: Bytes,
    },
    /// More is reserved than may be: a correction, others' use of the machine, or a smaller budget. Nothing busy is
    /// touched, and nothing is granted there until it is cured.
    Overflow {
        /// By so much, where it is worst.
        by: Bytes,
    },
    /// No more is reserved than may be.
    OverflowCured,
    /// A pool could not be read.
    ReadingMissing {
        /// The card; `None` is system memory.
        device: Option<DeviceId>,
    },
    /// A graphics card is gone, or must be reset: nothing new goes there until it is seen again.
    DeviceLost {
        /// The card.
        device: DeviceId,
    },
    /// A card that was lost is seen again.
    DeviceBack {
        /// The card.
        device: DeviceId,
    },
    /// A child that was planned for graphics devices holds next to nothing there: it computes on the processor.
    CpuFallback {
        /// The engine.
        key: EngineKey,
        /// Its child.
        spawn: Spawn,
        /// What was planned for devices.
        planned: Bytes,
    },
    /// Memory runs low, and not by our own doing: engines that are idle for a while go, one at a time.
    Pressure {
        /// The card; `None` is system memory.
        device: Option<DeviceId>,
        /// What is free there, when that was read.
        free: Option<Bytes>,
    },
    /// Memory does not run low any more.
    PressureOver {
        /// The card; `None` is system memory.
        device: Option<DeviceId>,
    },
    /// A child is being stopped.
    Stopping {
        /// The engine.
        key: EngineKey,
        /// Its child.
        spawn: Spawn,
        /// Why.
        reason: StopReason,
    },
    /// A child is gone.
    Exited {
        /// The engine.
        key: EngineKey,
        /// How it ended.
        record: ExitRecord,
    },
    /// A child's bytes are back.
    Released {
        /// The engine.
        key: EngineKey,
        /// Its child.
        spawn: Spawn,
    },
    /// A child cannot be killed; it stays charged.
    Stuck {
        /// The engine.
        key: EngineKey,
        /// Its child.
        spawn: Spawn,
    },
    /// A drain began.
    DrainBegan {
        /// The engine drained.
        key: EngineKey,
        /// Who holds it.
        holders: Vec<Holder>,
    },
    /// A drain was given up.
    DrainGivenUp {
        /// The engine.
        key: EngineKey,
    },
    /// A build that nobody waits for was put off: there is no room without stopping others.
    Deferred {
        /// The engine.
        key: EngineKey,
        /// What is missing.
        why: String,
    },
    /// A build was refused because the graphics driver panicked a short time ago.
    GpuPaused {
        /// The engine.
        key: EngineKey,
        /// When, what, and for how long.
        why: String,
    },
    /// A start failed.
    StartFailed {
        /// The engine.
        key: EngineKey,
        /// What kind of failure.
        class: FailureClass,
    },
    /// It failed to start too often: nothing is started for a while.
    BreakerOpened {
        /// The engine.
        key: EngineKey,
        /// What kind of failure the last one was.
        class: FailureClass,
        /// For how long.
        within: Duration,
    },
    /// A program is of no use on this machine: the next build in its engine's chain is used.
    Quarantined {
        /// The engine that showed it.
        key: EngineKey,
        /// The program.
        program: PathBuf,
    },
    /// An engine may serve no more, and must prove that it does.
    Suspected {
        /// The engine.
        key: EngineKey,
        /// Its child.
        spawn: Spawn,
        /// What speaks against it.
        why: &'static str,
    },
    /// An engine that was suspected serves.
    Recovered {
        /// The engine.
        key: EngineKey,
        /// Its child.
        spawn: Spawn,
    },
    /// Somebody wants earlier failures forgotten.
    Reset {
        /// Of this model; `None`: all.
        model: Option<ModelId>,
    },
    /// A launch was planned with less context than was wanted, so that it could ever fit.
    ContextClamped {
        /// The engine.
        key: EngineKey,
        /// Tokens per slot that were wanted.
        wanted: u32,
        /// Tokens per slot that were planned.
        context_per_slot: u32,
        /// Slots that were planned.
        slots: u32,
    },
    /// A launch was planned with more context than would be enough: there was room.
    ContextGrown {
        /// The engine.
        key: EngineKey,
        /// Tokens per slot that would have been enough.
        from: u32,
        /// Tokens per slot that were planned.
        context_per_slot: u32,
        /// Slots that were planned.
        slots: u32,
    },
    /// A build was refused for want of room.
    CapacityDenied {
        /// The engine.
        key: EngineKey,
        /// The bytes it needed.
        requested: Bytes,
        /// What would have been committed.
        would_commit: Bytes,
        /// The bound it meets.
        bound: Bytes,
    },
    /// A build was refused for the context that it was to have; a shorter one would fit.
    ContextDenied {
        /// The engine.
        key: EngineKey,
        /// The fewest tokens per slot that were of use.
        asked: u32,
        /// The most tokens per slot that would fit.
        fits: u32,
        /// What would have been committed.
        would_commit: Bytes,
        /// The bound it meets.
        bound: Bytes,
    },
    /// No new work is taken.
    Closing,
}
