//! Where finished records go: [`Sink`].
use super::{Outlet, UsageRecord};
use crate::metrics::Meters;
use motorpool_vocab::{EngineKey, Spawn};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

/// Takes every record, counts it, and waits for nobody.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    outlet: OnceLock<Outlet>,
    meters: Arc<Meters>,
    /// Whether the last one was lost.
    is_losing: AtomicBool,
}

impl Sink {
    pub(crate) fn new(meters: Arc<Meters>) -> Self {
        Self { meters, ..Self::default() }
    }

    /// From now on records go there.
    pub(crate) fn open(&self, outlet: Outlet) {
        let _ = self.outlet.set(outlet);
    }

    /// A child of an engine generated so many tokens in a second.
    pub(crate) fn saw(&self, key: EngineKey, spawn: Spawn, pace: f64) {
        self.meters.saw(key, spawn, pace);
    }

    pub(crate) fn take(&self, record: UsageRecord) {
        self.meters.ended(&record);
        let Some(outlet) = self.outlet.get() else { return };
        let is_lost = outlet.try_send(record).is_err();
        if is_lost {
            self.meters.lost();
        }
        if self.is_losing.swap(is_lost, Ordering::Relaxed) != is_lost {
            if is_lost {
                tracing::warn!("records of requests are lost: whoever keeps them does not follow");
            } else {
                tracing::info!("records of requests are kept again");
            }
        }
    }
}
