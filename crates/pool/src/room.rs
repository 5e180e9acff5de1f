//! Room for waiting builds: who goes, who is drained, when a drain is given up.
//!
//! [`Pool::settle`] runs after every input. It walks the builds that wait for room in the order in which they began
//! to; each is judged by [`pick_room`] with its elders' claims taken and what leaves for them gone. What is drained
//! for a build follows from that judgement anew each time, so a drain that is no longer needed ends by itself.
use crate::{
    Denial, Pool,
    build::Growth,
    entry::{Admission, Admitting, EntryId, Evicted, Phase, Serving, Step, Waiting},
};
use motorpool_broker::{
    Candidate, Measured, Proof, Query, RefusedContext, Room, Standing, Which, pick_room, refused_context,
};
use motorpool_vocab::{Bytes, Claim, CloseIfIdle, EngineKey, EventKind, Now, Spawn, StopReason};
use std::{collections::BTreeSet, time::Duration};

/// What the builds judged so far have laid claim to.
#[derive(Default)]
pub(crate) struct Spoken {
    pub(crate) claims: Vec<Claim>,
    pub(crate) drains: BTreeSet<EntryId>,
}

impl Pool {
    pub(crate) fn settle(&mut self, now: Now) {
        self.end_finished_drains(now);
        // Whoever is served now protects its engine from nobody any more.
        self.serve_elsewhere(now);
        self.settle_overflow(now);
        let mut spoken = Spoken::default();
        for entry in self.waiting_in_order() {
            self.settle_build(now, entry, &mut spoken);
        }
        self.settle_admissions(now);
        self.settle_slots(now);
        self.upkeep(now);
        self.settle_closing(now);
        self.forget_strays();
    }

    pub(crate) fn waiting_in_order(&self) -> Vec<EntryId> {
        let mut order: Vec<_> =
            self.entries.iter().filter_map(|(id, e)| e.waiting().map(|w| (self.place_of(id, w), id))).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, id)| id).collect()
    }

    /// Those that nobody waits for come last.
    fn place_of(&self, entry: EntryId, waiting: &Waiting) -> impl Ord + use<> {
        (self.is_background(entry), waiting.turn, waiting.build)
    }

    fn settle_build(&mut self, now: Now, entry: EntryId, spoken: &mut Spoken) {
        if self.is_background(entry) {
            return self.settle_attempt(now, entry, spoken);
        }
        let Some(mut room) = self.judge(now, entry, spoken) else { return };
        if self.is_drafted_anew(entry, &room) {
            let Some(again) = self.judge(now, entry, spoken) else { return };
            room = again;
        }
        self.note_placement(entry, &room);
        if room.placement().is_some_and(|placement| self.is_paused(now, &placement.claim)) {
            return self.refuse_paused(now, entry);
        }
        if !matches!(room, Room::Fits(_)) && self.is_better_elsewhere(now, entry, &room) {
            return;
        }
        match room {
            Room::Fits(placement) if self.is_held_back(now, entry) => {
                spoken.claims.push(placement.claim);
            }
            Room::Fits(placement) => {
                self.drain_for(now, entry, &BTreeSet::new());
                // Those who waited may all have been served by what is not drained any more.
                if self.entries[entry].waiting().is_some() {
                    self.admit(now, entry, placement);
                }
            }
            Room::Never(proof) => {
                self.drain_for(now, entry, &BTreeSet::new());
                if self.entries[entry].waiting().is_some() {
                    self.deny(now, entry, proof);
                }
            }
            Room::Wait(placement) => {
                self.drain_for(now, entry, &BTreeSet::new());
                spoken.claims.push(placement.claim);
            }
            Room::Evict { set, .. } | Room::Drain { set, .. } if self.withdraw_attempts(now, &set) > 0 => {
                return self.settle_build(now, entry, spoken);
            }
            Room::Evict { set, placement } => {
                if self.evict_idle(now, &set, StopReason::Evicted) == Evicted::All {
                    self.owe(entry, &set);
                    self.drain_for(now, entry, &BTreeSet::new());
                }
                spoken.claims.push(placement.claim);
            }
            Room::Drain { set, placement } => {
                // Those that drained already stay closed: let in again, they would never all be empty together.
                let drained = |e: &EntryId| self.is_busy(*e) || self.entries[*e].is_draining();
                let wanted: BTreeSet<_> = set.iter().filter_map(|s| self.entry_of(*s)).filter(drained).collect();
                self.drain_for(now, entry, &wanted);
                spoken.claims.push(placement.claim);
            }
        }
        spoken.drains.extend(self.entries[entry].waiting().into_iter().flat_map(|w| w.drains.iter().copied()));
    }

    /// Whether the build of `entry` leaves the room that there is alone for now.
    fn is_held_back(&self, now: Now, entry: EntryId) -> bool {
        let waits = self.entries[entry].waiting().is_some_and(|w| now < w.not_before);
        waits || self.awaits_dead(entry)
    }

    /// Where `room` is none as drafted, the build may be drafted anew. Whether it is another draft now.
    pub(crate) fn is_drafted_anew(&mut self, entry: EntryId, room: &Room) -> bool {
        // Nobody goes or waits for more context than would be enough.
        let grown = self.entries[entry].waiting().is_some_and(|w| w.draft.grown_from.is_some());
        let growth = if grown && !matches!(room, Room::Fits(_)) { Some(Growth::Never) } else { None };
        let growth = growth.or(matches!(room, Room::Never(_)).then_some(Growth::May));
        growth.is_some_and(|growth| self.draft_anew(entry, growth))
    }

    pub(crate) fn note_placement(&mut self, entry: EntryId, room: &Room) {
        if let Some(waiting) = self.entries[entry].waiting_mut() {
            waiting.placement = room.placement().cloned();
        }
    }

    /// What is to be done for the build of `entry`, if it waits for room.
    pub(crate) fn judge(&self, now: Now, entry: EntryId, spoken: &Spoken) -> Option<Room> {
        let waiting = self.entries[entry].waiting()?;
        let leaving: Vec<Spawn> = self.leaving().map(|(spawn, _)| spawn).collect();
        let draining: Vec<Spawn> = spoken.drains.iter().filter_map(|e| self.entries[*e].spawn()).collect();
        let query = Query {
            load: &waiting.draft.load,
            elders: &spoken.claims,
            leaving: &leaving,
            draining: &draining,
            fixed: &self.fixed_spawns(),
            policy: self.config.policy,
        };
        let candidates: Vec<_> =
            self.by_spawn.values().filter_map(|victim| self.candidate(now, entry, *victim, spoken)).collect();
        Some(pick_room(&self.ledger, &query, &candidates))
    }

    /// Children on their way out, whose bytes will come back.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = (Spawn, &EngineKey)> + '_ {
        let stopping = self.teardowns.iter().filter(|(_, t)| t.step != Step::Stuck).map(|(spawn, t)| (*spawn, &t.key));
        stopping.chain(self.reclaims.all.iter().map(|(spawn, r)| (*spawn, &r.key)))
    }

    /// Who never leaves by itself: pinned engines, and children that cannot be killed.
    pub(crate) fn fixed_spawns(&self) -> Vec<Spawn> {
        let pinned = self.entries.values().filter(|e| e.model.pinned).filter_map(super::entry::Entry::spawn);
        let stuck = self.teardowns.iter().filter(|(_, t)| t.step == Step::Stuck).map(|(spawn, _)| *spawn);
        pinned.chain(stuck).collect()
    }

    /// `victim` as a candidate for the build of `entry`, unless something protects it from that build.
    fn candidate(&self, now: Now, entry: EntryId, victim: EntryId, spoken: &Spoken) -> Option<Candidate> {
        if spoken.drains.contains(&victim) {
            return None;
        }
        let attempt = || self.attempt_as_candidate(victim);
        self.candidate_unless(now, victim, || self.is_protected(now, entry, victim)).or_else(attempt)
    }

    /// A build that nobody waits for, and that has not begun to load, stands before every engine: nothing is lost.
    fn attempt_as_candidate(&self, victim: EntryId) -> Option<Candidate> {
        let target = &self.entries[victim];
        let waits = |admission: &&Admission| admission.step == Admitting::WaitsForSlot;
        let admission = target.admission().filter(waits).filter(|_| self.is_background(victim))?;
        let (key, standing, reload) = (target.key.clone(), Standing::Idle, Duration::ZERO);
        Some(Candidate { spawn: admission.spawn, key, standing, hits: 0, last_use: Now::ZERO, reload })
    }

    /// Builds among `set` that have no child yet give their lines back at once. How many.
    fn withdraw_attempts(&mut self, now: Now, set: &[Spawn]) -> usize {
        let of_it = |spawn: &Spawn| self.entry_of(*spawn).filter(|entry| self.entries[*entry].admission().is_some());
        let going: Vec<_> = set.iter().filter_map(of_it).collect();
        let n = going.len();
        for entry in going {
            self.withdraw(now, entry);
        }
        n
    }

    /// `victim` as a candidate; a busy one only if it is not protected.
    pub(crate) fn candidate_unless(
        &self,
        now: Now,
        victim: EntryId,
        is_protected: impl FnOnce() -> bool,
    ) -> Option<Candidate> {
        let target = &self.entries[victim];
        let serving = target.serving().filter(|_| !target.model.pinned)?;
        let standing = match (self.is_busy(victim), serving.drain.is_active()) {
            (true, true) => Standing::Draining,
            (false, true) => Standing::Drained,
            (false, false) => Standing::Idle,
            (true, false) if is_protected() => return None,
            (true, false) => Standing::Busy,
        };
        Some(Candidate {
            spawn: serving.spawn,
            key: target.key.clone(),
            standing,
            hits: target.demand(now),
            last_use: target.last_use.unwrap_or(serving.ready_at),
            reload: serving.ready_at.since(serving.ordered_at),
        })
    }

    /// A lease, or a ticket that the engine can serve (one of a draining engine waits for the drain, not for it).
    pub(crate) fn is_busy(&self, entry: EntryId) -> bool {
        let target = &self.entries[entry];
        target.serving().is_some_and(|s| s.gate.granted() > 0 || !s.drain.is_active() && self.is_wanted(entry))
    }

    /// A busy engine is not drained while fresh, for less important work, or past older tickets; after the maximum
    /// wait none of these holds (pool.md §3).
    fn is_protected(&self, now: Now, entry: EntryId, victim: EntryId) -> bool {
        let (waiter, target) = (&self.entries[entry], &self.entries[victim]);
        let (Some(waiting), Some(serving)) = (waiter.waiting(), target.serving()) else { return true };
        let overdue = now.since(waiting.since) >= self.config.max_wait;
        let fresh = now.since(serving.ready_at) < self.config.min_residency;
        let older = target.queue.first() < waiter.queue.first() && !target.queue.is_empty();
        !overdue && (fresh || older || target.model.priority > self.importance(entry))
    }

    /// When a protection ends by time alone: a deadline, or a waiting build would never look again.
    pub(crate) fn protection_ends(&self) -> impl Iterator<Item = Now> + '_ {
        let waits: Vec<Now> =
            self.entries.values().filter_map(|e| Some(e.waiting()?.since.after(self.config.max_wait))).collect();
        let fresh = |s: &Serving| s.ready_at.after(self.config.min_residency);
        let residencies: Vec<Now> = if waits.is_empty() {
            vec![]
        } else {
            self.entries.values().filter_map(|e| e.serving()).map(fresh).collect()
        };
        waits.into_iter().chain(residencies).filter(|at| *at > self.judged_at())
    }

    /// Stops idle engines, all or none: one that somebody entered meanwhile makes its leave or entry an input, and
    /// the judgement is made again then.
    pub(crate) fn evict_idle(&mut self, now: Now, set: &[Spawn], reason: StopReason) -> Evicted {
        let victims: Vec<_> = set.iter().filter_map(|spawn| self.entry_of(*spawn)).collect();
        let close = |pool: &Self, victim: &EntryId| {
            pool.entries[*victim].serving().map(|s| s.gate.close_if_idle()) == Some(CloseIfIdle::Closed)
        };
        let closed: Vec<_> = victims.iter().copied().take_while(|victim| close(self, victim)).collect();
        if closed.len() == victims.len() {
            for victim in victims {
                self.tear_down(now, victim, reason);
            }
            Evicted::All
        } else {
            for victim in closed {
                self.reopen_unless_drained(now, victim);
            }
            Evicted::None
        }
    }

    pub(crate) fn reopen_unless_drained(&mut self, now: Now, entry: EntryId) {
        let closing = self.is_closing();
        let Some(serving) = self.entries[entry].serving() else { return };
        if !serving.is_shut() && !closing {
            let gate = serving.gate.clone();
            // In this order: whoever waits here goes before whoever finds the gate open.
            self.serve(now, entry);
            gate.reopen();
        }
    }

    /// From now on exactly `wanted` is drained for the build of `entry`.
    pub(crate) fn drain_for(&mut self, now: Now, entry: EntryId, wanted: &BTreeSet<EntryId>) {
        let Some(waiting) = self.entries[entry].waiting_mut() else { return };
        let before = std::mem::replace(&mut waiting.drains, wanted.clone());
        for victim in before.difference(wanted) {
            self.stop_draining_for(now, *victim, entry);
        }
        for victim in wanted.difference(&before) {
            self.begin_drain(now, *victim, |serving| {
                serving.drain.waiters.insert(entry);
            });
        }
        if wanted.is_empty() {
            self.wait_for_turn(entry);
        } else {
            for id in self.entries[entry].queue.clone() {
                self.wait_on_drain(now, id);
            }
        }
    }

    /// Closes the gate of `victim` and enters who wants it drained; its own tickets wait on the drain.
    pub(crate) fn begin_drain(&mut self, now: Now, victim: EntryId, enter: impl FnOnce(&mut Serving)) {
        let Some(serving) = self.entries[victim].serving_mut() else { return };
        let began = !serving.drain.is_active();
        serving.gate.close();
        enter(serving);
        self.move_to_sibling(now, victim);
        for id in self.entries[victim].queue.clone() {
            self.wait_on_drain(now, id);
        }
        if began {
            let holders = self.held(victim).into_iter().map(|held| held.holder).collect();
            let key = self.entries[victim].key.clone();
            self.publish(now, EventKind::DrainBegan { key, holders });
        }
    }

    fn stop_draining_for(&mut self, now: Now, victim: EntryId, waiter: EntryId) {
        if let Some(serving) = self.entries[victim].serving_mut() {
            serving.drain.waiters.remove(&waiter);
            self.end_drain_if_unwanted(now, victim);
        }
    }

    /// The last drainer to give up opens the gate again.
    pub(crate) fn end_drain_if_unwanted(&mut self, now: Now, victim: EntryId) {
        let unwanted = self.entries[victim].serving().is_some_and(|s| !s.drain.is_active());
        if unwanted {
            self.wait_for_turn(victim);
            self.reopen_unless_drained(now, victim);
            let key = self.entries[victim].key.clone();
            self.publish(now, EventKind::DrainGivenUp { key });
        }
    }

    /// Nobody waits for this build any more.
    pub(crate) fn abandon_waiting(&mut self, now: Now, entry: EntryId) {
        self.drain_for(now, entry, &BTreeSet::new());
        self.entries[entry].phase = Phase::Idle;
        self.entries[entry].attempts.end();
        self.settle_debts(entry);
    }

    fn deny(&mut self, now: Now, entry: EntryId, proof: Proof) {
        let denial = self.denial_for(entry, proof);
        self.tell_denied(now, entry, denial);
    }

    /// Why there will be no room for the build of `entry`.
    pub(crate) fn denial_for(&self, entry: EntryId, proof: Proof) -> Denial {
        let key = self.entries[entry].key.clone();
        let denial = match self.withheld_from(entry, &proof) {
            Some(measured) => Denial::measured(key, proof.claim, measured, self.ledger.bounds()),
            None => self.denial_of(key, proof).of_context(self.refused_context(entry)),
        };
        denial.beside(self.ledger.committed())
    }

    /// What the driver has not given back of what was stopped for this build, when that is why there is no room.
    fn withheld_from(&self, entry: EntryId, proof: &Proof) -> Option<Measured> {
        let (Which::Device(device), waiting) = (&proof.excess.which, self.entries[entry].waiting()?) else {
            return None;
        };
        let figures = self.sights.figures(device).filter(|_| waiting.withheld.contains(device))?;
        let required = proof.claim.device.get(device).copied()?;
        Some(Measured { device: device.clone(), required, free: figures.free, cause: self.cause(waiting, device) })
    }

    /// The context that the build of `entry` is refused for, if it is that.
    fn refused_context(&self, entry: EntryId) -> Option<RefusedContext> {
        let target = &self.entries[entry];
        let waiting = target.waiting()?;
        let subject = self.subject_of(entry, &waiting.facts);
        refused_context(&self.ledger, (&subject, &waiting.draft))
    }

    pub(crate) fn denial_of(&self, key: EngineKey, proof: Proof) -> Denial {
        let holders = self.fixed_holders(&proof.excess.which);
        let tenants = match &proof.excess.which {
            Which::Device(id) => self.tenants(id),
            // It would be elsewhere, if there were room on the cards.
            Which::SystemMemory => self.tenants_of_cards(),
            Which::Total | Which::CoResidency => vec![],
        };
        // The budget of a machine without cards is one of its system memory.
        let is_of_ram = match &proof.excess.which {
            Which::SystemMemory => true,
            Which::Total => self.ledger.bounds().cards.is_empty(),
            Which::Device(_) | Which::CoResidency => false,
        };
        let servers = if is_of_ram { self.sights.servers().to_vec() } else { vec![] };
        // Who does not fit on one card might on another.
        let lost = match &proof.excess.which {
            Which::Device(_) | Which::SystemMemory | Which::Total => self.lost_cards(),
            Which::CoResidency => vec![],
        };
        let denial = Denial::new(key, proof, self.ledger.bounds()).with_holders(holders).with_tenants(tenants);
        denial.with_servers(servers).with_lost(lost).beside(self.ledger.committed())
    }

    /// Who has some of what `which` bounds and never leaves by itself.
    fn fixed_holders(&self, which: &Which) -> Vec<(EngineKey, Bytes)> {
        let key_of = |spawn: &Spawn| {
            let living = self.entry_of(*spawn).map(|e| self.entries[e].key.clone());
            living.or_else(|| self.teardowns.get(spawn).map(|t| t.key.clone()))
        };
        let held = |claim: &Claim| match which {
            Which::Total => claim.total(),
            Which::CoResidency => claim.accelerated,
            Which::Device(id) => claim.device.get(id).copied().unwrap_or_default(),
            Which::SystemMemory => claim.total().saturating_sub(Bytes::sum(claim.device.values().copied())),
        };
        let line = |spawn: Spawn| Some((key_of(&spawn)?, held(self.ledger.line(spawn)?)));
        self.fixed_spawns().into_iter().filter_map(line).filter(|(_, bytes)| !bytes.is_zero()).collect()
    }
}
