//! [`Stay`]: a request's use of a model on somebody's server, from the decision to its last byte.
//!
//! Nothing of ours evicts the model meanwhile. A server that loads by itself when the request comes says only then
//! whether it can: such answers go through [`Stay::on_refused`], which may make room and ask for another try. What is
//! displaced for a request that goes away is put back.
use crate::{
    call::{Body, CallError, message},
    change::{Host, Loader, Under, Wanted},
    guest::{Guest, Refusal},
    lock::TargetLock,
    router::NOT_LOADED,
    server::Server,
};
use http::{Request, Response};
use hyper::body::Incoming;
use motorpool_residency::{By, Ending, Failure, Happened, Kind, Pace, Step, is_capacity_rejection};
use std::sync::Arc;
use tokio::runtime::Handle;

/// What comes after an answer that is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The same request again, with [`Stay::wire_model`] as it is now.
    Again,
    /// The answer is the caller's.
    Surface,
}

/// A request's use of a model: nothing of ours evicts it until it is dropped.
#[derive(Debug)]
pub struct Stay {
    guest: Guest,
    wanted: Wanted,
    /// Tokens of context that the request wants.
    context: Option<u32>,
    /// The server loads when the request comes.
    open: Option<Open>,
    /// It was decided once more already.
    is_second: bool,
    pace: Pace,
}

/// A load that the request brings about.
#[derive(Debug)]
struct Open {
    under: Under,
    /// From the first eviction on.
    lock: Option<TargetLock>,
}

impl Stay {
    pub(crate) fn begin(guest: &Guest, (model, context): (&str, Option<u32>)) -> Self {
        let host = &guest.host;
        host.common.begin(guest.key(), model);
        let wanted = Wanted::new(model, model.to_owned());
        let pace = Pace::Watched { since: (host.common.setting.now)() };
        Self { guest: guest.clone(), wanted, context, open: None, is_second: false, pace }
    }

    pub(crate) async fn settle(&mut self) -> Result<(), Refusal> {
        let settled = self.guest.settle((&self.wanted.model, self.context)).await?;
        self.open = settled.under.map(|under| Open { under, lock: None });
        self.wanted = settled.wanted;
        Ok(())
    }

    fn host(&self) -> &Arc<Host> {
        &self.guest.host
    }

    /// What the request's body must name the model.
    pub fn wire_model(&self) -> &str {
        &self.wanted.wire
    }

    /// Tokens of context that Ollama has the model loaded with: a request of its own API that wants another number, or none,
    /// would have it loaded anew. `None`: it does not say, or is no Ollama.
    pub fn loaded_with(&self) -> Option<u32> {
        self.wanted.loaded_with
    }

    /// Where it stays.
    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    /// Sends what `request` makes to a path of the server (`/v1/…`), with the operator's headers and key instead of the
    /// caller's; a router is told not to load for it. It is made once more when a kept connection had died. Answers when
    /// the head of the answer is there. A lost connection forgets what is trusted.
    pub async fn send(
        &mut self,
        path_and_query: &str,
        request: impl Fn() -> Request<Body>,
    ) -> Result<Response<Incoming>, CallError> {
        self.pace = Pace::Watched { since: (self.host().common.setting.now)() };
        let server: &Server = &self.guest.host.server;
        let answer = server.send(path_and_query, request).await;
        if answer.is_err() {
            self.guest.distrust();
        }
        answer
    }

    /// The server answered `status` with `body`, and it is an error. A model that is not loaded any more is decided about
    /// once more; one for which there is no room gets it when something of ours may go.
    pub async fn on_refused(&mut self, status: u16, body: &[u8]) -> Result<Next, Refusal> {
        let text = message(body);
        let is_not_loaded = status == 400 && text.contains(NOT_LOADED);
        if is_not_loaded || status == 404 {
            self.guest.distrust();
        }
        if let Some(open) = self.open.take() {
            return self.make_room(open, failure(status, text)).await;
        }
        if is_not_loaded && self.guest.target().kind == Kind::Router && !self.is_second {
            self.is_second = true;
            self.settle().await?;
            return Ok(Next::Again);
        }
        Ok(Next::Surface)
    }

    async fn make_room(&mut self, mut open: Open, why: Failure) -> Result<Next, Refusal> {
        if matches!(why, Failure::Capacity(_)) && open.lock.is_none() {
            open.lock = Some(self.guest.lock().await?);
        }
        let (host, mut wanted) = (Arc::clone(self.host()), self.wanted.clone());
        // Once something goes, all of it is carried out, whatever becomes of the request.
        let task = tokio::spawn(async move {
            let after = host.server.list().await.ok();
            host.report(&mut open.under, Happened::Badly(why, after));
            open.under = host.carry_out(&mut wanted, open.under, Loader::Request).await;
            Held { host, open: Some(open) }
        });
        let mut held = task.await.map_err(|_| Refusal::BrokeOff)?;
        let open = held.open.take().ok_or(Refusal::BrokeOff)?;
        if open.under.step == Step::Load {
            self.open = Some(open);
            return Ok(Next::Again);
        }
        Ok(Next::Surface)
    }

    /// The server answered well: what it loaded for this request is ours. Once is enough; it costs nothing where nothing
    /// was loaded.
    pub async fn on_first_result(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        let host = Arc::clone(self.host());
        let listing = host.server.list().await.ok();
        let seen = listing.as_ref().and_then(|all| all.residents().find(|seen| seen.is_called(&self.wanted.wire)));
        let is_there = seen.is_some();
        if let Some(seen) = seen {
            host.common.take(self.guest.key(), seen, By::Us);
            host.common.written().await;
            self.wanted.wire.clone_from(&seen.id);
        }
        host.report(&mut open.under, Happened::Well(listing));
        if is_there && open.under.ending() == Some(Ending::Loaded) {
            host.trust(&self.wanted);
        }
    }

    /// The answer had `n_tokens` so far: says so, once, when that is too slow to be of use.
    pub fn on_tokens(&mut self, n_tokens: u64) {
        let now = (self.host().common.setting.now)();
        if let Some(notice) = self.pace.observe(now, n_tokens, &self.wanted.wire) {
            self.host().common.tell(self.guest.target(), notice);
        }
    }
}

/// A load that the request brings about, between two of its tries: when nobody waits for the task, what went is put back.
struct Held {
    host: Arc<Host>,
    open: Option<Open>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            put_back(Arc::clone(&self.host), open);
        }
    }
}

/// The request goes without a result: what went for it comes back.
fn put_back(host: Arc<Host>, mut open: Open) {
    // Without an eviction there is no lock, and nothing to do.
    let (Some(_), Ok(runtime)) = (&open.lock, Handle::try_current()) else { return };
    if open.under.ending().is_some() {
        return;
    }
    runtime.spawn(async move {
        let mut wanted = Wanted::new("", String::new());
        let after = host.server.list().await.ok();
        host.report(&mut open.under, Happened::Badly(Failure::Other("its request went away".to_owned()), after));
        drop(host.carry_out(&mut wanted, open.under, Loader::Request).await);
        drop(open.lock);
    });
}

impl Drop for Stay {
    fn drop(&mut self) {
        let host = Arc::clone(self.host());
        host.common.end(self.guest.key(), &self.wanted.model);
        if let Some(open) = self.open.take() {
            put_back(Arc::clone(&host), open);
        }
        if host.server.is_kept_by_use() {
            self.guest.keep_later(&self.wanted.wire);
        }
    }
}

impl Guest {
    /// After the last use of `model` our time begins, not the one that the request left behind.
    fn keep_later(&self, model: &str) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.owned().is_empty() {
            return;
        }
        let (guest, model) = (self.clone(), model.to_owned());
        runtime.spawn(async move {
            // Under the lock, and only what is still ours: what was released meanwhile must not be loaded again.
            let Ok(_lock) = guest.lock().await else { return };
            let Ok(listing) = guest.host.server.list().await else { return };
            let ours = listing.residents().find(|seen| seen.is_called(&model));
            if let Some(seen) = ours.filter(|seen| guest.host.is_idle_and_ours(seen)) {
                guest.host.server.keep((&model, guest.host.server.loaded_with(Some(seen)))).await;
            }
        });
    }
}

fn failure(status: u16, text: String) -> Failure {
    if is_capacity_rejection(status, &text) { Failure::Capacity(text) } else { Failure::Other(text) }
}
