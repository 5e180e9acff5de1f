//! The last gate before a start: what the driver says, inside the load slot (capacity.md §5, measured check).
//!
//! ```text
//!   WaitsForSlot ──► Looks ──► passes ─────────────────────────────► the child is ordered
//!        │            │  ▲ └─► short ─► AwaitsMemory (own victims) ─┐
//!        │            │  └────────────────── it is back, or too late ┘
//!        │            │        short and nothing left to do ─► denied
//!        │            └─► the card is unknown now ─► waits for room again
//!        └─ everybody left, retire, shutdown: the line is given back (from each of them)
//! ```
//!
//! Only where budgets are enforced and cards have memory of their own, and only where something is claimed on one:
//! everything else is started as soon as it has its slot. On each card what is needed is the claim there, never more
//! than its share; it passes with what is free, less what other engines that start claimed and have not taken, and
//! 1 GiB, which drivers and estimates may be wrong by.
//!
//! * The look begins after it was asked for: nothing older counts. One that does not come within 5 s is none.
//! * A card that cannot be read is judged by the ledger alone as long as it is trusted; then nothing goes there.
//! * What this build itself had stopped is waited for: B4's own wait, which ends (`reclaim.rs`).
//! * Room is made by a measured shortfall once, and only by a set of idle engines that suffices and that may be stopped
//!   for this build: not while its backoff holds, and for none that nobody waits for (`attempt.rs`). Others are not
//!   waited for.
//! * What is short then is denied; its line was never a grant of memory that is not there.
use crate::{
    Action, Pool, Refusal, Tenant,
    build::Growth,
    entry::{Admission, Admitting, EntryId, Evicted, MadeRoom, Phase, Waiting},
};
use motorpool_broker::{Candidate, Cause, Denial, HostShape, Measured, RefusedContext, pick_measured};
use motorpool_vocab::{Bytes, Claim, DeviceId, EventKind, Now, Spawn, StopReason};
use std::{collections::BTreeMap, time::Duration};

/// What drivers and estimates may be wrong by.
const SLACK: Bytes = Bytes::gib(1);
/// A look that takes longer is none.
const LOOK_WITHIN: Duration = Duration::from_secs(5);
/// So many tenants of a card are named.
const TENANTS_MOST: usize = 3;

/// What is needed on a card, and what there is for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short {
    required: Bytes,
    free: Bytes,
}

/// What the last look says of a build.
enum Verdict {
    Passes,
    /// A card is not known any more.
    Unknown,
    Short(BTreeMap<DeviceId, Short>),
}

impl Pool {
    /// It has its slots.
    pub(crate) fn begin_last_checks(&mut self, now: Now, entry: EntryId) {
        let Some(admission) = self.entries[entry].admission() else { return };
        if self.is_paused(now, &admission.launch.claim) {
            return self.refuse_paused(now, entry);
        }
        if self.required(&admission.launch.claim).is_empty() {
            self.launch(now, entry);
        } else {
            self.look_for(now, entry);
        }
    }

    fn look_for(&mut self, now: Now, entry: EntryId) {
        if let Some(admission) = self.entries[entry].admission_mut() {
            admission.step = Admitting::Looks { asked_at: now, until: now.after(LOOK_WITHIN) };
            self.act(Action::Look);
        }
    }

    /// What is needed on each card, where that is checked at all.
    fn required(&self, claim: &Claim) -> BTreeMap<DeviceId, Bytes> {
        let bounds = self.ledger.bounds();
        if bounds.shape != HostShape::DiscreteGpu || bounds.budget.bound().is_none() {
            return BTreeMap::new();
        }
        let share = |id: &DeviceId| Some(bounds.cards.iter().find(|card| card.id == *id)?.share);
        let required = claim.device.iter().filter_map(|(id, bytes)| Some((id.clone(), (*bytes).min(share(id)?))));
        required.filter(|(_, bytes)| !bytes.is_zero()).collect()
    }

    /// A look that began at `begun_at` came: whoever waits for one like it is judged, in the order of their lines.
    pub(crate) fn check_admissions(&mut self, now: Now, begun_at: Now) {
        let waits = |(_, step): &(EntryId, Admitting)| matches!(step, Admitting::Looks { asked_at, .. } if *asked_at <= begun_at);
        for (entry, _) in self.admissions().into_iter().filter(waits) {
            self.check(now, entry);
        }
    }

    pub(crate) fn on_due_looks(&mut self, now: Now) {
        let late = |(_, step): &(EntryId, Admitting)| matches!(step, Admitting::Looks { until, .. } if *until <= now);
        for (entry, _) in self.admissions().into_iter().filter(late) {
            if self.is_no_place(entry) {
                self.back_to_room(now, entry);
            } else {
                // Nobody knows what is free there: the ledger alone decides.
                self.launch(now, entry);
            }
        }
    }

    /// Whether nothing new may go to one of the cards of a build any more.
    fn is_no_place(&self, entry: EntryId) -> bool {
        let claim = self.entries[entry].admission().map(|admission| &admission.launch.claim);
        claim.is_some_and(|claim| claim.device.keys().any(|id| self.is_unknown(id)))
    }

    /// Builds whose cards are gone wait for room again.
    pub(crate) fn readmit(&mut self, now: Now) {
        for (entry, _) in self.admissions() {
            if self.is_no_place(entry) {
                self.back_to_room(now, entry);
            }
        }
    }

    /// Whoever waited for its own victims' memory looks again once that is back, or too late.
    pub(crate) fn settle_admissions(&mut self, now: Now) {
        for (entry, _) in self.admissions().into_iter().filter(|(_, step)| *step == Admitting::AwaitsMemory) {
            if !self.awaits_memory(entry) {
                self.look_for(now, entry);
            }
        }
    }

    fn admissions(&self) -> Vec<(EntryId, Admitting)> {
        let of = self.entries.iter().filter_map(|(id, e)| e.admission().map(|a| (a.spawn, id, a.step)));
        let mut all: Vec<_> = of.collect();
        all.sort_unstable_by_key(|(spawn, ..)| *spawn);
        all.into_iter().map(|(_, id, step)| (id, step)).collect()
    }

    fn check(&mut self, now: Now, entry: EntryId) {
        match self.measure(entry) {
            Verdict::Passes => self.launch(now, entry),
            Verdict::Unknown => self.back_to_room(now, entry),
            // Nobody goes, is waited for or denied for a context that grew.
            Verdict::Short(_) if self.has_grown(entry) => {
                self.back_to_room(now, entry);
                self.draft_anew(entry, Growth::Never);
            }
            Verdict::Short(_) if self.awaits_memory(entry) => self.await_memory(entry),
            Verdict::Short(short) => self.make_room_once(now, entry, &short),
        }
    }

    fn has_grown(&self, entry: EntryId) -> bool {
        self.entries[entry].admission().is_some_and(|admission| admission.waiting.draft.grown_from.is_some())
    }

    fn measure(&self, entry: EntryId) -> Verdict {
        let Some(admission) = self.entries[entry].admission() else { return Verdict::Passes };
        if self.is_no_place(entry) {
            return Verdict::Unknown;
        }
        let mut shorts = BTreeMap::new();
        for (id, required) in self.required(&admission.launch.claim) {
            // One that cannot be read for the moment is judged by the ledger alone.
            let Some(figures) = self.sights.figures(&id) else { continue };
            let free = figures.free.saturating_sub(self.not_taken(admission.spawn, &id));
            if free.saturating_add(SLACK) < required {
                shorts.insert(id, Short { required, free });
            }
        }
        if shorts.is_empty() { Verdict::Passes } else { Verdict::Short(shorts) }
    }

    /// What other engines that start claimed on a card and have not taken: those that load, and builds that passed
    /// their turn for a slot before this one. Where the driver does not tell them apart, they took whatever is used
    /// past the lines of all others.
    fn not_taken(&self, spawn: Spawn, id: &DeviceId) -> Bytes {
        let Some(figures) = self.sights.figures(id) else { return Bytes::ZERO };
        let starts = self.entries.values().filter_map(|e| match &e.phase {
            Phase::Starting(loading) => Some(loading.spawn),
            Phase::Admission(a) if a.spawn < spawn && a.step != Admitting::WaitsForSlot => Some(a.spawn),
            _ => None,
        });
        let claimed = |spawn: &Spawn| self.ledger.line(*spawn).and_then(|line| line.device.get(id)).copied();
        let starting: Vec<(Spawn, Bytes)> = starts.filter_map(|spawn| Some((spawn, claimed(&spawn)?))).collect();
        if let Some(shown) = &figures.by_spawn {
            let taken = |spawn: &Spawn| shown.get(spawn).copied().unwrap_or_default();
            return Bytes::sum(starting.iter().map(|(spawn, bytes)| bytes.saturating_sub(taken(spawn))));
        }
        let starting = Bytes::sum(starting.into_iter().map(|(_, bytes)| bytes));
        let own = claimed(&spawn).unwrap_or_default();
        let others = self.ledger.committed_on(id).saturating_sub(starting).saturating_sub(own);
        let used = figures.total.saturating_sub(figures.free);
        starting.saturating_sub(used.saturating_sub(others))
    }

    /// Whether something that was stopped for this build still has its memory, on a card that it needs.
    fn awaits_memory(&self, entry: EntryId) -> bool {
        let Some(admission) = self.entries[entry].admission() else { return false };
        let on = |line: &Claim| admission.launch.claim.device.keys().any(|id| line.device.contains_key(id));
        let leaves = |spawn: &Spawn| self.leaving().any(|(leaving, _)| leaving == *spawn);
        admission.waiting.evicted.iter().any(|spawn| leaves(spawn) && self.ledger.line(*spawn).is_some_and(on))
    }

    fn await_memory(&mut self, entry: EntryId) {
        if let Some(admission) = self.entries[entry].admission_mut() {
            admission.step = Admitting::AwaitsMemory;
        }
    }

    /// By what was measured to be short, once; then it is denied.
    fn make_room_once(&mut self, now: Now, entry: EntryId, short: &BTreeMap<DeviceId, Short>) {
        let Some(admission) = self.entries[entry].admission() else { return };
        let set = if admission.made_room == MadeRoom::No { self.idle_set_for(now, entry, short) } else { None };
        let Some(set) = set else { return self.deny_measured(now, entry, short) };
        if self.entries[entry].backoff.holds(now) {
            return self.hold_back(now, entry);
        }
        if self.evict_idle(now, &set, StopReason::Evicted) == Evicted::None {
            // Somebody entered one of them meanwhile: judged anew, with what is idle then.
            return self.look_for(now, entry);
        }
        self.owe(entry, &set);
        if let Some(admission) = self.entries[entry].admission_mut() {
            admission.made_room = MadeRoom::Yes;
            admission.step = Admitting::AwaitsMemory;
        }
    }

    /// A build whose last start failed stops nobody yet.
    fn hold_back(&mut self, now: Now, entry: EntryId) {
        let until = self.entries[entry].backoff.until();
        self.back_to_room(now, entry);
        if let Some(waiting) = self.entries[entry].waiting_mut() {
            waiting.not_before = until;
        }
    }

    /// Idle engines that may be stopped for the build of `entry` and whose memory there suffices.
    fn idle_set_for(&self, now: Now, entry: EntryId, short: &BTreeMap<DeviceId, Short>) -> Option<Vec<Spawn>> {
        let missing = |short: &Short| short.required.saturating_sub(short.free.saturating_add(SLACK));
        let missing = short.iter().map(|(id, short)| (id.clone(), missing(short))).collect();
        let on = |id: &DeviceId, spawn: Spawn| {
            let shown = self.sights.figures(id).and_then(|figures| figures.by_spawn.as_ref());
            match shown {
                Some(shown) => shown.get(&spawn).copied().unwrap_or_default(),
                None => self.ledger.line(spawn).and_then(|line| line.device.get(id)).copied().unwrap_or_default(),
            }
        };
        let candidate = |(_, candidate): (EntryId, Candidate)| {
            let frees = short.keys().map(|id| (id.clone(), on(id, candidate.spawn))).collect();
            (candidate.spawn, frees)
        };
        let idle = self.idle_by_demand(now).into_iter().filter(|(victim, _)| self.may_stop(entry, *victim));
        pick_measured(&missing, &idle.map(candidate).collect::<Vec<_>>())
    }

    fn deny_measured(&mut self, now: Now, entry: EntryId, short: &BTreeMap<DeviceId, Short>) {
        let Some(admission) = self.entries[entry].admission() else { return };
        let by = |short: &Short| short.required.saturating_sub(short.free);
        let Some((device, worst)) = short.iter().max_by_key(|(_, short)| by(short)) else { return };
        let measured = Measured {
            device: device.clone(),
            required: worst.required,
            free: worst.free,
            cause: self.cause(&admission.waiting, device),
        };
        let (key, claim) = (self.entries[entry].key.clone(), admission.launch.claim.clone());
        self.give_up_line(now, entry);
        let denial = Denial::measured(key, claim, measured, self.ledger.bounds()).beside(self.ledger.committed());
        self.tell_denied(now, entry, denial);
    }

    /// Why there is less free on a card than the ledger says.
    pub(crate) fn cause(&self, waiting: &Waiting, device: &DeviceId) -> Cause {
        if waiting.withheld.contains(device) {
            return Cause::OwnEviction { waited: self.config.reclaim_within };
        }
        Cause::Foreign { tenants: self.tenants(device) }
    }

    /// Who else uses a card, the largest first; together, where the driver does not tell them apart.
    pub(crate) fn tenants(&self, device: &DeviceId) -> Vec<(String, Bytes)> {
        let named = |tenant: &Tenant| match &tenant.name {
            Some(name) => (format!("{name} (process {})", tenant.pid), tenant.bytes),
            None => (format!("process {}", tenant.pid), tenant.bytes),
        };
        let figures = self.sights.figures(device);
        let tenants: Vec<_> =
            figures.into_iter().flat_map(|f| f.tenants.iter().take(TENANTS_MOST).map(named)).collect();
        let foreign = self.foreign_on(device).unwrap_or_default();
        if tenants.is_empty() && !foreign.is_zero() { vec![("another program".to_owned(), foreign)] } else { tenants }
    }

    /// Who else uses cards, the largest first.
    pub(crate) fn tenants_of_cards(&self) -> Vec<(String, Bytes)> {
        let cards = &self.ledger.bounds().cards;
        let mut all: Vec<_> = cards.iter().flat_map(|card| self.tenants(&card.id)).collect();
        all.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
        all.truncate(TENANTS_MOST);
        all
    }

    /// Everybody who waited left, or nothing is started any more.
    pub(crate) fn withdraw(&mut self, now: Now, entry: EntryId) {
        self.give_up_line(now, entry);
        self.entries[entry].phase = Phase::Idle;
        self.entries[entry].attempts.end();
        self.settle_debts(entry);
    }

    /// Its place is no place any more: it waits for room again, with the age that it has.
    fn back_to_room(&mut self, now: Now, entry: EntryId) {
        self.give_up_line(now, entry);
        let phase = std::mem::replace(&mut self.entries[entry].phase, Phase::Idle);
        if let Phase::Admission(admission) = phase {
            let Admission { waiting, .. } = *admission;
            self.entries[entry].phase = Phase::WaitsForRoom(waiting);
        }
    }

    /// A line without a child is given back at once. No byte came back by that, so nobody tries again for it.
    pub(crate) fn give_up_line(&mut self, now: Now, entry: EntryId) {
        let Some(admission) = self.entries[entry].admission() else { return };
        let (spawn, key) = (admission.spawn, self.entries[entry].key.clone());
        self.by_spawn.remove(&spawn);
        self.ledger.release(spawn);
        self.publish(now, EventKind::Released { key, spawn });
    }

    /// Writes the denial, and tells everybody who waits.
    pub(crate) fn tell_denied(&mut self, now: Now, entry: EntryId, denial: Denial) {
        if self.is_background(entry) {
            self.entries[entry].phase = Phase::Idle;
            return self.defer(now, entry, denial.to_string());
        }
        let key = denial.key.clone();
        let (requested, would_commit, bound) = (denial.requested.total(), denial.would_commit(), denial.bound());
        self.act(Action::Deny(denial.clone()));
        let event = match denial.context {
            None => EventKind::CapacityDenied { key, requested, would_commit, bound },
            Some(RefusedContext { asked, fits }) => EventKind::ContextDenied { key, asked, fits, would_commit, bound },
        };
        self.publish(now, event);
        self.entries[entry].phase = Phase::Idle;
        self.refuse_all(now, entry, &Refusal::CapacityDenied(Box::new(denial)));
        self.entries[entry].attempts.end();
        self.settle_debts(entry);
    }
}
