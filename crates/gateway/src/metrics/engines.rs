//! What engines measure themselves: [`Scraper`] reads what their manifests name, one round at a time, when somebody asked.
//!
//! ```text
//! a scrape of ours ─► refresh: is the last round old? ─► asked ─► one task: a round over all engines, each with its time
//!        ▲                                                              │ each page as it comes
//!        └────────────────── after WAIT at the latest: what is there ◄──┘
//! ```
//!
//! An engine resets some of its gauges when it is read, so nobody else reads it. What does not answer in time, or is not
//! well formed, or is too long, has no page: nothing old is told as new.
use super::{
    exposition::Exposition,
    families::{Families, Measure, Value, gauge},
};
use crate::{
    body::empty,
    context::Context,
    reload::Scene,
    upstream::{Often, Upstream},
};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use motorpool_catalog::{Catalog, MetricsKind, MetricsView};
use motorpool_vocab::{Endpoint, EngineKey, ModelId, Spawn};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, timeout},
};

/// A scrape waits so long for engines.
pub(crate) const WAIT: Duration = Duration::from_millis(500);
/// One engine has so long to answer; a slow one is asked again in the next round.
const ENGINE_WITHIN: Duration = Duration::from_secs(2);
/// Two scrapes in this time read the same.
const FRESH: Duration = Duration::from_secs(1);
/// A longer page is none.
const PAGE_BYTES: usize = 1 << 20;

/// What the engines said last, by key.
pub(crate) type Pages = BTreeMap<EngineKey, Page>;

/// What one engine said.
#[derive(Clone, Debug)]
pub(crate) enum Page {
    Read(Arc<Exposition>),
    /// Nothing that can be used.
    Failed,
    /// It has no metrics.
    None,
}

/// Reads engines. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Scraper {
    pages: Mutex<Pages>,
    asked: Notify,
    /// When the last round ended.
    ended: watch::Sender<Option<Instant>>,
}

impl Default for Scraper {
    fn default() -> Self {
        Self { pages: Mutex::default(), asked: Notify::new(), ended: watch::Sender::new(None) }
    }
}

impl Scraper {
    /// Waits for a fresh look at all engines, at most for [`WAIT`].
    pub(crate) async fn refresh(&self) {
        let mut ended = self.ended.subscribe();
        if ended.borrow_and_update().is_some_and(|at| at.elapsed() < FRESH) {
            return;
        }
        self.asked.notify_one();
        // Whoever is not through by then shows in the next one.
        let _ = timeout(WAIT, ended.changed()).await;
    }

    /// What is to be told: of the models of `catalog`, and of each of their replicas one page. While a model's engine goes for
    /// another one, both may serve; the page is that of the other one.
    pub(crate) fn pages(&self, catalog: &Catalog) -> Pages {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_new = |key: &EngineKey| catalog.model(key.model()).is_some_and(|model| model.engine == key.provider());
        let mut told = BTreeMap::<(ModelId, u32), (EngineKey, Page)>::new();
        for (key, page) in pages.into_iter().filter(|(key, _)| catalog.model(key.model()).is_some()) {
            let place = (key.model().clone(), key.replica());
            if is_new(&key) || !told.contains_key(&place) {
                told.insert(place, (key, page));
            }
        }
        told.into_values().collect()
    }

    #[cfg(test)]
    pub(super) fn page(&self, key: &EngineKey) -> Option<Page> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Reads the engines of `scene` whenever somebody asks. Never ends.
    pub(crate) async fn run(&self, scene: Scene) {
        loop {
            self.asked.notified().await;
            let Context { handle, upstream, catalog, .. } = &*scene.now().context;
            self.round(&handle.endpoints(), upstream, catalog).await;
            self.ended.send_replace(Some(Instant::now()));
        }
    }

    pub(super) async fn round(&self, engines: &[(EngineKey, Spawn, Endpoint)], upstream: &Upstream, catalog: &Catalog) {
        self.change(|pages| pages.retain(|key, _| engines.iter().any(|(known, ..)| known == key)));
        let mut readings = JoinSet::new();
        for (key, spawn, endpoint) in engines.iter().cloned() {
            let view = catalog.manifest(key.provider()).and_then(|manifest| manifest.metrics.clone());
            let Some(MetricsView { path, kind: MetricsKind::Prometheus }) = view else {
                self.change(|pages| drop(pages.insert(key, Page::None)));
                continue;
            };
            let upstream = upstream.clone();
            readings.spawn(async move {
                let page = timeout(ENGINE_WITHIN, read((spawn, &endpoint), &path, &upstream)).await;
                (key, page.unwrap_or(Page::Failed))
            });
        }
        while let Some(read) = readings.join_next().await {
            if let Ok((key, page)) = read {
                self.change(|pages| drop(pages.insert(key, page)));
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Pages)) {
        change(&mut self.pages.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

async fn read(to: (Spawn, &Endpoint), path: &str, upstream: &Upstream) -> Page {
    let request = |uri| {
        let mut request = Request::new(empty());
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(header::HOST, http::HeaderValue::from_static("localhost"));
        headers.insert(header::ACCEPT, http::HeaderValue::from_static("text/plain;version=0.0.4"));
        request
    };
    let Ok(reply) = upstream.send(to, (path, Often::OnceMore), request).await else { return Page::Failed };
    match reply.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => return Page::None,
        _ => return Page::Failed,
    }
    let Ok(body) = Limited::new(reply.into_body(), PAGE_BYTES).collect().await else { return Page::Failed };
    let bytes: Bytes = body.to_bytes();
    let page = str::from_utf8(&bytes).ok().and_then(|text| Exposition::read(text).ok());
    page.map_or(Page::Failed, |page| Page::Read(Arc::new(page)))
}

/// Which engines could be read.
pub(super) fn write(families: &mut Families, pages: &Pages) {
    let row = |(key, page): (&EngineKey, &Page)| {
        let level = match page {
            Page::Read(_) => 1.0,
            Page::Failed => 0.0,
            Page::None => return None,
        };
        let labels = vec![("model", key.model().to_string()), ("replica", key.replica().to_string())];
        Some((labels, Value::Level(level)))
    };
    let help = "Whether an engine's own metrics could be read; they follow with the labels model and replica.";
    families.add(gauge("motorpool_engine_scrape_up", Measure::Number, help), pages.iter().filter_map(row));
}
