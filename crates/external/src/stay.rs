//! [`Stay`]: a request's use of a model on somebody's server, from the decision to its last byte.
//!
//! Nothing of ours evicts the model meanwhile. A server that loads by itself when the request comes says only then
//! whether it can: such answers go through [`Stay::on_refused`], which may make room and ask for another try. What is
//! displaced for a request that goes away is put back.
use crate::{
    call::{Body, CallError, message},
    change::{Host, Loader, Under, Wanted},
    guest::{Guest, Refusal, Settled},
    lock::TargetLock,
    router::NOT_LOADED,
    server::Server,
};
use http::{Request, Response};
use hyper::body::Incoming;
use motorpool_residency::{By, Ending, Failure, Happened, Kind, Pace, Step, is_capacity_rejection};
use motorpool_vocab::Now;
use std::sync::Arc;
use tokio::runtime::Handle;

/// What comes after an answer that is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The same request again, with [`Stay::wire_model`] as it is now.
    Again,
    /// The answer is the caller's.
    Surface,
    /// The answer to the first try is the caller's: those since are about what was tried for it.
    SurfaceFirst,
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
    /// When it was sent to a model that was there.
    sent: Option<Now>,
}

/// A load that the request brings about.
#[derive(Debug)]
struct Open {
    under: Under,
    /// From the first eviction on.
    lock: Option<TargetLock>,
    /// Answers that were errors.
    n_refused: u32,
}

impl Stay {
    pub(crate) fn begin(guest: &Guest, (model, context): (&str, Option<u32>)) -> Self {
        let host = &guest.host;
        host.common.begin(guest.key(), model);
        let wanted = Wanted::new(model, model.to_owned());
        let pace = Pace::Watched { since: (host.common.setting.now)() };
        Self { guest: guest.clone(), wanted, context, open: None, is_second: false, pace, sent: None }
    }

    pub(crate) async fn settle(&mut self) -> Result<(), Refusal> {
        let settled = self.guest.settle((&self.wanted.model, self.context)).await?;
        self.open = settled.under.map(|under| Open { under, lock: None, n_refused: 0 });
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
        let now = (self.host().common.setting.now)();
        self.pace = Pace::Watched { since: now };
        self.sent = self.open.is_none().then_some(now);
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
            let lock = self.guest.lock().await?;
            // Another request may have loaded it meanwhile, and what may go now is not what might go then.
            match self.guest.settle_anew((&self.wanted.model, self.context)).await? {
                Some(Settled { wanted, under: None }) => {
                    self.wanted = wanted;
                    return Ok(Next::Again);
                }
                Some(Settled { under: Some(under), .. }) => open.under = under,
                None => {}
            }
            open.lock = Some(lock);
        }
        open.n_refused += 1;
        let n_refused = open.n_refused;
        let (host, mut wanted) = (Arc::clone(self.host()), self.wanted.clone());
        // Once something goes, all of it is carried out, whatever becomes of the request.
        let task = self.host().common.spawn(self.guest.key(), async move {
            let after = host.list().await.ok();
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
        Ok(if n_refused > 1 { Next::SurfaceFirst } else { Next::Surface })
    }

    /// The server answered well: what it loaded for this request is ours. Once is enough; it costs nothing where nothing
    /// was loaded.
    pub async fn on_first_result(&mut self) {
        self.pace.on_first_result((self.host().common.setting.now)());
        let Some(mut open) = self.open.take() else { return };
        let host = Arc::clone(self.host());
        let listing = host.list().await.ok();
        let seen = listing.as_ref().and_then(|all| all.residents().find(|seen| seen.is_called(&self.wanted.wire)));
        let is_there = seen.is_some();
        // Another request of ours may have had its first result before.
        let is_new = seen.is_some_and(|seen| host.common.own().book.owned(self.guest.key(), seen).is_none());
        if let Some(seen) = seen {
            if is_new {
                host.common.take(self.guest.key(), seen, By::Us);
                host.common.written().await;
            }
            self.wanted.wire.clone_from(&seen.id);
        }
        host.report(&mut open.under, if is_new { Happened::Well(listing) } else { Happened::Unseen(listing) });
        if is_there && open.under.ending() == Some(Ending::Loaded) {
            host.trust(&self.wanted);
        }
    }

    /// The answer is whole, and had `n_tokens`: the same as [`Self::on_tokens`], by all the time since it was sent, unless
    /// the server loaded the model meanwhile.
    pub fn on_whole(&mut self, n_tokens: u64) {
        if let (Some(since), Pace::Watched { .. }) = (self.sent, self.pace) {
            self.pace = Pace::Watched { since };
            self.on_tokens(n_tokens);
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
    let _inside = runtime.enter();
    let common = Arc::clone(&host.common);
    common.spawn(&host.key().clone(), async move {
        let mut wanted = Wanted::new("", String::new());
        let after = host.list().await.ok();
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
    /// After the last use of `model` our time begins, not the one that the request left behind. However many requests end
    /// meanwhile, one waits for the lock.
    fn keep_later(&self, model: &str) {
        let Ok(runtime) = Handle::try_current() else { return };
        let common = &self.host.common;
        if self.owned().is_empty() || !common.begin_keeping(self.key(), model) {
            return;
        }
        let (guest, model) = (self.clone(), model.to_owned());
        runtime.spawn(async move {
            let lock = guest.lock().await;
            guest.host.common.end_keeping(guest.key(), &model);
            // Under the lock, and only what is still ours: what was released meanwhile must not be loaded again.
            let (Ok(_lock), Ok(listing)) = (lock, guest.host.list().await) else { return };
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
