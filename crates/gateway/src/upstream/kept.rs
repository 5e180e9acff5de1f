//! Connections between two requests: [`Kept`].
//!
//! The last one back is the first one out, so that those that a burst needed grow old and go. One sweep at a time waits for
//! the oldest; it ends when none is left.
use super::link::Link;
use motorpool_vocab::Spawn;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{runtime::Handle, time::Instant};

/// llama-server closes a connection after 5 s without a request; ours end before that.
const IDLE: Duration = Duration::from_secs(4);

/// Connections that wait for a request, by child.
#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    /// In the order they came back.
    by_child: HashMap<Spawn, Vec<(Instant, Link)>>,
    sweeping: bool,
}

/// Where a connection comes back to.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) kept: Arc<Kept>,
    pub(super) spawn: Spawn,
}

impl Home {
    /// Keeps the connection if it can take another request.
    pub(super) fn keep(self, mut link: Link) {
        // Without a runtime nobody asks any more, and nobody would sweep.
        let Ok(runtime) = Handle::try_current() else { return };
        if !link.is_free() {
            return;
        }
        let mut links = self.kept.links();
        links.by_child.entry(self.spawn).or_default().push((Instant::now(), link));
        if !std::mem::replace(&mut links.sweeping, true) {
            runtime.spawn(Arc::clone(&self.kept).sweep());
        }
    }
}

impl Kept {
    /// One that takes a request now.
    pub(super) fn take(&self, spawn: Spawn) -> Option<Link> {
        loop {
            // Looked at, or closed, with nobody waiting for the shelf.
            let (since, mut link) = self.links().by_child.get_mut(&spawn)?.pop()?;
            if since.elapsed() < IDLE && link.is_free() {
                return Some(link);
            }
        }
    }

    async fn sweep(self: Arc<Self>) {
        while let Some(oldest) = self.drop_old() {
            tokio::time::sleep_until(oldest + IDLE).await;
        }
    }

    /// The oldest of those that stay. `None`: there is none, and no sweep any more.
    fn drop_old(&self) -> Option<Instant> {
        let mut links = self.links();
        let now = Instant::now();
        links.by_child.retain(|_, of_child| {
            of_child.retain(|(since, _)| *since + IDLE > now);
            !of_child.is_empty()
        });
        let oldest = links.by_child.values().filter_map(|of_child| of_child.first()).map(|(since, _)| *since).min();
        links.sweeping = oldest.is_some();
        oldest
    }

    fn links(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
