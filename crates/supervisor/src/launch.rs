//! The supervisor's end of a keeper: starting one, letting its engine go, hearing what becomes of it.
//!
//! ```text
//! KeeperProgram::start ─► Blocked ── go ─► Kept ─► Heard::Line* ─► Heard::Gone
//!                            └─ drop: the engine never runs   └─ drop: the tree is killed
//! ```
//!
//! One task per keeper reads the socket until its end and then reaps the keeper, whoever still listens (**S3**).
//! When the socket ends without the tree's end having been reported, somebody killed the keeper: the tree is then
//! swept by nonce from here, and `Gone` is heard only when nothing is left (**S1**).
use crate::{
    cgroup::Cgroup,
    lines::Ring,
    nonce::{Nonce, VARIABLE},
    protocol::{Gone, Launch, Order, Polite, ProcessId, Report, Source},
    settle::{self, Known, Wanted},
    wire::{Deframer, append_frame},
};
use std::{
    ffi::OsString,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    process::{Child, Command},
    sync::mpsc,
};

/// Reports waiting to be heard; when there are more, the keeper begins to drop lines.
const BACKLOG: usize = 256;
/// One attempt at what a killed keeper left; then another.
const SWEEP_WITHIN: Duration = Duration::from_secs(10);

/// The binary that becomes a keeper, and what it wants to be told for that.
#[derive(Clone, Debug)]
pub struct KeeperProgram {
    /// Usually our own, as `/proc/self/exe`: that one stays the same file when the installed one is replaced.
    pub program: PathBuf,
    /// Usually `keeper`.
    pub args: Vec<OsString>,
}

/// Why an engine was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The keeper cannot be started.
    #[error("cannot start the keeper {}", program.display())]
    Keeper {
        /// Its program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The keeper ended without a word.
    #[error("the keeper ended before the engine ran")]
    KeeperLost,
    /// The keeper could not do something.
    #[error("the keeper could not {what}")]
    Keeping {
        /// What.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The engine's program cannot be executed.
    #[error("cannot execute {}", program.display())]
    EngineMissing {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody killed the engine's process before it could run.
    #[error("the engine's process ended before it ran")]
    EngineLost,
    /// The start could not be written down, so it was not made.
    #[error(transparent)]
    Journal(#[from] crate::JournalError),
    /// The socket of an earlier engine is in the way.
    #[error("cannot remove the old socket {}", path.display())]
    OldSocket {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody wanted it any more before it ran.
    #[error("it was told to end before it ran")]
    NotWanted,
    /// No nonce could be drawn.
    #[error("no random bits")]
    Nonce(#[source] io::Error),
}

/// What comes from a running engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A line, after `n_dropped` that nobody had time to hear.
    Line {
        /// Which stream.
        source: Source,
        /// Without its end.
        text: String,
        /// How many are missing before it.
        n_dropped: u32,
    },
    /// Its first process has ended, and others of its tree are being killed. `Gone` follows.
    Ended(Gone),
    /// Nothing of it is left. The last that is heard.
    Gone(Gone),
}

/// An engine that exists but does not run yet.
#[derive(Debug)]
pub struct Blocked {
    kept: Kept,
    program: PathBuf,
    keeper: ProcessId,
    engine: ProcessId,
}

/// An engine under its keeper. Dropping it kills the tree.
#[derive(Debug)]
pub struct Kept {
    orders: OwnedWriteHalf,
    reports: mpsc::Receiver<Report>,
}

impl KeeperProgram {
    /// Starts a keeper that holds an engine ready to go.
    pub(crate) async fn start(&self, launch: Launch) -> Result<Blocked, LaunchError> {
        let failed = |source| LaunchError::Keeper { program: self.program.clone(), source };
        let (child, socket) = self.spawn(&launch.nonce).map_err(failed)?;
        let (reads, orders) = socket.into_split();
        let (sender, reports) = mpsc::channel(BACKLOG);
        let program = launch.program.clone();
        let group = launch.group.as_deref().and_then(|folder| Cgroup::written_down(folder, &launch.nonce));
        let wanted = Wanted { nonce: launch.nonce.clone(), known: None, group };
        tokio::spawn(listen(Listening { reads, child, program: program.clone(), wanted, reports: sender }));
        let mut kept = Kept { orders, reports };
        kept.order(&Order::Launch(Box::new(launch))).await;
        match kept.reports.recv().await {
            Some(Report::Born { keeper, engine }) => Ok(Blocked { kept, program, keeper, engine }),
            Some(Report::Failed { what, errno }) => Err(LaunchError::Keeping { what, source: os_error(errno) }),
            _ => Err(LaunchError::KeeperLost),
        }
    }

    fn spawn(&self, nonce: &Nonce) -> io::Result<(Child, UnixStream)> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().env(VARIABLE, nonce.as_str()).current_dir("/");
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(Stdio::null());
        // No parent-death signal: it would follow the thread that spawns. The end of the socket does its work.
        Ok((command.spawn()?, UnixStream::from_std(ours)?))
    }
}

impl Blocked {
    /// The keeper.
    pub fn keeper(&self) -> ProcessId {
        self.keeper
    }

    /// The engine's first process.
    pub fn engine(&self) -> ProcessId {
        self.engine
    }

    /// Lets the engine run. After an error nothing of it is left.
    pub async fn go(mut self) -> Result<Kept, LaunchError> {
        self.kept.order(&Order::Go).await;
        match self.kept.reports.recv().await {
            Some(Report::Running) => Ok(self.kept),
            Some(Report::ExecFailed { errno }) => {
                self.kept.until_gone().await;
                Err(LaunchError::EngineMissing { program: self.program, source: os_error(errno) })
            }
            Some(Report::Gone(Gone { code: None, signal: None, .. })) | None => Err(LaunchError::KeeperLost),
            Some(Report::Gone(_)) => Err(LaunchError::EngineLost),
            Some(_) => {
                self.kept.until_gone().await;
                Err(LaunchError::EngineLost)
            }
        }
    }

    /// Takes back what was begun, and waits until nothing of it is left.
    pub async fn abandon(mut self) {
        self.kept.order(&Order::Kill).await;
        self.kept.until_gone().await;
    }
}

#[cfg(test)]
impl Kept {
    /// A keeper that says this, and then nothing more.
    pub(crate) fn that_says(said: impl IntoIterator<Item = Report>) -> Self {
        let (sender, reports) = mpsc::channel(BACKLOG);
        said.into_iter().for_each(|report| sender.try_send(report).expect("room"));
        let (orders, _) = UnixStream::pair().expect("a pair");
        Self { orders: orders.into_split().1, reports }
    }
}

impl Kept {
    /// What comes next. `None` after the end. May be dropped while it waits; nothing is lost.
    pub async fn hear(&mut self) -> Option<Heard> {
        loop {
            match self.reports.recv().await? {
                Report::Line { source, text, n_dropped } => return Some(Heard::Line { source, text, n_dropped }),
                Report::Ended(so_far) => return Some(Heard::Ended(so_far)),
                Report::Gone(gone) => return Some(Heard::Gone(gone)),
                Report::Born { .. } | Report::Running | Report::ExecFailed { .. } | Report::Failed { .. } => {}
            }
        }
    }

    /// Asks it to end.
    pub async fn ask_to_end(&mut self, how: Polite) {
        self.order(&Order::Polite(how)).await;
    }

    /// Kills the tree.
    pub async fn kill(&mut self) {
        self.order(&Order::Kill).await;
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

    async fn order(&mut self, order: &Order) {
        let mut frame = Vec::new();
        append_frame(order, &mut frame);
        // A keeper that does not hear is dead, and that is reported by its socket's end.
        let _ = self.orders.write_all(&frame).await;
    }
}

fn os_error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

struct Listening {
    reads: OwnedReadHalf,
    child: Child,
    program: PathBuf,
    wanted: Wanted,
    reports: mpsc::Sender<Report>,
}

async fn listen(mut this: Listening) {
    let mut recent = Ring::new(16 << 10);
    let gone = forward(&mut this, &mut recent).await;
    match this.child.wait().await {
        Ok(status) if gone.is_none() => {
            tracing::warn!(%status, "a keeper ended without having told the end of its engine");
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "a keeper could not be reaped"),
    }
    let gone = if let Some(gone) = gone {
        gone
    } else {
        sweep_until_clear(this.wanted).await;
        Gone { tail: recent.lines(), ..Gone::default() }
    };
    // Nobody may listen any more.
    let _ = this.reports.send(Report::Gone(gone)).await;
}

/// Passes reports on until the tree's end (which it returns) or the socket's.
async fn forward(this: &mut Listening, recent: &mut Ring) -> Option<Gone> {
    let mut deframer = Deframer::new();
    let mut bytes = vec![0; 16 << 10];
    loop {
        loop {
            match deframer.next_message() {
                Ok(Some(Report::Gone(gone))) => return Some(gone),
                Ok(Some(report)) => {
                    if let Report::Born { keeper, engine } = &report {
                        let program = this.program.clone();
                        this.wanted.known = Some(Known { keeper: *keeper, engine: *engine, program });
                    }
                    if let Report::Line { text, .. } = &report {
                        recent.push(text.as_bytes());
                    }
                    let _ = this.reports.send(report).await;
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "a keeper speaks nonsense and is killed");
                    // It may have exited already; its engine dies with it either way.
                    let _ = this.child.start_kill();
                    return None;
                }
            }
        }
        match this.reads.read(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => deframer.push(&bytes[..n]),
        }
    }
}

async fn sweep_until_clear(wanted: Wanted) {
    loop {
        let again = wanted.clone();
        match tokio::task::spawn_blocking(move || settle::sweep(&again, SWEEP_WITHIN)).await {
            Ok(None) => return,
            Ok(Some(left)) => tracing::error!(?left, "an engine without keeper is not known to be gone"),
            // The runtime is ending, and this with it: the next supervisor settles what is left.
            Err(error) => {
                tracing::error!(%error, "an engine without keeper is not found");
                tokio::time::sleep(SWEEP_WITHIN).await;
            }
        }
    }
}
