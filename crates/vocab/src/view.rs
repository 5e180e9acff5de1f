//! What outsiders may see of the pool at one instant: [`Snapshot`].
//!
//! Values only; the wire types of the management API are made from these beside their routes.
use crate::{Bytes, Claim, DeviceId, EngineKey, ExitRecord, FailureClass, LeaseView, Now, PendingView, Spawn};
use std::{collections::BTreeMap, path::PathBuf};

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
    /// Whether an operator has drained it: it takes no requests until it is loaded.
    pub drained: bool,
    /// Whether its child takes nobody new any more and ends after its last lease, whoever asks for it: a reload changed its
    /// model, or wants fewer engines of it.
    pub goes_for_good: bool,
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
    /// The same by part, and where what was planned comes from; `None` without a child.
    pub memory: Option<MemoryParts>,
    /// When it last began or ended a lease.
    pub last_use: Option<Now>,
    /// When its first build began.
    pub created: Now,
    /// How its last child ended.
    pub last_exit: Option<ExitRecord>,
    /// What its failures mean for its next start; `None`: nothing.
    pub trouble: Option<TroubleView>,
}

impl EntryView {
    /// One without a child or a past, whose first build began at `created`.
    pub fn idle(key: EngineKey, created: Now) -> Self {
        Self {
            key,
            spawn: None,
            pid: None,
            phase: PhaseView::Idle,
            n_drainers: 0,
            drained_for: vec![],
            drained: false,
            goes_for_good: false,
            unload_at: None,
            leases: vec![],
            n_tickets: 0,
            pending: vec![],
            n_sessions: 0,
            width: None,
            demand: 0,
            reserved: Bytes::ZERO,
            planned: Bytes::ZERO,
            measured: None,
            memory: None,
            last_use: None,
            created,
            last_exit: None,
            trouble: None,
        }
    }
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

/// Where the size of a launch comes from: `declared`, `estimated`, `file-size` or `learned`.
pub type SizedFrom = &'static str;

/// What an engine takes, by part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryParts {
    /// Where what was planned comes from.
    pub from: SizedFrom,
    /// The files of its weights, on disk.
    pub weights: Bytes,
    /// What it was planned to take before it ran.
    pub planned: PartsView,
    /// What it holds in the ledger.
    pub reserved: PartsView,
    /// The most that was seen of each part since it was ready.
    pub measured: PartsView,
}

/// Memory by part. `None`, or a device that is missing: nothing is known of that part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartsView {
    /// On devices of their own memory.
    pub devices: BTreeMap<DeviceId, Bytes>,
    /// System memory of its own.
    pub private: Option<Bytes>,
    /// Mapped files, each counted whole; others may map them too.
    pub files: Option<Bytes>,
}

impl PartsView {
    /// The parts of a claim, all of them known.
    pub fn of(claim: &Claim) -> Self {
        Self {
            devices: claim.device.clone(),
            private: Some(claim.ram_private),
            files: Some(Bytes::sum(claim.ram_files.iter().map(|(_, bytes)| *bytes))),
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
