//! [`PoolHandle`]: how everybody but the loop speaks with the pool. [`Lease`]: what a request holds.
//!
//! ```text
//! acquire ── warm: Gate::try_enter ─────────► Lease     one compare-exchange; the loop hears of it later (`visits.rs`)
//!        └── cold: Post::Acquire ─► loop ─► oneshot ─► Lease | Refusal
//! ```
//!
//! Whoever stops waiting is taken out by a guard's drop. A lease that was granted to somebody who left is dropped
//! with the answer that nobody took, and so given back like any other. `handle/views.rs` has what can be seen without asking.
mod views;

use crate::{
    denials::{Denials, Denied},
    feed::KEPT,
    tally::Tally,
    visits::{Haste, Visits},
};
use arc_swap::ArcSwap;
use motorpool_catalog::Model;
use motorpool_pool::{
    Answer, Ask, Denial, Direction, Force, Grant, Held, Input, Outlook, Reconciled, Refusal, Reload, Reloaded,
    RequestId, Want,
};
use motorpool_vocab::{
    Endpoint, EngineKey, Event, EventKind, ExitRecord, Gate, Holder, Lane, ModelId, Now, Snapshot, Spawn, TryEnter,
    Vital,
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

/// Exits that are remembered by number.
const EXITS: usize = 256;
/// A loop that did not turn for so long is stuck.
const TURNS_WITHIN: Duration = Duration::from_secs(5);

/// One thing for the loop to take.
#[derive(Debug)]
pub(crate) enum Post {
    /// Something happened.
    Input(Input),
    /// Somebody wants a lease.
    Lease { id: RequestId, ask: Ask, answer: oneshot::Sender<Result<Lease, Refusal>>, notices: Option<Notices> },
    /// Somebody wants a model resident.
    Load { id: RequestId, ask: Ask, answer: oneshot::Sender<Result<EngineKey, Refusal>> },
    /// Somebody wants to know what would become of these launches.
    Consider { id: RequestId, launches: Vec<(EngineKey, Arc<Model>)>, answer: oneshot::Sender<Answer> },
    /// Nothing, sent then: how long it takes is how far behind the loop is.
    Echo { sent: tokio::time::Instant },
    /// An operator asks.
    Operate { id: RequestId, input: Input, answer: oneshot::Sender<Answer> },
}

/// Where a waiting caller hears who holds what it waits for.
pub type Notices = mpsc::UnboundedSender<Vec<Held>>;
pub(crate) type Inbox = mpsc::UnboundedSender<Post>;
/// Engines that can be entered without asking, by model: its replicas in order.
pub(crate) type Warm = HashMap<ModelId, Vec<Arc<Grant>>>;

/// What the loop shows to all handles.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) warm: ArcSwap<Warm>,
    pub(crate) visits: Arc<Visits>,
    pub(crate) events: broadcast::Sender<Event>,
    /// The last ones.
    kept: Mutex<VecDeque<Event>>,
    next_request: AtomicU64,
    turned_at: AtomicU64,
    settled: AtomicBool,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    exits: Mutex<VecDeque<ExitRecord>>,
    denials: Mutex<Denials>,
    tally: Mutex<Tally>,
    logs: PathBuf,
}

impl Shared {
    pub(crate) fn new(logs: PathBuf) -> (Arc<Self>, watch::Sender<Arc<Snapshot>>) {
        let (sender, snapshots) = watch::channel(Arc::new(Snapshot::default()));
        let shared = Self {
            warm: ArcSwap::default(),
            visits: Arc::default(),
            events: broadcast::Sender::new(KEPT),
            kept: Mutex::new(VecDeque::new()),
            next_request: AtomicU64::new(1),
            turned_at: AtomicU64::new(motorpool_devices::now().as_nanos()),
            settled: AtomicBool::new(false),
            snapshots,
            exits: Mutex::new(VecDeque::new()),
            denials: Mutex::default(),
            tally: Mutex::default(),
            logs,
        };
        (Arc::new(shared), sender)
    }

    pub(crate) fn turned(&self, now: Now) {
        self.turned_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn settled(&self) {
        self.settled.store(true, Ordering::Release);
    }

    /// Counts an event, shows it to whoever listens, and keeps it for a while.
    pub(crate) fn publish(&self, event: Event) {
        self.tally.lock().on_event(&event.kind);
        let mut kept = self.kept.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(event.clone());
        // Nobody may listen.
        let _ = self.events.send(event);
    }

    pub(crate) fn kept_events(&self) -> VecDeque<Event> {
        self.kept.lock().clone()
    }

    pub(crate) fn remember(&self, exit: ExitRecord) {
        let mut exits = self.exits.lock();
        if exits.len() == EXITS {
            exits.pop_front();
        }
        exits.push_back(exit);
    }

    pub(crate) fn deny(&self, denial: Denial) {
        self.tally.lock().on_denial(&denial);
        self.denials.lock().keep(Denied { at: SystemTime::now(), denial });
    }

    /// A word to the loop took so long.
    pub(crate) fn lagged(&self, lag: Duration) {
        self.tally.lock().lagged(lag);
    }

    /// Where all logs are.
    pub(crate) fn logs(&self) -> &Path {
        &self.logs
    }

    /// The log of `key`.
    pub(crate) fn log_path(&self, key: &EngineKey) -> PathBuf {
        self.logs.join(file_name(&key.to_string()) + ".log")
    }
}

/// `text` as part of a file's name: every byte of it that is no plain letter is written as `%xx`, so nothing leaves its
/// folder.
pub(crate) fn file_name(text: &str) -> String {
    use std::fmt::Write as _;
    let mut name = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b':' => name.push(char::from(byte)),
            _ => write!(name, "%{byte:02X}").expect("a String takes everything"),
        }
    }
    name
}

/// The way to the pool. Cheap to clone; the loop ends when the last one is dropped.
#[derive(Clone, Debug)]
pub struct PoolHandle {
    inbox: Inbox,
    shared: Arc<Shared>,
}

pub(crate) fn open_handle(shared: Arc<Shared>) -> (PoolHandle, mpsc::UnboundedReceiver<Post>) {
    let (inbox, posts) = mpsc::unbounded_channel();
    (PoolHandle { inbox, shared }, posts)
}

impl PoolHandle {
    /// A lease on a ready engine of the model, however long that takes. Dropping the future cancels.
    pub async fn acquire(&self, ask: Ask) -> Result<Lease, Refusal> {
        self.acquire_told(ask, None).await
    }

    /// [`PoolHandle::acquire`] for a caller that wants to hear who holds what it waits for: at once when it begins to
    /// wait on a drain, then every 5 s.
    pub async fn acquire_told(&self, ask: Ask, notices: Option<Notices>) -> Result<Lease, Refusal> {
        let mut ask = ask;
        if let Some(lease) = self.enter_warm(&mut ask) {
            return Ok(lease);
        }
        let id = self.number();
        self.ask(id, |answer| Post::Lease { id, ask, answer, notices }).await.unwrap_or(Err(Refusal::ShuttingDown))
    }

    /// The warm path. `None`: nothing was taken of the question, for no engine can be entered by oneself.
    fn enter_warm(&self, ask: &mut Ask) -> Option<Lease> {
        if !enters_by_itself(ask) {
            return None;
        }
        let warm = self.shared.warm.load();
        let grant = least_busy(warm.get(&ask.model)?)?;
        if grant.gate.try_enter() != TryEnter::Entered {
            return None;
        }
        let lease = Lease::new(self.number(), Arc::clone(grant), self.door());
        let holder = Holder { since: motorpool_devices::now(), ..std::mem::take(&mut ask.holder) };
        self.shared.visits.tell(Input::Entered { id: lease.id, spawn: grant.spawn, holder }, Haste::Soon);
        Some(lease)
    }

    /// The engines of the model that serve just now. Nothing is leased by that: each may end at any moment.
    pub fn serving(&self, model: &ModelId) -> Vec<Arc<Grant>> {
        self.shared.warm.load().get(model).cloned().unwrap_or_default()
    }

    /// Makes the model resident, without a lease. Dropping the future cancels.
    pub async fn load(&self, model: ModelId) -> Result<EngineKey, Refusal> {
        self.admit(&model);
        self.make_resident(Ask::resident(model)).await
    }

    /// Makes one replica of the model resident, without a lease. Dropping the future cancels.
    pub async fn load_replica(&self, model: ModelId, replica: u32) -> Result<EngineKey, Refusal> {
        self.admit(&model);
        self.make_resident(Ask { replica: Some(replica), ..Ask::resident(model) }).await
    }

    /// Makes what is asked for resident, without a lease. Dropping the future cancels.
    pub async fn make_resident(&self, ask: Ask) -> Result<EngineKey, Refusal> {
        let id = self.number();
        self.ask(id, |answer| Post::Load { id, ask, answer }).await.unwrap_or(Err(Refusal::ShuttingDown))
    }

    /// Unloads an engine if it is idle.
    pub async fn unload_idle(&self, key: EngineKey) -> Answer {
        let id = self.number();
        self.operate(id, Input::UnloadIdle { id, key }).await
    }

    /// Unloads an engine after a drain, or by force at once.
    pub async fn evict(&self, key: EngineKey, force: Force) -> Answer {
        let id = self.number();
        self.operate(id, Input::Evict { id, key, force }).await
    }

    /// Has an engine take nothing new, and stop after its last lease, however late. Dropping the future gives it up.
    pub async fn drain(&self, key: EngineKey) -> Answer {
        let id = self.number();
        self.operate(id, Input::Drain { id, key }).await
    }

    /// Engines of the model that were drained take requests again.
    fn admit(&self, model: &ModelId) {
        // A loop that is gone loads nothing.
        let _ = self.inbox.send(Post::Input(Input::Admit { model: model.clone() }));
    }

    /// Unloads everything idle; the keys of what was busy.
    pub async fn release_idle(&self) -> Vec<EngineKey> {
        let id = self.number();
        match self.operate(id, Input::ReleaseIdle { id }).await {
            Answer::Released(busy) => busy,
            _ => Vec::new(),
        }
    }

    /// So many engines of each model are wanted from now on; what was begun for it. `None`: the loop is gone.
    pub async fn reconcile(&self, targets: BTreeMap<ModelId, u32>) -> Option<Reconciled> {
        let id = self.number();
        match self.operate(id, Input::Reconcile { id, targets }).await {
            Answer::Reconciled(done) => Some(done),
            _ => None,
        }
    }

    /// Has the failures of a model, or all, forgotten: the engines that had some that counted.
    pub async fn reset(&self, model: Option<ModelId>) -> Vec<EngineKey> {
        let id = self.number();
        match self.operate(id, Input::Reset { id, model }).await {
            Answer::Reset(keys) => keys,
            _ => Vec::new(),
        }
    }

    /// Has the pool go on with another catalog and other terms; what runs goes on as far as it did not change. `None`: the
    /// loop is gone.
    pub async fn reload(&self, reload: Reload) -> Option<Reloaded> {
        let id = self.number();
        match self.operate(id, Input::Reload { id, reload }).await {
            Answer::Reloaded(done) => Some(done),
            _ => None,
        }
    }

    /// Takes a request out of the queue that it waits in.
    pub async fn withdraw(&self, ticket: RequestId) -> Answer {
        let id = self.number();
        self.operate(id, Input::Withdraw { id, ticket }).await
    }

    /// Moves a request by one place in its lane.
    pub async fn move_ticket(&self, ticket: RequestId, direction: Direction) -> Answer {
        let id = self.number();
        self.operate(id, Input::Move { id, ticket, direction }).await
    }

    /// Something that happened outside of the pool takes its place among the events.
    pub fn tell(&self, kind: EventKind) {
        // A loop that is gone tells nobody any more.
        let _ = self.inbox.send(Post::Input(Input::Tell(kind)));
    }

    /// What would become of these launches, in this order. Nothing changes.
    pub async fn consider(&self, launches: Vec<(EngineKey, Arc<Model>)>) -> Vec<Outlook> {
        let id = self.number();
        match self.ask(id, |answer| Post::Consider { id, launches, answer }).await {
            Some(Answer::Outlook(outlook)) => outlook,
            _ => Vec::new(),
        }
    }

    /// Ends everything now, running requests too; the keys of what could not be killed.
    pub async fn shutdown(&self) -> Vec<EngineKey> {
        let id = self.number();
        self.end_with(id, Input::Shutdown { id }).await
    }

    /// The same without waiting for anything: contexts of sessions are not saved, nobody is asked to end.
    pub async fn kill_all(&self) -> Vec<EngineKey> {
        let id = self.number();
        self.end_with(id, Input::KillAll { id }).await
    }

    /// Takes nothing new, lets everything finish, ends; the keys of what could not be killed.
    pub async fn retire(&self) -> Vec<EngineKey> {
        let id = self.number();
        self.end_with(id, Input::Retire { id }).await
    }

    async fn end_with(&self, id: RequestId, input: Input) -> Vec<EngineKey> {
        match self.operate(id, input).await {
            Answer::Ended(stuck) => stuck,
            _ => Vec::new(),
        }
    }

    async fn operate(&self, id: RequestId, input: Input) -> Answer {
        let answer = self.ask(id, |answer| Post::Operate { id, input, answer }).await;
        // A loop that is gone took everything with it.
        answer.unwrap_or(Answer::Ended(Vec::new()))
    }

    /// Sends a question and waits for its answer. `None` when the loop is gone.
    async fn ask<T>(&self, id: RequestId, post: impl FnOnce(oneshot::Sender<T>) -> Post) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.inbox.send(post(answer)).ok()?;
        let mut asking = Asking { id, inbox: Some(&self.inbox) };
        let answer = answered.await.ok();
        asking.inbox = None;
        answer
    }

    pub(crate) fn door(&self) -> Door {
        Door { visits: Arc::clone(&self.shared.visits), _inbox: self.inbox.clone() }
    }

    fn number(&self) -> RequestId {
        RequestId(self.shared.next_request.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn weak_inbox(&self) -> mpsc::WeakUnboundedSender<Post> {
        self.inbox.downgrade()
    }
}

/// Whether a request needs nothing that only the pool knows: who came before in its session, in which slot, how many of
/// its lane are in; and tells nothing that only the pool keeps. So the gate is enough.
fn enters_by_itself(ask: &Ask) -> bool {
    let plain = ask.holder.lane == Lane::Interactive && ask.holder.session.is_none();
    plain && ask.want == Want::Lease && ask.replica.is_none() && ask.keep_alive.is_none()
}

/// The replica with the fewest leases among those whose gates are open.
fn least_busy(replicas: &[Arc<Grant>]) -> Option<&Arc<Grant>> {
    match replicas {
        [only] => Some(only),
        several => several.iter().filter(|grant| !grant.gate.is_closed()).min_by_key(|grant| grant.gate.granted()),
    }
}

/// Somebody who waits for an answer. Dropped while waiting, it takes the question back.
struct Asking<'a> {
    id: RequestId,
    inbox: Option<&'a Inbox>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(inbox) = self.inbox {
            let _ = inbox.send(Post::Input(Input::Cancel { id: self.id }));
        }
    }
}

/// The right to one slot of a ready engine, until it is dropped.
#[derive(Debug)]
pub struct Lease {
    id: RequestId,
    grant: Arc<Grant>,
    door: Door,
}

/// Where a lease tells of its end.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) visits: Arc<Visits>,
    /// The loop does not end before the last lease.
    pub(crate) _inbox: Inbox,
}

impl Lease {
    pub(crate) fn new(id: RequestId, grant: Arc<Grant>, door: Door) -> Self {
        Self { id, grant, door }
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

    /// Which slot the engine is to use; `None`: whichever it likes.
    pub fn slot(&self) -> Option<u32> {
        self.grant.slot
    }

    /// Where it is counted what comes of the requests behind that door.
    pub fn vital(&self) -> &Vital {
        self.grant.gate.vital()
    }

    /// The door it holds; for whoever shows how full it is.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.grant.gate
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // In this order: who is told of the free slot must find it free, and who began to wait before that has marked it.
        let gate = &self.grant.gate;
        gate.leave();
        let haste = if gate.is_awaited() { Haste::AtOnce } else { Haste::Soon };
        self.door.visits.tell(Input::Left { id: self.id, spawn: self.grant.spawn }, haste);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_leaves_the_folder_of_the_logs() {
        let (shared, _snapshots) = Shared::new("/logs".into());
        let path = |key: &str| shared.log_path(&key.parse().expect("a key"));
        assert_eq!(path("llama-server:gemma3-270m:0"), PathBuf::from("/logs/llama-server:gemma3-270m:0.log"));
        assert_eq!(path("..:../../etc/é:1"), PathBuf::from("/logs/..:..%2F..%2Fetc%2F%C3%A9:1.log"));
    }

    #[test]
    fn only_the_latest_exits_are_remembered() {
        let (shared, _snapshots) = Shared::new("/logs".into());
        let exit = |n| ExitRecord {
            spawn: Spawn(n),
            pid: None,
            started_at: Now::ZERO,
            ended_at: Now::ZERO,
            code: None,
            signal: None,
            reason: motorpool_vocab::StopReason::Idle,
            class: None,
            ever_ready: false,
            tail: vec![],
            plan: None,
        };
        (0..1000).for_each(|n| shared.remember(exit(n)));
        let exits = shared.exits.lock();
        assert_eq!((exits.len(), exits.back().map(|exit| exit.spawn)), (EXITS, Some(Spawn(999))));
    }
}
