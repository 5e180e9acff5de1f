//! Text in, checked values out: the configuration, the engine manifests, the models, described machines.
//!
//! Boundary: no file is opened here and no variable of the environment is read; texts and a lookup function come in as
//! arguments. What leaves this crate is valid: a size has a unit, an expression compiles, a placeholder exists, an id
//! fits an engine key. What is wrong leaves as one [`ConfigError`] that shows the place.
//!
//! ```text
//! Source{file, text} ─► TOML with spans ─► ${VAR} ─► typed value ─► checks across keys ─► Config | Manifest | Model | DescribedHost
//!        document.rs                       expand.rs  quantity.rs                                │         │
//!                      error.rs: every fault becomes file:line:column, the line, a caret          └────┬────┘
//!                                                                                    catalog.rs: Catalog, resolve
//!                                                                        two of them ─► difference.rs: what a reload does
//! ```
//!
//! Rules that hold for every text:
//! - a key nobody knows is an error, never ignored; so a key is known only once something obeys it;
//! - substitution happens in values, after parsing: a variable cannot add keys;
//! - no text, however broken, makes a `parse_*` function panic (a property test).
mod beside;
mod capacity;
mod care;
mod catalog;
mod config;
mod context;
mod difference;
mod document;
mod embedded;
mod error;
mod examples;
mod expand;
mod external;
mod faults;
mod form;
mod launch;
mod listen;
mod manifest;
mod model;
mod names;
mod parameters;
mod places;
mod quantity;
mod refused;
mod replicas;
mod report;
mod sandbox;
mod schema;
mod secret;
mod state;
mod template;
mod usage;

pub use beside::{DraftModel, SideFile, tensors_that_stay};
pub use capacity::{Budget, Capacity, DescribedHost, Device, HostMemory, HostShape, OnCpuFallback, Spillover};
pub use care::{BreakerSettings, HealthSettings, OnDisconnect};
pub use catalog::{Catalog, UnknownModel, overlay_manifests, overlay_models};
pub use config::{
    Abandon, Config, Defaults, EngineSettings, EvictSettings, KeysSettings, Limits, LoadSettings, Loading, Log,
    LogFormat, LogLevel, OnDeadline, Policy, PoolSettings, Server, Shutdown, StopSettings, Tls,
};
pub use context::{ContextWish, Profile};
pub use difference::{Change, Changes, Difference, Effect, Kind, Outcome, Report, Row, Said, relaunches};
pub use document::Source;
pub use embedded::{embedded_manifests, embedded_models, shipped};
pub use error::{ConfigError, Fault};
pub use external::{
    External, ExternalKind, ExternalLifecycle, ExternalLoad, ExternalTimeouts, Glob, HeaderName, HeaderText, KeptFor,
    Prefer, Protect, ProtectRole,
};
pub use faults::faults;
pub use form::{size_text, time_text};
pub use launch::{Batch, FlashAttention, LaunchValues};
pub use listen::Listen;
pub use manifest::{
    Estimator, HeaderRule, LogClass, Manifest, MetricsKind, MetricsView, PathRule, Probe, Probes, Program, Progress,
    Ready, ReportKind, SlotsView, Stop, StopSignal, Transport, always_passes,
};
pub use model::{Capability, DEFAULT_CHECKPOINTS, DEFAULT_PROMPT_CACHE, KV_TYPES, Model, ModelSource, Terms};
pub use parameters::Parameters;
pub use places::{Written, places};
pub use quantity::{BudgetText, budget_from_env, duration_from_text};
pub use refused::{Instead, RefusedArg};
pub use replicas::{MOST_REPLICAS, Replicas};
pub use report::{Heard, Slots};
pub use sandbox::{Confinement, Place, Sandbox, TcpUse};
pub use schema::{FileKind, schema};
pub use secret::{Secret, without_userinfo};
pub use state::{SessionState, SessionStateSettings, StateCall, StateCalls};
pub use template::{Arg, Template};
pub use usage::UsageSettings;

/// The configuration `motorpool.toml`. An empty text gives the defaults.
pub fn parse_config(source: Source<'_>, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
    let (config, origin): (Config, _) = document::read(source, env, examples::CONFIG)?;
    config.checked(&origin)
}

/// A described machine, for `plan --on HOST.toml`.
pub fn parse_host(source: Source<'_>, env: &dyn Fn(&str) -> Option<String>) -> Result<DescribedHost, ConfigError> {
    let (host, origin): (DescribedHost, _) = document::read(source, env, examples::HOST)?;
    host.checked(&origin)
}

/// One engine manifest, `engines/<name>.toml`.
pub fn parse_manifest(source: Source<'_>, env: &dyn Fn(&str) -> Option<String>) -> Result<Manifest, ConfigError> {
    let (manifest, origin): (Manifest, _) = document::read(source, env, examples::MANIFEST)?;
    manifest.checked(origin)
}

/// One model, `catalog/<name>.toml`.
pub fn parse_model(source: Source<'_>, env: &dyn Fn(&str) -> Option<String>) -> Result<Model, ConfigError> {
    let (model, origin): (Model, _) = document::read(source, env, examples::MODEL)?;
    model.checked(origin)
}
