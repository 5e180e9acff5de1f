//! Values of the pool as the interface shows them. Bytes and milliseconds are whole numbers; times are ages.
use super::residency::{self, Target};
use crate::{context::Context, models::Standing};
use motorpool_vocab::{
    Bytes, DeviceId, EntryView, ExitRecord, LeaseView, MemoryParts, MemoryView, Now, PartsView, PhaseView, Snapshot,
    TroubleView, WaiterView,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    version: &'static str,
    listen: Vec<String>,
    /// Whether readings were taken and the past settled.
    ready: bool,
    /// Whether new work is refused.
    closing: bool,
    /// Number of the last event that this shows.
    seq: u64,
    /// When it was so, by the clock of the events.
    at_ms: u64,
    pool: Pool,
    engines: Vec<Engine>,
    waiters: Vec<Waiter>,
    /// Model servers that somebody else runs, by the last look at each.
    external: Vec<Target>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pool {
    budget_bytes: Option<u64>,
    automatic_budget_bytes: u64,
    /// What two or more accelerated residents may take together.
    ceiling_bytes: Option<u64>,
    accelerated_bytes: u64,
    committed_bytes: u64,
    system_ram_bytes: u64,
    /// The cards, then system memory.
    memory: Vec<Memory>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Memory {
    /// `null`: system memory.
    device: Option<String>,
    total_bytes: u64,
    share_bytes: u64,
    share_now_bytes: u64,
    committed_bytes: u64,
    foreign_bytes: Option<u64>,
    /// What is never reserved, whoever asks.
    reserve_bytes: u64,
    /// What was seen of our engines here; `null`: nothing was yet.
    measured_bytes: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Engine {
    key: String,
    provider: String,
    model: String,
    replica: u32,
    phase: &'static str,
    /// Per-mille of a load.
    progress: Option<u16>,
    pid: Option<u32>,
    spawn: Option<u64>,
    leases: Vec<Lease>,
    /// Requests that wait for it.
    queue: u32,
    /// Sessions that come back to it.
    sessions: u32,
    slots: Option<u32>,
    /// Leases granted in the last 60 s.
    demand: u32,
    /// Pieces of replies since it serves: of one that streams, about a token each. `null`: it takes nobody.
    frames: Option<u64>,
    /// Tokens that it generated in a second for the last request that was counted.
    tokens_per_second: Option<f64>,
    drainers: u32,
    /// The engines that need its room.
    drained_for: Vec<String>,
    /// Whether an operator has drained it: it takes no requests until it is loaded.
    drained: bool,
    /// When it stops unless a request comes.
    unload_in_ms: Option<u64>,
    reserved_bytes: u64,
    /// What was planned for its child before it ran.
    planned_bytes: u64,
    /// The most that was seen of its child since that was ready.
    measured_bytes: Option<u64>,
    /// The same by part.
    memory: Option<EngineMemory>,
    last_use_ms: Option<u64>,
    created_ms: u64,
    last_exit: Option<Exit>,
    /// What its failures mean for its next start.
    trouble: Option<Trouble>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Trouble {
    /// `failed`, `backoff`, `breaker-open` or `quarantined`.
    state: &'static str,
    class: &'static str,
    /// Until time alone ends it; none: a changed input or a reset does.
    ends_in_ms: Option<u64>,
    message: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EngineMemory {
    /// Where what was planned comes from: `declared`, `estimated`, `file-size` or `learned`.
    from: &'static str,
    /// The files of its weights, on disk.
    weights_bytes: u64,
    planned: Parts,
    reserved: Parts,
    /// The most that was seen; what nobody could read is `null` or missing.
    measured: Parts,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Parts {
    devices: BTreeMap<String, u64>,
    private_bytes: Option<u64>,
    files_bytes: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Lease {
    id: u64,
    request: String,
    lane: &'static str,
    session: Option<String>,
    job: Option<String>,
    /// Which slot of the engine, where that is known.
    slot: Option<u32>,
    held_ms: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Exit {
    spawn: u64,
    pid: Option<u32>,
    code: Option<i32>,
    signal: Option<i32>,
    reason: &'static str,
    class: Option<&'static str>,
    ever_ready: bool,
    lived_ms: u64,
    ended_ms: u64,
    tail: Vec<String>,
    plan: Option<Plan>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Plan {
    context_per_slot: u32,
    slots: u32,
    kv_cache_type: &'static str,
    devices: Vec<String>,
    reserved_bytes: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Waiter {
    key: String,
    waited_ms: u64,
    needs_bytes: u64,
    waits_for: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Model {
    id: String,
    aliases: Vec<String>,
    engine: String,
    state: &'static str,
    progress: Option<u16>,
    /// The class of the last failure, when the state is `failed`.
    class: Option<&'static str>,
    context: Option<u32>,
    slots: Option<u32>,
    capabilities: Vec<&'static str>,
    tags: Vec<String>,
    pinned: bool,
    home: bool,
    /// The least and the most engines of it.
    replicas: [u32; 2],
    priority: i32,
    declared_bytes: Option<u64>,
}

impl Status {
    pub(super) fn of(context: &Context) -> Self {
        let snapshot = context.handle.snapshot();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            listen: context.settings.listen.clone(),
            ready: context.handle.is_settled(),
            closing: snapshot.closing,
            seq: snapshot.seq,
            at_ms: millis(snapshot.at.since(Now::ZERO)),
            pool: Pool::of(&snapshot),
            engines: engines(context),
            waiters: snapshot.waiters.iter().map(|w| Waiter::of(w, snapshot.at)).collect(),
            external: residency::targets(context),
        }
    }
}

impl Pool {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let pool = &snapshot.pool;
        Self {
            budget_bytes: pool.budget.map(Bytes::get),
            automatic_budget_bytes: pool.automatic.get(),
            ceiling_bytes: pool.ceiling.map(Bytes::get),
            accelerated_bytes: pool.accelerated.get(),
            committed_bytes: pool.committed.get(),
            system_ram_bytes: pool.system_ram.get(),
            memory: pool.memory.iter().map(|memory| Memory::of(memory, &snapshot.entries)).collect(),
        }
    }
}

impl Memory {
    fn of(memory: &MemoryView, entries: &[EntryView]) -> Self {
        let measured = entries.iter().filter_map(|entry| measured_in(entry.memory.as_ref()?, memory.device.as_ref()));
        let sum = measured.reduce(Bytes::saturating_add);
        Self {
            device: memory.device.as_ref().map(ToString::to_string),
            total_bytes: memory.total.get(),
            share_bytes: memory.share.get(),
            share_now_bytes: memory.share_now.get(),
            committed_bytes: memory.committed.get(),
            foreign_bytes: memory.foreign.map(Bytes::get),
            reserve_bytes: memory.total.saturating_sub(memory.share).get(),
            measured_bytes: sum.map(Bytes::get),
        }
    }
}

/// What was seen of an engine on a card, or in system memory.
fn measured_in(memory: &MemoryParts, device: Option<&DeviceId>) -> Option<Bytes> {
    let PartsView { devices, private, files } = &memory.measured;
    match device {
        Some(device) => devices.get(device).copied(),
        None => [*private, *files].into_iter().flatten().reduce(Bytes::saturating_add),
    }
}

/// All engines.
pub(super) fn engines(context: &Context) -> Vec<Engine> {
    let snapshot = context.handle.snapshot();
    snapshot.entries.iter().map(|entry| engine(context, entry, snapshot.at)).collect()
}

/// One engine, with what passed it since the last turn of the loop.
pub(super) fn engine(context: &Context, entry: &EntryView, at: Now) -> Engine {
    let signs = entry.spawn.and_then(|spawn| context.handle.signs(entry.key.model(), spawn));
    let pace = entry.spawn.and_then(|spawn| context.meters.pace(&entry.key, spawn));
    let tokens_per_second = pace.map(|pace| (pace * 10.0).round() / 10.0);
    Engine { frames: signs.map(|signs| signs.moves), tokens_per_second, ..Engine::of(entry, at) }
}

impl Engine {
    fn of(entry: &EntryView, at: Now) -> Self {
        let progress = match entry.phase {
            PhaseView::Starting { progress } => progress,
            _ => None,
        };
        Self {
            key: entry.key.to_string(),
            provider: entry.key.provider().to_owned(),
            model: entry.key.model().to_string(),
            replica: entry.key.replica(),
            phase: entry.phase.as_str(),
            progress,
            pid: entry.pid,
            spawn: entry.spawn.map(|s| s.0),
            leases: entry.leases.iter().map(|h| Lease::of(h, at)).collect(),
            queue: entry.n_tickets,
            sessions: entry.n_sessions,
            slots: entry.width,
            demand: entry.demand,
            frames: None,
            tokens_per_second: None,
            drainers: entry.n_drainers,
            drained_for: entry.drained_for.iter().map(ToString::to_string).collect(),
            drained: entry.drained,
            unload_in_ms: entry.unload_at.map(|then| millis(then.since(at))),
            reserved_bytes: entry.reserved.get(),
            planned_bytes: entry.planned.get(),
            measured_bytes: entry.measured.map(Bytes::get),
            memory: entry.memory.as_ref().map(EngineMemory::of),
            last_use_ms: entry.last_use.map(|then| millis(at.since(then))),
            created_ms: millis(at.since(entry.created)),
            last_exit: entry.last_exit.as_ref().map(|record| Exit::of(record, at)),
            trouble: entry.trouble.as_ref().map(|trouble| Trouble::of(trouble, at)),
        }
    }
}

impl EngineMemory {
    fn of(memory: &MemoryParts) -> Self {
        let MemoryParts { from, weights, planned, reserved, measured } = memory;
        let parts = |parts: &PartsView| Parts {
            devices: parts.devices.iter().map(|(id, bytes)| (id.to_string(), bytes.get())).collect(),
            private_bytes: parts.private.map(Bytes::get),
            files_bytes: parts.files.map(Bytes::get),
        };
        let (planned, reserved, measured) = (parts(planned), parts(reserved), parts(measured));
        Self { from, weights_bytes: weights.get(), planned, reserved, measured }
    }
}

impl Lease {
    fn of(LeaseView { id, slot, holder }: &LeaseView, at: Now) -> Self {
        Self {
            id: *id,
            request: holder.request.clone(),
            lane: holder.lane.as_str(),
            session: holder.session.clone(),
            job: holder.job.clone(),
            slot: *slot,
            held_ms: millis(at.since(holder.since)),
        }
    }
}

impl Exit {
    fn of(record: &ExitRecord, at: Now) -> Self {
        Self {
            spawn: record.spawn.0,
            pid: record.pid,
            code: record.code,
            signal: record.signal,
            reason: record.reason.as_str(),
            class: record.class.map(motorpool_vocab::FailureClass::as_str),
            ever_ready: record.ever_ready,
            lived_ms: millis(record.ended_at.since(record.started_at)),
            ended_ms: millis(at.since(record.ended_at)),
            tail: record.tail.clone(),
            plan: record.plan.as_ref().map(|plan| Plan {
                context_per_slot: plan.context_per_slot,
                slots: plan.slots,
                kv_cache_type: plan.kv,
                devices: plan.devices.iter().map(ToString::to_string).collect(),
                reserved_bytes: plan.reserved.get(),
            }),
        }
    }
}

impl Trouble {
    fn of(trouble: &TroubleView, at: Now) -> Self {
        Self {
            state: trouble.kind.as_str(),
            class: trouble.class.as_str(),
            ends_in_ms: trouble.until.map(|until| millis(until.since(at))),
            message: trouble.message.clone(),
        }
    }
}

impl Waiter {
    fn of(waiter: &WaiterView, at: Now) -> Self {
        Self {
            key: waiter.key.to_string(),
            waited_ms: millis(at.since(waiter.since)),
            needs_bytes: waiter.needs.get(),
            waits_for: waiter.waits_for.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Model {
    pub(super) fn of(model: &motorpool_catalog::Model, standing: Standing) -> Self {
        let (progress, class) = match standing {
            Standing::Loading(progress) => (progress, None),
            Standing::Failed(class) => (None, Some(class)),
            Standing::Unloaded | Standing::Loaded => (None, None),
        };
        Self {
            id: model.id.to_string(),
            aliases: model.aliases.clone(),
            engine: model.engine.clone(),
            state: standing.as_str(),
            progress,
            class,
            context: model.context.and_then(motorpool_catalog::ContextWish::tokens),
            slots: model.slots,
            capabilities: model.capabilities.iter().map(|c| c.as_str()).collect(),
            tags: model.tags.clone(),
            pinned: model.pinned,
            home: model.home,
            replicas: [model.replicas.min, model.replicas.max],
            priority: model.priority,
            declared_bytes: model.declared.map(Bytes::get),
        }
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::entry;
    use motorpool_vocab::GIB;

    fn measured(key: &str, measured: PartsView) -> EntryView {
        let (planned, reserved) = (PartsView::default(), PartsView::default());
        let memory = MemoryParts { from: "declared", weights: Bytes::ZERO, planned, reserved, measured };
        EntryView { memory: Some(memory), ..entry(key, PhaseView::Ready, None) }
    }

    #[test]
    fn a_pool_tells_its_reserve_and_what_was_measured_of_all_engines_in_it() {
        let (gib, card) = (|n: u64| Bytes::new(n * GIB), DeviceId("GPU-a".into()));
        let on_card = PartsView { devices: [(card.clone(), gib(3))].into(), private: Some(gib(1)), files: None };
        let entries = [
            measured("llama-server:a:0", on_card.clone()),
            measured("llama-server:b:0", on_card),
            measured("llama-server:c:0", PartsView::default()),
            entry("llama-server:d:0", PhaseView::Idle, None),
        ];
        let pool = |device: Option<DeviceId>| MemoryView {
            device,
            total: gib(24),
            share: gib(22),
            share_now: gib(20),
            committed: gib(8),
            foreign: None,
        };
        let of = |device, entries| {
            let Memory { reserve_bytes, measured_bytes, .. } = Memory::of(&pool(device), entries);
            (reserve_bytes, measured_bytes)
        };
        assert_eq!(of(Some(card.clone()), &entries), (2 * GIB, Some(6 * GIB)));
        assert_eq!(of(None, &entries), (2 * GIB, Some(2 * GIB)));
        assert_eq!(of(Some(card), &entries[2..]), (2 * GIB, None), "what nobody measured is not nothing");
        let more_than_all = MemoryView { share: gib(30), ..pool(None) };
        assert_eq!(Memory::of(&more_than_all, &[]).reserve_bytes, 0);
    }
}
