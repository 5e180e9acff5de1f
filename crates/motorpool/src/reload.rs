//! [`Reloader`]: the files read again while we serve, and everybody told what they say now.
//!
//! ```text
//! SIGHUP ─┐                    ┌─ wrong: nothing changes, and whoever asked is told where
//! POST …  ├─► read, checked ───┤
//! watched ┘   whole, off the   └─ right: the pool, then requests, then what we are ourselves; a report, item by item
//!             loop
//! ```
//!
//! One reload at a time; each is held against what counts then, so however they come, the last one read is what counts. The
//! pool goes first, its bounds before its catalog: whoever resolves a name by the new catalog finds the pool knowing it.
//! Servers that somebody else runs come before requests, and what is left of those that went after them. A reload that has
//! begun is done to its end, also when whoever asked for it is gone. Once we are closed nothing is reloaded, and systemd is
//! told nothing of it.
use crate::{
    dirs::Dirs,
    exit::Failure,
    external,
    log::Log,
    settings::{Settings, SettingsError},
    systemd,
    terms::pool_config,
    watching::Watching,
};
use motorpool::servers::Servers;
use motorpool_catalog::{Config, ConfigError, Difference, Fault, Kind, Outcome, Report, Row, Said};
use motorpool_gateway::{Handover, NotReloaded, Reloads};
use motorpool_pool::{Host, Reload, Reloaded};
use motorpool_supervisor::{LocalServers, PoolHandle, Surveys};
use motorpool_vocab::{EngineKey, PoolView};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, watch},
    task::JoinError,
};

/// Everybody who is told what the files say.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) handle: PoolHandle,
    pub(crate) requests: Handover,
    pub(crate) log: Log,
    /// What surveys of this machine go by, and who has one made.
    pub(crate) says: watch::Sender<Settings>,
    pub(crate) surveys: Surveys,
    /// Model servers that somebody else runs, and those of them on this machine, whose memory goes by their names.
    pub(crate) externals: Arc<Servers>,
    pub(crate) local: LocalServers,
}

/// A driver that hangs is not waited for by whoever has the files read again.
const SURVEYED_WITHIN: Duration = Duration::from_secs(10);

/// When every engine has ended: the last bytes, records, servers of others.
const LAST_WITHIN: Duration = Duration::from_secs(10);

/// Has the files read again.
#[derive(Debug)]
pub(crate) struct Reloader {
    dirs: Dirs,
    handle: PoolHandle,
    /// `None` once we are closed.
    requests: Mutex<Option<Handover>>,
    /// What counts now.
    settings: Mutex<Settings>,
    log: Log,
    says: watch::Sender<Settings>,
    surveys: Surveys,
    externals: Arc<Servers>,
    local: LocalServers,
    ending: watch::Sender<Ending>,
    watching: Watching,
}

/// How long we may take to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Running requests may go on for so long.
    pub(crate) grace: Duration,
    /// The end of everything takes so long at most.
    pub(crate) whole: Duration,
}

impl Ending {
    fn of(config: &Config) -> Self {
        let (grace, stop) = (config.shutdown.grace, &config.stop);
        // What engines hold of sessions is written first, for as long as a polite stop may take.
        Self { grace, whole: grace + 2 * stop.polite + stop.kill + LAST_WITHIN }
    }
}

/// What a reload did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) report: Report,
    pub(crate) draining: Vec<EngineKey>,
}

/// Why nothing was reloaded.
#[derive(Debug)]
pub(crate) enum NotDone {
    /// What the files say cannot be taken over.
    Wrong {
        failure: Failure,
        /// Where a file is wrong.
        place: Option<ConfigError>,
    },
    /// We end.
    Stopping,
    /// It panicked.
    Broken(JoinError),
}

impl From<SettingsError> for NotDone {
    fn from(error: SettingsError) -> Self {
        let place = if let SettingsError::Wrong(wrong) = &error { Some(wrong.clone()) } else { None };
        let mut failure = Failure::from(error);
        // Lines of files hold secrets, and are neither for the log nor for whoever asks.
        if let Some(wrong) = &place {
            failure.what = wrong.brief();
        }
        Self::Wrong { failure, place }
    }
}

impl From<Failure> for NotDone {
    fn from(failure: Failure) -> Self {
        Self::Wrong { failure, place: None }
    }
}

impl From<JoinError> for NotDone {
    fn from(error: JoinError) -> Self {
        Self::Broken(error)
    }
}

impl Reloader {
    /// Of a pool and a gateway that go by `settings` now.
    pub(crate) fn new(dirs: &Dirs, settings: Settings, told: Told) -> Arc<Self> {
        let Told { handle, requests, log, says, surveys, externals, local } = told;
        let watching = Watching::default();
        watching.follow(&settings);
        let ending = watch::Sender::new(Ending::of(&settings.config));
        let requests = Mutex::new(Some(requests));
        let (dirs, settings) = (dirs.clone(), Mutex::new(settings));
        Arc::new(Self { dirs, handle, requests, settings, log, says, surveys, externals, local, ending, watching })
    }

    /// How long we may take to end, as the files say now.
    pub(crate) fn ending(&self) -> Ending {
        *self.ending.borrow()
    }

    /// For requests that ask for it. They do not keep us.
    pub(crate) fn for_requests(self: &Arc<Self>) -> Reloads {
        let us = Arc::downgrade(self);
        Reloads::new(move || {
            // In a task of its own: whoever asked may leave when the pool goes by the new files and requests do not yet.
            let begun = us.upgrade().map(|us| tokio::spawn(async move { us.reload().await }));
            let told = |done: Done| (done.report, done.draining.iter().map(ToString::to_string).collect());
            Box::pin(async move {
                let Some(begun) = begun else { return Err(NotReloaded::Stopping) };
                let done = begun.await.unwrap_or_else(|error| Err(error.into()));
                done.map(told).map_err(NotDone::told)
            })
        })
    }

    /// From now on nothing is reloaded, nothing is told of it, and the way to requests is let go: the records of requests
    /// end when nobody can reach them.
    pub(crate) async fn close(&self) {
        drop(self.requests.lock().await.take());
    }

    /// Whenever watched files changed, until this is dropped with everything else.
    pub(crate) async fn reload_what_changes(self: Arc<Self>) {
        loop {
            self.watching.changed().await;
            tracing::info!("files changed: they are read again");
            // What is wrong is in the log already.
            let _ = self.reload().await;
        }
    }

    /// Reads the files and has everybody go on with what they say. What came of it is in the log in any case.
    pub(crate) async fn reload(&self) -> Result<Done, NotDone> {
        // Not behind one that may never end: files can lie where nobody answers.
        self.unless_closing().await?;
        let mut settings = self.settings.lock().await;
        // Whoever is not ready yet says so later, and once.
        let is_ready = self.handle.is_settled();
        if is_ready {
            self.unless_closed(systemd::reloading()).await;
        }
        let done = self.replace(&mut settings).await;
        // Folders may have come that were not there, also with a file that is wrong.
        self.watching.follow(&settings);
        match &done {
            Ok(done) => done.log(),
            Err(why) => why.log(),
        }
        if is_ready {
            self.unless_closed(systemd::ready_again()).await;
        }
        done
    }

    async fn unless_closing(&self) -> Result<(), NotDone> {
        if self.requests.lock().await.is_some() { Ok(()) } else { Err(NotDone::Stopping) }
    }

    /// Whoever closes us waits for what is being told, and says only then that we stop.
    async fn unless_closed(&self, telling: impl Future<Output = ()>) {
        let requests = self.requests.lock().await;
        if requests.is_some() {
            telling.await;
        }
    }

    async fn replace(&self, now: &mut Settings) -> Result<Done, NotDone> {
        self.unless_closing().await?;
        let (dirs, before, externals) = (self.dirs.clone(), now.clone(), Arc::clone(&self.externals));
        let read = move || {
            let new = before.read_again(&dirs)?;
            let renewed = external::renewed(&externals, &new.config)?;
            Ok::<_, NotDone>((new, renewed))
        };
        let (new, renewed) = tokio::task::spawn_blocking(read).await??;
        let terms = Box::new(pool_config(&new.config, Host::default())?);
        let difference = Difference::between(now.said(), new.said());
        let mut draining = Vec::new();
        if !difference.is_empty() {
            self.says.send_replace(new.clone());
            if has_other_bounds(now, &new) {
                self.resurvey().await;
            }
            let reload = Reload { catalog: Arc::clone(&new.catalog), terms };
            let Some(Reloaded { draining: going }) = self.handle.reload(reload).await else {
                return Err(NotDone::Stopping);
            };
            self.log.say_from(new.config.log.level);
            self.ending.send_replace(Ending::of(&new.config));
            draining = going;
        }
        // Keys of servers lie in files and variables, too: they are others though nothing else is.
        self.local.are(external::local(&new.config));
        self.externals.take_over(renewed).await;
        let requests = self.requests.lock().await;
        let outside = self.externals.outside();
        requests.as_ref().ok_or(NotDone::Stopping)?.reload(Arc::clone(&new.catalog), &new.config, outside);
        drop(requests);
        self.externals.let_go();
        let mut report = difference.report(|model| draining.iter().any(|key| key.model().as_str() == model));
        if has_other_bounds(now, &new) {
            tell_excess(&self.handle.snapshot().pool, &mut report);
        }
        *now = new;
        Ok(Done { report, draining })
    }

    /// Has the pool go by what is said of memory now. It takes it up in any case; whoever asked waits for it for a while.
    async fn resurvey(&self) {
        if tokio::time::timeout(SURVEYED_WITHIN, self.surveys.again()).await.is_err() {
            tracing::warn!("what the files say of memory counts once drivers and engines have told of their devices");
        }
    }
}

/// What runs stays, whatever is left for it. Told where it was caused, the likeliest cause first.
fn tell_excess(pool: &PoolView, report: &mut Report) {
    const OF_ALL: [&str; 5] =
        ["capacity.budget", "capacity.reserve", "capacity.shape", "capacity.allow_ram_spillover", "device"];
    const OF_MEMORY: [&str; 5] =
        ["capacity.reserve", "capacity.budget", "capacity.shape", "device", "capacity.allow_ram_spillover"];
    const OF_CARDS: [&str; 5] =
        ["device", "capacity.shape", "capacity.reserve", "capacity.budget", "capacity.allow_ram_spillover"];
    // Without a bound on all nothing is measured against the shares.
    let Some(budget) = pool.budget else { return };
    let mut tell = |causes: [&str; 5], what: String| {
        let is_it = |cause: &&str, row: &Row| row.kind == Kind::Key && row.name == **cause;
        let at = causes.iter().find_map(|cause| report.rows.iter().position(|row| is_it(cause, row)));
        if let Some(row) = at.and_then(|at| report.rows.get_mut(at)) {
            row.what = format!("{}; {what}", row.what);
        }
    };
    let committed = pool.committed;
    if committed > budget {
        tell(OF_ALL, format!("{committed} is reserved of {budget}: nothing is started until it fits"));
    }
    // Where system memory is all there is, its share is the budget.
    let is_all = pool.memory.len() < 2 && committed > budget;
    for part in pool.memory.iter().filter(|part| part.committed > part.share) {
        let (committed, share) = (part.committed, part.share);
        match &part.device {
            Some(card) => tell(
                OF_CARDS,
                format!("{committed} is reserved of {share} of card {card}: nothing is started there until it fits"),
            ),
            None if is_all => {}
            None => tell(
                OF_MEMORY,
                format!("{committed} is reserved of {share} of system memory: nothing is started there until it fits"),
            ),
        }
    }
}

/// Whether the files say something else of what is there for engines.
fn has_other_bounds(before: &Settings, now: &Settings) -> bool {
    before.config.capacity != now.config.capacity || before.config.devices != now.config.devices
}

impl Settings {
    fn said(&self) -> Said<'_> {
        Said { config: &self.config, catalog: &self.catalog }
    }
}

impl Done {
    fn log(&self) {
        let Self { report, draining } = self;
        if report.is_empty() {
            return tracing::info!("reloaded: everything says what it said");
        }
        for row in report.rows.iter().filter(|row| row.outcome != Outcome::Unchanged) {
            tracing::info!("reloaded: {} {}: {} ({})", row.kind.as_str(), row.name, row.outcome.as_str(), row.what);
        }
        for key in draining {
            tracing::info!(%key, "takes nobody new, and ends after those that it serves");
        }
    }
}

impl NotDone {
    fn log(&self) {
        match self {
            Self::Wrong { failure: Failure { what, cure, .. }, .. } => {
                tracing::error!("nothing was reloaded: {what}; {cure}");
            }
            Self::Stopping => tracing::info!("nothing was reloaded: the server is being stopped"),
            Self::Broken(error) => tracing::error!("nothing was reloaded: it broke off: {error}; try again"),
        }
    }

    fn told(self) -> NotReloaded {
        let (failure, place) = match self {
            Self::Wrong { failure, place } => (failure, place),
            Self::Stopping => return NotReloaded::Stopping,
            Self::Broken(_) => return NotReloaded::Broken,
        };
        let nearest = place.as_ref().and_then(|wrong| match wrong.fault() {
            Fault::UnknownKey { nearest, .. }
            | Fault::UnknownValue { nearest, .. }
            | Fault::UnknownEngine { nearest, .. } => nearest.clone(),
            Fault::Syntax(_)
            | Fault::MissingKey(_)
            | Fault::Value(_)
            | Fault::UnsetVariable(_)
            | Fault::BadVariable(_)
            | Fault::Taken { .. } => None,
        });
        NotReloaded::Wrong {
            message: failure.what,
            file: place.as_ref().map(|wrong| wrong.file().to_owned()),
            line: place.as_ref().and_then(ConfigError::line),
            column: place.as_ref().and_then(ConfigError::column),
            nearest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_vocab::{Bytes, DeviceId, MemoryView};

    fn memory(device: Option<&str>, (committed, share): (u64, u64)) -> MemoryView {
        let (committed, share) = (Bytes::gib(committed), Bytes::gib(share));
        let device = device.map(|id| DeviceId(id.into()));
        MemoryView { device, total: share, share, share_now: share, committed, foreign: None }
    }

    fn told(budget: Option<u64>, memory: Vec<MemoryView>, changed: &[&str]) -> Vec<(String, String)> {
        let committed = Bytes::sum(memory.iter().map(|part| part.committed));
        let budget = budget.map(Bytes::gib);
        let pool = PoolView {
            budget,
            automatic: Bytes::ZERO,
            ceiling: None,
            accelerated: Bytes::ZERO,
            memory,
            committed,
            system_ram: Bytes::ZERO,
        };
        let row =
            |name: &&str| Row { kind: Kind::Key, name: (*name).into(), outcome: Outcome::Live, what: "changed".into() };
        let mut report = Report { rows: changed.iter().map(row).collect() };
        tell_excess(&pool, &mut report);
        report.rows.into_iter().map(|row| (row.name, row.what)).collect()
    }

    #[test]
    fn what_is_over_a_card_system_memory_or_the_budget_is_told_once_on_the_row_that_caused_it() {
        let expected = |rows: &[(&str, &str)]| -> Vec<(String, String)> {
            rows.iter().map(|(name, what)| ((*name).to_owned(), (*what).to_owned())).collect()
        };
        let two = |card, ram| vec![memory(Some("GPU-a"), card), memory(None, ram)];
        let card = "changed; 20.0 GiB is reserved of 12.0 GiB of card GPU-a: nothing is started there until it fits";
        let of_card = told(Some(90), two((20, 12), (1, 64)), &["capacity.reserve", "device"]);
        assert_eq!(of_card, expected(&[("capacity.reserve", "changed"), ("device", card)]));
        let ram = "changed; 60.0 GiB is reserved of 32.0 GiB of system memory: nothing is started there until it fits";
        let of_ram = told(Some(90), two((1, 12), (60, 32)), &["capacity.reserve", "device"]);
        assert_eq!(of_ram, expected(&[("capacity.reserve", ram), ("device", "changed")]));
        let all = "changed; 5.0 GiB is reserved of 4.0 GiB: nothing is started until it fits";
        let of_all = told(Some(4), vec![memory(None, (5, 4))], &["capacity.budget"]);
        assert_eq!(of_all, expected(&[("capacity.budget", all)]), "one memory, told once");
        let alone = told(Some(4), vec![memory(None, (5, 4))], &["device"]);
        assert_eq!(alone, expected(&[("device", all)]), "whatever was changed");
        let both = told(Some(20), two((20, 12), (1, 64)), &["capacity.budget"]);
        assert!(
            both[0].1.contains("21.0 GiB is reserved of 20.0 GiB:") && both[0].1.contains("card GPU-a"),
            "{both:?}"
        );
        for none in
            [told(None, two((20, 12), (1, 64)), &["device"]), told(Some(99), two((2, 12), (1, 64)), &["device"])]
        {
            assert_eq!(none, expected(&[("device", "changed")]));
        }
    }
}
