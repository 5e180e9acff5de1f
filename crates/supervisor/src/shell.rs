//! The one loop: waits on one line, performs on one line, decides nowhere.
//!
//! It owns the pool value. Work is never awaited here: a check, a start, a stop run in tasks of their own, and their
//! ends come back through the inbox. A due deadline goes before a full inbox.
use crate::{
    Launcher, OpenError,
    check::{Checker, Discover, Locate},
    driver::{Command, Driver, Start},
    handle::{Asker, Lease, PoolHandle, Post, Shared},
    launch::KeeperProgram,
};
use motorpool_catalog::Catalog;
use motorpool_devices::now;
use motorpool_pool::{Action, Denial, Grant, Input, Pool, PoolConfig, Refusal, RequestId};
use motorpool_vocab::{EngineKey, EventKind, ExitRecord, FailureClass, Spawn, StopReason};
use std::{
    collections::HashMap,
    ffi::OsString,
    fmt,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{sync::mpsc, time::timeout};

/// The loop turns at least so often, so that a stuck one is seen.
const TURN_WITHIN: Duration = Duration::from_secs(1);

/// What the shell is told once.
pub struct Settings {
    /// Our own binary, as a keeper.
    pub keeper: KeeperProgram,
    /// The state directory; it must be there.
    pub state: PathBuf,
    /// Where sockets are; it must be there. At most 107 bytes with a socket's name.
    pub run: PathBuf,
    /// The environment that engines' manifests choose from.
    pub environment: Vec<(OsString, OsString)>,
    /// Where an engine's program is.
    pub discover: Discover,
    /// Where a model's file is.
    pub locate: Locate,
    /// Writes the line of a denial; called before its refusal is sent.
    pub on_denial: Box<dyn Fn(&Denial) + Send>,
}

/// The pool and what its actions need.
struct Shell {
    pool: Pool,
    inbox: mpsc::UnboundedReceiver<Post>,
    /// Weak: the loop ends with the last handle and lease.
    sender: mpsc::WeakUnboundedSender<Post>,
    shared: Arc<Shared>,
    askers: HashMap<RequestId, Asker>,
    engines: HashMap<Spawn, mpsc::UnboundedSender<Command>>,
    driver: Arc<Driver>,
    checker: Arc<Checker>,
    on_denial: Box<dyn Fn(&Denial) + Send>,
}

/// Takes the state directory, ends what an earlier supervisor left, and starts the loop. Blocks until the past is
/// settled; must be called within a runtime.
pub fn start(settings: Settings, catalog: Arc<Catalog>, config: PoolConfig) -> Result<PoolHandle, OpenError> {
    let (launcher, left) = Launcher::open(settings.keeper, &settings.state)?;
    for leftover in &left {
        tracing::error!(key = %leftover.key, pids = ?leftover.pids, "an engine of an earlier run cannot be killed and keeps its memory; a reboot ends it");
    }
    let logs = settings.state.join("logs");
    let (sender, inbox) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared::new(logs.clone()));
    let handle = PoolHandle::new(sender.clone(), Arc::clone(&shared));
    let next_spawn = launcher.next_spawn();
    let driver = Driver {
        launcher,
        catalog: Arc::clone(&catalog),
        environment: settings.environment.into_iter().collect(),
        run: settings.run,
        logs,
        inbox: sender.downgrade(),
    };
    let checker = Checker::new(Arc::clone(&catalog), settings.discover, settings.locate);
    let shell = Shell {
        pool: Pool::new(config, catalog, next_spawn),
        inbox,
        sender: sender.downgrade(),
        shared,
        askers: HashMap::new(),
        engines: HashMap::new(),
        driver: Arc::new(driver),
        checker: Arc::new(checker),
        on_denial: settings.on_denial,
    };
    tokio::spawn(shell.run());
    Ok(handle)
}

impl Shell {
    async fn run(mut self) {
        self.show();
        loop {
            let Some(input) = self.next().await else { return };
            for action in self.pool.on_event(now(), input) {
                self.perform(action);
            }
            self.shared.turned_at.store(now().as_nanos(), Ordering::Relaxed);
            if self.inbox.is_empty() {
                self.show();
            }
        }
    }

    /// The next input: what is due, else what comes, else a tick when something becomes due or a second passed.
    async fn next(&mut self) -> Option<Input> {
        let due_in = self.pool.deadline().map_or(TURN_WITHIN, |at| at.since(now()));
        if due_in.is_zero() {
            return Some(Input::Tick);
        }
        match timeout(due_in.min(TURN_WITHIN), self.inbox.recv()).await {
            Ok(post) => self.open(post?),
            Err(_) => Some(Input::Tick),
        }
    }

    fn open(&mut self, post: Post) -> Option<Input> {
        match post {
            Post::Input(Input::Gone { spawn, exit }) => {
                self.engines.remove(&spawn);
                Some(Input::Gone { spawn, exit })
            }
            Post::Input(Input::Cancel { id }) => {
                self.askers.remove(&id);
                Some(Input::Cancel { id })
            }
            Post::Input(input) => Some(input),
            Post::Asked(input, id, asker) => {
                self.askers.insert(id, asker);
                Some(input)
            }
        }
    }

    fn show(&self) {
        self.shared.snapshot.send_replace(Arc::new(self.pool.snapshot(now())));
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Check { build, key, model } => {
                Arc::clone(&self.checker).spawn(build, key, model, self.sender.clone())
            }
            Action::Start { spawn, launch } => {
                let (orders, commands) = mpsc::unbounded_channel();
                self.engines.insert(spawn, orders);
                tokio::spawn(Arc::clone(&self.driver).drive(Start { spawn, launch, commands }));
            }
            Action::StopPolitely { spawn } => self.order(spawn, Command::StopPolitely),
            Action::Kill { spawn } => self.order(spawn, Command::Kill),
            Action::Open { spawn, key, gate, endpoint } => self.open_gate(Grant { key, spawn, endpoint, gate }),
            Action::Close { spawn } => self.close_gate(spawn),
            Action::Grant { id, grant } => self.grant(id, grant),
            Action::Loaded { id, key } => self.tell_loaded(id, key),
            Action::Refuse { id, refusal } => self.refuse(id, refusal),
            Action::Notice { id, holders } => tracing::info!(request = id.0, ?holders, "a request waits for a drain"),
            Action::Reply { id, answer } => {
                if let Some(Asker::Operator(to)) = self.askers.remove(&id) {
                    let _ = to.send(answer);
                }
            }
            Action::Publish(event) => {
                log_event(&event.kind);
                // Nobody needs to listen.
                let _ = self.shared.events.send(event);
            }
            Action::Deny(denial) => (self.on_denial)(&denial),
        }
    }

    fn order(&self, spawn: Spawn, command: Command) {
        if let Some(engine) = self.engines.get(&spawn) {
            // One that is gone has reported so, or will.
            let _ = engine.send(command);
        }
    }

    fn open_gate(&self, grant: Grant) {
        let mut warm = HashMap::clone(&self.shared.warm.load());
        warm.insert(grant.key.model().clone(), grant);
        self.shared.warm.store(Arc::new(warm));
    }

    fn close_gate(&self, spawn: Spawn) {
        let mut warm = HashMap::clone(&self.shared.warm.load());
        warm.retain(|_, grant| grant.spawn != spawn);
        self.shared.warm.store(Arc::new(warm));
    }

    /// The lease exists before anybody is told, so one whose asker is gone comes back by being dropped.
    fn grant(&mut self, id: RequestId, grant: Grant) {
        let Some(sender) = self.sender.upgrade() else { return };
        let lease = Lease::new(id, grant, sender);
        if let Some(Asker::Lease(to)) = self.askers.remove(&id) {
            let _ = to.send(Ok(lease));
        }
    }

    fn tell_loaded(&mut self, id: RequestId, key: EngineKey) {
        if let Some(Asker::Resident(to)) = self.askers.remove(&id) {
            let _ = to.send(Ok(key));
        }
    }

    fn refuse(&mut self, id: RequestId, refusal: Refusal) {
        match self.askers.remove(&id) {
            Some(Asker::Lease(to)) => drop(to.send(Err(refusal))),
            Some(Asker::Resident(to)) => drop(to.send(Err(refusal))),
            Some(Asker::Operator(_)) | None => {}
        }
    }
}

fn log_event(kind: &EventKind) {
    match kind {
        EventKind::Reserved { key, spawn, bytes } => tracing::info!(%key, %spawn, %bytes, "reserved"),
        EventKind::Ready { key, spawn, within } => tracing::info!(%key, %spawn, ?within, "ready"),
        EventKind::Stopping { key, spawn, reason } => tracing::info!(%key, %spawn, %reason, "stopping"),
        EventKind::DrainBegan { key, holders } => tracing::info!(%key, n_holders = holders.len(), "drain began"),
        EventKind::DrainGivenUp { key } => tracing::info!(%key, "drain given up"),
        EventKind::StartFailed { key, class } => tracing::warn!(%key, %class, "start failed"),
        EventKind::Stuck { key, spawn } => {
            tracing::error!(%key, %spawn, "cannot be killed; it stays charged until it is gone or the machine restarts");
        }
        EventKind::Closing => tracing::info!("no new work is taken"),
        EventKind::Exited { key, record } => tracing::info!("{}", exit_line(key, record)),
        // The denial line and the ledger say these.
        EventKind::Released { .. } | EventKind::CapacityDenied { .. } | EventKind::CatalogChanged { .. } => {}
    }
}

/// Read by harnesses: `[<engine>] exit {json}`.
fn exit_line(key: &EngineKey, record: &ExitRecord) -> String {
    let line = serde_json::json!({
        "pid": record.pid,
        "key": key.to_string(),
        "code": record.code,
        "signal": record.signal,
        "expected": record.reason != StopReason::Crash,
        "reason": record.reason.as_str(),
        "class": record.class.map(FailureClass::as_str),
        "uptime": record.ended_at.since(record.started_at).as_secs_f64(),
    });
    format!("[{}] exit {line}", key.provider())
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("state", &self.state).field("run", &self.run).finish_non_exhaustive()
    }
}
