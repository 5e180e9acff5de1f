//! [`Book`]: which residents of other people's servers are ours, and which of them we use.
//!
//! A model is ours when we asked for its load while our listing did not have it, and it was resident after. Whoever
//! writes the book down keeps [`Book::entries`]; after a crash each is taken over only while the same load of it is
//! still resident.
//!
//! A listing says nothing about what became ours after it was asked for: each entry has its place in the order of all
//! ([`Stamp`]), and whoever lists says up to which place the listing counts.
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
        /// When it began.
        since: Stamp,
        /// Its server.
        key: &'a TargetKey,
        /// Its model.
        model: &'a str,
    },
}

/// A moment in the order in which models became ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(u64);

/// Why a resident may not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// A request of ours uses it, or waits for it.
    InUse,
    /// It is not ours, or not the load that we made.
    NotOurs,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    n_leases: u32,
    last: Option<Now>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Book {
    owned: BTreeMap<(TargetKey, String), (Owned, Stamp)>,
    used: BTreeMap<(TargetKey, String), Usage>,
    /// What is being unloaded.
    going: Vec<(TargetKey, Seen)>,
    /// Our loads under way, of what was not there before.
    coming: BTreeMap<(TargetKey, String), Owned>,
    /// Of the newest entry.
    newest: Stamp,
}

impl Book {
    /// Takes `owned` down, in the place of an earlier load of the same model.
    pub fn own(&mut self, owned: Owned) {
        self.newest.0 += 1;
        self.owned.insert((owned.key.clone(), owned.model.clone()), (owned, self.newest));
    }

    /// The present, for a listing that is asked for now.
    pub fn stamp(&self) -> Stamp {
        self.newest
    }

    /// What is known of `seen` as ours; nothing when it is another load than the one we made.
    pub fn owned(&self, key: &TargetKey, seen: &Seen) -> Option<&Owned> {
        let (owned, _) = self.owned.get(&(key.clone(), seen.id.clone()))?;
        (owned.instance.is_none() || owned.instance == seen.instance).then_some(owned)
    }

    /// Everything that is ours, by server and model.
    pub fn entries(&self) -> impl Iterator<Item = &Owned> {
        self.owned.values().map(|(owned, _)| owned)
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

    /// The resident `seen` goes now, unless a request of ours uses it or it is not ours. From this moment on nobody may
    /// rely on it, until [`Self::went`].
    pub fn go(&mut self, key: &TargetKey, seen: &Seen) -> Result<(), Stays> {
        if self.owned(key, seen).is_none() {
            return Err(Stays::NotOurs);
        }
        if self.used(key, seen) == Used::InUse {
            return Err(Stays::InUse);
        }
        self.going.push((key.clone(), seen.clone()));
        Ok(())
    }

    /// It is gone, or stays after all.
    pub fn went(&mut self, key: &TargetKey, model: &str) {
        self.going.retain(|(at, seen)| at != key || seen.id != model);
    }

    /// Whether what is called `model` is being unloaded.
    pub fn is_going(&self, key: &TargetKey, model: &str) -> bool {
        self.going.iter().any(|(at, seen)| at == key && seen.is_called(model))
    }

    /// We ask for a load of what is not there.
    pub fn come(&mut self, owned: Owned) {
        self.coming.insert((owned.key.clone(), owned.model.clone()), owned);
    }

    /// The load under way is `seen`.
    pub fn coming_as(&mut self, key: &TargetKey, model: &str, seen: &Seen) {
        if let Some(owned) = self.coming.get_mut(&(key.clone(), model.to_owned())) {
            owned.instance.clone_from(&seen.instance);
        }
    }

    /// The load ended, well or not; answers with what was known of it.
    pub fn came(&mut self, key: &TargetKey, model: &str) -> Option<Owned> {
        self.coming.remove(&(key.clone(), model.to_owned()))
    }

    /// Our loads under way.
    pub fn coming(&self) -> impl Iterator<Item = &Owned> {
        self.coming.values()
    }

    /// Forgets what `listing` of the server `key` does not show as the same load any more, and when it was used. What
    /// became ours since the listing was `asked` for is not in it.
    pub fn observe(&mut self, (key, asked): (&TargetKey, Stamp), listing: &Listing) {
        let is_there = |owned: &Owned| {
            let same =
                |seen: &Seen| seen.id == owned.model && (owned.instance.is_none() || owned.instance == seen.instance);
            listing.residents().any(same)
        };
        self.owned.retain(|(at, _), (owned, since)| at != key || *since > asked || is_there(owned));
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
        let goes = |(owned, at): &&(Owned, Stamp)| match who {
            Leaving::Everything => true,
            Leaving::Probe { since, key, model } => *at > since && owned.key == *key && owned.model == model,
        };
        self.owned.values().filter(goes).map(|(owned, _)| owned.clone()).collect()
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
