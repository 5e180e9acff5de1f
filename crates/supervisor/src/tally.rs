//! [`Tally`]: what happened in the pool since our start, counted, for whoever measures it.
//!
//! Counted where it is told, so that nothing is missed, however slowly anybody reads. What is counted by engine is bounded
//! by the engines that there can be.
use motorpool_pool::Denial;
use motorpool_vocab::{Bytes, EngineKey, EventKind, ExitRecord, FailureClass, Histogram, ModelId, StopReason};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Bounds of loads, from a small model in the page cache to a large one on a slow disk.
const LOADS: &[Duration] = &[
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_mins(1),
    Duration::from_mins(2),
    Duration::from_mins(5),
    Duration::from_mins(10),
    Duration::from_mins(30),
];
const LAGS: &[Duration] = &[
    Duration::from_micros(100),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrainOutcome {
    /// Everybody was done, or was cut; it is stopped.
    Drained,
    /// Nobody needs its room any more, or waited too long.
    GivenUp,
    /// Its engine ended by itself.
    Ended,
}

impl DrainOutcome {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Drained, Self::GivenUp, Self::Ended];

    /// The stable name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::GivenUp => "given-up",
            Self::Ended => "ended",
        }
    }
}

/// What a build can be refused for, by name.
pub const CONSTRAINTS: [&str; 7] =
    ["budget", "co-residency", "device", "system-memory", "measured", "context", "gpu-paused"];

/// What was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// How long starts took that ended with a ready engine, by model.
    pub loads: BTreeMap<ModelId, Histogram>,
    /// Engines that were stopped for no failure of theirs.
    pub evictions: BTreeMap<StopReason, u64>,
    /// Starts and services that failed.
    pub failures: BTreeMap<FailureClass, u64>,
    /// Starts of an engine whose last child failed, by that failure.
    pub restarts: BTreeMap<FailureClass, u64>,
    /// Drains that ended.
    pub drains: BTreeMap<DrainOutcome, u64>,
    /// Refused builds, by what they were refused for: one of [`CONSTRAINTS`].
    pub denials: BTreeMap<&'static str, u64>,
    /// Builds that nobody waits for and that were put off for want of room.
    pub deferrals: u64,
    /// What was told of servers that somebody else runs, by the server's id and the notice's kind.
    pub notices: BTreeMap<(String, &'static str), u64>,
    /// What we changed there, by the server's id and what it was.
    pub changes: BTreeMap<(String, &'static str), u64>,
    /// How often more was reserved than may be.
    pub overflows: u64,
    /// By how much it is now.
    pub overflow: Bytes,
    /// From a word to the loop until it was taken, once a second.
    pub lag: Histogram,
    failed: BTreeMap<EngineKey, FailureClass>,
    draining: BTreeSet<EngineKey>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            loads: BTreeMap::new(),
            evictions: BTreeMap::new(),
            failures: BTreeMap::new(),
            restarts: BTreeMap::new(),
            drains: BTreeMap::new(),
            denials: BTreeMap::new(),
            deferrals: 0,
            notices: BTreeMap::new(),
            changes: BTreeMap::new(),
            overflows: 0,
            overflow: Bytes::ZERO,
            lag: Histogram::new(LAGS),
            failed: BTreeMap::new(),
            draining: BTreeSet::new(),
        }
    }
}

impl Tally {
    pub(crate) fn on_event(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Reserved { key, .. } => {
                if let Some(class) = self.failed.remove(key) {
                    add(&mut self.restarts, class);
                }
            }
            EventKind::Ready { key, within, .. } => {
                let loads = self.loads.entry(key.model().clone()).or_insert_with(|| Histogram::new(LOADS));
                loads.observe(*within);
            }
            EventKind::Stopping { key, reason, .. } => {
                if !reason.is_failure() {
                    add(&mut self.evictions, *reason);
                }
                self.end_drain(key, if reason.is_failure() { DrainOutcome::Ended } else { DrainOutcome::Drained });
            }
            EventKind::Exited { key, record } => self.on_exit(key, record),
            EventKind::DrainBegan { key, .. } => drop(self.draining.insert(key.clone())),
            EventKind::DrainGivenUp { key } => self.end_drain(key, DrainOutcome::GivenUp),
            EventKind::Deferred { .. } => self.deferrals = self.deferrals.saturating_add(1),
            EventKind::External(notice) => add(&mut self.notices, (notice.target.clone(), notice.kind)),
            EventKind::ExternalChanged { target, change, .. } => add(&mut self.changes, (target.clone(), *change)),
            EventKind::GpuPaused { .. } => add(&mut self.denials, "gpu-paused"),
            EventKind::Overflow { by } => {
                self.overflows = self.overflows.saturating_add(1);
                self.overflow = *by;
            }
            EventKind::OverflowCured => self.overflow = Bytes::ZERO,
            _ => {}
        }
    }

    pub(crate) fn on_denial(&mut self, denial: &Denial) {
        let constraint = if denial.context.is_some() { "context" } else { denial.which() };
        add(&mut self.denials, constraint);
    }

    /// The loop took a word so long after it was sent.
    pub(crate) fn lagged(&mut self, lag: Duration) {
        self.lag.observe(lag);
    }

    fn on_exit(&mut self, key: &EngineKey, record: &ExitRecord) {
        self.end_drain(key, DrainOutcome::Ended);
        if record.reason.is_failure() {
            let class = record.class.unwrap_or(FailureClass::Unknown);
            add(&mut self.failures, class);
            self.failed.insert(key.clone(), class);
        }
    }

    fn end_drain(&mut self, key: &EngineKey, outcome: DrainOutcome) {
        if self.draining.remove(key) {
            add(&mut self.drains, outcome);
        }
    }
}

fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, what: K) {
    let n = counts.entry(what).or_default();
    *n = n.saturating_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_vocab::{ExternalNotice, Now, Spawn};

    fn key(text: &str) -> EngineKey {
        text.parse().expect("a key")
    }

    fn exited(key: &EngineKey, reason: StopReason) -> EventKind {
        let record = ExitRecord {
            spawn: Spawn(1),
            pid: None,
            started_at: Now::ZERO,
            ended_at: Now::ZERO,
            code: None,
            signal: None,
            reason,
            class: reason.is_failure().then_some(FailureClass::Killed),
            ever_ready: true,
            tail: vec![],
            plan: None,
        };
        EventKind::Exited { key: key.clone(), record }
    }

    fn stopping(key: &EngineKey, reason: StopReason) -> EventKind {
        EventKind::Stopping { key: key.clone(), spawn: Spawn(1), reason }
    }

    fn reserved(key: &EngineKey) -> EventKind {
        EventKind::Reserved { key: key.clone(), spawn: Spawn(2), bytes: Bytes::ZERO }
    }

    #[test]
    fn a_start_after_a_failure_is_a_restart_and_one_after_a_stop_is_none() {
        let (mut tally, a, b) = (Tally::default(), key("e:a:0"), key("e:b:0"));
        for kind in [
            exited(&a, StopReason::Crash),
            stopping(&b, StopReason::Idle),
            exited(&b, StopReason::Idle),
            reserved(&a),
            reserved(&b),
            reserved(&a),
        ] {
            tally.on_event(&kind);
        }
        let one = |class| BTreeMap::from([(class, 1)]);
        assert_eq!((&tally.failures, &tally.restarts), (&one(FailureClass::Killed), &one(FailureClass::Killed)));
        assert_eq!(tally.evictions, BTreeMap::from([(StopReason::Idle, 1)]));
    }

    #[test]
    fn each_drain_ends_once() {
        let (mut tally, a) = (Tally::default(), key("e:a:0"));
        let began = || EventKind::DrainBegan { key: a.clone(), holders: vec![] };
        for kind in [
            began(),
            began(),
            EventKind::DrainGivenUp { key: a.clone() },
            EventKind::DrainGivenUp { key: a.clone() },
            began(),
            stopping(&a, StopReason::Evicted),
            exited(&a, StopReason::Evicted),
            began(),
            exited(&a, StopReason::Crash),
        ] {
            tally.on_event(&kind);
        }
        assert_eq!(tally.drains, DrainOutcome::ALL.into_iter().map(|outcome| (outcome, 1)).collect());
    }

    #[test]
    fn an_overflow_is_shown_until_it_is_cured_and_loads_are_counted_by_model() {
        let mut tally = Tally::default();
        tally.on_event(&EventKind::Overflow { by: Bytes::mib(5) });
        assert_eq!((tally.overflow, tally.overflows), (Bytes::mib(5), 1));
        tally.on_event(&EventKind::OverflowCured);
        assert_eq!((tally.overflow, tally.overflows), (Bytes::ZERO, 1));
        for name in ["e:a:0", "e:a:1", "e:b:0"] {
            tally.on_event(&EventKind::Ready { key: key(name), spawn: Spawn(1), within: Duration::from_secs(3) });
        }
        assert_eq!(tally.loads.values().map(Histogram::count).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn what_happens_on_others_servers_is_counted_by_server_and_kind() {
        let mut tally = Tally::default();
        let changed =
            |change| EventKind::ExternalChanged { target: "desk".into(), server: "ollama", change, model: "m".into() };
        for change in ["load", "evict", "load"] {
            tally.on_event(&changed(change));
        }
        let notice = ExternalNotice {
            target: "desk".into(),
            server: "ollama",
            kind: "stress",
            level: "warning",
            model: "m".into(),
            message: String::new(),
            detail: vec![],
        };
        tally.on_event(&EventKind::External(Box::new(notice)));
        let desk = |what| ("desk".to_owned(), what);
        assert_eq!(tally.changes, [(desk("evict"), 1), (desk("load"), 2)].into());
        assert_eq!(tally.notices, [(desk("stress"), 1)].into());
    }
}
