//! [`Keeping`]: has an engine write what its slots hold, and read it back. Decides nothing, and fails without harm: what
//! does not come of it costs a session its prompt.
use crate::{exchange::exchange, state_files::Folder};
use motorpool_catalog::{StateCall, StateCalls};
use motorpool_pool::Writing;
use motorpool_vocab::{Endpoint, EngineKey, Spawn};
use std::{sync::Arc, time::Duration};
use tokio::{task::spawn_blocking, time::timeout};

/// Longest time for a write. A stop does not wait so long.
const WRITE_WITHIN: Duration = Duration::from_secs(30);
/// Longest time for a request to wait for its context: what takes longer is not worth it.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// Of which engine, and where.
#[derive(Clone, Debug)]
pub(crate) struct Keeping {
    pub(crate) key: EngineKey,
    pub(crate) spawn: Spawn,
    pub(crate) endpoint: Endpoint,
    pub(crate) calls: StateCalls,
    pub(crate) folder: Arc<Folder>,
}

impl Keeping {
    /// The engine writes what a slot holds of a session.
    pub(crate) async fn write(self, (slot, session): (u32, Arc<str>), writing: Writing) {
        let by = (self.spawn, writing);
        let part = Folder::part(by, &session);
        let done = timeout(WRITE_WITHIN, self.ask(&self.calls.save, slot, &part)).await.unwrap_or(false);
        let folder = Arc::clone(&self.folder);
        let written = spawn_blocking(move || {
            let written = if done { folder.is_written(by, &session).ok() } else { None };
            if written.is_none() {
                folder.give_up(by, &session);
            }
            written
        });
        if let Some(bytes) = written.await.ok().flatten() {
            tracing::info!(key = %self.key, slot, %bytes, "the context of a session is written");
        } else {
            tracing::warn!(key = %self.key, slot, "the context of a session could not be written");
        }
    }

    /// The engine reads back into a slot what there is of a session.
    pub(crate) async fn read_back(self, slot: u32, session: Arc<str>) {
        let (folder, whose) = (Arc::clone(&self.folder), Arc::clone(&session));
        let Ok(Some(file)) = spawn_blocking(move || folder.find(&whose)).await else { return };
        if timeout(READ_WITHIN, self.ask(&self.calls.restore, slot, &file)).await.unwrap_or(false) {
            tracing::info!(key = %self.key, slot, "the context of a session is read back");
            return;
        }
        tracing::warn!(key = %self.key, slot, "the context of a session could not be read back and is forgotten");
        let folder = Arc::clone(&self.folder);
        let _ = spawn_blocking(move || folder.forget(&session)).await;
    }

    async fn ask(&self, call: &StateCall, slot: u32, file: &str) -> bool {
        let (path, body) = call.with(slot, file);
        let answered = exchange(&self.endpoint, &path, Some(body)).await;
        answered.is_ok_and(|(status, _)| (200..300).contains(&status))
    }
}
