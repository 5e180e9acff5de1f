//! What operators ask: unload, evict, release, shut down, retire.
//!
//! Every request is answered exactly once, when what it asked for is done or cannot be.
use crate::{
    Answer, Force, Pool, Refusal, RequestId,
    entry::{EntryId, Phase, Step, Ticket},
    pool::{Mode, Release},
    session::Slots,
};
use motorpool_vocab::{CloseIfIdle, EngineKey, EventKind, Lane, Now, Spawn, StopReason};

impl Pool {
    pub(crate) fn on_unload_idle(&mut self, now: Now, id: RequestId, key: &EngineKey) {
        let Some(entry) = self.by_key.get(key).copied() else { return self.reply(id, Answer::NotResident) };
        self.forgive_debts_to(entry);
        let target = &self.entries[entry];
        match &target.phase {
            Phase::Idle | Phase::Checking { .. } | Phase::WaitsForRoom(_) => self.join_reclaim(entry, id),
            Phase::Stopping { spawn } => self.join_teardown(*spawn, id),
            Phase::Admission(_) => self.reply(id, Answer::Serving(key.clone())),
            Phase::Starting(_) | Phase::Proving(_) if self.is_wanted(entry) => {
                self.reply(id, Answer::Serving(key.clone()));
            }
            Phase::Ready(s) if self.is_busy(entry) || s.gate.close_if_idle() != CloseIfIdle::Closed => {
                self.reply(id, Answer::Serving(key.clone()));
            }
            Phase::Starting(_) | Phase::Proving(_) | Phase::Ready(_) => self.stop_for(now, entry, id),
        }
    }

    pub(crate) fn on_evict(&mut self, now: Now, id: RequestId, key: &EngineKey, force: Force) {
        let Some(entry) = self.by_key.get(key).copied() else { return self.reply(id, Answer::NotResident) };
        self.forgive_debts_to(entry);
        if force == Force::Yes {
            self.refuse_all(now, entry, &Refusal::Evicted(key.clone()));
        }
        match &self.entries[entry].phase {
            Phase::Idle | Phase::Checking { .. } | Phase::WaitsForRoom(_) => self.join_reclaim(entry, id),
            Phase::Stopping { spawn } => self.join_teardown(*spawn, id),
            Phase::Admission(_) | Phase::Starting(_) | Phase::Proving(_) if self.is_wanted(entry) => {
                self.reply(id, Answer::Serving(key.clone()));
            }
            // It has no child yet, and nobody waits for one.
            Phase::Admission(_) => {
                self.withdraw(now, entry);
                self.join_reclaim(entry, id);
            }
            Phase::Ready(_) if force == Force::No => {
                let within = self.config.drain_wait;
                self.begin_drain(now, entry, |serving| {
                    serving.drain.askers.insert(id, (now.after(within), within));
                });
            }
            Phase::Starting(_) | Phase::Proving(_) | Phase::Ready(_) => self.stop_for(now, entry, id),
        }
    }

    pub(crate) fn stop_for(&mut self, now: Now, entry: EntryId, id: RequestId) {
        let Some(spawn) = self.entries[entry].spawn() else { return };
        self.tear_down(now, entry, StopReason::User);
        self.join_teardown(spawn, id);
    }

    pub(crate) fn join_teardown(&mut self, spawn: Spawn, id: RequestId) {
        if let Some(teardown) = self.teardowns.get_mut(&spawn) {
            teardown.askers.push(id);
        }
    }

    /// Nothing of `entry` runs; its bytes may not be back.
    pub(crate) fn join_reclaim(&mut self, entry: EntryId, id: RequestId) {
        match self.reclaims.all.values_mut().rev().find(|reclaim| reclaim.entry == entry) {
            Some(reclaim) => reclaim.askers.push(id),
            None => self.reply(id, Answer::NotResident),
        }
    }

    /// The operator is gone and wants no answer; what was begun for them goes on.
    pub(crate) fn forget_operator(&mut self, now: Now, id: RequestId) {
        self.forget_drain(id);
        self.forget_asker(now, id);
        let stopping = self.teardowns.values_mut().map(|t| &mut t.askers);
        let gone = self.reclaims.all.values_mut().map(|r| &mut r.askers);
        stopping.chain(gone).for_each(|askers| askers.retain(|asker| *asker != id));
        self.releases.retain(|release| release.id != id);
        if let Mode::Retiring(askers) | Mode::ShuttingDown(askers) = &mut self.mode {
            askers.retain(|asker| *asker != id);
        }
    }

    /// What only this operator wanted drained is not drained any more.
    pub(crate) fn forget_asker(&mut self, now: Now, id: RequestId) {
        let drained: Vec<_> = self.by_spawn.values().copied().collect();
        for entry in drained {
            let Some(serving) = self.entries[entry].serving_mut() else { continue };
            if serving.drain.askers.remove(&id).is_some() {
                self.end_drain_if_unwanted(now, entry);
            }
        }
    }

    pub(crate) fn on_due_askers(&mut self, now: Now) {
        let due: Vec<_> = self
            .entries
            .values()
            .filter_map(|e| Some((e.key.clone(), e.serving()?)))
            .flat_map(|(key, s)| s.drain.askers.iter().map(move |(id, terms)| (*id, key.clone(), *terms)))
            .filter(|(_, _, (until, _))| *until <= now)
            .collect();
        for (id, key, (_, within)) in due {
            self.forget_asker(now, id);
            self.reply(id, Answer::Busy { key, within });
        }
    }

    /// Engines that operators, or a reload, wanted drained, and the last lease is gone.
    pub(crate) fn end_finished_drains(&mut self, now: Now) {
        let entries: Vec<_> = self.by_spawn.values().copied().collect();
        for entry in entries {
            let Some(serving) = self.entries[entry].serving() else { continue };
            let reason = if serving.drain.askers.is_empty() { serving.drain.for_good } else { Some(StopReason::User) };
            if let Some(reason) = reason.filter(|_| serving.gate.granted() == 0) {
                self.tear_down(now, entry, reason);
            }
        }
    }

    pub(crate) fn on_release_idle(&mut self, now: Now, id: RequestId) {
        let (mut pending, mut busy) = (Vec::new(), Vec::new());
        for entry in self.by_spawn.values().copied().collect::<Vec<_>>() {
            let target = &self.entries[entry];
            let Some(serving) = target.serving() else {
                busy.push(target.key.clone());
                continue;
            };
            if self.is_busy(entry) || serving.gate.close_if_idle() != CloseIfIdle::Closed {
                busy.push(target.key.clone());
            } else {
                pending.push(serving.spawn);
                self.tear_down(now, entry, StopReason::User);
            }
        }
        self.releases.push(Release { id, pending, busy });
        self.answer_releases();
    }

    /// A child is gone or given up: releases need not wait for it.
    pub(crate) fn release_went(&mut self, spawn: Spawn) {
        self.releases.iter_mut().for_each(|release| release.pending.retain(|s| *s != spawn));
        self.answer_releases();
    }

    fn answer_releases(&mut self) {
        let (done, rest) = std::mem::take(&mut self.releases).into_iter().partition(|r| r.pending.is_empty());
        self.releases = rest;
        let done: Vec<Release> = done;
        for release in done {
            self.reply(release.id, Answer::Released(release.busy));
        }
    }

    pub(crate) fn on_retire(&mut self, now: Now, id: RequestId) {
        match &mut self.mode {
            Mode::Retiring(askers) | Mode::ShuttingDown(askers) => return askers.push(id),
            Mode::Open => self.mode = Mode::Retiring(vec![id]),
        }
        self.publish(now, EventKind::Closing);
        for (entry, _) in self.entries.iter().map(|(id, e)| (id, e.created)).collect::<Vec<_>>() {
            if let Some(serving) = self.entries[entry].serving() {
                serving.gate.close();
            }
            let loads = matches!(self.entries[entry].phase, Phase::Starting(_) | Phase::Proving(_));
            if !loads || !self.is_wanted(entry) {
                self.refuse_all(now, entry, &Refusal::Retired);
            }
        }
        let ambient = |t: &Ticket| t.ask.holder.lane == Lane::Ambient;
        for id in self.tickets.iter().filter(|(_, t)| ambient(t)).map(|(id, _)| *id).collect::<Vec<_>>() {
            self.refuse(now, id, Refusal::Retired);
        }
        self.drop_attempts(now);
    }

    pub(crate) fn on_shutdown(&mut self, now: Now, id: RequestId) {
        let mut askers = match std::mem::replace(&mut self.mode, Mode::Open) {
            Mode::Open => {
                self.publish(now, EventKind::Closing);
                vec![]
            }
            Mode::Retiring(askers) | Mode::ShuttingDown(askers) => askers,
        };
        askers.push(id);
        self.mode = Mode::ShuttingDown(askers);
        self.drop_attempts(now);
        for entry in self.entries.keys().collect::<Vec<_>>() {
            self.refuse_all(now, entry, &Refusal::ShuttingDown);
            self.tear_down(now, entry, StopReason::Shutdown);
        }
    }

    /// Somebody has no time: nothing is written, and nobody is asked to end who can be killed.
    pub(crate) fn on_kill_all(&mut self, now: Now, id: RequestId) {
        for serving in self.entries.values_mut().filter_map(|entry| entry.serving_mut()) {
            serving.slots = Slots::default();
        }
        self.on_shutdown(now, id);
        for spawn in self.teardowns.keys().copied().collect::<Vec<_>>() {
            self.kill(now, spawn);
        }
    }

    /// When the pool closes: what finished is stopped, as are loads that nobody waits for, and when nothing is left, who
    /// asked is told.
    pub(crate) fn settle_closing(&mut self, now: Now) {
        if !self.is_closing() {
            return;
        }
        for entry in self.by_spawn.values().copied().collect::<Vec<_>>() {
            let target = &self.entries[entry];
            let has_ended = match &target.phase {
                Phase::Ready(serving) => serving.gate.granted() == 0,
                Phase::Starting(_) | Phase::Proving(_) => true,
                _ => false,
            };
            if has_ended && target.queue.is_empty() {
                self.tear_down(now, entry, StopReason::Shutdown);
            }
        }
        let stuck = |t: &crate::entry::Teardown| t.step == Step::Stuck;
        if self.by_spawn.is_empty() && self.teardowns.values().all(stuck) {
            let keys: Vec<_> = self.teardowns.values().map(|t| t.key.clone()).collect();
            let (Mode::Retiring(askers) | Mode::ShuttingDown(askers)) = &mut self.mode else { return };
            for id in std::mem::take(askers) {
                self.reply(id, Answer::Ended(keys.clone()));
            }
        }
    }
}
