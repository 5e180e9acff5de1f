//! One task per child: starts it, waits until it serves, passes its signs of life and its end to the loop.
//!
//! ```text
//!   launch ─► Launched ─► (lines, growth: Progress)* ─► Ready ─► … ─► Gone, once, whatever happened
//!      └ cannot: Gone      └ ready, but infers wrongly: killed
//! ```
//!
//! A child is ready when it says so, has told its slots, and where its manifest has a probe, has inferred once.
use crate::{
    Engine, EngineOrder, Heard, LaunchError, Launcher, Polite, Question, Source,
    exchange::exchange,
    handle::{Post, log_path},
    protocol::Gone,
};
use motorpool_catalog::{Catalog, LaunchValues, Manifest, StopSignal, Transport};
use motorpool_devices::{observe_io, observe_process};
use motorpool_pool::{Exit, Input, Launch};
use motorpool_vocab::{Endpoint, FailureClass, Spawn};
use std::{
    collections::HashMap,
    error::Error,
    ffi::{OsStr, OsString},
    fs, io,
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{Instant, interval},
};

/// Lines are passed on as signs of life at most so often.
const TELL_EVERY: Duration = Duration::from_millis(250);
/// How often a silent load is looked at for growth.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What every start needs.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) launcher: Launcher,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) environment: HashMap<OsString, OsString>,
    pub(crate) run: PathBuf,
    pub(crate) logs: PathBuf,
    /// Weak: a driver does not keep the loop alive.
    pub(crate) inbox: mpsc::WeakUnboundedSender<Post>,
}

/// One child to start.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) spawn: Spawn,
    pub(crate) launch: Arc<Launch>,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
}

/// What the pool wants of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    StopPolitely,
    Kill,
}

/// Reports the end of a child that nobody else reported: a driver that broke off.
struct GoneOnDrop<'a> {
    driver: &'a Driver,
    spawn: Spawn,
    exit: Option<Exit>,
}

/// What a driver has seen of its child.
struct Seen {
    manifest: Arc<Manifest>,
    endpoint: Endpoint,
    pid: u32,
    told_at: Option<Instant>,
    grown: Option<(u64, u64, u64)>,
    /// Our own reason to kill it.
    verdict: Option<String>,
    wish: Wish,
}

/// Whether the pool wanted the child to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Live,
    End,
}

impl Driver {
    pub(crate) async fn drive(self: Arc<Self>, start: Start) {
        let mut report = GoneOnDrop { driver: &self, spawn: start.spawn, exit: None };
        report.exit = Some(self.live(start).await);
    }

    async fn live(&self, mut start: Start) -> Exit {
        let Some(manifest) = self.catalog.manifest(start.launch.key.provider()).cloned() else {
            return did_not_run(FailureClass::EngineMissing, "its manifest is gone".to_owned());
        };
        let endpoint = match self.endpoint(&manifest, start.spawn) {
            Ok(endpoint) => endpoint,
            Err(error) => return did_not_run(FailureClass::BindFailed, format!("no port is free: {error}")),
        };
        let order = self.order(&start, &manifest, &endpoint);
        let engine = match self.launcher.launch(order).await {
            Ok(engine) => engine,
            Err(error) => return did_not_run(class_of_error(&error), chain(&error)),
        };
        let pid = engine.process().pid;
        self.tell(Input::Launched { spawn: start.spawn, pid });
        tracing::info!("{}", launch_line(&start.launch, pid));
        let mut seen = Seen { manifest, endpoint, pid, told_at: None, grown: None, verdict: None, wish: Wish::Live };
        self.attend(&mut start, engine, &mut seen).await
    }

    /// Listens until the end. Commands go before news, so that a flood of lines cannot hold a kill back.
    async fn attend(&self, start: &mut Start, mut engine: Engine, seen: &mut Seen) -> Exit {
        let launch = Arc::clone(&start.launch);
        let readying = (Arc::clone(&seen.manifest), seen.endpoint.clone(), seen.pid);
        let mut ready = Some(Box::pin(become_ready(readying, launch)));
        let mut look = interval(LOOK_EVERY);
        loop {
            tokio::select! {
                biased;
                command = start.commands.recv() => match command {
                    Some(command) => seen.obey(command, &mut engine).await,
                    // The loop is gone; dropping the engine kills it.
                    None => return Exit { pid: Some(seen.pid), ..Exit::default() },
                },
                outcome = async { ready.as_mut().expect("only polled while there").await }, if ready.is_some() => {
                    ready = None;
                    match outcome {
                        Ok(width) => self.tell(Input::Ready { spawn: start.spawn, endpoint: seen.endpoint.clone(), width }),
                        Err(verdict) => {
                            seen.verdict = Some(verdict);
                            engine.kill().await;
                        }
                    }
                },
                heard = engine.hear() => match heard {
                    Some(Heard::Line { source, text, .. }) if ready.is_some() => self.on_line(start.spawn, seen, source, &text),
                    Some(Heard::Line { .. }) => {}
                    Some(Heard::Gone(gone)) => return seen.exit(gone),
                    None => return seen.exit(Gone::default()),
                },
                _ = look.tick(), if ready.is_some() => self.look_for_growth(start.spawn, seen),
            }
        }
    }

    fn on_line(&self, spawn: Spawn, seen: &mut Seen, source: Source, text: &str) {
        let report = if source == Source::Stdout { seen.manifest.progress(text) } else { None };
        let per_mille = match report {
            Some(motorpool_catalog::Heard::Loading { per_mille }) => Some(per_mille),
            Some(motorpool_catalog::Heard::Ready) | None => None,
        };
        let lately = seen.told_at.is_some_and(|at| at.elapsed() < TELL_EVERY);
        if per_mille.is_some() || !lately {
            seen.told_at = Some(Instant::now());
            self.tell(Input::Progress { spawn, per_mille });
        }
    }

    /// Memory, CPU time or input that grew is a sign of life too: a big file is mapped in silence.
    fn look_for_growth(&self, spawn: Spawn, seen: &mut Seen) {
        let Some(facts) = observe_process(seen.pid) else { return };
        let io = observe_io(seen.pid).map_or(0, motorpool_vocab::Bytes::get);
        let now = Some((facts.rss_pages, facts.cpu_ticks, io));
        if seen.grown != now {
            seen.grown = now;
            self.tell(Input::Progress { spawn, per_mille: None });
        }
    }

    fn endpoint(&self, manifest: &Manifest, spawn: Spawn) -> io::Result<Endpoint> {
        match manifest.transport {
            Transport::Unix => Ok(Endpoint::Unix(self.run.join(format!("e{spawn}.sock")))),
            // Free now, perhaps not when the engine binds it: then the start fails and says so.
            Transport::Tcp => Ok(Endpoint::Tcp(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())),
        }
    }

    fn order(&self, start: &Start, manifest: &Manifest, endpoint: &Endpoint) -> EngineOrder {
        let launch = &start.launch;
        let empty = self.run.join("empty");
        // An engine that finds no directory there finds no configuration either.
        let _ = fs::create_dir_all(&empty);
        let mut values = LaunchValues::new(&launch.model, launch.facts.model_path.clone(), endpoint.clone(), empty);
        values.context_per_slot = launch.plan.context_per_slot;
        values.slots = launch.plan.slots;
        launch.plan.kv.as_str().clone_into(&mut values.kv_type);
        let parent = |name: &str| self.environment.get(OsStr::new(name)).cloned();
        let environment = manifest.environment(&parent, &values);
        EngineOrder {
            spawn: start.spawn,
            key: launch.key.clone(),
            claim: launch.claim.clone(),
            program: launch.facts.program.clone(),
            args: manifest.command(&values),
            environment: environment.into_iter().map(|(name, value)| (name.into(), value)).collect(),
            cwd: self.run.clone(),
            log: Some(log_path(&self.logs, &launch.key)),
            socket: match endpoint {
                Endpoint::Unix(path) => Some(path.clone()),
                Endpoint::Tcp(_) => None,
            },
        }
    }

    fn tell(&self, input: Input) {
        if let Some(inbox) = self.inbox.upgrade() {
            // A loop that is gone has nothing left to be told.
            let _ = inbox.send(Post::Input(input));
        }
    }
}

impl Seen {
    async fn obey(&mut self, command: Command, engine: &mut Engine) {
        self.wish = Wish::End;
        match (command, &self.manifest.stop.stdin_line) {
            (Command::Kill, _) => engine.kill().await,
            (Command::StopPolitely, Some(line)) => engine.ask_to_end(Polite::Line(line.clone())).await,
            (Command::StopPolitely, None) => {
                engine.ask_to_end(Polite::Signal(number_of(self.manifest.stop.signal))).await;
            }
        }
    }

    fn exit(&self, gone: Gone) -> Exit {
        let mut tail = gone.tail;
        let class = match (self.wish, gone.signal) {
            (Wish::End, _) => None,
            (Wish::Live, Some(libc::SIGILL)) => Some(FailureClass::IllegalInstruction),
            (Wish::Live, _) if self.verdict.is_some() => Some(FailureClass::Unknown),
            (Wish::Live, signal) => self.manifest.classify(&tail).or_else(|| class_of_signal(signal?)),
        };
        tail.extend(self.verdict.clone());
        Exit { pid: Some(self.pid), code: gone.code, signal: gone.signal, class, tail }
    }
}

impl Drop for GoneOnDrop<'_> {
    fn drop(&mut self) {
        let broke_off = || did_not_run(FailureClass::Unknown, "its driver broke off".to_owned());
        let exit = self.exit.take().unwrap_or_else(broke_off);
        self.driver.tell(Input::Gone { spawn: self.spawn, exit });
    }
}

/// Waits until the engine serves; how many requests at a time, or why it is of no use.
async fn become_ready(
    (manifest, endpoint, pid): (Arc<Manifest>, Endpoint, u32),
    launch: Arc<Launch>,
) -> Result<u32, String> {
    let question = Question {
        endpoint: endpoint.clone(),
        path: manifest.ready.path.clone(),
        ready_status: manifest.ready.status,
        pid,
    };
    question.until_ready().await;
    if let Some(probe) = manifest.probe(&launch.model.capabilities) {
        let (status, answer) = exchange(&endpoint, &probe.path, Some(probe.body.clone()))
            .await
            .map_err(|error| format!("says it is ready, but a first inference failed: {}", chain(&error)))?;
        if status != 200 {
            let answer = String::from_utf8_lossy(&answer[..answer.len().min(300)]).into_owned();
            return Err(format!("says it is ready, but a first inference was answered with {status}: {answer}"));
        }
    }
    let Some(slots) = &manifest.slots else { return Ok(launch.plan.slots) };
    let told = exchange(&endpoint, &slots.path, None).await.ok();
    let width = told.and_then(|(_, body)| manifest.slots(std::str::from_utf8(&body).ok()?)).map(|slots| slots.n_all);
    Ok(width.unwrap_or(launch.plan.slots))
}

/// Read by harnesses: `[<engine>] launch {json}`.
fn launch_line(launch: &Launch, pid: u32) -> String {
    let plan = &launch.plan;
    let devices: Vec<String> = launch.claim.device.keys().map(ToString::to_string).collect();
    let line = serde_json::json!({
        "pid": pid,
        "key": launch.key.to_string(),
        "program": launch.facts.program,
        "model": launch.model.id.as_str(),
        "backend": if devices.is_empty() { "cpu" } else { "gpu" },
        "contextPerSlot": plan.context_per_slot,
        "contextTotal": u64::from(plan.context_per_slot) * u64::from(plan.slots),
        "slots": plan.slots,
        "kvCacheType": plan.kv.as_str(),
        "devices": devices,
    });
    format!("[{}] launch {line}", launch.key.provider())
}

fn did_not_run(class: FailureClass, why: String) -> Exit {
    Exit { class: Some(class), tail: vec![why], ..Exit::default() }
}

fn number_of(signal: StopSignal) -> i32 {
    match signal {
        StopSignal::Term => libc::SIGTERM,
        StopSignal::Int => libc::SIGINT,
    }
}

fn class_of_error(error: &LaunchError) -> FailureClass {
    match error {
        LaunchError::EngineMissing { .. } => FailureClass::EngineMissing,
        _ => FailureClass::Unknown,
    }
}

fn class_of_signal(signal: i32) -> Option<FailureClass> {
    match signal {
        libc::SIGKILL => Some(FailureClass::Killed),
        libc::SIGABRT | libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE => Some(FailureClass::Assertion),
        _ => None,
    }
}

fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source()).map(ToString::to_string);
    std::iter::once(error.to_string()).chain(causes).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_says_who_is_to_blame() {
        assert_eq!(class_of_signal(libc::SIGKILL), Some(FailureClass::Killed));
        assert_eq!(class_of_signal(libc::SIGABRT), Some(FailureClass::Assertion));
        assert_eq!(class_of_signal(libc::SIGTERM), None);
    }

    #[test]
    fn an_error_is_told_with_its_causes() {
        let source = io::Error::from_raw_os_error(libc::ENOENT);
        let told = chain(&LaunchError::EngineMissing { program: "/no/engine".into(), source });
        assert_eq!(told, "cannot execute /no/engine: No such file or directory (os error 2)");
    }
}
