//! [`Limits`]: the constraints of capacity.md §4 as they stand now, and the one place that applies them.
//!
//! `total = others + b − budget`; the co-residency ceiling binds only beside another accelerated resident; a card or
//! system memory is looked at only by claims that ask for some of it.
use crate::{
    Bounds, Excess, HostShape, Shortfall,
    charges::{Charges, Weighed, quantity},
};
use motorpool_vocab::{Bytes, Claim, DeviceId};
use std::fmt;

/// A bound that a claim can meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The budget.
    Total,
    /// What accelerated residents may take together.
    CoResidency,
    /// The share of one card.
    Device(DeviceId),
    /// The share of system memory.
    SystemMemory,
}

/// Bounds in numbers; devices by their number.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) total: u128,
    pub(crate) ceiling: u128,
    pub(crate) devices: Vec<u128>,
    pub(crate) ram: u128,
    pub(crate) pools: Pools,
}

/// Whether device bytes are bytes of system memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pools {
    One,
    Apart,
}

/// One constraint met by one claim: what would be taken against what may be.
struct Test {
    meets: Meets,
    would: u128,
    bound: u128,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Meets {
    Total,
    CoResidency,
    /// The n-th device of the claim.
    Device(usize),
    SystemMemory,
}

impl Pools {
    pub(crate) fn of(bounds: &Bounds) -> Self {
        if bounds.shape == HostShape::Unified { Self::One } else { Self::Apart }
    }
}

impl Limits {
    /// Whether `weighed` fits beside `others` in every constraint.
    pub(crate) fn fits(&self, others: &Charges, weighed: &Weighed) -> bool {
        self.tests(others, weighed).all(|test| test.would <= test.bound)
    }

    /// By how much it does not; `claim` is what was weighed.
    pub(crate) fn shortfall(&self, others: &Charges, (claim, weighed): (&Claim, &Weighed)) -> Shortfall {
        let mut shortfall = Shortfall::default();
        for test in self.tests(others, weighed).filter(|test| test.would > test.bound) {
            let by = quantity(test.would - test.bound);
            match test.meets {
                Meets::Total => shortfall.total = by,
                // A model larger than the ceiling needs the others gone, never more.
                Meets::CoResidency => shortfall.co_residency = by.min(quantity(others.accelerated)),
                Meets::Device(n) => shortfall.devices.extend(claim.device.keys().nth(n).map(|id| (id.clone(), by))),
                Meets::SystemMemory => shortfall.ram = by,
            }
        }
        shortfall
    }

    /// The first constraint that it does not meet, with its arithmetic.
    pub(crate) fn excess(&self, others: &Charges, (claim, weighed): (&Claim, &Weighed)) -> Option<Excess> {
        let test = self.tests(others, weighed).find(|test| test.would > test.bound)?;
        let which = match test.meets {
            Meets::Total => Which::Total,
            Meets::CoResidency => Which::CoResidency,
            Meets::Device(n) => Which::Device(claim.device.keys().nth(n)?.clone()),
            Meets::SystemMemory => Which::SystemMemory,
        };
        Some(Excess { would_commit: quantity(test.would), bound: quantity(test.bound), which })
    }

    fn tests<'a>(&'a self, others: &'a Charges, weighed: &'a Weighed) -> impl Iterator<Item = Test> + 'a {
        let asks = !weighed.is_nothing();
        let total = asks.then(|| Test { meets: Meets::Total, would: others.total_with(weighed), bound: self.total });
        let beside = others.accelerated > 0 && weighed.accelerated > 0;
        let co_residency = beside.then(|| Test {
            meets: Meets::CoResidency,
            would: others.accelerated + u128::from(weighed.accelerated),
            bound: self.ceiling,
        });
        let apart = self.pools == Pools::Apart;
        let asked = weighed.devices.iter().enumerate().filter(move |(_, (_, bytes))| apart && *bytes > 0);
        let devices = asked.map(|(nth, (n, bytes))| Test {
            meets: Meets::Device(nth),
            would: others.device(*n) + u128::from(*bytes),
            bound: self.devices.get(*n).copied().unwrap_or(0),
        });
        let ram = match self.pools {
            Pools::One => asks.then(|| others.total_with(weighed)),
            Pools::Apart => weighed.uses_ram().then(|| others.ram_with(weighed)),
        };
        let ram = ram.map(|would| Test { meets: Meets::SystemMemory, would, bound: self.ram });
        total.into_iter().chain(co_residency).chain(devices).chain(ram)
    }
}

/// The suffix of the contract's line (capacity.md §7).
impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Total => Ok(()),
            Self::CoResidency => f.write_str(" (co-residency ceiling — RAM spillover off)"),
            Self::Device(id) => write!(f, " (device {id})"),
            Self::SystemMemory => f.write_str(" (system memory)"),
        }
    }
}

/// How much of a pool may be taken now: its share, or what the machine leaves of it.
pub(crate) fn share_now(share: Bytes, total: Bytes, others: &[Bytes]) -> Bytes {
    share.min(total.saturating_sub(Bytes::sum(others.iter().copied())))
}
