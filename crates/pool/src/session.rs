//! [`Sessions`]: which replica a conversation goes back to, and which slot of it (pool.md §5).
//!
//! A session is bound when it gets a lease. What is kept is bounded: the least recently used go beyond [`MOST`], and
//! all after [`KEPT`] without a lease. Forgetting one costs its next request a prompt, nothing else.
use motorpool_vocab::{ModelId, Now, Spawn};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Sessions that are remembered, over all models.
pub(crate) const MOST: usize = 4096;
/// How long one is remembered without a lease.
pub(crate) const KEPT: Duration = Duration::from_hours(1);

/// What is remembered of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    replica: u32,
    /// The child and the slot of it that hold what the session said last.
    slot: Option<(Spawn, u32)>,
    last_use: Now,
}

type Name = (ModelId, Arc<str>);

/// Every session that is remembered.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    bound: BTreeMap<Name, Bound>,
    by_use: BTreeSet<(Now, Name)>,
    n_at: BTreeMap<(ModelId, u32), u32>,
}

impl Sessions {
    /// The replica of a session.
    pub(crate) fn replica_of(&self, now: Now, model: &ModelId, session: &str) -> Option<u32> {
        self.get(now, model, session).map(|bound| bound.replica)
    }

    /// The slot of a session on this child.
    pub(crate) fn slot_of(&self, now: Now, model: &ModelId, (session, spawn): (&str, Spawn)) -> Option<u32> {
        self.get(now, model, session)?.slot.filter(|(of, _)| *of == spawn).map(|(_, slot)| slot)
    }

    fn get(&self, now: Now, model: &ModelId, session: &str) -> Option<&Bound> {
        let bound = self.bound.get(&(model.clone(), session.into()))?;
        (now.since(bound.last_use) < KEPT).then_some(bound)
    }

    /// How many sessions are bound to a replica.
    pub(crate) fn n_at(&self, model: &ModelId, replica: u32) -> u32 {
        self.n_at.get(&(model.clone(), replica)).copied().unwrap_or(0)
    }

    /// The session has a lease of a replica, of this child, and perhaps of a certain slot. Where the engine chose the
    /// slot, the one before is the best guess.
    pub(crate) fn bind(&mut self, now: Now, name: (&ModelId, &str), to: (u32, Spawn, Option<u32>)) {
        let (replica, spawn, slot) = to;
        let slot = slot.or_else(|| self.slot_of(now, name.0, (name.1, spawn))).map(|slot| (spawn, slot));
        let name: Name = (name.0.clone(), name.1.into());
        self.forget(&name);
        self.bound.insert(name.clone(), Bound { replica, slot, last_use: now });
        *self.n_at.entry((name.0.clone(), replica)).or_default() += 1;
        self.by_use.insert((now, name));
        self.forget_old(now);
    }

    /// A lease of the session ended.
    pub(crate) fn used(&mut self, now: Now, model: &ModelId, session: &str) {
        let name: Name = (model.clone(), session.into());
        let Some(bound) = self.bound.get_mut(&name) else { return };
        let before = std::mem::replace(&mut bound.last_use, now);
        self.by_use.remove(&(before, name.clone()));
        self.by_use.insert((now, name));
    }

    /// The replica is not wanted any more: its sessions go anywhere.
    pub(crate) fn forget_replica(&mut self, model: &ModelId, replica: u32) {
        let of_it =
            |(name, bound): (&Name, &Bound)| (name.0 == *model && bound.replica == replica).then(|| name.clone());
        for name in self.bound.iter().filter_map(of_it).collect::<Vec<_>>() {
            self.forget(&name);
        }
    }

    fn forget_old(&mut self, now: Now) {
        while let Some((last_use, name)) = self.by_use.first().cloned() {
            if self.bound.len() <= MOST && now.since(last_use) < KEPT {
                return;
            }
            self.forget(&name);
        }
    }

    fn forget(&mut self, name: &Name) {
        let Some(bound) = self.bound.remove(name) else { return };
        self.by_use.remove(&(bound.last_use, name.clone()));
        let at = (name.0.clone(), bound.replica);
        if let Some(n) = self.n_at.get_mut(&at) {
            *n -= 1;
            if *n == 0 {
                self.n_at.remove(&at);
            }
        }
    }
}

/// Which slots of a child are known to be taken, and whose context each holds.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    taken: BTreeSet<u32>,
    /// When each was last given away.
    given_at: BTreeMap<u32, Now>,
}

impl Slots {
    /// A slot for a session whose context is in `own`. `None`: some lease is in a slot that nobody knows, so to name
    /// one could make a request wait behind it; the engine chooses.
    pub(crate) fn take(&mut self, now: Now, own: Option<u32>, (width, granted): (u32, u32)) -> Option<u32> {
        if usize::try_from(granted).is_ok_and(|granted| granted > self.taken.len()) {
            return None;
        }
        let free = |slot: &u32| *slot < width && !self.taken.contains(slot);
        let oldest = |slot: &u32| (self.given_at.get(slot).copied(), *slot);
        let slot = own.filter(free).or_else(|| (0..width).filter(free).min_by_key(oldest))?;
        self.taken.insert(slot);
        self.given_at.insert(slot, now);
        Some(slot)
    }

    pub(crate) fn give_back(&mut self, slot: u32) {
        self.taken.remove(&slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        Now::from_nanos(seconds * 1_000_000_000)
    }

    fn model(id: &str) -> ModelId {
        ModelId::new(id).expect("an id")
    }

    #[test]
    fn a_session_is_known_until_an_hour_after_its_last_lease() {
        let (mut sessions, m) = (Sessions::default(), model("m"));
        sessions.bind(at(0), (&m, "s"), (2, Spawn(7), Some(3)));
        assert_eq!(sessions.replica_of(at(3599), &m, "s"), Some(2));
        assert_eq!(sessions.slot_of(at(3599), &m, ("s", Spawn(7))), Some(3));
        assert_eq!(sessions.slot_of(at(3599), &m, ("s", Spawn(8))), None, "another child holds nothing of it");
        assert_eq!(sessions.replica_of(at(3600), &m, "s"), None);
        sessions.used(at(1000), &m, "s");
        assert_eq!(sessions.replica_of(at(4599), &m, "s"), Some(2));
        assert_eq!(sessions.replica_of(at(1), &model("other"), "s"), None);
    }

    #[test]
    fn a_slot_that_the_engine_chose_does_not_make_the_known_one_forgotten() {
        let (mut sessions, m) = (Sessions::default(), model("m"));
        sessions.bind(at(0), (&m, "s"), (0, Spawn(7), Some(3)));
        sessions.bind(at(1), (&m, "s"), (0, Spawn(7), None));
        assert_eq!(sessions.slot_of(at(2), &m, ("s", Spawn(7))), Some(3));
        sessions.bind(at(3), (&m, "s"), (0, Spawn(8), None));
        assert_eq!(sessions.slot_of(at(4), &m, ("s", Spawn(8))), None, "another child");
    }

    #[test]
    fn there_are_never_more_than_so_many_and_the_least_recently_used_go() {
        let (mut sessions, m) = (Sessions::default(), model("m"));
        for n in 0..MOST as u64 + 10 {
            sessions.bind(at(n / 100), (&m, &format!("{n:06}")), (0, Spawn(1), None));
        }
        assert_eq!((sessions.bound.len(), sessions.by_use.len()), (MOST, MOST));
        assert_eq!(sessions.n_at(&m, 0) as usize, MOST);
        assert_eq!(sessions.replica_of(at(41), &m, "000009"), None);
        assert_eq!(sessions.replica_of(at(41), &m, "000010"), Some(0));
        sessions.bind(at(41 + 3600), (&m, "new"), (1, Spawn(1), None));
        assert_eq!((sessions.bound.len(), sessions.n_at(&m, 0), sessions.n_at(&m, 1)), (1, 0, 1));
    }

    #[test]
    fn sessions_of_a_replica_that_is_not_wanted_are_free() {
        let (mut sessions, m) = (Sessions::default(), model("m"));
        sessions.bind(at(0), (&m, "a"), (0, Spawn(1), None));
        sessions.bind(at(0), (&m, "b"), (1, Spawn(1), None));
        sessions.forget_replica(&m, 1);
        assert_eq!([sessions.replica_of(at(1), &m, "a"), sessions.replica_of(at(1), &m, "b")], [Some(0), None]);
        assert_eq!((sessions.n_at(&m, 0), sessions.n_at(&m, 1)), (1, 0));
    }

    #[test]
    fn a_session_gets_its_own_slot_or_the_one_that_was_given_away_longest_ago() {
        let mut slots = Slots::default();
        assert_eq!(slots.take(at(1), None, (3, 0)), Some(0));
        assert_eq!(slots.take(at(2), None, (3, 1)), Some(1));
        slots.give_back(0);
        assert_eq!(slots.take(at(3), None, (3, 1)), Some(2), "one that holds nothing yet");
        slots.give_back(1);
        slots.give_back(2);
        assert_eq!(slots.take(at(4), None, (3, 0)), Some(0), "the oldest");
        assert_eq!(slots.take(at(5), Some(2), (3, 1)), Some(2));
        assert_eq!(slots.take(at(5), Some(2), (3, 2)), Some(1), "its own is taken");
        assert_eq!(slots.take(at(5), None, (3, 3)), None);
    }

    #[test]
    fn no_slot_is_named_beside_a_lease_in_one_that_nobody_knows() {
        let mut slots = Slots::default();
        assert_eq!(slots.take(at(1), Some(1), (4, 1)), None);
        assert_eq!(slots.take(at(1), Some(1), (4, 0)), Some(1));
        assert_eq!(slots.take(at(1), Some(2), (4, 2)), None);
    }
}
