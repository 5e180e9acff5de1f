//! The pause after a panic of the graphics driver (pool.md §9): nothing is started on graphics devices for a while.
//!
//! A build for one is refused before anybody is stopped for it, and once more inside its load slot, since it may have
//! waited there for long. What runs goes on, and what computes on the processor is started as always.
use crate::{
    Pool, Refusal,
    entry::{EntryId, Phase},
};
use motorpool_vocab::{Claim, EventKind, Now};

/// Why nothing is started on graphics devices, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuPause {
    /// When the driver panicked, as people write it.
    pub happened: String,
    /// What of the driver its report names.
    pub signature: String,
    /// When the pause ends.
    pub until: Now,
}

impl Pool {
    /// Whether a build with this claim is not started now.
    pub(crate) fn is_paused(&self, now: Now, claim: &Claim) -> bool {
        let on_gpu = !claim.accelerated.is_zero() || claim.device.values().any(|bytes| !bytes.is_zero());
        on_gpu && self.gpu_pause.as_ref().is_some_and(|pause| now < pause.until)
    }

    /// All who wait for the build of `entry` are told; one that nobody waits for is put off.
    pub(crate) fn refuse_paused(&mut self, now: Now, entry: EntryId) {
        let Some(GpuPause { happened, signature, until }) = self.gpu_pause.clone() else { return };
        let key = self.entries[entry].key.clone();
        let refusal = Refusal::GpuPaused { key: key.clone(), happened, signature, within: until.since(now) };
        if !self.is_background(entry) {
            self.publish(now, EventKind::GpuPaused { key, why: refusal.to_string() });
        }
        match &self.entries[entry].phase {
            Phase::Admission(_) => self.give_up_line(now, entry),
            _ => self.drain_for(now, entry, &std::collections::BTreeSet::new()),
        }
        self.entries[entry].phase = Phase::Idle;
        if self.is_background(entry) {
            return self.defer(now, entry, refusal.to_string());
        }
        self.refuse_all(now, entry, &refusal);
        self.entries[entry].attempts.end();
        self.settle_debts(entry);
    }
}
