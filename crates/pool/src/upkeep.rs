//! What the pool does by itself: replicas that come and go, engines that come back, ambient work that begins.
//!
//! [`Pool::upkeep`] runs after builds were judged, on every input; only who is served elsewhere is so before that. It
//! decides from what is there now; whatever becomes due by time alone is among [`Pool::upkeep_ends`].
//!
//! | | when | how |
//! | --- | --- | --- |
//! | fan out | a request waited for a slot as long as configured | one more replica, if there is room |
//! | scale down | the highest replica was not used for as long as configured | it stops; its sessions go anywhere |
//! | idle | an engine had no request for its model's `idle_ttl`, or for what its last request said | it stops |
//! | least | a model serves with fewer replicas than it is to have | one more, if there is room |
//! | home | a model is always to be there | built at the start and when bytes came back, if there is room |
//! | restore | a load failed for which it was stopped | built again, if it was used lately and nobody waits for room |
//! | ambient | it was quiet long enough | served, or built if there is room |
use crate::{
    KeepAlive, Pool, Want,
    attempt::Purpose,
    entry::{EntryId, Phase, Serving, Ticket, Wait},
    queue::Quiet,
};
use motorpool_catalog::{Catalog, Model};
use motorpool_vocab::{CloseIfIdle, Lane, ModelId, Now, Spawn, StopReason};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// What went because memory ran low stays away so long: at once it would only have to go again.
const SHORT_OF_MEMORY: Duration = Duration::from_mins(2);

/// What is remembered for that.
#[derive(Debug)]
pub(crate) struct Upkeep {
    home: Vec<Arc<Model>>,
    /// Models that may have several engines.
    wide: BTreeSet<ModelId>,
    /// How many engines operators want, by name.
    pub(crate) targets: BTreeMap<ModelId, u32>,
    /// Engines that are to come back after a load failed.
    restores: BTreeSet<EntryId>,
    /// How often bytes came back.
    pub(crate) freed: u64,
    random: u64,
}

impl Upkeep {
    pub(crate) fn new(catalog: &Catalog, seed: u64) -> Self {
        let (home, wide, targets) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
        let mut upkeep = Self { home, wide, targets, restores: BTreeSet::new(), freed: 0, random: seed };
        upkeep.reads(catalog);
        upkeep
    }

    /// These are the models from now on; of those that are gone nobody wants so many any more.
    pub(crate) fn reads(&mut self, catalog: &Catalog) {
        self.home = catalog.models().filter(|model| model.home).cloned().collect();
        self.targets.retain(|model, _| catalog.model(model).is_some());
        let wide = catalog.models().filter(|model| model.replicas.max > 1).map(|model| &model.id);
        self.wide = wide.chain(self.targets.keys()).cloned().collect();
    }

    /// A number for jitter (splitmix64).
    pub(crate) fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The model has, or may have, more than one engine.
    pub(crate) fn widen(&mut self, model: &ModelId) {
        self.wide.insert(model.clone());
    }
}

impl Pool {
    pub(crate) fn upkeep(&mut self, now: Now) {
        if self.is_closing() {
            return;
        }
        for model in self.upkeep.wide.iter().cloned().collect::<Vec<_>>() {
            self.scale_down(now, &model);
            self.scale_up(now, &model);
        }
        self.unload_unused(now);
        self.bring_home(now);
        self.restore(now);
        self.begin_ambient(now);
    }

    /// So many engines of a model are to be there once it is used: as operators want, else as it says itself.
    fn floor(&self, model: &ModelId) -> u32 {
        let least = self.catalog.model(model).map_or(1, |model| model.replicas.min);
        self.upkeep.targets.get(model).copied().unwrap_or(least)
    }

    fn members(&self, model: &ModelId) -> Vec<EntryId> {
        self.family(model).into_iter().flat_map(|family| family.values().copied()).collect()
    }

    /// Whoever waited long enough takes a slot of another replica.
    pub(crate) fn serve_elsewhere(&mut self, now: Now) {
        if self.is_closing() {
            return;
        }
        for model in self.upkeep.wide.iter().cloned().collect::<Vec<_>>() {
            let members = self.members(&model);
            if members.iter().all(|entry| self.entries[*entry].queue.is_empty()) {
                continue;
            }
            for entry in members {
                if self.entries[entry].serving().is_some_and(|s| s.gate.granted() < s.gate.width()) {
                    self.serve(now, entry);
                }
            }
        }
    }

    fn scale_down(&mut self, now: Now, model: &ModelId) {
        while let Some((entry, at)) = self.surplus(model) {
            let Some(serving) = self.entries[entry].serving().filter(|_| at <= now) else { return };
            if serving.gate.close_if_idle() != CloseIfIdle::Closed {
                return;
            }
            self.retire_replica(now, entry);
        }
    }

    /// The engine is one too many and idle: it stops, and its sessions go anywhere.
    pub(crate) fn retire_replica(&mut self, now: Now, entry: EntryId) {
        let key = self.entries[entry].key.clone();
        self.sessions.forget_replica(key.model(), key.replica());
        self.tear_down(now, entry, StopReason::ScaleDown);
    }

    /// The highest replica, if there are more than the least and it is idle, and when it is to stop. The last one of a
    /// model is nobody's surplus.
    fn surplus(&self, model: &ModelId) -> Option<(EntryId, Now)> {
        let lives = |entry: &EntryId| !matches!(self.entries[*entry].phase, Phase::Idle | Phase::Stopping { .. });
        let living: Vec<EntryId> = self.members(model).into_iter().filter(lives).collect();
        let least = usize::try_from(self.floor(model).max(1)).unwrap_or(usize::MAX);
        let entry = living.last().filter(|_| living.len() > least)?;
        Some((*entry, self.unused_since(*entry)?.after(self.config.scale.scale_down_after)))
    }

    /// Since when nobody uses an engine that serves and is not drained. A lease that its gate alone counts out ended just
    /// now: it is told in a moment.
    fn unused_since(&self, entry: EntryId) -> Option<Now> {
        let target = &self.entries[entry];
        let serving = target.serving().filter(|s| !s.drain.is_active() && s.n_leases == 0 && !self.is_busy(entry))?;
        Some(target.last_use.unwrap_or(serving.ready_at).max(serving.ready_at))
    }

    fn unload_unused(&mut self, now: Now) {
        for entry in self.by_spawn.values().copied().collect::<Vec<_>>() {
            let due = self.unload_at(entry).is_some_and(|at| at <= now);
            let idle = |serving: &Serving| serving.gate.close_if_idle() == CloseIfIdle::Closed;
            if due && self.entries[entry].serving().is_some_and(idle) {
                self.tear_down(now, entry, StopReason::Idle);
            }
        }
    }

    /// When an engine stops for want of requests, unless one comes. `None`: it is used, drained, or stays whatever comes.
    pub(crate) fn unload_at(&self, entry: EntryId) -> Option<Now> {
        let target = &self.entries[entry];
        let unused_since = self.unused_since(entry)?;
        let (model, replica) = (target.key.model(), target.key.replica());
        let wanted = self.upkeep.targets.get(model).is_some_and(|n| replica < *n);
        let KeepAlive::For(within) = target.serving()?.keep else { return None };
        let stays = target.model.pinned || target.model.home || wanted;
        (!stays).then(|| unused_since.after(within))
    }

    /// One more replica, for those who wait or for the least there is to be.
    fn scale_up(&mut self, now: Now, model: &ModelId) {
        let Some(model) = self.catalog.model(model).cloned() else { return };
        let members = self.members(&model.id);
        let coming = |phase: &Phase| !matches!(phase, Phase::Idle | Phase::Ready(_) | Phase::Stopping { .. });
        let serves = members.iter().filter(|entry| self.entries[**entry].serving().is_some()).count();
        if serves == 0 || members.iter().any(|entry| coming(&self.entries[*entry].phase)) {
            return;
        }
        let waits = members.iter().any(|entry| self.waits_long(now, *entry));
        let floor = self.floor(&model.id);
        let (most, purpose) =
            if waits { (model.replicas.max.max(floor), Purpose::FanOut) } else { (floor, Purpose::Least) };
        let is_free = |replica: &u32| {
            let entry = self.family(&model.id).and_then(|family| family.get(replica));
            entry.is_none_or(|entry| {
                let idle = matches!(self.entries[*entry].phase, Phase::Idle) && !self.is_drained(*entry);
                idle && (purpose == Purpose::FanOut || self.may_come_back(now, *entry))
            })
        };
        let enough = u32::try_from(serves).is_ok_and(|n| n >= most);
        let Some(replica) = (0..most).find(is_free).filter(|_| !enough) else { return };
        if let Some(entry) = self.entry_at(now, &model, replica) {
            self.begin_attempt(now, entry, purpose);
        }
    }

    /// Whether a request waited for a slot of `entry` as long as makes another replica start.
    fn waits_long(&self, now: Now, entry: EntryId) -> bool {
        self.entries[entry].queue.iter().filter_map(|id| self.long_at(*id)).any(|at| at <= now)
    }

    /// When a ticket will have waited for a slot as long as makes another replica start.
    fn long_at(&self, id: crate::RequestId) -> Option<Now> {
        let Ticket { entry, ask, since, wait, .. } = &self.tickets[&id];
        let serving = self.entries[*entry].serving().filter(|s| !s.drain.is_active())?;
        let counts = ask.want == Want::Lease && *wait == Wait::Turn && ask.replica.is_none();
        let from = serving.ready_at.max(*since);
        (counts && ask.holder.lane != Lane::Ambient).then(|| from.after(self.config.scale.fan_out_after))
    }

    /// Nobody wanted its engine gone for a reason that still holds.
    fn may_come_back(&self, now: Now, entry: EntryId) -> bool {
        self.comes_back_at(entry).is_some_and(|at| at <= now)
    }

    /// From when on an engine that was stopped may come back by itself; `None`: it was somebody's wish, and waits for
    /// another.
    fn comes_back_at(&self, entry: EntryId) -> Option<Now> {
        let Some(exit) = &self.entries[entry].last_exit else { return Some(Now::ZERO) };
        match exit.reason {
            StopReason::User | StopReason::Idle => None,
            StopReason::Overflow | StopReason::MemoryPressure => Some(exit.ended_at.after(SHORT_OF_MEMORY)),
            _ => Some(Now::ZERO),
        }
    }

    fn bring_home(&mut self, now: Now) {
        for model in self.upkeep.home.clone() {
            for replica in 0..self.floor(&model.id) {
                let Some(entry) = self.entry_at(now, &model, replica) else { continue };
                if self.may_come_back(now, entry) {
                    self.begin_attempt(now, entry, Purpose::Home);
                }
            }
        }
    }

    /// The engines of `set` are stopped for the build of `entry`: it waits for their memory, and they come back if
    /// nothing comes of it: all but strays, which come back for nobody.
    pub(crate) fn owe(&mut self, entry: EntryId, set: &[Spawn]) {
        let stopped = set.iter().filter_map(|spawn| Some(self.teardowns.get(spawn)?.entry));
        let stopped: Vec<_> = stopped.filter(|stopped| !self.strays.contains(stopped)).collect();
        let target = &mut self.entries[entry];
        target.owes.extend(stopped);
        if let Some(waiting) = target.planned_mut() {
            waiting.evicted.extend(set);
        }
    }

    /// Nothing came of the build of `entry`: who was stopped for it may come back.
    pub(crate) fn settle_debts(&mut self, entry: EntryId) {
        let owed = std::mem::take(&mut self.entries[entry].owes);
        self.upkeep.restores.extend(owed);
    }

    /// An operator wants it gone: it does not come back by itself for what was stopped before.
    pub(crate) fn forgive_debts_to(&mut self, entry: EntryId) {
        self.upkeep.restores.remove(&entry);
        self.entries[entry].attempts.end_restore();
        for debtor in self.entries.values_mut() {
            debtor.owes.retain(|owed| *owed != entry);
        }
    }

    fn restore(&mut self, now: Now) {
        if self.upkeep.restores.is_empty() || self.somebody_builds() {
            return;
        }
        for entry in std::mem::take(&mut self.upkeep.restores) {
            let target = &self.entries[entry];
            let is_idle = match &target.phase {
                Phase::Idle => target.demand(now) > 0 || target.model.home,
                Phase::Stopping { .. } | Phase::Checking { .. } | Phase::WaitsForRoom(_) | Phase::Admission(_) => true,
                Phase::Starting(_) | Phase::Proving(_) | Phase::Ready(_) => false,
            };
            if is_idle {
                // Until it is there, or was not used for long enough: the load may be tried once more meanwhile.
                self.begin_attempt(now, entry, Purpose::Restore);
                self.upkeep.restores.insert(entry);
            }
        }
    }

    fn begin_ambient(&mut self, now: Now) {
        for entry in self.ambient_entries() {
            let quiet = self.quiet(now, entry) == Quiet::Enough;
            match &self.entries[entry].phase {
                Phase::Idle if quiet => {
                    self.begin_attempt(now, entry, Purpose::Ambient);
                }
                Phase::Ready(serving) if quiet && !serving.is_shut() => self.serve(now, entry),
                _ => {}
            }
        }
    }

    /// Entries for which ambient work waits.
    fn ambient_entries(&self) -> BTreeSet<EntryId> {
        self.tickets.values().filter(|t| t.ask.holder.lane == Lane::Ambient).map(|t| t.entry).collect()
    }

    /// When something of this becomes due by time alone.
    pub(crate) fn upkeep_ends(&self) -> impl Iterator<Item = Now> + '_ {
        let wide = || self.upkeep.wide.iter();
        let members = wide().flat_map(|model| self.members(model));
        let slots = members.flat_map(|entry| self.entries[entry].queue.iter()).flat_map(|id| self.moves_at(*id));
        let surplus = wide().filter_map(|model| Some(self.surplus(model)?.1));
        let held_back = self.entries.values().filter(|e| e.waiting().is_some()).map(|e| e.backoff.until());
        let trying = self.entries.values().filter(|e| e.waiting().is_some() && e.attempts.is_on());
        let missing = self.missing().filter_map(|entry| {
            let target = &self.entries[entry];
            let open = target.failures.breaker.open_until(self.judged_at()).unwrap_or(Now::ZERO);
            let back_at = self.comes_back_at(entry)?;
            Some(target.attempts.due_at().max(target.backoff.until()).max(open).max(back_at))
        });
        let unused = self.by_spawn.values().filter_map(|entry| self.unload_at(*entry));
        let quiet = self.ambient_entries().into_iter().filter_map(|entry| self.quiet_from(entry));
        slots
            .chain(surplus)
            .chain(unused)
            .chain(held_back)
            .chain(trying.map(|e| e.attempts.due_at()))
            .chain(missing)
            .chain(quiet)
            .filter(|at| *at > self.judged_at())
    }

    /// When a ticket may go elsewhere, and when another replica is started for it.
    fn moves_at(&self, id: crate::RequestId) -> impl Iterator<Item = Now> {
        let since = self.tickets[&id].since.after(self.config.scale.fan_out_after);
        [Some(since), self.long_at(id)].into_iter().flatten()
    }

    /// Engines that are not there and are tried again by themselves.
    fn missing(&self) -> impl Iterator<Item = EntryId> + '_ {
        let home = self.upkeep.home.iter().map(|model| &model.id);
        let members = home.chain(self.upkeep.wide.iter()).flat_map(|model| self.members(model));
        let idle = |entry: &EntryId| matches!(self.entries[*entry].phase, Phase::Idle);
        let restores = self.upkeep.restores.iter().copied();
        members.chain(restores).chain(self.ambient_entries()).filter(idle)
    }
}
