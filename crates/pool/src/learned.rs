//! What loads teach: [`Lessons`] come in with what was found of a model, [`Experience`]s go out (capacity.md §5).
//!
//! Boundary: who keeps them, and which belong to the same model file, engine build and launch, is the shell's to know;
//! what they mean for the next launch is `broker`'s. Here is only when something is worth to be told:
//!
//! | when | what |
//! | --- | --- |
//! | a child that serves was measured: at once with the buffers it reported, else at the second look | its line by part |
//! | a part rose by more than a twentieth since it was told | the same |
//! | its tree is gone | the same, if it is not what was told last |
//! | it died of too little memory | what it needed at least, where it lacked |
//!
//! What is learned is the line, not the figure that was measured: what was promised and not touched yet, a prompt cache
//! above all, is taken by the next one too.
//!
//! A child that died of memory needed more than there was for it: its own part, and what nobody had there. Which of
//! several cards that was nobody says; it is taken for the one that had the least left.
use crate::{Action, Pool, correct::Account};
use motorpool_broker::{Experience, LaunchKey, LaunchPlan, Lesson, Marks, News, Place, Placement, PoolFigures, Sight};
use motorpool_vocab::{Bytes, Claim, DeviceId, FailureClass, Spawn};
use std::{collections::BTreeMap, sync::Arc};

/// A part that rose by more than this share of itself is told again.
const RISE_PER_MILLE: u64 = 50;

/// What earlier loads of one model taught.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lessons {
    /// Model files, engine build, and what the engine is told beside its plan: goes back with what is learned.
    pub about: Arc<str>,
    /// One for each way in which it was launched.
    pub lessons: Arc<[Lesson]>,
}

/// A child of which something may be learned.
#[derive(Clone, Debug)]
pub(crate) struct Study {
    about: Arc<str>,
    key: LaunchKey,
    estimate: Marks,
    /// How often it was looked at while it served.
    n_looks: u32,
    told: Option<Marks>,
}

impl Study {
    /// Of a child that is started by this plan at this place.
    pub(crate) fn new(lessons: &Lessons, plan: LaunchPlan, placement: &Placement) -> Self {
        Self {
            about: lessons.about.clone(),
            key: LaunchKey { plan, split: placement.split.clone() },
            estimate: placement.estimate.clone().unwrap_or_else(|| Marks::of(&placement.claim)),
            n_looks: 0,
            told: None,
        }
    }

    fn action(&self, spawn: Spawn, news: News) -> Action {
        let (key, estimate) = (self.key.clone(), self.estimate.clone());
        Action::Learn { about: self.about.clone(), experience: Experience { key, spawn, estimate, news } }
    }
}

impl Account {
    /// The parts of its line of which something was seen.
    fn marks(&self) -> Option<Marks> {
        let line = self.line();
        let private = self.sees_private().then_some(line.ram_private);
        let device: BTreeMap<_, _> = line.device.into_iter().filter(|(id, _)| self.sees_on(id)).collect();
        (private.is_some() || !device.is_empty()).then_some(Marks { private, device })
    }
}

/// Whether something rose enough, or was seen for the first time.
fn has_risen(told: Option<&Marks>, marks: &Marks) -> bool {
    let Some(told) = told else { return true };
    let rose = |before: Bytes, now: Bytes| now.saturating_sub(before) > before.per_mille(RISE_PER_MILLE);
    let of = |id: &DeviceId| told.device.get(id).copied().unwrap_or_default();
    marks.private.is_some_and(|now| rose(told.private.unwrap_or_default(), now))
        || marks.device.iter().any(|(id, now)| rose(of(id), *now))
}

impl Pool {
    /// Something was seen of `spawn`.
    pub(crate) fn learn_if_risen(&mut self, spawn: Spawn) {
        let (Some(study), Some(account)) = (self.studies.get_mut(&spawn), self.accounts.get(&spawn)) else { return };
        study.n_looks = study.n_looks.saturating_add(1);
        // A report that comes late may still lower it.
        if !account.is_reported() && study.n_looks < 2 {
            return;
        }
        if let Some(marks) = account.marks().filter(|marks| has_risen(study.told.as_ref(), marks)) {
            study.told = Some(marks.clone());
            let action = study.action(spawn, News::Saw(marks));
            self.act(action);
        }
    }

    /// The tree of `spawn` is gone: what was not told of it yet is told.
    pub(crate) fn learn_last(&mut self, spawn: Spawn) {
        let Some(study) = self.studies.remove(&spawn) else { return };
        let marks = self.accounts.get(&spawn).and_then(Account::marks);
        if let Some(marks) = marks.filter(|marks| study.told.as_ref() != Some(marks)) {
            self.act(study.action(spawn, News::Saw(marks)));
        }
    }

    /// The load of `spawn` ended by itself, for such a reason. Of one that served nothing is learned: what others took
    /// meanwhile is not what it needs.
    pub(crate) fn learn_of_death(&mut self, spawn: Spawn, class: Option<FailureClass>) {
        let needed = match class {
            Some(FailureClass::OutOfDeviceMemory) => self.needed_on_devices(spawn),
            Some(FailureClass::OutOfHostMemory) => self.needed_in_memory(spawn),
            _ => None,
        };
        let (Some(needed), Some(study)) = (needed, self.studies.get(&spawn)) else { return };
        let action = study.action(spawn, News::Died(needed));
        // What it held until then is less than what it needed.
        self.studies.remove(&spawn);
        self.act(action);
    }

    /// Where devices share system memory, it is that which was too little.
    fn needed_on_devices(&self, spawn: Spawn) -> Option<Marks> {
        let claim = self.ledger.line(spawn)?;
        let pools = self.ledger.pools();
        let left = |id: &DeviceId| pools.iter().find(|pool| pool.place == Place::Card(id.clone())).and_then(left_in);
        let nearest = claim.device.iter().map(|(id, own)| Some((left(id)?, id, own))).collect::<Option<Vec<_>>>()?;
        let nearest = nearest.into_iter().min();
        let Some((left, id, own)) = nearest else { return self.needed_in_memory(spawn) };
        Some(Marks { private: None, device: [(id.clone(), more_than(*own, left))].into() })
    }

    fn needed_in_memory(&self, spawn: Spawn) -> Option<Marks> {
        let Claim { ram_private, .. } = self.ledger.line(spawn)?;
        let pools = self.ledger.pools();
        let left = pools.iter().find(|pool| pool.place == Place::SystemMemory).and_then(left_in)?;
        Some(Marks { private: Some(more_than(*ram_private, left)), device: BTreeMap::new() })
    }
}

/// What nobody has there; `None` where nobody knows what others have.
fn left_in(pool: &PoolFigures) -> Option<Bytes> {
    match pool.sight {
        Sight::Known { foreign } => Some(pool.total.saturating_sub(foreign).saturating_sub(pool.committed)),
        Sight::Trusted | Sight::Unknown => None,
    }
}

fn more_than(own: Bytes, left: Bytes) -> Bytes {
    Bytes::sum([own, left, Bytes::new(1)])
}
