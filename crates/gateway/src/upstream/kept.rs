//! Connections between two requests: [`Kept`].
//!
//! The last one back is the first one out, so that those that a burst needed grow old and go. Each stays for as long as its
//! engine says. One sweep at a time waits for the first that has to go; it ends when none is left.
use super::link::Link;
use motorpool_vocab::Spawn;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{runtime::Handle, sync::Notify, time::Instant};

/// Connections that wait for a request, by child.
#[derive(Debug, Default)]
pub(super) struct Kept {
    shelf: Mutex<Shelf>,
    came_back: Notify,
}

#[derive(Debug, Default)]
struct Shelf {
    /// In the order they came back, and until when they stay.
    by_child: HashMap<Spawn, Vec<(Instant, Link)>>,
    sweeping: bool,
    /// When the sweep looks next.
    swept_at: Option<Instant>,
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
        let Some(idle) = link.idle() else { return };
        if !link.is_free() {
            return;
        }
        let until = Instant::now() + idle;
        let mut links = self.kept.links();
        links.by_child.entry(self.spawn).or_default().push((until, link));
        if !std::mem::replace(&mut links.sweeping, true) {
            links.swept_at = Some(until);
            runtime.spawn(Arc::clone(&self.kept).sweep());
        } else if links.swept_at.is_none_or(|at| until < at) {
            // It goes before all others.
            links.swept_at = Some(until);
            self.kept.came_back.notify_one();
        }
    }
}

impl Kept {
    /// One that takes a request now.
    pub(super) fn take(&self, spawn: Spawn) -> Option<Link> {
        loop {
            // Looked at, or closed, with nobody waiting for the shelf.
            let (until, mut link) = self.links().by_child.get_mut(&spawn)?.pop()?;
            if Instant::now() < until && link.is_free() {
                return Some(link);
            }
        }
    }

    /// Those to `spawn` end.
    pub(super) fn leave(&self, spawn: Spawn) {
        // Closed with nobody waiting for the shelf.
        let left = self.links().by_child.remove(&spawn);
        drop(left);
    }

    async fn sweep(self: Arc<Self>) {
        while let Some(first) = self.drop_old() {
            tokio::select! {
                () = tokio::time::sleep_until(first) => {}
                () = self.came_back.notified() => {}
            }
        }
    }

    /// When the next of those that stay has to go. `None`: there is none, and no sweep any more.
    fn drop_old(&self) -> Option<Instant> {
        let mut links = self.links();
        let now = Instant::now();
        links.by_child.retain(|_, of_child| {
            of_child.retain(|(until, _)| *until > now);
            !of_child.is_empty()
        });
        let first = links.by_child.values().flatten().map(|(until, _)| *until).min();
        (links.sweeping, links.swept_at) = (first.is_some(), first);
        first
    }

    fn links(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
