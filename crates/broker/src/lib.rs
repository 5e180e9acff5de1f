//! The capacity broker: what fits, what must go for it, and the proof when nothing helps.
//!
//! Boundary: pure values in, verdicts out. `pool` asks before anything is built or stopped; readings of the
//! machine come in as values. Nothing here knows processes, requests or time.
//!
//! ```text
//!              automatic_budget(ram)            plan_launch(wishes, fast)
//!                       │                                │ LaunchPlan → Claim
//!                       ▼                                ▼
//!   Ledger ── reserve / correct / release ──►  one line per Spawn, files once
//!      │
//!      └── pick_room(query, candidates) ──► Fits | Wait | Evict(set) | Drain(set) | Never(proof)
//! ```
//!
//! Invariants, each a property test:
//!
//! * **B1** no grant takes the total above its bound, or adds to one already above it.
//! * **B2** every spawn has exactly one line from its reservation to its release; nothing else has one. (The
//!   ledger holds that a spawn has at most one; that the right spawns have one is `pool`'s P9.)
//! * **B3** a claim is granted or refused whole.
//! * **P10** victim sets are sufficient, irredundant and lexicographically optimal.
//!
//! So far there is one bound, the total budget. Bounds per device and per pool, readings and foreign use enter
//! through [`Shortfall`], which is compared as a whole everywhere.
mod budget;
mod denial;
mod ledger;
mod plan;
mod room;

pub use budget::{Budget, automatic_budget};
pub use denial::Denial;
pub use ledger::{Excess, Ledger, Overflow, Shortfall, Verdict};
pub use plan::{KvType, LaunchPlan, Wishes, claim_declared, claim_unreadable, plan_launch};
pub use room::{Candidate, Query, Room, Standing, pick_room};
