//! A warm acquire through the handle and back, alone and beside seven other threads: the promise is less than 1 µs
//! uncontended.
use criterion::{Criterion, criterion_group, criterion_main};
use motorpool_catalog::{Catalog, Model, ModelSource, Source, parse_manifest};
use motorpool_pool::{Ask, Calibration, PoolConfig};
use motorpool_supervisor::{KeeperProgram, PoolHandle, Settings, start};
use motorpool_vocab::{Bytes, Holder, ModelId};
use std::{
    fs,
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
};

const MANIFEST: &str = r#"
name = "tiny"
transport = "unix"
args = ["{endpoint.socket}", "{slots}"]
env_allow = []
paths = []
[program]
names = ["engine-under-test"]
version_args = []
version_pattern = "x"
[ready]
path = "/health"
status = 200
[stop]
signal = "SIGTERM"
"#;

fn model() -> ModelId {
    ModelId::new("a").expect("an id")
}

fn open(folder: &Path) -> PoolHandle {
    for name in ["state", "run"] {
        fs::create_dir(folder.join(name)).expect("writable");
    }
    let file = folder.join("a.gguf");
    fs::write(&file, motorpool_gguf::write::smoke_model()).expect("writable");
    let mut tiny = Model::new(model(), "tiny", ModelSource::File(file.clone()));
    tiny.declared = Some(Bytes::gib(1));
    tiny.slots = Some(64);
    let manifest = parse_manifest(Source { file: "tiny.toml", text: MANIFEST }, &|_| None).expect("a manifest");
    let settings = Settings {
        keeper: KeeperProgram { program: env!("CARGO_BIN_EXE_keeper-under-test").into(), args: vec![] },
        state: folder.join("state"),
        run: folder.join("run"),
        environment: vec![],
        discover: Box::new(|_| Ok(vec![env!("CARGO_BIN_EXE_engine-under-test").into()])),
        locate: Box::new(move |_| Ok(file.clone())),
        calibrate: Box::new(|_| Calibration::default()),
        devices: motorpool_supervisor::Devices::default(),
        panics: motorpool_supervisor::Panics::default(),
        probes: motorpool_supervisor::ProbeTimes::default(),
        state_disk: motorpool_vocab::Bytes::ZERO,
        on_denial: Box::new(|_| {}),
    };
    let catalog = Catalog::new(vec![manifest], vec![tiny]).expect("a catalog");
    start(settings, Arc::new(catalog), PoolConfig::default()).expect("a pool")
}

/// A warm acquire never waits, so it needs no runtime.
fn acquire_and_drop(pool: &PoolHandle) {
    let ask = Ask::lease(model(), Holder::default());
    let acquired = pin!(pool.acquire(ask)).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(acquired, Poll::Ready(Ok(_))), "warm");
}

fn acquire(c: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _entered = runtime.enter();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let pool = open(folder.path());
    runtime.block_on(pool.load(model())).expect("it starts");
    c.bench_function("acquire/warm, alone", |b| b.iter(|| acquire_and_drop(&pool)));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..7 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    acquire_and_drop(&pool);
                }
            });
        }
        c.bench_function("acquire/warm, beside 7 threads", |b| b.iter(|| acquire_and_drop(&pool)));
        stop.store(true, Ordering::Relaxed);
    });
    runtime.block_on(pool.shutdown());
}

criterion_group!(benches, acquire);
criterion_main!(benches);
