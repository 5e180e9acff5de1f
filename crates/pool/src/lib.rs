//! The provider pool: the lifecycle of every engine, as a value.
//!
//! Boundary: no clock, no async, no I/O. Inputs go in with `now`, actions come out; the one loop in `supervisor`
//! performs them and brings back what happened. Any interleaving can be replayed in a test, and is.
//!
//! ```text
//!         acquire           fits / room made    slot, last checks      ready
//!   Idle ────────► Checking ──► WaitsForRoom ──► Admission ──► Starting ──────► Ready
//!    ▲                │ fault       │ never        │ short       │ exit, stalled  │ evicted, unloaded, leaving
//!    │◄───────────────┴─────────────┴──────────────┘             ▼                ▼
//!    │                                       Stopping: polite ─► killed ─► stuck (stays charged)
//!    └── gone: the key is free, the line stays until its devices agree ◄──┘
//! ```
//!
//! * An *entry* is what is known of a key: its phase, its waiting tickets, its history. An entry in `Idle` holds no
//!   bytes. A child that is stopped is a *teardown* with its own ledger line; its entry waits for it, unless it is
//!   stuck: then the key is built anew beside it. What a child that is gone has not given back is a *reclaim*, which
//!   keeps that line.
//! * A *ticket* waits; a *lease* is held to the last byte of a response. Who asks is told exactly once.
//! * A *drain* closes a gate for builds that need the room, or for somebody who asked. The last lease's end wakes it.
//! * One build per key. Builds wait for room in the order in which they began to (pool.md §3), and a younger one gets
//!   only room that no elder needs.
//!
//! Invariants, each a property over random traces in virtual time (`tests/properties.rs`):
//!
//! * **P1** at most one child per key that is not stuck.
//! * **P2** no eviction, drain or reload ends a lease, except `force`.
//! * **P3** every ticket ends exactly once: lease, refusal, cancelled; each wait has a deadline or a waker.
//! * **P4** news of an earlier spawn changes nothing but its own ledger line.
//! * **P7** a fresh engine is not taken before its waiters are served.
//! * **P9** the ledger equals the private bytes of all spawns not yet returned plus each shared file once.
//!
//! A build that has room has its line and waits for its turn to load (`slot.rs`) and for what the driver says right
//! before (`admission.rs`). One that was planned for a card serves once it was seen there (`fallback.rs`). The line of
//! a child that is gone stays until its devices agree (`reclaim.rs`, **B4**).
//!
//! A line is corrected by what was measured (`correct.rs`, with the rules and their invariants **M1** to **M4**); what
//! that puts over a bound is cured by idle engines (`overflow.rs`), and so is memory that runs low by others' doing
//! (`pressure.rs`); what the machine says is trusted for so long (`sight.rs`). What was measured is the next estimate
//! (`learned.rs`).
//!
//! What a failure means for the next start is in `failure.rs`, with `backoff.rs`, `breaker.rs` and `condemned.rs`;
//! whether an engine that is ready still serves, in `health.rs`.
//!
//! A new catalog is taken over in `reload.rs` (**N1** to **N5**).
//!
//! Which replica a request goes to is in `replica.rs` and `session.rs`, who is next for a slot in `queue.rs`, what the
//! pool does by itself in `upkeep.rs`; builds that nobody waits for are *attempts* (`attempt.rs`). Traces of it all are
//! written, replayed and drawn in `sim`.
mod acquire;
mod admin;
mod admission;
mod answer;
mod asleep;
mod attempt;
mod backoff;
mod breaker;
mod build;
mod condemned;
mod correct;
mod desk;
mod entry;
mod failure;
mod fallback;
mod found;
mod health;
mod input;
mod keeping;
mod learned;
mod outlook;
mod overflow;
mod pause;
mod pool;
mod pressure;
mod queue;
mod reclaim;
mod reconcile;
mod refusal;
mod reload;
mod replica;
mod room;
mod serve;
mod session;
mod shut;
mod sight;
pub mod sim;
mod slot;
mod subject;
mod teardown;
mod terms;
mod upkeep;
mod view;
mod wait;

pub use answer::{Answer, Held, Reconciled};
pub use breaker::BreakerTerms;
pub use fallback::OnCpuFallback;
pub use found::{Build, CardFigures, CardSight, Facts, Measured, MemorySight, Tenant};
pub use health::{HealthTerms, Probe, Probed};
pub use input::{
    Action, Ask, BuildId, Direction, Exit, Force, Grant, Input, Launch, RequestId, SlotChoice, StartFault, Want,
};
pub use keeping::{NotKept, SessionsKept, sessions_kept};
pub use learned::Lessons;
pub use motorpool_broker::{
    Adapter, Belief, Beside, Bounds, Budget, BudgetSetting, Calibration, Card, Death, Denial, Doubt, Draft, DraftModel,
    Excess, Experience, Format, Host, HostShape, KvType, LaunchKey, LaunchPlan, Lesson, Marks, ModelShape, News, Parts,
    Place, Placement, Policy, Proof, RefusedContext, Reported, Side, SizedBy, Source, Spillover, Split, Which,
};
pub use outlook::{Becomes, Outlook, Prospect, copies};
pub use pause::GpuPause;
pub use pool::{Pool, PoolConfig};
pub use queue::{Affinity, Descent, Occupied, Owner, Queued, Quiet, pick_ticket};
pub use refusal::{Queue, Refusal};
pub use reload::{Reload, Reloaded};
pub use replica::{ReplicaLoad, ReplicaStanding, pick_replica};
pub use session::Writing;
pub use slot::LoadSlots;
pub use subject::subject;
pub use terms::{KeepAlive, OnAbandon, OnDeadline, QueueTerms, ScaleTerms};
