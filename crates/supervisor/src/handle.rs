//! [`PoolHandle`]: how everybody else asks the pool; [`Lease`]: what they hold.
//!
//! The warm path touches the pool value not at all: the table of open gates is read, one compare-exchange enters,
//! one message tells. Everything else is a message with a place for the answer. Whoever drops the future of an
//! acquire has cancelled it; whoever drops a lease has given it back, on every path.
use arc_swap::ArcSwap;
use motorpool_devices::now;
use motorpool_pool::{Answer, Ask, Force, Grant, Input, Refusal, RequestId, Want};
use motorpool_vocab::{
    Endpoint, EngineKey, Event, ExitRecord, Gate, Holder, ModelId, Now, PhaseView, Snapshot, Spawn, TryEnter,
};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

/// A loop that did not turn for so long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// The way to the one task that owns the pool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PoolHandle {
    inbox: mpsc::UnboundedSender<Post>,
    shared: Arc<Shared>,
}

/// What the loop lets everybody see.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) warm: ArcSwap<HashMap<ModelId, Grant>>,
    pub(crate) snapshot: watch::Sender<Arc<Snapshot>>,
    pub(crate) events: broadcast::Sender<Event>,
    /// When the loop turned last, in nanoseconds of [`now`].
    pub(crate) turned_at: AtomicU64,
    pub(crate) logs: PathBuf,
    next_request: AtomicU64,
}

/// What is in the inbox of the loop.
#[derive(Debug)]
pub(crate) enum Post {
    /// News, or a request that needs no answer.
    Input(Input),
    /// A request, and where its answer goes.
    Asked(Input, RequestId, Asker),
}

/// Where an answer goes.
#[derive(Debug)]
pub(crate) enum Asker {
    Lease(oneshot::Sender<Result<Lease, Refusal>>),
    Resident(oneshot::Sender<Result<EngineKey, Refusal>>),
    Operator(oneshot::Sender<Answer>),
}

/// One request's hold on a ready engine, to the last byte of its response. Dropping it gives it back.
#[derive(Debug)]
pub struct Lease {
    id: RequestId,
    grant: Grant,
    inbox: mpsc::UnboundedSender<Post>,
}

/// Sends `Cancel` unless the answer came.
struct CancelOnDrop<'a> {
    handle: &'a PoolHandle,
    id: RequestId,
    armed: Armed,
}

#[derive(PartialEq, Eq)]
enum Armed {
    Yes,
    No,
}

impl Shared {
    pub(crate) fn new(logs: PathBuf) -> Self {
        Self {
            warm: ArcSwap::default(),
            snapshot: watch::Sender::new(Arc::default()),
            events: broadcast::Sender::new(1024),
            turned_at: AtomicU64::new(now().as_nanos()),
            logs,
            next_request: AtomicU64::new(1),
        }
    }
}

impl PoolHandle {
    pub(crate) fn new(inbox: mpsc::UnboundedSender<Post>, shared: Arc<Shared>) -> Self {
        Self { inbox, shared }
    }

    /// A lease on a ready engine of the model, built and waited for if need be. Dropping the future cancels.
    pub async fn acquire(&self, ask: Ask) -> Result<Lease, Refusal> {
        let id = self.number();
        if ask.want == Want::Lease
            && let Some(lease) = self.enter_warm(id, &ask)
        {
            return Ok(lease);
        }
        let (answer, answered) = oneshot::channel();
        let asked = Input::Acquire { id, ask };
        self.ask(asked, id, Asker::Lease(answer), answered).await.unwrap_or(Err(Refusal::ShuttingDown))
    }

    fn enter_warm(&self, id: RequestId, ask: &Ask) -> Option<Lease> {
        let warm = self.shared.warm.load();
        let grant = warm.get(&ask.model)?;
        if grant.gate.try_enter() != TryEnter::Entered {
            return None;
        }
        let lease = Lease { id, grant: grant.clone(), inbox: self.inbox.clone() };
        let holder = Holder { since: now(), ..ask.holder.clone() };
        self.send(Input::Entered { id, spawn: grant.spawn, holder });
        Some(lease)
    }

    /// Makes the model resident without taking a lease. Dropping the future cancels.
    pub async fn load(&self, model: ModelId) -> Result<EngineKey, Refusal> {
        let id = self.number();
        let (answer, answered) = oneshot::channel();
        let asked = Input::Acquire { id, ask: Ask::resident(model) };
        self.ask(asked, id, Asker::Resident(answer), answered).await.unwrap_or(Err(Refusal::ShuttingDown))
    }

    /// Unloads the engine if nobody uses it.
    pub async fn unload_idle(&self, key: EngineKey) -> Answer {
        self.operate(|id| Input::UnloadIdle { id, key }).await
    }

    /// Unloads the engine after a drain, or at once by force.
    pub async fn evict(&self, key: EngineKey, force: Force) -> Answer {
        self.operate(|id| Input::Evict { id, key, force }).await
    }

    /// Unloads everything idle; the keys of what was busy.
    pub async fn release_idle(&self) -> Vec<EngineKey> {
        match self.operate(|id| Input::ReleaseIdle { id }).await {
            Answer::Released(busy) => busy,
            _ => vec![],
        }
    }

    /// Takes nothing new, lets everything finish, ends. The keys of what could not be killed.
    pub async fn retire(&self) -> Vec<EngineKey> {
        self.ended(|id| Input::Retire { id }).await
    }

    /// Ends everything at once. The keys of what could not be killed.
    pub async fn shutdown(&self) -> Vec<EngineKey> {
        self.ended(|id| Input::Shutdown { id }).await
    }

    async fn ended(&self, make: impl FnOnce(RequestId) -> Input) -> Vec<EngineKey> {
        match self.operate(make).await {
            Answer::Ended(stuck) => stuck,
            _ => vec![],
        }
    }

    async fn operate(&self, make: impl FnOnce(RequestId) -> Input) -> Answer {
        let id = self.number();
        let (answer, answered) = oneshot::channel();
        self.ask(make(id), id, Asker::Operator(answer), answered).await.unwrap_or(Answer::Ended(vec![]))
    }

    /// `None` when the loop is gone.
    async fn ask<T>(&self, asked: Input, id: RequestId, asker: Asker, answered: oneshot::Receiver<T>) -> Option<T> {
        let mut cancel = CancelOnDrop { handle: self, id, armed: Armed::Yes };
        self.inbox.send(Post::Asked(asked, id, asker)).ok()?;
        let answer = answered.await.ok();
        cancel.armed = Armed::No;
        answer
    }

    /// The pool as it was when it last had nothing more to do.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.borrow().clone()
    }

    /// Follows the pool; a slow reader sees the latest.
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.shared.snapshot.subscribe()
    }

    /// Follows the events; a slow reader is told how many it missed.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    /// How the child `spawn` ended, once that is known, waiting up to `within` for it.
    pub async fn exit_of(&self, spawn: Spawn, within: Duration) -> Option<ExitRecord> {
        let mut watch = self.watch();
        let of_it = |snapshot: &Arc<Snapshot>| {
            snapshot.entries.iter().filter_map(|e| e.last_exit.clone()).find(|record| record.spawn == spawn)
        };
        let ended = tokio::time::timeout(within, watch.wait_for(|snapshot| of_it(snapshot).is_some())).await;
        of_it(&*ended.ok()?.ok()?)
    }

    /// Whether the loop turns: it does so at least once a second.
    pub fn is_turning(&self) -> bool {
        let turned_at = Now::from_nanos(self.shared.turned_at.load(Ordering::Relaxed));
        !self.inbox.is_closed() && now().since(turned_at) < STUCK_AFTER
    }

    /// Whether new work is taken.
    pub fn is_open(&self) -> bool {
        !self.inbox.is_closed() && !self.snapshot().closing
    }

    /// The process ids of everything that lives.
    pub fn pids(&self) -> Vec<u32> {
        let living = |e: &&motorpool_vocab::EntryView| e.phase != PhaseView::Idle;
        self.snapshot().entries.iter().filter(living).filter_map(|e| e.pid).collect()
    }

    /// Where the output of an engine is kept.
    pub fn log_path(&self, key: &EngineKey) -> PathBuf {
        log_path(&self.shared.logs, key)
    }

    fn number(&self) -> RequestId {
        RequestId(self.shared.next_request.fetch_add(1, Ordering::Relaxed))
    }

    fn send(&self, input: Input) {
        // A loop that is gone has nothing left to be told.
        let _ = self.inbox.send(Post::Input(input));
    }
}

/// One file a key; what is no plain character in a key is written as `_`.
pub(crate) fn log_path(logs: &std::path::Path, key: &EngineKey) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
    logs.join(format!("{}.log", key.to_string().chars().map(plain).collect::<String>()))
}

impl Lease {
    pub(crate) fn new(id: RequestId, grant: Grant, inbox: mpsc::UnboundedSender<Post>) -> Self {
        Self { id, grant, inbox }
    }

    /// The engine.
    pub fn key(&self) -> &EngineKey {
        &self.grant.key
    }

    /// Its child.
    pub fn spawn(&self) -> Spawn {
        self.grant.spawn
    }

    /// Where it answers.
    pub fn endpoint(&self) -> &Endpoint {
        &self.grant.endpoint
    }

    /// The door it holds; for whoever shows how full it is.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.grant.gate
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.grant.gate.leave();
        let _ = self.inbox.send(Post::Input(Input::Left { id: self.id, spawn: self.grant.spawn }));
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed == Armed::Yes {
            self.handle.send(Input::Cancel { id: self.id });
        }
    }
}
