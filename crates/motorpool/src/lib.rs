//! Motorpool as a library: what a program needs that embeds the pool.
//!
//! Engines run below a keeper, which is this program started again: call [`keeper_if_asked`] first thing in `main`,
//! before a runtime, a thread, or anything that reads arguments. The rest is the crates, by their names, and [`servers`]:
//! model servers that run already.
//!
//! ```no_run
//! use motorpool::{catalog, pool, supervisor};
//! use std::sync::Arc;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     motorpool::keeper_if_asked();
//!     tokio::runtime::Runtime::new()?.block_on(async {
//!         let (manifests, models) = catalog::shipped();
//!         let catalog = Arc::new(catalog::Catalog::new(manifests, models)?);
//!         let settings = supervisor::Settings {
//!             keeper: motorpool::keeper(),
//!             state: "/var/lib/mine".into(),
//!             run: "/run/mine".into(),
//!             environment: std::env::vars_os().collect(),
//!             discover: Box::new(|_| Ok(vec!["/usr/bin/llama-server".into()])),
//!             locate: Box::new(|model| Ok(format!("/srv/models/{}.gguf", model.id).into())),
//!             calibrate: Box::new(|_| Default::default()),
//!             devices: supervisor::Devices::default(),
//!             panics: Default::default(),
//!             probes: supervisor::ProbeTimes::default(),
//!             state_disk: motorpool::vocab::Bytes::gib(8),
//!             on_denial: Box::new(|denial| eprintln!("{denial}")),
//!         };
//!         let handle = supervisor::start(settings, catalog.clone(), pool::PoolConfig::default())?;
//!         let model = catalog.resolve("default")?.id.clone();
//!         let lease = handle.acquire(pool::Ask::lease(model, Default::default())).await?;
//!         println!("{:?}", lease.endpoint());
//!         Ok(())
//!     })
//! }
//! ```

#[cfg(windows)]
compile_error!(
    "on Windows, Motorpool runs in WSL2 only: install a distribution with `wsl --install`, and build it in there"
);

pub mod servers;

pub use motorpool_catalog as catalog;
pub use motorpool_external as external;
pub use motorpool_gateway as gateway;
pub use motorpool_gguf as gguf;
pub use motorpool_pool as pool;
pub use motorpool_supervisor as supervisor;
pub use motorpool_vocab as vocab;

/// The first argument that makes a keeper of this program.
const KEEPER: &str = "keeper";

/// Becomes a keeper, and ends the program with it, when the first argument is `keeper`; else returns.
///
/// It must come before everything else: a keeper is one thread, and small.
#[expect(clippy::exit, reason = "a keeper is the whole program")]
pub fn keeper_if_asked() {
    if std::env::args_os().nth(1).is_some_and(|first| first == KEEPER) {
        std::process::exit(supervisor::keeper_on_stdin());
    }
}

/// What becomes a keeper: this same program, on Linux whatever replaced its file meanwhile. Elsewhere it is what lies there
/// now; one that speaks another protocol is refused, and its start fails.
pub fn keeper() -> supervisor::KeeperProgram {
    supervisor::KeeperProgram { program: own_program(), args: vec![KEEPER.into()] }
}

#[cfg(target_os = "linux")]
fn own_program() -> std::path::PathBuf {
    "/proc/self/exe".into()
}

/// A system that does not know where a program came from has it looked for in `PATH`.
#[cfg(not(target_os = "linux"))]
fn own_program() -> std::path::PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "motorpool".into())
}
