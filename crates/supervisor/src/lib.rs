//! The shell around the pool: the one loop and its handle, keepers, the journal, probes, tools.
//!
//! Boundary: performs and reports, decides nothing. The only crate that starts, signals or reaps a process; what
//! `/proc` says is read through `devices`.
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
#[cfg(not(target_os = "linux"))]
compile_error!("keeping engines needs pidfds, the parent-death signal and subreapers: Linux only for now");

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
pub use keeper::{keeper_main, keeper_on_stdin};
pub use launch::{Blocked, Heard, KeeperProgram, Kept, LaunchError};
pub use learned::Notebook;
pub use lineage::is_below_us;
pub use lock::{LockError, StateLock};
pub use lookout::{Devices, Found, Survey};
pub use panics::Panics;
pub use probe::{Question, Readiness};
pub use protocol::{Fence, Gone, Polite, ProcessId, Source};
pub use runner::{RunError, Tool, ToolExit, run};
pub use servers::LocalServer;
pub use settings::{OnDenial, Settings, start};
pub use settle::Leftover;
pub use sys::landlock_version;
pub use tally::{CONSTRAINTS, DrainOutcome, Tally};
pub use vigil::ProbeTimes;
