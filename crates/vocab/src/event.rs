//! What happened in the pool, one after the other: [`Event`].
use crate::{Bytes, DeviceId, EngineKey, ExitRecord, FailureClass, Holder, ModelId, Now, Spawn, StopReason};
use std::{path::PathBuf, time::Duration};

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
    /// People are to know something about a model server that somebody else runs.
    External(Box<ExternalNotice>),
    /// We changed what such a server holds.
    ExternalChanged {
        /// Its id in the configuration.
        target: String,
        /// What it is.
        server: &'static str,
        /// `load`, `evict` or `restore`.
        change: &'static str,
        /// The model, by the server's name of it.
        model: String,
    },
    /// A new catalog and new terms are taken over.
    Reloaded {
        /// Engines that end for it once those they serve have finished.
        draining: Vec<EngineKey>,
    },
    /// No new work is taken.
    Closing,
}

/// What people are to know about a model server that somebody else runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalNotice {
    /// Its id in the configuration.
    pub target: String,
    /// What it is.
    pub server: &'static str,
    /// What it is about, such as `will-not-fit`.
    pub kind: &'static str,
    /// How loud it is: `info`, `warning` or `error`.
    pub level: &'static str,
    /// About which model.
    pub model: String,
    /// For people.
    pub message: String,
    /// For programs: what applies, by name.
    pub detail: Vec<(&'static str, Fact)>,
}

/// One value of a notice's detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A count, tokens, or bytes.
    Number(u64),
    /// One name.
    Text(String),
    /// Some names.
    List(Vec<String>),
}
