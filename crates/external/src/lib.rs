//! Adapters to model servers that the user already runs: they gather facts, and carry out what `residency` decided.
//!
//! Boundary: the only crate that calls such servers, about what they hold and for requests to them. It decides nothing:
//! what is loaded, evicted and put back comes out of `residency`. Targets come from the configuration, through whoever
//! builds them.
//!
//! ```text
//!   Guests::open(targets, setting) ─► Guest ─► prepare(model) ─► Stay ─► send ─┬─ well: on_first_result, on_tokens ─► dropped
//!                                       │ look, plan, release                  └─ error: on_refused ─► Again: send | Surface
//!                                       └ leave_all on exit
//! ```
//!
//! | what | file |
//! | --- | --- |
//! | what is set from outside | `target.rs` |
//! | a guest for each target, all of them leave at once | `guests.rs` |
//! | a model made resident | `guest.rs`, carried out `change.rs`, given back `leave.rs` |
//! | a request's use of it | `stay.rs` |
//! | what all guests know together, written down | `common.rs`, `journal.rs` |
//! | at most one of us changes a server | `lock.rs` |
//! | the three kinds | `server.rs`: `router.rs` with its listing `rows.rs`, news `watch.rs` and `autoload.rs`, `ollama.rs`, `lmstudio.rs` |
//! | one request, bounded; where it may go; on which connection | `call.rs`, `connect.rs`, `kept.rs` |
mod autoload;
mod call;
mod change;
mod common;
mod connect;
mod error;
mod guest;
mod guests;
mod journal;
mod kept;
mod leave;
mod lmstudio;
mod lock;
mod ollama;
mod router;
mod rows;
mod server;
mod stay;
mod target;
mod watch;

pub use motorpool_residency as residency;

pub use autoload::Autoload;
pub use call::{Body, CallError, Cause, Key};
pub use error::ServerError;
pub use guest::{Guest, Refusal, View};
pub use guests::{Guests, LEAVE_WITHIN, OpenError, Report};
pub use lock::{LockError, TargetLock};
pub use stay::{Next, Stay};
pub use target::{KeepAlive, Limits, News, Setting, Sink, Target, Told};
