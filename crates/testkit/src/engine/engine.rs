//! [`Engine`]: what every part of the program looks at: arguments, behaviour, phase, counts, slots.
use crate::{arguments::Arguments, log::Protocol};
use motorpool_testkit::Behaviour;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// The one engine of this process.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) arguments: Arguments,
    pub(crate) behaviour: Behaviour,
    pub(crate) protocol: Protocol,
    /// How many starts with this model came before, this one included.
    pub(crate) n_start: u32,
    pub(crate) phase: watch::Sender<Phase>,
    /// Bytes of the flood that somebody read.
    pub(crate) flooded: AtomicU64,
    counts: Mutex<Counts>,
    slots: Slots,
    /// A request ended.
    pub(crate) ended: Notify,
    /// Clients that are connected.
    pub(crate) n_connected: watch::Sender<usize>,
}

/// What clients see of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Loading,
    Ready,
    /// No token is made any more.
    Stopping,
}

/// What reached it, shown at `/fake/requests`.
#[derive(Debug, Default)]
struct Counts {
    received: u64,
    active: u64,
    finished: u64,
    aborted: u64,
    tokens: u64,
    last: Option<Value>,
    /// How often what slots hold was written, and read back.
    states: BTreeMap<&'static str, u64>,
}

#[derive(Debug)]
struct Slots {
    free: Arc<Semaphore>,
    /// Which task each one has.
    tasks: Mutex<Vec<Option<u64>>>,
}

impl Engine {
    pub(crate) fn new(arguments: Arguments, behaviour: Behaviour, n_start: u32) -> Self {
        // llama-server left to itself takes four.
        let n = behaviour.slots.or(arguments.slots).unwrap_or(4);
        let n = usize::try_from(n).expect("a few slots");
        Self {
            arguments,
            behaviour,
            protocol: Protocol::of_the_environment(),
            n_start,
            phase: watch::Sender::new(Phase::Loading),
            flooded: AtomicU64::new(0),
            counts: Mutex::default(),
            slots: Slots { free: Arc::new(Semaphore::new(n)), tasks: Mutex::new(vec![None; n]) },
            ended: Notify::new(),
            n_connected: watch::Sender::default(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(crate) fn n_slots(&self) -> usize {
        lock(&self.slots.tasks).len()
    }

    /// Requests in work or waiting for a slot.
    pub(crate) fn n_active(&self) -> u64 {
        lock(&self.counts).active
    }

    /// Counts a request that asks for inference; it is over when the value is dropped.
    pub(crate) fn begin(self: &Arc<Self>, shown: Value) -> Work {
        let mut counts = lock(&self.counts);
        counts.received += 1;
        counts.active += 1;
        counts.last = Some(shown);
        Work { id: counts.received, engine: Arc::clone(self), slot: None, end: End::Aborted }
    }

    /// Counts a token; the sum over all requests.
    pub(crate) fn count_token(&self) -> u64 {
        let mut counts = lock(&self.counts);
        counts.tokens += 1;
        counts.tokens
    }

    /// What a slot holds was written (`save`), or read back (`restore`).
    pub(crate) fn count_state(&self, what: &'static str) {
        *lock(&self.counts).states.entry(what).or_default() += 1;
    }

    /// `/fake/requests`.
    pub(crate) fn requests(&self) -> Value {
        let counts = lock(&self.counts);
        json!({
            "received": counts.received, "active": counts.active, "finished": counts.finished,
            "aborted": counts.aborted, "tokens": counts.tokens, "last": counts.last,
            "states": counts.states,
        })
    }

    /// `/fake/process`.
    pub(crate) fn process(&self) -> Value {
        let environment: serde_json::Map<String, Value> = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), json!(value.to_string_lossy())))
            .collect();
        json!({
            "pid": std::process::id(), "parent": std::os::unix::process::parent_id(), "start": self.n_start,
            "arguments": self.arguments.words, "environment": environment,
            "flooded": self.flooded.load(Ordering::Relaxed),
        })
    }

    /// `/slots`.
    pub(crate) fn slots(&self) -> Value {
        let per_slot = usize::try_from(self.arguments.context).expect("a context") / self.n_slots();
        let tasks = lock(&self.slots.tasks);
        let slot = |(id, task): (usize, &Option<u64>)| {
            let mut slot = json!({"id": id, "n_ctx": per_slot, "speculative": false, "is_processing": task.is_some()});
            if let Some(task) = task {
                slot["id_task"] = json!(task);
            }
            slot
        };
        tasks.iter().enumerate().map(slot).collect()
    }

    /// The two gauges of `/metrics` that tell load.
    pub(crate) fn metrics(&self) -> String {
        let counts = lock(&self.counts);
        let working = u64::try_from(lock(&self.slots.tasks).iter().flatten().count()).expect("a few slots");
        let deferred = counts.active.saturating_sub(working);
        format!(
            "# TYPE llamacpp:tokens_predicted_total counter\nllamacpp:tokens_predicted_total {}\n\
             # TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing {working}\n\
             # TYPE llamacpp:requests_deferred gauge\nllamacpp:requests_deferred {deferred}\n",
            counts.tokens
        )
    }
}

/// One request for inference, counted while it lives.
#[derive(Debug)]
pub(crate) struct Work {
    id: u64,
    engine: Arc<Engine>,
    slot: Option<(usize, OwnedSemaphorePermit)>,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Aborted,
    Finished,
}

impl Work {
    /// Waits for a slot, without bound, as llama-server does.
    pub(crate) async fn take_slot(&mut self) {
        let permit = Arc::clone(&self.engine.slots.free).acquire_owned().await.expect("never closed");
        let mut tasks = lock(&self.engine.slots.tasks);
        let free = tasks.iter().position(Option::is_none).expect("as many slots as permits");
        tasks[free] = Some(self.id);
        self.slot = Some((free, permit));
    }

    /// It was answered to its end.
    pub(crate) fn finish(mut self) {
        self.end = End::Finished;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some((slot, permit)) = self.slot.take() {
            lock(&self.engine.slots.tasks)[slot] = None;
            drop(permit);
        }
        let mut counts = lock(&self.engine.counts);
        counts.active -= 1;
        match self.end {
            End::Aborted => counts.aborted += 1,
            End::Finished => counts.finished += 1,
        }
        drop(counts);
        self.engine.ended.notify_waiters();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with it")
}
