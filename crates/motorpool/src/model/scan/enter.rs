//! [`enter`]: catalog entries for models that were found, by the paths of their files.
use super::Found;
use crate::{
    dirs::Dirs,
    model::{
        ModelError,
        entry::Entry,
        store::{self, Store},
        wanted::{free_id, id_of, model_of},
        work::{Work, piece},
    },
};
use motorpool_catalog::Catalog;
use motorpool_vocab::ModelId;
use std::collections::BTreeSet;

/// The id of each: that of the catalog, for one that is there, else a new one.
pub(crate) fn enter(dirs: &Dirs, catalog: &Catalog, models: &[&Found]) -> Result<Vec<ModelId>, ModelError> {
    let (store, mut taken) = (Store::new(dirs), BTreeSet::new());
    let mut one = |found: &&Found| {
        if let Some(model) = model_of(&found.file, (&store, catalog))? {
            return Ok(model.id.clone());
        }
        let id = free_id(&id_of(&found.name), &found.file, (&store, catalog));
        let mut aliases = found.aliases.clone();
        // Of those that were entered before this one the catalog does not know yet.
        aliases.retain(|alias| !catalog.has_name(alias) && taken.insert(alias.clone()));
        write(dirs, (&id, aliases), found)?;
        Ok(id)
    };
    models.iter().map(&mut one).collect()
}

fn write(dirs: &Dirs, (id, aliases): (&ModelId, Vec<String>), found: &Found) -> Result<(), ModelError> {
    let work = Work::begin(dirs, id.clone(), found.file.clone())?;
    let shards = store::shards_of(&found.file).unwrap_or_else(|_| vec![found.file.clone()]);
    let sum = |n: usize| if n == 0 { found.sha256 } else { None };
    let pieces = shards.iter().enumerate().map(|(n, shard)| piece(shard, sum(n)));
    let pieces = pieces.chain(found.projector.iter().map(|projector| piece(projector, None)));
    let pieces = pieces.collect::<Result<Vec<_>, _>>()?;
    work.record(&format!("file:{}", found.file.display()), pieces)?;
    let entry = Entry {
        id,
        aliases,
        file: &found.file,
        projector: found.projector.as_deref(),
        terms: None,
        capability: found.capability,
    };
    entry.write(&work.home)
}
