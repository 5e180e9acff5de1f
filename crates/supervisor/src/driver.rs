//! [`Driver`]: one task per child, from its start to its end. It speaks to the loop only by inputs.
//!
//! ```text
//! order ─► launch ─► Launched ─► loading ─► Ready ─► serving ─► Gone
//!             │                  │ lines, reports, growth: Progress
//!             └─ failed ─────────┴─ ended ─► Ended? ────────────► Gone
//! ```
use crate::{
    Engine, Gone, Heard, LaunchError, Launcher, Leftover, Polite, Source,
    check::{Checker, sentence},
    ending::{exit_of, failed_launch, oom_kills, with_oom_kills},
    exchange::exchange,
    handle::Post,
    keeping::Keeping,
    lookout::Lookout,
    looks::Looks,
    meter::{Meter, Report, Watched},
    order::{log_launch, order_of},
    place::Place,
    probe::Question,
    pulse::Pulse,
    shell::post,
    state_files::{Folder, StateFiles},
    vigil::{ProbeTimes, Vigil},
};
use motorpool_catalog::{Manifest, Model, StopSignal};
use motorpool_pool::{Build, Exit, Facts, Input, Launch, NotKept, Probe, Probed, SessionsKept, StartFault, Writing};
use motorpool_vocab::{EngineKey, FailureClass, Spawn};
use std::{
    collections::{BTreeSet, HashMap},
    ffi::OsString,
    io,
    path::PathBuf,
    pin::pin,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::{JoinHandle, spawn_blocking},
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};

/// The loop hears of life so often at most, whatever an engine prints.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// How often growth of memory, I/O and processor time is looked for.
const PULSE_EVERY: Duration = Duration::from_secs(2);

/// How often an engine is looked for that outlives its driver and its own death.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What all drivers and checks share.
#[derive(Debug)]
pub(crate) struct Workshop {
    pub(crate) launcher: Launcher,
    /// Our own.
    pub(crate) environment: HashMap<OsString, OsString>,
    /// Where sockets are.
    pub(crate) run: PathBuf,
    /// A directory without files.
    pub(crate) empty: PathBuf,
    pub(crate) checker: Checker,
    pub(crate) meter: Arc<Meter>,
    pub(crate) lookout: Arc<Lookout>,
    pub(crate) looks: Looks,
    pub(crate) probes: ProbeTimes,
    pub(crate) state_files: Arc<StateFiles>,
}

impl Workshop {
    /// Looks at program and model file. Blocks.
    pub(crate) fn check(&self, of: (&Model, &Manifest), avoid: &BTreeSet<Build>) -> Result<Facts, StartFault> {
        self.checker.check(of.1, of.0, avoid)
    }
}

/// What the loop wants of a child.
#[derive(Debug)]
pub(crate) enum Command {
    StopPolitely,
    Kill,
    Probe(Probe),
    /// What a slot holds of a session is written to disk.
    Write {
        slot: u32,
        session: Arc<str>,
        writing: Writing,
    },
    /// It is read back. `done` is let go of when that was tried.
    ReadBack {
        slot: u32,
        session: Arc<str>,
        done: oneshot::Sender<()>,
    },
}

/// Whether a child was told to end: then its end is no failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Nothing,
    ToEnd,
    /// By us, because it was of no use.
    ToDie,
}

pub(crate) struct Driver {
    spawn: Spawn,
    launch: Arc<Launch>,
    workshop: Arc<Workshop>,
    inbox: mpsc::WeakUnboundedSender<Post>,
    commands: mpsc::UnboundedReceiver<Command>,
    told: Told,
    /// When the loop last heard of life.
    progress_at: Option<Instant>,
    report: Report,
    /// Whether its engine told how far it is.
    reports: Reports,
    /// How it is asked, once it serves.
    vigil: Option<Vigil>,
    /// How contexts of its sessions are kept, if they are, once it serves.
    keeping: Option<Keeping>,
}

/// Who tells how far a load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reports {
    /// The engine.
    Its,
    /// The bytes that it has mapped, of those that are to be.
    Ours,
}

impl Driver {
    pub(crate) fn new(
        spawn: Spawn,
        launch: Arc<Launch>,
        workshop: &Arc<Workshop>,
        inbox: mpsc::WeakUnboundedSender<Post>,
    ) -> (mpsc::UnboundedSender<Command>, Self) {
        let (sender, commands) = mpsc::unbounded_channel();
        let workshop = Arc::clone(workshop);
        let (told, report) = (Told::Nothing, Report::default());
        let (progress_at, reports, vigil, keeping) = (None, Reports::Ours, None, None);
        let driver =
            Self { spawn, launch, workshop, inbox, commands, told, progress_at, report, reports, vigil, keeping };
        (sender, driver)
    }

    pub(crate) fn key(&self) -> &EngineKey {
        &self.launch.key
    }

    /// The whole life of the child. Its end is told even when this breaks off; dropping the engine has it killed then,
    /// and its end is told when nothing of it is found any more.
    pub(crate) async fn run(mut self, log: PathBuf) {
        let (spawn, inbox, workshop) = (self.spawn, self.inbox.clone(), Arc::clone(&self.workshop));
        let life = tokio::spawn(async move { self.live(log).await });
        let sweep = move || workshop.launcher.settle_one(spawn);
        let exit = end_of(spawn, life, sweep).await;
        post(&inbox, Input::Gone { spawn, exit });
    }

    async fn live(&mut self, log: PathBuf) -> Exit {
        let manifest = Arc::clone(&self.launch.manifest);
        let place = match Place::make(&self.workshop.run, self.spawn) {
            Ok(place) => place,
            Err(error) => {
                return failed_launch(FailureClass::Unknown, format!("cannot make a folder for its socket: {error}"));
            }
        };
        let endpoint = match place.pick_endpoint(manifest.transport) {
            Ok(endpoint) => endpoint,
            Err(error) => return failed_launch(FailureClass::BindFailed, format!("no port is free: {error}")),
        };
        let folder = self.open_folder().await;
        let mut order = order_of((&place, &self.launch), &self.workshop, (&manifest, &endpoint, folder.as_deref()));
        order.log = Some(log);
        let kills = oom_kills().await;
        let stop = told_to_end(&mut self.commands);
        let mut engine = match self.workshop.launcher.launch_unless(order, stop).await {
            Ok(engine) => engine,
            // It did not fail.
            Err(LaunchError::NotWanted) => return Exit::default(),
            Err(error) => return failed_launch(error.class(), sentence(&error)),
        };
        let pid = engine.process().pid;
        self.tell(Input::Launched { spawn: self.spawn, pid });
        let files = self.launch.facts.files.iter().map(|(id, _)| *id).collect();
        let watched = self.workshop.meter.watch(self.spawn, engine.process(), files);
        log_launch(&self.launch, pid);
        let question =
            Question { endpoint, path: manifest.ready.path.clone(), ready_status: manifest.ready.status, pid };
        let gone = if let Some(gone) = self.load(&mut engine, &manifest, &question).await {
            gone
        } else {
            let inference = manifest.probe(&self.launch.model.capabilities).cloned();
            let times = self.workshop.probes;
            self.keeping = folder.zip(manifest.session_state.clone()).map(|(folder, calls)| {
                let (key, endpoint) = (self.key().clone(), question.endpoint.clone());
                Keeping { key, spawn: self.spawn, endpoint, calls, folder }
            });
            self.vigil = Some(Vigil::new(question.endpoint.clone(), Arc::clone(&manifest), inference, times));
            self.serve(&mut engine, &manifest, &watched).await
        };
        let own = gone.oom_kills;
        // Of two counts of before its death, the later one.
        let before = kills.max(self.workshop.meter.kills_before_now());
        with_oom_kills(exit_of(pid, gone, self.told, &manifest), own, (before, oom_kills().await))
    }

    /// Where it keeps contexts of its sessions, if it does.
    async fn open_folder(&self) -> Option<Arc<Folder>> {
        let key = self.key().clone();
        match self.launch.sessions {
            SessionsKept::Yes => {}
            SessionsKept::No(why @ NotKept::Window) => {
                tracing::info!(%key, "contexts of sessions do not outlive it: {why}");
                return None;
            }
            SessionsKept::No(_) => return None,
        }
        let (files, launch) = (Arc::clone(&self.workshop.state_files), Arc::clone(&self.launch));
        let opened = spawn_blocking(move || {
            let identity = (&*launch.facts.learned.about, launch.plan.kv.as_str());
            files.folder(launch.key.model(), identity)
        });
        match opened.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(folder) => Some(Arc::new(folder)),
            Err(error) => {
                tracing::warn!(%key, %error, "contexts of its sessions cannot be kept");
                None
            }
        }
    }

    /// Until it is ready (`None`), or gone.
    async fn load(&mut self, engine: &mut Engine, manifest: &Manifest, question: &Question) -> Option<Gone> {
        let nudge = Notify::new();
        let launch = Arc::clone(&self.launch);
        let mut ready = pin!(become_ready(question, &nudge, (manifest, &launch)));
        let mut pulse = Pulse::of(question.pid);
        let mut looks = interval(PULSE_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                command = self.commands.recv() => {
                    if let Some(gone) = self.obey(command, engine, manifest).await {
                        return Some(gone);
                    }
                }
                heard = engine.hear() => match heard {
                    Some(Heard::Line { source, text, n_dropped }) => {
                        self.report.on_line(source, &text, n_dropped);
                        if self.on_line(source, &text, manifest) == Some(motorpool_catalog::Heard::Ready) {
                            nudge.notify_one();
                        }
                    }
                    Some(Heard::Ended(so_far)) => self.ended(question.pid, so_far, manifest),
                    Some(Heard::Gone(gone)) => return Some(gone),
                    None => return Some(Gone::default()),
                },
                outcome = &mut ready => match outcome {
                    Ok(width) => {
                        let endpoint = question.endpoint.clone();
                        self.tell(Input::Ready { spawn: self.spawn, endpoint, width });
                        return None;
                    }
                    Err(verdict) => {
                        self.told = Told::ToDie;
                        engine.kill().await;
                        return Some(with_verdict(engine.until_gone().await, verdict));
                    }
                },
                _ = looks.tick() => {
                    if pulse.is_felt().await {
                        self.progress(self.mapped(&pulse));
                    }
                }
            }
        }
    }

    /// From ready to gone.
    async fn serve(&mut self, engine: &mut Engine, manifest: &Manifest, watched: &Watched) -> Gone {
        watched.ready(self.report.whole());
        self.workshop.lookout.look();
        loop {
            tokio::select! {
                biased;
                command = self.commands.recv() => {
                    if let Some(gone) = self.obey(command, engine, manifest).await {
                        return gone;
                    }
                }
                heard = engine.hear() => match heard {
                    Some(Heard::Line { source, text, n_dropped }) => {
                        // A line may come after what it was printed before. Once all are there, more would be others.
                        if self.report.whole().is_none() {
                            self.report.on_line(source, &text, n_dropped);
                            self.report.whole().into_iter().for_each(|whole| watched.ready(Some(whole)));
                        }
                    }
                    Some(Heard::Ended(so_far)) => self.ended(engine.process().pid, so_far, manifest),
                    Some(Heard::Gone(gone)) => return gone,
                    None => return Gone::default(),
                },
            }
        }
    }

    /// Its first process ended by itself, and the rest of its tree is being killed: who waits for it to serve is told now.
    fn ended(&self, pid: u32, so_far: Gone, manifest: &Manifest) {
        if self.told == Told::Nothing {
            let own = so_far.oom_kills;
            // What the kernel did elsewhere is known only by its end.
            let exit = with_oom_kills(exit_of(pid, so_far, self.told, manifest), own, (None, None));
            self.tell(Input::Ended { spawn: self.spawn, exit });
        }
    }

    /// Nobody to command any more means that the loop is gone, and nothing may outlive it: the end is awaited.
    async fn obey(&mut self, command: Option<Command>, engine: &mut Engine, manifest: &Manifest) -> Option<Gone> {
        match command {
            Some(Command::Probe(probe)) => self.probe(probe),
            Some(Command::Write { slot, session, writing }) => self.write((slot, session), writing),
            Some(Command::ReadBack { slot, session, done }) => {
                if let Some(keeping) = self.keeping.clone() {
                    tokio::spawn(async move {
                        keeping.read_back(slot, session).await;
                        drop(done);
                    });
                }
            }
            Some(Command::StopPolitely) => {
                self.told = Told::ToEnd;
                engine.ask_to_end(politely(manifest)).await;
            }
            Some(Command::Kill) => {
                self.told = Told::ToEnd;
                engine.kill().await;
            }
            None => {
                self.told = Told::ToEnd;
                engine.kill().await;
                return Some(engine.until_gone().await);
            }
        }
        None
    }

    /// In a task of its own, as for a probe.
    fn write(&self, what: (u32, Arc<str>), writing: Writing) {
        let (spawn, inbox, keeping) = (self.spawn, self.inbox.clone(), self.keeping.clone());
        tokio::spawn(async move {
            if let Some(keeping) = keeping {
                keeping.write(what, writing).await;
            }
            post(&inbox, Input::SlotWritten { spawn, writing });
        });
    }

    /// Asked in a task of its own: the engine's output is read meanwhile.
    fn probe(&mut self, probe: Probe) {
        let (spawn, inbox) = (self.spawn, self.inbox.clone());
        let question = self.vigil.as_mut().map(|vigil| vigil.question(probe));
        tokio::spawn(async move {
            let probed = match question {
                Some(question) => question.await,
                None => Probed::Missed,
            };
            post(&inbox, Input::Probed { spawn, probe, probed });
        });
    }

    /// Any line is a sign of life, but for one that tells of a request that we make ourselves; a report says how far it is.
    fn on_line(&mut self, source: Source, text: &str, manifest: &Manifest) -> Option<motorpool_catalog::Heard> {
        let report = if source == Source::Stdout { manifest.progress(text) } else { None };
        match report {
            Some(motorpool_catalog::Heard::Loading { per_mille }) => {
                self.reports = Reports::Its;
                self.progress(Some(per_mille));
            }
            Some(motorpool_catalog::Heard::Ready) => self.progress(Some(1000)),
            // Our own probes would keep it alive.
            None if names_path(text, &manifest.ready.path) => {}
            None => self.progress(None),
        }
        report
    }

    /// How far it is by what it has mapped of its files, where it does not say so itself: never all of it.
    fn mapped(&self, pulse: &Pulse) -> Option<u16> {
        let expected: u64 = self.launch.facts.files.iter().map(|(_, bytes)| bytes.get()).sum();
        let known = self.reports == Reports::Ours && expected > 0;
        known.then(|| share_of(pulse.mapped(), expected))
    }

    /// A report always counts; life without one is told now and then.
    fn progress(&mut self, per_mille: Option<u16>) {
        let now = Instant::now();
        let recent = self.progress_at.is_some_and(|at| now.duration_since(at) < PROGRESS_EVERY);
        if per_mille.is_some() || !recent {
            self.progress_at = Some(now);
            self.tell(Input::Progress { spawn: self.spawn, per_mille });
        }
    }

    fn tell(&self, input: Input) {
        post(&self.inbox, input);
    }
}

/// Whether a line names a path of requests, as those of an access log do: whole, alone or behind a host.
fn names_path(line: &str, path: &str) -> bool {
    let is_of_path = |c: char| c.is_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '%' | '~');
    let is_behind_none = |before: &str| path.len() > 1 || !before.ends_with(is_of_path);
    line.match_indices(path)
        .any(|(at, _)| !line[at + path.len()..].starts_with(is_of_path) && is_behind_none(&line[..at]))
}

/// Until a child that is not there yet is told to end, or nobody is there to tell it. Nothing else is wanted of one.
async fn told_to_end(commands: &mut mpsc::UnboundedReceiver<Command>) {
    loop {
        match commands.recv().await {
            Some(Command::Kill | Command::StopPolitely) | None => return,
            Some(Command::Probe(_) | Command::Write { .. } | Command::ReadBack { .. }) => {}
        }
    }
}

/// In thousandths, 990 at most: what is mapped is not ready.
fn share_of(mapped: u64, expected: u64) -> u16 {
    let share = u128::from(mapped) * 1000 / u128::from(expected.max(1));
    u16::try_from(share).unwrap_or(990).min(990)
}

/// Waits until the engine serves: it answers so, has inferred once where its manifest knows how, and has told its
/// slots. How many those are, or why it is of no use. The inference has no time but that of the load: a first one may
/// compile for minutes, and one that does nothing is found to stall. Slots that are not shown are those of the plan.
async fn become_ready(
    question: &Question,
    nudge: &Notify,
    (manifest, launch): (&Manifest, &Launch),
) -> Result<u32, String> {
    question.until_ready(nudge).await;
    if let Some(probe) = manifest.probe(&launch.model.capabilities) {
        let answered = exchange(&question.endpoint, &probe.path, Some(probe.body.clone())).await;
        let (status, answer) = answered
            .map_err(|error| format!("says it is ready, but a first inference failed: {}", sentence(&error)))?;
        if !(200..300).contains(&status) {
            let answer = String::from_utf8_lossy(&answer[..answer.len().min(300)]).into_owned();
            return Err(format!("says it is ready, but a first inference was answered with {status}: {answer}"));
        }
    }
    let Some(view) = &manifest.slots else { return Ok(launch.plan.slots) };
    let shown = timeout(ProbeTimes::default().inference, exchange(&question.endpoint, &view.path, None)).await;
    let slots = shown.ok().and_then(Result::ok).and_then(|(_, body)| manifest.slots(std::str::from_utf8(&body).ok()?));
    Ok(slots.map_or(launch.plan.slots, |slots| slots.n_all))
}

/// Our own reason to kill it stands where its last line would.
fn with_verdict(mut gone: Gone, verdict: String) -> Gone {
    gone.tail.push(verdict);
    gone
}

/// How a child ended. Where its driver broke off, that is known once `sweep` finds nothing of it.
async fn end_of(
    spawn: Spawn,
    life: JoinHandle<Exit>,
    sweep: impl Fn() -> Option<Leftover> + Clone + Send + 'static,
) -> Exit {
    let error = match life.await {
        Ok(exit) => return exit,
        Err(error) => error,
    };
    tracing::error!(%spawn, %error, "the driver of an engine broke off: the engine is killed");
    loop {
        match spawn_blocking(sweep.clone()).await {
            Ok(None) => break,
            Ok(Some(left)) => tracing::error!(?left, "an engine without a driver is not known to be gone"),
            Err(error) => tracing::error!(%spawn, %error, "an engine without a driver is not found"),
        }
        sleep(SWEEP_EVERY).await;
    }
    failed_launch(FailureClass::Unknown, "its driver broke off".into())
}

fn politely(manifest: &Manifest) -> Polite {
    match &manifest.stop.stdin_line {
        Some(line) => Polite::Line(line.clone()),
        None => Polite::Signal(match manifest.stop.signal {
            StopSignal::Term => libc::SIGTERM,
            StopSignal::Int => libc::SIGINT,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Remains;
    use parking_lot::Mutex;

    #[tokio::test(start_paused = true)]
    async fn a_child_whose_driver_broke_off_is_gone_once_nothing_of_it_is_found() {
        let life = tokio::spawn(async { panic!("a defect") });
        let left = |remains| Some(Leftover { spawn: Spawn(1), key: "engine:model:0".into(), remains });
        let unseen = left(Remains::Unseen("too many open files".into()));
        let found =
            Arc::new(Mutex::new(vec![None, unseen, left(Remains::Left(vec![])), left(Remains::Left(vec![7, 8]))]));
        let sweeps = Arc::clone(&found);
        let exit = end_of(Spawn(1), life, move || sweeps.lock().pop().expect("no more than needed")).await;
        assert!(found.lock().is_empty(), "it was looked for until nothing was found");
        assert_eq!(exit.class, Some(FailureClass::Unknown));
        let lived = Exit { code: Some(3), ..Exit::default() };
        let life = tokio::spawn(async move { lived });
        let exit = end_of(Spawn(1), life, || panic!("its keeper has reaped it")).await;
        assert_eq!(exit.code, Some(3));
    }

    #[test]
    fn lines_of_our_own_probes_are_told_from_all_others() {
        for line in
            ["\"GET /health HTTP/1.1\" 503", "GET http://127.0.0.1:8000/health?x=1", "/health", "path=/health: 503"]
        {
            assert!(names_path(line, "/health"), "{line}");
        }
        for line in ["", "health", "/healthy", "loading /health/model.gguf", "layer 7 of 9"] {
            assert!(!names_path(line, "/health"), "{line}");
        }
        assert!(names_path("GET / HTTP/1.1", "/") && !names_path("loading /models/x", "/"));
    }

    #[test]
    fn what_is_mapped_is_never_all_of_a_load() {
        for (mapped, expected, share) in [(0, 100, 0), (50, 100, 500), (100, 100, 990), (u64::MAX, 1, 990), (5, 0, 990)]
        {
            assert_eq!(share_of(mapped, expected), share, "{mapped} of {expected}");
        }
    }
}
