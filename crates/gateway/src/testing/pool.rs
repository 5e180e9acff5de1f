//! A pool of one engine, which does as it is told.
use super::Engine;
use motorpool_pool::{Grant, Refusal, SlotChoice};
use motorpool_supervisor::{Detached, PoolHandle, Told, Wish};
use motorpool_vocab::{EngineKey, ExitRecord, FailureClass, Gate, ModelId, Now, Signs, Spawn, StopReason};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, mpsc},
    time::sleep,
};

/// The slot of every session.
pub(crate) const SLOT: u32 = 3;

/// What it is told.
#[derive(Debug)]
enum Order {
    /// The engine of every lease ends so.
    End(StopReason, FailureClass),
    /// An answer takes so long.
    Take(Duration),
    /// The engine serves the model `m`, and has no slot free.
    Serve,
    /// Every engine is this one, whatever the catalog says.
    Be(&'static str),
    /// From now on it does this.
    Do(Deed),
}

/// What it does with a wish for a lease.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Grant,
    Refuse(fn() -> Refusal),
    /// Nobody is answered.
    Keep,
}

/// The pool.
#[derive(Debug)]
pub(crate) struct Pool {
    handle: PoolHandle,
    orders: mpsc::UnboundedSender<Order>,
    n_granted: Arc<AtomicU32>,
    gate: Arc<Gate>,
    asked: Arc<Notify>,
    cancelled: Arc<Notify>,
}

impl Pool {
    /// Of `engine`, whose leases it counts.
    pub(crate) fn of(engine: &Engine) -> Self {
        let (handle, detached) = Detached::new("/nowhere".into());
        let (orders, told) = mpsc::unbounded_channel();
        let (asked, cancelled) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let n_granted = Arc::<AtomicU32>::default();
        let grant = engine.grant();
        let gate = Arc::clone(&grant.gate);
        let keeper = Keeper {
            detached,
            n_granted: Arc::clone(&n_granted),
            told,
            grant,
            n_leases: engine.n_leases.clone(),
            asked: Arc::clone(&asked),
            cancelled: Arc::clone(&cancelled),
        };
        tokio::spawn(keeper.run());
        Self { handle, orders, n_granted, gate, asked, cancelled }
    }

    pub(crate) fn handle(&self) -> PoolHandle {
        self.handle.clone()
    }

    fn order(&self, order: Order) {
        self.orders.send(order).expect("the pool lives");
    }

    pub(crate) fn crashes(&self, class: FailureClass) {
        self.order(Order::End(StopReason::Crash, class));
    }

    pub(crate) fn stops(&self, reason: StopReason) {
        self.order(Order::End(reason, FailureClass::Killed));
    }

    pub(crate) fn becomes(&self, engine: &'static str) {
        self.order(Order::Be(engine));
    }

    /// The engine serves the model `m`, and has no slot free.
    pub(crate) fn serves_with_no_slot_free(&self) {
        self.order(Order::Serve);
    }

    pub(crate) fn takes(&self, time: Duration) {
        self.order(Order::Take(time));
    }

    pub(crate) fn refuses(&self) {
        self.refuses_with(|| Refusal::ShuttingDown);
    }

    pub(crate) fn refuses_with(&self, refusal: fn() -> Refusal) {
        self.order(Order::Do(Deed::Refuse(refusal)));
    }

    pub(crate) fn never_grants(&self) {
        self.order(Order::Do(Deed::Keep));
    }

    /// How many leases it gave.
    pub(crate) fn n_granted(&self) -> u32 {
        self.n_granted.load(Ordering::Relaxed)
    }

    /// What came of the requests to its engine.
    pub(crate) fn signs(&self) -> Signs {
        self.gate.vital().look()
    }

    /// Somebody waits who will not be answered.
    pub(crate) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Somebody does not wait any more.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }
}

struct Keeper {
    detached: Detached,
    told: mpsc::UnboundedReceiver<Order>,
    grant: Grant,
    n_leases: tokio::sync::watch::Sender<u32>,
    n_granted: Arc<AtomicU32>,
    asked: Arc<Notify>,
    cancelled: Arc<Notify>,
}

impl Keeper {
    async fn run(mut self) {
        let (mut deed, mut delay, mut engine) = (Deed::Grant, Duration::ZERO, None);
        let mut kept = Vec::new();
        loop {
            let told = tokio::select! {
                biased;
                Some(next) = self.told.recv() => {
                    match next {
                        Order::End(reason, class) => self.detached.remember(ended(self.grant.spawn, (reason, class))),
                        Order::Serve => self.detached.serves(Grant { gate: Arc::new(Gate::new(0)), ..self.grant.clone() }),
                        Order::Take(time) => delay = time,
                        Order::Be(next) => engine = Some(next),
                        Order::Do(next) => deed = next,
                    }
                    continue;
                }
                told = self.detached.next() => told,
            };
            match told {
                Told::Lease(wish) => {
                    sleep(delay).await;
                    self.grant.key = key(&wish.ask.model, engine);
                    self.answer(wish, deed, &mut kept);
                }
                Told::Load(_, answer) => {
                    let _ = answer.send(Ok(self.grant.key.clone()));
                }
                Told::Left(_) => self.n_leases.send_modify(|n| *n -= 1),
                Told::Cancelled(_) => self.cancelled.notify_one(),
                Told::Other => {}
            }
        }
    }

    fn answer(&self, wish: Wish, deed: Deed, kept: &mut Vec<Wish>) {
        match deed {
            Deed::Grant => {
                assert_eq!(self.grant.gate.grant(), motorpool_vocab::TryEnter::Entered, "there is a slot");
                self.n_leases.send_modify(|n| *n += 1);
                self.n_granted.fetch_add(1, Ordering::Relaxed);
                // Whoever has a session gets a slot, unless it wants none.
                let session = wish.ask.holder.session.as_ref().filter(|_| wish.ask.slots == SlotChoice::Pool);
                let slot = session.map(|_| SLOT);
                wish.grant(Grant { slot, ..self.grant.clone() });
            }
            Deed::Refuse(refusal) => wish.refuse(refusal()),
            Deed::Keep => {
                kept.push(wish);
                self.asked.notify_one();
            }
        }
    }
}

/// As [`catalog`](super::catalog) has it.
fn key(model: &ModelId, engine: Option<&str>) -> EngineKey {
    let known = if model.as_str() == "stranger" { "plain" } else { "llama-server" };
    EngineKey::new(engine.unwrap_or(known), model.clone(), 0).expect("a key")
}

fn ended(spawn: Spawn, (reason, class): (StopReason, FailureClass)) -> ExitRecord {
    ExitRecord {
        plan: None,
        spawn,
        pid: None,
        started_at: Now::ZERO,
        ended_at: Now::ZERO,
        code: None,
        signal: None,
        reason,
        class: Some(class),
        ever_ready: true,
        tail: vec![],
    }
}

impl Engine {
    fn grant(&self) -> Grant {
        let key: EngineKey = "llama-server:m:0".parse().expect("a key");
        let endpoint = motorpool_vocab::Endpoint::Unix(self.socket.clone());
        Grant { key, spawn: Spawn(1), endpoint, gate: Arc::new(Gate::new(64)), slot: None, returning: None }
    }
}
