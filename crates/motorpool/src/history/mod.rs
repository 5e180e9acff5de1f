//! [`History`]: one row for each request to a model, kept in the state directory from one daemon to the next.
//!
//! ```text
//! gateway ── bounded channel ──► one thread that may block: Book ──► requests.sqlite (WAL)
//!    │        full: lost, counted         full disk: lost, counted        │
//!    └──── what did requests take? ──► a connection of its own, reading ──┘
//! ```
//!
//! * No request waits for this: what the disk is too slow or too full for is lost, said once, and counted.
//! * No prompt, no reply and no key is in it: of a key its name, of a path no query.
//! * A file that is damaged is set aside and begun anew. Rows go by age and by room, the oldest first.
mod book;
mod file;
mod rows;

use crate::history::{book::Book, file::Terms};
use motorpool_catalog::UsageSettings;
use motorpool_gateway::{Outlet, Question, Remembering, UsageHistory, UsageRecord, UsageRow};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::{Semaphore, mpsc};

/// Records that wait for the disk.
const MOST_WAITING: usize = 4096;
/// So long what ends is gathered and written together: a row by itself costs more than all that the gateway does for its
/// request.
const GATHER: Duration = Duration::from_millis(50);
/// What is asked at a time: each question reads the file.
const QUESTIONS: usize = 2;
/// A disk that takes longer at our end is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Keeps what requests took.
#[derive(Debug)]
pub(crate) struct History {
    path: PathBuf,
    thread: JoinHandle<()>,
    n_lost: Arc<AtomicU64>,
}

impl History {
    /// The one of this state directory, which is ours, and where its records go. `None`: none is kept. Does not wait for
    /// the disk.
    pub(crate) fn open(state: &Path, settings: &UsageSettings) -> Option<(Outlet, Self)> {
        if settings.disk.is_zero() {
            return None;
        }
        let path = state.join("requests.sqlite");
        let (outlet, mut records) = mpsc::channel::<UsageRecord>(MOST_WAITING);
        let terms = Terms { keep: settings.keep, disk: settings.disk.get() };
        let n_lost = Arc::<AtomicU64>::default();
        let (of_book, counts) = (path.clone(), Arc::clone(&n_lost));
        let work = move || {
            let mut book = Book::open(of_book, terms, counts);
            while let Some(first) = records.blocking_recv() {
                thread::sleep(GATHER);
                let rest = std::iter::from_fn(|| records.try_recv().ok()).take(MOST_WAITING);
                book.write(&std::iter::once(first).chain(rest).collect::<Vec<_>>());
            }
        };
        match thread::Builder::new().name("history".into()).spawn(work) {
            Ok(thread) => Some((outlet, Self { path, thread, n_lost })),
            Err(error) => {
                tracing::warn!(%error, "what requests take is not kept: there is no thread to do it");
                None
            }
        }
    }

    /// Answers what requests took.
    pub(crate) fn answers(&self) -> UsageHistory {
        let (path, places) = (self.path.clone(), Arc::new(Semaphore::new(QUESTIONS)));
        let ask = move |question| -> Remembering {
            let (path, places) = (path.clone(), Arc::clone(&places));
            Box::pin(async move { in_turn(places, move || answer(&path, question)).await? })
        };
        UsageHistory::new(ask, Arc::clone(&self.n_lost))
    }

    /// Waits until what was told is written, at most for 2 s. Whoever tells must be gone.
    pub(crate) async fn close(self) {
        let ended = tokio::task::spawn_blocking(|| drop(self.thread.join()));
        if tokio::time::timeout(PATIENCE, ended).await.is_err() {
            tracing::warn!("the last records of requests may be lost: the disk is too slow");
        }
    }
}

/// Does `work` where it may block, with one of the places. Whoever does not wait for it any more leaves it its place: it cannot
/// be cut, and reads on.
async fn in_turn<T: Send + 'static>(
    places: Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let place = places.acquire_owned().await.map_err(|error| error.to_string())?;
    let work = move || {
        let _place = place;
        work()
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
}

fn answer(path: &Path, question: Question) -> Result<Vec<UsageRow>, String> {
    rows::read(path, question).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
