//! `motorpool model rm ID`: removes what was pulled, and forgets what was entered.
//!
//! Refused while the running pool uses the model. A start may come between the question and the removal, so the folder is
//! moved away between two questions: whoever looks for the file from then on finds none, and whoever found it before is
//! seen by the second question, since the pool took a turn in between. Then it is moved back, or removed.
//!
//! ```text
//! lock ─► in use? ─► move to <data>/removed/ ─► the pool takes a turn ─► in use? ─┬─ no ─► remove
//!          └─ yes: refused                                                        └─ yes ─► move back, refused
//! ```
//!
//! Only our own folder is ever removed. A file that lies elsewhere (the user's, another program's) stays.
use super::Shelf;
use crate::{
    client::{Client, ClientError, escaped},
    commands::ps,
    disk,
    exit::Failure,
    model::ModelError,
};
use motorpool_catalog::ModelSource;
use motorpool_vocab::ModelId;
use serde::Serialize;
use serde_json::json;
use std::{
    fs, io,
    path::{Path, PathBuf},
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
    let client = Client::new(&shelf.dirs.live_control_socket());
    let is_used = async || ps::in_use(&client, |key| key.model() == &id).await.map(|key| key.is_some());
    if is_used().await? {
        return Err(ModelError::InUse(id).into());
    }
    let away = shelf.dirs.make_data("removed").map_err(ModelError::from)?;
    clear(&away);
    let aside = away.join(home.file_name().unwrap_or_default());
    at(&aside, fs::rename(&home, &aside))?;
    let used = match take_a_turn(&client, &id).await {
        Ok(()) => is_used().await,
        Err(error) => Err(error.into()),
    };
    match used {
        Ok(false) => at(&aside, fs::remove_dir_all(&aside))?,
        unsure => {
            at(&home, fs::rename(&aside, &home))?;
            return Err(unsure.map_or_else(|failure| failure, |_| ModelError::InUse(id.clone()).into()));
        }
    }
    let _ = fs::remove_dir(&away);
    let done = Done { id: id.to_string(), removed: home, kept };
    shelf.out.data(&done, || done.for_people())
}

/// The model's id, and its file where that is not ours. One that was never pulled to its end has no entry yet.
fn named(shelf: &Shelf<'_>, name: &str) -> Result<(ModelId, Option<PathBuf>), Failure> {
    let model = match shelf.settings.catalog.resolve(name) {
        Ok(model) => model,
        Err(unknown) => {
            let half = ModelId::new(name).ok().filter(|id| shelf.store.home(id).is_dir());
            return half.map(|id| (id, None)).ok_or_else(|| ModelError::from(unknown).into());
        }
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
