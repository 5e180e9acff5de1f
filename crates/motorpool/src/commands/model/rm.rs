//! `motorpool model rm ID`: removes what was pulled, and forgets what was entered.
//!
//! Refused while the running pool uses the model. A start may come between the question and the removal, so the folder is
//! moved away between two questions: whoever looks for the file from then on finds none, and whoever found it before is
//! seen by the second question, since the pool took a turn in between. Then it is moved back, or removed.
//!
//! ```text
//! lock ─► in use? ─► move to models/.removed/ ─► the pool takes a turn ─► in use? ─┬─ no ─► remove
//!          └─ yes: refused                                                         └─ yes ─► move back, refused
//! ```
//!
//! It is moved within the folder of all models: that one may be a file system of its own. A model is named as it is
//! called, never by a `*`, and one of whose files another entry of the catalog makes use stays.
//!
//! Only our own folder is ever removed. A file that lies elsewhere (the user's, another program's) stays.
use super::Shelf;
use crate::{
    client::{Client, ClientError, escaped},
    commands::ps,
    disk,
    exit::Failure,
    model::{ModelError, pull::exact},
};
use motorpool_catalog::{Model, ModelSource, UnknownModel};
use motorpool_vocab::ModelId;
use serde::Serialize;
use serde_json::json;
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What was done.
#[derive(Serialize)]
struct Done {
    id: String,
    /// Our folder.
    removed: PathBuf,
    /// The model's file, where it is not ours.
    kept: Option<PathBuf>,
}

pub(super) async fn perform(shelf: &Shelf<'_>, name: &str) -> Result<(), Failure> {
    let (id, kept) = named(shelf, name)?;
    let home = shelf.store.home(&id);
    let at = |path: &Path, result: io::Result<()>| {
        result.map_err(|source| ModelError::Disk { path: path.to_owned(), source })
    };
    let lock = home.join("lock");
    let locked = disk::try_lock(&lock).map_err(|source| ModelError::Disk { path: lock, source })?;
    let Some(_lock) = locked else { return Err(ModelError::Pulling(id).into()) };
    if let Some(by) = needed_by(shelf, &id) {
        return Err(ModelError::Needed { id, by }.into());
    }
    let client = Client::new(&shelf.dirs.live_control_socket());
    let is_used = async || ps::in_use(&client, |key| key.model() == &id).await.map(|key| key.is_some());
    if is_used().await? {
        return Err(ModelError::InUse(id).into());
    }
    let away = shelf.dirs.make_data("models/.removed").map_err(ModelError::from)?;
    clear(&away);
    let aside = away.join(home.file_name().unwrap_or_default());
    at(&aside, fs::rename(&home, &aside))?;
    let used = match take_a_turn(&client, &id).await {
        Ok(()) => is_used().await,
        Err(error) => Err(error.into()),
    };
    let moved = match &used {
        Ok(false) => at(&aside, fs::remove_dir_all(&aside)),
        Ok(true) | Err(_) => at(&home, fs::rename(&aside, &home)),
    };
    let _ = fs::remove_dir(&away);
    moved?;
    if used? {
        return Err(ModelError::InUse(id).into());
    }
    let done = Done { id: id.to_string(), removed: home, kept };
    shelf.out.data(&done, || done.for_people())
}

/// The model's id, and its file where that is not ours. One that was never pulled to its end has no entry yet.
fn named(shelf: &Shelf<'_>, name: &str) -> Result<(ModelId, Option<PathBuf>), Failure> {
    let Some(model) = exact(&shelf.settings.catalog, name) else {
        let half = ModelId::new(name).ok().filter(|id| shelf.store.home(id).is_dir());
        return half.map(|id| (id, None)).ok_or_else(|| unknown(shelf, name));
    };
    let home = shelf.store.home(&model.id);
    let theirs = match &model.source {
        ModelSource::File(path) => Some(path.clone()).filter(|path| !path.starts_with(&home)),
        ModelSource::Pypi { .. } | ModelSource::Https { .. } => None,
    };
    match (home.is_dir(), &theirs) {
        (true, _) => Ok((model.id.clone(), theirs)),
        (false, Some(_)) => Err(ModelError::Yours(model.id.clone()).into()),
        (false, None) => Err(ModelError::Absent(model.id.clone()).into()),
    }
}

/// Nothing is called so; what a `*` makes of the name is what somebody may have meant.
fn unknown(shelf: &Shelf<'_>, name: &str) -> Failure {
    let by_star = |model: &Arc<Model>| UnknownModel { name: name.to_owned(), nearest: vec![model.id.to_string()] };
    let unknown = shelf.settings.catalog.resolve(name).map_or_else(|unknown| unknown, by_star);
    ModelError::from(unknown).into()
}

/// Another model of the catalog that makes use of a file in the folder of this one.
fn needed_by(shelf: &Shelf<'_>, id: &ModelId) -> Option<ModelId> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let home = shelf.store.home(id);
    let real_home = real(&home);
    let is_in = |path: &Path| path.starts_with(&home) || real(path).starts_with(&real_home);
    let makes_use = |model: &&Arc<Model>| {
        let sides = model.projector.iter().chain(&model.adapters).map(|side| &side.file);
        let mut beside = sides.chain(model.draft.iter().map(|draft| &draft.file));
        is_in(&shelf.store.path_of(model)) || beside.any(|path| is_in(path))
    };
    let mut others = shelf.settings.catalog.models().filter(|model| model.id != *id);
    others.find(makes_use).map(|model| model.id.clone())
}

/// Has the pool do something that changes nothing here: what it decided before is seen by who asks after that. Failed
/// starts of a model that goes are of no interest any more.
async fn take_a_turn(client: &Client, id: &ModelId) -> Result<(), ClientError> {
    let path = format!("/api/motorpool/v1/models/{}/reset", escaped(id.as_str()));
    match client.post(&path, &json!({})).await {
        // No pool, or one that does not know it, uses it.
        Ok(_) | Err(ClientError::NoDaemon { .. } | ClientError::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes what an interrupted removal left.
fn clear(away: &Path) {
    for left in fs::read_dir(away).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if matches!(disk::try_lock(&left.join("lock")), Ok(Some(_))) {
            let _ = fs::remove_dir_all(left);
        }
    }
}

impl Done {
    fn for_people(&self) -> String {
        let stays = self.kept.as_ref().map_or_else(String::new, |file| format!("; {} stays", file.display()));
        format!("removed {}{stays}\n", self.removed.display())
    }
}
