//! [`Slack`]: what is left of each bound beside an attempt that fits.
//!
//! It answers two questions cheaply: whether one more line passes some bound for sure, and whether it fits for sure. What a
//! file adds depends on who maps it: a line makes every sum larger by its private parts at least, and by all of it at most.
//! So one that is kept up to date with [`Slack::take_whole`] is never too large, and one from before never too small;
//! between both only a trial tells.
use crate::{
    charges::{Charges, Weighed},
    limits::{Limits, Pools},
};

/// What may still be added, at most, by what of it is private; `u128::MAX` where nothing binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slack {
    total: u128,
    ram: u128,
    accelerated: u128,
    /// Of the devices that the attempt asks for, by number.
    devices: Vec<(usize, u128)>,
}

impl Slack {
    /// Nothing binds.
    pub(crate) fn endless() -> Self {
        Self { total: u128::MAX, ram: u128::MAX, accelerated: u128::MAX, devices: vec![] }
    }

    /// Beside `others` and `weighed`, which fits.
    pub(crate) fn of(limits: &Limits, others: &Charges, weighed: &Weighed) -> Self {
        let mut slack = Self::endless();
        if weighed.accelerated > 0 {
            slack.accelerated = limits.ceiling.saturating_sub(others.accelerated + u128::from(weighed.accelerated));
        }
        if !weighed.is_nothing() {
            slack.total = limits.total.saturating_sub(others.total_with(weighed));
        }
        match limits.pools {
            Pools::One if !weighed.is_nothing() => {
                slack.total = slack.total.min(limits.ram.saturating_sub(others.total_with(weighed)));
            }
            Pools::Apart => {
                if weighed.uses_ram() {
                    slack.ram = limits.ram.saturating_sub(others.ram_with(weighed));
                }
                let asked = weighed.devices.iter().filter(|(_, bytes)| *bytes > 0);
                let left = |(n, bytes): &(usize, u64)| {
                    let bound = limits.devices.get(*n).copied().unwrap_or(0);
                    (*n, bound.saturating_sub(others.device(*n) + u128::from(*bytes)))
                };
                slack.devices = asked.map(left).collect();
            }
            Pools::One => {}
        }
        slack
    }

    /// The same where nothing accelerated may be.
    pub(crate) fn alone(self) -> Self {
        Self { accelerated: 0, ..self }
    }

    /// Whether `line` passes it for sure.
    pub(crate) fn is_passed_by(&self, line: &Weighed) -> bool {
        u128::from(line.accelerated) > self.accelerated
            || line.private() > self.total
            || u128::from(line.ram_private) > self.ram
            || self.devices.iter().any(|(n, left)| line.on_device(*n) > *left)
    }

    /// Whether `line` fits for sure.
    pub(crate) fn holds(&self, line: &Weighed) -> bool {
        let whole = line.whole();
        u128::from(line.accelerated) <= self.accelerated
            && whole <= self.total
            && whole <= self.ram
            && self.devices.iter().all(|(n, left)| line.on_device(*n) <= *left)
    }

    /// `line`, which fits, is there too, and its files add all of them.
    pub(crate) fn take_whole(&mut self, line: &Weighed) {
        let whole = line.whole();
        let less = |from: &mut u128, by: u128| {
            if *from != u128::MAX {
                *from = from.saturating_sub(by);
            }
        };
        less(&mut self.accelerated, line.accelerated.into());
        less(&mut self.total, whole);
        less(&mut self.ram, whole);
        for (n, left) in &mut self.devices {
            *left = left.saturating_sub(line.on_device(*n));
        }
    }
}
