//! The shell around the pool: the one loop and its handle, keepers, the journal, probes, tools.
//!
//! Boundary: performs and reports, decides nothing. The only crate that starts, signals or reaps a process; what the
//! kernel says of processes is read through `devices`.
//!
//! ```text
//!  PoolHandle ─► Shell (owns the Pool) ─► Driver, one per child          Checker: program, model file
//!   Lease           ▲ inputs │ actions       │
//!                   └────────┴───────────────┤
//!                                            ▼
//!            Launcher ── intent, born ──► journal ◄── at the next start ── settle ─► what was left is killed
//!               │
//!               ▼ start, go            socket, frames                 fork, exec
//!  Engine / Tool ◄────────── launch ◄──────────────► keeper process ◄──────────► engine's tree
//!               │ lines, end                         (parent, subreaper, owner of pipes and log)
//!               ▼
//!             probe: ready?        Meter: what trees hold, what others use ─► inputs
//!                                  Lookout: what drivers say of graphics cards ─► inputs
//! ```
//!
//! Invariants, each proven with real processes in `tests/processes` and `tests/pool`:
//!
//! * **S1** no engine survives us: the end of the socket makes the keeper kill its tree; the death of the keeper
//!   makes the kernel kill the engine's first process and us, or the next supervisor, whatever else holds the nonce.
//! * **S2** an engine's output never blocks it.
//! * **S3** every child is reaped.
//! * **S4** at most one supervisor per state directory.
//!
//! # macOS
//!
//! Linux is what everything here is run on. For macOS it is type-checked (`aarch64-apple-darwin`) and was never run. The keeper
//! that macOS gets (`keeper/plain`) is run on Linux too, where `tests/plain` asks the same of it as `tests/processes` of the
//! other one; what is left unseen are `sys/macos.rs` here, and `darwin/calls.rs` in `devices`.
//!
//! | | Linux | macOS |
//! | --- | --- | --- |
//! | the invariants | S1 to S4 | S1 with the holes below; S2 to S4 |
//! | a signal meets the process that was checked | always: pidfd | unless it ends, is reaped and its number given anew within the microseconds between the last look and the signal |
//! | the keeper is killed | parent-death signal, nonce | a guard process, nonce |
//! | a process that left group and session, has no mark and no living parent | is adopted by the keeper, or in the control group | is lost |
//! | the mark of the system's own programs (`/bin/sh`) | is read | is hidden: group, session and descent must do |
//! | orphans | reaped by the keeper | reaped by launchd |
//! | a TCP engine's port is nobody else's | seen among all sockets | seen among those of the same user |
//! | a fence, a count of deaths for want of memory, memory pressure, control groups | where the kernel has them | not there, and told as absent |
//! | the program of a keeper that is started after an update | is that of the supervisor | is the new one; if it speaks another protocol, starts fail |
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("what a process is held by was written for Linux and macOS alone");

mod address;
mod aside;
mod beside;
mod cards;
mod cgroup;
mod check;
mod denials;
#[cfg(feature = "detached")]
mod detached;
mod driver;
mod drivers;
mod ending;
mod engine;
mod exchange;
mod feed;
mod handle;
mod identity;
mod incidents;
mod journal;
mod keeper;
mod keeping;
mod launch;
mod learned;
mod lineage;
mod lines;
mod lock;
mod lookout;
mod looks;
mod meter;
mod nonce;
mod order;
mod panics;
mod place;
mod probe;
mod protocol;
mod pulse;
mod redact;
mod returned;
mod rotate;
mod runner;
mod servers;
mod settings;
mod settle;
mod shelf;
mod shell;
mod state_files;
mod sys;
mod tally;
mod toll;
mod turns;
mod vigil;
mod visits;
mod wire;

pub use aside::set_aside;
pub use check::{Calibrate, Checker, Discover, Locate};
pub use denials::Denied;
#[cfg(feature = "detached")]
pub use detached::{Detached, Told, Wish};
pub use drivers::{Drivers, Sighted};
pub use engine::{Engine, EngineOrder, Launcher, OpenError};
pub use feed::{Feed, News, Since};
pub use handle::{Lease, Notices, PoolHandle};
pub use identity::build_of;
pub use journal::JournalError;
pub use keeper::{keeper_main, keeper_on_stdin, plain_keeper_on_stdin};
pub use launch::{Blocked, Heard, KeeperProgram, Kept, LaunchError};
pub use learned::Notebook;
pub use lineage::is_below_us;
pub use lock::{LockError, StateLock};
pub use lookout::{Devices, Found, Survey, Surveys};
pub use panics::Panics;
pub use probe::{Question, Readiness};
pub use protocol::{Fence, Gone, Polite, ProcessId, Source};
pub use runner::{RunError, Tool, ToolExit, run};
pub use servers::{LocalServer, LocalServers};
pub use settings::{OnDenial, Settings, start};
pub use settle::{Leftover, Remains};
pub use sys::landlock_version;
pub use tally::{CONSTRAINTS, DrainOutcome, Tally};
pub use vigil::ProbeTimes;
