//! [`Watching`]: the folders whose files count, watched when the operator wants it (`server.watch`).
//!
//! Folders and not files: editors put a new file in the place of the old one. Many edits within a moment are one change.
use crate::settings::Settings;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};

/// After the last edit nothing happens for so long before the files are read.
const QUIET: Duration = Duration::from_millis(200);
/// With edits without end they are read after so long.
const AT_MOST: Duration = Duration::from_secs(2);

/// What is watched, if anything.
#[derive(Default)]
pub(crate) struct Watching {
    watcher: Mutex<Option<RecommendedWatcher>>,
    news: Arc<Notify>,
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watching")
    }
}

impl Watching {
    /// From now on what `settings` say is watched.
    pub(crate) fn follow(&self, settings: &Settings) {
        let wanted = settings.config.server.watch.then(|| folders(&settings.beside));
        let watcher = wanted.and_then(|folders| self.watch(&folders));
        *self.watcher.lock().unwrap_or_else(PoisonError::into_inner) = watcher;
    }

    fn watch(&self, folders: &[PathBuf]) -> Option<RecommendedWatcher> {
        let news = Arc::clone(&self.news);
        let heard = move |event: notify::Result<Event>| {
            // Something that was missed may have been of ours.
            if event.map_or(true, |event| is_news(&event)) {
                news.notify_one();
            }
        };
        let mut watcher = match notify::recommended_watcher(heard) {
            Ok(watcher) => watcher,
            Err(error) => {
                tracing::warn!(%error, "files cannot be watched; `motorpool reload` reads them");
                return None;
            }
        };
        for folder in folders.iter().filter(|folder| folder.is_dir()) {
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                tracing::warn!(%error, folder = %folder.display(), "cannot be watched; `motorpool reload` reads it");
            }
        }
        Some(watcher)
    }

    /// When files have changed and nothing more has for a moment.
    pub(crate) async fn changed(&self) {
        self.news.notified().await;
        let until = Instant::now() + AT_MOST;
        let quiet = async { while timeout(QUIET, self.news.notified()).await.is_ok() {} };
        let _ = timeout_at(until, quiet).await;
    }
}

/// The configuration's own folder, and those beside it.
fn folders(beside: &Path) -> [PathBuf; 3] {
    [beside.to_owned(), beside.join("engines"), beside.join("catalog")]
}

/// Whether what happened may be one of our files, a folder for them, or a link that leads to them: where files are put
/// into a container, one link is changed for all. Whoever missed something may have missed that.
fn is_news(event: &Event) -> bool {
    let is_ours = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "toml")
            || path.ends_with("engines")
            || path.ends_with("catalog")
            || path.is_symlink()
    };
    event.need_rescan() || !matches!(event.kind, EventKind::Access(_)) && event.paths.iter().any(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{AccessKind, CreateKind, Flag, ModifyKind, RenameMode};

    #[test]
    fn reading_a_file_and_files_of_others_are_no_news() {
        let event = |kind, path: &str| Event::new(kind).add_path(path.into());
        let written = EventKind::Modify(ModifyKind::Any);
        for (kind, path, expected) in [
            (written, "/c/motorpool.toml", true),
            (written, "/c/catalog/a.toml", true),
            (EventKind::Create(CreateKind::Folder), "/c/catalog", true),
            (EventKind::Access(AccessKind::Any), "/c/motorpool.toml", false),
            (written, "/c/motorpool.toml.swp", false),
            (written, "/c/notes", false),
        ] {
            assert_eq!(is_news(&event(kind, path)), expected, "{kind:?} {path}");
        }
    }

    #[test]
    fn a_link_that_is_changed_for_all_files_and_events_that_were_lost_are_news() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let link = folder.path().join("..data");
        let swapped = Event::new(EventKind::Modify(ModifyKind::Name(RenameMode::To))).add_path(link.clone());
        assert!(!is_news(&swapped));
        std::os::unix::fs::symlink("..2026", link).expect("made");
        assert!(is_news(&swapped));
        assert!(is_news(&Event::new(EventKind::Other).set_flag(Flag::Rescan)));
    }

    #[tokio::test(start_paused = true)]
    async fn many_edits_within_a_moment_are_one_change_and_edits_without_end_are_read_all_the_same() {
        let watching = Arc::new(Watching::default());
        let begun = Instant::now();
        let news = Arc::clone(&watching.news);
        let edits = tokio::spawn(async move {
            loop {
                news.notify_one();
                tokio::time::sleep(QUIET / 2).await;
            }
        });
        watching.changed().await;
        assert_eq!(begun.elapsed(), AT_MOST);
        edits.abort();
        watching.news.notify_one();
        let begun = Instant::now();
        watching.changed().await;
        assert_eq!(begun.elapsed(), QUIET);
    }
}
