//! A pool over models that are small files and engines that are small programs.
use motorpool_catalog::{Catalog, Manifest, Model, ModelSource, Source, parse_manifest};
use motorpool_pool::{Ask, BudgetSetting, Calibration, Host, PoolConfig, StartFault};
use motorpool_supervisor::{KeeperProgram, OpenError, PoolHandle, Settings, start};
use motorpool_vocab::{Bytes, EngineKey, EntryView, FailureClass, Holder, ModelId};
use parking_lot::Mutex;
use std::{fs, path::PathBuf, sync::Arc, time::Duration};

const MANIFEST: &str = r#"
name = "tiny"
transport = "unix"
estimator = "llama-cpp"
args = ["{endpoint.socket}", "{slots}"]
env_allow = ["TINY_ALLOWED"]
paths = []

[program]
names = ["engine-under-test"]
version_args = []
version_pattern = "x"

[ready]
path = "/health"
status = 200

[stop]
stdin_line = "end"
signal = "SIGTERM"

[slots]
path = "/slots"
kind = "llama-server"

[[log_class]]
class = "out-of-host-memory"
pattern = "out of everything"
"#;

pub(crate) struct House {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) denials: Arc<Mutex<Vec<String>>>,
}

impl House {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        for name in ["state", "run"] {
            fs::create_dir(folder.path().join(name)).expect("writable");
        }
        fs::write(folder.path().join("model.gguf"), motorpool_gguf::write::smoke_model()).expect("writable");
        Self { folder, denials: Arc::default() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A pool of 2 GiB over models of 1 GiB, each with words for its engine. `absent` has no file, and the size of
    /// `estimated` is nobody's word.
    pub(crate) fn open(&self, models: &[(&str, &[&str])]) -> PoolHandle {
        self.try_open(models).expect("a fresh directory")
    }

    /// These models, each with so many slots.
    pub(crate) fn catalog(&self, models: &[(&str, &[&str])], slots: u32) -> Arc<Catalog> {
        let models = models.iter().map(|(id, words)| {
            let source = ModelSource::File(self.path(if *id == "absent" { "absent.gguf" } else { "model.gguf" }));
            let mut model = Model::new(ModelId::new(id).expect("an id"), "tiny", source);
            model.extra_args = words.iter().map(ToString::to_string).collect();
            model.declared = match *id {
                "huge" => Some(Bytes::gib(3)),
                "estimated" => None,
                _ => Some(Bytes::gib(1)),
            };
            model.slots = Some(slots);
            model
        });
        Arc::new(Catalog::new(vec![manifest()], models.collect()).expect("a catalog"))
    }

    pub(crate) fn try_open(&self, models: &[(&str, &[&str])]) -> Result<PoolHandle, OpenError> {
        let catalog = self.catalog(models, 3);
        let denials = Arc::clone(&self.denials);
        let settings = Settings {
            keeper: KeeperProgram { program: env!("CARGO_BIN_EXE_keeper-under-test").into(), args: vec![] },
            state: self.path("state"),
            run: self.path("run"),
            environment: vec![("TINY_ALLOWED".into(), "1".into()), ("SECRET".into(), "2".into())],
            discover: Box::new(|_| Ok(vec![env!("CARGO_BIN_EXE_engine-under-test").into()])),
            locate: Box::new(|model| match &model.source {
                ModelSource::File(path) => Ok(path.clone()),
                _ => Err(StartFault { class: FailureClass::ModelMissing, message: String::new(), tail: vec![] }),
            }),
            calibrate: Box::new(|_| Calibration::default()),
            devices: motorpool_supervisor::Devices::default(),
            panics: motorpool_supervisor::Panics::default(),
            probes: motorpool_supervisor::ProbeTimes::default(),
            state_disk: motorpool_vocab::Bytes::gib(1),
            on_denial: Box::new(move |denial| denials.lock().push(denial.to_string())),
        };
        let config = PoolConfig {
            host: Host { ram: Bytes::gib(64), budget: BudgetSetting::explicit(Bytes::gib(2)), ..Host::default() },
            polite_within: Duration::from_millis(300),
            min_residency: Duration::ZERO,
            ..PoolConfig::default()
        };
        start(settings, catalog, config)
    }
}

fn manifest() -> Manifest {
    parse_manifest(Source { file: "tiny.toml", text: MANIFEST }, &|_| None).expect("a manifest")
}

pub(crate) fn ask(model: &str) -> Ask {
    Ask::lease(id(model), Holder { request: model.to_owned(), ..Holder::default() })
}

pub(crate) fn id(model: &str) -> ModelId {
    ModelId::new(model).expect("an id")
}

pub(crate) fn key(model: &str) -> EngineKey {
    EngineKey::new("tiny", id(model), 0).expect("a key")
}

/// Waits until the view of `model` is as wanted, up to a minute.
pub(crate) async fn until(pool: &PoolHandle, model: &str, is_so: impl Fn(&EntryView) -> bool) -> EntryView {
    let mut watch = pool.watch();
    let wanted = key(model);
    let found = watch.wait_for(|snapshot| snapshot.entries.iter().any(|entry| entry.key == wanted && is_so(entry)));
    let snapshot = tokio::time::timeout(Duration::from_mins(1), found).await.expect("in time").expect("a loop").clone();
    snapshot.entries.iter().find(|entry| entry.key == wanted).expect("just found").clone()
}

pub(crate) fn is_alive(pid: u32) -> bool {
    motorpool_devices::observe_process(pid).is_some_and(|process| !process.is_zombie())
}

/// Waits until `pid` is dead, up to a minute.
pub(crate) async fn until_dead(pid: u32) {
    let dead = async {
        while is_alive(pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), dead).await.expect("in time");
}
