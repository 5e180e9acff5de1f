//! [`Carry`]: how a plan is carried out, one step at a time, and undone when it fails.
//!
//! ```text
//!   (release each straggler, as far as it goes) ─►
//!   Evict ─► … ─► Load ─► (PutBack ─► Confirm) ─► Done
//!     │failed       │ rejected for want of room: Evict the next of the fallback, Load again
//!     └─────────────┴ failed ─► Restore each that went, in eviction order ─► Done with the first error
//! ```
//!
//! Sans-I/O: whoever performs a [`Step`] reports what happened, and gets the next. From the first step on it goes to its
//! end, whatever becomes of who asked. **R4**.
use crate::{
    book::Stays,
    listed::listed,
    notice::{Detail, Notice, NoticeKind},
    protection::Protection,
    resident::{Listing, Resident},
};
use motorpool_vocab::Bytes;
use std::collections::VecDeque;

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Unload this one.
    Evict(Resident),
    /// Load the wanted model, and wait for it.
    Load,
    /// Load this one again: it went for a load that failed, or the server displaced it though it is pinned.
    Restore(Resident),
    /// List the server: the wanted model must have outlived what was put back.
    Confirm,
    /// Nothing: this is how it ended.
    Done(Ending),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The wanted model is resident.
    Loaded,
    /// It is not, for this reason, whatever was put back.
    Failed(Failure),
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server says that it has no room.
    #[error("the server has no room: {0}")]
    Capacity(String),
    /// Since the decision a request of ours began to use this one, which was to go: once it ends there is room.
    #[error("{0} was to go for it, and is in use by now")]
    InUse(String),
    /// Since the decision this one, which was to go, became somebody else's: what holds now is to be decided anew.
    #[error("{0} was to go for it, and is somebody else's by now")]
    Changed(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// What the server holds after a load that succeeded or failed; `None` when it could not be listed.
pub type After = Option<Listing>;

/// What happened when a step was performed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It was done; what a [`Step::Load`] or [`Step::Confirm`] left is listed.
    Well(After),
    /// A [`Step::Load`] went well, and nobody knows that it was a load: the model was there before, or is not listed.
    Unseen(After),
    /// It was not.
    Badly(Failure, After),
    /// A [`Step::Evict`] was left undone: by this listing its victim is gone, or stays for this reason.
    Spared(Stays, Listing),
}

/// A change on somebody's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// Which.
    pub kind: MutationKind,
    /// Of which model.
    pub model: String,
}

listed! {
    /// What kind of change.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    MutationKind {
        /// A model was loaded for a request.
        Load = "load",
        /// One of ours was unloaded for another.
        Evict = "evict",
        /// One that had gone was loaded again.
        Restore = "restore",
    }
}

/// Whether a load depends on it that one goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// There is no room otherwise.
    Must,
    /// It only makes the load easier: what stays is passed over.
    May,
}

#[derive(Clone, Debug)]
enum Now {
    Evicting(Resident, Need),
    Loading,
    /// Pinned ones that the server displaced by our load.
    PuttingBack(VecDeque<Resident>),
    Confirming,
    Restoring {
        left: VecDeque<Resident>,
        why: Failure,
    },
    Done(Ending),
}

/// One plan under way.
#[derive(Clone, Debug)]
pub struct Carry {
    model: String,
    ahead: VecDeque<(Resident, Need)>,
    fallback: VecDeque<Resident>,
    pinned: Vec<Resident>,
    now: Now,
    evicted: Vec<Resident>,
    restored: Vec<String>,
    unrestored: Vec<String>,
    first: Option<Failure>,
    notices: Vec<Notice>,
    mutations: Vec<Mutation>,
}

impl Carry {
    /// Loads `model` once all of `evict` are gone, beside the `residents` that were there.
    pub fn load(model: &str, evict: Vec<Resident>, residents: &[Resident]) -> (Self, Step) {
        let ahead = evict.into_iter().map(|one| (one, Need::Must)).collect();
        Self::begin(model, (ahead, Vec::new()), residents)
    }

    /// Loads `model` once those of `stragglers` are gone that go; each time that the server has no room, one of `fallback`
    /// goes.
    pub fn delegate(model: &str, stragglers: Vec<Resident>, fallback: Vec<Resident>) -> (Self, Step) {
        let ahead = stragglers.into_iter().map(|one| (one, Need::May)).collect();
        Self::begin(model, (ahead, fallback), &[])
    }

    fn begin(
        model: &str,
        (ahead, fallback): (VecDeque<(Resident, Need)>, Vec<Resident>),
        residents: &[Resident],
    ) -> (Self, Step) {
        let pinned = |one: &&Resident| one.protection == Protection::Tag && !one.seen.is_called(model);
        let mut carry = Self {
            model: model.to_owned(),
            ahead,
            fallback: fallback.into(),
            pinned: residents.iter().filter(pinned).cloned().collect(),
            now: Now::Loading,
            evicted: Vec::new(),
            restored: Vec::new(),
            unrestored: Vec::new(),
            first: None,
            notices: Vec::new(),
            mutations: Vec::new(),
        };
        let step = carry.evict_or_load();
        (carry, step)
    }

    /// What happened when the last step was performed; answers with the next. After [`Step::Done`] it stays done.
    #[must_use]
    pub fn on_happened(&mut self, happened: Happened) -> Step {
        let step = self.next(happened);
        if let Step::Done(ending) = &step {
            self.now = Now::Done(ending.clone());
        }
        step
    }

    fn next(&mut self, happened: Happened) -> Step {
        match (std::mem::replace(&mut self.now, Now::Loading), happened) {
            (Now::Done(ending), _) => Step::Done(ending),
            (Now::Evicting(victim, _), Happened::Well(_) | Happened::Unseen(_)) => {
                self.went(victim);
                self.evict_or_load()
            }
            (Now::Evicting(victim, need), Happened::Spared(why, listing)) => {
                self.on_spared((&victim, need), why, &listing)
            }
            (Now::Evicting(victim, need), Happened::Badly(why, after)) => {
                self.on_unmoved((victim, need), why, after.as_ref())
            }
            (Now::Loading, Happened::Well(after)) => {
                self.mutated(MutationKind::Load, &self.model.clone());
                self.on_loaded(after.as_ref())
            }
            (Now::Loading, Happened::Unseen(after)) => self.on_loaded(after.as_ref()),
            (Now::Loading, Happened::Badly(Failure::Capacity(why), after)) => self.on_full(why, after.as_ref()),
            (Now::Loading | Now::Confirming, Happened::Badly(why, after)) => self.undo(why, after.as_ref()),
            (Now::PuttingBack(left), happened) => self.on_put_back(left, &happened),
            (Now::Confirming, Happened::Well(after) | Happened::Unseen(after)) => self.on_confirmed(after),
            (Now::Loading, Happened::Spared(_, listing)) => self.on_loaded(Some(&listing)),
            (Now::Confirming, Happened::Spared(_, listing)) => self.on_confirmed(Some(listing)),
            (Now::Restoring { left, why }, happened) => self.on_restored(left, why, &happened),
        }
    }

    /// What is to be told, in order; told once.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// What was changed since the last call.
    pub fn take_mutations(&mut self) -> Vec<Mutation> {
        std::mem::take(&mut self.mutations)
    }

    fn evict_or_load(&mut self) -> Step {
        if let Some((victim, need)) = self.ahead.pop_front() {
            self.now = Now::Evicting(victim.clone(), need);
            return Step::Evict(victim);
        }
        self.now = Now::Loading;
        Step::Load
    }

    fn on_full(&mut self, why: String, after: Option<&Listing>) -> Step {
        let why = self.first.get_or_insert(Failure::Capacity(why)).clone();
        let Some(next) = self.fallback.pop_front() else { return self.undo(why, after) };
        self.notices.push(Notice {
            kind: NoticeKind::AboutToEvict,
            model: next.seen.id.clone(),
            message: format!("{} is about to be evicted: the server has no room", next.seen.id),
            detail: Detail { requested_model: Some(self.model.clone()), ..Detail::default() },
        });
        self.ahead.push_back((next, Need::Must));
        self.evict_or_load()
    }

    fn went(&mut self, victim: Resident) {
        self.mutated(MutationKind::Evict, &victim.seen.id);
        self.evicted.push(victim);
    }

    /// One that is gone made room. For one that stays the next goes that may, and when none is left nothing is loaded:
    /// the server would choose for itself what goes.
    fn on_spared(&mut self, (victim, need): (&Resident, Need), why: Stays, listing: &Listing) -> Step {
        if need == Need::May || !listing.holds(&victim.seen.id) {
            return self.evict_or_load();
        }
        let name = victim.seen.id.clone();
        match (&self.first, why) {
            (Some(Failure::Capacity(why)), _) => self.on_full(why.clone(), Some(listing)),
            (_, Stays::InUse) => self.undo(Failure::InUse(name), Some(listing)),
            (_, Stays::NotOurs) => self.undo(Failure::Changed(name), Some(listing)),
        }
    }

    /// A call that fails may have had its effect all the same: one that went is put back like the others.
    fn on_unmoved(&mut self, (victim, need): (Resident, Need), why: Failure, after: Option<&Listing>) -> Step {
        if after.is_some_and(|listing| !listing.holds(&victim.seen.id)) {
            self.went(victim);
        }
        match need {
            Need::Must => self.undo(why, after),
            Need::May => self.evict_or_load(),
        }
    }

    fn on_loaded(&mut self, after: Option<&Listing>) -> Step {
        self.tell_displaced();
        let gone = self.displaced(after);
        if gone.is_empty() { Step::Done(Ending::Loaded) } else { self.put_back(gone.into()) }
    }

    /// Pinned ones that were there and are not.
    fn displaced(&self, after: Option<&Listing>) -> Vec<Resident> {
        let is_gone = |one: &&Resident| after.is_some_and(|listing| !listing.holds(&one.seen.id));
        self.pinned.iter().filter(is_gone).cloned().collect()
    }

    fn put_back(&mut self, left: VecDeque<Resident>) -> Step {
        let Some(next) = left.front().cloned() else {
            self.tell_restored();
            self.now = Now::Confirming;
            return Step::Confirm;
        };
        self.now = Now::PuttingBack(left);
        Step::Restore(next)
    }

    fn on_put_back(&mut self, mut left: VecDeque<Resident>, happened: &Happened) -> Step {
        if let Some(tried) = left.pop_front() {
            self.settle(&tried, happened);
        }
        self.put_back(left)
    }

    fn on_confirmed(&mut self, after: After) -> Step {
        match after {
            Some(listing) if !listing.holds(&self.model) => {
                let why = "the server displaced it again for a pinned model that was put back".to_owned();
                Step::Done(Ending::Failed(Failure::Other(why)))
            }
            Some(_) | None => Step::Done(Ending::Loaded),
        }
    }

    fn undo(&mut self, why: Failure, after: Option<&Listing>) -> Step {
        let why = self.first.take().unwrap_or(why);
        let mut left: VecDeque<Resident> = self.evicted.clone().into();
        left.extend(self.displaced(after));
        self.restore(left, why)
    }

    fn restore(&mut self, left: VecDeque<Resident>, why: Failure) -> Step {
        let Some(next) = left.front().cloned() else {
            self.tell_restored();
            return Step::Done(Ending::Failed(why));
        };
        self.now = Now::Restoring { left, why };
        Step::Restore(next)
    }

    fn on_restored(&mut self, mut left: VecDeque<Resident>, why: Failure, happened: &Happened) -> Step {
        if let Some(tried) = left.pop_front() {
            self.settle(&tried, happened);
        }
        self.restore(left, why)
    }

    fn settle(&mut self, tried: &Resident, happened: &Happened) {
        match happened {
            Happened::Well(_) | Happened::Unseen(_) => {
                self.mutated(MutationKind::Restore, &tried.seen.id);
                self.restored.push(tried.seen.id.clone());
            }
            Happened::Badly(..) | Happened::Spared(..) => self.unrestored.push(tried.seen.id.clone()),
        }
    }

    fn mutated(&mut self, kind: MutationKind, model: &str) {
        self.mutations.push(Mutation { kind, model: model.to_owned() });
    }

    /// Loud: configured ones went for it.
    fn tell_displaced(&mut self) {
        let is_configured = |one: &&Resident| matches!(one.protection, Protection::Config(_));
        let gone: Vec<&Resident> = self.evicted.iter().filter(is_configured).collect();
        let Some(Protection::Config(role)) = gone.first().map(|one| one.protection) else { return };
        let names: Vec<String> = gone.iter().map(|one| one.seen.id.clone()).collect();
        let vram = gone.iter().filter_map(|one| one.seen.sizes).map(|sizes| sizes.vram);
        let message = format!("{} (configured for {role}) went for it", names.join(", "));
        let freed_vram = Some(Bytes::sum(vram)).filter(|freed| !freed.is_zero());
        let detail = Detail { role: Some(role), swapped_out: names, freed_vram, ..Detail::default() };
        self.notices.push(Notice { kind: NoticeKind::Swap, model: self.model.clone(), message, detail });
    }

    /// One notice for all that are back, one for all that are not.
    fn tell_restored(&mut self) {
        let (restored, unrestored) = (std::mem::take(&mut self.restored), std::mem::take(&mut self.unrestored));
        if !restored.is_empty() {
            let message = format!("{} had gone for it and is back", restored.join(", "));
            let detail = Detail { restored, ..Detail::default() };
            self.notices.push(Notice { kind: NoticeKind::Swap, model: self.model.clone(), message, detail });
        }
        if !unrestored.is_empty() {
            let message = format!("{} had gone for it and could not be put back", unrestored.join(", "));
            let detail = Detail { unrestored, ..Detail::default() };
            self.notices.push(Notice { kind: NoticeKind::WillNotFit, model: self.model.clone(), message, detail });
        }
    }
}

#[cfg(test)]
#[path = "carry_tests.rs"]
mod tests;
