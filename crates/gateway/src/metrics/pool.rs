//! What is measured of the pool: its memory, its queues, what became of its engines.
use super::{
    families::{Families, Labels, Measure, Value, counter, gauge, histogram},
    meters::Counts,
};
use motorpool_supervisor::{CONSTRAINTS, DrainOutcome, Tally};
use motorpool_vocab::{Bytes, DeviceId, EntryView, FailureClass, MemoryView, PhaseView, Snapshot, StopReason};
use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

/// How system memory is called among the devices.
const SYSTEM: &str = "system";

/// Memory, and what happened to engines.
pub(super) fn write(families: &mut Families, snapshot: &Snapshot, tally: &Tally) {
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    let info = "What runs; always 1.";
    families.add(gauge("motorpool_build_info", Measure::Number, info), [(version, Value::Level(1.0))]);
    write_memory(families, snapshot, tally);
    write_lives(families, tally);
    let lag = "From a word to the loop that owns the pool until it takes it, measured once a second.";
    families.one(histogram("motorpool_loop_lag", lag), Value::Times(tally.lag.clone()));
}

fn write_memory(families: &mut Families, snapshot: &Snapshot, tally: &Tally) {
    let pool = &snapshot.pool;
    let bytes = |name, help| gauge(name, Measure::Bytes, help);
    let budget = pool.budget.map(|budget| (Labels::new(), Value::bytes(budget)));
    families.add(bytes("motorpool_budget", "What may be reserved in all; missing where that is not enforced."), budget);
    families.one(bytes("motorpool_committed", "What is reserved in all."), Value::bytes(pool.committed));
    families.one(
        bytes("motorpool_overflow", "By how much more is reserved than may be, at the worst place; 0 as it should be."),
        Value::bytes(tally.overflow),
    );
    let of_each = |value: &dyn Fn(&MemoryView) -> Option<Bytes>| -> Vec<_> {
        let row = |memory: &MemoryView| Some((device(memory.device.as_ref()), Value::bytes(value(memory)?)));
        pool.memory.iter().filter_map(row).collect()
    };
    families.add(
        bytes("motorpool_memory_total", "All memory of a device; `system` is system memory."),
        of_each(&|m| Some(m.total)),
    );
    families.add(bytes("motorpool_memory_share", "What of it may be reserved now."), of_each(&|m| Some(m.share_now)));
    families.add(bytes("motorpool_memory_committed", "What of it is reserved."), of_each(&|m| Some(m.committed)));
    families.add(
        bytes("motorpool_memory_foreign", "What of it others use, where that can be read."),
        of_each(&|m| m.foreign),
    );
    let measured = measured(&snapshot.entries);
    let known = |memory: &MemoryView| measured.get(&memory.device).copied().or(Some(Bytes::ZERO));
    families.add(
        bytes("motorpool_memory_measured", "The most that was seen of it in use by our engines that run now."),
        of_each(&known),
    );
}

/// By device, what engines were seen to hold. Replicas of a model map the same files.
fn measured(entries: &[EntryView]) -> BTreeMap<Option<DeviceId>, Bytes> {
    let (mut sums, mut files) = (BTreeMap::<_, Bytes>::new(), BTreeMap::<_, Bytes>::new());
    for entry in entries {
        let Some(memory) = &entry.memory else { continue };
        let mut add = |place, bytes: Bytes| {
            let sum = sums.entry(place).or_default();
            *sum = Bytes::sum([*sum, bytes]);
        };
        for (id, bytes) in &memory.measured.devices {
            add(Some(id.clone()), *bytes);
        }
        add(None, memory.measured.private.unwrap_or_default());
        let most = files.entry(entry.key.model()).or_default();
        *most = (*most).max(memory.measured.files.unwrap_or_default());
    }
    let system = sums.entry(None).or_default();
    *system = Bytes::sum([*system].into_iter().chain(files.into_values()));
    sums
}

fn device(id: Option<&DeviceId>) -> Labels {
    vec![("device", id.map_or_else(|| SYSTEM.to_owned(), ToString::to_string))]
}

/// One series for each name, also for those of which there was none.
fn counted(label: &'static str, counts: impl IntoIterator<Item = (&'static str, u64)>) -> Vec<(Labels, Value)> {
    counts.into_iter().map(|(name, n)| (vec![(label, name.to_owned())], Value::Count(n))).collect()
}

fn write_lives(families: &mut Families, tally: &Tally) {
    let evictions = StopReason::ALL.iter().filter(|reason| !reason.is_failure());
    families.add(
        counter("motorpool_evictions", "Engines that were stopped for no failure of theirs, by reason."),
        counted("reason", evictions.map(|reason| (reason.as_str(), n(&tally.evictions, reason)))),
    );
    families.add(
        counter("motorpool_failures", "Starts and services of engines that failed, by class."),
        counted("class", FailureClass::ALL.iter().map(|class| (class.as_str(), n(&tally.failures, class)))),
    );
    families.add(
        counter("motorpool_restarts", "Starts of an engine whose last child failed, by the class of that failure."),
        counted("class", FailureClass::ALL.iter().map(|class| (class.as_str(), n(&tally.restarts, class)))),
    );
    families.add(
        counter("motorpool_drains", "Drains that ended, by how."),
        counted("outcome", DrainOutcome::ALL.iter().map(|outcome| (outcome.as_str(), n(&tally.drains, outcome)))),
    );
    families.add(
        counter("motorpool_denials", "Builds that were refused, by the constraint that they met."),
        counted("constraint", CONSTRAINTS.iter().map(|name| (*name, n(&tally.denials, name)))),
    );
    families.one(
        counter("motorpool_deferrals", "Builds that nobody waits for and that were put off for want of room."),
        Value::Count(tally.deferrals),
    );
    let by_server = |label, counts: &BTreeMap<(String, &'static str), u64>| -> Vec<_> {
        let labels = |target: &String, what: &str| vec![("target", target.clone()), (label, what.to_owned())];
        counts.iter().map(|((target, what), n)| (labels(target, what), Value::Count(*n))).collect()
    };
    families.add(
        counter("motorpool_external_notices", "What was told of external servers, by server and kind."),
        by_server("kind", &tally.notices),
    );
    families.add(
        counter("motorpool_external_changes", "Our loads, evictions and restores on external servers."),
        by_server("change", &tally.changes),
    );
    families.one(
        counter("motorpool_overflows", "How often more came to be reserved than may be."),
        Value::Count(tally.overflows),
    );
}

fn n<K: Ord>(counts: &BTreeMap<K, u64>, name: &K) -> u64 {
    counts.get(name).copied().unwrap_or(0)
}

/// What became of wishes for a lease.
pub(super) fn write_requests(families: &mut Families, counts: &Counts, unwritten: u64) {
    // Both are there before the first of them.
    let outcomes = [("granted", 0), ("left", 0)].into_iter().chain(counts.acquired.iter().map(|(k, n)| (*k, *n)));
    let outcomes: BTreeMap<_, _> = outcomes.collect();
    families.add(
        counter(
            "motorpool_acquires",
            "Wishes for a lease, by what came of them: granted, left, or the code of the refusal.",
        ),
        counted("outcome", outcomes),
    );
    families.one(
        histogram("motorpool_acquire_wait", "From the wish for a lease until it is granted."),
        Value::Times(counts.waited.clone()),
    );
    families.add(
        counter("motorpool_unrouted_requests", "Requests that asked for no model that is known, by code."),
        counted("code", counts.unrouted.iter().map(|(code, n)| (*code, *n))),
    );
    families.one(
        counter(
            "motorpool_usage_records_lost",
            "Records of requests that are in no history: it was too slow, or its disk too full.",
        ),
        Value::Count(counts.records_lost.saturating_add(unwritten)),
    );
}

/// What the model-server protocol of the Kubernetes Gateway API Inference Extension asks for; its names are the scheduler's
/// to configure. Here the whole host is one model server, and what it calls adapters are the models that are resident.
pub(super) fn write_protocol(families: &mut Families, snapshot: &Snapshot, ids: &[&str]) {
    let sum = |n: &dyn Fn(&EntryView) -> usize| snapshot.entries.iter().map(n).sum::<usize>();
    let running = sum(&|entry| entry.leases.len());
    let slots = sum(&|entry| width(entry));
    let number = |name, help| gauge(name, Measure::Number, help);
    families.one(
        number("motorpool_requests_waiting", "Requests that wait for an engine: TotalQueuedRequests."),
        Value::number(sum(&|entry| usize::try_from(entry.n_tickets).unwrap_or(usize::MAX))),
    );
    families.one(
        number("motorpool_requests_running", "Requests that are served: TotalRunningRequests."),
        Value::number(running),
    );
    families
        .one(number("motorpool_builds_waiting", "Engines that wait for room."), Value::number(snapshot.waiters.len()));
    let share = if slots == 0 { 0.0 } else { ratio(running, slots) };
    families.one(
        gauge(
            "motorpool_kv_cache_usage",
            Measure::Ratio,
            "Taken slots of all slots that are there: KVCacheUtilization. Each slot has its KV cache to itself.",
        ),
        Value::Level(share),
    );
    let is_ready = |id: &str| of_model(snapshot, id).any(|entry| entry.width.is_some());
    let waits = |id: &str| of_model(snapshot, id).any(|entry| entry.n_tickets > 0);
    let list = |those: &dyn Fn(&str) -> bool| ids.iter().copied().filter(|id| those(id)).collect::<Vec<_>>().join(",");
    let labels = vec![
        ("max_lora", ids.len().to_string()),
        ("running_lora_adapters", list(&is_ready)),
        ("waiting_lora_adapters", list(&|id| waits(id) && !is_ready(id))),
    ];
    families.add(
        number(
            "motorpool_lora_requests_info",
            "Models that are resident and models that are waited for, at this time.",
        ),
        [(labels, Value::seconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))],
    );
}

/// The engines of a model.
pub(super) fn of_model<'a>(snapshot: &'a Snapshot, id: &'a str) -> impl Iterator<Item = &'a EntryView> {
    snapshot.entries.iter().filter(move |entry| entry.key.model().as_str() == id)
}

/// How many requests it serves at a time; 0 until it does.
pub(super) fn width(entry: &EntryView) -> usize {
    let serves = matches!(entry.phase, PhaseView::Ready | PhaseView::Suspect);
    entry.width.filter(|_| serves).map_or(0, |width| usize::try_from(width).unwrap_or(usize::MAX))
}

fn ratio(part: usize, whole: usize) -> f64 {
    let plain = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    plain(part) / plain(whole)
}
