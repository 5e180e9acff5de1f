//! What an input costs a pool with 10,000 engines while 1,000 requests wait, and while 100 builds wait for room.
use criterion::{Criterion, criterion_group, criterion_main};
use motorpool_catalog::{Catalog, Model, ModelSource, shipped};
use motorpool_pool::{
    Action, Ask, BudgetSetting, BuildId, Facts, Host, Input, Pool, PoolConfig, QueueTerms, RequestId,
};
use motorpool_vocab::{Bytes, Endpoint, Holder, Lane, ModelId, Now, Spawn};
use std::{hint::black_box, sync::Arc, time::Duration};

const N_ENGINES: u64 = 10_000;
const N_WAITING: u64 = 1_000;
/// Of as many models.
const N_BUILDS: u64 = 100;

fn id(n: u64) -> ModelId {
    ModelId::new(&format!("m{n}")).expect("an id")
}

struct Full {
    pool: Pool,
    now: Now,
    next: u64,
}

impl Full {
    /// As many engines as there is room for, each with one slot, all in use; `more` models have none.
    fn of(more: u64) -> Self {
        let models = (0..N_ENGINES + more).map(|n| {
            let mut model = Model::new(id(n), "llama-server", ModelSource::File("/m.gguf".into()));
            model.declared = Some(Bytes::mib(2));
            model
        });
        let catalog = Catalog::new(shipped().0, models.collect()).expect("a catalog");
        let budget = BudgetSetting::explicit(Bytes::mib(2 * N_ENGINES));
        let host = Host { ram: Bytes::gib(512), budget, ..Host::default() };
        let queue = QueueTerms { per_model: 10_000, in_all: 100_000, ..QueueTerms::default() };
        let pool = Pool::new(PoolConfig { host, queue, ..PoolConfig::default() }, Arc::new(catalog), Spawn(1));
        let mut full = Self { pool, now: Now::from_nanos(1), next: 0 };
        for n in 0..N_ENGINES {
            full.acquire(n);
        }
        full
    }

    fn feed(&mut self, input: Input) -> Vec<Action> {
        let mut todo = self.pool.on_event(self.now, input);
        let mut told = Vec::new();
        while let Some(action) = todo.pop() {
            let answer = match &action {
                Action::Check { build, .. } => Some(checked(*build)),
                Action::Start { spawn, .. } => {
                    Some(Input::Ready { spawn: *spawn, endpoint: Endpoint::Tcp(1), width: 1 })
                }
                _ => None,
            };
            told.push(action);
            if let Some(answer) = answer {
                todo.extend(self.pool.on_event(self.now, answer));
            }
        }
        told
    }

    fn acquire(&mut self, n: u64) -> RequestId {
        self.next += 1;
        let number = RequestId(self.next);
        let holder = Holder { lane: Lane::Interactive, ..Holder::default() };
        drop(self.feed(Input::Acquire { id: number, ask: Ask::lease(id(n), holder) }));
        number
    }
}

fn checked(build: BuildId) -> Input {
    let facts =
        Facts { context_length: Some(8192), architecture: Some("llama".into()), ..Facts::bare("/e", "/m.gguf") };
    Input::Checked { build, result: Ok(facts) }
}

fn decide(c: &mut Criterion) {
    let mut group = c.benchmark_group("10,000 engines");
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    let mut full = Full::of(0);
    for _ in 0..N_WAITING {
        full.acquire(0);
    }
    group.bench_function("one more request comes and goes beside 1,000 that wait", |b| {
        b.iter(|| {
            let number = full.acquire(1);
            black_box(full.feed(Input::Cancel { id: number }));
        });
    });
    let mut full = Full::of(N_BUILDS);
    for n in N_ENGINES..N_ENGINES + N_BUILDS {
        full.acquire(n);
    }
    group.bench_function("a tick beside 100 builds that wait for room", |b| {
        b.iter(|| black_box(full.feed(Input::Tick)));
    });
    group.finish();
}

criterion_group!(benches, decide);
criterion_main!(benches);
