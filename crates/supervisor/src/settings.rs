//! [`Settings`] and [`start`]: from a state directory to a running pool.
use crate::{
    KeeperProgram, Launcher, Notebook, OpenError, PoolHandle, ProbeTimes,
    check::{Calibrate, Checker, Discover, Locate},
    driver::Workshop,
    handle::{Shared, open_handle},
    incidents::Incidents,
    lookout::{Devices, Lookout},
    looks::Looks,
    meter::Meter,
    panics::Panics,
    shell::{Outside, Shell, post},
    state_files::StateFiles,
};
use motorpool_catalog::Catalog;
use motorpool_pool::{Denial, Input, Pool, PoolConfig};
use motorpool_vocab::Bytes;
use std::{ffi::OsString, fmt, fs, path::PathBuf, sync::Arc, time::SystemTime};

/// Told of each refused build before anybody who waits for it is. Must not block for long.
pub type OnDenial = Box<dyn Fn(&Denial) + Send>;

/// Everything that the supervisor is told once.
pub struct Settings {
    /// What becomes a keeper.
    pub keeper: KeeperProgram,
    /// Journal, lock, logs. Must be there.
    pub state: PathBuf,
    /// Sockets: must be there, ours alone, and short enough for the 107 bytes of a socket's address.
    pub run: PathBuf,
    /// Our own environment; engines get of it what their manifests allow.
    pub environment: Vec<(OsString, OsString)>,
    /// Where an engine's program is. May block.
    pub discover: Discover,
    /// Where a model's file is. May block.
    pub locate: Locate,
    /// What was measured of an engine's program. May block.
    pub calibrate: Calibrate,
    /// Graphics devices, and who tells of them.
    pub devices: Devices,
    /// Where panics of the graphics driver are reported.
    pub panics: Panics,
    /// How long an engine that serves may take to answer when it is asked.
    pub probes: ProbeTimes,
    /// Most disk for contexts of sessions; zero deletes all that there are.
    pub state_disk: Bytes,
    /// Writes the line of a denial.
    pub on_denial: OnDenial,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment may hold secrets.
        f.debug_struct("Settings").field("state", &self.state).field("run", &self.run).finish_non_exhaustive()
    }
}

/// Takes the state directory, starts the one loop, and gives the handle to it. What an earlier supervisor left is
/// ended before the first request is looked at; [`PoolHandle::is_settled`] says when.
///
/// The loop ends when the last handle and lease is dropped, and every engine with it. Call inside a tokio runtime;
/// blocks shortly.
pub fn start(settings: Settings, catalog: Arc<Catalog>, config: PoolConfig) -> Result<PoolHandle, OpenError> {
    let Settings {
        keeper,
        state,
        run,
        environment,
        discover,
        locate,
        calibrate,
        devices,
        panics,
        probes,
        state_disk,
        on_denial,
    } = settings;
    let launcher = Launcher::open(keeper, &state)?;
    let (logs, empty) = (state.join("logs"), run.join("empty"));
    for folder in [&logs, &empty] {
        // Without logs a start fails and names them; without this folder an engine finds no configuration either.
        let _ = fs::create_dir_all(folder);
    }
    let lookout = Arc::new(Lookout::new(devices, &config.host));
    let pool = Pool::new(config, catalog, launcher.next_spawn());
    let (shared, snapshots) = Shared::new(logs);
    let (handle, posts) = open_handle(Arc::clone(&shared));
    let environment = environment.into_iter().collect();
    let notebook = Notebook::open(&state);
    let checker = Checker::new(discover, locate, calibrate).with_lessons(notebook.clone());
    let meter = Arc::<Meter>::default();
    meter.tells_of(lookout.servers());
    let looks = Looks::default();
    let state_files = Arc::new(StateFiles::open(state.join("slots"), state_disk));
    let workshop = Workshop { launcher, environment, run, empty, checker, meter, lookout, looks, probes, state_files };
    let incidents = Incidents::at(state.join("incidents.jsonl"));
    let outside = Outside { shared, snapshots, on_denial, notebook, incidents };
    let pause = panics.observe(SystemTime::now(), motorpool_devices::now());
    post(&handle.weak_inbox(), Input::GpuPause(pause));
    tokio::spawn(panics.run(handle.weak_inbox()));
    let shell = Shell::new(pool, (handle.weak_inbox(), posts), Arc::new(workshop), outside);
    tokio::spawn(shell.run());
    Ok(handle)
}
