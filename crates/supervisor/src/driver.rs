//! [`Driver`]: one task per child, from its start to its end. It speaks to the loop only by inputs.
//!
//! ```text
//! order ─► launch ─► Launched ─► loading ─► Ready ─► serving ─► Gone
//!             │                  │ lines, reports, growth: Progress
//!             └─ failed ─────────┴─ ended ──────────────────────► Gone
//! ```
use crate::{
    Engine, EngineOrder, Gone, Heard, Launcher, Polite, Source,
    address::{Address, address},
    check::{Checker, sentence},
    ending::{exit_of, failed_launch, oom_kills, with_oom_kills},
    exchange::exchange,
    handle::Post,
    lookout::Lookout,
    looks::Looks,
    meter::{Meter, Report, Watched},
    probe::Question,
    pulse::Pulse,
    shell::post,
    vigil::{ProbeTimes, Vigil},
};
use motorpool_catalog::{Catalog, LaunchValues, Manifest, Model, StopSignal, Transport};
use motorpool_pool::{Build, Exit, Facts, Input, Launch, Probe, Probed, Split, StartFault};
use motorpool_vocab::{Endpoint, EngineKey, FailureClass, Spawn};
use serde::Serialize;
use std::{
    collections::{BTreeSet, HashMap},
    ffi::{OsStr, OsString},
    io,
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    pin::pin,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, MissedTickBehavior, interval},
};

/// The loop hears of life so often at most, whatever an engine prints.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// How often growth of memory, I/O and processor time is looked for.
const PULSE_EVERY: Duration = Duration::from_secs(2);

/// What all drivers and checks share.
#[derive(Debug)]
pub(crate) struct Workshop {
    pub(crate) launcher: Launcher,
    pub(crate) catalog: Arc<Catalog>,
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
}

impl Workshop {
    /// Looks at program and model file. Blocks.
    pub(crate) fn check(&self, model: &Model, avoid: &BTreeSet<Build>) -> Result<Facts, StartFault> {
        match self.catalog.manifest(&model.engine) {
            Some(manifest) => self.checker.check(manifest, model, avoid),
            None => Err(StartFault {
                class: FailureClass::EngineMissing,
                message: format!("no engine is called `{}`", model.engine),
                tail: vec![],
            }),
        }
    }
}

/// What the loop wants of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    StopPolitely,
    Kill,
    Probe(Probe),
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
        let (progress_at, reports, vigil) = (None, Reports::Ours, None);
        (sender, Self { spawn, launch, workshop, inbox, commands, told, progress_at, report, reports, vigil })
    }

    pub(crate) fn key(&self) -> &EngineKey {
        &self.launch.key
    }

    /// The whole life of the child. Its end is told even when this breaks off; dropping the engine killed it then.
    pub(crate) async fn run(mut self, log: PathBuf) {
        let mut report = GoneOnDrop { inbox: self.inbox.clone(), spawn: self.spawn, exit: None };
        report.exit = Some(self.live(log).await);
    }

    async fn live(&mut self, log: PathBuf) -> Exit {
        let Some(manifest) = self.workshop.catalog.manifest(&self.launch.model.engine).cloned() else {
            return failed_launch(FailureClass::EngineMissing, "its engine is not in the catalog".into());
        };
        let endpoint = match self.pick_endpoint(&manifest) {
            Ok(endpoint) => endpoint,
            Err(error) => return failed_launch(FailureClass::BindFailed, format!("no port is free: {error}")),
        };
        let order = self.order(&manifest, &endpoint, log);
        let kills = oom_kills().await;
        let mut engine = match self.workshop.launcher.launch(order).await {
            Ok(engine) => engine,
            Err(error) => return failed_launch(error.class(), sentence(&error)),
        };
        let pid = engine.process().pid;
        self.tell(Input::Launched { spawn: self.spawn, pid });
        let files = self.launch.facts.files.iter().map(|(id, _)| *id).collect();
        let watched = self.workshop.meter.watch(self.spawn, engine.process(), files);
        self.log_launch(pid);
        let question =
            Question { endpoint, path: manifest.ready.path.clone(), ready_status: manifest.ready.status, pid };
        let gone = if let Some(gone) = self.load(&mut engine, &manifest, &question).await {
            gone
        } else {
            let inference = manifest.probe(&self.launch.model.capabilities).cloned();
            let times = self.workshop.probes;
            self.vigil = Some(Vigil::new(question.endpoint.clone(), Arc::clone(&manifest), inference, times));
            self.serve(&mut engine, &manifest, &watched).await
        };
        let own = gone.oom_kills;
        // Of two counts of before its death, the later one.
        let before = kills.max(self.workshop.meter.kills_before_now());
        with_oom_kills(exit_of(pid, gone, self.told, &manifest), own, (before, oom_kills().await))
    }

    /// A socket of its own, or a port that is free now; should somebody else take that, the engine says so.
    fn pick_endpoint(&self, manifest: &Manifest) -> io::Result<Endpoint> {
        Ok(match manifest.transport {
            Transport::Unix => Endpoint::Unix(self.workshop.run.join(format!("e{}.sock", self.spawn))),
            Transport::Tcp => Endpoint::Tcp(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port()),
        })
    }

    fn order(&self, manifest: &Manifest, endpoint: &Endpoint, log: PathBuf) -> EngineOrder {
        let Launch { key, model, facts, plan, claim, .. } = &*self.launch;
        let mut values =
            LaunchValues::new(model, facts.model_path.clone(), endpoint.clone(), self.workshop.empty.clone());
        values.context_per_slot = plan.context_per_slot;
        values.slots = plan.slots;
        plan.kv.as_str().clone_into(&mut values.kv_type);
        values.batch = motorpool_catalog::Batch::for_model(&model.capabilities, plan.context_per_slot);
        if let Some(split) = &self.launch.split {
            let ids: Vec<_> = split.devices.iter().map(|(id, _)| id.clone()).collect();
            let gpus = self.workshop.lookout.gpus_for(&facts.program);
            place(&mut values, (split, address(&ids, &gpus, |name| manifest.passes(name))));
        } else if self.workshop.lookout.is_without_cards() {
            place(&mut values, (&Split::default(), None));
        }
        let parent = |name: &str| self.workshop.environment.get(OsStr::new(name)).cloned();
        let environment = manifest.environment(&parent, &values);
        let socket = if let Endpoint::Unix(path) = endpoint { Some(path.clone()) } else { None };
        EngineOrder {
            spawn: self.spawn,
            key: key.clone(),
            claim: claim.clone(),
            program: facts.program.clone(),
            args: manifest.command(&values),
            environment: environment.into_iter().map(|(name, value)| (name.into(), value)).collect(),
            cwd: self.workshop.run.clone(),
            log: Some(log),
            socket,
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
                    if pulse.has_changed().await {
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
                    Some(Heard::Gone(gone)) => return gone,
                    None => return Gone::default(),
                },
            }
        }
    }

    /// Nobody to command any more means that the loop is gone, and nothing may outlive it: the end is awaited.
    async fn obey(&mut self, command: Option<Command>, engine: &mut Engine, manifest: &Manifest) -> Option<Gone> {
        if let Some(Command::Probe(probe)) = command {
            self.probe(probe);
            return None;
        }
        self.told = Told::ToEnd;
        match command {
            Some(Command::StopPolitely) => engine.ask_to_end(politely(manifest)).await,
            Some(Command::Kill | Command::Probe(_)) => engine.kill().await,
            None => {
                engine.kill().await;
                return Some(engine.until_gone().await);
            }
        }
        None
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

    /// Any line is a sign of life; a report says how far it is.
    fn on_line(&mut self, source: Source, text: &str, manifest: &Manifest) -> Option<motorpool_catalog::Heard> {
        let report = if source == Source::Stdout { manifest.progress(text) } else { None };
        match report {
            Some(motorpool_catalog::Heard::Loading { per_mille }) => {
                self.reports = Reports::Its;
                self.progress(Some(per_mille));
            }
            Some(motorpool_catalog::Heard::Ready) => self.progress(Some(1000)),
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

    fn log_launch(&self, pid: u32) {
        let Launch { key, model, facts, plan, split, claim, .. } = &*self.launch;
        let laid_out = split.iter().flat_map(|split| split.devices.iter().map(|(id, _)| id));
        let others = claim.device.keys().filter(|id| !laid_out.clone().any(|known| known == *id));
        let devices: Vec<String> = laid_out.clone().chain(others).map(ToString::to_string).collect();
        let line = LaunchLine {
            pid,
            key: key.to_string(),
            program: facts.program.display().to_string(),
            model: model.id.as_str(),
            backend: if devices.is_empty() { "cpu" } else { "gpu" },
            context_per_slot: plan.context_per_slot,
            context_total: u64::from(plan.context_per_slot) * u64::from(plan.slots),
            slots: plan.slots,
            kv_cache_type: plan.kv.as_str(),
            devices,
        };
        let line = serde_json::to_string(&line).expect("plain values are JSON");
        tracing::info!("[{}] launch {line}", key.provider());
    }
}

/// In thousandths, 990 at most: what is mapped is not ready.
fn share_of(mapped: u64, expected: u64) -> u16 {
    let share = u128::from(mapped) * 1000 / u128::from(expected.max(1));
    u16::try_from(share).unwrap_or(990).min(990)
}

/// Waits until the engine serves: it answers so, has inferred once where its manifest knows how, and has told its
/// slots. How many those are, or why it is of no use.
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
    let shown = exchange(&question.endpoint, &view.path, None).await.ok();
    let slots = shown.and_then(|(_, body)| manifest.slots(std::str::from_utf8(&body).ok()?));
    Ok(slots.map_or(launch.plan.slots, |slots| slots.n_all))
}

/// Where its layers go. A whole whose parts are not known takes everything that its engine can put there.
fn place(values: &mut LaunchValues, (split, address): (&Split, Option<Address>)) {
    values.gpu_layers = Some(split.gpu_layers).filter(|n| *n < u32::MAX).or(values.gpu_layers);
    // Of a whole whose parts are not known, the model's own word stands.
    values.n_cpu_moe = values.n_cpu_moe.max(split.cpu_moe);
    if split.devices.is_empty() && split.gpu_layers == 0 {
        // Without this an engine still computes on a card, in memory that nobody charged.
        values.devices = vec!["none".into()];
        return;
    }
    if let Some(Address { names, visible }) = address {
        values.tensor_split = split.devices.iter().map(|(_, n)| *n).filter(|_| names.len() > 1).collect();
        values.devices = names;
        values.visible = visible.map(|(name, value)| (name.to_owned(), value));
    }
}

/// Our own reason to kill it stands where its last line would.
fn with_verdict(mut gone: Gone, verdict: String) -> Gone {
    gone.tail.push(verdict);
    gone
}

/// Tells the loop of the end, once.
struct GoneOnDrop {
    inbox: mpsc::WeakUnboundedSender<Post>,
    spawn: Spawn,
    exit: Option<Exit>,
}

impl Drop for GoneOnDrop {
    fn drop(&mut self) {
        let broke_off = || failed_launch(FailureClass::Unknown, "its driver broke off".into());
        post(&self.inbox, Input::Gone { spawn: self.spawn, exit: self.exit.take().unwrap_or_else(broke_off) });
    }
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

/// The line of a launch, as harnesses read it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LaunchLine<'a> {
    pid: u32,
    key: String,
    program: String,
    model: &'a str,
    /// What it is charged for, not what it makes of it.
    backend: &'a str,
    context_per_slot: u32,
    context_total: u64,
    slots: u32,
    kv_cache_type: &'a str,
    /// By their stable ids, in the order in which its layers lie on them.
    devices: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_catalog::ModelSource;
    use motorpool_vocab::{DeviceId, ModelId};

    fn placed(split: &Split, gpu_layers: Option<u32>) -> LaunchValues {
        let id = ModelId::new("m").expect("an id");
        let mut model = Model::new(id, "llama-server", ModelSource::File("/m.gguf".into()));
        model.gpu_layers = gpu_layers;
        model.n_cpu_moe = Some(1);
        let mut values = LaunchValues::new(&model, "/m.gguf".into(), Endpoint::Tcp(1), "/empty".into());
        let ids: Vec<_> = split.devices.iter().map(|(id, _)| id.clone()).collect();
        place(&mut values, (split, address(&ids, &[], |_| true)));
        values
    }

    #[test]
    fn what_is_mapped_is_never_all_of_a_load() {
        for (mapped, expected, share) in [(0, 100, 0), (50, 100, 500), (100, 100, 990), (u64::MAX, 1, 990), (5, 0, 990)]
        {
            assert_eq!(share_of(mapped, expected), share, "{mapped} of {expected}");
        }
    }

    fn split(devices: &[(&str, u32)], gpu_layers: u32) -> Split {
        let devices = devices.iter().map(|(id, n)| (DeviceId((*id).into()), *n)).collect();
        Split { devices, gpu_layers, cpu_moe: 2 }
    }

    #[test]
    fn an_engine_is_told_its_devices_by_name_and_their_shares_when_there_are_several() {
        let two = placed(&split(&[("CUDA0", 20), ("CUDA1", 12)], 32), None);
        assert_eq!((two.gpu_layers, two.n_cpu_moe), (Some(32), 2));
        assert_eq!((two.devices, two.tensor_split), (vec!["CUDA0".to_owned(), "CUDA1".to_owned()], vec![20, 12]));
        let one = placed(&split(&[("Vulkan1", 32)], 32), None);
        assert_eq!((one.devices, one.tensor_split), (vec!["Vulkan1".to_owned()], vec![]));
    }

    #[test]
    fn devices_without_an_address_are_left_to_the_engine() {
        let values = placed(&split(&[("GPU-1a2b3c4d", 9)], 9), None);
        assert_eq!((values.devices, values.visible, values.gpu_layers), (vec![], None, Some(9)));
    }

    #[test]
    fn the_processor_only_is_said_and_a_whole_leaves_what_the_model_says() {
        let processor = placed(&split(&[], 0), None);
        assert_eq!((processor.gpu_layers, processor.devices), (Some(0), vec!["none".to_owned()]));
        assert_eq!(placed(&split(&[("CUDA0", 1)], u32::MAX), Some(7)).gpu_layers, Some(7));
        assert_eq!(placed(&split(&[("CUDA0", 1)], u32::MAX), None).gpu_layers, None);
        let whole = Split { cpu_moe: 0, ..split(&[("CUDA0", 1)], u32::MAX) };
        assert_eq!(placed(&whole, None).n_cpu_moe, 1);
    }
}
