//! [`Difference`]: what two checked states of the files say differently, item by item, and when each of it counts.
//!
//! ```text
//! before ─┐                      ┌─ live       from now on, for what runs too
//!         ├─► keys that differ ──┼─ launch     for engines that are started from now on: one that runs goes first
//! after ──┘                      └─ start      for a supervisor that is started from now on
//! ```
//!
//! Boundary: values in, a list out. What runs is the pool's to say: [`Difference::report`] puts the two together.
//!
//! Which of the three a key is stands here and nowhere else, in lists that name every field of every type: one that is
//! added compiles only once it stands in one of them. Two states that are equal have no difference (a property).
mod keys;
mod report;
#[cfg(test)]
mod tests;

use crate::{Catalog, Config, Manifest, Model};
pub use keys::Changes;
pub use report::{Kind, Outcome, Report, Row};

/// When a change of a key counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// From now on.
    Live,
    /// For engines that are started from now on.
    Launch,
    /// For a supervisor that is started from now on.
    Start,
}

/// What the files say.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a> {
    /// `motorpool.toml`.
    pub config: &'a Config,
    /// Models and engines, as this machine has them configured.
    pub catalog: &'a Catalog,
}

/// What became of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It says what it said.
    Unchanged,
    /// It was not there before.
    Added,
    /// It is not there any more.
    Removed,
    /// These keys of it say something else.
    Changed(Changes),
}

/// What two states of the files say differently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    items: Vec<(Kind, String, Change)>,
}

/// The manifest stands among a model's keys under this name, where an engine's change is one of its models'.
const MANIFEST: &str = "the engine's manifest";

impl Difference {
    /// Every model and every engine of either state, by name, and every key of the configuration that differs.
    pub fn between(before: Said<'_>, after: Said<'_>) -> Self {
        let mut items = Vec::new();
        let (old, new) = (before.catalog, after.catalog);
        for model in new.models() {
            let change = old.model(&model.id).map_or(Change::Added, |known| {
                change_of(model_changes((known, old.manifest(&known.engine)), (model, new.manifest(&model.engine))))
            });
            items.push((Kind::Model, model.id.to_string(), change));
        }
        let gone = old.models().filter(|model| new.model(&model.id).is_none());
        items.extend(gone.map(|model| (Kind::Model, model.id.to_string(), Change::Removed)));
        for manifest in new.manifests() {
            let change = old.manifest(&manifest.name);
            let change = change.map_or(Change::Added, |known| change_of(Changes::of_manifests(known, manifest)));
            items.push((Kind::Engine, manifest.name.clone(), change));
        }
        let gone = old.manifests().filter(|manifest| new.manifest(&manifest.name).is_none());
        items.extend(gone.map(|manifest| (Kind::Engine, manifest.name.clone(), Change::Removed)));
        let keys = Changes::of_configs(before.config, after.config);
        items.extend(keys.iter().map(|(key, effect)| {
            let mut alone = Changes::default();
            alone.add(key.to_owned(), effect);
            (Kind::Key, key.to_owned(), Change::Changed(alone))
        }));
        items.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        Self { items }
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.items.iter().all(|(.., change)| *change == Change::Unchanged)
    }
}

fn change_of(changes: Changes) -> Change {
    if changes.is_empty() { Change::Unchanged } else { Change::Changed(changes) }
}

/// A model, and the manifest of its engine where there is one.
type Entry<'a, M> = (&'a Model, Option<&'a M>);

fn model_changes<M: AsRef<Manifest>>((old, old_engine): Entry<'_, M>, (new, new_engine): Entry<'_, M>) -> Changes {
    let mut changes = Changes::of_models(old, new);
    if let (Some(before), Some(after)) = (old_engine, new_engine)
        && old.engine == new.engine
        && Changes::of_manifests(before.as_ref(), after.as_ref()).has(Effect::Launch)
    {
        changes.add(MANIFEST.to_owned(), Effect::Launch);
    }
    changes
}

/// Whether an engine that was launched for `old` is another one than would be launched for `new`, each a model and the
/// manifest of its engine.
pub fn relaunches(old: (&Model, &Manifest), new: (&Model, &Manifest)) -> bool {
    Changes::of_models(old.0, new.0).has(Effect::Launch) || Changes::of_manifests(old.1, new.1).has(Effect::Launch)
}
