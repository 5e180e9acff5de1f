//! Traces of the pool in virtual time: written down, replayed, drawn at random, held against its properties, shrunk.
//!
//! ```text
//! text ─► Trace ─┐                        ┌─► what happened, line by line (`motorpool sim`)
//! seed ─► Dice ──┴─► World: pool + a shell ┴─► Rules: the first property that does not hold ─► shrink ─► text
//! ```
//!
//! A [`World`] performs the pool's actions without a clock or a process: children become ready, end or do not when a
//! [`Step`] says so. A step that speaks of what is not there does nothing, so any part of a trace is a trace.
mod dice;
mod editions;
mod exhaust;
mod kept;
mod obey;
mod rules;
mod shrink;
mod told;
mod trace;
mod world;

pub use dice::Dice;
pub use exhaust::exhaust;
pub use rules::{Broken, Run};
pub use shrink::shrink;
pub use told::told;
pub use trace::{Edit, Parent, Place, Setting, SettingModel, Sickness, Step, Telling, Trace, TraceError, Which, Wish};
pub use world::{Child, Granted, Outcome, World};
