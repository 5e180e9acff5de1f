//! [`Bounds`]: what a [`Host`] lets us reserve, in all and per pool (capacity.md §2).
//!
//! Ratios are thousandths. On a discrete host the pools are added; elsewhere there is one pool, system memory.
use crate::{Budget, Host, HostShape, Spillover};
use motorpool_vocab::{Bytes, DeviceId};

/// From this much memory on, a machine is counted as big.
const BIG: Bytes = Bytes::gib(96);
/// Neither a share of plain memory nor what slots are sized by is ever larger than this.
const SHARE_MAX: Bytes = Bytes::gib(96);
/// A unified machine keeps no more than this for others once that is less than its share for them, and never less
/// than the other.
const UNIFIED_OTHERS_MOST: Bytes = Bytes::gib(16);
const UNIFIED_OTHERS_LEAST: Bytes = Bytes::gib(4);
/// The share of a card's memory that may be reserved; the rest is the driver's and the desktop's.
const CARD_SHARE: u64 = 950;

/// What may be reserved, as values; live settings make a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How the host shares its memory.
    pub shape: HostShape,
    /// The bound on the total.
    pub budget: Budget,
    /// What the budget would be without an explicit setting.
    pub automatic: Bytes,
    /// Memory of the system that we may use.
    pub ram: Bytes,
    /// What of it the operator keeps for others.
    pub ram_reserve: Bytes,
    /// The share of system memory; on a unified host the one pool.
    pub ram_share: Bytes,
    /// The share of each card, on a discrete host.
    pub cards: Vec<CardBounds>,
    /// The fast memory: the cards' shares, or the budget where there are none.
    pub fast: Bytes,
    /// What slots are sized by: never more than `fast`, and less on big unified hosts.
    pub sizing: Bytes,
    /// Whether layers may lie in system memory while others use the cards.
    pub spilling: Spilling,
}

/// What may be reserved on one card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardBounds {
    /// Which.
    pub id: DeviceId,
    /// What else it is called.
    pub names: Vec<DeviceId>,
    /// All its memory.
    pub total: Bytes,
    /// What the operator keeps for others.
    pub reserve: Bytes,
    /// `vramShare(d)`.
    pub share: Bytes,
}

/// [`Spillover`] once the shape is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spilling {
    /// Layers may lie in system memory beside others.
    Allowed,
    /// Only a model that is alone may use both pools.
    Refused,
}

impl Bounds {
    /// The id of the card that is called so; what no card is called, or several are, stays as it is.
    pub(crate) fn id_of(&self, name: &DeviceId) -> DeviceId {
        let same = |id: &DeviceId| id.0.eq_ignore_ascii_case(&name.0);
        let mut called = self.cards.iter().filter(|card| card.names.iter().any(same));
        match (called.next(), called.next()) {
            _ if self.cards.iter().any(|card| card.id == *name) => name.clone(),
            (Some(card), None) => card.id.clone(),
            _ => name.clone(),
        }
    }
}

impl Host {
    /// What this host lets us reserve.
    pub fn bounds(&self) -> Bounds {
        let cards: Vec<_> = self.cards_that_count().collect();
        let graphics = Bytes::sum(cards.iter().map(|card| card.share));
        let computed = self.ram_part().saturating_add(graphics);
        let budget = Budget::of(self.budget.in_force(computed));
        // Not enforced: shares still say where a placement is good, and slots are sized as if nobody had changed anything.
        let split = budget.bound().unwrap_or(computed);
        let discrete = self.shape == HostShape::DiscreteGpu;
        let fast = if discrete { graphics.min(split) } else { split };
        Bounds {
            shape: self.shape,
            budget,
            automatic: self.budget.automatic_of(computed),
            ram: self.ram,
            ram_reserve: self.ram_reserve,
            ram_share: split.saturating_sub(graphics).min(self.working_set_bound()),
            cards,
            fast,
            sizing: self.sizing(fast),
            spilling: self.spilling(),
        }
    }

    /// `ramShare` of the automatic budget.
    fn ram_part(&self) -> Bytes {
        match self.shape {
            HostShape::Unified => unified_share(self.ram).min(self.working_set_bound()),
            HostShape::DiscreteGpu | HostShape::SystemRam => plain_share(self.ram),
        }
    }

    fn working_set_bound(&self) -> Bytes {
        self.working_set.filter(|_| self.shape == HostShape::Unified).unwrap_or(Bytes::MAX)
    }

    fn cards_that_count(&self) -> impl Iterator<Item = CardBounds> + '_ {
        let discrete = self.shape == HostShape::DiscreteGpu;
        self.cards.iter().filter(move |_| discrete).map(|card| CardBounds {
            id: card.id.clone(),
            names: card.names.clone(),
            total: card.total,
            reserve: card.reserve,
            share: card.total.per_mille(CARD_SHARE),
        })
    }

    fn sizing(&self, fast: Bytes) -> Bytes {
        match self.shape {
            HostShape::DiscreteGpu => fast,
            HostShape::SystemRam => fast.min(plain_share(self.ram)),
            HostShape::Unified => {
                let most = unified_fraction(self.ram).min(self.ram.saturating_sub(UNIFIED_OTHERS_LEAST)).min(SHARE_MAX);
                fast.min(most)
            }
        }
    }

    fn spilling(&self) -> Spilling {
        match (self.spillover, self.shape) {
            (Spillover::Off, _) | (Spillover::Auto, HostShape::DiscreteGpu) => Spilling::Refused,
            (Spillover::On | Spillover::Auto, _) => Spilling::Allowed,
        }
    }
}

impl Bounds {
    /// The bound on accelerated bytes of two or more residents; `None` when the budget is not enforced.
    pub fn ceiling(&self) -> Option<Bytes> {
        let budget = self.budget.bound()?;
        Some(match self.spilling {
            Spilling::Allowed => budget,
            Spilling::Refused => budget.min(self.fast),
        })
    }

    /// The shares of all cards.
    pub fn graphics(&self) -> Bytes {
        Bytes::sum(self.cards.iter().map(|card| card.share))
    }
}

/// `plainShare`: 60 % of `ram`, 80 % from 96 GiB on, never more than 96 GiB.
fn plain_share(ram: Bytes) -> Bytes {
    ram.per_mille(if ram >= BIG { 800 } else { 600 }).min(SHARE_MAX)
}

/// `fracShare`: 70 % of `ram`, 80 % from 96 GiB on.
fn unified_fraction(ram: Bytes) -> Bytes {
    ram.per_mille(if ram >= BIG { 800 } else { 700 })
}

/// `unifiedShare`: all but 16 GiB where that is more than the fraction, and always all but 4 GiB at most.
fn unified_share(ram: Bytes) -> Bytes {
    let share = unified_fraction(ram).max(ram.saturating_sub(UNIFIED_OTHERS_MOST));
    share.min(ram.saturating_sub(UNIFIED_OTHERS_LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BudgetSetting, Card};

    fn unified(gib: u64) -> Host {
        Host { shape: HostShape::Unified, ram: Bytes::gib(gib), ..Host::default() }
    }

    fn plain(gib: u64) -> Host {
        Host { shape: HostShape::SystemRam, ram: Bytes::gib(gib), ..Host::default() }
    }

    fn discrete(ram: u64, cards: &[u64]) -> Host {
        let card = |(n, gib): (usize, &u64)| Card::new(&format!("GPU-{n}"), Bytes::gib(*gib));
        let cards = cards.iter().enumerate().map(card).collect();
        Host { shape: HostShape::DiscreteGpu, ram: Bytes::gib(ram), cards, ..Host::default() }
    }

    fn with_budget(host: Host, bytes: Bytes) -> Bounds {
        Host { budget: BudgetSetting::explicit(bytes), ..host }.bounds()
    }

    #[test]
    fn a_unified_host_has_the_reference_values() {
        for (ram, budget) in [(8, 4), (64, 48), (96, 80), (128, 112), (512, 496)] {
            let bounds = unified(ram).bounds();
            assert_eq!(bounds.budget, Budget::Enforced(Bytes::gib(budget)), "{ram} GiB");
            assert_eq!((bounds.ram_share, bounds.fast), (Bytes::gib(budget), Bytes::gib(budget)), "one pool");
        }
        assert_eq!(unified(16).bounds().budget, Budget::Enforced(Bytes::gib(16).per_mille(700)));
        assert_eq!(unified(2).bounds().budget, Budget::NotEnforced, "nothing is left of 2 GiB");
    }

    #[test]
    fn a_larger_budget_of_a_big_unified_host_buys_no_slots() {
        assert_eq!(unified(128).bounds().sizing, Bytes::gib(96));
        assert_eq!(unified(512).bounds().sizing, Bytes::gib(96));
        assert_eq!(with_budget(unified(512), Bytes::gib(4000)).sizing, Bytes::gib(96));
        assert_eq!(unified(64).bounds().sizing, Bytes::gib(64).per_mille(700));
        assert_eq!(with_budget(unified(64), Bytes::gib(8)).sizing, Bytes::gib(8), "a smaller one costs some");
    }

    #[test]
    fn a_plain_host_has_the_reference_values() {
        let share = |gib| plain(gib).bounds().ram_share;
        assert_eq!(share(16), Bytes::gib(16).per_mille(600));
        assert_eq!(share(64), Bytes::gib(64).per_mille(600));
        assert_eq!(share(96), Bytes::gib(96).per_mille(800));
        for gib in [128, 192, 512] {
            assert_eq!(share(gib), Bytes::gib(96), "{gib}");
            assert_eq!(plain(gib).bounds().sizing, Bytes::gib(96), "{gib}");
        }
    }

    #[test]
    fn the_two_pools_of_a_discrete_host_are_added() {
        let bounds = discrete(64, &[24]).bounds();
        let (vram, ram) = (Bytes::gib(24).per_mille(950), Bytes::gib(64).per_mille(600));
        assert_eq!((bounds.fast, bounds.sizing, bounds.ram_share), (vram, vram, ram), "22.8 + 38.4");
        assert_eq!(bounds.budget, Budget::Enforced(vram.saturating_add(ram)));
        let small = discrete(16, &[16]).bounds();
        assert_eq!((small.fast, small.ram_share), (Bytes::gib(16).per_mille(950), Bytes::gib(16).per_mille(600)));
        for ram in [128, 512] {
            assert_eq!(discrete(ram, &[24, 8]).bounds().ram_share, Bytes::gib(96));
        }
        assert_eq!(discrete(128, &[139]).bounds().fast, Bytes::gib(139).per_mille(950));
    }

    #[test]
    fn a_budget_is_split_between_cards_and_memory() {
        let card = Bytes::gib(24).per_mille(950);
        let small = with_budget(discrete(64, &[24]), Bytes::gib(20));
        assert_eq!((small.fast, small.ram_share), (Bytes::gib(20), Bytes::ZERO), "the cards' sum is bounded by it");
        assert_eq!(small.cards[0].share, card, "the card keeps its share");
        let large = with_budget(discrete(64, &[24]), Bytes::gib(50));
        assert_eq!((large.fast, large.ram_share), (card, Bytes::gib(50).saturating_sub(card)));
        let pool = with_budget(unified(64), Bytes::gib(50));
        assert_eq!((pool.ram_share, pool.fast), (Bytes::gib(50), Bytes::gib(50)));
        assert_eq!(pool.automatic, Bytes::gib(48), "still shown");
        assert_eq!(with_budget(plain(64), Bytes::gib(50)).ram_share, Bytes::gib(50));
    }

    #[test]
    fn a_budget_of_nothing_is_not_enforced_and_sizes_slots_as_the_automatic_one() {
        let bounds = with_budget(discrete(64, &[24]), Bytes::ZERO);
        assert_eq!((bounds.budget, bounds.ceiling()), (Budget::NotEnforced, None));
        assert_eq!(bounds.sizing, discrete(64, &[24]).bounds().sizing);
    }

    #[test]
    fn the_platforms_working_set_bounds_a_unified_host_only() {
        let working_set = Some(Bytes::gib(40));
        assert_eq!(Host { working_set, ..unified(64) }.bounds().budget, Budget::Enforced(Bytes::gib(40)));
        assert_eq!(Host { working_set, ..plain(128) }.bounds().ram_share, Bytes::gib(96));
        let told = with_budget(Host { working_set, ..unified(64) }, Bytes::gib(60));
        assert_eq!(told.ram_share, Bytes::gib(40), "whatever the operator says");
    }

    #[test]
    fn the_ceiling_is_the_fast_memory_where_spilling_is_refused() {
        let host = discrete(64, &[24]);
        let bounds = host.bounds();
        assert_eq!((bounds.spilling, bounds.ceiling()), (Spilling::Refused, Some(bounds.fast)));
        let spilling = Host { spillover: Spillover::On, ..host }.bounds();
        assert_eq!(spilling.ceiling(), spilling.budget.bound());
        assert_eq!(unified(64).bounds().ceiling(), Some(Bytes::gib(48)));
        let off = Host { spillover: Spillover::Off, ..unified(64) }.bounds();
        assert_eq!(off.ceiling(), Some(Bytes::gib(48)), "everything is fast there");
    }

    #[test]
    fn cards_beside_a_unified_host_are_ignored_and_huge_sizes_do_not_wrap() {
        let host = Host { shape: HostShape::Unified, ..discrete(64, &[24]) };
        assert!(host.bounds().cards.is_empty());
        let absurd = Host { ram: Bytes::MAX, ..discrete(0, &[u64::MAX, u64::MAX]) };
        assert_eq!(absurd.bounds().budget, Budget::Enforced(Bytes::MAX));
    }
}
