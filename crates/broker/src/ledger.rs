//! [`Ledger`]: one line per child, shared files charged once, every bound of the host.
//!
//! A line belongs to a `Spawn`, not to a key: a child that is stopping or stuck keeps its own until its bytes are
//! back, whatever happens under its key meanwhile. Bounds and readings may change at any time; that evicts nothing by
//! itself, and a pool that is over its bound gets no new grant.
use crate::{
    Bounds, Budget, CardBounds, Overflow, Which,
    charges::{Charges, Numbers, Weighed, quantity},
    limits::{Limits, Pools, share_now},
    lines::{Line, Lines},
    scratch::Scratch,
};
use motorpool_vocab::{Bytes, Claim, DeviceId, Spawn};
use std::collections::BTreeMap;

/// What is left to the system of its memory, beside what the operator keeps for others.
const SYSTEM_MARGIN: Bytes = Bytes::gib(2);

/// What every living child holds.
#[derive(Clone, Debug)]
pub struct Ledger {
    bounds: Bounds,
    cards: BTreeMap<DeviceId, Sight>,
    system: Sight,
    lines: Lines,
    numbers: Numbers,
    charges: Charges,
    /// `None`: not enforced.
    limits: Option<Limits>,
}

/// Whether a reservation was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The line is there.
    Admit,
    /// Nothing changed.
    Refuse(Excess),
}

/// The arithmetic of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// What would have been committed: others + the claim.
    pub would_commit: Bytes,
    /// The bound it meets; always less.
    pub bound: Bytes,
    /// Whose bound that is.
    pub which: Which,
}

/// By how much a claim does not fit, in every constraint. All zero: it fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// Past the total budget.
    pub total: Bytes,
    /// What of other accelerated residents must go for the ceiling; never more than they have.
    pub co_residency: Bytes,
    /// Past the shares of cards; only those that are passed.
    pub devices: BTreeMap<DeviceId, Bytes>,
    /// Past the share of system memory.
    pub ram: Bytes,
}

/// What the machine says about one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Which pool.
    pub place: Place,
    /// What is seen there.
    pub sight: Sight,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A card.
    Card(DeviceId),
    /// System memory.
    SystemMemory,
}

/// How well a pool is known. How long it takes from one to the next is for who reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sight {
    /// Read just now.
    Known {
        /// What others than our children use there.
        foreign: Bytes,
    },
    /// Not readable, but its size is known, or its last reading is not old: the ledger alone decides.
    #[default]
    Trusted,
    /// No new claim there.
    Unknown,
}

/// One pool as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFigures {
    /// Which.
    pub place: Place,
    /// All its memory.
    pub total: Bytes,
    /// The share of it that may be reserved at best.
    pub share: Bytes,
    /// The share now.
    pub share_now: Bytes,
    /// What is reserved.
    pub committed: Bytes,
    /// How well it is known.
    pub sight: Sight,
}

impl Ledger {
    /// An empty ledger under `bounds`, about whose pools nothing was read yet.
    pub fn new(bounds: Bounds) -> Self {
        let mut ledger = Self {
            bounds,
            cards: BTreeMap::new(),
            system: Sight::Trusted,
            lines: Lines::default(),
            numbers: Numbers::default(),
            charges: Charges::default(),
            limits: None,
        };
        ledger.refresh_limits();
        ledger
    }

    /// Other bounds from now on. Nothing is evicted; says what is over.
    pub fn set_bounds(&mut self, bounds: Bounds) -> Overflow {
        self.bounds = bounds;
        self.refresh_limits();
        self.overflow()
    }

    /// Takes a reading; it enters every constraint from now on. Says what is over.
    pub fn observe(&mut self, reading: Reading) -> Overflow {
        match reading.place {
            Place::Card(id) => {
                self.cards.insert(id, reading.sight);
            }
            Place::SystemMemory => self.system = reading.sight,
        }
        self.refresh_limits();
        self.overflow()
    }

    /// Reserves `claim` for `spawn`, replacing its own line; or refuses, and nothing changed.
    pub fn reserve(&mut self, spawn: Spawn, claim: Claim) -> Verdict {
        let weighed = self.weigh(&claim);
        let own = self.lines.find(spawn).map(|line| self.lines.weighed(line).clone());
        if let Some(own) = &own {
            self.charges.remove(own);
        }
        let excess = self.limits.as_ref().and_then(|limits| limits.excess(&self.charges, (&claim, &weighed)));
        if let Some(own) = &own {
            self.charges.add(own);
        }
        if let Some(excess) = excess {
            self.forget_unmapped(&claim);
            return Verdict::Refuse(excess);
        }
        self.replace(spawn, Line { claim, weighed });
        Verdict::Admit
    }

    /// What was measured replaces what was reserved. Never refuses; says what is over.
    pub fn correct(&mut self, spawn: Spawn, measured: Claim) -> Overflow {
        if self.lines.find(spawn).is_some() {
            let weighed = self.weigh(&measured);
            self.replace(spawn, Line { claim: measured, weighed });
        }
        self.overflow()
    }

    /// The bytes of `spawn` are back. Unknown: nothing happens.
    pub fn release(&mut self, spawn: Spawn) {
        if let Some(line) = self.lines.remove(spawn) {
            self.charges.remove(&line.weighed);
            self.forget_unmapped(&line.claim);
        }
    }

    /// By how much `claim` would not fit if the spawns `without` were gone.
    pub fn shortfall(&self, without: &[Spawn], claim: &Claim) -> Shortfall {
        Scratch::without(self, without).shortfall(claim)
    }

    /// The first constraint that [`Ledger::shortfall`] names, with its arithmetic.
    pub fn excess_without(&self, without: &[Spawn], claim: &Claim) -> Option<Excess> {
        Scratch::without(self, without).excess(claim)
    }

    /// The bounds in force.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// The bound on the total in force.
    pub fn budget(&self) -> Budget {
        self.bounds.budget
    }

    /// Everything reserved: private bytes of all lines and each file once.
    pub fn committed(&self) -> Bytes {
        quantity(self.charges.total())
    }

    /// The accelerated bytes of all lines.
    pub fn accelerated(&self) -> Bytes {
        quantity(self.charges.accelerated)
    }

    /// The line of `spawn`.
    pub fn line(&self, spawn: Spawn) -> Option<&Claim> {
        self.lines.find(spawn).map(|line| self.lines.claim(line))
    }

    /// Who has a line, in order.
    pub fn spawns(&self) -> impl Iterator<Item = Spawn> + '_ {
        self.lines.spawns().into_iter()
    }

    /// `shareNow(d)`: what may be reserved on a card now; nothing on one that nobody knows.
    pub fn share_now(&self, id: &DeviceId) -> Bytes {
        self.card_share(id, self.sight_of(id))
    }

    /// `ramShareNow`: what may be reserved of system memory now, 2 GiB left to the system.
    pub fn ram_share_now(&self) -> Bytes {
        self.ram_share(self.system)
    }

    fn card_share(&self, id: &DeviceId, sight: Sight) -> Bytes {
        let Some(card) = self.bounds.cards.iter().find(|card| card.id == *id) else { return Bytes::ZERO };
        match sight {
            Sight::Known { foreign } => share_now(card.share, card.total, &[card.reserve, foreign]),
            Sight::Trusted => share_now(card.share, card.total, &[card.reserve]),
            Sight::Unknown => Bytes::ZERO,
        }
    }

    fn ram_share(&self, sight: Sight) -> Bytes {
        let (share, total, reserve) = (self.bounds.ram_share, self.bounds.ram, self.bounds.ram_reserve);
        match sight {
            Sight::Known { foreign } => share_now(share, total, &[reserve, SYSTEM_MARGIN, foreign]),
            Sight::Trusted => share_now(share, total, &[reserve, SYSTEM_MARGIN]),
            Sight::Unknown => Bytes::ZERO,
        }
    }

    /// Every pool: the cards, then those that are not there any more and still have reservations, then system memory.
    pub fn pools(&self) -> Vec<PoolFigures> {
        let card = |card: &CardBounds| PoolFigures {
            place: Place::Card(card.id.clone()),
            total: card.total,
            share: card.share,
            share_now: self.share_now(&card.id),
            committed: self.committed_on(&card.id),
            sight: self.sight_of(&card.id),
        };
        let system = PoolFigures {
            place: Place::SystemMemory,
            total: self.bounds.ram,
            share: self.bounds.ram_share,
            share_now: self.ram_share_now(),
            committed: self.committed_ram(),
            sight: self.system,
        };
        let is_there = |id: &DeviceId| self.bounds.cards.iter().any(|card| card.id == *id);
        let gone = self.numbers.devices().iter().filter(|id| !is_there(id) && !self.committed_on(id).is_zero());
        let gone = gone.map(|id| PoolFigures {
            place: Place::Card(id.clone()),
            total: Bytes::ZERO,
            share: Bytes::ZERO,
            share_now: Bytes::ZERO,
            committed: self.committed_on(id),
            sight: Sight::Unknown,
        });
        self.bounds.cards.iter().map(card).chain(gone).chain([system]).collect()
    }

    /// What is reserved on a card.
    pub fn committed_on(&self, id: &DeviceId) -> Bytes {
        self.on_card(&self.charges, id)
    }

    /// What is reserved of system memory; on a unified host that is everything.
    pub fn committed_ram(&self) -> Bytes {
        self.in_ram(&self.charges)
    }

    /// By how much the pools are over their bounds now. A pool that nobody knows takes nothing new and is not over.
    pub fn overflow(&self) -> Overflow {
        self.overflow_of(&self.charges)
    }

    /// The same if `spawns` had no lines.
    pub fn overflow_without(&self, spawns: &[Spawn]) -> Overflow {
        self.overflow_of(&Scratch::without(self, spawns).mark())
    }

    fn overflow_of(&self, charges: &Charges) -> Overflow {
        let Some(limits) = &self.limits else { return Overflow::default() };
        let over = |card: &CardBounds| {
            let share = self.card_share(&card.id, self.sight_of(&card.id).or_trusted());
            self.on_card(charges, &card.id).saturating_sub(share)
        };
        let cards = self.bounds.cards.iter().map(|card| (card.id.clone(), over(card)));
        Overflow {
            total: quantity(charges.total().saturating_sub(limits.total)),
            devices: cards.filter(|(_, by)| !by.is_zero()).collect(),
            ram: self.in_ram(charges).saturating_sub(self.ram_share(self.system.or_trusted())),
        }
    }

    fn on_card(&self, charges: &Charges, id: &DeviceId) -> Bytes {
        self.numbers.find_device(id).map_or(Bytes::ZERO, |n| quantity(charges.device(n)))
    }

    fn in_ram(&self, charges: &Charges) -> Bytes {
        quantity(match Pools::of(&self.bounds) {
            Pools::One => charges.total(),
            Pools::Apart => charges.ram(),
        })
    }

    pub(crate) fn charges(&self) -> &Charges {
        &self.charges
    }

    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    pub(crate) fn limits(&self) -> Option<&Limits> {
        self.limits.as_ref()
    }

    pub(crate) fn lines(&self) -> &Lines {
        &self.lines
    }

    fn sight_of(&self, id: &DeviceId) -> Sight {
        self.cards.get(id).copied().unwrap_or_default()
    }

    fn weigh(&mut self, claim: &Claim) -> Weighed {
        let n_before = self.numbers.devices().len();
        let devices: Vec<_> = claim.device.keys().map(|id| self.numbers.device(id)).collect();
        if self.numbers.devices().len() > n_before {
            self.refresh_limits();
        }
        Weighed::of(claim, &devices, |id| self.numbers.file(id))
    }

    fn replace(&mut self, spawn: Spawn, line: Line) {
        self.charges.add(&line.weighed);
        if let Some(before) = self.lines.insert(spawn, line) {
            self.charges.remove(&before.weighed);
            self.forget_unmapped(&before.claim);
        }
    }

    fn forget_unmapped(&mut self, claim: &Claim) {
        for (id, _) in &claim.ram_files {
            if self.numbers.find_file(id).is_some_and(|n| self.charges.is_unmapped(n)) {
                self.numbers.forget_file(id);
            }
        }
    }

    fn refresh_limits(&mut self) {
        // Every card has a number before any claim names it: a claim that is only judged does not number anything.
        for card in &self.bounds.cards {
            self.numbers.device(&card.id);
        }
        let wide = |bytes: Bytes| u128::from(bytes.get());
        self.limits = self.bounds.budget.bound().map(|budget| Limits {
            total: wide(budget),
            ceiling: wide(self.bounds.ceiling().unwrap_or(budget)),
            devices: self.numbers.devices().iter().map(|id| wide(self.share_now(id))).collect(),
            ram: wide(self.ram_share_now()),
            pools: Pools::of(&self.bounds),
        });
    }
}

impl Sight {
    /// Where nothing is known, the ledger alone.
    fn or_trusted(self) -> Self {
        if self == Self::Unknown { Self::Trusted } else { self }
    }
}

impl Shortfall {
    /// Whether everything fits.
    pub fn fits(&self) -> bool {
        *self == Self::default()
    }

    /// The largest of its entries.
    pub fn most(&self) -> Bytes {
        let most = self.total.max(self.co_residency).max(self.ram);
        self.devices.values().copied().fold(most, Bytes::max)
    }
}

#[cfg(test)]
mod tests;
