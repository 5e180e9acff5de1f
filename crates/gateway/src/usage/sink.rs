//! Where finished records go: [`Sink`].
use super::{Outlet, UsageRecord};
use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Takes every record, and waits for nobody.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    outlet: OnceLock<Outlet>,
    n_lost: AtomicU64,
    /// Whether the last one was lost.
    is_losing: AtomicBool,
}

impl Sink {
    /// From now on records go there.
    pub(crate) fn open(&self, outlet: Outlet) {
        let _ = self.outlet.set(outlet);
    }

    /// How many nobody took.
    pub(crate) fn n_lost(&self) -> u64 {
        self.n_lost.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self, record: UsageRecord) {
        let Some(outlet) = self.outlet.get() else { return };
        let is_lost = outlet.try_send(record).is_err();
        if is_lost {
            self.n_lost.fetch_add(1, Ordering::Relaxed);
        }
        if self.is_losing.swap(is_lost, Ordering::Relaxed) != is_lost {
            if is_lost {
                tracing::warn!("records of requests are lost: whoever keeps them does not follow");
            } else {
                tracing::info!(lost = self.n_lost(), "records of requests are kept again");
            }
        }
    }
}
