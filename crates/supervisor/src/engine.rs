//! An engine from its entry in the journal to its end there: the order of writing and doing.
//!
//! ```text
//! intent written ─► old socket removed ─► keeper started ─► engine forked, blocked ─► born synced ─► go ─► exec
//!       └──────────────────────── anything fails: nothing of it is left, gone written ─────────────────────┘
//! ```
use crate::{
    Fence, JournalError, KeeperProgram, LaunchError, LockError, StateLock,
    cgroup::Cgroup,
    journal::{Charge, Intent, Journal},
    launch::{Blocked, Heard, Kept},
    nonce::Nonce,
    protocol::{Gone, Launch, Polite, ProcessId},
    settle::{Leftover, Settled, settle, settle_one},
};
use motorpool_devices::{ReadingError, boot_id, own_group};
use motorpool_vocab::{Claim, EngineKey, Spawn};
use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// How long settling waits for one engine of an earlier supervisor to die.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);

/// Everything that is needed to start engines. Holds the lock of the state directory.
#[derive(Clone, Debug)]
pub struct Launcher {
    keeper: KeeperProgram,
    journal: Arc<Journal>,
    /// The boot that process ids belong to.
    boot: String,
    /// Our own control group, below which those of engines are made.
    group: Option<PathBuf>,
    _lock: Arc<StateLock>,
}

/// Why no engine can be started from this state directory.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It is another supervisor's.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Its journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// This boot has no name.
    #[error(transparent)]
    Boot(#[from] ReadingError),
}

/// One engine to start.
#[derive(Clone, Debug)]
pub struct EngineOrder {
    /// Its number.
    pub spawn: Spawn,
    /// Which engine it is.
    pub key: EngineKey,
    /// What it is charged.
    pub claim: Claim,
    /// Absolute.
    pub program: PathBuf,
    /// Without its own name.
    pub args: Vec<OsString>,
    /// The whole of it, but for the nonce.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// Where its output is kept.
    pub log: Option<PathBuf>,
    /// Where it will listen, when on a unix socket.
    pub socket: Option<PathBuf>,
    /// What it is held to.
    pub fence: Option<Fence>,
}

/// A running engine. Dropping it kills the tree; its entry in the journal then stays for the next supervisor.
#[derive(Debug)]
pub struct Engine {
    kept: Kept,
    journal: Arc<Journal>,
    spawn: Spawn,
    socket: Option<PathBuf>,
    process: ProcessId,
}

impl Launcher {
    /// Takes the state directory, which must be there. Before anything is started, [`Launcher::settle`] it.
    pub fn open(keeper: KeeperProgram, state: &Path) -> Result<Self, OpenError> {
        let lock = Arc::new(StateLock::take(state)?);
        let boot = boot_id(Path::new("/"))?;
        let journal = Arc::new(Journal::open(&state.join("journal.jsonl"))?);
        Ok(Self { keeper, journal, boot, group: own_group(Path::new("/")), _lock: lock })
    }

    /// Makes control groups below this one, or none.
    #[must_use]
    pub fn with_groups_below(self, group: Option<PathBuf>) -> Self {
        Self { group, ..self }
    }

    /// Ends what an earlier supervisor left: after this nothing of it lives but what is returned. Blocks for as long
    /// as dying takes.
    pub fn settle(&self) -> Result<Vec<Leftover>, JournalError> {
        let Settled { left, unwritten, .. } = self.settle_all();
        unwritten.map_or(Ok(left), Err)
    }

    /// The same, with all that is to be told of it.
    pub(crate) fn settle_all(&self) -> Settled {
        settle(&self.journal, &self.boot, SETTLE_WITHIN)
    }

    /// Ends what is left of one engine of ours that nobody looks after any more. Its processes that could not be ended.
    /// Blocks for as long as dying takes.
    pub fn settle_one(&self, spawn: Spawn) -> Vec<u32> {
        let mut settled = Settled::default();
        let of_it = self.journal.unsettled().into_iter().filter(|one| one.intent.spawn == spawn.0);
        of_it.for_each(|one| settle_one(&self.journal, (one, &self.boot), SETTLE_WITHIN, &mut settled));
        if let Some(error) = settled.unwritten {
            // The next supervisor looks for it, finds nothing, and writes it then.
            tracing::error!(%error, "the end of an engine is not written down");
        }
        settled.left.into_iter().flat_map(|left| left.pids).collect()
    }

    /// The first number that was never given to an engine.
    pub fn next_spawn(&self) -> Spawn {
        self.journal.next_spawn()
    }

    /// Starts an engine. After an error nothing of it is left, in the machine or in the journal.
    pub async fn launch(&self, order: EngineOrder) -> Result<Engine, LaunchError> {
        let spawn = order.spawn;
        let started = self.try_launch(order).await;
        if started.is_err()
            && let Err(error) = self.journal.gone(spawn)
        {
            tracing::error!(%error, "the end of a failed start is not written down");
        }
        started
    }

    async fn try_launch(&self, order: EngineOrder) -> Result<Engine, LaunchError> {
        let (spawn, socket) = (order.spawn, order.socket.clone());
        let blocked = self.block(order).await?;
        let process = blocked.engine();
        if let Err(error) = self.write_born(spawn, &blocked).await {
            blocked.abandon().await;
            return Err(error.into());
        }
        let kept = blocked.go().await?;
        Ok(Engine { kept, journal: Arc::clone(&self.journal), spawn, socket, process })
    }

    /// As far as the engine can be brought without being run.
    pub async fn block(&self, order: EngineOrder) -> Result<Blocked, LaunchError> {
        let nonce = Nonce::draw().map_err(LaunchError::Nonce)?;
        let group = self.group.as_ref().map(|own| Cgroup::below(own, &nonce).folder().to_owned());
        self.journal.intent(self.intent_of(&order, &nonce, group.as_deref()))?;
        if let Some(path) = order.socket {
            remove_socket(&path).map_err(|source| LaunchError::OldSocket { path, source })?;
        }
        let EngineOrder { program, args, environment, cwd, log, fence, .. } = order;
        self.keeper.start(Launch { nonce, program, args, environment, cwd, log, group, fence }).await
    }

    fn intent_of(&self, order: &EngineOrder, nonce: &Nonce, group: Option<&Path>) -> Intent {
        Intent {
            spawn: order.spawn.0,
            nonce: nonce.as_str().to_owned(),
            boot: self.boot.clone(),
            executable: order.program.to_string_lossy().into_owned(),
            key: order.key.to_string(),
            socket: order.socket.as_ref().map(|path| path.to_string_lossy().into_owned()),
            group: group.map(|folder| folder.to_string_lossy().into_owned()),
            claim: Charge::from(&order.claim),
        }
    }

    /// A disk may take its time, so this waits on a thread that may.
    async fn write_born(&self, spawn: Spawn, blocked: &Blocked) -> Result<(), JournalError> {
        let journal = Arc::clone(&self.journal);
        let (keeper, engine) = (blocked.keeper(), blocked.engine());
        let written = tokio::task::spawn_blocking(move || journal.born(spawn, keeper, engine)).await;
        written.unwrap_or_else(|failed| Err(self.journal.unusable(io::Error::other(failed))))
    }
}

impl Engine {
    /// Its first process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// What comes next; `None` after the end. The end is in the journal before it is heard. May be dropped while
    /// it waits.
    pub async fn hear(&mut self) -> Option<Heard> {
        let heard = self.kept.hear().await?;
        if let Heard::Gone(_) = heard {
            self.write_gone();
        }
        Some(heard)
    }

    /// Asks it to end.
    pub async fn ask_to_end(&mut self, how: Polite) {
        self.kept.ask_to_end(how).await;
    }

    /// Kills the tree.
    pub async fn kill(&mut self) {
        self.kept.kill().await;
    }

    /// Waits for the end, hearing nothing else.
    pub async fn until_gone(&mut self) -> Gone {
        let gone = self.kept.until_gone().await;
        self.write_gone();
        gone
    }

    fn write_gone(&self) {
        if let Some(path) = &self.socket {
            // llama-server leaves it behind; whoever comes next removes it too.
            let _ = remove_socket(path);
        }
        if let Err(error) = self.journal.gone(self.spawn) {
            // The next supervisor looks for it, finds nothing, and writes it then.
            tracing::error!(%error, "the end of an engine is not written down");
        }
    }
}

fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
