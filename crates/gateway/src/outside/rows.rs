//! How models of others' servers stand in the listing of models.
use super::{Foreign, Outside};
use crate::{
    context::Context,
    models::{Row, Standing},
};
use motorpool_catalog::Catalog;
use motorpool_external::residency::{Phase, Seen};
use std::collections::{BTreeMap, BTreeSet};

/// One row, and the names by which a key may have it.
pub(crate) struct Listed {
    pub(crate) row: Row,
    pub(crate) foreign: Foreign,
    /// Ours goes by this name no more: the server is preferred.
    pub(crate) hides: Option<String>,
}

/// All that others' servers offer, in the order of the configuration.
pub(crate) fn listed(context: &Context) -> Vec<Listed> {
    let servers = &context.settings.outside;
    let offered: Vec<(&Outside, Vec<Seen>)> =
        servers.iter().map(|outside| (outside, outside.offered(&outside.watch.seen()))).collect();
    let mut n_servers = BTreeMap::<&str, usize>::new();
    for seen in offered.iter().flat_map(|(_, rows)| rows) {
        *n_servers.entry(&seen.id).or_default() += 1;
    }
    let mut bare = BTreeSet::new();
    // Who is preferred takes its bare names first.
    for preferred in [true, false] {
        for (outside, rows) in offered.iter().filter(|(outside, _)| outside.is_preferred() == preferred) {
            let free = |seen: &&Seen| preferred || !context.catalog.has_name(&seen.id);
            for seen in rows.iter().filter(free) {
                if !bare.iter().any(|(_, id)| *id == seen.id.as_str()) {
                    bare.insert((outside.config.id.as_str(), seen.id.as_str()));
                }
            }
        }
    }
    let mut all = Vec::new();
    for (outside, rows) in &offered {
        for seen in rows {
            let is_shared = n_servers[seen.id.as_str()] > 1 || is_ours(&context.catalog, &seen.id);
            if bare.contains(&(outside.config.id.as_str(), seen.id.as_str())) {
                all.push(one(context, (outside, seen), seen.id.clone()));
            }
            if is_shared {
                all.push(one(context, (outside, seen), format!("{}/{}", outside.config.id, seen.id)));
            }
        }
    }
    all
}

fn is_ours(catalog: &Catalog, name: &str) -> bool {
    catalog.has_name(name)
}

fn one(context: &Context, (outside, seen): (&Outside, &Seen), id: String) -> Listed {
    let hides = (id == seen.id && is_ours(&context.catalog, &id)).then(|| id.clone());
    let foreign = outside.foreign(&seen.id);
    Listed { row: Row::foreign(context, (outside, seen), id), foreign, hides }
}

/// The row of one model, by the name that it was asked for with.
pub(crate) fn row(context: &Context, foreign: &Foreign, name: &str) -> Row {
    let sighting = foreign.outside.watch.seen();
    let seen = sighting.sight.as_ref().and_then(|sight| sight.find(&foreign.wire).cloned());
    let seen = seen.unwrap_or_else(|| Seen::new(foreign.wire.clone(), Phase::Absent));
    Row::foreign(context, (&foreign.outside, &seen), name.to_owned())
}

/// Where such a model stands.
pub(crate) fn standing(phase: Phase) -> Standing {
    match phase {
        Phase::Absent => Standing::Unloaded,
        Phase::Failed(_) => Standing::Failed("load-failed"),
        Phase::Loading => Standing::Loading(None),
        Phase::Loaded | Phase::Sleeping => Standing::Loaded,
    }
}
