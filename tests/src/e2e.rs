//! The real `motorpool`, run as its users run it, in a house of its own.
//!
//! ```text
//! House ── folder ─┬─ config/motorpool.toml, config/catalog/*.toml      written at each start
//!       │          ├─ models/*.gguf with the fake engine's sidecars
//!       │          └─ state/, data/, home/                              nothing of the tester's own is used
//!       └─ start ──► Daemon ── http, control socket, command line ── stop | kill ──► nothing of it is left
//! ```
//!
//! Every way out of a [`Daemon`] looks through `/proc` for what it left: [`processes`]. A test that fails half way
//! kills its daemon, and with it the engines.
pub mod cards;
pub mod daemon;
pub mod estimates;
pub mod house;
pub mod installed;
pub mod journal;
pub mod processes;
pub mod raw;
pub mod router;
pub mod status;
pub mod talk;

pub use cards::Cards;
pub use daemon::Daemon;
pub use house::{House, Outcome};
pub use router::{Router, Tap};
pub use status::{Engine, Memory, Status};
