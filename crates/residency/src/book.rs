//! [`Book`]: which residents of other people's servers are ours, and which of them we use.
//!
//! A model is ours when we asked for its load while our listing did not have it, and it was resident after. Whoever
//! writes the book down keeps [`Book::entries`]; after a crash each is taken over only while the same load of it is
//! still resident.
use crate::resident::{Listing, Seen, Used};
use motorpool_vocab::{Now, TargetKey};
use std::collections::BTreeMap;

/// Who of us loaded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// This process.
    Us,
    /// A helper process of ours.
    Worker,
}

/// One model that is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// On which server.
    pub key: TargetKey,
    /// By the id that its listing has.
    pub model: String,
    /// Which load of it; `None` where the server does not tell them apart.
    pub instance: Option<String>,
    /// Since when, in seconds of the calendar (UNIX time).
    pub since: u64,
    /// Who loaded it.
    pub by: By,
}

/// Whether a helper's report was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// It is ours now.
    Taken,
    /// It is not: the target is unknown here.
    Refused,
}

/// What goes when somebody leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving<'a> {
    /// All of us.
    Everything,
    /// A probe: only what became ours since, of its own target and model.
    Probe {
        /// When it began, in seconds of the calendar.
        since: u64,
        /// Its server.
        key: &'a TargetKey,
        /// Its model.
        model: &'a str,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    n_leases: u32,
    last: Option<Now>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Book {
    owned: BTreeMap<(TargetKey, String), Owned>,
    used: BTreeMap<(TargetKey, String), Usage>,
}

impl Book {
    /// Takes `owned` down, in the place of an earlier load of the same model.
    pub fn own(&mut self, owned: Owned) {
        self.owned.insert((owned.key.clone(), owned.model.clone()), owned);
    }

    /// What is known of `seen` as ours; nothing when it is another load than the one we made.
    pub fn owned(&self, key: &TargetKey, seen: &Seen) -> Option<&Owned> {
        let owned = self.owned.get(&(key.clone(), seen.id.clone()))?;
        (owned.instance.is_none() || owned.instance == seen.instance).then_some(owned)
    }

    /// Everything that is ours, by server and model.
    pub fn entries(&self) -> impl Iterator<Item = &Owned> {
        self.owned.values()
    }

    /// A helper reports that it loaded `owned`; `known` are the targets of our own configuration.
    pub fn adopt(&mut self, owned: Owned, known: &[TargetKey]) -> Adoption {
        if !known.contains(&owned.key) {
            return Adoption::Refused;
        }
        self.own(Owned { by: By::Worker, ..owned });
        Adoption::Taken
    }

    /// It is not ours any more.
    pub fn forget(&mut self, key: &TargetKey, model: &str) {
        self.owned.remove(&(key.clone(), model.to_owned()));
    }

    /// Forgets what `listing` of the server `key` does not show as the same load any more, and when it was used.
    pub fn observe(&mut self, key: &TargetKey, listing: &Listing) {
        let is_there = |owned: &Owned| {
            let same =
                |seen: &Seen| seen.id == owned.model && (owned.instance.is_none() || owned.instance == seen.instance);
            listing.residents().any(same)
        };
        self.owned.retain(|(at, _), owned| at != key || is_there(owned));
        let is_known = |model: &str| listing.residents().any(|seen| seen.is_called(model));
        self.used.retain(|(at, model), usage| at != key || usage.n_leases > 0 || is_known(model));
    }

    /// Takes over what an earlier run of ours wrote down about the server `key`: only what is resident as the very same
    /// load. A server that does not tell loads apart proves nothing, so nothing is taken over from it.
    pub fn take_over(&mut self, key: &TargetKey, written: &[Owned], listing: &Listing) {
        for owned in written.iter().filter(|owned| owned.key == *key && owned.instance.is_some()) {
            if listing.residents().any(|seen| seen.id == owned.model && seen.instance == owned.instance) {
                self.own(owned.clone());
            }
        }
    }

    /// A request begins to use `model`, or to wait for its load.
    pub fn begin(&mut self, key: &TargetKey, model: &str) {
        let usage = self.used.entry((key.clone(), model.to_owned())).or_default();
        usage.n_leases = usage.n_leases.saturating_add(1);
    }

    /// It ended. When it was is known only where something is ours: anything else never goes, whenever it was used, and
    /// requests name what they like.
    pub fn end(&mut self, now: Now, key: &TargetKey, model: &str) {
        let name = (key.clone(), model.to_owned());
        let Some(usage) = self.used.get_mut(&name) else { return };
        usage.n_leases = usage.n_leases.saturating_sub(1);
        usage.last = Some(now);
        if usage.n_leases == 0 && !self.owned.keys().any(|(at, _)| at == key) {
            self.used.remove(&name);
        }
    }

    /// Whether we use `seen`, by whatever name.
    pub fn used(&self, key: &TargetKey, seen: &Seen) -> Used {
        let of = |((at, model), usage): (&(TargetKey, String), &Usage)| {
            (at == key && seen.is_called(model)).then_some(*usage)
        };
        let all: Vec<Usage> = self.used.iter().filter_map(of).collect();
        if all.iter().any(|usage| usage.n_leases > 0) {
            return Used::InUse;
        }
        Used::Idle(all.iter().filter_map(|usage| usage.last).max())
    }

    /// What is released by who leaves.
    pub fn leaving(&self, who: Leaving<'_>) -> Vec<Owned> {
        let goes = |owned: &&Owned| match who {
            Leaving::Everything => true,
            Leaving::Probe { since, key, model } => owned.since >= since && owned.key == *key && owned.model == model,
        };
        self.owned.values().filter(goes).cloned().collect()
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
