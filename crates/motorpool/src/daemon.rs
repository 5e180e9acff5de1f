//! [`Daemon`]: the wiring of everything that serves.
//!
//! ```text
//! directories ─► state lock, settled journal, the loop ─► listeners ─► gateway
//!                                                                        │ SIGTERM, SIGINT, POST …/shutdown
//! exit 0 ◄─ external servers left ◄─ everything ended ◄─ drained, at most `shutdown.grace` ◄──┘ a second signal: at once
//! ```
//!
//! SIGHUP, POST …/reload, a watched file ─► `reload.rs`: the files read again, and everybody told.
//!
//! Until everything has ended it goes on answering: 503 to new work, and its state to operators.
//!
//! The lock comes first: whoever holds it owns the run directory, so an old control socket there is ours to remove.
use crate::{
    args::Reach,
    dirs::{self, Dirs},
    disk,
    engine::{self, calibrate::calibration_of, devices::Keep, discover},
    exit::{Exit, Failure, chain},
    external,
    history::History,
    host, listen,
    log::{self, Loudness},
    machine,
    model::{
        pull::{Wanted, pull_apart},
        store::{Presence, Store},
    },
    reload::{Ending, Reloader, Told},
    settings::{self, Settings},
    systemd::{self, Notifier},
    terms::pool_config,
    traces::{self, Exporter},
};
use motorpool::servers::Servers;
use motorpool_catalog::{Config, Listen, Manifest, Model, ModelSource};
use motorpool_gateway::{Gateway, GatewaySettings, KeysNeeded, Listener, Pull};
use motorpool_pool::{Host, StartFault};
use motorpool_supervisor::{
    Devices, Found, LocalServers, LockError, OpenError, PoolHandle, ProbeTimes, Survey, Surveys,
};
use motorpool_vocab::FailureClass;
use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    signal::unix::{Signal, SignalKind, signal},
    sync::{Notify, watch},
    task::{AbortHandle, JoinHandle},
};

/// What was cut gets its error event in this time.
const LAST_BYTES_WITHIN: Duration = Duration::from_secs(1);

/// What is told by whoever finds neither program nor file.
fn fault(class: FailureClass, message: String) -> StartFault {
    StartFault { class, message, tail: Vec::new() }
}

/// The program of an engine: the first of its chain.
pub(crate) fn locate_program(dirs: &Dirs, manifest: &Manifest) -> Result<PathBuf, StartFault> {
    locate_programs(dirs, manifest).map(|mut chain| chain.swap_remove(0))
}

/// Every build of an engine that is here, the preferred one first, and never none. They are looked for at each start: one
/// that was installed meanwhile is found.
pub(crate) fn locate_programs(dirs: &Dirs, manifest: &Manifest) -> Result<Vec<PathBuf>, StartFault> {
    let configured = manifest.program.configured.as_deref();
    if let Some(path) = configured.filter(|path| !disk::is_executable(path)) {
        let message = format!("{} is no program; correct `program` in [engine.{}]", path.display(), manifest.name);
        return Err(fault(FailureClass::EngineMissing, message));
    }
    let chain: Vec<_> = discover::find(dirs, manifest, configured).into_iter().map(|found| found.program).collect();
    if chain.is_empty() {
        let name = &manifest.name;
        let message = format!("{name} is not on this machine: {}", engine::cure_of_absence(name));
        return Err(fault(FailureClass::EngineMissing, message));
    }
    Ok(chain)
}

pub(crate) fn is_used(settings: &Settings, manifest: &Manifest) -> bool {
    settings.catalog.models().any(|model| model.engine == manifest.name)
}

/// The file of a model.
pub(crate) fn locate_model(store: &Store, model: &Model) -> Result<PathBuf, StartFault> {
    let path = store.path_of(model);
    match store.presence(model) {
        Presence::Absent | Presence::Partial => {
            let message = if let ModelSource::File(path) = &model.source {
                format!("there is no {}; put it there, or correct `source` of `{}`", path.display(), model.id)
            } else {
                format!("`{0}` is not on this machine; `motorpool model pull {0}` fetches it", model.id)
            };
            Err(fault(FailureClass::ModelMissing, message))
        }
        // The engine is started after the header of what is there now was checked.
        Presence::Ready | Presence::Changed => Ok(path),
    }
}

/// What the gateway is told; bodies that outgrow memory lie on disk, never in a run directory that is memory too.
fn gateway_settings(dirs: &Dirs, config: &Config) -> Result<GatewaySettings, Failure> {
    let spool = dirs.state.join("spool");
    dirs::make_private(&spool)?;
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let settings = GatewaySettings::new(config, name.filter(|name| !name.is_empty()), spool);
    Ok(GatewaySettings { keys: Some(dirs.keys(config)), ..settings })
}

/// What this machine is when its drivers tell of a device that was not there at the start, or its operator tells otherwise
/// of it.
fn survey_again(dirs: &Dirs, settings: watch::Receiver<Settings>, host: &Host) -> Survey {
    let (dirs, runtime) = (dirs.clone(), Handle::current());
    let ids_of = |host: &Host| host.cards.iter().map(|card| card.id.clone()).collect::<Vec<_>>();
    let before = Mutex::new(ids_of(host));
    Box::new(move |sighted| {
        let settings = settings.borrow().clone();
        let surveyed = runtime.block_on(machine::survey((&dirs, &settings), sighted, Keep::Yes));
        let mut machine = surveyed.inspect_err(|failure| tracing::warn!("{}", failure.what)).ok()?;
        let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
        host::keep_ids(&mut machine.host, &before);
        *before = ids_of(&machine.host);
        machine.say();
        Some(machine.found())
    })
}

/// Starts the loop; from then on the state directory is ours. It goes by what the files say now of this machine whenever it is
/// asked to survey it again.
async fn start_pool(
    dirs: &Dirs,
    settings: &Settings,
    (says, surveys, servers): (&watch::Sender<Settings>, &Surveys, &LocalServers),
) -> Result<PoolHandle, Failure> {
    let (drivers, machine) = machine::look(dirs, settings, Keep::Yes).await?;
    machine.say();
    let Found { host, graphics } = machine.found();
    let format = settings.config.log.format;
    let store = Store::new(dirs);
    let (for_programs, for_calibration) = (dirs.clone(), dirs.clone());
    let shell = motorpool_supervisor::Settings {
        keeper: motorpool::keeper(),
        state: dirs.state.clone(),
        run: dirs.run.clone(),
        environment: std::env::vars_os().filter(|(name, _)| !systemd::is_for_us(name)).collect(),
        discover: Box::new(move |manifest| locate_programs(&for_programs, manifest)),
        locate: Box::new(move |model| locate_model(&store, model)),
        calibrate: Box::new(move |program| calibration_of(&for_calibration, program)),
        devices: Devices {
            drivers,
            graphics,
            servers: servers.clone(),
            survey: survey_again(dirs, says.subscribe(), &host),
            surveys: surveys.clone(),
        },
        panics: settings::panics()?,
        probes: ProbeTimes { liveness: settings.config.health.timeout, inference: settings.config.health.inference },
        state_disk: settings.config.session_state.disk,
        on_denial: Box::new(move |denial| log::deny(format, denial)),
    };
    let pool = pool_config(&settings.config, host)?;
    motorpool_supervisor::start(shell, settings.catalog.clone(), pool).map_err(cannot_open)
}

fn cannot_open(error: OpenError) -> Failure {
    let what = chain(&error);
    match error {
        OpenError::Lock(LockError::Held { pid, .. }) => {
            let stop = pid.map_or_else(|| "stop it".to_owned(), |pid| format!("stop it with `kill {pid}`"));
            Failure::new(Exit::InUse, what, format_args!("{stop}, or give this one another --state-dir"))
        }
        OpenError::Lock(LockError::Unusable { path, .. }) => Failure::new(
            Exit::Denied,
            what,
            format_args!("make {} writable for you, or give another --state-dir", path.display()),
        ),
        OpenError::Journal(_) => {
            Failure::new(Exit::Denied, what, "check the permissions of the state directory, and its disk")
        }
        OpenError::Boot(_) => Failure::new(Exit::Failed, what, "check that /proc is mounted"),
    }
}

/// Fetches models of the catalog for clients that ask for them; what it says goes where our log goes.
fn puller(dirs: &Dirs) -> Pull {
    let dirs = dirs.clone();
    Pull::new(move |catalog, model| {
        Box::pin(pull_apart((dirs.clone(), Arc::clone(catalog)), Wanted::Known(Box::new(model.clone()))))
    })
}

/// A pool that serves.
#[derive(Debug)]
pub(crate) struct Daemon {
    handle: PoolHandle,
    externals: Arc<Servers>,
    gateway: JoinHandle<()>,
    /// What requests took, if it is kept.
    history: Option<History>,
    stop: watch::Sender<bool>,
    /// Somebody on the control socket wants us to end.
    asked: Arc<Notify>,
    addresses: Vec<String>,
    control: PathBuf,
    reloader: Arc<Reloader>,
    /// Watches files, and has what changes reloaded.
    watch: AbortHandle,
    notifier: Notifier,
    /// What requests did, told to whoever collects traces.
    exporter: Option<Exporter>,
}

impl Daemon {
    /// Takes the state directory, binds every address, and serves.
    pub(crate) async fn start(
        dirs: &Dirs,
        settings: &Settings,
        reach: Reach,
        loudness: Loudness,
    ) -> Result<Self, Failure> {
        dirs.make_for_daemon()?;
        let (log, exporter) = traces::begin_log(&settings.config.log, loudness)?;
        raise_descriptors();
        let (says, surveys) = (watch::Sender::new(settings.clone()), Surveys::default());
        let local = LocalServers::new(external::local(&settings.config));
        let handle = start_pool(dirs, settings, (&says, &surveys, &local)).await?;
        let keys = if reach.insecure { KeysNeeded::OnceThereAre } else { KeysNeeded::Always };
        let (mut listeners, addresses) = listen::listeners(dirs, settings, keys).await?;
        let control = dirs.control_socket();
        let bound =
            listen::bind_unix(&control).map_err(|error| listen::cannot(&Listen::Unix(control.clone()), &error))?;
        listeners.push(Listener::Control(bound));
        let (stop, stopped) = watch::channel(false);
        let externals = Arc::new(external::open(dirs, &settings.config, &handle)?);
        let told = GatewaySettings {
            listen: addresses.clone(),
            keys_from_afar: keys,
            outside: externals.outside(),
            ..gateway_settings(dirs, &settings.config)?
        };
        let gateway = Gateway::new(handle.clone(), settings.catalog.clone(), told);
        if let Some(exporter) = &exporter {
            gateway.traces_with(exporter.ties());
        }
        gateway.pulls_with(puller(dirs));
        let history = History::open(&dirs.state, &settings.config.usage).map(|(outlet, history)| {
            gateway.records_to(outlet);
            gateway.remembers_with(history.answers());
            history
        });
        let requests = gateway.handover();
        let told =
            Told { handle: handle.clone(), requests, log, says, surveys, externals: Arc::clone(&externals), local };
        let reloader = Reloader::new(dirs, settings.clone(), told);
        gateway.reloads_with(reloader.for_requests());
        let watch = tokio::spawn(Arc::clone(&reloader).reload_what_changes()).abort_handle();
        let asked = gateway.shutdown_asked();
        let gateway = tokio::spawn(gateway.serve(listeners, stopped));
        for address in &addresses {
            tracing::info!("listening on {address}");
        }
        for manifest in settings.catalog.manifests().filter(|manifest| is_used(settings, manifest)) {
            if let Err(fault) = locate_program(dirs, manifest) {
                tracing::warn!("{}", fault.message);
            }
        }
        let notifier = Notifier::begin(&handle, &addresses);
        Ok(Self {
            handle,
            externals,
            gateway,
            history,
            stop,
            asked,
            addresses,
            control,
            reloader,
            watch,
            notifier,
            exporter,
        })
    }

    /// Where it serves, as people write it.
    pub(crate) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Serves until a signal, or until somebody asks for the end on the control socket; then ends everything.
    pub(crate) async fn serve(mut self, signals: &mut Signals) -> Result<(), Failure> {
        let broken = loop {
            tokio::select! {
                call = signals.next() => match call {
                    Call::Stop => break None,
                    Call::Reload => {
                        let reloader = Arc::clone(&self.reloader);
                        // What came of it is in the log, and a stop does not wait for it.
                        tokio::spawn(async move { drop(reloader.reload().await) });
                    }
                },
                () = self.asked.notified() => break None,
                ended = &mut self.gateway => break Some(ended),
            }
        };
        match broken {
            None => {
                self.end(signals).await;
                Ok(())
            }
            // The handle is dropped with us, and every engine ends with it.
            Some(ended) => {
                let why = ended.map_or_else(|error| error.to_string(), |()| "it ended".to_owned());
                Err(Failure::new(Exit::Failed, format_args!("serving broke off: {why}"), "start it again"))
            }
        }
    }

    /// Takes nothing new, waits at most the grace for what runs, then ends all. A signal meanwhile cuts the wait.
    pub(crate) async fn end(self, signals: &mut Signals) {
        // The doors stay open until everything has ended: whoever asks hears that we are leaving, and operators see it.
        self.watch.abort();
        self.reloader.close().await;
        let Ending { grace, whole } = self.reloader.ending();
        self.notifier.stopping(whole).await;
        tracing::info!("stopping: running requests have {} s", grace.as_secs());
        let in_order = async {
            let quiet = async { tokio::join!(self.handle.retire(), self.externals.quiet()) };
            drop(tokio::time::timeout(grace, quiet).await);
            self.handle.shutdown().await
        };
        let ended = tokio::select! {
            stuck = in_order => Some(stuck),
            () = signals.stop() => None,
        };
        let stuck = if let Some(stuck) = ended {
            stuck
        } else {
            tracing::info!("stopping at once");
            tokio::select! {
                stuck = self.handle.kill_all() => stuck,
                // The keepers end what is left as soon as we are gone.
                () = signals.stop() => Vec::new(),
            }
        };
        for key in stuck {
            tracing::error!(%key, "cannot be killed");
        }
        let _ = self.stop.send(true);
        let _ = fs::remove_file(&self.control);
        let mut gateway = self.gateway;
        if tokio::time::timeout(LAST_BYTES_WITHIN, &mut gateway).await.is_err() {
            // It keeps the way to the history open.
            gateway.abort();
        }
        if let Some(history) = self.history {
            history.close().await;
        }
        if let Some(exporter) = self.exporter {
            exporter.close().await;
        }
        // Nobody asks for anything any more, so nothing is loaded again behind us.
        self.externals.leave().await;
    }
}

/// What a signal wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Stop,
    Reload,
}

/// The signals that stop us, or have the files read again, heard from the first moment on.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    on_hangup: Call,
}

impl Signals {
    /// `on_hangup` is what SIGHUP wants: whoever runs on a terminal gets it when that goes.
    pub(crate) fn listen(on_hangup: Call) -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::new(Exit::Failed, error, "start it again"));
        let (terminate, interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hangup: listen(SignalKind::hangup())?, on_hangup })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Call {
        tokio::select! {
            _ = self.terminate.recv() => Call::Stop,
            _ = self.interrupt.recv() => Call::Stop,
            _ = self.hangup.recv() => self.on_hangup,
        }
    }

    /// The next one that stops us.
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv(), if self.on_hangup == Call::Stop => {}
        }
    }
}

/// The most that macOS takes where its limit is called none.
const OPEN_MAX: u64 = 10_240;

/// Each connection takes a descriptor, and the usual soft limit is below `limits.connections`.
fn raise_descriptors() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = |most, hard| setrlimit(Resource::RLIMIT_NOFILE, most, hard).is_ok();
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && !raised(hard, hard)
        && !(soft < OPEN_MAX && raised(OPEN_MAX.min(hard), hard))
    {
        tracing::warn!("the limit of {soft} open files cannot be raised");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_vocab::ModelId;

    #[tokio::test]
    async fn a_hangup_is_what_whoever_listens_takes_it_for() {
        let mut of_daemon = Signals::listen(Call::Reload).expect("listening");
        let mut of_terminal = Signals::listen(Call::Stop).expect("listening");
        let mut waiting = Signals::listen(Call::Stop).expect("listening");
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGHUP).expect("ours");
        assert_eq!((of_daemon.next().await, of_terminal.next().await), (Call::Reload, Call::Stop));
        waiting.stop().await;
    }

    #[test]
    fn what_is_not_on_this_machine_is_told_with_the_line_that_brings_it() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = Dirs { data: top.path().into(), state: "/s".into(), run: "/r".into(), config: "/c".into() };
        let source = motorpool_catalog::ModelSource::Https { url: "https://h/m.gguf".into(), sha256: String::new() };
        let model = Model::new(ModelId::new("m").expect("an id"), "llama-server", source);
        let fault = locate_model(&Store::new(&dirs), &model).expect_err("absent");
        assert_eq!(fault.class, FailureClass::ModelMissing);
        assert!(fault.message.contains("`motorpool model pull m`"), "{}", fault.message);

        let (mut manifests, _) = motorpool_catalog::shipped();
        let mut manifest = manifests.swap_remove(0);
        manifest.program.names = vec!["no-such-program".into()];
        let fault = locate_program(&dirs, &manifest).expect_err("absent");
        assert!(fault.message.contains("`motorpool engine install llama-server`"), "{}", fault.message);
        manifest.program.configured = Some("/no/such".into());
        let fault = locate_program(&dirs, &manifest).expect_err("not a program");
        assert_eq!(fault.class, FailureClass::EngineMissing);
        assert!(fault.message.contains("/no/such"), "{}", fault.message);
    }
}
