//! What a server says that it has ([`Listing`]), and what that means to us ([`Resident`]).
use crate::{
    book::{Book, By},
    protection::{ProtectedSet, Protection, protection},
};
use motorpool_vocab::{Bytes, Now, TargetKey};

/// What a model does on its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Known, not in memory: unloaded, downloading, downloaded.
    Absent,
    /// It last failed to load; not in memory. With the exit code, where the server tells one.
    Failed(Option<i64>),
    /// On its way into memory.
    Loading,
    /// In memory.
    Loaded,
    /// In its place, its memory given back until it is asked again.
    Sleeping,
}

/// What a resident takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// In all.
    pub total: Bytes,
    /// Of that in graphics memory.
    pub vram: Bytes,
}

/// One row of a server's listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What the server calls it.
    pub id: String,
    /// Its other names.
    pub aliases: Vec<String>,
    /// What it does.
    pub phase: Phase,
    /// What tells this load of it from the next one (a child's port), or as much of
    /// that as the server shows (a digest, an instance's name: the next load may have the same); `None` when the server shows nothing.
    pub instance: Option<String>,
    /// Marks that its owner put on it.
    pub tags: Vec<String>,
    /// What it takes, where the server tells.
    pub sizes: Option<Sizes>,
    /// Tokens of context that it has at most, where the server tells.
    pub max_context: Option<u32>,
    /// Tokens of context that it is loaded with, where the server tells that apart from the most.
    pub context: Option<u32>,
}

/// What a server has, in its own order; for a router, all that it could load too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The rows.
    pub rows: Vec<Seen>,
}

/// Whose load it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Ours, confirmed, by whom of us.
    Ours(By),
    /// Anybody else's.
    Foreign,
}

/// Whether we use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Used {
    /// We hold a lease on it, or wait for its load.
    InUse,
    /// We last used it then; `None`: never.
    Idle(Option<Now>),
}

/// A model in its server's memory, as we see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    /// What the server says.
    pub seen: Seen,
    /// Whose it is.
    pub owner: Owner,
    /// What protects it.
    pub protection: Protection,
    /// Whether we use it.
    pub used: Used,
}

impl Phase {
    /// Whether it takes a place on its server: loading and sleeping ones do.
    pub fn is_resident(self) -> bool {
        matches!(self, Self::Loading | Self::Loaded | Self::Sleeping)
    }

    /// Whether it answers requests, at once or by waking up.
    pub fn is_ready(self) -> bool {
        matches!(self, Self::Loaded | Self::Sleeping)
    }
}

impl Seen {
    /// A row with nothing but a name.
    pub fn new(id: impl Into<String>, phase: Phase) -> Self {
        let (aliases, tags) = (Vec::new(), Vec::new());
        Self { id: id.into(), aliases, phase, instance: None, tags, sizes: None, max_context: None, context: None }
    }

    /// Whether `name` is its id or an alias, exactly.
    pub fn is_called(&self, name: &str) -> bool {
        self.id == name || self.aliases.iter().any(|alias| alias == name)
    }
}

impl Listing {
    /// The row that `name` means: by id before by alias, resident ones first.
    pub fn find(&self, name: &str) -> Option<&Seen> {
        let by_id = |seen: &&Seen| seen.id == name;
        let resident = || self.residents();
        resident()
            .find(by_id)
            .or_else(|| resident().find(|seen| seen.is_called(name)))
            .or_else(|| self.rows.iter().find(by_id))
            .or_else(|| self.rows.iter().find(|seen| seen.is_called(name)))
    }

    /// Those in memory, or on their way there.
    pub fn residents(&self) -> impl Iterator<Item = &Seen> {
        self.rows.iter().filter(|seen| seen.phase.is_resident())
    }

    /// Whether `name` is in memory, or on its way there.
    pub fn holds(&self, name: &str) -> bool {
        self.residents().any(|seen| seen.is_called(name))
    }
}

impl Resident {
    /// Who of us loaded it; `None`: nobody of us.
    pub fn by(&self) -> Option<By> {
        match self.owner {
            Owner::Ours(by) => Some(by),
            Owner::Foreign => None,
        }
    }

    /// Whether it is ours.
    pub fn is_ours(&self) -> bool {
        self.by().is_some()
    }
}

/// What `listing` of the server `key` means, by what we own and use there and by what our configuration protects.
pub fn assess(listing: &Listing, key: &TargetKey, book: &Book, set: &ProtectedSet) -> Vec<Resident> {
    let resident = |seen: &Seen| {
        let owned = book.owned(key, seen);
        Resident {
            seen: seen.clone(),
            owner: owned.map_or(Owner::Foreign, |owned| Owner::Ours(owned.by)),
            protection: protection(seen, set, owned.map(|owned| owned.by)),
            used: book.used(key, seen),
        }
    };
    listing.residents().map(resident).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_an_id_before_an_alias_and_a_resident_before_one_that_is_not() {
        let mut aliased = Seen::new("x", Phase::Loaded);
        aliased.aliases = vec!["a".into()];
        let listing = Listing { rows: vec![Seen::new("a", Phase::Absent), aliased, Seen::new("b", Phase::Sleeping)] };
        assert_eq!(listing.find("a").map(|seen| seen.id.as_str()), Some("x"));
        assert_eq!(listing.find("b").map(|seen| seen.id.as_str()), Some("b"));
        assert_eq!(listing.find("A"), None);
        assert!(listing.holds("a") && !listing.holds("c"));
    }

    #[test]
    fn loading_and_sleeping_take_a_place_and_failed_does_not() {
        let phases = [Phase::Absent, Phase::Failed(None), Phase::Loading, Phase::Loaded, Phase::Sleeping];
        assert_eq!(phases.map(Phase::is_resident), [false, false, true, true, true]);
        assert_eq!(phases.map(Phase::is_ready), [false, false, false, true, true]);
    }
}
