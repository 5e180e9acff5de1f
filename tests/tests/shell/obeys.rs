//! A sample of the random traces, over real processes: the shell ends up where the pool alone says it would.
//!
//! Each step is done to both, then everything that is wanted done is done: in the pool's own world at once, by the shell
//! with keepers and fake engines. Both must show the same engines, leases, waits and bytes then. What only time decides is
//! put off past the end of the trace.
use crate::House;
use motorpool_catalog::{Catalog, Model, ModelSource, Replicas, shipped};
use motorpool_pool::{
    Ask, BudgetSetting, Host, KeepAlive, PoolConfig, RequestId, ScaleTerms,
    sim::{Dice, Parent, Run, Setting, Step, Telling, Trace, Wish},
};
use motorpool_supervisor::{Lease, PoolHandle};
use motorpool_testkit::{Behaviour, Client, FakeModel, eventually};
use motorpool_vocab::{Bytes, EngineKey, Holder, ModelId, PhaseView, Snapshot};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::task::JoinHandle;

const N_TRACES: u64 = 12;
const N_STEPS: usize = 25;
/// Longer than any trace.
const LATER: Duration = Duration::from_hours(1);

/// What both sides must agree on: of each engine its phase, its leases and who waits; and all bytes.
type Seen = (BTreeMap<EngineKey, (PhaseView, usize, u32)>, Bytes);

fn seen(snapshot: &Snapshot) -> Seen {
    let used = snapshot.entries.iter().filter(|e| e.phase != PhaseView::Idle || e.n_tickets > 0);
    let engines = used.map(|e| (e.key.clone(), (e.phase, e.leases.len(), e.n_tickets))).collect();
    (engines, snapshot.pool.committed)
}

/// What is held and asked of a real pool.
struct Shell {
    pool: PoolHandle,
    leases: Arc<Mutex<BTreeMap<RequestId, Lease>>>,
    asking: BTreeMap<RequestId, JoinHandle<()>>,
}

impl Shell {
    fn open(house: &House, setting: &Setting) -> Self {
        let models = setting.models.iter().map(|of_it| {
            let fake = FakeModel::write(house.folder.path(), &of_it.id, &Behaviour::default()).expect("written");
            let source = ModelSource::File(fake.path().to_owned());
            let mut model = Model::new(ModelId::new(&of_it.id).expect("an id"), "llama-server", source);
            model.declared = Some(Bytes::mib(of_it.mib));
            model.slots = Some(2);
            model.priority = of_it.priority;
            [model.pinned, model.home] = of_it.stays;
            model.replicas = Replicas { min: of_it.replicas.0, max: of_it.replicas.1 };
            model
        });
        let budget = BudgetSetting::explicit(Bytes::mib(setting.budget));
        let config = PoolConfig {
            host: Host { ram: Bytes::gib(64), budget, ..Host::default() },
            max_wait: LATER,
            min_residency: LATER,
            drain_wait: LATER,
            scale: ScaleTerms { fan_out_after: LATER, scale_down_after: LATER },
            ..PoolConfig::default()
        };
        let catalog = Catalog::new(shipped().0, models.collect()).expect("a catalog");
        Self { pool: house.start(catalog, config), leases: Arc::default(), asking: BTreeMap::new() }
    }

    fn acquire(&mut self, id: RequestId, model: &str, wish: &Wish) {
        let holder = Holder {
            lane: wish.lane,
            session: wish.session.clone(),
            actor: wish.actor.clone(),
            parent: (wish.parent == Parent::Some).then(|| "another".to_owned()),
            ..Holder::default()
        };
        // Who says how long an engine is kept does not enter by itself: the pool chooses the replica, as in its world.
        let keep_alive = Some(KeepAlive::For(LATER));
        let ask = Ask {
            priority: wish.priority,
            replica: wish.replica,
            keep_alive,
            ..Ask::lease(ModelId::new(model).expect("an id"), holder)
        };
        let (pool, leases) = (self.pool.clone(), Arc::clone(&self.leases));
        self.asking.insert(
            id,
            tokio::spawn(async move {
                if let Ok(lease) = pool.acquire(ask).await {
                    leases.lock().expect("no panic").insert(id, lease);
                }
            }),
        );
    }

    fn operate(&mut self, id: RequestId, work: impl Future<Output = ()> + Send + 'static) {
        self.asking.insert(id, tokio::spawn(work));
    }

    async fn step(&mut self, step: &Step) {
        let (pool, key) = (self.pool.clone(), |(model, replica): &(String, u32)| {
            EngineKey::new("llama-server", ModelId::new(model).expect("an id"), *replica).expect("a key")
        });
        match step.clone() {
            Step::Acquire(id, model, wish) => self.acquire(id, &model, &wish),
            Step::Load(id, model) => self.operate(id, async move {
                let _ = pool.load(ModelId::new(&model).expect("an id")).await;
            }),
            Step::Leave(id, _) => {
                // It was granted; whoever asked may not have it in hand yet.
                self.asking.remove(&id).expect("it was asked for").await.expect("no panic");
                drop(self.leases.lock().expect("no panic").remove(&id));
            }
            Step::Cancel(id) => self.asking.remove(&id).expect("it waits").abort(),
            Step::UnloadIdle(id, at) => {
                let key = key(&at);
                self.operate(id, async move { drop(pool.unload_idle(key).await) });
            }
            Step::Evict(id, at, force) => {
                let key = key(&at);
                self.operate(id, async move { drop(pool.evict(key, force).await) });
            }
            Step::ReleaseIdle(id) => self.operate(id, async move { drop(pool.release_idle().await) }),
            other => panic!("{other} is not among the steps of this sample"),
        }
    }

    /// Whoever holds a lease can use it.
    async fn is_of_use(&self) {
        let leases: Vec<_> =
            self.leases.lock().expect("no panic").values().map(|l| (l.spawn(), l.endpoint().clone())).collect();
        let living: Vec<_> = self.pool.snapshot().entries.iter().filter_map(|e| e.spawn).collect();
        // The others were ended by force.
        for (_, endpoint) in leases.into_iter().filter(|(spawn, _)| living.contains(spawn)) {
            assert_eq!(Client::new(endpoint).get("/health").await.expect("it answers").status, 200);
        }
    }
}

/// A step that the shell can be told, and that nothing but its order decides.
fn of_sample(step: Step) -> Option<Step> {
    match step {
        Step::Acquire(id, model, wish) => {
            Some(Step::Acquire(id, model, Box::new(Wish { drain: None, queue: None, ..*wish })))
        }
        Step::Leave(id, _) => Some(Step::Leave(id, Telling::Now)),
        Step::Load(..) | Step::Cancel(_) | Step::UnloadIdle(..) | Step::Evict(..) | Step::ReleaseIdle(_) => Some(step),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shell_does_what_the_pool_alone_says() {
    for seed in 1..=N_TRACES {
        let mut dice = Dice::new(seed);
        let setting = dice.setting();
        let house = House::new(&[]);
        let (mut run, mut shell) = (Run::new(&setting), Shell::open(&house, &setting));
        let mut trace = Trace { setting, steps: vec![] };
        // Any input at all brings home what is to be there; a real loop has one at its start.
        let mut next = Some(Step::OldNews(u64::MAX));
        while trace.steps.len() < N_STEPS {
            if let Some(step) = next {
                if !matches!(step, Step::OldNews(_)) {
                    shell.step(&step).await;
                }
                for step in [step.clone(), Step::Obey, Step::Pass(1)] {
                    run.step(&step).unwrap_or_else(|broken| panic!("{broken}\n{trace}"));
                }
                trace.steps.push(step);
                let wanted = seen(&run.snapshot());
                eventually(&format!("{wanted:?}, seed {seed}\n{trace}"), async || {
                    (seen(&shell.pool.snapshot()) == wanted).then_some(())
                })
                .await;
                shell.is_of_use().await;
            }
            next = of_sample(dice.step(run.world()));
        }
        shell.leases.lock().expect("no panic").clear();
        assert_eq!(shell.pool.shutdown().await, vec![], "seed {seed}: nothing is stuck");
        assert_eq!(shell.pool.snapshot().pool.committed, Bytes::ZERO, "seed {seed}: P9");
        for (id, asking) in shell.asking {
            asking.await.unwrap_or_else(|error| assert!(error.is_cancelled(), "P3: {id:?} {error}"));
        }
    }
}
