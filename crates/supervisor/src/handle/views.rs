//! What everybody sees of the pool without asking the loop.
use super::{PoolHandle, TURNS_WITHIN};
use crate::{
    denials::Denied,
    feed::{Feed, Since},
    tally::Tally,
};
use motorpool_vocab::{
    Endpoint, EngineKey, EntryView, Event, ExitRecord, ModelId, Now, PhaseView, Signs, Snapshot, Spawn,
};
use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::{broadcast, watch};

impl PoolHandle {
    /// The pool as it was after the last turn of the loop.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshots.borrow().clone()
    }

    /// What requests tell of a child that serves; `None` once nobody enters it any more.
    pub fn signs(&self, model: &ModelId, spawn: Spawn) -> Option<Signs> {
        let warm = self.shared.warm.load();
        let grant = warm.get(model)?.iter().find(|grant| grant.spawn == spawn)?;
        Some(grant.gate.vital().look())
    }

    /// The pool after each turn of the loop.
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.shared.snapshots.clone()
    }

    /// Every state change from now on. One who falls behind by 1,024 is told how many were missed.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    /// Every state change in order, from some number on.
    pub fn feed(&self, since: Since) -> Feed {
        Feed::open(&self.shared, since)
    }

    /// How a child ended: at once for one of the last 256, else within the time given.
    pub async fn exit_of(&self, spawn: Spawn, within: Duration) -> Option<ExitRecord> {
        // Before looking, so that an end between looking and waiting is heard.
        let mut events = self.events();
        let known = || self.shared.exits.lock().iter().rev().find(|exit| exit.spawn == spawn).cloned();
        let next = async {
            loop {
                if let Some(exit) = known() {
                    return Some(exit);
                }
                if let Err(broadcast::error::RecvError::Closed) = events.recv().await {
                    return None;
                }
            }
        };
        tokio::time::timeout(within, next).await.ok().flatten()
    }

    /// The last refused builds with their proof, the newest first.
    pub fn denials(&self) -> Vec<Denied> {
        self.shared.denials.lock().newest()
    }

    /// What happened since the start, counted.
    pub fn tally(&self) -> Tally {
        self.shared.tally.lock().clone()
    }

    /// The engines that requests may enter, and where they answer.
    pub fn endpoints(&self) -> Vec<(EngineKey, Spawn, Endpoint)> {
        let warm = self.shared.warm.load();
        let grants = warm.values().flatten();
        grants.map(|grant| (grant.key.clone(), grant.spawn, grant.endpoint.clone())).collect()
    }

    /// Whether the loop turned within the last 5 s, as it does every second with nothing to do.
    pub fn is_turning(&self) -> bool {
        let turned_at = Now::from_nanos(self.shared.turned_at.load(Ordering::Relaxed));
        !self.inbox.is_closed() && motorpool_devices::now().since(turned_at) <= TURNS_WITHIN
    }

    /// Whether everything that an earlier supervisor left has been dealt with.
    pub fn is_settled(&self) -> bool {
        self.shared.settled.load(Ordering::Acquire)
    }

    /// Whether new work is taken.
    pub fn is_open(&self) -> bool {
        !self.inbox.is_closed() && !self.snapshot().closing
    }

    /// The process ids of everything that lives.
    pub fn pids(&self) -> Vec<u32> {
        let living = |entry: &&EntryView| entry.phase != PhaseView::Idle;
        self.snapshot().entries.iter().filter(living).filter_map(|entry| entry.pid).collect()
    }

    /// Where the output of `key` is kept.
    pub fn log_path(&self, key: &EngineKey) -> PathBuf {
        self.shared.log_path(key)
    }
}
