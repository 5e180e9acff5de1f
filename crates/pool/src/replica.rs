//! Which replica of a model a request goes to: [`pick_replica`], a function over plain data (pool.md §5).
//!
//! The contract's order among replicas that are not drained is: fewest leases, fewest sessions, index. Before that
//! comes whether one can serve now: a replica that still loads has no lease, and nobody is to wait for it while
//! another has a slot.
use crate::{
    Ask, Pool,
    entry::{Entry, EntryId, Phase},
};
use motorpool_catalog::{MOST_REPLICAS, Model};
use motorpool_vocab::{EngineKey, ModelId, Now};
use std::{collections::BTreeMap, sync::Arc};

/// A replica as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaLoad {
    /// Which.
    pub replica: u32,
    /// What it can do.
    pub standing: ReplicaStanding,
    /// Leases on it, and tickets that wait for it.
    pub load: u32,
    /// Sessions that come back to it.
    pub sessions: u32,
}

/// What a replica can do for a request, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplicaStanding {
    /// It has a slot.
    Open,
    /// Every slot is taken.
    Full,
    /// It is being built.
    Coming,
    /// It is being drained, or must prove first that it serves.
    Draining,
}

/// The replica for a request whose session is bound to `bound`. A session keeps its replica, which is built again at
/// the same index if it is gone, unless it is drained while another has a slot: what the session left there goes.
pub fn pick_replica(bound: Option<u32>, replicas: &[ReplicaLoad]) -> u32 {
    let best = replicas.iter().min_by_key(|r| (r.standing, r.load, r.sessions, r.replica));
    let Some(bound) = bound else { return best.map_or(0, |r| r.replica) };
    let drained = replicas.iter().any(|r| r.replica == bound && r.standing == ReplicaStanding::Draining);
    match best {
        Some(open) if drained && open.standing == ReplicaStanding::Open => open.replica,
        _ => bound,
    }
}

/// The engines of one model, by replica. Every entry of the pool is in one, but strays (`reload.rs`).
pub(crate) type Family = BTreeMap<u32, EntryId>;

impl Pool {
    /// The entry that a request goes to, made if it was never there; `None`: there is no such model.
    pub(crate) fn route(&mut self, now: Now, ask: &Ask) -> Option<EntryId> {
        let model = self.catalog.model(&ask.model)?.clone();
        let replica = match (ask.replica, &ask.holder.session) {
            (Some(replica), _) => replica,
            (None, session) => {
                let bound = session.as_deref().and_then(|s| self.sessions.replica_of(now, &model.id, s));
                let picked = pick_replica(bound, &self.replica_loads(&model.id));
                self.instead_of_one_that_goes(&model, picked)
            }
        };
        self.entry_at(now, &model, replica)
    }

    /// The entry of one replica, made if it was never there; `None`: there are not so many.
    pub(crate) fn entry_at(&mut self, now: Now, model: &Arc<Model>, replica: u32) -> Option<EntryId> {
        if let Some(entry) = self.family(&model.id).and_then(|family| family.get(&replica)) {
            return Some(*entry);
        }
        if replica >= MOST_REPLICAS {
            return None;
        }
        let key = EngineKey::new(&model.engine, model.id.clone(), replica).ok()?;
        let entry = self.entries.insert(Entry::new(now, key.clone(), model.clone()));
        self.by_key.insert(key, entry);
        self.families.entry(model.id.clone()).or_default().insert(replica, entry);
        if replica > 0 {
            self.upkeep.widen(&model.id);
        }
        Some(entry)
    }

    pub(crate) fn family(&self, model: &ModelId) -> Option<&Family> {
        self.families.get(model)
    }

    /// The other engines of the model of `entry`.
    pub(crate) fn siblings(&self, entry: EntryId) -> impl Iterator<Item = EntryId> + '_ {
        let family = self.family(self.entries[entry].key.model());
        family.into_iter().flat_map(|family| family.values().copied()).filter(move |other| *other != entry)
    }

    /// Replicas that live or are on their way.
    fn replica_loads(&self, model: &ModelId) -> Vec<ReplicaLoad> {
        let family = self.family(model).into_iter().flatten();
        family.filter_map(|(replica, entry)| self.replica_load(*replica, *entry)).collect()
    }

    fn replica_load(&self, replica: u32, entry: EntryId) -> Option<ReplicaLoad> {
        let target = &self.entries[entry];
        let (standing, leases) = match &target.phase {
            Phase::Ready(s) if s.is_shut() => (ReplicaStanding::Draining, s.gate.granted()),
            Phase::Ready(s) if s.gate.granted() < s.gate.width() => (ReplicaStanding::Open, s.gate.granted()),
            Phase::Ready(s) => (ReplicaStanding::Full, s.gate.granted()),
            Phase::Checking { .. }
            | Phase::WaitsForRoom(_)
            | Phase::Admission(_)
            | Phase::Starting(_)
            | Phase::Proving(_) => (ReplicaStanding::Coming, 0),
            Phase::Idle | Phase::Stopping { .. } => return None,
        };
        let waiting = u32::try_from(target.queue.len()).unwrap_or(u32::MAX);
        let sessions = self.sessions.n_at(target.key.model(), replica);
        Some(ReplicaLoad { replica, standing, load: leases.saturating_add(waiting), sessions })
    }

    /// A replica of the model of `entry` that serves and is not drained.
    pub(crate) fn serving_sibling(&self, entry: EntryId) -> Option<EntryId> {
        self.siblings(entry).find(|other| self.entries[*other].serving().is_some_and(|s| !s.is_shut()))
    }

    /// Tickets of `entry` that may be served by another replica go to one that serves. Whether all did.
    pub(crate) fn move_to_sibling(&mut self, now: Now, entry: EntryId) -> Moved {
        let Some(sibling) = self.serving_sibling(entry) else { return Moved::NotAll };
        let free = |id: &crate::RequestId| self.tickets[id].ask.replica.is_none();
        let going: Vec<_> = self.entries[entry].queue.iter().copied().filter(free).collect();
        for id in going {
            self.rehome(id, sibling);
        }
        if self.entries[entry].waiting().is_some() && !self.is_kept(entry) {
            self.abandon_waiting(now, entry);
        }
        self.serve(now, sibling);
        if self.entries[entry].queue.is_empty() { Moved::All } else { Moved::NotAll }
    }

    pub(crate) fn rehome(&mut self, id: crate::RequestId, to: EntryId) {
        let Some(ticket) = self.tickets.get_mut(&id) else { return };
        let from = std::mem::replace(&mut ticket.entry, to);
        ticket.wait = crate::entry::Wait::Turn;
        self.entries[from].queue.remove(&id);
        self.entries[to].queue.insert(id);
    }
}

/// What became of the tickets of an engine that cannot serve them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    All,
    NotAll,
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReplicaStanding::{Coming, Draining, Full, Open};

    fn replica(replica: u32, standing: ReplicaStanding, load: u32, sessions: u32) -> ReplicaLoad {
        ReplicaLoad { replica, standing, load, sessions }
    }

    #[test]
    fn the_least_loaded_is_picked_by_leases_then_sessions_then_index() {
        assert_eq!(pick_replica(None, &[]), 0);
        let three = |a, b, c| [replica(0, Open, a, 1), replica(1, Open, b, 0), replica(2, Open, c, 0)];
        assert_eq!(pick_replica(None, &three(0, 1, 1)), 0);
        assert_eq!(pick_replica(None, &three(1, 1, 1)), 1);
        assert_eq!(pick_replica(None, &three(2, 2, 1)), 2);
    }

    #[test]
    fn whoever_can_serve_now_comes_before_whoever_loads_and_the_drained_come_last() {
        assert_eq!(pick_replica(None, &[replica(0, Open, 3, 9), replica(1, Coming, 0, 0)]), 0);
        assert_eq!(pick_replica(None, &[replica(0, Full, 4, 0), replica(1, Open, 3, 0)]), 1);
        assert_eq!(pick_replica(None, &[replica(0, Draining, 0, 0), replica(1, Coming, 5, 0)]), 1);
        assert_eq!(pick_replica(None, &[replica(1, Draining, 1, 0)]), 1);
    }

    #[test]
    fn a_session_keeps_its_replica_even_one_that_is_gone() {
        let others = [replica(0, Open, 0, 0), replica(1, Full, 4, 4)];
        assert_eq!(pick_replica(Some(1), &others), 1);
        assert_eq!(pick_replica(Some(7), &others), 7);
        assert_eq!(pick_replica(Some(3), &[]), 3);
    }

    #[test]
    fn a_session_of_a_drained_replica_goes_where_there_is_a_slot() {
        assert_eq!(pick_replica(Some(1), &[replica(0, Open, 0, 0), replica(1, Draining, 1, 1)]), 0);
        assert_eq!(pick_replica(Some(1), &[replica(0, Full, 1, 0), replica(1, Draining, 1, 1)]), 1);
    }
}
