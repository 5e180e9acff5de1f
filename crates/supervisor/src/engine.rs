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
use tokio::task::{JoinHandle, spawn_blocking};

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
    /// How it ended, while that is written down.
    ending: Option<(Gone, JoinHandle<()>)>,
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

    /// Ends what is left of one engine of ours that nobody looks after any more. `None`: nothing of it is. Blocks for as
    /// long as dying takes.
    pub fn settle_one(&self, spawn: Spawn) -> Option<Leftover> {
        let mut settled = Settled::default();
        let of_it = self.journal.unsettled().into_iter().filter(|one| one.intent.spawn == spawn.0);
        of_it.for_each(|one| settle_one(&self.journal, (one, &self.boot), SETTLE_WITHIN, &mut settled));
        if let Some(error) = settled.unwritten {
            // The next supervisor looks for it, finds nothing, and writes it then.
            tracing::error!(%error, "the end of an engine is not written down");
        }
        settled.left.pop()
    }

    /// The first number that was never given to an engine.
    pub fn next_spawn(&self) -> Spawn {
        self.journal.next_spawn()
    }

    /// Starts an engine. After an error nothing of it is left, in the machine or in the journal.
    pub async fn launch(&self, order: EngineOrder) -> Result<Engine, LaunchError> {
        self.launch_unless(order, std::future::pending()).await
    }

    /// The same, unless `stop` is over by the time that the engine would be let go: then it never runs.
    pub async fn launch_unless(
        &self,
        order: EngineOrder,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Engine, LaunchError> {
        let spawn = order.spawn;
        let started = self.try_launch(order, stop).await;
        if started.is_err()
            && let Err(error) = on_disk(&self.journal, move |journal| journal.gone(spawn)).await
        {
            tracing::error!(%error, "the end of a failed start is not written down");
        }
        started
    }

    async fn try_launch(
        &self,
        order: EngineOrder,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Engine, LaunchError> {
        let (spawn, socket) = (order.spawn, order.socket.clone());
        let blocked = self.block(order).await?;
        let (keeper, process) = (blocked.keeper(), blocked.engine());
        if let Err(error) = on_disk(&self.journal, move |journal| journal.born(spawn, keeper, process)).await {
            blocked.abandon().await;
            return Err(error.into());
        }
        // The last moment at which nothing of it has run.
        let is_wanted = tokio::select! {
            biased;
            () = stop => false,
            () = std::future::ready(()) => true,
        };
        if !is_wanted {
            blocked.abandon().await;
            return Err(LaunchError::NotWanted);
        }
        let kept = blocked.go().await?;
        Ok(Engine { kept, journal: Arc::clone(&self.journal), spawn, socket, process, ending: None })
    }

    /// As far as the engine can be brought without being run.
    pub async fn block(&self, order: EngineOrder) -> Result<Blocked, LaunchError> {
        let nonce = Nonce::draw().map_err(LaunchError::Nonce)?;
        let group = self.group.as_ref().map(|own| Cgroup::below(own, &nonce).folder().to_owned());
        let intent = self.intent_of(&order, &nonce, group.as_deref());
        on_disk(&self.journal, move |journal| journal.intent(intent)).await?;
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
}

impl Engine {
    /// Its first process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// What comes next; `None` after the end. The end is in the journal before it is heard. May be dropped while
    /// it waits.
    pub async fn hear(&mut self) -> Option<Heard> {
        if self.ending.is_none() {
            match self.kept.hear().await? {
                Heard::Gone(gone) => self.ending = Some((gone, self.write_gone())),
                heard @ (Heard::Line { .. } | Heard::Ended(_)) => return Some(heard),
            }
        }
        let (_, writing) = self.ending.as_mut()?;
        // One that broke off has not written; the next supervisor finds nothing, and writes it then.
        let _ = writing.await;
        self.ending.take().map(|(gone, _)| Heard::Gone(gone))
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
        loop {
            match self.hear().await {
                Some(Heard::Gone(gone)) => return gone,
                Some(Heard::Line { .. } | Heard::Ended(_)) => {}
                None => return Gone::default(),
            }
        }
    }

    fn write_gone(&self) -> JoinHandle<()> {
        let (journal, spawn, socket) = (Arc::clone(&self.journal), self.spawn, self.socket.clone());
        spawn_blocking(move || {
            if let Some(path) = socket {
                // llama-server leaves it behind; whoever comes next removes it too.
                let _ = remove_socket(&path);
            }
            if let Err(error) = journal.gone(spawn) {
                // The next supervisor looks for it, finds nothing, and writes it then.
                tracing::error!(%error, "the end of an engine is not written down");
            }
        })
    }
}

/// A disk may take its time, so this waits on a thread that may: nobody else does.
async fn on_disk(
    journal: &Arc<Journal>,
    write: impl FnOnce(&Journal) -> Result<(), JournalError> + Send + 'static,
) -> Result<(), JournalError> {
    let writing = Arc::clone(journal);
    let written = spawn_blocking(move || write(&writing)).await;
    written.unwrap_or_else(|failed| Err(journal.unusable(io::Error::other(failed))))
}

fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::tests::hang;
    use motorpool_vocab::ModelId;
    use tokio::task::yield_now;

    fn order() -> EngineOrder {
        EngineOrder {
            spawn: Spawn(1),
            key: EngineKey::new("test", ModelId::new("model").expect("no colon"), 0).expect("no colon"),
            claim: Claim::default(),
            program: "/absent".into(),
            args: vec![],
            environment: vec![],
            cwd: "/".into(),
            log: None,
            socket: None,
            fence: None,
        }
    }

    /// On one thread: whoever waits for the disk on it would keep everybody waiting.
    #[tokio::test]
    async fn a_disk_that_hangs_keeps_only_those_waiting_who_write_to_it() {
        let state = tempfile::tempdir().expect("a temporary directory");
        let keeper = KeeperProgram { program: "/bin/false".into(), args: vec![] };
        let launcher = Launcher::open(keeper, state.path()).expect("a fresh directory");
        let journal = Arc::clone(&launcher.journal);
        let (go_on, disk) = hang(&journal);
        let start = tokio::spawn(async move { launcher.launch(order()).await.map(drop) });
        yield_now().await;
        go_on.send(()).expect("it hangs");
        assert!(disk.join().expect("no panic"), "a start is written down by whoever runs everything else");
        start.await.expect("no panic").expect_err("no keeper");

        let gone = Gone { code: Some(3), ..Gone::default() };
        let kept = Kept::that_says([crate::protocol::Report::Gone(gone.clone())]);
        let process = ProcessId { pid: 1, start_time: 1 };
        let mut engine =
            Engine { kept, journal: Arc::clone(&journal), spawn: Spawn(1), socket: None, process, ending: None };
        let (go_on, disk) = hang(&journal);
        tokio::select! {
            biased;
            heard = engine.hear() => panic!("before it was written down: {heard:?}"),
            () = yield_now() => {}
        }
        go_on.send(()).expect("it hangs");
        assert!(disk.join().expect("no panic"), "an end is written down by whoever runs everything else");
        assert_eq!(engine.hear().await, Some(Heard::Gone(gone)), "whoever stopped listening in between hears it");
        assert_eq!(engine.hear().await, None);
    }
}
