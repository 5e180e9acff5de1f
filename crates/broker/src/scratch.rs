//! [`Scratch`]: the sums of a ledger to be changed at will while something is judged.
use crate::{
    CardBounds, Company, Excess, Ledger, Shortfall,
    charges::{Charges, Numbers, Weighed, quantity},
    lines::LineId,
    placement::{Attempt, View},
    slack::Slack,
};
use motorpool_vocab::{Bytes, Claim, Spawn};
use std::collections::BTreeSet;

/// Sums beside a ledger, with its limits and its lines.
#[derive(Clone, Debug)]
pub(crate) struct Scratch<'a> {
    ledger: &'a Ledger,
    charges: Charges,
    /// Devices and files of claims that no line has; numbered after those of the ledger.
    extra: Numbers,
}

impl<'a> Scratch<'a> {
    /// As if `spawns` had no lines.
    pub(crate) fn without<'s>(ledger: &'a Ledger, spawns: impl IntoIterator<Item = &'s Spawn>) -> Self {
        let mut scratch = Self { ledger, charges: ledger.charges().clone(), extra: Numbers::default() };
        for spawn in spawns.into_iter().collect::<BTreeSet<_>>() {
            if let Some(line) = ledger.lines().find(*spawn) {
                scratch.remove_line(line);
            }
        }
        scratch
    }

    /// As if only `spawns` had lines.
    pub(crate) fn with_only<'s>(ledger: &'a Ledger, spawns: impl IntoIterator<Item = &'s Spawn>) -> Self {
        let mut scratch = Self { ledger, charges: Charges::default(), extra: Numbers::default() };
        for spawn in spawns.into_iter().collect::<BTreeSet<_>>() {
            if let Some(line) = ledger.lines().find(*spawn) {
                scratch.add_line(line);
            }
        }
        scratch
    }

    pub(crate) fn add_line(&mut self, line: LineId) {
        self.add(self.ledger.lines().weighed(line));
    }

    /// Takes away a line that is in it.
    pub(crate) fn remove_line(&mut self, line: LineId) {
        self.remove(self.ledger.lines().weighed(line));
    }

    pub(crate) fn add(&mut self, line: &Weighed) {
        self.charges.add(line);
    }

    /// Takes away what is in it.
    pub(crate) fn remove(&mut self, line: &Weighed) {
        self.charges.remove(line);
    }

    /// What `attempt`, which fits, leaves of every bound that it meets.
    pub(crate) fn slack(&self, attempt: &Attempt) -> Slack {
        let slack = self
            .ledger
            .limits()
            .map_or_else(Slack::endless, |limits| Slack::of(limits, &self.charges, &attempt.weighed));
        if attempt.placement.company == Company::Alone { slack.alone() } else { slack }
    }

    /// Its sums, to go back to: cheaper than undoing one by one.
    pub(crate) fn mark(&self) -> Charges {
        self.charges.clone()
    }

    pub(crate) fn go_back(&mut self, mark: &Charges) {
        self.charges.clone_from(mark);
    }

    pub(crate) fn add_claim(&mut self, claim: &Claim) {
        let weighed = self.weigh(claim);
        self.charges.add(&weighed);
    }

    pub(crate) fn weigh(&mut self, claim: &Claim) -> Weighed {
        let (known, extra) = (self.ledger.numbers(), &mut self.extra);
        let n_known = known.devices().len();
        let device = |id| known.find_device(id).unwrap_or_else(|| n_known + extra.device(id));
        let devices: Vec<_> = claim.device.keys().map(device).collect();
        Weighed::of(claim, &devices, |id| known.find_file(id).unwrap_or_else(|| known.n_files() + extra.file(id)))
    }

    /// Whether an attempt fits beside what is in it. Without an enforced budget everything does.
    pub(crate) fn admits(&self, attempt: &Attempt) -> bool {
        admits(self.ledger, &self.charges, attempt)
    }

    pub(crate) fn shortfall(&mut self, claim: &Claim) -> Shortfall {
        let weighed = self.weigh(claim);
        let limits = self.ledger.limits();
        limits.map(|limits| limits.shortfall(&self.charges, (claim, &weighed))).unwrap_or_default()
    }

    pub(crate) fn excess(&mut self, claim: &Claim) -> Option<Excess> {
        let weighed = self.weigh(claim);
        self.ledger.limits()?.excess(&self.charges, (claim, &weighed))
    }

    /// What is free on each card as far as it may be reserved.
    pub(crate) fn view(&self) -> View {
        self.view_without([])
    }

    /// The same if `lines`, which are in it, were not.
    pub(crate) fn view_without(&self, lines: impl IntoIterator<Item = LineId>) -> View {
        let lines = lines.into_iter().map(|line| self.ledger.lines().weighed(line));
        let (devices, accelerated) = self.charges.devices_without(lines);
        let card = |card: &CardBounds| {
            let n = self.ledger.numbers().find_device(&card.id);
            let taken = n.and_then(|n| devices.get(n)).map_or(Bytes::ZERO, |bytes| quantity(*bytes));
            (card.id.clone(), self.ledger.share_now(&card.id).saturating_sub(taken))
        };
        View { free: self.ledger.bounds().cards.iter().map(card).collect(), accelerated: accelerated > 0 }
    }
}

/// Whether an attempt fits into `ledger` beside `others`.
pub(crate) fn admits(ledger: &Ledger, others: &Charges, attempt: &Attempt) -> bool {
    let Some(limits) = ledger.limits() else { return true };
    let company = attempt.placement.company == Company::Any || others.accelerated == 0;
    company && limits.fits(others, &attempt.weighed)
}
