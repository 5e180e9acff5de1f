//! [`Overflow`]: by how much the pools are over their bounds, and how one overflow differs from another.
use motorpool_vocab::{Bytes, DeviceId};
use std::collections::BTreeMap;

/// By how much the ledger is over its bounds. All zero: it is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Overflow {
    /// Past the total budget.
    pub total: Bytes,
    /// Past the shares of cards; only those that are passed.
    pub devices: BTreeMap<DeviceId, Bytes>,
    /// Past the share of system memory.
    pub ram: Bytes,
}

impl Overflow {
    /// Whether nothing is over.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The largest of its entries.
    pub fn most(&self) -> Bytes {
        self.devices.values().copied().fold(self.total.max(self.ram), Bytes::max)
    }

    /// What is more in it than in `before`, entry by entry.
    pub fn since(&self, before: &Self) -> Self {
        self.zip(before, Bytes::saturating_sub)
    }

    /// Both together.
    pub fn and(&self, more: &Self) -> Self {
        self.zip(more, Bytes::saturating_add)
    }

    /// The smaller of both, entry by entry.
    pub fn at_most(&self, other: &Self) -> Self {
        self.zip(other, Bytes::min)
    }

    fn zip(&self, other: &Self, both: impl Fn(Bytes, Bytes) -> Bytes) -> Self {
        let of = |devices: &BTreeMap<DeviceId, Bytes>, id: &DeviceId| devices.get(id).copied().unwrap_or_default();
        let ids = self.devices.keys().chain(other.devices.keys());
        let devices = ids.map(|id| (id.clone(), both(of(&self.devices, id), of(&other.devices, id))));
        Self {
            total: both(self.total, other.total),
            devices: devices.filter(|(_, by)| !by.is_zero()).collect(),
            ram: both(self.ram, other.ram),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(total: u64, ram: u64, cards: &[(&str, u64)]) -> Overflow {
        let devices = cards.iter().map(|(id, mib)| (DeviceId((*id).into()), Bytes::mib(*mib))).collect();
        Overflow { total: Bytes::mib(total), devices, ram: Bytes::mib(ram) }
    }

    #[test]
    fn overflows_are_compared_entry_by_entry_and_what_is_nothing_is_not_named() {
        let (more, less) = (over(9, 1, &[("A", 5), ("B", 2)]), over(4, 3, &[("A", 5), ("C", 1)]));
        assert_eq!(more.since(&less), over(5, 0, &[("B", 2)]));
        assert_eq!(more.and(&less), over(13, 4, &[("A", 10), ("B", 2), ("C", 1)]));
        assert_eq!(more.at_most(&less), over(4, 1, &[("A", 5)]));
        assert_eq!((more.most(), over(0, 1, &[("B", 2)]).most()), (Bytes::mib(9), Bytes::mib(2)));
        assert!(more.since(&more).is_none() && !more.is_none());
    }
}
