//! [`Common`]: what all guests of this process know together, whatever target they belong to: what is ours and in use,
//! what is trusted, what was told, and what an earlier run left.
//!
//! It is keyed by server, so that two targets on one server share it. A change of what is ours is written down soon, and
//! who must not go on before that waits for it ([`Common::written`]); nobody else does.
use crate::{
    change::Wanted,
    journal::Journal,
    target::{News, Setting, Target, Told},
};
use motorpool_residency::{
    Book, By, Decided, Kind, Listing, Mutation, Notice, Owned, Phase, Repeats, Seen, Stamp, Stays, Trusted, Used,
};
use motorpool_vocab::TargetKey;
use std::{
    collections::{BTreeSet, HashMap},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinHandle},
};

/// What they know together.
pub(crate) struct Common {
    pub(crate) setting: Setting,
    own: Mutex<Own>,
    journal: Arc<Journal>,
    /// Counts requests that ended.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
pub(crate) struct Own {
    pub(crate) book: Book,
    trusted: Trusted,
    /// What the trusted model is called by its server, and the context that it is loaded with there.
    wires: HashMap<TargetKey, (String, Option<u32>)>,
    repeats: Repeats,
    /// What an earlier run wrote down, of servers that were not listed yet.
    left: Vec<Owned>,
    /// Each LM Studio's target, and the instances that it was last seen with.
    seen: HashMap<TargetKey, (String, Vec<String>)>,
    /// Tasks that change a server, until they end.
    changes: Vec<(TargetKey, AbortHandle)>,
    /// Models whose time on Ollama is set as soon as the lock is free.
    kept: BTreeSet<(TargetKey, String)>,
}

/// A resident that is being unloaded: nobody of us relies on it until this is dropped.
#[derive(Debug)]
pub(crate) struct Going {
    common: Arc<Common>,
    key: TargetKey,
    model: String,
}

impl Drop for Going {
    fn drop(&mut self) {
        self.common.own().book.went(&self.key, &self.model);
    }
}

impl std::fmt::Debug for Common {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Common").field("setting", &self.setting).finish_non_exhaustive()
    }
}

/// UNIX time, for people who read the journal.
pub(crate) fn calendar_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |past| past.as_secs())
}

impl Common {
    /// With what the journal has.
    pub(crate) fn open(setting: Setting) -> io::Result<Self> {
        let (journal, left) = Journal::open(setting.journal.clone())?;
        let own = Mutex::new(Own { left, ..Own::default() });
        Ok(Self { setting, own, journal: Arc::new(journal), ended: watch::Sender::new(0) })
    }

    pub(crate) fn own(&self) -> MutexGuard<'_, Own> {
        // What a panic left is still a list of names.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a notice on, unless it was told lately.
    pub(crate) fn tell(&self, target: &Target, notice: Notice) {
        if self.own().repeats.is_news((self.setting.now)(), &target.id, &notice) {
            self.send(target, Told::Notice(Box::new(notice)));
        }
    }

    /// Sends a change on; each is news.
    pub(crate) fn tell_change(&self, target: &Target, change: Mutation) {
        self.send(target, Told::Mutation(change));
    }

    fn send(&self, target: &Target, what: Told) {
        (self.setting.sink)(News { target: target.id.clone(), server: target.kind, what });
    }

    /// What `model` is called there and loaded with, if what was decided about it still holds.
    pub(crate) fn trusted(&self, key: &TargetKey, model: &str) -> Option<(String, Option<u32>)> {
        let own = self.own();
        if own.book.is_going(key, model) {
            return None;
        }
        own.trusted.get((self.setting.now)(), key, model)?;
        Some(own.wires.get(key).cloned().unwrap_or_else(|| (model.to_owned(), None)))
    }

    /// What was decided about a model holds for a while.
    pub(crate) fn trust(&self, key: &TargetKey, wanted: &Wanted, decided: Decided) {
        let mut own = self.own();
        own.trusted.put((self.setting.now)(), key, (&wanted.model, decided));
        own.wires.insert(key.clone(), (wanted.wire.clone(), wanted.loaded_with));
    }

    /// Nothing is trusted about this server any more.
    pub(crate) fn distrust(&self, key: &TargetKey) {
        self.own().trusted.forget(key);
    }

    /// The present, for a listing that is asked for now.
    pub(crate) fn stamp(&self) -> Stamp {
        self.own().book.stamp()
    }

    /// What the server had when it was `asked`: some of what was ours is gone, some of what an earlier run left is taken
    /// over.
    pub(crate) fn observe(&self, (target, key): (&Target, &TargetKey), (asked, listing): (Stamp, &Listing)) {
        let mut own = self.own();
        own.book.observe((key, asked), listing);
        let (of_it, others): (Vec<Owned>, Vec<Owned>) =
            std::mem::take(&mut own.left).into_iter().partition(|owned| owned.key == *key);
        own.left = others;
        // Ollama's digest and LM Studio's instance are the same for whoever loads next: only a router tells loads apart.
        // What is theirs goes by its own time.
        if target.kind == Kind::Router {
            own.book.take_over(key, &of_it, listing);
        }
        if target.kind == Kind::LmStudio {
            let instances = listing.residents().map(|seen| seen.id.clone()).collect();
            own.seen.insert(key.clone(), (target.id.clone(), instances));
        }
        own.write(&self.journal);
    }

    /// The other hosts of LM Studio, and the instances that each was last seen with.
    pub(crate) fn elsewhere(&self, key: &TargetKey) -> Vec<(String, Vec<String>)> {
        self.own().seen.iter().filter(|(at, _)| *at != key).map(|(_, seen)| seen.clone()).collect()
    }

    /// Only what was seen on servers that `stay` says anything from now on.
    pub(crate) fn forget_seen(&self, stay: impl Fn(&TargetKey) -> bool) {
        self.own().seen.retain(|key, _| stay(key));
    }

    /// `seen` became ours.
    pub(crate) fn take(&self, key: &TargetKey, seen: &Seen, by: By) {
        let since = calendar_seconds();
        let (model, instance) = (seen.id.clone(), seen.instance.clone());
        let mut own = self.own();
        own.book.own(Owned { key: key.clone(), model, instance, since, by });
        own.write(&self.journal);
    }

    /// The resident `seen` goes now, unless a request of ours uses it or it is not ours.
    pub(crate) fn go(self: &Arc<Self>, key: &TargetKey, seen: &Seen) -> Result<Going, Stays> {
        self.own().book.go(key, seen)?;
        Ok(Going { common: Arc::clone(self), key: key.clone(), model: seen.id.clone() })
    }

    /// Whether what is called `model` is being unloaded by us.
    pub(crate) fn is_going(&self, key: &TargetKey, model: &str) -> bool {
        self.own().book.is_going(key, model)
    }

    /// We ask for a load of what is not there. Nothing is written down before its server shows which one it is.
    pub(crate) fn come(&self, (key, model): (&TargetKey, &str), by: By) {
        let (model, since) = (model.to_owned(), calendar_seconds());
        self.own().book.come(Owned { key: key.clone(), model, instance: None, since, by });
    }

    /// The load under way is `seen`: from now on a crash does not lose whose it is.
    pub(crate) fn coming_as(&self, (key, model): (&TargetKey, &str), seen: &Seen) {
        self.change(|book| book.coming_as(key, model, seen));
    }

    /// The load ended, well or not.
    pub(crate) fn came(&self, (key, model): (&TargetKey, &str)) {
        let mut own = self.own();
        if own.book.came(key, model).is_some_and(|owned| owned.instance.is_some()) {
            own.write(&self.journal);
        }
    }

    /// Has a task change the server `key`: to its end, whatever becomes of who waits for it, but for our own end.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        key: &TargetKey,
        change: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let task = tokio::spawn(change);
        let mut own = self.own();
        own.changes.retain(|(_, change)| !change.is_finished());
        own.changes.push((key.clone(), task.abort_handle()));
        task
    }

    /// Breaks off what changes the server `key`; its lock comes free with it.
    pub(crate) fn break_off(&self, key: &TargetKey) {
        let mut own = self.own();
        own.changes.iter().filter(|(at, _)| at == key).for_each(|(_, change)| change.abort());
        own.changes.retain(|(at, _)| at != key);
    }

    /// Whether it is on whoever asks to set the time of `model`: nobody does already, and nobody uses it, who would.
    pub(crate) fn begin_keeping(&self, key: &TargetKey, model: &str) -> bool {
        let mut own = self.own();
        let is_idle = own.book.used(key, &Seen::new(model, Phase::Loaded)) != Used::InUse;
        is_idle && own.kept.insert((key.clone(), model.to_owned()))
    }

    /// Who comes from now on sets it again.
    pub(crate) fn end_keeping(&self, key: &TargetKey, model: &str) {
        self.own().kept.remove(&(key.clone(), model.to_owned()));
    }

    /// Changes what is ours.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        let mut own = self.own();
        let changed = change(&mut own.book);
        own.write(&self.journal);
        changed
    }

    /// Servers that an earlier run left something on, and that were not listed since.
    pub(crate) fn left(&self) -> BTreeSet<TargetKey> {
        self.own().left.iter().map(|owned| owned.key.clone()).collect()
    }

    /// A release forgets ownership, mark and cache entry.
    pub(crate) fn forget(&self, key: &TargetKey, model: &str) {
        let mut own = self.own();
        own.book.forget(key, model);
        own.trusted.forget(key);
        own.write(&self.journal);
    }

    /// A request begins to use `model`, or to wait for it.
    pub(crate) fn begin(&self, key: &TargetKey, model: &str) {
        self.own().book.begin(key, model);
    }

    /// It ended.
    pub(crate) fn end(&self, key: &TargetKey, model: &str) {
        self.own().book.end((self.setting.now)(), key, model);
        self.ended.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Changes whenever a request ended.
    pub(crate) fn ended(&self) -> watch::Receiver<u64> {
        self.ended.subscribe()
    }

    /// Waits until what is ours now is written down, or cannot be.
    pub(crate) async fn written(&self) {
        self.journal.written().await;
    }

    /// Why what is ours could not be written down.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.journal.trouble()
    }
}

impl Own {
    /// A server that was not listed yet keeps what was written down of it. The file is as the last change has it, as each
    /// comes here with what is ours locked.
    fn write(&self, journal: &Arc<Journal>) {
        // A load that its server shows nothing of yet would prove nothing at the next start.
        let coming = self.book.coming().filter(|owned| owned.instance.is_some());
        journal.want(self.book.entries().chain(coming).chain(&self.left));
    }
}
