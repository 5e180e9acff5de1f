//! [`Meters`]: what requests took, counted as they end; and how long they waited for a lease.
use crate::usage::{Outcome, UsageRecord};
use motorpool_vocab::{EngineKey, Histogram, Spawn};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Bounds of times that a client waits.
const WAITS: &[Duration] = &[
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
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
];
/// Bounds of times between two tokens.
const TOKENS: &[Duration] = &[
    Duration::from_millis(1),
    Duration::from_micros(2500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2500),
];

/// Behind a server's name: all of its models.
const ANY_OF_SERVER: &str = "/*";

/// Whether it is counted under a server's name.
pub(super) fn is_of_server(name: &str) -> bool {
    name.ends_with(ANY_OF_SERVER)
}

/// Counts requests.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    counts: Mutex<Counts>,
    /// Of each engine the child that served it last, and the tokens that this generated in a second for the last request
    /// that was counted.
    paces: Mutex<BTreeMap<EngineKey, (Spawn, f64)>>,
}

/// What was counted since our start.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// By model, or for those of somebody else's servers by server.
    pub(crate) models: BTreeMap<String, OfModel>,
    /// Requests that asked for no model that is known, by code.
    pub(crate) unrouted: BTreeMap<&'static str, u64>,
    /// Wishes for a lease, by what came of them.
    pub(crate) acquired: BTreeMap<&'static str, u64>,
    /// From the wish to the lease.
    pub(crate) waited: Histogram,
    /// Records that nobody kept.
    pub(crate) records_lost: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            models: BTreeMap::new(),
            unrouted: BTreeMap::new(),
            acquired: BTreeMap::new(),
            waited: Histogram::new(WAITS),
            records_lost: 0,
        }
    }
}

/// What was counted of one model.
#[derive(Clone, Debug)]
pub(crate) struct OfModel {
    pub(crate) finished: u64,
    pub(crate) aborted: u64,
    /// By code.
    pub(crate) failed: BTreeMap<&'static str, u64>,
    pub(crate) prompt: u64,
    pub(crate) cached: u64,
    pub(crate) generated: u64,
    pub(crate) took: Histogram,
    pub(crate) first_result: Histogram,
    /// Of each request the mean.
    pub(crate) between_tokens: Histogram,
}

impl Default for OfModel {
    fn default() -> Self {
        Self {
            finished: 0,
            aborted: 0,
            failed: BTreeMap::new(),
            prompt: 0,
            cached: 0,
            generated: 0,
            took: Histogram::new(WAITS),
            first_result: Histogram::new(WAITS),
            between_tokens: Histogram::new(TOKENS),
        }
    }
}

impl Meters {
    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A child of an engine generated so many tokens in a second.
    pub(crate) fn saw(&self, key: EngineKey, spawn: Spawn, pace: f64) {
        self.paces.lock().unwrap_or_else(PoisonError::into_inner).insert(key, (spawn, pace));
    }

    /// What was seen last of this child.
    pub(crate) fn pace(&self, key: &EngineKey, spawn: Spawn) -> Option<f64> {
        let paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        paces.get(key).filter(|(of, _)| *of == spawn).map(|(_, pace)| *pace)
    }

    /// A request has ended.
    pub(crate) fn ended(&self, record: &UsageRecord) {
        let name = match (&record.server, &record.model) {
            (Some(server), _) => Some(format!("{server}{ANY_OF_SERVER}")),
            (None, model) => model.clone(),
        };
        self.count(|counts| match name {
            Some(name) => counts.models.entry(name).or_default().ended(record),
            None => add(&mut counts.unrouted, code_of(record.outcome), 1),
        });
    }

    /// Its record was kept by nobody.
    pub(crate) fn lost(&self) {
        self.count(|counts| counts.records_lost = counts.records_lost.saturating_add(1));
    }

    /// Somebody wishes for a lease.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        Waiting { meters: self, since: Instant::now(), end: "left" }
    }
}

/// Somebody who waits for a lease. Dropped without a word, it left.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    meters: &'a Meters,
    since: Instant,
    end: &'static str,
}

impl Waiting<'_> {
    /// It got one.
    pub(crate) fn granted(mut self) -> Duration {
        self.end = "granted";
        self.since.elapsed()
    }

    /// It was refused with this code.
    pub(crate) fn refused(mut self, code: &'static str) {
        self.end = code;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        self.meters.count(|counts| {
            add(&mut counts.acquired, self.end, 1);
            if self.end == "granted" {
                counts.waited.observe(waited);
            }
        });
    }
}

impl OfModel {
    fn ended(&mut self, record: &UsageRecord) {
        let UsageRecord { tokens, first_result_within, took, outcome, .. } = record;
        match outcome {
            Outcome::Finished => self.finished = self.finished.saturating_add(1),
            Outcome::Aborted => self.aborted = self.aborted.saturating_add(1),
            Outcome::Failed(code) => add(&mut self.failed, code, 1),
        }
        for (sum, n) in [
            (&mut self.prompt, tokens.prompt),
            (&mut self.cached, tokens.cached),
            (&mut self.generated, tokens.generated),
        ] {
            *sum = sum.saturating_add(n.unwrap_or(0));
        }
        self.took.observe(*took);
        let Some(first) = first_result_within else { return };
        self.first_result.observe(*first);
        // The first token came with the first result.
        let more = tokens.generated.and_then(|n| u32::try_from(n).ok()).map_or(0, |n| n.saturating_sub(1));
        if let Some(between) = took.saturating_sub(*first).checked_div(more) {
            self.between_tokens.observe(between);
        }
    }

    pub(crate) fn n_failed(&self) -> u64 {
        self.failed.values().fold(0, |sum, n| sum.saturating_add(*n))
    }
}

const fn code_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Finished => "finished",
        Outcome::Aborted => "aborted",
        Outcome::Failed(code) => code,
    }
}

fn add(counts: &mut BTreeMap<&'static str, u64>, name: &'static str, more: u64) {
    let n = counts.entry(name).or_default();
    *n = n.saturating_add(more);
}
