//! HTTP in, an engine's HTTP out; and the management interface.
//!
//! Boundary: the only crate that serves HTTP. It asks the pool through a `PoolHandle`, reads the catalog, and starts,
//! signals and decides nothing.
//!
//! ```text
//! client ─► listen ─► wire (guard) ─► hyper ─► service: origin rules, route
//!                                                │
//!             ┌──────────────────────────────────┼──────────────┬─────────────┐
//!         inference                            raw /m/        models         api
//!             │ receive: scan, retain            │
//!             ▼                                  ▼
//!         exchange: lease ─► upstream ─► engine;  relay or assemble ─► client
//! ```
//!
//! * Nothing is written to a client before the engine's first result, so a refusal is an ordinary status; only a stream
//!   that waits long is begun with comments.
//! * The body of a request is kept until the first byte of its reply, and goes again, byte for byte, when the engine died.
//! * The lease lies in the reply's body: whoever drops that, for whatever reason, has given it back.
mod aside;
mod asker;
pub mod assemble;
pub mod errors;
pub mod family;
pub mod headers;
pub mod ollama;
pub mod origin;
mod page;
pub mod retain;
pub mod scan;
pub mod splice;
pub mod sse;

mod api;
mod bare;
mod body;
mod context;
mod control;
mod discretion;
mod drain;
mod exchange;
mod history;
mod inference;
mod inward;
pub mod keys;
mod listen;
mod loading;
mod metrics;
mod models;
pub mod multipart;
mod need;
mod outside;
mod properties;
mod pull;
mod raw;
mod receive;
mod refusals;
mod relay;
mod reload;
mod route;
mod running;
mod service;
mod settings;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod tls;
mod traces;
mod tunnel;
mod upload;
mod upstream;
mod usage;
mod wire;

pub use api::Outlooks;
use context::Context;
pub use history::{By, Question, Remembering, UsageHistory, UsageRow};
pub use keys::KeysNeeded;
use listen::Doorkeeper;
pub use listen::Listener;
use motorpool_catalog::Catalog;
use motorpool_supervisor::PoolHandle;
pub use outside::{Outside, Watch};
pub use pull::{Pull, Pulling};
use reload::Scene;
pub use reload::{Handover, NotReloaded, Reloading, Reloads};
pub use settings::GatewaySettings;
use std::{future::Future, pin::Pin, sync::Arc};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};
pub use traces::{TARGET as TRACE_TARGET, Traces};
pub use usage::{Outcome, Outlet, Tokens, UsageRecord};

/// The server, ready to serve.
#[derive(Debug)]
pub struct Gateway {
    scene: Scene,
}

impl Gateway {
    /// A server of `catalog`'s models through `handle`.
    pub fn new(handle: PoolHandle, catalog: Arc<Catalog>, settings: GatewaySettings) -> Self {
        Self { scene: Scene::new(Context::new(handle, catalog, settings)) }
    }

    /// From now on `pull` fetches the files of models that clients ask for; without it nobody does.
    pub fn pulls_with(&self, pull: Pull) {
        let _ = self.scene.now().context.pull.set(pull);
    }

    /// From now on `outlet` gets one record for each request to a model. One that is full loses some.
    pub fn records_to(&self, outlet: Outlet) {
        self.scene.now().context.sink.open(outlet);
    }

    /// From now on `history` answers what earlier requests took; without it nobody does.
    pub fn remembers_with(&self, history: UsageHistory) {
        let _ = self.scene.now().context.history.set(history);
    }

    /// From now on `reloads` is asked when somebody wants the files read again; without it nobody does.
    pub fn reloads_with(&self, reloads: Reloads) {
        let _ = self.scene.now().context.reloads.set(reloads);
    }

    /// From now on requests have spans, which `traces` ties to those of others; without it they have none.
    pub fn traces_with(&self, traces: Traces) {
        let _ = self.scene.now().context.traces.set(traces);
    }

    /// The way to give it another catalog while it serves.
    pub fn handover(&self) -> Handover {
        Handover(self.scene.clone())
    }

    /// Notified when somebody asks on the control socket that the server end. Whoever owns the server does it.
    pub fn shutdown_asked(&self) -> Arc<Notify> {
        Arc::clone(&self.scene.now().context.shutdown_asked)
    }

    /// Serves on `listeners` until `stop` says `true`, or its sender is gone; then takes nothing new and returns when the
    /// last connection has ended.
    ///
    /// Boxed: what a future does is compiled with whoever polls it, and a program that embeds this may build itself small.
    pub fn serve(
        self,
        listeners: Vec<Listener>,
        stop: watch::Receiver<bool>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            // Ends with this.
            let mut reading = JoinSet::new();
            let context = Arc::clone(&self.scene.now().context);
            let (scraper, scene) = (Arc::clone(&context.scraper), self.scene.clone());
            reading.spawn(context.upstream.clone().leave_what_stops(context.handle.events()));
            drop(context);
            reading.spawn(async move { scraper.run(scene).await });
            let keeper = Arc::new(Doorkeeper::new(self.scene, stop));
            let doors: JoinSet<()> = listeners.into_iter().map(|l| Arc::clone(&keeper).keep(l)).collect();
            doors.join_all().await;
        })
    }
}
