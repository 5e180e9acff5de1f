//! [`Ledger`]: one line per child, shared files charged once, one bound.
//!
//! A line belongs to a `Spawn`, not to a key: a child that is stopping or stuck keeps its own until its bytes are
//! back, whatever happens under its key meanwhile.
use crate::Budget;
use motorpool_vocab::{Bytes, Claim, FileId, Spawn};
use std::collections::BTreeMap;

/// What every living child holds.
#[derive(Clone, Debug)]
pub struct Ledger {
    budget: Budget,
    lines: BTreeMap<Spawn, Claim>,
    charged: Charged,
}

/// Whether a reservation was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The line is there.
    Admit,
    /// Nothing changed.
    Refuse(Excess),
}

/// The arithmetic of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// What would have been committed: others + the claim.
    pub would_commit: Bytes,
    /// The bound it meets.
    pub bound: Bytes,
}

/// By how much a claim does not fit, in every constraint. All zero: it fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// Past the total budget.
    pub total: Bytes,
}

/// By how much a correction put the ledger over its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Overflow {
    /// Past the total budget.
    pub total: Bytes,
}

/// A sum of claims in which files count once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Charged {
    private: Bytes,
    files: BTreeMap<FileId, (Bytes, u32)>,
    file_bytes: Bytes,
}

impl Charged {
    pub(crate) fn add(&mut self, claim: &Claim) {
        self.private = self.private.saturating_add(claim.private_total());
        for (id, bytes) in &claim.ram_files {
            let entry = self.files.entry(*id).or_insert((*bytes, 0));
            entry.1 += 1;
            if entry.1 == 1 {
                self.file_bytes = self.file_bytes.saturating_add(*bytes);
            }
        }
    }

    pub(crate) fn remove(&mut self, claim: &Claim) {
        self.private = self.private.saturating_sub(claim.private_total());
        for (id, _) in &claim.ram_files {
            let Some(entry) = self.files.get_mut(id) else { continue };
            entry.1 -= 1;
            if entry.1 == 0 {
                self.file_bytes = self.file_bytes.saturating_sub(entry.0);
                self.files.remove(id);
            }
        }
    }

    pub(crate) fn total(&self) -> Bytes {
        self.private.saturating_add(self.file_bytes)
    }
}

impl Ledger {
    /// An empty ledger under `budget`.
    pub fn new(budget: Budget) -> Self {
        Self { budget, lines: BTreeMap::new(), charged: Charged::default() }
    }

    /// The bound in force.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Everything reserved: private bytes of all lines and each file once.
    pub fn committed(&self) -> Bytes {
        self.charged.total()
    }

    /// The line of `spawn`.
    pub fn line(&self, spawn: Spawn) -> Option<&Claim> {
        self.lines.get(&spawn)
    }

    /// Who has a line, in order.
    pub fn spawns(&self) -> impl Iterator<Item = Spawn> + '_ {
        self.lines.keys().copied()
    }

    /// Reserves `claim` for `spawn`, replacing its own line; or refuses, and nothing changed.
    pub fn reserve(&mut self, spawn: Spawn, claim: Claim) -> Verdict {
        let excess = self.excess_without(&[spawn], &claim);
        if let Some(excess) = excess {
            return Verdict::Refuse(excess);
        }
        self.replace(spawn, claim);
        Verdict::Admit
    }

    /// What was measured replaces what was reserved. Never refuses; says by how much the bound is passed now.
    pub fn correct(&mut self, spawn: Spawn, measured: Claim) -> Overflow {
        if self.lines.contains_key(&spawn) {
            self.replace(spawn, measured);
        }
        Overflow { total: self.over(self.committed()) }
    }

    /// The bytes of `spawn` are back. Unknown: nothing happens.
    pub fn release(&mut self, spawn: Spawn) {
        if let Some(claim) = self.lines.remove(&spawn) {
            self.charged.remove(&claim);
        }
    }

    /// By how much `claim` would not fit if the spawns `without` were gone.
    pub fn shortfall(&self, without: &[Spawn], claim: &Claim) -> Shortfall {
        let excess = self.excess_without(without, claim);
        Shortfall { total: excess.map_or(Bytes::ZERO, |e| e.would_commit.saturating_sub(e.bound)) }
    }

    /// The arithmetic of [`Ledger::shortfall`], when there is one.
    pub fn excess_without(&self, without: &[Spawn], claim: &Claim) -> Option<Excess> {
        let mut charged = self.charged.clone();
        for line in without.iter().filter_map(|spawn| self.lines.get(spawn)) {
            charged.remove(line);
        }
        self.excess_of(charged, claim)
    }

    pub(crate) fn charged(&self) -> &Charged {
        &self.charged
    }

    pub(crate) fn excess_of(&self, mut charged: Charged, claim: &Claim) -> Option<Excess> {
        charged.add(claim);
        let would_commit = charged.total();
        self.budget.bound().filter(|bound| would_commit > *bound).map(|bound| Excess { would_commit, bound })
    }

    /// The same lines under another bound, which may already be passed.
    #[cfg(test)]
    pub(crate) fn under(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    fn replace(&mut self, spawn: Spawn, claim: Claim) {
        self.release(spawn);
        self.charged.add(&claim);
        self.lines.insert(spawn, claim);
    }

    fn over(&self, bytes: Bytes) -> Bytes {
        self.budget.bound().map_or(Bytes::ZERO, |bound| bytes.saturating_sub(bound))
    }
}

impl Shortfall {
    /// Whether everything fits.
    pub fn fits(self) -> bool {
        self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_vocab::DeviceId;
    use proptest::prelude::*;

    fn file(inode: u64, mib: u64) -> (FileId, Bytes) {
        (FileId { device: 1, inode, size: mib, mtime_nanos: 0 }, Bytes::mib(mib))
    }

    fn mapping(private: u64, files: &[(FileId, Bytes)]) -> Claim {
        Claim { ram_private: Bytes::mib(private), ram_files: files.iter().copied().collect(), ..Claim::default() }
    }

    #[test]
    fn two_replicas_share_their_file_and_the_last_one_takes_it_along() {
        let mut ledger = Ledger::new(Budget::of(Bytes::gib(2)));
        assert_eq!(ledger.reserve(Spawn(1), mapping(100, &[file(1, 500)])), Verdict::Admit);
        assert_eq!(ledger.reserve(Spawn(2), mapping(100, &[file(1, 500)])), Verdict::Admit);
        assert_eq!(ledger.committed(), Bytes::mib(700));
        ledger.release(Spawn(1));
        assert_eq!(ledger.committed(), Bytes::mib(600));
        ledger.release(Spawn(2));
        assert_eq!(ledger.committed(), Bytes::ZERO);
    }

    #[test]
    fn a_refusal_says_what_it_would_have_committed_and_changes_nothing() {
        let mut ledger = Ledger::new(Budget::of(Bytes::gib(1)));
        assert_eq!(ledger.reserve(Spawn(1), Claim::private(Bytes::mib(800))), Verdict::Admit);
        let refused = ledger.reserve(Spawn(2), Claim::private(Bytes::mib(300)));
        assert_eq!(refused, Verdict::Refuse(Excess { would_commit: Bytes::mib(1100), bound: Bytes::gib(1) }));
        assert_eq!(ledger.line(Spawn(2)), None);
        assert_eq!(ledger.shortfall(&[], &Claim::private(Bytes::mib(300))).total, Bytes::mib(76));
        assert!(ledger.shortfall(&[Spawn(1)], &Claim::private(Bytes::mib(300))).fits());
    }

    #[test]
    fn a_correction_may_overflow_and_then_grants_stop() {
        let mut ledger = Ledger::new(Budget::of(Bytes::gib(1)));
        assert_eq!(ledger.reserve(Spawn(1), Claim::private(Bytes::mib(100))), Verdict::Admit);
        assert_eq!(ledger.correct(Spawn(1), Claim::private(Bytes::mib(1030))).total, Bytes::mib(6));
        assert!(matches!(ledger.reserve(Spawn(2), Claim::private(Bytes::new(1))), Verdict::Refuse(_)));
        assert_eq!(ledger.correct(Spawn(9), Claim::private(Bytes::gib(9))).total, Bytes::mib(6), "no line, no change");
    }

    #[test]
    fn without_an_enforced_budget_everything_is_granted_and_tracked() {
        let mut ledger = Ledger::new(Budget::of(Bytes::ZERO));
        assert_eq!(ledger.reserve(Spawn(1), Claim::private(Bytes::gib(900))), Verdict::Admit);
        assert_eq!(ledger.committed(), Bytes::gib(900));
    }

    #[derive(Clone, Debug)]
    enum Op {
        Reserve(u64, Claim),
        Correct(u64, Claim),
        Release(u64),
    }

    fn any_claim() -> impl Strategy<Value = Claim> {
        (0u64..900, prop::collection::btree_set(0u64..4, 0..3), prop::option::of(0u64..300)).prop_map(|(p, f, d)| {
            let files: Vec<_> = f.into_iter().map(|n| file(n, 100 * (n + 1))).collect();
            let mut claim = mapping(p, &files);
            claim.device = d.map(|mib| (DeviceId("GPU-1".into()), Bytes::mib(mib))).into_iter().collect();
            claim
        })
    }

    fn any_op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0u64..8, any_claim()).prop_map(|(s, c)| Op::Reserve(s, c)),
            1 => (0u64..8, any_claim()).prop_map(|(s, c)| Op::Correct(s, c)),
            2 => (0u64..8).prop_map(Op::Release),
        ]
    }

    proptest! {
        /// B1, B2, B3 against a model that adds everything up anew.
        #[test]
        fn grants_keep_the_bound_and_are_whole(ops in prop::collection::vec(any_op(), 1..60)) {
            let bound = Bytes::gib(2);
            let mut ledger = Ledger::new(Budget::of(bound));
            let mut model: BTreeMap<Spawn, Claim> = BTreeMap::new();
            for op in ops {
                match op {
                    Op::Reserve(s, claim) => {
                        let before = ledger.clone();
                        match ledger.reserve(Spawn(s), claim.clone()) {
                            Verdict::Admit => {
                                model.insert(Spawn(s), claim);
                                prop_assert!(ledger.committed() <= bound, "B1");
                            }
                            Verdict::Refuse(excess) => {
                                prop_assert!(excess.would_commit > excess.bound);
                                prop_assert_eq!(&ledger.lines, &before.lines, "B3");
                            }
                        }
                    }
                    Op::Correct(s, claim) => {
                        let over = ledger.correct(Spawn(s), claim.clone());
                        model.entry(Spawn(s)).and_modify(|line| *line = claim);
                        prop_assert_eq!(over.total, ledger.committed().saturating_sub(bound));
                    }
                    Op::Release(s) => {
                        ledger.release(Spawn(s));
                        model.remove(&Spawn(s));
                    }
                }
                let files: BTreeMap<_, _> = model.values().flat_map(|c| c.ram_files.iter().copied()).collect();
                let anew = Bytes::sum(model.values().map(Claim::private_total).chain(files.into_values()));
                prop_assert_eq!(ledger.committed(), anew);
                prop_assert_eq!(&ledger.lines, &model, "B2");
            }
        }
    }
}
