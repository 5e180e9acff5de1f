//! The nouns of Motorpool: what every other crate means by bytes, time, an engine, a claim.
//!
//! Boundary: values only. No clock, no async, no I/O; nothing here decides. The one piece with behaviour is
//! [`Gate`], the atomic word of the warm path, which lives here so that the pool that owns the truth and the
//! handle that enters it use the same code.
//!
//! | noun | file | equality means |
//! | --- | --- | --- |
//! | [`Bytes`] | `bytes.rs` | the same size |
//! | [`Now`] | `now.rs` | the same instant of one boot |
//! | [`EngineKey`], [`Spawn`], [`DeviceId`] | `key.rs` | the same place, the same child, the same card |
//! | [`Claim`], [`FileId`] | `claim.rs` | the same demand on memory |
//! | [`ExitRecord`], [`StopReason`], [`FailureClass`] | `exit.rs` | the same end of a child |
//! | [`Vital`] | `vital.rs` | nothing: it only counts |
//! | [`Lane`], [`Holder`] | `holder.rs` | the same urgency, the same asker |
//! | [`Snapshot`] | `view.rs`, `lookup.rs` | what outsiders may see at one instant |
//! | [`ServerUrl`], [`TargetKey`] | `server_url.rs` | the same address; the same server |
//! | [`Event`] | `event.rs` | one thing that happened |
mod bytes;
mod claim;
mod event;
mod exit;
mod gate;
mod histogram;
mod holder;
mod key;
mod lookup;
mod now;
mod server_url;
mod view;
mod vital;

pub use bytes::{Bytes, GIB, KIB, MIB};
pub use claim::{Claim, FileId};
pub use event::{Event, EventKind, ExternalNotice, Fact};
pub use exit::{ExitRecord, FailureClass, PlanRecord, StopReason};
pub use gate::{CloseIfIdle, Gate, TryEnter};
pub use histogram::Histogram;
pub use holder::{Holder, Lane, LeaseView, PendingView};
pub use key::{DeviceId, EngineKey, KeyError, ModelId, Spawn};
pub use now::Now;
pub use server_url::{ServerUrl, TargetKey, Transport, UrlError};
pub use view::{
    Endpoint, EntryView, MemoryParts, MemoryView, PartsView, PhaseView, PoolView, SizedFrom, Snapshot, TroubleKind,
    TroubleView, WaiterView,
};
pub use vital::{Signs, Vital};
