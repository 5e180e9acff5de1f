//! [`Pool::outlook`]: what would become of launches now, by the same judgement as real ones and without side effects.
//!
//! Several are judged one after the other, behind the builds that wait, as if each of them had got its room: what an
//! earlier one claims is taken and stays, and what would go for it is gone.
use crate::{Denial, Facts, Pool, StartFault, entry::EntryId, subject::subject};
use motorpool_broker::{Draft, Ledger, Placement, Query, Room, Source, Verdict, draft, pick_room, refused_context};
use motorpool_catalog::Model;
use motorpool_vocab::{Bytes, Claim, EngineKey, ModelId, Now, Spawn};
use std::{collections::BTreeMap, sync::Arc};

/// A launch to be considered.
#[derive(Clone, Debug)]
pub struct Prospect {
    /// What it would be called.
    pub key: EngineKey,
    /// The model.
    pub model: Arc<Model>,
    /// What was found when program and file were looked at.
    pub facts: Result<Facts, StartFault>,
}

/// What would become of one launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// What it would be called.
    pub key: EngineKey,
    /// What it takes and how it would be launched; none for a model that could not be looked at.
    pub draft: Option<Draft>,
    /// Where the size comes from; none for a model that could not be looked at.
    pub source: Option<Source>,
    /// What would happen.
    pub becomes: Becomes,
}

/// What would happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Becomes {
    /// An engine of it holds this already.
    Resident(Claim),
    /// There is room.
    Fits(Placement),
    /// What is on its way out makes room.
    Waits(Placement),
    /// These idle engines would be stopped.
    Evicts(Vec<EngineKey>, Placement),
    /// Of these engines the busy ones would have to finish first.
    Drains(Vec<EngineKey>, Placement),
    /// It would be refused.
    Denied(Box<Denial>),
    /// It could not be started.
    Fails(StartFault),
}

impl Becomes {
    /// Where it would be, if somewhere.
    fn placement(&self) -> Option<&Placement> {
        match self {
            Self::Fits(placement)
            | Self::Waits(placement)
            | Self::Evicts(_, placement)
            | Self::Drains(_, placement) => Some(placement),
            Self::Resident(_) | Self::Denied(_) | Self::Fails(_) => None,
        }
    }
}

/// So many copies of each model, with the keys that they would have; one that is named again goes on counting.
pub fn copies(models: &[Arc<Model>], replicas: u32) -> Vec<(EngineKey, Arc<Model>)> {
    let mut counts: BTreeMap<&ModelId, u32> = BTreeMap::new();
    let mut numbered = Vec::new();
    for model in models {
        let count = counts.entry(&model.id).or_default();
        numbered.extend((*count..count.saturating_add(replicas)).map(|n| (n, model)));
        *count = count.saturating_add(replicas);
    }
    let key = |model: &Model, n| EngineKey::new(&model.engine, model.id.clone(), n).ok();
    numbered.into_iter().filter_map(|(n, model)| Some((key(model, n)?, model.clone()))).collect()
}

impl Pool {
    /// What would become of these launches, in this order.
    pub fn outlook(&self, now: Now, prospects: Vec<Prospect>) -> Vec<Outlook> {
        let mut then = self.after_the_waiting();
        prospects.into_iter().map(|prospect| then.consider((self, now), prospect)).collect()
    }

    /// The ledger as if every build that waits had got the room that it was judged to get.
    fn after_the_waiting(&self) -> Then {
        let leaving = self.leaving().map(|(spawn, _)| spawn).collect();
        let mut then = Then { ledger: self.ledger.clone(), fixed: self.fixed_spawns(), leaving, next: Spawn(u64::MAX) };
        for waiting in self.waiting_in_order().into_iter().filter_map(|entry| self.entries[entry].waiting()) {
            let gone: Vec<Spawn> = waiting.drains.iter().filter_map(|victim| self.entries[*victim].spawn()).collect();
            if let Some(placement) = &waiting.placement {
                then.take(&gone, &placement.claim);
            }
        }
        then
    }

    /// What was measured of the engine that lives under `key`.
    fn measured_of(&self, key: &EngineKey) -> Option<Bytes> {
        self.accounts.get(&self.entries[*self.by_key.get(key)?].spawn()?)?.measured()
    }

    /// The line of the engine that lives under `key`.
    fn line_of(&self, key: &EngineKey) -> Option<Claim> {
        let spawn = self.entries[*self.by_key.get(key)?].spawn()?;
        self.ledger.line(spawn).cloned().filter(|_| !self.teardowns.contains_key(&spawn))
    }
}

/// The ledger as if all that was considered so far were there.
struct Then {
    ledger: Ledger,
    /// What never goes; what was considered before does not either.
    fixed: Vec<Spawn>,
    leaving: Vec<Spawn>,
    /// The next number that no child has.
    next: Spawn,
}

impl Then {
    fn consider(&mut self, at: (&Pool, Now), prospect: Prospect) -> Outlook {
        let Prospect { key, model, facts } = prospect;
        let facts = match facts {
            Ok(facts) => facts,
            Err(fault) => return Outlook { key, draft: None, source: None, becomes: Becomes::Fails(fault) },
        };
        let subject = subject(&model, &facts);
        let draft = draft(&self.ledger, &self.fixed, &subject);
        let becomes = match at.0.line_of(&key) {
            Some(claim) => Becomes::Resident(claim),
            None if let Some(fault) = at.0.would_be_held(&key, &facts) => Becomes::Fails(fault),
            None => self.judge(at, (&key, &model), &draft),
        };
        let becomes = match becomes {
            Becomes::Denied(denial) => {
                let context = refused_context(&self.ledger, (&subject, &draft));
                Becomes::Denied(Box::new(denial.of_context(context)))
            }
            // A grown one was drafted because it fits.
            other => other,
        };
        let is_measured = || at.0.measured_of(&key).is_some();
        let source = match &becomes {
            Becomes::Resident(_) if is_measured() => Source::Measured,
            other => draft.source_of(other.placement()),
        };
        Outlook { key, draft: Some(draft), source: Some(source), becomes }
    }

    fn judge(&mut self, (pool, now): (&Pool, Now), (key, model): (&EngineKey, &Model), draft: &Draft) -> Becomes {
        // What protects a busy one for the moment ends by itself; its priority does not.
        let lives = |spawn: &Spawn| self.ledger.line(*spawn).is_some() && !self.leaving.contains(spawn);
        let victims = pool.by_spawn.iter().filter(|(spawn, _)| lives(spawn)).map(|(_, victim)| *victim);
        let outranks = |victim: EntryId| pool.entries[victim].model.priority > model.priority;
        let candidates: Vec<_> =
            victims.filter_map(|victim| pool.candidate_unless(now, victim, || outranks(victim))).collect();
        let query = Query {
            load: &draft.load,
            elders: &[],
            leaving: &self.leaving,
            draining: &[],
            fixed: &self.fixed,
            policy: pool.config.policy,
        };
        let room = pick_room(&self.ledger, &query, &candidates);
        let key_of = |spawn: &Spawn| Some(pool.entries[pool.entry_of(*spawn)?].key.clone());
        let keys = |set: &[Spawn]| set.iter().filter_map(key_of).collect();
        match room {
            Room::Fits(placement) => {
                self.take(&[], &placement.claim);
                Becomes::Fits(placement)
            }
            Room::Wait(placement) => {
                self.take(&self.leaving.clone(), &placement.claim);
                Becomes::Waits(placement)
            }
            Room::Evict { set, placement } => {
                self.take(&set, &placement.claim);
                Becomes::Evicts(keys(&set), placement)
            }
            Room::Drain { set, placement } => {
                self.take(&set, &placement.claim);
                Becomes::Drains(keys(&set), placement)
            }
            Room::Never(proof) => Becomes::Denied(Box::new(pool.denial_of(key.clone(), proof))),
        }
    }

    /// `gone` are gone, and `claim` has a line that stays.
    fn take(&mut self, gone: &[Spawn], claim: &Claim) {
        for spawn in gone {
            self.ledger.release(*spawn);
        }
        let spawn = self.next;
        self.next = Spawn(spawn.0 - 1);
        // One that waits for others to leave is counted all the same.
        if self.ledger.reserve(spawn, claim.clone()) != Verdict::Admit {
            let _ = self.ledger.reserve(spawn, Claim::default());
            let _ = self.ledger.correct(spawn, claim.clone());
        }
        self.fixed.push(spawn);
    }
}
