//! [`Config`]: what `motorpool.toml` may say, every key with its unit, its default and its range.
//!
//! Every section and every key may be left out. A key stands here only once something obeys it.
use crate::{
    Catalog, ConfigError, Confinement, Fault, Listen,
    capacity::{Capacity, Device, check_devices},
    care::{BreakerSettings, HealthSettings, OnDisconnect},
    document::{Origin, Step},
    external::{External, Protect, check_external},
    form,
    names::nearest,
    quantity,
    state::SessionStateSettings,
    usage::UsageSettings,
};
use motorpool_vocab::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `[server]`: where requests come in.
    pub server: Server,
    /// `[capacity]`: how much memory is ours.
    pub capacity: Capacity,
    /// `[[device]]`: graphics devices, by id.
    #[serde(rename = "device")]
    pub devices: Vec<Device>,
    /// `[pool]`: who waits how long, and who goes first.
    pub pool: PoolSettings,
    /// `[evict]`: what becomes of work that is in the way.
    pub evict: EvictSettings,
    /// `[load]`: how long an engine may take to become ready.
    pub load: LoadSettings,
    /// `[breaker]`: when starts that fail are given up for a while.
    pub breaker: BreakerSettings,
    /// `[health]`: when an engine that is ready counts as one that does not serve.
    pub health: HealthSettings,
    /// `[session_state]`: what of sessions outlives engines.
    pub session_state: SessionStateSettings,
    /// `[stop]`: how an engine is ended.
    pub stop: StopSettings,
    /// `[shutdown]`: how we end.
    pub shutdown: Shutdown,
    /// `[loading]`: what a client sees of a load.
    pub loading: Loading,
    /// `[keys]`: who may come in.
    pub keys: KeysSettings,
    /// `[limits]`: what one request, and all together, may take.
    pub limits: Limits,
    /// `[defaults]`: what a request leaves open.
    pub defaults: Defaults,
    /// `[log]`: our own log.
    pub log: Log,
    /// `[usage]`: what of finished requests is kept.
    pub usage: UsageSettings,
    /// `[engine.<name>]`: what this machine says about an engine, by the manifest's name.
    #[serde(rename = "engine")]
    pub engines: BTreeMap<String, EngineSettings>,
    /// `[[external]]`: model servers that somebody else runs.
    pub external: Vec<External>,
    /// `[[protect]]`: models that go last there.
    pub protect: Vec<Protect>,
}

impl Config {
    /// What shows only across keys.
    pub(crate) fn checked(mut self, origin: &Origin) -> Result<Self, ConfigError> {
        check_devices(&self.devices, origin)?;
        check_external((&self.external, &self.protect), origin)?;
        self.server.check_tls(origin)?;
        self.engines.values_mut().for_each(|engine| engine.origin = origin.clone());
        Ok(self)
    }

    /// Refuses an `[engine.<name>]` that no manifest of `catalog` has the name of.
    pub fn check_engines(&self, catalog: &Catalog) -> Result<(), ConfigError> {
        let unknown = self.engines.iter().find(|(name, _)| catalog.manifest(name).is_none());
        let Some((engine, settings)) = unknown else { return Ok(()) };
        let known: Vec<String> = catalog.manifests().map(|manifest| manifest.name.clone()).collect();
        let fault = Fault::UnknownEngine { engine: engine.clone(), nearest: nearest(engine, &known), known };
        Err(settings.origin.fault(&[Step::Key("engine"), Step::Key(engine)], fault))
    }
}

/// Where requests come in.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Addresses to serve on (`127.0.0.1:8790`). An empty list leaves the control socket only.
    pub listen: Vec<Listen>,
    /// Names that a request's `Host` may hold, beside those that are always allowed; without port.
    #[serde(deserialize_with = "hosts")]
    pub hosts: Vec<String>,
    /// Origins that web pages may call from, beside loopback; `scheme://host[:port]`.
    #[serde(deserialize_with = "origins")]
    pub origins: Vec<String>,
    /// Whether what changes in this file, in `engines/` and in `catalog/` is reloaded by itself (no). A reload can always be
    /// asked for.
    pub watch: bool,
    /// What `https://` addresses of `listen` are encrypted with.
    pub tls: Option<Tls>,
}

/// A certificate and its key, both in files of PEM. They are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Absolute path of the certificate, followed by those between it and its authority.
    #[serde(deserialize_with = "absolute")]
    pub certificate: PathBuf,
    /// Absolute path of its private key, which others may not read.
    #[serde(deserialize_with = "absolute")]
    pub key: PathBuf,
}

impl Server {
    /// Nothing is encrypted without a certificate, and no certificate is there for nothing.
    fn check_tls(&self, origin: &Origin) -> Result<(), ConfigError> {
        let is_wanted = self.listen.iter().any(|listen| matches!(listen, Listen::Tls(_)));
        let (key, why) = match &self.tls {
            None if is_wanted => {
                ("listen", "an address with `https://` needs a certificate: `tls` in [server] names it")
            }
            Some(_) if !is_wanted => ("tls", "no address is served with this: write one in `listen` with `https://`"),
            _ => return Ok(()),
        };
        Err(origin.fault(&[Step::Key("server"), Step::Key(key)], Fault::Value(why.into())))
    }
}

/// Who waits how long, and who goes first.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolSettings {
    /// Which engines go first when room is needed (`demand-lru`).
    pub policy: Policy,
    /// A waiter of this age has busy engines drained for it, whatever protected them; what they serve comes to its end
    /// (60 s).
    #[serde(with = "form::Time")]
    pub max_wait: Duration,
    /// A fresh engine is not drained before it is so old (10 s).
    #[serde(with = "form::Time")]
    pub min_residency: Duration,
    /// How long a request waits for others to finish (30 s).
    #[serde(with = "form::Time")]
    pub drain_wait: Duration,
    /// How long a request waits in all, when somebody watches (10 min); one in the background waits without end.
    #[serde(with = "form::SomeTime")]
    pub queue_wait: Duration,
    /// One more replica is started for requests that waited so long for a slot (2 s).
    #[serde(with = "form::Time")]
    pub fan_out_after: Duration,
    /// The highest replica of a model stops after so long without a request (2 min).
    #[serde(with = "form::SomeTime")]
    pub scale_down_after: Duration,
    /// Ambient requests begin after so long without others (3 min); 0: at once.
    #[serde(with = "form::Time")]
    pub quiet: Duration,
}

/// What becomes of work that is in the way of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvictSettings {
    /// When a busy engine did not drain in time for a request that needs its room (`refuse`).
    pub on_deadline: OnDeadline,
}

/// What happens when a busy engine did not drain in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnDeadline {
    /// Who waited for its room is refused; what it serves goes on.
    #[default]
    Refuse,
    /// What it still serves is ended.
    Cut,
}

/// Which engines go first when room is needed, of those that may go at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The least demanded lately; of equals the least recently used.
    #[default]
    DemandLru,
    /// The least recently used.
    Lru,
    /// The least of demand × time to load again ÷ bytes.
    Gdsf,
}

/// How long an engine may take to become ready.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadSettings {
    /// Longest time without a sign of life (60 s).
    #[serde(with = "form::SomeTime")]
    pub stall: Duration,
    /// Longest time in all (30 min).
    #[serde(with = "form::SomeTime")]
    pub cap: Duration,
    /// What becomes of a load that nobody waits for any more (finish).
    pub abandon: Abandon,
    /// How many engines load at a time on each graphics device, and how many in system memory alone, 1 to 64 (1).
    #[serde(with = "form::Whole::<1, 64>")]
    pub parallel: u32,
}

/// What becomes of a load that nobody waits for any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Abandon {
    /// It goes on: whoever left may come back.
    #[default]
    Finish,
    /// It is ended.
    Abort,
}

/// How an engine is ended.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StopSettings {
    /// From the polite stop to the kill (5 s).
    #[serde(with = "form::Time")]
    pub polite: Duration,
    /// From the kill until the engine counts as stuck (10 s).
    #[serde(with = "form::SomeTime")]
    pub kill: Duration,
}

/// How we end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// How long running requests may go on (30 s).
    #[serde(with = "form::Time")]
    pub grace: Duration,
}

/// What a client sees of a load.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Loading {
    /// A stream's head is held back so long, so that a refusal can be an ordinary status (10 s).
    #[serde(with = "form::Time")]
    pub commit_after: Duration,
}

/// Who may come in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeysSettings {
    /// Absolute path of the file of access keys that `motorpool key` writes (`keys.json` in the state directory). It holds
    /// their hashes only. One that is named must be there when the pool starts.
    #[serde(deserialize_with = "some_absolute")]
    pub file: Option<PathBuf>,
}

/// What one request, and all together, may take.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest body of a request (256 MiB).
    #[serde(with = "form::SomeSize")]
    pub body: Bytes,
    /// What of one body is kept in memory; the rest goes to a file (4 MiB).
    #[serde(with = "form::Size")]
    pub body_memory: Bytes,
    /// What of all bodies is kept in memory (128 MiB).
    #[serde(with = "form::Size")]
    pub bodies_memory: Bytes,
    /// What of all bodies lies in files (4 GiB).
    #[serde(with = "form::Size")]
    pub spool: Bytes,
    /// Requests that wait for one model at a time, 1 to 100,000 (64); the next is answered with 429.
    #[serde(with = "form::Whole::<1, 100_000>")]
    pub queue_model: u32,
    /// Requests that wait in all at a time, 1 to 1,000,000 (512).
    #[serde(with = "form::Whole::<1, 1_000_000>")]
    pub queue: u32,
    /// Client connections at a time, 1 to 1,000,000 (4096).
    #[serde(with = "form::Whole::<1, 1_000_000>")]
    pub connections: u32,
    /// Largest head of a request (64 KiB).
    #[serde(with = "form::SomeSize")]
    pub header: Bytes,
    /// A client that takes nothing for so long is gone (60 s).
    #[serde(with = "form::SomeTime")]
    pub write_stall: Duration,
    /// Longest time to connect to an engine (5 s).
    #[serde(with = "form::SomeTime")]
    pub connect: Duration,
    /// Longest time from a request to an engine's first byte (10 min).
    #[serde(with = "form::SomeTime")]
    pub first_result: Duration,
    /// Longest silence inside an engine's answer (2 min).
    #[serde(with = "form::SomeTime")]
    pub between_frames: Duration,
}

/// What a request leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Defaults {
    /// Id or alias of the model of a request that names none.
    pub model: Option<String>,
}

/// Our own log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The least severe level that is written (`info`).
    pub level: LogLevel,
    /// For people or for machines (`text`).
    pub format: LogFormat,
}

/// Severity of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Something broke.
    Error,
    /// Something is odd.
    Warn,
    /// What an operator wants to know.
    #[default]
    Info,
    /// Decisions.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The name in configuration and log filters.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What this machine says about an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EngineSettings {
    /// Absolute path of the program, used before any that is searched for.
    #[serde(deserialize_with = "program")]
    pub program: Option<PathBuf>,
    /// Whether it is held to the sandbox of its manifest (`on`).
    pub sandbox: Confinement,
    /// What becomes of a reply when its client has gone, instead of what its manifest says.
    pub on_disconnect: Option<OnDisconnect>,
    /// Where this was written.
    #[serde(skip)]
    pub(crate) origin: Origin,
}

impl Default for Server {
    fn default() -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8790));
        Self { listen: vec![Listen::Tcp(address)], hosts: vec![], origins: vec![], watch: false, tls: None }
    }
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            max_wait: Duration::from_mins(1),
            min_residency: Duration::from_secs(10),
            drain_wait: Duration::from_secs(30),
            queue_wait: Duration::from_mins(10),
            fan_out_after: Duration::from_secs(2),
            scale_down_after: Duration::from_mins(2),
            quiet: Duration::from_mins(3),
        }
    }
}

impl Default for LoadSettings {
    fn default() -> Self {
        Self { stall: Duration::from_mins(1), cap: Duration::from_mins(30), abandon: Abandon::Finish, parallel: 1 }
    }
}

impl Default for StopSettings {
    fn default() -> Self {
        Self { polite: Duration::from_secs(5), kill: Duration::from_secs(10) }
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { grace: Duration::from_secs(30) }
    }
}

impl Default for Loading {
    fn default() -> Self {
        Self { commit_after: Duration::from_secs(10) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: Bytes::mib(256),
            body_memory: Bytes::mib(4),
            bodies_memory: Bytes::mib(128),
            spool: Bytes::gib(4),
            queue_model: 64,
            queue: 512,
            connections: 4096,
            header: Bytes::new(64 << 10),
            write_stall: Duration::from_mins(1),
            connect: Duration::from_secs(5),
            first_result: Duration::from_mins(10),
            between_frames: Duration::from_mins(2),
        }
    }
}

/// A string of a list that `check` accepts.
macro_rules! list_of {
    ($($name:ident: $expecting:literal, $check:expr;)+) => {$(
        fn $name<'de, D: Deserializer<'de>>(reader: D) -> Result<Vec<String>, D::Error> {
            #[derive(Deserialize)]
            struct Item(#[serde(deserialize_with = "item")] String);
            fn item<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
                quantity::checked(reader, $expecting, $check)
            }
            Ok(Vec::<Item>::deserialize(reader)?.into_iter().map(|item| item.0).collect())
        }
    )+};
}

list_of! {
    hosts: "a host name such as \"pool.example.org\"", check_host;
    origins: "an origin such as \"https://chat.example.org\"", check_origin;
}

fn check_host(text: &str) -> Result<String, String> {
    let ok = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    if ok { Ok(text.to_ascii_lowercase()) } else { Err(format!("`{text}` is no host name: no scheme, port or path")) }
}

fn check_origin(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match host {
        Some(host) if !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ', '*']) => {
            Ok(text.to_ascii_lowercase())
        }
        _ => Err(format!("`{text}` is no origin: `http://` or `https://`, a host, perhaps a port, and no path")),
    }
}

fn program<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<PathBuf>, D::Error> {
    absolute(reader).map(Some)
}

fn some_absolute<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<PathBuf>, D::Error> {
    absolute(reader).map(Some)
}

fn absolute<'de, D: Deserializer<'de>>(reader: D) -> Result<PathBuf, D::Error> {
    quantity::checked(reader, "an absolute path", |text| {
        if text.starts_with('/') { Ok(text.into()) } else { Err(format!("the path `{text}` must begin with `/`")) }
    })
}
