//! [`Budget`]: the bound on everything we reserve, and its automatic value.
use motorpool_vocab::{Bytes, GIB};

/// From this much memory on, a machine is counted as big.
const BIG: Bytes = Bytes::gib(96);
/// An automatic share of plain memory is never larger than this.
const SHARE_MAX: Bytes = Bytes::gib(96);

/// The bound on the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Grants never pass this many bytes.
    Enforced(Bytes),
    /// Everything is granted, tracked and shown.
    NotEnforced,
}

impl Budget {
    /// The budget of `bytes`; under 1 GiB (0 included) it is not enforced (capacity.md §2).
    pub const fn of(bytes: Bytes) -> Self {
        if bytes.get() < GIB { Self::NotEnforced } else { Self::Enforced(bytes) }
    }

    /// The bound, when there is one.
    pub const fn bound(self) -> Option<Bytes> {
        match self {
            Self::Enforced(bytes) => Some(bytes),
            Self::NotEnforced => None,
        }
    }
}

/// The budget of a machine whose engines use system memory only (`plainShare`, capacity.md §2): 60 % of `ram`,
/// 80 % from 96 GiB on, never more than 96 GiB. `ram` is what we may use: the smaller of machine and cgroup limit.
pub fn automatic_budget(ram: Bytes) -> Bytes {
    ram.per_mille(if ram >= BIG { 800 } else { 600 }).min(SHARE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_share_has_the_reference_values() {
        let share = |gib| automatic_budget(Bytes::gib(gib));
        assert_eq!(share(16), Bytes::gib(16).per_mille(600));
        assert_eq!(share(64), Bytes::gib(64).per_mille(600));
        assert_eq!(share(96), Bytes::gib(96).per_mille(800));
        for gib in [128, 192, 512] {
            assert_eq!(share(gib), Bytes::gib(96), "{gib}");
        }
    }

    #[test]
    fn a_budget_under_one_gib_is_not_enforced() {
        assert_eq!(Budget::of(Bytes::ZERO), Budget::NotEnforced);
        assert_eq!(Budget::of(Bytes::new(GIB - 1)), Budget::NotEnforced);
        assert_eq!(Budget::of(Bytes::gib(1)), Budget::Enforced(Bytes::gib(1)));
    }
}
