//! What is set from outside: each [`Target`] of the configuration, and what all guests share ([`Setting`]).
use crate::call::Key;
use http::HeaderMap;
use motorpool_residency::{CONTEXT_CEILING, Kind, Lifecycle, Mutation, Notice, ProtectedSet};
use motorpool_vocab::{Now, ServerUrl};
use serde_json::{Map, Value};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// How long calls may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A look at what is there (1.5 s on a router, 5 s elsewhere).
    pub look: Duration,
    /// A load without progress (120 s).
    pub load: Duration,
    /// From an unload until it took effect (15 s).
    pub unload: Duration,
}

/// How long Ollama keeps a model that nobody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// So long after its last use.
    For(Duration),
    /// For ever, even when we are gone.
    Forever,
}

/// One server, as the configuration has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub id: String,
    /// What kind of server it is.
    pub kind: Kind,
    /// Where it is.
    pub url: ServerUrl,
    /// What its operator wants on each call.
    pub headers: HeaderMap,
    /// Its operator's key.
    pub key: Option<Key>,
    /// Who says what is loaded there.
    pub lifecycle: Lifecycle,
    /// What the configuration protects there.
    pub protected: ProtectedSet,
    /// LM Studio: the instance that is meant where a model has several.
    pub default_model: Option<String>,
    /// Tokens of context that requests want, where no load is configured with some: more than a model has is told.
    pub asked: Option<u32>,
    /// LM Studio: tokens of context that a load beside other models gets at most (131,072).
    pub context: u32,
    /// Ollama: how long it keeps what we loaded (5 minutes).
    pub keep_alive: KeepAlive,
    /// LM Studio: what a load is asked for with, by the server's own names. Empty: the server loads by itself.
    pub load: Map<String, Value>,
    /// How long calls may take.
    pub limits: Limits,
}

/// What all guests of this process share.
#[derive(Clone)]
pub struct Setting {
    /// The user's run directory: locks lie below it.
    pub run: PathBuf,
    /// Where what is ours is written down (JSON lines), so that the next start knows; a crash loses it without.
    pub journal: Option<PathBuf>,
    /// How long the lock is waited for at least; a load of another process may hold it as long as one of ours.
    pub lock_within: Duration,
    /// Reads the clock.
    pub now: fn() -> Now,
    /// Where news goes.
    pub sink: Sink,
}

/// Something happened on somebody's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The target's id.
    pub target: String,
    /// Its kind.
    pub server: Kind,
    /// What happened.
    pub what: Told,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// People are to know; the same about the same model once in a minute.
    Notice(Box<Notice>),
    /// The server was changed.
    Mutation(Mutation),
}

/// Takes news; it must not block, and cannot fail a request.
pub type Sink = Arc<dyn Fn(News) + Send + Sync>;

impl Limits {
    /// What holds for `kind` where nothing is configured.
    pub const fn of(kind: Kind) -> Self {
        let look = match kind {
            Kind::Router => Duration::from_millis(1500),
            Kind::LmStudio | Kind::Ollama => Duration::from_secs(5),
        };
        Self { look, load: Duration::from_mins(2), unload: Duration::from_secs(15) }
    }
}

impl KeepAlive {
    /// As Ollama takes it: seconds, -1 for ever.
    pub(crate) fn seconds(self) -> i64 {
        match self {
            Self::For(time) => i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            Self::Forever => -1,
        }
    }
}

impl Target {
    /// The server at `url`, with nothing else configured.
    pub fn new(id: &str, kind: Kind, url: ServerUrl) -> Self {
        Self {
            id: id.to_owned(),
            kind,
            url,
            headers: HeaderMap::new(),
            key: None,
            lifecycle: Lifecycle::Managed,
            protected: ProtectedSet::Known(Vec::new()),
            default_model: None,
            asked: None,
            context: CONTEXT_CEILING,
            keep_alive: KeepAlive::For(Duration::from_mins(5)),
            load: Map::new(),
            limits: Limits::of(kind),
        }
    }
}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setting").field("run", &self.run).field("journal", &self.journal).finish_non_exhaustive()
    }
}
