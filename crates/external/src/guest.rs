//! [`Guest`]: makes a model resident on somebody's server, and gives back what it took.
//!
//! ```text
//!   trusted? ─► lock ─► trusted? ─► look ─► decide ─► carry out ─► unlock      on a router, one hold for all of it
//!   trusted? ─► look ─► decide ─► lock ─► trusted? ─► look ─► decide ─► carry out ─► unlock            elsewhere
//! ```
//!
//! What changes the server runs in a task of its own, to its end, whatever becomes of who asked. Dropping the future of
//! [`Guest::prepare`] before that leaves the server as it was.
use crate::{
    autoload::Autoload,
    call::CallError,
    change::{Host, Loader, Under, Wanted},
    common::{Common, calendar_seconds},
    error::ServerError,
    guests::Report,
    lock::{LockError, TargetLock},
    server::{Look, Server},
    stay::Stay,
    target::Target,
};
use motorpool_residency::{
    Action, Adoption, By, Capacity, Carry, Catalogue, Decided, Decline, Detail, Ending, Facts, Failure, Keep, Kind,
    Lifecycle, Notice, NoticeKind, Owned, Plan, Protection, Resident, Resolution, Seen, assess, clamp_context, decide,
    protection, resolve,
};
use motorpool_vocab::TargetKey;
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};

/// How often it is decided about one request, when what was to go becomes somebody else's each time.
const MAX_DECISIONS: u32 = 3;

/// Why a request is not sent.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// By the rules.
    #[error(transparent)]
    Declined(#[from] Decline),
    /// The server has no such model.
    #[error("the server does not have this model; resident there: {}", list(.0))]
    Unknown(Vec<String>),
    /// Our own requests hold what would have to go.
    #[error("in use: {}", .0.join(", "))]
    InUse(Vec<String>),
    /// The lock was not got.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The load failed; what it had displaced was put back as far as it could be.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The server does not answer as it should.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// It is not ours to release.
    #[error("it is not ours")]
    NotOurs,
    /// The task that changes the server is gone.
    #[error("the change of the server broke off")]
    BrokeOff,
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// What we have on one target's server. Cheap to clone.
#[derive(Clone)]
pub struct Guest {
    pub(crate) host: Arc<Host>,
}

/// A look at a server.
#[derive(Clone, Debug)]
pub struct View {
    /// What it holds, in listing order.
    pub residents: Vec<Resident>,
    /// How many it takes.
    pub capacity: Capacity,
    /// A router: whether it heeds `autoload=0`, as far as that is known.
    pub autoload: Option<Autoload>,
}

/// Where a request may go.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) wanted: Wanted,
    /// The server loads when the request comes, and says then whether it can.
    pub(crate) under: Option<Under>,
}

/// One request's case, as it stands after a look.
#[derive(Debug)]
struct Case {
    wanted: Wanted,
    facts: Facts,
    loader: Loader,
    unloads: Unloads,
    peers: Vec<String>,
}

/// Whether a server can be told to unload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unloads {
    Yes,
    No,
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Guest").field(&self.host.target.id).field(self.key()).finish()
    }
}

impl Guest {
    pub(crate) fn new(target: Target, common: Arc<Common>) -> Result<Self, CallError> {
        let server = Server::new(&target)?;
        Ok(Self { host: Arc::new(Host { target, server, common }) })
    }

    /// What the configuration says of it.
    pub fn target(&self) -> &Target {
        &self.host.target
    }

    /// Whether they are one and the same.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.host, &other.host)
    }

    /// Which server it is.
    pub fn key(&self) -> &TargetKey {
        self.host.server.key()
    }

    /// Makes `model` resident by the rules, and holds it until the answer is dropped.
    pub async fn prepare(&self, model: &str) -> Result<Stay, Refusal> {
        self.prepare_within(model, Duration::ZERO).await
    }

    /// The same; while requests of our own hold what would have to go, it waits for them for `within`.
    pub async fn prepare_within(&self, model: &str, within: Duration) -> Result<Stay, Refusal> {
        self.prepare_asking((model, None), within).await
    }

    /// The same for a request that wants `context` tokens, where no load is configured with some: more than the model has
    /// is told.
    pub async fn prepare_asking(
        &self,
        (model, context): (&str, Option<u32>),
        within: Duration,
    ) -> Result<Stay, Refusal> {
        let until = Instant::now() + within;
        let mut stay = Stay::begin(self, (model, context));
        loop {
            let mut ended = self.host.common.ended();
            match stay.settle().await {
                Err(Refusal::InUse(busy)) => {
                    if !matches!(timeout_at(until, ended.changed()).await, Ok(Ok(()))) {
                        return Err(Refusal::InUse(busy));
                    }
                }
                Ok(()) => return Ok(stay),
                Err(why) => return Err(why),
            }
        }
    }

    /// What would become of a request for `model` now. Nothing is changed and nobody told.
    pub async fn plan(&self, model: &str) -> Result<Plan, Refusal> {
        let look = self.host.look().await?;
        let mut case = self.case((model, None), &look).await?;
        Ok(self.decided(&mut case).await)
    }

    /// What is to be done. Whether Ollama has a model costs a question, which is asked only when something would go for it.
    async fn decided(&self, case: &mut Case) -> Plan {
        let plan = decide(&case.facts);
        if !matches!(&plan.action, Action::Delegate { release, .. } if !release.is_empty()) {
            return plan;
        }
        case.facts.catalogue = match self.host.server.offers(&case.wanted.wire).await {
            Ok(true) => Catalogue::Has,
            Ok(false) => Catalogue::Lacks,
            Err(why) => Catalogue::Unread(why.to_string()),
        };
        decide(&case.facts)
    }

    /// What it holds.
    pub async fn look(&self) -> Result<View, ServerError> {
        let look = self.host.look().await?;
        let capacity = self.host.server.capacity().await;
        let residents = assess(&look.listing, self.key(), &self.host.common.own().book, &self.target().protected);
        Ok(View { residents, capacity, autoload: self.host.server.autoload() })
    }

    /// What it offers, loaded or not.
    pub async fn models(&self) -> Result<Vec<String>, ServerError> {
        self.host.server.models().await
    }

    /// Forgets what is trusted: a request's connection was lost. [`Stay::on_refused`] does it for answers.
    pub fn distrust(&self) {
        self.host.common.distrust(self.key());
    }

    /// What is ours there.
    pub fn owned(&self) -> Vec<Owned> {
        let own = self.host.common.own();
        own.book.entries().filter(|owned| owned.key == *self.key()).cloned().collect()
    }

    /// Whether a helper's report is about this server, by our own configuration of it.
    pub fn is_meant(&self, report: &Report) -> bool {
        *self.key() == report.url.key() && self.target().kind.as_str() == report.kind
    }

    /// What a helper process of ours loaded here is ours from now on, and written down: protected, and released when we
    /// exit. Only the very load that is resident now: refused when none is, or another one than the helper's.
    pub async fn adopt(&self, report: &Report) -> Adoption {
        let Ok(listing) = self.host.list().await else { return Adoption::Refused };
        let is_it = |seen: &&Seen| {
            seen.is_called(&report.model) && (report.instance.is_none() || report.instance == seen.instance)
        };
        let Some(seen) = listing.residents().find(is_it) else { return Adoption::Refused };
        let (model, instance) = (seen.id.clone(), seen.instance.clone());
        let owned = Owned { key: self.key().clone(), model, instance, since: calendar_seconds(), by: By::Worker };
        let known = [self.key().clone()];
        let adoption = self.host.common.change(|book| book.adopt(owned, &known));
        self.host.common.written().await;
        adoption
    }

    pub(crate) async fn lock(&self) -> Result<TargetLock, LockError> {
        self.lock_within(self.host.common.setting.lock_within.max(self.target().limits.load)).await
    }

    async fn lock_within(&self, within: Duration) -> Result<TargetLock, LockError> {
        TargetLock::take(&self.host.common.setting.run, self.key(), within).await
    }

    fn trusted(&self, model: &str) -> Option<Settled> {
        let (wire, loaded_with) = self.host.common.trusted(self.key(), model)?;
        Some(Settled { wanted: Wanted { loaded_with, ..Wanted::new(model, wire) }, under: None })
    }

    /// Decides, and does what was decided; again when what was to go became somebody else's meanwhile.
    pub(crate) async fn settle(&self, asked: (&str, Option<u32>)) -> Result<Settled, Refusal> {
        for _ in 1..MAX_DECISIONS {
            match self.settle_once(asked).await {
                Err(Refusal::Failed(Failure::Changed(_))) => {}
                settled => return settled,
            }
        }
        self.settle_once(asked).await
    }

    async fn settle_once(&self, (model, context): (&str, Option<u32>)) -> Result<Settled, Refusal> {
        if let Some(settled) = self.trusted(model) {
            return Ok(settled);
        }
        let is_managed = self.target().lifecycle == Lifecycle::Managed;
        let mut lock = None;
        let mut is_needed = is_managed && self.target().kind == Kind::Router;
        loop {
            // What we are unloading is there no more, whatever a listing still says: whoever unloads holds the lock.
            is_needed |= lock.is_none() && self.is_going(model);
            if is_needed {
                match self.lock().await {
                    Ok(taken) => lock = Some(taken),
                    Err(busy) => return self.without_lock(model, busy).await,
                }
                if let Some(settled) = self.trusted(model) {
                    return Ok(settled);
                }
            }
            // Without a listing nothing is changed, and nothing is trusted.
            let Ok(seen) = self.host.look().await else { return Ok(Settled::at(model, model.to_owned())) };
            let mut case = self.case((model, context), &seen).await?;
            let plan = self.decided(&mut case).await;
            is_needed = lock.is_none() && case.loader == Loader::Us && changes(&plan.action);
            if !is_needed && lock.is_none() && self.keeps(&case, &plan) {
                // Our time is worth no wait: it is set after the last use, too.
                lock = self.lock_within(Duration::ZERO).await.ok();
                if lock.is_some() {
                    continue;
                }
            }
            if !is_needed {
                plan.notices.into_iter().for_each(|notice| self.host.common.tell(self.target(), notice));
                return self.act(case, plan.action, lock).await;
            }
        }
    }

    fn is_going(&self, model: &str) -> bool {
        self.host.common.is_going(self.key(), model)
    }

    /// Whether our time is to be set there.
    fn keeps(&self, case: &Case, plan: &Plan) -> bool {
        plan.action == Action::Resident && self.host.server.is_kept_by_use() && case.is_ours()
    }

    /// Whoever holds the lock changes something; what is there by a plain look, and stays, can be used all the same.
    async fn without_lock(&self, model: &str, busy: LockError) -> Result<Settled, Refusal> {
        let Ok(look) = self.host.look().await else { return Err(busy.into()) };
        let wanted = self.case((model, None), &look).await?.wanted;
        let is_ready = look.listing.find(&wanted.wire).is_some_and(|seen| seen.phase.is_ready());
        if is_ready && !self.is_going(&wanted.wire) { Ok(Settled { wanted, under: None }) } else { Err(busy.into()) }
    }

    /// What holds now for a load that a request was to bring about, after a wait: the model is there, or what else may
    /// make room for it.
    pub(crate) async fn settle_anew(&self, asked: (&str, Option<u32>)) -> Result<Option<Settled>, Refusal> {
        let Ok(look) = self.host.look().await else { return Ok(None) };
        let case = self.case(asked, &look).await?;
        match decide(&case.facts).action {
            Action::Resident => {
                self.host.trust(&case.wanted);
                Ok(Some(Settled { wanted: case.wanted, under: None }))
            }
            Action::Delegate { fallback, .. } => {
                let under = Under::begin(Carry::delegate(&case.wanted.wire, Vec::new(), case.going(fallback)));
                Ok(Some(Settled { wanted: case.wanted, under: Some(under) }))
            }
            _ => Ok(None),
        }
    }

    async fn case(&self, (model, context): (&str, Option<u32>), look: &Look) -> Result<Case, Refusal> {
        let host = &self.host;
        let elsewhere = host.common.elsewhere(self.key());
        let wire = match &look.catalogue {
            None => model.to_owned(),
            Some((_, variants)) => {
                let seen: Vec<String> = elsewhere.iter().flat_map(|(_, seen)| seen.clone()).collect();
                match resolve(model, variants, self.target().default_model.as_deref(), &seen) {
                    Resolution::Instance(name) | Resolution::Key(name) => name,
                    Resolution::Unknown(resident) => return Err(Refusal::Unknown(resident)),
                }
            }
        };
        let peers = elsewhere.into_iter().filter(|(_, seen)| seen.contains(&wire)).map(|(id, _)| id).collect();
        let capacity = host.server.capacity().await;
        let found = look.listing.find(&wire);
        let set = &self.target().protected;
        let facts = Facts {
            kind: self.target().kind,
            lifecycle: self.target().lifecycle,
            keep: Keep {
                model: wire.clone(),
                protection: found.map_or(Protection::None, |seen| protection(seen, set, None)),
                context: host.server.context().or(context).or(self.target().asked),
                max_context: found.and_then(|seen| seen.max_context),
            },
            residents: assess(&look.listing, self.key(), &host.common.own().book, set),
            capacity,
            // Ollama lists only what is loaded.
            catalogue: if found.is_some() || self.target().kind == Kind::Ollama {
                Catalogue::Has
            } else {
                Catalogue::Lacks
            },
            now: (host.common.setting.now)(),
        };
        let loader = if host.server.loads_explicitly(look) { Loader::Us } else { Loader::Request };
        let loaded_with = host.server.loaded_with(found);
        let wanted = Wanted { loaded_with, ..Wanted::new(model, wire) };
        let unloads = if look.unloads() { Unloads::Yes } else { Unloads::No };
        Ok(Case { wanted, facts, loader, unloads, peers })
    }

    async fn act(&self, case: Case, action: Action, lock: Option<TargetLock>) -> Result<Settled, Refusal> {
        let host = &self.host;
        match action {
            Action::Observe => {
                host.common.trust(self.key(), &case.wanted, Decided::Observed);
            }
            Action::Resident => {
                self.tell_peers(&case);
                if lock.is_some() && case.is_ours() {
                    host.server.keep((&case.wanted.wire, case.wanted.loaded_with)).await;
                }
                host.trust(&case.wanted);
            }
            Action::Decline(why) => return Err(why.into()),
            Action::Wait { busy } => return Err(Refusal::InUse(busy)),
            Action::Await => {
                // Nothing of ours changes: others' load is only waited for, and keeps none of us from changing something.
                drop(lock);
                host.server.until_ready(&case.wanted.wire).await.map_err(|why| why.failure())?;
                host.trust(&case.wanted);
            }
            Action::Load { evict } => {
                let under = Under::begin(Carry::load(&case.wanted.wire, evict, &case.facts.residents));
                return self.in_own_task(case.wanted, under, lock).await;
            }
            Action::Delegate { release, fallback } => {
                host.common.distrust(self.key());
                let under = Under::begin(Carry::delegate(&case.wanted.wire, release, case.going(fallback)));
                if case.loader == Loader::Request {
                    return Ok(Settled { wanted: case.wanted, under: Some(under) });
                }
                let wanted = self.clamped(case);
                return self.in_own_task(wanted, under, lock).await;
            }
        }
        Ok(Settled { wanted: case.wanted, under: None })
    }

    /// The same instance on another host: whoever sees a request there may wonder.
    fn tell_peers(&self, case: &Case) {
        if case.peers.is_empty() {
            return;
        }
        let message = format!("{} has an instance of the same name", case.peers.join(", "));
        let detail = Detail {
            peer_targets: case.peers.clone(),
            requested_model: Some(case.wanted.model.clone()),
            wire_model: Some(case.wanted.wire.clone()),
            ..Detail::default()
        };
        let notice = Notice { kind: NoticeKind::CoResident, model: case.wanted.wire.clone(), message, detail };
        self.host.common.tell(self.target(), notice);
    }

    /// Beside other models a load gets no more context than is fair.
    fn clamped(&self, case: Case) -> Wanted {
        let mut wanted = case.wanted;
        let Some(asked) = self.host.server.context() else { return wanted };
        let given = clamp_context(asked, self.target().context, case.facts.residents.len());
        if given < asked {
            let message = format!("beside other models it is loaded with a context of {given} tokens, not {asked}");
            let detail = Detail { requested_context: Some(asked), load_context: Some(given), ..Detail::default() };
            let notice = Notice { kind: NoticeKind::Stress, model: wanted.wire.clone(), message, detail };
            self.host.common.tell(self.target(), notice);
            wanted.context = Some(given);
        }
        wanted
    }

    async fn in_own_task(
        &self,
        mut wanted: Wanted,
        under: Under,
        lock: Option<TargetLock>,
    ) -> Result<Settled, Refusal> {
        let host = Arc::clone(&self.host);
        let task = self.host.common.spawn(self.key(), async move {
            let under = host.carry_out(&mut wanted, under, Loader::Us).await;
            let ending = under.ending();
            if ending == Some(Ending::Loaded) {
                host.trust(&wanted);
            }
            drop(lock);
            (wanted, ending)
        });
        match task.await {
            Ok((wanted, Some(Ending::Loaded))) => Ok(Settled { wanted, under: None }),
            Ok((_, Some(Ending::Failed(Failure::InUse(model))))) => Err(Refusal::InUse(vec![model])),
            Ok((_, Some(Ending::Failed(why)))) => Err(why.into()),
            Ok((_, None)) | Err(_) => Err(Refusal::BrokeOff),
        }
    }
}

impl Case {
    /// Who cannot unload makes no room.
    fn going(&self, fallback: Vec<Resident>) -> Vec<Resident> {
        if self.unloads == Unloads::Yes { fallback } else { Vec::new() }
    }

    /// Whether what is wanted is there, and ours.
    fn is_ours(&self) -> bool {
        self.facts.residents.iter().any(|one| one.is_ours() && one.seen.is_called(&self.wanted.wire))
    }
}

/// Whether carrying it out changes the server.
fn changes(action: &Action) -> bool {
    matches!(action, Action::Load { .. } | Action::Delegate { .. })
}

impl Settled {
    fn at(model: &str, wire: String) -> Self {
        Self { wanted: Wanted::new(model, wire), under: None }
    }
}
