//! Guests on a real router, and processes of ours as tests want them.
use motorpool_devices::now;
use motorpool_external::{Guest, Guests, Limits, News, Setting, Target, Told};
use motorpool_residency::{Claim, Kind, ProtectedSet, Role};
use motorpool_tests::e2e::Router;
use motorpool_vocab::Now;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A process of ours: its guests, what they told, and a clock that can be put forward.
pub(crate) struct Visit {
    pub(crate) guests: Guests,
    pub(crate) guest: Guest,
    news: Arc<Mutex<Vec<News>>>,
    folder: Option<tempfile::TempDir>,
    clock: usize,
}

/// By how much each test's own clock is put forward, in nanoseconds.
static FORWARD: [AtomicU64; 12] = [const { AtomicU64::new(0) }; 12];

/// The clock of the test that calls itself `N`; nobody puts 0 forward.
fn clock<const N: usize>() -> Now {
    now().after(Duration::from_nanos(FORWARD[N].load(Ordering::Relaxed)))
}

/// The router at the local `port` as a target that protects `configured`.
pub(crate) fn target_at(port: u16, configured: &[&str]) -> Target {
    let claim = |model: &&str| Claim { model: (*model).to_owned(), role: Role::Chat };
    let protected = ProtectedSet::Known(configured.iter().map(claim).collect());
    let url = format!("http://localhost:{port}/v1").parse().expect("an address");
    Target { protected, ..Target::new("house", Kind::Router, url) }
}

/// The same, waiting as long as `limits` say.
pub(crate) fn target_within(router: &Router, limits: Limits) -> Target {
    Target { limits, ..target_at(router.port(), &[]) }
}

/// A process of ours, with its own books and the lock that all share, on `router`.
pub(crate) fn visit(router: &Router, configured: &[&str]) -> Visit {
    visit_at(router, target_at(router.port(), configured))
}

/// The same, by whatever way `target` goes.
pub(crate) fn visit_at(router: &Router, target: Target) -> Visit {
    let news = Arc::default();
    Visit::opened(vec![target], setting(router.folder(), &news), news)
}

impl Visit {
    /// On the first of `targets`, with a clock of its own that can be put forward when `N` is not 0.
    pub(crate) fn at<const N: usize>(targets: Vec<Target>) -> Self {
        let (folder, news) = (tempfile::tempdir().expect("a temporary directory"), Arc::default());
        let setting = Setting { now: clock::<N>, ..setting(folder.path(), &news) };
        Self { clock: N, folder: Some(folder), ..Self::opened(targets, setting, news) }
    }

    /// The same, waiting for nobody's lock.
    pub(crate) fn impatient(targets: Vec<Target>) -> Self {
        let (folder, news) = (tempfile::tempdir().expect("a temporary directory"), Arc::default());
        let setting = Setting { lock_within: Duration::ZERO, ..setting(folder.path(), &news) };
        Self { folder: Some(folder), ..Self::opened(targets, setting, news) }
    }

    /// One whose locks and journal lie in `folder`.
    pub(crate) fn below(folder: &Path, targets: Vec<Target>) -> Self {
        Self::below_both(folder, folder, targets)
    }

    /// One whose locks lie in `run`, and its journal in `folder`.
    pub(crate) fn below_both(run: &Path, folder: &Path, targets: Vec<Target>) -> Self {
        let news = Arc::default();
        let setting = Setting { journal: Some(folder.join("residency.jsonl")), ..setting(run, &news) };
        Self::opened(targets, setting, news)
    }

    fn opened(targets: Vec<Target>, setting: Setting, news: Arc<Mutex<Vec<News>>>) -> Self {
        let guests = Guests::open(targets, setting).expect("a journal that can be read");
        let guest = guests.iter().next().expect("a target").clone();
        Self { guests, guest, news, folder: None, clock: 0 }
    }

    /// Puts its clock forward.
    pub(crate) fn later(&self, by: Duration) {
        assert_ne!(self.clock, 0, "this clock is everybody's");
        let nanos = u64::try_from(by.as_nanos()).expect("a short time");
        FORWARD[self.clock].fetch_add(nanos, Ordering::Relaxed);
    }

    /// Puts its clock forward past everything that is remembered for a while.
    pub(crate) fn tomorrow(&self) {
        self.later(Duration::from_hours(24));
    }

    /// Where its locks lie.
    pub(crate) fn run(&self) -> PathBuf {
        self.folder.as_ref().expect("a folder of its own").path().join("run")
    }

    /// What was told since the last time: kinds of notices, changes with their model.
    pub(crate) fn told(&self) -> Vec<String> {
        let text = |one: News| match one.what {
            Told::Notice(notice) => notice.kind.as_str().to_owned(),
            Told::Mutation(change) => format!("{:?} {}", change.kind, change.model),
        };
        self.news().into_iter().map(text).collect()
    }

    /// The same, whole.
    pub(crate) fn news(&self) -> Vec<News> {
        std::mem::take(&mut *self.news.lock().expect("no panic"))
    }

    /// What is ours.
    pub(crate) fn owned(&self) -> Vec<String> {
        self.guest.owned().into_iter().map(|owned| owned.model).collect()
    }
}

/// What guests need, with their locks below `folder`.
pub(crate) fn setting(folder: &Path, news: &Arc<Mutex<Vec<News>>>) -> Setting {
    let told = Arc::clone(news);
    Setting {
        run: folder.join("run"),
        journal: None,
        lock_within: Duration::from_mins(1),
        now,
        sink: Arc::new(move |one| told.lock().expect("no panic").push(one)),
    }
}
