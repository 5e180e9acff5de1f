//! What to load and evict on **external** model servers (a llama.cpp router, LM Studio, Ollama) that somebody else
//! started: facts in, plans and steps out. We are a guest there.
//!
//! Boundary: plain values. `external` lists, loads, unloads and locks; nothing here knows HTTP, files or a clock.
//!
//! ```text
//!   Listing + Book + claims ─► assess ─► Facts ─► decide ─► Plan ─┬─ Observe, Resident, Await, Wait, Decline
//!                                                                 ├─ Load ──────► Carry ─► Evict* Load Restore* ─► Ending
//!                                                                 └─ Delegate ──► Carry ─► Load (Evict Load)* Restore*
//! ```
//!
//! | question | file |
//! | --- | --- |
//! | what a server holds, and what protects it | `resident.rs`, `protection.rs` |
//! | what to do about a request | `decide.rs` |
//! | how that is carried out, and undone | `carry.rs` |
//! | what people and callers are told | `notice.rs`; kinds are in the list of all by how they are made: `listed.rs` |
//! | what need not be asked again | `trusted.rs` |
//! | what is ours, in use, and released | `book.rs` |
//! | what LM Studio calls a model, and how it says that it is full | `lmstudio.rs` |
//!
//! Invariants, each a property test:
//!
//! * **R1** no plan evicts what is foreign, protected by tag or worker, or in use.
//! * **R2** no plan evicts more than is needed, or anything when the wanted model is resident.
//! * **R3** nothing is evicted for a load that cannot succeed.
//! * **R4** what a failed load had evicted is put back, and its own error is what the caller sees.
mod book;
mod carry;
mod decide;
mod listed;
mod lmstudio;
mod notice;
mod protection;
mod resident;
#[cfg(test)]
mod testing;
mod trusted;

pub use book::{Adoption, Book, By, Leaving, Owned, Stamp, Stays};
pub use carry::{After, Carry, Ending, Failure, Happened, Mutation, MutationKind, Step};
pub use decide::{Action, Capacity, Catalogue, Decline, Facts, Keep, Kind, Lifecycle, MIN_RESIDENCY, Plan, decide};
pub use lmstudio::{CONTEXT_CEILING, Resolution, Variant, clamp_context, is_capacity_rejection, resolve};
pub use notice::{Detail, Field, Level, Notice, NoticeKind, Pace, REPEAT, Repeats, SETTLED};
pub use protection::{Claim, ProtectedSet, Protection, Role, protection};
pub use resident::{Listing, Owner, Phase, Resident, Seen, Sizes, Used, assess};
pub use trusted::{Decided, TRUST, Trusted};
