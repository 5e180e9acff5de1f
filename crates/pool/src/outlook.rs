//! [`Pool::outlook`]: what would become of launches now, by the same judgement as real ones and without side effects.
//!
//! Several are judged one after the other, as if each of them had got its room: what an earlier one claims is taken,
//! and what would go for it is gone.
use crate::{Denial, Facts, Pool, StartFault, entry::Step, subject::subject};
use motorpool_broker::{Draft, Placement, Query, Room, draft, pick_room};
use motorpool_catalog::Model;
use motorpool_vocab::{Claim, EngineKey, Now, Spawn};
use std::sync::Arc;

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

/// What earlier ones of the same question took and sent away.
#[derive(Default)]
struct Taken {
    claims: Vec<Claim>,
    gone: Vec<Spawn>,
}

/// So many copies of each model, with the keys that they would have.
pub fn copies(models: &[Arc<Model>], replicas: u32) -> Vec<(EngineKey, Arc<Model>)> {
    let key = |model: &Model, n| EngineKey::new(&model.engine, model.id.clone(), n).ok();
    let all = models.iter().flat_map(|model| (0..replicas).map(move |n| (n, model)));
    all.filter_map(|(n, model)| Some((key(model, n)?, model.clone()))).collect()
}

impl Pool {
    /// What would become of these launches, in this order.
    pub fn outlook(&self, now: Now, prospects: Vec<Prospect>) -> Vec<Outlook> {
        let mut taken = Taken::default();
        prospects.into_iter().map(|prospect| self.consider(now, prospect, &mut taken)).collect()
    }

    fn consider(&self, now: Now, prospect: Prospect, taken: &mut Taken) -> Outlook {
        let Prospect { key, model, facts } = prospect;
        let facts = match facts {
            Ok(facts) => facts,
            Err(fault) => return Outlook { key, draft: None, becomes: Becomes::Fails(fault) },
        };
        let draft = draft(&self.ledger, &self.fixed_spawns(), &subject(&model, &facts));
        let becomes = match self.line_of(&key) {
            Some(claim) => Becomes::Resident(claim),
            None => self.judge_draft(now, (&key, &model, &draft), taken),
        };
        Outlook { key, draft: Some(draft), becomes }
    }

    /// The line of the engine that lives under `key`.
    fn line_of(&self, key: &EngineKey) -> Option<Claim> {
        let spawn = self.entries[*self.by_key.get(key)?].spawn()?;
        self.ledger.line(spawn).cloned().filter(|_| !self.teardowns.contains_key(&spawn))
    }

    fn judge_draft(&self, now: Now, (key, model, draft): (&EngineKey, &Model, &Draft), taken: &mut Taken) -> Becomes {
        let leaving = self.teardowns.iter().filter(|(_, t)| t.step != Step::Stuck).map(|(spawn, _)| *spawn);
        let leaving: Vec<Spawn> = leaving.chain(taken.gone.iter().copied()).collect();
        // What protects a busy one for the moment ends by itself; its priority does not.
        let candidates: Vec<_> = self
            .by_spawn
            .iter()
            .filter(|(spawn, _)| !leaving.contains(spawn))
            .filter_map(|(_, victim)| {
                self.candidate_unless(now, *victim, || self.entries[*victim].model.priority > model.priority)
            })
            .collect();
        let query = Query {
            load: &draft.load,
            elders: &taken.claims,
            leaving: &leaving,
            draining: &[],
            fixed: &self.fixed_spawns(),
            policy: self.config.policy,
        };
        let room = pick_room(&self.ledger, &query, &candidates);
        taken.claims.extend(room.placement().map(|placement| placement.claim.clone()));
        let keys =
            |set: &[Spawn]| set.iter().filter_map(|s| Some(self.entries[self.entry_of(*s)?].key.clone())).collect();
        match room {
            Room::Fits(placement) => Becomes::Fits(placement),
            Room::Wait(placement) => Becomes::Waits(placement),
            Room::Evict { set, placement } => {
                taken.gone.extend(&set);
                Becomes::Evicts(keys(&set), placement)
            }
            Room::Drain { set, placement } => {
                taken.gone.extend(&set);
                Becomes::Drains(keys(&set), placement)
            }
            Room::Never(proof) => Becomes::Denied(Box::new(self.denial_of(key.clone(), proof))),
        }
    }
}
