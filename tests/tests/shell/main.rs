//! The one loop and its handle over real processes: the fake engine under a real keeper.
mod obeys;

use motorpool_catalog::{Catalog, Model, ModelSource, shipped};
use motorpool_pool::{Answer, Ask, BudgetSetting, Calibration, Force, Host, HostShape, PoolConfig, Refusal};
use motorpool_supervisor::{KeeperProgram, Panics, PoolHandle, Settings, start};
use motorpool_testkit::{Behaviour, Client, Deaf, End, Exit, FakeModel, Gate, Load, Moment, Stop, binary, eventually};
use motorpool_vocab::{Bytes, EngineKey, FailureClass, Holder, ModelId, PhaseView, StopReason};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::TempDir;

/// A state directory, two or more fake models of 600 MiB each, and a pool over them.
struct House {
    folder: TempDir,
    models: Vec<FakeModel>,
    denials: Arc<Mutex<Vec<String>>>,
}

const SOON: Duration = Duration::from_secs(20);

impl House {
    fn new(behaviours: &[Behaviour]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        for name in ["state", "state/logs", "run"] {
            std::fs::create_dir_all(folder.path().join(name)).expect("a directory");
        }
        let models = behaviours.iter().zip(["a", "b", "c"]);
        let models = models
            .map(|(behaviour, name)| FakeModel::write(folder.path(), name, behaviour).expect("written"))
            .collect();
        Self { folder, models, denials: Arc::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn open(&self, budget_mib: u64) -> PoolHandle {
        self.open_with(budget_mib, Bytes::mib(600))
    }

    fn open_with(&self, budget_mib: u64, declared: Bytes) -> PoolHandle {
        self.open_on(HostShape::SystemRam, budget_mib, declared)
    }

    fn open_on(&self, shape: HostShape, budget_mib: u64, declared: Bytes) -> PoolHandle {
        let models = self.models.iter().zip(["a", "b", "c"]).map(|(fake, id)| {
            let source = ModelSource::File(fake.path().to_owned());
            let mut model = Model::new(ModelId::new(id).expect("an id"), "llama-server", source);
            model.declared = Some(declared);
            model.slots = Some(2);
            model
        });
        let catalog = Catalog::new(shipped().0, models.collect()).expect("a catalog");
        let config = PoolConfig {
            host: Host {
                shape,
                ram: Bytes::gib(64),
                budget: BudgetSetting::explicit(Bytes::mib(budget_mib)),
                ..Host::default()
            },
            polite_within: Duration::from_secs(2),
            ..PoolConfig::default()
        };
        self.start(catalog, config)
    }

    fn start(&self, catalog: Catalog, config: PoolConfig) -> PoolHandle {
        let denials = Arc::clone(&self.denials);
        let settings = Settings {
            keeper: KeeperProgram { program: binary("keeper-under-test"), args: vec![] },
            state: self.path("state"),
            run: self.path("run"),
            environment: std::env::vars_os().collect(),
            discover: Box::new(|_| Ok(vec![binary("motorpool-fake-engine")])),
            locate: Box::new(|model| match &model.source {
                ModelSource::File(path) => Ok(path.clone()),
                other => panic!("{other:?} is no file"),
            }),
            calibrate: Box::new(|_| Calibration::default()),
            devices: motorpool_supervisor::Devices::default(),
            panics: Panics { folders: vec![self.folder.path().to_owned()], pause: Duration::from_hours(1) },
            probes: motorpool_supervisor::ProbeTimes::default(),
            state_disk: Bytes::gib(1),
            on_denial: Box::new(move |denial| denials.lock().expect("no panic").push(denial.to_string())),
        };
        start(settings, Arc::new(catalog), config).expect("a pool")
    }
}

fn ask(model: &str) -> Ask {
    Ask::lease(ModelId::new(model).expect("an id"), Holder { request: model.to_owned(), ..Holder::default() })
}

fn key(model: &str) -> EngineKey {
    format!("llama-server:{model}:0").parse().expect("a key")
}

fn phase(pool: &PoolHandle, model: &str) -> Option<PhaseView> {
    pool.snapshot().entries.iter().find(|e| e.key == key(model)).map(|e| e.phase)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_on_an_engine_that_answers_and_comes_back_when_dropped() {
    let house = House::new(&[Behaviour::default()]);
    let pool = house.open(1024);
    let lease = pool.acquire(ask("a")).await.expect("a lease");
    let answer = Client::new(lease.endpoint().clone()).get("/health").await.expect("an answer");
    assert_eq!(answer.status, 200);
    assert_eq!(lease.gate().width(), 2, "the slots that the engine says it has");
    drop(lease);
    let warm = pool.acquire(ask("a")).await.expect("a warm lease");
    assert_eq!(house.models[0].starts().len(), 1);
    drop(warm);
    eventually("no lease is held", async || pool.snapshot().entries.iter().all(|e| e.leases.is_empty()).then_some(()))
        .await;
    assert_eq!(pool.unload_idle(key("a")).await, Answer::Unloaded);
    assert_eq!(pool.snapshot().pool.committed, Bytes::ZERO);
    let record = pool.snapshot().entries[0].last_exit.clone().expect("a record");
    assert_eq!((record.code, record.reason, record.class), (Some(0), StopReason::User, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_engine_makes_room_for_another() {
    let house = House::new(&[Behaviour::default(), Behaviour::default()]);
    let pool = house.open(1024);
    drop(pool.acquire(ask("a")).await.expect("a lease"));
    drop(pool.acquire(ask("b")).await.expect("a lease"));
    assert_eq!((phase(&pool, "a"), phase(&pool, "b")), (Some(PhaseView::Idle), Some(PhaseView::Ready)));
    assert_eq!(pool.snapshot().pool.committed, Bytes::mib(600));
    assert_eq!(pool.shutdown().await, vec![]);
    assert_eq!(pool.snapshot().pool.committed, Bytes::ZERO);
    assert!(matches!(pool.acquire(ask("a")).await, Err(Refusal::ShuttingDown)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_is_written_before_its_refusal_is_heard() {
    let house = House::new(&[Behaviour::default()]);
    let pool = house.open_with(1024, Bytes::gib(2));
    assert!(matches!(pool.acquire(ask("a")).await, Err(Refusal::CapacityDenied(_))));
    let written = house.denials.lock().expect("no panic").clone();
    assert_eq!(written, ["budget exhausted: would commit 2147483648 against 1073741824"]);
    assert_eq!(house.models[0].starts(), vec![]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_started_on_graphics_after_its_driver_panicked_and_the_rest_is() {
    let house = House::new(&[Behaviour::default(), Behaviour::default()]);
    std::fs::write(house.path("kernel.panic"), "panic: AGXG14 completeMemory() prepare count underflow")
        .expect("written");
    let pool = house.open_on(HostShape::Unified, 4096, Bytes::mib(600));
    let Err(Refusal::GpuPaused { signature, .. }) = pool.acquire(ask("a")).await else { panic!("a refusal") };
    assert_eq!((signature.as_str(), house.models[0].starts()), ("AGXG1", vec![]));
    drop(pool);
    let house = House::new(&[Behaviour::default()]);
    std::fs::write(house.path("kernel.panic"), "panic: AGXG14").expect("written");
    drop(house.open(1024).acquire(ask("a")).await.expect("a lease: this host has no graphics"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_dies_while_loading_is_told_with_its_class_and_last_lines() {
    let exit = Exit {
        at: Moment::Loading,
        how: End::Code(1),
        log: vec![
            "error loading model: tensor 'x' data is not within the file bounds, model is corrupted or incomplete"
                .into(),
        ],
        first_starts: None,
    };
    let house = House::new(&[Behaviour { exit: Some(exit), ..Behaviour::default() }]);
    let pool = house.open(1024);
    let Err(Refusal::StartFailed { fault, .. }) = pool.acquire(ask("a")).await else { panic!("a refusal") };
    assert_eq!(fault.class, FailureClass::ModelCorrupt);
    assert!(fault.tail.iter().any(|line| line.contains("not within the file bounds")), "{:?}", fault.tail);
    assert_eq!(pool.snapshot().pool.committed, Bytes::ZERO);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_future_of_an_acquire_cancels_it_and_the_load_is_let_finish() {
    let house = House::new(&[Behaviour::default()]);
    let gate = Gate::closed(house.folder.path(), "load");
    let load = Load { gates: vec![gate.file()], ..Load::default() };
    house.models[0].behave(&Behaviour { load, ..Behaviour::default() }).expect("written");
    let pool = house.open(1024);
    let waits = tokio::time::timeout(Duration::from_millis(300), pool.acquire(ask("a"))).await;
    assert!(waits.is_err(), "it is still loading");
    eventually("the ticket is gone", async || {
        pool.snapshot().entries.first().is_some_and(|e| e.n_tickets == 0).then_some(())
    })
    .await;
    gate.open().expect("opened");
    eventually("it became ready", async || (phase(&pool, "a") == Some(PhaseView::Ready)).then_some(())).await;
    pool.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_does_not_hear_is_killed_and_force_does_not_wait() {
    let stop = Stop { deaf_to: vec![Deaf::Sigterm, Deaf::ExitCommand], ..Stop::default() };
    let house = House::new(&[Behaviour { stop, ..Behaviour::default() }]);
    let pool = house.open(1024);
    drop(pool.acquire(ask("a")).await.expect("a lease"));
    let gone = tokio::time::timeout(SOON, pool.evict(key("a"), Force::No)).await.expect("in time");
    assert_eq!(gone, Answer::Unloaded);
    let record = pool.snapshot().entries[0].last_exit.clone().expect("a record");
    assert_eq!(record.signal, Some(9));
    let lease = pool.acquire(ask("a")).await.expect("a lease");
    let spawn = lease.spawn();
    assert_eq!(pool.evict(key("a"), Force::Yes).await, Answer::Unloaded);
    assert_eq!(pool.exit_of(spawn, SOON).await.map(|record| record.reason), Some(StopReason::User));
}

/// Rounds of [`two_who_wait_for_the_room_of_one_both_get_it`].
const ROUNDS: &str = "MOTORPOOL_TEST_ROUNDS";

/// In each round the engine that is there must go for one of two others, and that for the other. A thousand rounds are
/// `MOTORPOOL_TEST_ROUNDS=1000`.
#[tokio::test(flavor = "multi_thread")]
async fn two_who_wait_for_the_room_of_one_both_get_it() {
    let rounds = std::env::var(ROUNDS).ok().and_then(|n| n.parse().ok()).unwrap_or(15);
    let house = House::new(&[Behaviour::default(), Behaviour::default(), Behaviour::default()]);
    let pool = house.open(1024);
    for round in 0..rounds {
        drop(pool.acquire(ask("a")).await.expect("a lease"));
        let one =
            async |model: &str| drop(pool.acquire(ask(model)).await.unwrap_or_else(|why| panic!("{round}: {why}")));
        tokio::join!(one("b"), one("c"));
    }
    assert_eq!(pool.shutdown().await, vec![]);
    let starts: usize = house.models.iter().map(|model| model.starts().len()).sum();
    assert_eq!(starts, 3 * rounds, "each was started once in each round");
}
