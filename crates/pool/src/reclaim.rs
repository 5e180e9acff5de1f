//! [`Reclaims`]: children that are gone, until their devices agree (capacity.md, B4).
//!
//! ```text
//!   gone, reaped ─── no card of it can be read ──────────────────────────────────► released
//!       └─ Reclaiming: a look at once, then each 100 ms ─┬─ every card agrees ───► released
//!                                                        └─ 5 s after it was gone ► released; what is still there is
//!                                                                                   others' use from then on
//! ```
//!
//! A card agrees in a look that began after the child was gone: where the driver tells what each process holds, when it
//! shows none of this one; else when at least 90 % of what was reserved for it there is free again since its stop began.
//! Then nobody knows whose bytes came back: what was counted for one child counts for no other, so that two that stop at
//! the same time return no more than what is free again.
//!
//! * **B4** a line is released only when the tree is reaped and each of its cards agrees, or cannot be read, or the time
//!   is over. A card that is missing for less than 15 s is waited for; one that was never read, is lost or unknown could
//!   never agree, so that nobody waits for it.
//! * Its key is free: the child is gone, so the key may be built anew beside the line, which belongs to the old spawn
//!   (P1). Builds count on the bytes as on those of a child that is stopping.
//! * Whoever asked for the unload is answered when the bytes are back. Who retires or shuts down does not wait: the
//!   processes are gone, and no ledger outlives us.
use crate::{
    Action, Answer, Pool, RequestId,
    entry::{Entry, EntryId},
};
use motorpool_broker::HostShape;
use motorpool_vocab::{Bytes, DeviceId, EngineKey, EventKind, Now, Spawn};
use std::{collections::BTreeMap, time::Duration};

/// How often the cards are looked at while something is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// So much of what was reserved must be free again where a driver tells totals only, in thousandths.
const BACK_FROM: u64 = 900;

/// What is free on each card.
pub(crate) type Free = BTreeMap<DeviceId, Bytes>;

/// Who is awaited, and when the cards are looked at next.
#[derive(Debug, Default)]
pub(crate) struct Reclaims {
    pub(crate) all: BTreeMap<Spawn, Reclaim>,
    look_at: Option<Now>,
}

/// A child that is gone and keeps its line.
#[derive(Debug)]
pub(crate) struct Reclaim {
    pub(crate) entry: EntryId,
    pub(crate) key: EngineKey,
    gone_at: Now,
    until: Now,
    /// Cards that have not agreed.
    cards: BTreeMap<DeviceId, Awaited>,
    /// Operators who wait for its bytes.
    pub(crate) askers: Vec<RequestId>,
}

/// What a card is to give back.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    bytes: Bytes,
    /// What was free there when the stop began, if that was seen, and what came back for others since.
    free_before: Option<Bytes>,
}

/// What came back for one child on a card that tells totals only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rise {
    /// What was free before it.
    from: Bytes,
    bytes: Bytes,
}

impl Reclaims {
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = Now> + '_ {
        self.all.values().map(|reclaim| reclaim.until).chain(self.look_at)
    }
}

impl Pool {
    /// What is free on the cards where `spawn` has something, as the last look showed it.
    pub(crate) fn free_where(&self, spawn: Spawn) -> Free {
        let line = self.ledger.line(spawn);
        let free = |id: &DeviceId| Some((id.clone(), self.sights.figures(id)?.free));
        line.into_iter().flat_map(|line| line.device.keys().filter_map(free)).collect()
    }

    /// The tree of `spawn` is gone: its line goes when its devices agree.
    pub(crate) fn reclaim(&mut self, now: Now, spawn: Spawn, of: (EntryId, EngineKey), left: (Free, Vec<RequestId>)) {
        let ((entry, key), (free_before, askers)) = (of, left);
        self.learn_last(spawn);
        self.accounts.remove(&spawn);
        let cards = self.cards_to_agree(spawn, &free_before);
        if cards.is_empty() {
            return self.released(now, spawn, key, askers);
        }
        let until = now.after(self.config.reclaim_within);
        self.reclaims.all.insert(spawn, Reclaim { entry, key, gone_at: now, until, cards, askers });
        self.look_for_reclaims(now);
    }

    fn cards_to_agree(&self, spawn: Spawn, free_before: &Free) -> BTreeMap<DeviceId, Awaited> {
        let line = self.ledger.line(spawn).filter(|_| self.ledger.bounds().shape == HostShape::DiscreteGpu);
        let held = line.into_iter().flat_map(|line| &line.device);
        let awaited = held.filter(|(id, bytes)| !bytes.is_zero() && self.sights.is_readable(id));
        let of = |(id, bytes): (&DeviceId, &Bytes)| {
            (id.clone(), Awaited { bytes: *bytes, free_before: free_before.get(id).copied() })
        };
        awaited.map(of).collect()
    }

    fn look_for_reclaims(&mut self, now: Now) {
        self.reclaims.look_at = Some(now.after(LOOK_EVERY));
        self.act(Action::Look);
    }

    /// A look that began at `begun_at` came.
    pub(crate) fn check_reclaims(&mut self, now: Now, begun_at: Now) {
        // What is still free of a stop under way is what its child had at the least.
        for (spawn, teardown) in &mut self.teardowns {
            let seen = self.ledger.line(*spawn).into_iter().flat_map(|line| line.device.keys());
            for (id, figures) in seen.filter_map(|id| Some((id, self.sights.figures(id)?))) {
                let before = teardown.free_before.entry(id.clone()).or_insert(figures.free);
                *before = figures.free.min(*before);
            }
        }
        let after_end = self.reclaims.all.iter().filter(|(_, reclaim)| reclaim.gone_at <= begun_at);
        let mut agreed: Vec<Spawn> = after_end.map(|(spawn, _)| *spawn).collect();
        agreed.retain(|spawn| self.agrees(*spawn));
        for spawn in agreed {
            self.end_reclaim(now, spawn);
        }
    }

    /// Whether every card has agreed about `spawn`, by the last look.
    fn agrees(&mut self, spawn: Spawn) -> bool {
        let Some(reclaim) = self.reclaims.all.get_mut(&spawn) else { return false };
        let (sights, mut rises) = (&self.sights, Vec::new());
        reclaim.cards.retain(|id, awaited| {
            let Some(figures) = sights.figures(id) else { return sights.is_readable(id) };
            if let Some(shown) = &figures.by_spawn {
                return shown.get(&spawn).is_some_and(|bytes| !bytes.is_zero());
            }
            let rise = awaited.rise(figures.free);
            rises.extend(rise.map(|rise| (id.clone(), rise)));
            rise.is_none()
        });
        let is_empty = reclaim.cards.is_empty();
        for (id, rise) in rises {
            let awaited = self.reclaims.all.values_mut().filter_map(|r| r.cards.get_mut(&id)?.free_before.as_mut());
            let stopping = self.teardowns.values_mut().filter_map(|teardown| teardown.free_before.get_mut(&id));
            awaited.chain(stopping).for_each(|before| *before = rise.taken_from(*before));
        }
        is_empty
    }

    pub(crate) fn on_due_reclaims(&mut self, now: Now) {
        let late: Vec<_> = self.reclaims.all.iter().filter(|(_, r)| r.until <= now).map(|(spawn, _)| *spawn).collect();
        for spawn in late {
            self.note_withheld(spawn);
            self.end_reclaim(now, spawn);
            // What is still there is others' from now on.
            self.observe_cards();
        }
        if self.reclaims.look_at.is_some_and(|at| at <= now) {
            self.look_for_reclaims(now);
        }
    }

    /// Builds for which it was stopped know why there is less than there should be.
    fn note_withheld(&mut self, spawn: Spawn) {
        let Some(reclaim) = self.reclaims.all.get(&spawn) else { return };
        let cards: Vec<DeviceId> = reclaim.cards.keys().cloned().collect();
        let planned = self.entries.values_mut().filter_map(Entry::planned_mut);
        for waiting in planned.filter(|waiting| waiting.evicted.contains(&spawn)) {
            waiting.withheld.extend(cards.iter().cloned());
        }
    }

    fn end_reclaim(&mut self, now: Now, spawn: Spawn) {
        if let Some(Reclaim { key, askers, .. }) = self.reclaims.all.remove(&spawn) {
            self.released(now, spawn, key, askers);
        }
        if self.reclaims.all.is_empty() {
            self.reclaims.look_at = None;
        }
    }

    /// The bytes of `spawn` are back.
    fn released(&mut self, now: Now, spawn: Spawn, key: EngineKey, askers: Vec<RequestId>) {
        self.release(spawn);
        self.publish(now, EventKind::Released { key, spawn });
        for id in askers {
            self.reply(id, Answer::Unloaded);
        }
        self.release_went(spawn);
        self.pressed_out(now, spawn);
    }
}

impl Awaited {
    /// What came back of it, once that is enough. Where nobody saw what was free before, only time tells.
    fn rise(&self, free: Bytes) -> Option<Rise> {
        let from = self.free_before?;
        let risen = free.saturating_sub(from);
        (risen >= self.bytes.per_mille(BACK_FROM)).then(|| Rise { from, bytes: risen.min(self.bytes) })
    }
}

impl Rise {
    /// Where what comes back for another child counts from, that counted from `before`: the bytes of this one that
    /// came back above it are not its own.
    fn taken_from(self, before: Bytes) -> Bytes {
        before.max(before.min(self.from).saturating_add(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nine_tenths_of_what_was_reserved_must_be_free_again() {
        let awaited = |free_before| Awaited { bytes: Bytes::mib(1000), free_before };
        let before = Some(Bytes::mib(500));
        assert_eq!(awaited(before).rise(Bytes::mib(1400)).map(|rise| rise.bytes), Some(Bytes::mib(900)));
        assert_eq!(awaited(before).rise(Bytes::mib(4000)).map(|rise| rise.bytes), Some(Bytes::mib(1000)));
        assert_eq!(awaited(before).rise(Bytes::mib(1399)), None);
        assert_eq!(awaited(before).rise(Bytes::ZERO), None);
        assert_eq!(awaited(None).rise(Bytes::MAX), None, "nobody saw what was free before");
    }

    #[test]
    fn what_came_back_for_one_is_taken_from_what_came_back_since_another_stopped_and_no_more() {
        let rise = Rise { from: Bytes::gib(10), bytes: Bytes::gib(6) };
        let cases = [(10, 16), (5, 11), (12, 16), (16, 16), (20, 20)];
        for (before, after) in cases {
            assert_eq!(rise.taken_from(Bytes::gib(before)), Bytes::gib(after), "{before}");
        }
    }

    proptest! {
        /// Children stop one after another while more and more is free.
        #[test]
        fn never_more_is_returned_than_what_came_back(
            steps in prop::collection::vec((0u64..40, prop::option::of(1u64..60)), 1..30),
        ) {
            let (begun, mut free, mut returned) = (Bytes::mib(100), Bytes::mib(100), Bytes::ZERO);
            let mut awaited: Vec<Awaited> = Vec::new();
            for (more, stops) in steps {
                free = free.saturating_add(Bytes::mib(more));
                while let Some((at, rise)) = (0..).zip(&awaited).find_map(|(at, a)| Some((at, a.rise(free)?))) {
                    awaited.remove(at);
                    returned = returned.saturating_add(rise.bytes);
                    for before in awaited.iter_mut().filter_map(|other| other.free_before.as_mut()) {
                        *before = rise.taken_from(*before);
                    }
                }
                awaited.extend(stops.map(|mib| Awaited { bytes: Bytes::mib(mib), free_before: Some(free) }));
                prop_assert!(returned <= free.saturating_sub(begun), "{returned} of {}", free.saturating_sub(begun));
            }
        }
    }
}
