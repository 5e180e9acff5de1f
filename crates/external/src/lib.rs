//! Adapters to model servers that the user already runs: they gather facts, and carry out what `residency` decided.
//!
//! Boundary: the only crate that calls such servers about what they hold. It decides nothing: what is loaded, evicted and
//! put back comes out of `residency`. Targets come from the configuration, through whoever builds them.
//!
//! | what | file |
//! | --- | --- |
//! | one request, bounded | `call.rs` |
//! | a llama.cpp router | `router.rs`, its listing `rows.rs` |
//! | what we have there, made resident and given back | `guest.rs` |
//! | one guest for each server, and all of them leave at once | `guests.rs` |
//! | at most one of us changes a server | `lock.rs` |
//!
//! Plain HTTP only, so far; and so far a router is the only kind with an adapter.
mod call;
mod guest;
mod guests;
mod lock;
mod router;
mod rows;

pub use call::{CallError, Key};
pub use guest::{Guest, News, Refusal, Setting, Sink, Stay};
pub use guests::{Guests, LEAVE_WITHIN};
pub use lock::{LockError, TargetLock};
pub use router::{Limits, Router, RouterError};
pub use rows::{capacity, listing};
