//! Engines that an operator has drained: they take nothing new until somebody loads their model or resets it.
//!
//! ```text
//!            drain                                   load, reset
//!   All ─────────────► Nobody: who waits for it goes to another replica or is refused; ──────────► All
//!                      what it serves comes to its end, however long that takes; it stops
//! ```
//!
//! * **D1** no request gets a lease on a drained engine, and none waits for it.
//! * **D2** a drained engine is not started: neither for requests, nor by itself.
//! * **D3** its last lease ends by itself (P2): nothing is cut, and no time ends the drain.
//!
//! An `evict` differs: it gives up after a time, and whoever comes next starts the engine again.
use crate::{
    Answer, Ask, Pool, Refusal, RequestId,
    entry::{EntryId, Phase},
};
use motorpool_vocab::{EngineKey, ModelId, Now};
use std::{mem, time::Duration};

/// No drain of an operator lasts so long.
const FOR_EVER: Duration = Duration::from_hours(100 * 366 * 24);

/// Whom an engine takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Admits {
    /// Whoever comes.
    #[default]
    All,
    /// Nobody, by the wish of these operators: one at least. They are told when it takes requests again.
    Nobody { askers: Vec<RequestId> },
}

impl Admits {
    fn refuse_for(&mut self, asker: RequestId) {
        match self {
            Self::All => *self = Self::Nobody { askers: vec![asker] },
            Self::Nobody { askers } => askers.push(asker),
        }
    }

    /// One wish less; without any it takes whoever comes.
    fn forget(&mut self, asker: RequestId) {
        if let Self::Nobody { askers } = self {
            askers.retain(|other| *other != asker);
            if askers.is_empty() {
                *self = Self::All;
            }
        }
    }
}

impl Pool {
    pub(crate) fn on_drain(&mut self, now: Now, id: RequestId, key: &EngineKey) {
        let known = self.catalog.model(key.model()).filter(|model| model.engine == key.provider()).cloned();
        let Some(entry) = known.and_then(|model| self.entry_at(now, &model, key.replica())) else {
            return self.reply(id, Answer::NotResident);
        };
        self.entries[entry].admits.refuse_for(id);
        self.forgive_debts_to(entry);
        self.move_to_sibling(now, entry);
        self.refuse_all(now, entry, &Refusal::Drained(key.clone()));
        self.entries[entry].attempts.end();
        match &self.entries[entry].phase {
            Phase::Ready(_) => {
                self.begin_drain(now, entry, |serving| {
                    serving.drain.askers.insert(id, (now.after(FOR_EVER), FOR_EVER));
                });
            }
            Phase::WaitsForRoom(_) => {
                self.abandon_waiting(now, entry);
                self.join_reclaim(entry, id);
            }
            Phase::Admission(_) => {
                self.withdraw(now, entry);
                self.join_reclaim(entry, id);
            }
            Phase::Starting(_) | Phase::Proving(_) => self.stop_for(now, entry, id),
            Phase::Idle | Phase::Checking { .. } => self.join_reclaim(entry, id),
            Phase::Stopping { spawn } => self.join_teardown(*spawn, id),
        }
    }

    /// A model is to be loaded: its drained engines take requests again.
    pub(crate) fn on_admit(&mut self, now: Now, model: &ModelId) {
        let members: Vec<EntryId> =
            self.family(model).into_iter().flat_map(|family| family.values().copied()).collect();
        for entry in members {
            self.open_again(now, entry);
        }
    }

    /// It takes requests again; whether it did not. One that is still drained goes on serving.
    pub(crate) fn open_again(&mut self, now: Now, entry: EntryId) -> bool {
        let Admits::Nobody { askers } = mem::take(&mut self.entries[entry].admits) else { return false };
        for asker in askers {
            // Others were answered when it had stopped, or wait for that: it goes on stopping.
            let drains = self.entries[entry].serving().is_some_and(|serving| serving.drain.askers.contains_key(&asker));
            if drains {
                self.forget_asker(now, asker);
                let key = self.entries[entry].key.clone();
                self.reply(asker, Answer::Serving(key));
            }
        }
        true
    }

    /// An operator who drained it is gone before it was.
    pub(crate) fn forget_drain(&mut self, asker: RequestId) {
        self.entries.values_mut().for_each(|entry| entry.admits.forget(asker));
    }

    pub(crate) fn is_drained(&self, entry: EntryId) -> bool {
        self.entries[entry].admits != Admits::All
    }

    /// Where a request goes whose engine is `entry`: there, else to a replica that takes requests and stays, one that lives
    /// before one that would have to be started; and to one that goes for a reload, whose next engine serves it, at last.
    pub(crate) fn admitting(&mut self, now: Now, entry: EntryId, ask: &Ask) -> Result<EntryId, Refusal> {
        if !self.is_drained(entry) {
            return Ok(entry);
        }
        let refusal = Refusal::Drained(self.entries[entry].key.clone());
        let model = self.entries[entry].model.clone();
        if ask.replica.is_some() {
            return Err(refusal);
        }
        let most = self.most_of(&model);
        let stays = |other: EntryId| !self.is_drained(other) && !self.entries[other].goes_for_good();
        let lives = |other: EntryId| !matches!(self.entries[other].phase, Phase::Idle | Phase::Stopping { .. });
        let is_one = |other: &EntryId| stays(*other) && lives(*other) && self.entries[*other].key.replica() < most;
        if let Some(other) = self.siblings(entry).find(is_one) {
            return Ok(other);
        }
        let there = |replica: u32| self.family(&model.id).and_then(|family| family.get(&replica)).copied();
        let free = |replica: &u32| there(*replica).is_none_or(stays);
        let later = |replica: &u32| there(*replica).is_none_or(|other| !self.is_drained(other));
        let mut all = 0..model.replicas.max;
        let replica = all.clone().find(free).or_else(|| all.find(later)).ok_or_else(|| refusal.clone())?;
        self.entry_at(now, &model, replica).ok_or(refusal)
    }
}
