//! A new catalog and new terms, taken over while engines run: [`Pool::on_reload`].
//!
//! What of a model or a manifest makes a new launch is `catalog`'s to say ([`motorpool_catalog::relaunches`]); everything
//! else of them is live, and so are the terms.
//!
//! ```text
//!   the launch of an engine against what the catalog says now
//!
//!   the same ─────────────────► goes on; live keys count at once
//!   another, Checking, WaitsForRoom, Admission ─► looked at again: nothing runs, who waits stays
//!   another, Starting, Proving ────────────────► killed; who waits stays, and is built for when it is gone
//!   another, Ready ─┐                                                  changed back meanwhile: open again
//!   model gone ─────┼─► drained: its gate is closed for good ─ last lease ─► Stopping: reload ─► Idle ─► next use: anew
//!   one too many ───┘                                                          └─► no model any more: forgotten
//! ```
//!
//! An engine is a *stray* when its model is gone, or is another engine's now: its key is nobody's to build. Who waits for it
//! is refused as for an unknown model, or goes on to the new engine. It is forgotten when nothing of it is left, and taken
//! in again when its model comes back first.
//!
//! * **N1** a reload ends no lease, and refuses nobody whose model is still there and takes requests (`shut.rs`). Who waits
//!   for an engine that goes waits for its drain as for any other: from the reload on, and no longer than `drain_wait`.
//! * **N2** an engine that was launched otherwise than the catalog says takes nobody new from the reload on, and tells
//!   nobody that the model is there. So whoever waits for a changed model is served by the new one.
//! * **N3** what did not change is not stopped, drained or looked at again for it.
//! * **N4** however many reloads come, there is one child of a key at most (P1), and at the end it is launched as the last
//!   of them says: what runs is held against the newest catalog and not against the one before.
//! * **N5** a launch is made of the entry and the manifest that its files were looked at with.
//!
//! While the pool closes nothing is taken over: everything ends anyway.
use crate::{
    Answer, KeepAlive, Pool, PoolConfig, Refusal, RequestId,
    entry::{Entry, EntryId, Phase},
    failure::Failures,
};
use motorpool_catalog::{Catalog, Manifest, Model, relaunches};
use motorpool_vocab::{EngineKey, EventKind, ModelId, Now, StopReason};
use std::sync::Arc;

/// What a reload hands over.
#[derive(Clone, Debug)]
pub struct Reload {
    /// Every model and every engine, from now on.
    pub catalog: Arc<Catalog>,
    /// The terms, from now on. Its `host`, `seed`, `sessions_kept`, `on_cpu_fallback`, `check_within` and `reclaim_within`
    /// count at a start only.
    pub terms: Box<PoolConfig>,
}

/// What a reload did to what runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Engines that end for it once those they serve have finished, in the order of their keys.
    pub draining: Vec<EngineKey>,
}

/// What an engine was, or would have been, launched for.
type Made = (Arc<Model>, Arc<Manifest>);

impl Pool {
    pub(crate) fn on_reload(&mut self, now: Now, id: RequestId, reload: Reload) {
        if self.is_closing() {
            return self.reply(id, Answer::Reloaded(Reloaded::default()));
        }
        let before = std::mem::replace(&mut self.catalog, reload.catalog);
        self.take_terms(&reload.terms);
        self.upkeep.reads(&self.catalog);
        let kept = self.sort_entries();
        let outdated: Vec<EntryId> = kept.into_iter().filter(|entry| self.renew(now, *entry, &before)).collect();
        let mut draining = self.keys_of(&outdated);
        self.drain_for_good(now, &outdated, StopReason::Reload);
        for entry in self.strays.clone() {
            draining.extend(self.entries[entry].spawn().map(|_| self.entries[entry].key.clone()));
            self.dismiss(now, entry);
        }
        draining.extend(self.stop_beyond_bounds(now, &before));
        draining.sort();
        draining.dedup();
        self.publish(now, EventKind::Reloaded { draining: draining.clone() });
        self.reply(id, Answer::Reloaded(Reloaded { draining }));
    }

    fn take_terms(&mut self, terms: &PoolConfig) {
        let PoolConfig {
            policy,
            max_wait,
            min_residency,
            drain_wait,
            queue_wait,
            stall_within,
            load_within,
            polite_within,
            kill_within,
            queue,
            scale,
            on_deadline,
            on_abandon,
            load_slots,
            breaker,
            health,
            host: _,
            seed: _,
            sessions_kept: _,
            on_cpu_fallback: _,
            check_within: _,
            reclaim_within: _,
        } = *terms;
        let config = &mut self.config;
        (config.policy, config.queue, config.scale) = (policy, queue, scale);
        (config.max_wait, config.min_residency) = (max_wait, min_residency);
        (config.drain_wait, config.queue_wait) = (drain_wait, queue_wait);
        (config.stall_within, config.load_within, config.load_slots) = (stall_within, load_within, load_slots);
        (config.polite_within, config.kill_within) = (polite_within, kill_within);
        (config.on_deadline, config.on_abandon) = (on_deadline, on_abandon);
        (config.breaker, config.health) = (breaker, health);
    }

    /// Families are those of the models that there are now; who is in none is a stray. The others.
    fn sort_entries(&mut self) -> Vec<EntryId> {
        self.families.clear();
        self.strays.clear();
        let mut kept = Vec::new();
        for (key, entry) in &self.by_key {
            let engine = self.catalog.model(key.model()).map(|model| model.engine.as_str());
            if engine == Some(key.provider()) {
                self.families.entry(key.model().clone()).or_default().insert(key.replica(), *entry);
                kept.push(*entry);
                if key.replica() > 0 {
                    self.upkeep.widen(key.model());
                }
            } else {
                self.strays.insert(*entry);
            }
        }
        kept
    }

    /// The entry is of its model as it is now. Whether an engine of it runs that was launched for another one, and so goes.
    fn renew(&mut self, now: Now, entry: EntryId, before: &Catalog) -> bool {
        let Some((model, manifest)) = self.made_now(&self.entries[entry].key) else { return false };
        let made = self.made_of(entry, before);
        let target = &mut self.entries[entry];
        let was = std::mem::replace(&mut target.model, Arc::clone(&model));
        if let Some(serving) = target.serving_mut()
            && serving.keep == KeepAlive::of_model(was.idle_ttl)
        {
            serving.keep = KeepAlive::of_model(model.idle_ttl);
        }
        let is_another = made.is_none_or(|(old, with)| relaunches((&old, &with), (&model, &manifest)));
        if !is_another {
            self.goes_on(now, entry, &model);
            return false;
        }
        self.forgive(entry);
        match &self.entries[entry].phase {
            Phase::Idle | Phase::Stopping { .. } => return false,
            Phase::Checking { .. } | Phase::WaitsForRoom(_) | Phase::Admission(_) => {
                self.look_again(now, entry);
                return false;
            }
            Phase::Starting(_) | Phase::Proving(_) => self.tear_down(now, entry, StopReason::Reload),
            Phase::Ready(_) => {}
        }
        true
    }

    /// What a launch of this key would be made of now.
    fn made_now(&self, key: &EngineKey) -> Option<Made> {
        let model = self.catalog.model(key.model())?;
        Some((Arc::clone(model), Arc::clone(self.catalog.manifest(&model.engine)?)))
    }

    /// What the child of `entry` was launched for, or what its build was looked at with.
    fn made_of(&self, entry: EntryId, before: &Catalog) -> Option<Made> {
        let target = &self.entries[entry];
        let launch = match target.admission() {
            Some(admission) => Some(&admission.launch),
            None => target.spawn().and_then(|spawn| self.launches.get(&spawn)),
        };
        match launch {
            Some(launch) => Some((Arc::clone(&launch.model), Arc::clone(&launch.manifest))),
            None => Some((Arc::clone(&target.model), Arc::clone(before.manifest(&target.model.engine)?))),
        }
    }

    /// What runs is what would be launched: one that was to go for another reload stays.
    fn goes_on(&mut self, now: Now, entry: EntryId, model: &Model) {
        let replica = self.entries[entry].key.replica();
        let Some(serving) = self.entries[entry].serving_mut() else { return };
        let is_back = match serving.drain.for_good {
            None => false,
            Some(StopReason::ScaleDown) => replica < model.replicas.max,
            Some(_) => true,
        };
        if is_back {
            serving.drain.for_good = None;
            self.end_drain_if_unwanted(now, entry);
        }
    }

    /// What failed before may be right now.
    fn forgive(&mut self, entry: EntryId) {
        let target = &mut self.entries[entry];
        target.failures = Failures::default();
        target.backoff.succeeded();
        target.attempts.hurry();
        target.attempts.tell_anew();
    }

    /// All gates are closed before anybody goes to a sibling, so that nobody goes to one that is going, too.
    fn drain_for_good(&mut self, now: Now, going: &[EntryId], reason: StopReason) {
        let mut begun = Vec::new();
        for entry in going {
            let Some(serving) = self.entries[*entry].serving_mut() else { continue };
            if serving.drain.for_good.replace(reason).is_none() {
                serving.gate.close();
                begun.push(*entry);
            }
        }
        for entry in begun {
            self.move_to_sibling(now, entry);
            // Whoever waited long enough for another drain would be refused: this one is waited for anew.
            self.wait_for_turn(entry);
            for id in self.entries[entry].queue.clone() {
                self.wait_on_drain(now, id);
            }
            let holders = self.held(entry).into_iter().map(|held| held.holder).collect();
            let key = self.entries[entry].key.clone();
            self.publish(now, EventKind::DrainBegan { key, holders });
        }
    }

    /// The engine of a stray goes, and whoever waits for it goes on to the engine that its model has now.
    fn dismiss(&mut self, now: Now, entry: EntryId) {
        self.forgive_debts_to(entry);
        let target = &mut self.entries[entry];
        // Nothing of it is to stay for what it once was.
        let stays = Arc::make_mut(&mut target.model);
        (stays.pinned, stays.home) = (false, false);
        target.attempts.end();
        let (model, replica) = (target.key.model().clone(), target.key.replica());
        let heir = self.catalog.model(&model).cloned().and_then(|model| self.entry_at(now, &model, replica));
        match heir {
            Some(heir) => {
                let going = self.entries[entry].queue.iter().copied().collect();
                self.go_to(now, heir, going);
            }
            None => self.refuse_all(now, entry, &Refusal::UnknownModel(model)),
        }
        match &self.entries[entry].phase {
            Phase::Idle | Phase::Stopping { .. } => {}
            Phase::Checking { .. } => self.entries[entry].phase = Phase::Idle,
            Phase::WaitsForRoom(_) => self.abandon_waiting(now, entry),
            Phase::Admission(_) => self.withdraw(now, entry),
            Phase::Starting(_) | Phase::Proving(_) => self.tear_down(now, entry, StopReason::Reload),
            Phase::Ready(_) => self.drain_for_good(now, &[entry], StopReason::Reload),
        }
        self.settle_debts(entry);
    }

    /// These wait for `entry` from now on; where an operator has drained that, as if they had just come (D1).
    fn go_to(&mut self, now: Now, entry: EntryId, going: Vec<RequestId>) {
        let mut arrived = Vec::new();
        for id in going {
            let Some(ask) = self.tickets.get(&id).map(|ticket| ticket.ask.clone()) else { continue };
            match self.admitting(now, entry, &ask) {
                Ok(to) => {
                    self.rehome(id, to);
                    arrived.push((to, id));
                }
                Err(refusal) => self.refuse(now, id, refusal),
            }
        }
        for (to, id) in arrived {
            // The one before may have been the last that an open breaker lets wait.
            if self.tickets.contains_key(&id) {
                self.attend(now, to, id);
            }
        }
    }

    /// So many engines a model may have: as it says itself, or more where an operator wants more.
    pub(crate) fn most_of(&self, model: &Model) -> u32 {
        self.upkeep.targets.get(&model.id).copied().unwrap_or(0).max(model.replicas.max)
    }

    /// Replicas that were within the bound of their model and are not any more, unless an operator wants so many.
    fn stop_beyond_bounds(&mut self, now: Now, before: &Catalog) -> Vec<EngineKey> {
        let mut beyond = Vec::new();
        for model in self.catalog.models().cloned().collect::<Vec<_>>() {
            let most_before = before.model(&model.id).map_or(0, |old| old.replicas.max);
            let most = self.most_of(&model);
            let Some(family) = self.family(&model.id).filter(|_| most < most_before) else { continue };
            beyond.extend(family.range(most..most_before).map(|(_, entry)| *entry));
        }
        for entry in &beyond {
            self.send_home(now, *entry);
        }
        let serving = |entry: &EntryId| self.entries[*entry].serving().is_some();
        let ready: Vec<EntryId> = beyond.into_iter().filter(serving).collect();
        self.drain_for_good(now, &ready, StopReason::ScaleDown);
        self.keys_of(&ready)
    }

    /// Nobody is built for on a replica that is one too many, but who asked for that one.
    fn send_home(&mut self, now: Now, entry: EntryId) {
        let (model, replica) = (self.entries[entry].model.clone(), self.entries[entry].key.replica());
        self.sessions.forget_replica(&model.id, replica);
        self.entries[entry].attempts.end();
        let Some(first) = self.entry_at(now, &model, 0) else { return };
        let free = |id: &RequestId| self.tickets[id].ask.replica.is_none();
        let going = self.entries[entry].queue.iter().copied().filter(free).collect();
        self.go_to(now, first, going);
        match &self.entries[entry].phase {
            _ if self.is_wanted(entry) => {}
            Phase::Idle | Phase::Stopping { .. } | Phase::Checking { .. } | Phase::Ready(_) => {}
            Phase::WaitsForRoom(_) => self.abandon_waiting(now, entry),
            Phase::Admission(_) => self.withdraw(now, entry),
            Phase::Starting(_) | Phase::Proving(_) => self.tear_down(now, entry, StopReason::ScaleDown),
        }
    }

    fn keys_of(&self, entries: &[EntryId]) -> Vec<EngineKey> {
        entries.iter().map(|entry| self.entries[*entry].key.clone()).collect()
    }

    /// The replica that a request goes to which would have gone to `picked`: none that takes nobody new, where there may be
    /// another.
    pub(crate) fn instead_of_one_that_goes(&self, model: &Model, picked: u32) -> u32 {
        let family = self.family(&model.id);
        let goes = |replica: u32| {
            family.and_then(|family| family.get(&replica)).is_some_and(|entry| self.entries[*entry].goes_for_good())
        };
        if !goes(picked) {
            return picked;
        }
        let last = model.replicas.max.saturating_sub(1);
        (0..=last).find(|replica| !goes(*replica)).unwrap_or(picked.min(last))
    }

    /// The key of `entry` is free: who waits for a sibling that takes nobody new waits here.
    pub(crate) fn take_over(&mut self, entry: EntryId) {
        let is_of_use = self.entries[entry].key.replica() < self.entries[entry].model.replicas.max;
        if self.strays.contains(&entry) || !is_of_use || self.is_drained(entry) {
            return;
        }
        let goes = |other: &EntryId| self.entries[*other].goes_for_good();
        let waiting = self.siblings(entry).filter(goes).flat_map(|other| self.entries[other].queue.iter().copied());
        let free = waiting.filter(|id| self.tickets[id].ask.replica.is_none());
        for id in free.collect::<Vec<_>>() {
            self.rehome(id, entry);
        }
    }

    /// Strays of which nothing is left are forgotten.
    pub(crate) fn forget_strays(&mut self) {
        for entry in self.strays.clone() {
            let Entry { phase, queue, key, .. } = &self.entries[entry];
            let is_over = matches!(phase, Phase::Idle) && queue.is_empty();
            let is_left = self.teardowns.values().any(|teardown| teardown.entry == entry)
                || self.reclaims.all.values().any(|reclaim| reclaim.entry == entry);
            if !is_over || is_left {
                continue;
            }
            let (key, model) = (key.clone(), key.model().clone());
            self.strays.remove(&entry);
            self.forgive_debts_to(entry);
            self.by_key.remove(&key);
            self.entries.remove(entry);
            self.forget_model(&model);
        }
    }

    /// Nothing is remembered of a model that is not there.
    fn forget_model(&mut self, model: &ModelId) {
        if self.catalog.model(model).is_none() {
            self.sessions.forget_model(model);
        }
    }
}
