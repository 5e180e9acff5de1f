//! The capacity broker: what fits and where, what must go for it, and the proof when nothing helps.
//!
//! Boundary: pure values in, verdicts out. `pool` asks before anything is built or stopped; readings of the
//! machine come in as values. Nothing here knows processes, requests or time.
//!
//! ```text
//!   Evidence ─► decide_shape ─► Host ─► Bounds            Footprint, Choice, or a lump: Load
//!                                         │                        │
//!             Reading ─► observe ──►  Ledger ◄─ reserve / correct / release, one line per Spawn, files once
//!                                         │                        │
//!                                         └──────► pick_room ◄─────┘     (plan, explain: pick_placement)
//!                                                     │
//!              Fits | Wait | Evict(set) | Drain(set), each with its Placement | Never(Proof) ─► Denial
//! ```
//!
//! | question | file |
//! | --- | --- |
//! | what kind of machine, what may be reserved | `host.rs`, `bounds.rs`, `budget.rs` |
//! | what is reserved, does this fit | `ledger.rs`, `limits.rs`, `lines.rs`, `charges.rs`, `scratch.rs` |
//! | which layers go where, what that claims | `placement.rs`, `cut.rs`, `split.rs` |
//! | who goes for it | `room.rs`, `victims.rs`, `slack.rs`; by what a driver says is missing: `measured.rs` |
//! | how a refusal reads, and whether it is the context's | `denial.rs`, `admission.rs` |
//! | context, slots, KV type, what is loaded beside | `plan.rs`, `growth.rs`, `draft.rs`, `beside.rs`; less of it: `less.rs` |
//! | what earlier loads taught | `learned.rs` |
//!
//! Invariants, each a property test:
//!
//! * **B1** no grant takes a pool or the total above its bound, or adds to one already above it.
//! * **B2** every spawn has exactly one line from its reservation to its release; nothing else has one. (The
//!   ledger holds that a spawn has at most one; that the right spawns have one is `pool`'s P9.)
//! * **B3** a claim over several devices is granted or refused whole.
//! * **P10** victim sets are sufficient, irredundant and lexicographically optimal, over every placement.
mod admission;
mod beside;
mod bounds;
mod budget;
mod charges;
mod cut;
mod denial;
mod draft;
mod growth;
mod host;
mod learned;
mod ledger;
mod less;
mod limits;
mod lines;
mod measured;
mod overflow;
mod placement;
mod plan;
mod room;
mod scratch;
mod slack;
mod split;
#[cfg(test)]
mod testing;
mod victims;

pub use admission::{RefusedContext, refused_context};
pub use beside::{Beside, DraftModel};
pub use bounds::{Bounds, CardBounds, Spilling};
pub use budget::{Budget, BudgetSetting};
pub use denial::{Cause, Denial, Measured, Reason, Shares};
pub use draft::{BatchRule, Draft, FixedSettings, Source, Subject, draft};
pub use host::{Card, Evidence, Host, HostShape, Platform, Seen, SizedBy, Spillover, decide_shape};
pub use learned::{Belief, Death, Doubt, Experience, LaunchKey, Learned, Lesson, Marks, News, Side};
pub use ledger::{Excess, Ledger, Place, PoolFigures, Reading, Shortfall, Sight, Verdict};
pub use limits::Which;
pub use measured::pick_measured;
pub use overflow::Overflow;
pub use placement::{Company, Placement, pick_placement};
pub use plan::{ContextWish, Fitted, KvType, LaunchPlan, Profile, Scale, Sized, Sizing, Wishes, plan_launch};
pub use room::{Candidate, Proof, Query, Room, Standing, pick_room};
pub use split::{ALL_LAYERS, Choice, Load, Mapping, Parts, Split};
pub use victims::Policy;
// What `pool` hands through from the header to the estimate, and what an engine says that it took.
pub use motorpool_gguf::{Adapter, Calibration, Format, ModelShape, Purpose, Reported, SlidingWindow};
