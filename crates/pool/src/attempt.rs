//! Builds that nobody waits for: why they are tried, and when they are put off.
//!
//! They come after every build that somebody waits for, drain nobody and stop nobody, but for one: an operator who
//! wants so many engines of a model has idle engines stopped that nobody asked to be there. One that finds no room is
//! *deferred*: an event, never a denial. A ticket that joins makes it a build like any other.
use crate::{
    Pool, Refusal,
    entry::{EntryId, Evicted, Phase},
    room::Spoken,
};
use motorpool_broker::{Candidate, Query, Room, pick_room};
use motorpool_vocab::{EventKind, Now, StopReason};
use std::{collections::BTreeSet, time::Duration};

/// A further attempt is made after so long, or when bytes came back.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Children that were stopped for an attempt are waited for so long.
const ROOM_WITHIN: Duration = Duration::from_mins(1);

/// Why a build is tried that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Requests wait for slots of its siblings.
    FanOut,
    /// There are fewer replicas than there are to be at least.
    Least,
    /// An operator wants so many.
    Reconcile,
    /// It was stopped for a load that failed.
    Restore,
    /// It is always to be there.
    Home,
    /// Only ambient work waits for it.
    Ambient,
}

/// An attempt that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    purpose: Purpose,
    /// Until when it waits for room that was made for it.
    until: Now,
}

/// What is known of attempts at one entry.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    current: Option<Attempt>,
    retry_at: Now,
    /// How often bytes had come back when it was tried last.
    freed: u64,
    /// Whether the last ones were put off.
    deferred: Deferred,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Deferred {
    #[default]
    NotYet,
    /// It was told: once is enough.
    Told,
}

impl Attempts {
    /// Whether one is being made.
    pub(crate) fn is_on(&self) -> bool {
        self.current.is_some()
    }

    /// It ended, however.
    pub(crate) fn end(&mut self) {
        self.current = None;
    }

    /// It is not to come back, whatever it was stopped for.
    pub(crate) fn end_restore(&mut self) {
        self.current = self.current.filter(|attempt| attempt.purpose != Purpose::Restore);
    }

    /// The next one may be made at once.
    pub(crate) fn hurry(&mut self) {
        self.retry_at = Now::ZERO;
    }

    /// The next one that is put off is told again.
    pub(crate) fn tell_anew(&mut self) {
        self.deferred = Deferred::NotYet;
    }

    /// When the next one may be made, or the present one is given up.
    pub(crate) fn due_at(&self) -> Now {
        self.current.map_or(self.retry_at, |attempt| attempt.until)
    }
}

impl Pool {
    /// Whether the build of `entry` goes on: somebody waits for it, or it is tried for another reason.
    pub(crate) fn is_kept(&self, entry: EntryId) -> bool {
        self.entries[entry].attempts.is_on() || self.is_wanted(entry)
    }

    /// Whether nobody waits for the build of `entry`.
    pub(crate) fn is_background(&self, entry: EntryId) -> bool {
        self.entries[entry].attempts.is_on() && !self.is_wanted(entry)
    }

    /// Tries to build `entry`, unless that was tried a moment ago, others wait for room, or it is nobody's to build. Whether
    /// it was begun.
    pub(crate) fn begin_attempt(&mut self, now: Now, entry: EntryId, purpose: Purpose) -> bool {
        let (target, freed) = (&self.entries[entry], self.upkeep.freed);
        let early = now < target.attempts.retry_at && target.attempts.freed == freed;
        let is_open = target.failures.breaker.open_until(now).is_some();
        if self.is_closing()
            || self.is_drained(entry)
            || self.strays.contains(&entry)
            || !matches!(target.phase, Phase::Idle)
            || target.backoff.holds(now)
            || is_open
        {
            return false;
        }
        if purpose != Purpose::Reconcile && (early || self.somebody_builds()) {
            return false;
        }
        let attempts = &mut self.entries[entry].attempts;
        attempts.current = Some(Attempt { purpose, until: now.after(ROOM_WITHIN) });
        (attempts.retry_at, attempts.freed) = (now.after(RETRY_AFTER), freed);
        self.begin_check(entry);
        true
    }

    /// Whether a build that somebody waits for has no room yet.
    pub(crate) fn somebody_builds(&self) -> bool {
        let builds = |phase: &Phase| matches!(phase, Phase::Checking { .. } | Phase::WaitsForRoom(_));
        self.entries.iter().any(|(id, entry)| builds(&entry.phase) && self.is_wanted(id))
    }

    /// Judges a build that nobody waits for: it starts, waits for what leaves for it, or is put off.
    pub(crate) fn settle_attempt(&mut self, now: Now, entry: EntryId, spoken: &Spoken) {
        if self.awaits_dead(entry) {
            return;
        }
        // Whoever waited for it left, and with them the right to drain.
        self.drain_for(now, entry, &BTreeSet::new());
        let Some(mut room) = self.judge_attempt(now, entry, spoken) else { return };
        if self.is_drafted_anew(entry, &room) {
            let Some(again) = self.judge_attempt(now, entry, spoken) else { return };
            room = again;
        }
        self.note_placement(entry, &room);
        if room.placement().is_some_and(|placement| self.is_paused(now, &placement.claim)) {
            return self.refuse_paused(now, entry);
        }
        let Some(Attempt { purpose, until }) = self.entries[entry].attempts.current else { return };
        let patient = purpose == Purpose::Reconcile && now < until;
        match room {
            Room::Fits(placement) => self.admit(now, entry, placement),
            Room::Evict { set, .. } if patient => {
                if self.evict_idle(now, &set, StopReason::Evicted) == Evicted::All {
                    self.owe(entry, &set);
                }
            }
            Room::Wait(_) if patient && self.leaving().next().is_some() => {}
            Room::Never(proof) => {
                let denial = self.denial_for(entry, proof);
                self.defer(now, entry, denial.to_string());
                // Ambient work waits for room, not for what will never be.
                self.refuse_all(now, entry, &Refusal::CapacityDenied(Box::new(denial)));
            }
            Room::Wait(_) | Room::Evict { .. } | Room::Drain { .. } => {
                self.defer(now, entry, "there is no room without stopping others".into());
            }
        }
    }

    fn judge_attempt(&self, now: Now, entry: EntryId, spoken: &Spoken) -> Option<Room> {
        let load = &self.entries[entry].waiting()?.draft.load;
        let leaving: Vec<_> = self.leaving().map(|(spawn, _)| spawn).collect();
        let draining: Vec<_> = spoken.drains.iter().filter_map(|e| self.entries[*e].spawn()).collect();
        let query = Query {
            load,
            elders: &spoken.claims,
            leaving: &leaving,
            draining: &draining,
            fixed: &self.fixed_spawns(),
            policy: self.config.policy,
        };
        Some(pick_room(&self.ledger, &query, &self.idle_for(now, entry)))
    }

    /// Who may be stopped for it: for an operator's wish whatever is idle and no part of such a wish; else nobody.
    fn idle_for(&self, now: Now, entry: EntryId) -> Vec<Candidate> {
        let idle = |victim: EntryId| {
            let drained = self.entries[victim].is_draining();
            self.candidate_unless(now, victim, || true).filter(|_| !drained)
        };
        self.by_spawn.values().copied().filter(|victim| self.may_stop(entry, *victim)).filter_map(idle).collect()
    }

    /// Whether `victim`, when idle, may be stopped for the build of `entry`.
    pub(crate) fn may_stop(&self, entry: EntryId, victim: EntryId) -> bool {
        let asked = self.entries[entry].attempts.current.is_some_and(|a| a.purpose == Purpose::Reconcile);
        let key = &self.entries[victim].key;
        let free = self.upkeep.targets.get(key.model()).is_none_or(|n| key.replica() >= *n);
        !self.is_background(entry) || asked && free
    }

    pub(crate) fn defer(&mut self, now: Now, entry: EntryId, why: String) {
        self.abandon_waiting(now, entry);
        let target = &mut self.entries[entry];
        if std::mem::replace(&mut target.attempts.deferred, Deferred::Told) == Deferred::NotYet {
            let key = target.key.clone();
            self.publish(now, EventKind::Deferred { key, why });
        }
    }

    /// Builds that nobody waits for end here; those that have their bytes go on.
    pub(crate) fn drop_attempts(&mut self, now: Now) {
        for entry in self.entries.keys().collect::<Vec<_>>() {
            self.entries[entry].attempts.end();
            match &self.entries[entry].phase {
                _ if self.is_wanted(entry) => {}
                Phase::WaitsForRoom(_) => self.abandon_waiting(now, entry),
                Phase::Admission(_) => self.withdraw(now, entry),
                _ => {}
            }
        }
    }

    /// The start of `entry` failed: it stops nobody for a while, and who was stopped for it comes back.
    pub(crate) fn after_failure(&mut self, now: Now, entry: EntryId) {
        let jitter = self.upkeep.draw();
        let target = &mut self.entries[entry];
        target.backoff.failed(now, jitter);
        target.attempts.end();
        self.settle_debts(entry);
    }

    /// `entry` serves: what its build cost is paid.
    pub(crate) fn after_success(&mut self, entry: EntryId) {
        let target = &mut self.entries[entry];
        target.backoff.succeeded();
        target.failures.succeeded();
        target.attempts.end();
        target.attempts.tell_anew();
        target.owes.clear();
    }
}
