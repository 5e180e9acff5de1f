//! [`Daemon`]: a running `motorpool serve`, and the two ways to end it.
use crate::e2e::{
    Engine, House, Outcome, Status,
    house::{outcome, read},
    processes,
};
use motorpool_testkit::{Client, eventually};
use motorpool_vocab::Endpoint;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use std::{
    fs::File,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    task::AbortHandle,
};

/// What `serve` prints before its address.
pub(crate) const LISTENING: &str = "listening on http://";
/// A bound on a daemon that hangs, not a measurement.
const PATIENCE: Duration = Duration::from_mins(1);
/// A daemon of a test that hangs is killed after this time: its connections break, and the test says where it was.
const LIFE: Duration = Duration::from_mins(3);

/// A daemon of a house. Dropped, it is killed.
#[derive(Debug)]
pub struct Daemon<'a> {
    house: &'a House,
    child: Child,
    address: String,
    log: PathBuf,
    printed: String,
    end_of_life: AbortHandle,
}

impl<'a> Daemon<'a> {
    /// Starts `motorpool serve` and waits until it listens.
    pub(crate) async fn start(house: &'a House) -> Self {
        Self::start_as(house, &["serve"], LISTENING).await
    }

    /// Starts `motorpool <args>` and waits until its output names the address it serves on, after `before`.
    pub async fn start_as(house: &'a House, args: &[&str], before: &str) -> Self {
        Self::run(house, house.command(args), before).await
    }

    /// The same with a command that the house has made.
    pub(crate) async fn run(house: &'a House, mut command: Command, before: &str) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let log = house.path(&format!("daemon-{}.log", STARTED.fetch_add(1, Ordering::Relaxed)));
        command.stdout(Stdio::piped()).stderr(File::create(&log).expect("created"));
        let mut child = command.spawn().expect("it runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut printed = String::new();
        let address = loop {
            let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("it says where it listens");
            let Ok(Some(line)) = line else { panic!("it ended: {}", read(&log)) };
            printed += &(line.clone() + "\n");
            if let Some((_, address)) = line.split_once(before) {
                break address.split('/').next().unwrap_or(address).trim().to_owned();
            }
        };
        // Whatever else it prints must not meet a closed pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let pid = child.id().expect("it was not waited for");
        let end_of_life = tokio::spawn(async move {
            tokio::time::sleep(LIFE).await;
            send(pid, Signal::SIGKILL);
        });
        Self { house, child, address, log, printed, end_of_life: end_of_life.abort_handle() }
    }

    /// Where it serves: `127.0.0.1:1234`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it was not waited for")
    }

    /// Asks it over TCP, as its users do.
    pub fn http(&self) -> Client {
        let port = self.address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        Client::new(Endpoint::Tcp(port))
    }

    /// Asks it over its control socket.
    pub fn control(&self) -> Client {
        Client::new(Endpoint::Unix(self.house.control_socket()))
    }

    /// Runs `motorpool <args>` against it.
    pub async fn cli(&self, args: &[&str]) -> Outcome {
        outcome(self.house.command(args)).await
    }

    /// What it printed until it listened.
    pub fn printed(&self) -> &str {
        &self.printed
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// What it says of itself.
    pub async fn status(&self) -> Status {
        let answer = self.control().get("/api/motorpool/v1/status").await.expect("it answers");
        let whole: Value = answer.json();
        serde_json::from_value(whole.clone()).unwrap_or_else(|e| panic!("{e} in {whole:#}"))
    }

    /// The engine of a model, once it is in one of `phases`.
    pub async fn until_phase(&self, model: &str, phases: &[&str]) -> Engine {
        let what = format!("{model} is {}", phases.join(" or "));
        eventually(&what, async || {
            self.status().await.engine(model).filter(|e| phases.contains(&e.phase.as_str())).cloned()
        })
        .await
    }

    /// Waits until no request holds or waits for anything.
    pub async fn until_quiet(&self) {
        let is_quiet = |e: &Engine| e.leases.is_empty() && e.queue == 0;
        eventually("no lease, no ticket", async || self.status().await.engines.iter().all(is_quiet).then_some(()))
            .await;
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        self.end_of_life.abort();
        ended.unwrap_or_else(|_| panic!("it does not end: {}", self.log())).expect("it is ours")
    }

    /// Asks it to stop. It must exit with 0, and nothing of it may be left at that moment.
    pub async fn stop(mut self) {
        // One that ended just now may be about to be reaped.
        eventually("every child is reaped", async || processes::zombies_of(self.pid()).is_empty().then_some(())).await;
        self.signal(Signal::SIGTERM);
        let status = self.ended().await;
        assert_eq!(status.code(), Some(0), "{status}: {}", self.log());
        assert!(!self.log().contains("records of requests may be lost"), "nobody tells any more: {}", self.log());
        processes::assert_none(self.house);
    }

    /// Kills it. Nothing of it may be left 2 s later. Returns how long that took.
    pub async fn kill(mut self) -> Duration {
        self.signal(Signal::SIGKILL);
        self.ended().await;
        processes::assert_gone(self.house).await
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        self.end_of_life.abort();
    }
}

/// Sends a signal to a process of ours.
pub fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).expect("a process id")), signal).expect("it runs");
}
