//! [`Report`]: a difference as operators are told of it, item by item.
use crate::difference::{Change, Changes, Difference, Effect};
use std::fmt;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A model of the catalog.
    Model,
    /// An engine, by its manifest.
    Engine,
    /// A key of the configuration.
    Key,
}

/// What a reload made of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It says what it said.
    Unchanged,
    /// What it says now counts already.
    Live,
    /// It counts for engines that are started from now on; none of it runs.
    OnNextLoad,
    /// Engines of it take nobody new and end when those they serve have finished.
    Draining,
    /// It counts once the supervisor is started again.
    AtNextStart,
}

/// One item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is.
    pub kind: Kind,
    /// Its id, its name, or its path.
    pub name: String,
    /// What was made of it.
    pub outcome: Outcome,
    /// What it did: `added`, `removed`, or the keys that changed.
    pub what: String,
}

/// What a reload made of every item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The items: models, engines, keys of the configuration; each by name.
    pub rows: Vec<Row>,
}

impl Kind {
    /// Its name in the API and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Engine => "engine",
            Self::Key => "key",
        }
    }
}

impl Outcome {
    /// Its name in the API and in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Live => "live",
            Self::OnNextLoad => "on next load",
            Self::Draining => "draining",
            Self::AtNextStart => "at the next start",
        }
    }
}

impl Difference {
    /// What became of every item, where `drains` says of a model whether engines of it end for this.
    pub fn report(&self, drains: impl Fn(&str) -> bool) -> Report {
        let rows = self.items.iter().map(|(kind, name, change)| {
            let is_going = *kind == Kind::Model && drains(name);
            let outcome = match change {
                Change::Unchanged => Outcome::Unchanged,
                Change::Removed if is_going => Outcome::Draining,
                Change::Added | Change::Removed => Outcome::Live,
                Change::Changed(changes) if is_going && changes.has(Effect::Launch) => Outcome::Draining,
                Change::Changed(changes) => outcome_of(changes),
            };
            Row { kind: *kind, name: name.clone(), outcome, what: change.to_string() }
        });
        Report { rows: rows.collect() }
    }
}

/// The latest moment at which something of it counts.
fn outcome_of(changes: &Changes) -> Outcome {
    let latest = changes.iter().map(|(_, effect)| effect).max();
    match latest {
        None => Outcome::Unchanged,
        Some(Effect::Live) => Outcome::Live,
        Some(Effect::Launch) => Outcome::OnNextLoad,
        Some(Effect::Start) => Outcome::AtNextStart,
    }
}

impl Report {
    /// Whether everything says what it said.
    pub fn is_empty(&self) -> bool {
        self.rows.iter().all(|row| row.outcome == Outcome::Unchanged)
    }

    /// How many items it is so with.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.rows.iter().filter(|row| row.outcome == outcome).count()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unchanged => Ok(()),
            Self::Added => f.write_str("added"),
            Self::Removed => f.write_str("removed"),
            Self::Changed(changes) => {
                let keys: Vec<&str> = changes.iter().map(|(key, _)| key).collect();
                f.write_str(&keys.join(", "))
            }
        }
    }
}
