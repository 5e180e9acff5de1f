//! [`Shell`]: the one loop that owns the pool.
//!
//! It waits on one line, performs on one line, and decides nowhere: what to do is what the pool says. Work is never
//! awaited here; its completion is a post. A due deadline goes before a full inbox.
mod log;
mod rounds;

use crate::{
    Notebook,
    check::sentence,
    driver::{Command, Driver, Workshop},
    handle::{Door, Lease, Notices, Post, Shared, Warm},
    incidents::{ExitLine, Incidents},
    looks::NoLook,
    place::remove_left,
    returned::until_returned,
    settings::OnDenial,
    settle::Settled,
    turns::Turns,
    visits::LOOKS_EVERY,
};
use motorpool_catalog::{Manifest, Model};
use motorpool_devices::now;
use motorpool_pool::{
    Action, Answer, Ask, Build, BuildId, Facts, Grant, Input, Launch, Pool, Prospect, Refusal, RequestId, StartFault,
};
use motorpool_vocab::{EngineKey, Event, EventKind, ExitRecord, FailureClass, ModelId, Now, Snapshot, Spawn};
use std::{
    collections::{BTreeSet, HashMap},
    pin::pin,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::{JoinError, JoinSet, spawn_blocking},
    time::{Instant, sleep},
};

/// The loop turns at least so often, so that one that does not can be told.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// With posts without end, the outside view is renewed so often at least.
const SHOWN_WITHIN: Duration = Duration::from_millis(100);

/// Who waits for an answer.
enum Asker {
    Lease(Wish, oneshot::Sender<Result<Lease, Refusal>>, Option<Notices>),
    Load(Wish, oneshot::Sender<Result<EngineKey, Refusal>>),
    Operator(oneshot::Sender<Answer>),
}

/// What somebody wants, for the lines of the log about it.
struct Wish {
    model: ModelId,
    /// The id of the request; empty when an operator wants it.
    request: String,
}

impl Wish {
    fn of(ask: &Ask) -> Self {
        Self { model: ask.model.clone(), request: ask.holder.request.clone() }
    }
}

impl Asker {
    fn wish(&self) -> Option<&Wish> {
        match self {
            Self::Lease(wish, ..) | Self::Load(wish, _) => Some(wish),
            Self::Operator(_) => None,
        }
    }
}

pub(crate) struct Shell {
    pool: Pool,
    posts: mpsc::UnboundedReceiver<Post>,
    /// Weak, so that the loop does not keep itself alive.
    inbox: mpsc::WeakUnboundedSender<Post>,
    workshop: Arc<Workshop>,
    outside: Outside,
    askers: HashMap<RequestId, Asker>,
    drivers: HashMap<Spawn, mpsc::UnboundedSender<Command>>,
    shown_at: Instant,
    /// The deadline that was last told as due.
    ticked: Option<Now>,
    turns: Turns,
}

/// Whether anything may be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opens {
    Yes,
    No,
}

/// Who is told what happens.
pub(crate) struct Outside {
    pub(crate) shared: Arc<Shared>,
    pub(crate) snapshots: watch::Sender<Arc<Snapshot>>,
    pub(crate) on_denial: OnDenial,
    /// Where what loads teach is kept.
    pub(crate) notebook: Notebook,
    /// Where unexpected exits are written down.
    pub(crate) incidents: Incidents,
}

/// Both ends of the loop's inbox.
type Mailbox = (mpsc::WeakUnboundedSender<Post>, mpsc::UnboundedReceiver<Post>);

impl Shell {
    pub(crate) fn new(pool: Pool, (inbox, posts): Mailbox, workshop: Arc<Workshop>, outside: Outside) -> Self {
        let (askers, drivers) = (HashMap::new(), HashMap::new());
        let (shown_at, ticked, turns) = (Instant::now(), None, Turns::since(now()));
        let mut shell = Self { pool, posts, inbox, workshop, outside, askers, drivers, shown_at, ticked, turns };
        // Whoever looks before the first post finds the budget.
        shell.show(now());
        shell
    }

    pub(crate) async fn run(mut self) {
        if self.settle().await == Opens::No {
            return;
        }
        // Ends with this loop.
        let mut meter = JoinSet::new();
        let Workshop { meter: of_trees, lookout, .. } = &*self.workshop;
        meter.spawn(rounds::echo(self.inbox.clone()));
        meter.spawn(rounds::remove_old_logs(Arc::clone(&self.outside.shared), self.outside.snapshots.subscribe()));
        meter.spawn(Arc::clone(of_trees).run(self.inbox.clone()));
        meter.spawn(Arc::clone(lookout).run(Arc::clone(of_trees), self.inbox.clone()));
        while let Some(post) = self.next().await {
            let at = now();
            self.outside.shared.turned(at);
            self.take(at, post);
        }
    }

    /// What is due, else what comes, else a tick once a second. `None` when the last handle is gone.
    async fn next(&mut self) -> Option<Post> {
        let deadline = self.pool.deadline();
        let due_within = deadline.map_or(HEARTBEAT, |deadline| deadline.since(now()));
        // The same deadline twice would be one that a tick does not move: it must not shut out everything else.
        if due_within.is_zero() && self.ticked != deadline {
            self.ticked = deadline;
            return Some(Post::Input(Input::Tick));
        }
        let visits = &self.outside.shared.visits;
        let longest = if visits.are_watched() { LOOKS_EVERY } else { HEARTBEAT };
        let wait = if due_within.is_zero() { longest } else { due_within.min(longest) };
        let tick = Some(Post::Input(Input::Tick));
        tokio::select! {
            biased;
            post = self.posts.recv() => post,
            () = visits.ring() => tick,
            () = sleep(wait) => tick,
        }
    }

    /// Before each post, so that whoever asks is answered by a pool that knows who came and went before.
    fn hear(&mut self, at: Now) {
        for word in self.outside.shared.visits.look() {
            let actions = self.pool.on_event(at, word);
            if actions.iter().any(is_answer) {
                self.show(at);
            }
            self.perform_all(actions);
        }
    }

    /// Before the first post: nothing may be admitted beside what an earlier supervisor left, nor into memory that has
    /// not come back from it.
    async fn settle(&mut self) -> Opens {
        let (workshop, within) = (Arc::clone(&self.workshop), self.pool.reclaim_within());
        let mut settling = pin!(async move {
            let launching = Arc::clone(&workshop);
            let settled = spawn_blocking(move || launching.launcher.settle_all()).await?;
            let living = settled.left.iter().map(|left| left.spawn).collect();
            remove_left(&workshop.run, &living);
            until_returned(&workshop.lookout, &settled.gone, within).await;
            Ok::<Settled, JoinError>(settled)
        });
        let settled = loop {
            tokio::select! {
                settled = &mut settling => break settled,
                () = sleep(HEARTBEAT) => self.outside.shared.turned(now()),
            }
        };
        let Settled { left, unwritten, .. } = match settled {
            Ok(settled) => settled,
            Err(error) => {
                tracing::error!(%error, "settling what an earlier run left broke off: engines of it may live, so none is started");
                return Opens::No;
            }
        };
        if !left.is_empty() {
            tracing::error!(
                ?left,
                "engines of an earlier run are not known to be gone and may keep their memory; a reboot ends them"
            );
        }
        if let Some(error) = unwritten {
            tracing::error!(%error, "that engines of an earlier run are gone could not be written down");
        }
        self.outside.shared.settled();
        Opens::Yes
    }

    fn take(&mut self, at: Now, post: Post) {
        if let Some(woke) = self.turns.turn(at) {
            self.feed(at, woke);
        }
        self.hear(at);
        let input = match post {
            Post::Input(input) => input,
            Post::Echo { sent } => {
                self.outside.shared.lagged(sent.elapsed());
                // It came in the place of one.
                Input::Tick
            }
            Post::Lease { id, ask, answer, notices } => {
                self.askers.insert(id, Asker::Lease(Wish::of(&ask), answer, notices));
                Input::Acquire { id, ask }
            }
            Post::Load { id, ask, answer } => {
                self.askers.insert(id, Asker::Load(Wish::of(&ask), answer));
                Input::Acquire { id, ask }
            }
            Post::Consider { id, launches, answer } => {
                self.askers.insert(id, Asker::Operator(answer));
                return self.look_at(id, launches);
            }
            Post::Operate { id, input, answer } => {
                self.askers.insert(id, Asker::Operator(answer));
                input
            }
        };
        match &input {
            Input::Cancel { id } => drop(self.askers.remove(id)),
            Input::Gone { spawn, .. } => drop(self.drivers.remove(spawn)),
            _ => {}
        }
        self.feed(at, input);
    }

    fn feed(&mut self, at: Now, input: Input) {
        let actions = self.pool.on_event(at, input);
        // Before anybody is answered: they find a view no older than the answer.
        if self.posts.is_empty() || self.shown_at.elapsed() >= SHOWN_WITHIN || actions.iter().any(is_answer) {
            self.show(at);
        }
        self.perform_all(actions);
    }

    fn perform_all(&mut self, actions: Vec<Action>) {
        for action in actions {
            self.perform(action);
        }
    }

    fn show(&mut self, at: Now) {
        self.shown_at = Instant::now();
        self.outside.snapshots.send_replace(Arc::new(self.pool.snapshot(at)));
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Check { build, model, manifest, avoid, .. } => self.check(build, (model, manifest), avoid),
            Action::Probe { spawn, probe } => self.command(spawn, Command::Probe(probe)),
            Action::WriteSlot { spawn, slot, session, writing } => {
                self.command(spawn, Command::Write { slot, session, writing });
            }
            Action::Start { spawn, launch } => self.start(spawn, launch),
            Action::Look => self.workshop.lookout.look(),
            Action::StopPolitely { spawn } => self.command(spawn, Command::StopPolitely),
            Action::Kill { spawn } => self.command(spawn, Command::Kill),
            Action::Open { spawn, key, gate, endpoint } => {
                self.open(Grant { key, spawn, endpoint, gate, slot: None, returning: None });
            }
            Action::Close { spawn } => self.change_warm(|warm| {
                warm.retain(|_, replicas| {
                    replicas.retain(|grant| grant.spawn != spawn);
                    !replicas.is_empty()
                });
            }),
            Action::Grant { id, grant } => self.grant(id, grant),
            Action::Loaded { id, key } => {
                if let Some(Asker::Load(_, answer)) = self.askers.remove(&id) {
                    // One who left meanwhile wants no answer; the same below.
                    let _ = answer.send(Ok(key));
                }
            }
            Action::Refuse { id, refusal } => self.refuse(id, refusal),
            Action::Notice { id, holders } => {
                let asker = self.askers.get(&id);
                let request = asker.and_then(Asker::wish).map(|wish| wish.request.as_str());
                tracing::info!(
                    request,
                    ticket = id.0,
                    n_holders = holders.len(),
                    "a request waits for others to finish"
                );
                if let Some(Asker::Lease(_, _, Some(notices))) = asker {
                    let _ = notices.send(holders);
                }
            }
            Action::Reply { id, answer } => {
                if let Some(Asker::Operator(asker)) = self.askers.remove(&id) {
                    self.outside.reply(asker, answer);
                }
            }
            Action::Learn { about, experience } => self.outside.notebook.learn(about, experience),
            Action::Publish(event) => self.outside.publish(event),
            Action::Deny(denial) => {
                (self.outside.on_denial)(&denial);
                tracing::info!(key = %denial.key, request = self.cause_of(&denial.key), "a build was refused");
                self.outside.shared.deny(denial);
            }
        }
    }

    fn check(&self, build: BuildId, of: (Arc<Model>, Arc<Manifest>), avoid: Arc<BTreeSet<Build>>) {
        let (workshop, inbox) = (Arc::clone(&self.workshop), self.inbox.clone());
        tokio::spawn(async move {
            let looks = workshop.looks.clone();
            let checked = looks.at(move || workshop.check((&of.0, &of.1), &avoid)).await;
            let broken = |error: NoLook| StartFault {
                class: FailureClass::Unknown,
                message: format!("looking at the model failed: {}", sentence(&error)),
                tail: vec![],
            };
            post(&inbox, Input::Checked { build, result: checked.unwrap_or_else(|error| Err(broken(error))) });
        });
    }

    /// What would become of launches is asked once all of them were looked at.
    fn look_at(&self, id: RequestId, launches: Vec<(EngineKey, Arc<Model>)>) {
        let (workshop, inbox) = (Arc::clone(&self.workshop), self.inbox.clone());
        let looks = workshop.looks.clone();
        let with_manifest = |(key, model): (EngineKey, Arc<Model>)| {
            let manifest = self.pool.manifest(&model.engine).cloned();
            (key, model, manifest)
        };
        let launches: Vec<_> = launches.into_iter().map(with_manifest).collect();
        let looked = move || {
            // Each model once, however many copies of it.
            let mut seen: HashMap<*const Model, Result<Facts, StartFault>> = HashMap::new();
            let look = |model: &Model, manifest: Option<Arc<Manifest>>| match manifest {
                Some(manifest) => workshop.check((model, &manifest), &BTreeSet::new()),
                None => Err(no_engine(model)),
            };
            let prospect = |(key, model, manifest): (EngineKey, Arc<Model>, _)| {
                let facts = seen.entry(Arc::as_ptr(&model)).or_insert_with(|| look(&model, manifest)).clone();
                Prospect { key, model, facts }
            };
            launches.into_iter().map(prospect).collect()
        };
        tokio::spawn(async move {
            // A look that broke off is answered too: with nothing.
            let prospects = looks.at(looked).await.unwrap_or_default();
            post(&inbox, Input::Consider { id, prospects });
        });
    }

    fn start(&mut self, spawn: Spawn, launch: Arc<Launch>) {
        let key = &launch.key;
        tracing::info!(%key, %spawn, request = self.cause_of(key), "starting");
        let (commands, driver) = Driver::new(spawn, launch, &self.workshop, self.inbox.clone());
        self.drivers.insert(spawn, commands);
        let log = self.outside.shared.log_path(driver.key());
        tokio::spawn(driver.run(log));
    }

    /// A driver that is gone has said so; its child needs no command.
    fn command(&self, spawn: Spawn, command: Command) {
        if let Some(driver) = self.drivers.get(&spawn) {
            let _ = driver.send(command);
        }
    }

    fn open(&self, grant: Grant) {
        self.change_warm(|warm| {
            let replicas = warm.entry(grant.key.model().clone()).or_default();
            replicas.push(Arc::new(grant));
            replicas.sort_by_key(|grant| grant.key.replica());
        });
    }

    /// Only the loop writes the table, so nothing is lost between reading and storing it.
    fn change_warm(&self, change: impl FnOnce(&mut Warm)) {
        let mut warm = Warm::clone(&self.outside.shared.warm.load());
        change(&mut warm);
        self.outside.shared.warm.store(Arc::new(warm));
    }

    /// The lease exists before it is sent: one that nobody takes is given back by its drop. What its slot is to hold is
    /// read back under it; a driver that is gone, or cannot, lets go of it at once.
    fn grant(&mut self, id: RequestId, grant: Grant) {
        let Some(inbox) = self.inbox.upgrade() else { return };
        let back = grant.slot.zip(grant.returning.clone());
        let door = Door { visits: Arc::clone(&self.outside.shared.visits), _inbox: inbox };
        let lease = Lease::new(id, Arc::new(grant), door);
        let Some(Asker::Lease(wish, answer, _)) = self.askers.remove(&id) else { return };
        tracing::debug!(request = wish.request, key = %lease.key(), spawn = %lease.spawn(), "granted");
        let Some((slot, session)) = back else { return drop(answer.send(Ok(lease))) };
        let (done, read) = oneshot::channel();
        self.command(lease.spawn(), Command::ReadBack { slot, session, done });
        tokio::spawn(async move {
            let _ = read.await;
            let _ = answer.send(Ok(lease));
        });
    }

    /// The request that waits longest for an engine of this model, and so has it started.
    fn cause_of(&self, key: &EngineKey) -> Option<&str> {
        let wishes = self.askers.iter().filter_map(|(id, asker)| Some((id, asker.wish()?)));
        let those = wishes.filter(|(_, wish)| wish.model == *key.model() && !wish.request.is_empty());
        those.min_by_key(|(id, _)| **id).map(|(_, wish)| wish.request.as_str())
    }

    fn refuse(&mut self, id: RequestId, refusal: Refusal) {
        if let Some(wish) = self.askers.get(&id).and_then(Asker::wish) {
            tracing::debug!(request = wish.request, model = %wish.model, %refusal, "refused");
        }
        if let Refusal::EngineBusy { key, within } = &refusal {
            // Harnesses count this line, as they do those of denials.
            tracing::warn!(
                "engine busy {key}: it did not drain within {} s, and what it serves goes on",
                within.as_secs()
            );
        }
        match self.askers.remove(&id) {
            Some(Asker::Lease(_, answer, _)) => drop(answer.send(Err(refusal))),
            Some(Asker::Load(_, answer)) => drop(answer.send(Err(refusal))),
            Some(Asker::Operator(_)) | None => {}
        }
    }
}

impl Outside {
    /// Whoever hears that everything has ended may end this process: what was learned is written first.
    fn reply(&self, asker: oneshot::Sender<Answer>, answer: Answer) {
        if !matches!(answer, Answer::Ended(_)) {
            // One who left meanwhile wants no answer.
            let _ = asker.send(answer);
            return;
        }
        let notebook = self.notebook.clone();
        spawn_blocking(move || {
            notebook.flush();
            let _ = asker.send(answer);
        });
    }

    fn publish(&self, event: Event) {
        log::event(&event.kind);
        if let EventKind::Exited { key, record } = &event.kind {
            self.exited(key, record);
        }
        self.shared.publish(event);
    }

    fn exited(&self, key: &EngineKey, record: &ExitRecord) {
        let exit = ExitLine::of(key, record);
        let line = serde_json::to_string(&exit).expect("plain values are JSON");
        tracing::info!("[{}] exit {line}", key.provider());
        if record.reason.is_failure() {
            self.incidents.write(&exit, record);
        }
        self.shared.remember(record.clone());
    }
}

/// What was asked about is of a catalog that is not in force any more.
fn no_engine(model: &Model) -> StartFault {
    let message = format!("no engine is called `{}`", model.engine);
    StartFault { class: FailureClass::EngineMissing, message, tail: vec![] }
}

fn is_answer(action: &Action) -> bool {
    matches!(action, Action::Grant { .. } | Action::Loaded { .. } | Action::Refuse { .. } | Action::Reply { .. })
}

/// Tells the loop, if it still runs.
pub(crate) fn post(inbox: &mpsc::WeakUnboundedSender<Post>, input: Input) {
    if let Some(inbox) = inbox.upgrade() {
        let _ = inbox.send(Post::Input(input));
    }
}

#[cfg(test)]
mod tests;
