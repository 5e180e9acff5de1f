//! Time in which nothing ran: the machine slept, or whoever turns the pool was stopped.
//!
//! * **H6** time in which no engine could show a sign of life, or nobody could have seen it, counts against none: limits on
//!   looks, loads, silence and ends are moved on by it. What callers were promised (queues, drains) is not: their clocks
//!   went on.
//!
//! The shell tells of it (`Input::Woke`), since it turns the pool at least once a second while it runs; how long it was
//! is what lies between that input and the one before.
use crate::{
    Pool,
    entry::{Admitting, Phase, Step},
};
use motorpool_vocab::Now;
use std::time::Duration;

impl Pool {
    /// Nothing ran from `since` until now.
    pub(crate) fn on_woke(&mut self, now: Now, since: Now) {
        let gap = now.since(since);
        for entry in self.entries.values_mut() {
            match &mut entry.phase {
                Phase::Checking { until, .. } => later(until, gap),
                Phase::Admission(admission) => {
                    if let Admitting::Looks { until, .. } = &mut admission.step {
                        later(until, gap);
                    }
                }
                Phase::Starting(loading) => {
                    later(&mut loading.stall_at, gap);
                    later(&mut loading.cap_at, gap);
                }
                Phase::Proving(proving) => later(&mut proving.until, gap),
                Phase::Ready(serving) => serving.health.skip(gap),
                Phase::Idle | Phase::WaitsForRoom(_) | Phase::Stopping { .. } => {}
            }
        }
        for teardown in self.teardowns.values_mut() {
            match &mut teardown.step {
                Step::Writing { until: at, .. } | Step::Polite { kill_at: at } | Step::Killed { stuck_at: at } => {
                    later(at, gap);
                }
                Step::Stuck => {}
            }
        }
    }
}

fn later(at: &mut Now, gap: Duration) {
    *at = at.after(gap);
}
