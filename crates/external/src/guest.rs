//! [`Guest`]: makes a model resident on one router, and gives back what it took.
//!
//! ```text
//!   trusted? ─► lock ─► trusted? ─► list ─► capacity ─► decide ─► carry out ─► unlock      one hold for all of it
//! ```
//!
//! What changes the server runs in a task of its own, to its end, whatever becomes of who asked. Dropping the future of
//! [`Guest::prepare`] before that leaves the server as it was.
use crate::{
    lock::{LockError, TargetLock},
    router::{Router, RouterError},
};
use motorpool_residency::{
    Action, Book, By, Capacity, Carry, Catalogue, Decided, Decline, Ending, Facts, Failure, Happened, Keep, Kind,
    Leaving, Lifecycle, Listing, Mutation, Notice, Owned, ProtectedSet, Protection, Resident, Step, Trusted, assess,
    decide, protection,
};
use motorpool_vocab::Now;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

/// What happens on somebody's server, as it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// People are to know.
    Notice(Box<Notice>),
    /// The server was changed.
    Mutation(Mutation),
}

/// Takes news; it must not block, and cannot fail a request.
pub type Sink = Box<dyn Fn(News) + Send + Sync>;

/// What a guest needs from outside.
pub struct Setting {
    /// The user's run directory: locks lie below it.
    pub run: PathBuf,
    /// How long the lock is waited for.
    pub lock_within: Duration,
    /// What the configuration protects there.
    pub protected: ProtectedSet,
    /// Reads the clock.
    pub now: fn() -> Now,
    /// Where news goes.
    pub sink: Sink,
}

/// Why a request is not sent.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// By the rules.
    #[error(transparent)]
    Declined(#[from] Decline),
    /// Our own requests hold what would have to go.
    #[error("in use: {}", .0.join(", "))]
    InUse(Vec<String>),
    /// The lock was not got.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The load failed; what it had displaced was put back as far as it could be.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The task that changes the server is gone.
    #[error("the change of the server broke off")]
    BrokeOff,
}

/// What we have on one router.
#[derive(Clone)]
pub struct Guest {
    shared: Arc<Shared>,
}

struct Shared {
    router: Router,
    setting: Setting,
    own: Mutex<Own>,
}

#[derive(Default)]
struct Own {
    book: Book,
    trusted: Trusted,
}

/// A request's use of a model: nothing of ours evicts it until it is dropped.
#[derive(Debug)]
pub struct Stay {
    guest: Guest,
    model: String,
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Guest").field(&self.shared.router.key()).finish()
    }
}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setting").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let shared = &self.guest.shared;
        shared.own().book.end((shared.setting.now)(), shared.router.key(), &self.model);
    }
}

impl Guest {
    /// On `router`, owning nothing yet.
    pub fn new(router: Router, setting: Setting) -> Self {
        Self { shared: Arc::new(Shared { router, setting, own: Mutex::default() }) }
    }

    /// Makes `model` resident by the rules, and holds it until the answer is dropped.
    pub async fn prepare(&self, model: &str) -> Result<Stay, Refusal> {
        self.shared.own().book.begin(self.shared.router.key(), model);
        let stay = Stay { guest: self.clone(), model: model.to_owned() };
        if self.is_trusted(model) {
            return Ok(stay);
        }
        let lock =
            TargetLock::take(&self.shared.setting.run, self.shared.router.key(), self.shared.setting.lock_within);
        let lock = match lock.await {
            Ok(lock) => lock,
            // Whoever holds it changes something; what is there by a plain look can be used all the same.
            Err(busy) => return if self.is_there(model).await { Ok(stay) } else { Err(busy.into()) },
        };
        if self.is_trusted(model) {
            return Ok(stay);
        }
        self.decide_and_do(model, lock).await?;
        Ok(stay)
    }

    /// Forgets what is trusted: a request was answered 404 or "not loaded", or its connection was lost.
    pub fn distrust(&self) {
        self.shared.own().trusted.forget(self.shared.router.key());
    }

    /// What is ours there.
    pub fn owned(&self) -> Vec<Owned> {
        self.shared.own().book.entries().cloned().collect()
    }

    /// Gives back all that is ours, within `within` in all; errors are nobody's business any more.
    pub async fn leave(&self, within: Duration) {
        let releases = async {
            let ours = self.shared.own().book.leaving(Leaving::Everything);
            for owned in ours {
                if self.is_same(&owned).await && self.shared.router.unload(&owned.model).await.is_ok() {
                    self.shared.forget(&owned.model);
                }
            }
        };
        let _ = tokio::time::timeout(within, releases).await;
    }

    /// What others loaded again since is not ours to unload.
    async fn is_same(&self, owned: &Owned) -> bool {
        let Ok(listing) = self.shared.router.list().await else { return false };
        let mut own = self.shared.own();
        own.book.observe(self.shared.router.key(), &listing);
        own.book.entries().any(|entry| entry == owned)
    }

    fn is_trusted(&self, model: &str) -> bool {
        let now = (self.shared.setting.now)();
        self.shared.own().trusted.get(now, self.shared.router.key(), model).is_some()
    }

    async fn is_there(&self, model: &str) -> bool {
        let listing = self.shared.router.list().await;
        listing.is_ok_and(|listing| listing.find(model).is_some_and(|seen| seen.phase.is_ready()))
    }

    async fn decide_and_do(&self, model: &str, lock: TargetLock) -> Result<(), Refusal> {
        // Without a listing nothing is changed, and nothing is trusted.
        let Ok(listing) = self.shared.router.list().await else { return Ok(()) };
        let facts = self.shared.facts(model, &listing, self.shared.router.capacity().await);
        let plan = decide(&facts);
        plan.notices.into_iter().for_each(|notice| (self.shared.setting.sink)(News::Notice(Box::new(notice))));
        match plan.action {
            Action::Observe | Action::Delegate { .. } => Ok(()),
            Action::Resident => {
                self.shared.trust(model);
                Ok(())
            }
            Action::Decline(why) => Err(why.into()),
            Action::Wait { busy } => Err(Refusal::InUse(busy)),
            Action::Await => {
                // Nothing of ours changes: others' load is only waited for.
                self.shared.router.until_ready(model).await.map_err(|why| failure(&why))?;
                self.shared.trust(model);
                Ok(())
            }
            Action::Load { evict } => self.in_own_task(model, (evict, facts.residents), lock).await,
        }
    }

    async fn in_own_task(
        &self,
        model: &str,
        (evict, residents): (Vec<Resident>, Vec<Resident>),
        lock: TargetLock,
    ) -> Result<(), Refusal> {
        let (shared, model) = (Arc::clone(&self.shared), model.to_owned());
        let task = tokio::spawn(async move {
            let (carry, step) = Carry::load(&model, evict, &residents);
            let ending = shared.carry_out(&model, (carry, step)).await;
            drop(lock);
            ending
        });
        match task.await.map_err(|_| Refusal::BrokeOff)? {
            Ending::Loaded => Ok(()),
            Ending::Failed(why) => Err(why.into()),
        }
    }
}

impl Shared {
    fn own(&self) -> MutexGuard<'_, Own> {
        // What a panic left is still a list of names.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trust(&self, model: &str) {
        self.own().trusted.put((self.setting.now)(), self.router.key(), (model, Decided::Resident));
    }

    fn forget(&self, model: &str) {
        let mut own = self.own();
        own.book.forget(self.router.key(), model);
        own.trusted.forget(self.router.key());
    }

    fn facts(&self, model: &str, listing: &Listing, capacity: Capacity) -> Facts {
        let mut own = self.own();
        own.book.observe(self.router.key(), listing);
        let found = listing.find(model);
        let keep = Keep {
            model: model.to_owned(),
            protection: found.map_or(Protection::None, |seen| protection(seen, &self.setting.protected, None)),
            context: None,
            max_context: None,
        };
        Facts {
            kind: Kind::Router,
            lifecycle: Lifecycle::Managed,
            keep,
            residents: assess(listing, self.router.key(), &own.book, &self.setting.protected),
            capacity,
            catalogue: if found.is_some() { Catalogue::Has } else { Catalogue::Lacks },
            now: (self.setting.now)(),
        }
    }

    async fn carry_out(&self, model: &str, (mut carry, mut step): (Carry, Step)) -> Ending {
        self.own().trusted.forget(self.router.key());
        loop {
            let happened = match &step {
                Step::Evict(victim) => self.evict(&victim.seen.id).await,
                Step::Load => self.load(model).await,
                Step::Restore(gone) => self.load(&gone.seen.id).await,
                Step::Confirm => Happened::Well(self.router.list().await.ok()),
                Step::Done(_) => Happened::Well(None),
            };
            if let Step::Done(ending) = step {
                if ending == Ending::Loaded {
                    self.trust(model);
                }
                return ending;
            }
            step = carry.on_happened(happened);
            carry.take_mutations().into_iter().for_each(|mutation| (self.setting.sink)(News::Mutation(mutation)));
            carry.take_notices().into_iter().for_each(|notice| (self.setting.sink)(News::Notice(Box::new(notice))));
        }
    }

    async fn evict(&self, model: &str) -> Happened {
        match self.router.unload(model).await {
            Ok(()) => {
                self.forget(model);
                Happened::Well(None)
            }
            Err(why) => Happened::Badly(failure(&why), self.router.list().await.ok()),
        }
    }

    /// What is resident after our load and was not before is ours.
    async fn load(&self, model: &str) -> Happened {
        let was_there = self.router.list().await.is_ok_and(|listing| listing.holds(model));
        let loaded = self.router.load(model).await;
        let after = self.router.list().await.ok();
        match loaded {
            Ok(()) => {
                if let Some(seen) = after.as_ref().and_then(|listing| listing.find(model)).filter(|_| !was_there) {
                    let since =
                        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |past| past.as_secs());
                    let (key, model) = (self.router.key().clone(), seen.id.clone());
                    self.own().book.own(Owned { key, model, instance: seen.instance.clone(), since, by: By::Us });
                }
                Happened::Well(after)
            }
            Err(why) => Happened::Badly(failure(&why), after),
        }
    }
}

fn failure(why: &RouterError) -> Failure {
    Failure::Other(why.to_string())
}
