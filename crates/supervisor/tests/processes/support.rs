//! What the tests share. Nothing here waits for a time to pass: only for a thing to be so, with a deadline.
use motorpool_supervisor::{Engine, EngineOrder, Gone, Heard, KeeperProgram, Launcher, LockError, OpenError};
use motorpool_vocab::{Claim, EngineKey, ModelId};
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

pub(crate) fn keeper() -> KeeperProgram {
    KeeperProgram { program: crate::KEEPER.into(), args: Vec::new() }
}

/// A state directory of its own and who starts engines from it.
pub(crate) struct House {
    pub(crate) state: tempfile::TempDir,
    pub(crate) launcher: Launcher,
}

impl House {
    pub(crate) fn new() -> Self {
        Self::with_keeper(keeper())
    }

    /// Whose keepers are this program.
    pub(crate) fn with_keeper(keeper: KeeperProgram) -> Self {
        let state = tempfile::tempdir().expect("a temporary directory");
        let launcher = Launcher::open(keeper, state.path()).expect("a fresh directory");
        assert_eq!(launcher.settle().expect("writable"), []);
        Self { state, launcher }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.state.path().join(name)
    }

    pub(crate) fn journal(&self) -> String {
        std::fs::read_to_string(self.path("journal.jsonl")).expect("a journal")
    }

    /// An engine that is this program.
    pub(crate) fn program(&self, program: &str, args: &[&str]) -> EngineOrder {
        EngineOrder {
            spawn: self.launcher.next_spawn(),
            key: EngineKey::new("test", ModelId::new("model").expect("no colon"), 0).expect("no colon"),
            claim: Claim::default(),
            program: program.into(),
            args: args.iter().map(Into::into).collect(),
            environment: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            cwd: self.state.path().to_owned(),
            log: None,
            socket: None,
            fence: None,
        }
    }

    /// An engine that is a shell script.
    pub(crate) fn script(&self, script: &str) -> EngineOrder {
        self.program("/bin/sh", &["-c", script])
    }

    pub(crate) async fn run(&self, script: &str) -> Engine {
        self.launcher.launch(self.script(script)).await.expect("a shell")
    }
}

/// A state directory whose launcher is gone. What another test forks at this moment holds the lock until it execs.
pub(crate) fn open_again(state: &Path) -> Launcher {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        match Launcher::open(keeper(), state) {
            Err(OpenError::Lock(LockError::Held { .. })) if Instant::now() < deadline => std::thread::yield_now(),
            opened => return opened.expect("free"),
        }
    }
}

/// The next line; an end before it is a failure.
pub(crate) async fn line(engine: &mut Engine) -> String {
    match engine.hear().await {
        Some(Heard::Line { text, .. }) => text,
        other => panic!("a line, not {other:?}"),
    }
}

/// A line that is a process id.
pub(crate) async fn pid(engine: &mut Engine) -> u32 {
    line(engine).await.trim().parse().expect("a process id")
}

/// All lines until the end, and the end.
pub(crate) async fn rest(engine: &mut Engine) -> (Vec<String>, Gone) {
    let mut lines = Vec::new();
    loop {
        match engine.hear().await {
            Some(Heard::Line { text, .. }) => lines.push(text),
            Some(Heard::Ended(_)) => {}
            Some(Heard::Gone(gone)) => return (lines, gone),
            None => panic!("an end"),
        }
    }
}

/// Whether it runs. A zombie does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    motorpool_devices::observe_process(pid).is_some_and(|process| !process.is_zombie())
}

pub(crate) fn keeper_of(engine: &Engine) -> u32 {
    motorpool_devices::observe_process(engine.process().pid).expect("it lives").ppid
}

/// The mark of its tree.
pub(crate) fn nonce_of(engine: u32) -> String {
    let nonce = motorpool_devices::environment_value(engine, "MOTORPOOL_NONCE").expect("marked");
    nonce.into_string().expect("digits")
}

/// Everything that bears the mark.
pub(crate) fn marked(nonce: &str) -> Vec<u32> {
    motorpool_devices::processes_with(&format!("MOTORPOOL_NONCE={nonce}"))
}

/// Waits until `is_so`, up to a minute.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn until_file(path: &Path) {
    until(&path.display().to_string(), || path.exists()).await;
}

pub(crate) fn kill(pid: u32) {
    signal(pid, nix::sys::signal::Signal::SIGKILL);
}

pub(crate) fn signal(pid: u32, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("a process id"));
    nix::sys::signal::kill(pid, signal).expect("ours");
}
