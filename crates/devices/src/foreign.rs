//! What others use: pure functions over readings.
//!
//! Whatever is in use and not ours is foreign. What that is on a device follows from the ledger too and is decided in
//! `pool`; here is whose processes are whose.
use crate::Ram;
use motorpool_vocab::Bytes;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// Whose numbers the driver's process ids are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PidSpace {
    /// Ours: a process of ours was seen among them.
    Ours,
    /// Others', such as the host's when we are in a container: a process of ours holds memory and is not shown.
    Foreign,
    /// Nothing of ours was to be seen yet.
    #[default]
    Unknown,
}

impl PidSpace {
    /// What is known after one more reading of a device. `ours`: processes of our trees. `held`: what engines among
    /// them say that they hold on this device now, zero when none has said so.
    #[must_use]
    pub fn after(self, by_process: &BTreeMap<u32, Bytes>, ours: &BTreeSet<u32>, held: Bytes) -> Self {
        let is_shown = ours.iter().any(|pid| by_process.contains_key(pid));
        match self {
            Self::Ours => Self::Ours,
            _ if is_shown => Self::Ours,
            _ if !held.is_zero() => Self::Foreign,
            before => before,
        }
    }
}

/// What others use of the system's memory: `max(0, ram − available − Σ anonymous of our trees)`, where `ram` is what
/// may be used in all. Mapped files are nobody's: they count as available.
pub fn foreign_ram(ram: &Ram, anonymous_of_ours: impl IntoIterator<Item = Bytes>) -> Bytes {
    ram.usable().saturating_sub(ram.available).saturating_sub(Bytes::sum(anonymous_of_ours))
}

/// Processes on a device that are not ours, largest first, ties by id: whom to name when there is no room. Nobody
/// can be told apart unless the driver's ids are [`PidSpace::Ours`].
pub fn tenants(by_process: &BTreeMap<u32, Bytes>, ours: &BTreeSet<u32>) -> Vec<(u32, Bytes)> {
    let others = by_process.iter().filter(|(pid, _)| !ours.contains(pid));
    let mut others: Vec<(u32, Bytes)> = others.map(|(pid, bytes)| (*pid, *bytes)).collect();
    others.sort_by_key(|(pid, bytes)| (Reverse(*bytes), *pid));
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(processes: &[(u32, u64)]) -> BTreeMap<u32, Bytes> {
        processes.iter().map(|(pid, gib)| (*pid, Bytes::gib(*gib))).collect()
    }

    fn ram(total: u64, limit: Option<u64>, available: u64) -> Ram {
        Ram { total: Bytes::gib(total), limit: limit.map(Bytes::gib), available: Bytes::gib(available) }
    }

    #[test]
    fn ids_of_a_host_are_noticed_when_a_child_that_holds_memory_is_not_shown() {
        let ours = BTreeSet::from([7]);
        let (host, own) = (shown(&[(100_007, 5)]), shown(&[(7, 5), (50, 1)]));
        let unknown = PidSpace::Unknown;
        assert_eq!(unknown.after(&host, &ours, Bytes::ZERO), PidSpace::Unknown, "it may hold nothing yet");
        assert_eq!(unknown.after(&host, &ours, Bytes::gib(5)), PidSpace::Foreign);
        assert_eq!(unknown.after(&BTreeMap::new(), &ours, Bytes::gib(5)), PidSpace::Foreign, "shown to nobody");
        assert_eq!(unknown.after(&own, &ours, Bytes::ZERO), PidSpace::Ours);
        assert_eq!(PidSpace::Foreign.after(&own, &ours, Bytes::gib(5)), PidSpace::Ours, "it was only late");
        assert_eq!(PidSpace::Ours.after(&host, &ours, Bytes::gib(5)), PidSpace::Ours, "a namespace does not change");
        assert_eq!(PidSpace::Foreign.after(&host, &ours, Bytes::ZERO), PidSpace::Foreign);
    }

    #[test]
    fn foreign_memory_is_what_is_neither_available_nor_ours() {
        assert_eq!(foreign_ram(&ram(64, None, 40), [Bytes::gib(10), Bytes::gib(4)]), Bytes::gib(10));
        assert_eq!(foreign_ram(&ram(64, None, 60), [Bytes::gib(10)]), Bytes::ZERO, "ours is swapped, or shared");
        assert_eq!(foreign_ram(&ram(64, Some(8), 3), []), Bytes::gib(5), "of what we may use, 5 are taken");
    }

    #[test]
    fn tenants_are_named_largest_first() {
        let shown = shown(&[(7, 9), (50, 1), (51, 3), (49, 1)]);
        let expected = [(51, Bytes::gib(3)), (49, Bytes::gib(1)), (50, Bytes::gib(1))];
        assert_eq!(tenants(&shown, &BTreeSet::from([7])), expected);
    }

    proptest! {
        #[test]
        fn ours_and_tenants_are_together_what_is_shown(
            shown in prop::collection::btree_map(0u32..20, (0u64..1 << 30).prop_map(Bytes::new), 0..9),
            ours in prop::collection::btree_set(0u32..20, 0..9),
        ) {
            let own = Bytes::sum(ours.iter().filter_map(|pid| shown.get(pid)).copied());
            let others = Bytes::sum(tenants(&shown, &ours).into_iter().map(|(_, bytes)| bytes));
            prop_assert_eq!(own.saturating_add(others), Bytes::sum(shown.values().copied()));
        }
    }
}
