//! [`Owed`]: what corrections put over a bound, and how it is cured (capacity.md §5).
//!
//! * Nothing busy is touched, and nothing pinned.
//! * Nothing is granted in a pool that is over its bound: that is the ledger's own rule (B1).
//! * What a *correction* put over is cured: idle engines go, the least demanded first, until what they give back
//!   suffices. What a smaller budget or others' use put over is only shown: neither evicts by itself.
//! * What stops owing: whatever brings the pool back under its bound, whoever did it.
//! * The last one in a pool stays. With it gone nobody would have more room who could not have it by evicting it, and
//!   its next request would load it again, just as large.
use crate::{Pool, entry::EntryId};
use motorpool_broker::{Candidate, Overflow, Standing};
use motorpool_vocab::{Claim, EventKind, Now, Spawn, StopReason};

/// What is over, and what of it corrections did.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    by_corrections: Overflow,
    /// What was over when that was looked at last.
    seen: Overflow,
}

impl Owed {
    /// A correction took the ledger from `before` to `after`.
    pub(crate) fn corrected(&mut self, before: &Overflow, after: &Overflow) {
        self.by_corrections = self.by_corrections.and(&after.since(before));
    }

    /// What is over is `now`: what is less than before is not owed any more.
    fn look(&mut self, now: Overflow) {
        let cured = self.seen.since(&now);
        self.by_corrections = self.by_corrections.since(&cured).at_most(&now);
        self.seen = now;
    }
}

impl Pool {
    /// Shows what is over, and cures what corrections put over.
    pub(crate) fn settle_overflow(&mut self, now: Now) {
        let was_over = !self.owed.seen.is_none();
        self.owed.look(self.ledger.overflow());
        let by = self.owed.seen.most();
        match (was_over, self.owed.seen.is_none()) {
            (false, false) => self.publish(now, EventKind::Overflow { by }),
            (true, true) => self.publish(now, EventKind::OverflowCured),
            (false, true) | (true, false) => {}
        }
        if !self.owed.by_corrections.is_none() {
            self.cure(now);
        }
    }

    fn cure(&mut self, now: Now) {
        let mut leaving: Vec<Spawn> = self.leaving().map(|(spawn, _)| spawn).collect();
        for (entry, candidate) in self.idle_by_demand(now) {
            let without = self.ledger.overflow_without(&leaving);
            let coming = self.owed.seen.since(&without);
            let owed = self.owed.by_corrections.since(&coming);
            if owed.is_none() {
                return;
            }
            if self.is_of_use(candidate.spawn, &owed, &leaving) && self.closes(entry) {
                leaving.push(candidate.spawn);
                self.tear_down(now, entry, StopReason::Overflow);
            }
        }
    }

    /// Idle engines, the least demanded first: fewest recent hits, oldest use, key (pool.md §3).
    pub(crate) fn idle_by_demand(&self, now: Now) -> Vec<(EntryId, Candidate)> {
        let idle = |entry: &EntryId| {
            let candidate = self.candidate_unless(now, *entry, || true)?;
            (candidate.standing == Standing::Idle).then_some((*entry, candidate))
        };
        let mut idle: Vec<_> = self.by_spawn.values().filter_map(idle).collect();
        idle.sort_by(|(_, a), (_, b)| (a.hits, a.last_use, &a.key).cmp(&(b.hits, b.last_use, &b.key)));
        idle
    }

    /// Whether `spawn` holds some of a pool in which something is owed and in which it is not the last one.
    fn is_of_use(&self, spawn: Spawn, owed: &Overflow, leaving: &[Spawn]) -> bool {
        let holds = |spawn: Spawn| self.ledger.line(spawn).is_some_and(|line| holds_some(line, owed));
        let is_other = |other: &Spawn| *other != spawn && !leaving.contains(other);
        holds(spawn) && self.ledger.spawns().filter(is_other).any(holds)
    }
}

fn holds_some(line: &Claim, owed: &Overflow) -> bool {
    let memory = !owed.total.is_zero() || !owed.ram.is_zero();
    let on_card = owed.devices.keys().any(|id| line.device.get(id).is_some_and(|bytes| !bytes.is_zero()));
    on_card || memory && !line.total().is_zero()
}
