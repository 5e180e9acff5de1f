//! A reload, as far as requests see it: [`Scene`] is what counts for those that begin now, [`Handover`] puts another one in
//! its place, [`Reloads`] is whoever can have it done.
//!
//! A request takes the scene once, when its head is there, and keeps it to its end: it sees one catalog, one set of rules
//! and one set of times, whatever is reloaded meanwhile. What must outlive a reload is shared by all scenes: who waits where,
//! bodies, connections to engines, keys' records.
use crate::{api, context::Context, outside::Outside, service::Service, settings::GatewaySettings};
use arc_swap::ArcSwap;
use motorpool_catalog::{Catalog, Config, Report};
use std::{fmt, future::Future, pin::Pin, sync::Arc};

/// What counts for requests that begin now.
#[derive(Clone, Debug)]
pub(crate) struct Scene(Arc<ArcSwap<Service>>);

impl Scene {
    pub(crate) fn new(context: Context) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(service(context))))
    }

    /// What counts now.
    pub(crate) fn now(&self) -> Arc<Service> {
        self.0.load_full()
    }
}

fn service(context: Context) -> Service {
    let context = Arc::new(context);
    Service { management: api::router(Arc::clone(&context)), context }
}

/// The way to give a server that runs another catalog and other settings.
#[derive(Clone, Debug)]
pub struct Handover(pub(crate) Scene);

impl Handover {
    /// Requests that begin from now on see these, and these servers that somebody else runs. What of the settings cannot
    /// change while the server runs stays what it was at its start.
    pub fn reload(&self, catalog: Arc<Catalog>, config: &Config, outside: Vec<Outside>) {
        let now = self.0.now();
        let settings = GatewaySettings { outside, ..GatewaySettings::reloaded(&now.context.settings, config) };
        self.0.0.store(Arc::new(service(now.context.with(catalog, settings))));
    }
}

/// Why nothing was reloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReloaded {
    /// What the files say cannot be taken over.
    Wrong {
        /// What is wrong, for people.
        message: String,
        /// The file.
        file: Option<String>,
        /// The line, from 1.
        line: Option<usize>,
        /// The column in characters, from 1.
        column: Option<usize>,
        /// The name most like one that nobody knows.
        nearest: Option<String>,
    },
    /// The server is being stopped.
    Stopping,
    /// It broke off by a panic, which is in the log.
    Broken,
}

/// What was made of every item, and the keys of engines that end for it.
pub type Reloading = Pin<Box<dyn Future<Output = Result<(Report, Vec<String>), NotReloaded>> + Send>>;

/// Whoever can read the files again and have everybody go on with what they say.
#[derive(Clone)]
pub struct Reloads(Arc<dyn Fn() -> Reloading + Send + Sync>);

impl Reloads {
    /// By this function, which returns at once.
    pub fn new(reload: impl Fn() -> Reloading + Send + Sync + 'static) -> Self {
        Self(Arc::new(reload))
    }

    pub(crate) fn begin(&self) -> Reloading {
        (self.0)()
    }
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reloads")
    }
}
