//! What every request needs: [`Context`]. A reload makes another one (`reload.rs`); a request keeps the one it began with.
use crate::{
    errors::Failure,
    history::UsageHistory,
    keys::Keyring,
    metrics::{Meters, engines::Scraper},
    outside::{self, Outside},
    pull::Pull,
    reload::Reloads,
    retain::BodyStore,
    running::Running,
    settings::GatewaySettings,
    traces::Traces,
    upstream::Upstream,
    usage::Sink,
};
use motorpool_catalog::{Catalog, Manifest, Model, UnknownModel};
use motorpool_supervisor::PoolHandle;
use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::sync::Notify;

/// What every request needs.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) handle: PoolHandle,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) settings: GatewaySettings,
    pub(crate) bodies: Arc<BodyStore>,
    pub(crate) upstream: Upstream,
    pub(crate) keys: Arc<Keyring>,
    /// Somebody with the right to it asked us to end.
    pub(crate) shutdown_asked: Arc<Notify>,
    /// Members that a rule of any model names, or that are ours to say on somebody else's server.
    pub(crate) watched: Vec<Arc<str>>,
    /// Seconds since 1970 at our start.
    pub(crate) started_at: u64,
    /// Who fetches models' files.
    pub(crate) pull: Arc<OnceLock<Pull>>,
    /// What requests took, counted.
    pub(crate) meters: Arc<Meters>,
    /// Who reads what engines measure.
    pub(crate) scraper: Arc<Scraper>,
    /// Requests to models that are not over yet.
    pub(crate) running: Arc<Running>,
    /// Where the records of requests go.
    pub(crate) sink: Arc<Sink>,
    /// Who knows those of earlier.
    pub(crate) history: Arc<OnceLock<UsageHistory>>,
    /// Who reads the files again.
    pub(crate) reloads: Arc<OnceLock<Reloads>>,
    /// Who ties the spans of requests to traces of others. Without it they have none.
    pub(crate) traces: Arc<OnceLock<Traces>>,
    ids: Arc<RequestIds>,
}

/// Ids that nobody guesses or meets twice.
#[derive(Debug, Default)]
struct RequestIds {
    next: AtomicU64,
    secret: RandomState,
}

impl Context {
    pub(crate) fn new(handle: PoolHandle, catalog: Arc<Catalog>, settings: GatewaySettings) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let meters = Arc::<Meters>::default();
        Self {
            bodies: BodyStore::new(settings.body_limits()),
            upstream: Upstream::new(settings.limits.connect, settings.limits.first_result),
            keys: Arc::new(Keyring::new(settings.keys.clone())),
            shutdown_asked: Arc::default(),
            watched: watched(&catalog, &settings.outside),
            started_at: now.as_secs(),
            pull: Arc::default(),
            sink: Arc::new(Sink::new(Arc::clone(&meters))),
            meters,
            scraper: Arc::default(),
            running: Arc::default(),
            history: Arc::default(),
            reloads: Arc::default(),
            traces: Arc::default(),
            ids: Arc::default(),
            handle,
            catalog,
            settings,
        }
    }

    /// The same with another catalog and other settings. What outlives a reload is shared with it.
    pub(crate) fn with(&self, catalog: Arc<Catalog>, settings: GatewaySettings) -> Self {
        Self {
            handle: self.handle.clone(),
            bodies: Arc::clone(&self.bodies),
            upstream: self.upstream.clone().within(settings.limits.first_result),
            keys: Arc::clone(&self.keys),
            shutdown_asked: Arc::clone(&self.shutdown_asked),
            watched: watched(&catalog, &settings.outside),
            started_at: self.started_at,
            pull: Arc::clone(&self.pull),
            meters: Arc::clone(&self.meters),
            scraper: Arc::clone(&self.scraper),
            running: Arc::clone(&self.running),
            sink: Arc::clone(&self.sink),
            history: Arc::clone(&self.history),
            reloads: Arc::clone(&self.reloads),
            traces: Arc::clone(&self.traces),
            ids: Arc::clone(&self.ids),
            catalog,
            settings,
        }
    }

    /// A new request id.
    pub(crate) fn fresh_id(&self) -> String {
        let n = self.ids.next.fetch_add(1, Ordering::Relaxed);
        format!("req_{:016x}{n:08x}", self.ids.secret.hash_one(n))
    }

    /// The one model that these names mean; the default one when there is no name.
    pub(crate) fn choose<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Arc<Model>, Failure> {
        let mut chosen: Option<(&str, &Arc<Model>)> = None;
        for name in names.into_iter().filter(|n| !n.is_empty()) {
            let model = self.resolve(name)?;
            match chosen {
                Some((other, known)) if known.id != model.id => {
                    return Err(Failure::ModelConflict(other.to_owned(), name.to_owned()));
                }
                _ => chosen = Some((name, model)),
            }
        }
        match chosen {
            Some((_, model)) => Ok(Arc::clone(model)),
            None => self.default_model(),
        }
    }

    /// The model that `name` means. Ollama's clients write a tag behind it, of which there is only one here.
    fn resolve(&self, name: &str) -> Result<&Arc<Model>, Failure> {
        let untagged = || self.catalog.resolve(name.strip_suffix(":latest")?).ok();
        self.catalog.resolve(name).or_else(|error| untagged().ok_or(error)).map_err(unknown)
    }

    fn default_model(&self) -> Result<Arc<Model>, Failure> {
        if let Some(name) = &self.settings.defaults.model {
            return Ok(Arc::clone(self.catalog.resolve(name).map_err(unknown)?));
        }
        let mut models = self.catalog.models();
        match (models.next(), models.next()) {
            (Some(only), None) => Ok(Arc::clone(only)),
            _ => Err(Failure::NoModel(self.catalog.models().map(|m| m.id.to_string()).collect())),
        }
    }

    /// The manifest of a model's engine.
    pub(crate) fn manifest(&self, model: &Model) -> &Arc<Manifest> {
        self.catalog.manifest(&model.engine).expect("a catalog holds no model without its engine")
    }
}

fn watched(catalog: &Catalog, outside: &[Outside]) -> Vec<Arc<str>> {
    let ours = catalog.models().flat_map(|model| model.parameters.names());
    let names: BTreeSet<&str> = ours.chain(outside::watched(outside)).collect();
    names.into_iter().map(Into::into).collect()
}

/// The failure that an unknown name is.
pub(crate) fn unknown(unknown: UnknownModel) -> Failure {
    Failure::UnknownModel { name: unknown.name, nearest: unknown.nearest }
}
