//! [`Watching`]: the folders whose files count, watched when the operator wants it (`server.watch`).
//!
//! Folders and not files: editors put a new file in the place of the old one. Many edits within a moment are one change.
mod points;

use crate::settings::Settings;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use points::Points;
use std::{
    fmt,
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
    watcher: Mutex<Option<(Points, RecommendedWatcher)>>,
    news: Arc<Notify>,
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watching")
    }
}

impl Watching {
    /// From now on what `settings` say is watched. What leads there may be another than before: it counts as changed.
    pub(crate) fn follow(&self, settings: &Settings) {
        let points = || Points::of(&settings.file_or_its_place(), &settings.beside);
        let watched = settings.config.server.watch.then(points).and_then(|points| self.watch(points));
        let mut before = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some((before, _)), Some((now, _))) = (&*before, &watched)
            && before != now
        {
            self.news.notify_one();
        }
        *before = watched;
    }

    fn watch(&self, points: Points) -> Option<(Points, RecommendedWatcher)> {
        let (news, of) = (Arc::clone(&self.news), points.clone());
        let heard = move |event: notify::Result<Event>| {
            // Something that was missed may have been of ours.
            if event.map_or(true, |event| is_news(&of, &event)) {
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
        for folder in points.to_watch().into_iter().filter(|folder| folder.is_dir()) {
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                tracing::warn!(%error, folder = %folder.display(), "cannot be watched; `motorpool reload` reads it");
            }
        }
        Some((points, watcher))
    }

    /// When files have changed and nothing more has for a moment.
    pub(crate) async fn changed(&self) {
        self.news.notified().await;
        let until = Instant::now() + AT_MOST;
        let quiet = async { while timeout(QUIET, self.news.notified()).await.is_ok() {} };
        let _ = timeout_at(until, quiet).await;
    }
}

/// Whether what happened counts. Whoever missed something may have missed that.
fn is_news(points: &Points, event: &Event) -> bool {
    let counts = !matches!(event.kind, EventKind::Access(_)) && event.paths.iter().any(|path| points.has(path));
    event.need_rescan() || counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirs::Dirs;
    use notify::event::{AccessKind, CreateKind, Flag, ModifyKind};
    use std::{
        fs,
        os::unix::fs::symlink,
        path::{Path, PathBuf},
    };

    /// A bound on a watcher that says nothing, not a measurement.
    const PATIENCE: Duration = Duration::from_mins(1);

    #[test]
    fn reading_a_file_and_files_of_others_are_no_news() {
        let points = Points::of(Path::new("/no-such/c/m.conf"), Path::new("/no-such/c"));
        let event = |kind, path: &str| Event::new(kind).add_path(path.into());
        let folder = EventKind::Create(CreateKind::Folder);
        for (kind, path, expected) in [
            (folder, "/no-such", true),
            (EventKind::Modify(ModifyKind::Any), "/no-such", true),
            (EventKind::Access(AccessKind::Any), "/no-such", false),
            (folder, "/others", false),
        ] {
            assert_eq!(is_news(&points, &event(kind, path)), expected, "{kind:?} {path}");
        }
        assert!(is_news(&points, &Event::new(EventKind::Other).set_flag(Flag::Rescan)));
    }

    /// What is watched for `--config <config>`.
    struct Watched {
        watching: Watching,
        config: PathBuf,
    }

    impl Watched {
        fn new(config: PathBuf) -> Self {
            let watched = Self { watching: Watching::default(), config };
            watched.follow();
            watched
        }

        /// As a reload does.
        fn follow(&self) {
            let dirs = Dirs { data: "/d".into(), state: "/s".into(), run: "/r".into(), config: "/c".into() };
            self.watching.follow(&Settings::load(&dirs, Some(&self.config)).expect("right"));
        }

        async fn is_told(&self, why: &str) {
            assert!(timeout(PATIENCE, self.watching.changed()).await.is_ok(), "nobody is told: {why}");
            let points = || self.watching.watcher.lock().expect("no panic").as_ref().map(|(points, _)| points.clone());
            let before = points();
            self.follow();
            // What leads there is another: that is told by itself, and is not what comes next.
            if points() != before {
                assert!(timeout(PATIENCE, self.watching.changed()).await.is_ok(), "it is read again: {why}");
            }
        }
    }

    const TEXT: &str = "[server]\nwatch = true\n";

    #[tokio::test]
    async fn a_configuration_is_watched_whatever_its_name() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let config = top.path().join("pool.conf");
        fs::write(&config, TEXT).expect("written");
        let watched = Watched::new(config.clone());
        fs::write(&config, format!("{TEXT}\n")).expect("ours");
        watched.is_told("written in place").await;
        fs::write(top.path().join("new"), TEXT).expect("written");
        fs::rename(top.path().join("new"), &config).expect("ours");
        watched.is_told("put in its place").await;
    }

    #[tokio::test]
    async fn a_link_that_is_led_elsewhere_and_a_change_at_its_end_are_heard() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| top.path().join(name);
        for folder in ["c/..1", "c/..2", "store/1", "store/2"] {
            fs::create_dir_all(path(folder)).expect("made");
            fs::write(path(folder).join("config"), TEXT).expect("written");
        }
        let lead = |to: &Path, link: &str| {
            symlink(to, path("link")).expect("made");
            fs::rename(path("link"), path(link)).expect("ours");
        };
        // As files are put into a container.
        lead(Path::new("..1"), "c/..data");
        lead(Path::new("..data/config"), "c/config");
        let watched = Watched::new(path("c/config"));
        lead(Path::new("..2"), "c/..data");
        watched.is_told("the link for all is another").await;
        fs::write(path("c/..2/config"), format!("{TEXT}\n")).expect("ours");
        watched.is_told("what the other leads to was written").await;
        // As a system is put together from a store: the link that changes lies in another folder.
        lead(&path("store/1"), "store/now");
        lead(&path("store/now/config"), "c/config");
        watched.is_told("it leads to a store").await;
        lead(&path("store/2"), "store/now");
        watched.is_told("a link far away is another").await;
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
