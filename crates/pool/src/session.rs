//! [`Sessions`]: which replica a conversation goes back to; [`Slots`]: which slot of it (pool.md §5).
//!
//! A session is bound when it gets a lease. What is kept is bounded: the least recently used go beyond [`MOST`], and
//! all after [`KEPT`] without a lease. Forgetting one costs its next request a prompt, nothing else.
use motorpool_vocab::{ModelId, Now};
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
        let bound = self.bound.get(&(model.clone(), session.into()))?;
        (now.since(bound.last_use) < KEPT).then_some(bound.replica)
    }

    /// How many sessions are bound to a replica.
    pub(crate) fn n_at(&self, model: &ModelId, replica: u32) -> u32 {
        self.n_at.get(&(model.clone(), replica)).copied().unwrap_or(0)
    }

    /// The session has a lease of a replica.
    pub(crate) fn bind(&mut self, now: Now, name: (&ModelId, &str), replica: u32) {
        let name: Name = (name.0.clone(), name.1.into());
        self.forget(&name);
        self.bound.insert(name.clone(), Bound { replica, last_use: now });
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

    /// The model is not there any more.
    pub(crate) fn forget_model(&mut self, model: &ModelId) {
        for name in self.bound.keys().filter(|name| name.0 == *model).cloned().collect::<Vec<_>>() {
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
    held: BTreeMap<u32, Held>,
    /// The one that was asked for last.
    writing: Writing,
}

/// The number of a writing among those of its child: a slot may be wanted written anew before the word of an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writing(pub u64);

/// What a slot holds.
#[derive(Debug)]
struct Held {
    session: Arc<str>,
    written: Written,
}

/// How far what a slot holds is on its way to disk; see `keeping.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// A lease is in it.
    Changes,
    /// Not at all, since its last lease ended.
    No { since: Now },
    /// It is asked for.
    Asked(Writing),
    /// It is there, or could not be had.
    Done,
}

/// A slot for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) slot: u32,
    pub(crate) session: Arc<str>,
    pub(crate) came: Came,
}

/// Whether a slot holds the context of the session that it was given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// It does.
    Back,
    /// It does not.
    Anew,
}

impl Slots {
    /// A slot for a session, its own if that is free. `None`: some lease is in a slot that nobody knows, so to name one
    /// could make a request wait behind it; the engine chooses.
    pub(crate) fn take(&mut self, now: Now, session: &str, (width, granted): (u32, u32)) -> Option<Given> {
        if usize::try_from(granted).is_ok_and(|granted| granted > self.taken.len()) {
            return None;
        }
        let free = |slot: &u32| *slot < width && !self.taken.contains(slot);
        let own = self.held.iter().find(|(_, held)| *held.session == *session).map(|(slot, _)| *slot).filter(free);
        let oldest = |slot: &u32| (self.given_at.get(slot).copied(), *slot);
        let slot = own.or_else(|| (0..width).filter(free).min_by_key(oldest))?;
        let came = if own.is_some() { Came::Back } else { Came::Anew };
        let session: Arc<str> = session.into();
        // What it holds elsewhere is older from now on.
        self.held.retain(|_, held| held.session != session);
        self.held.insert(slot, Held { session: session.clone(), written: Written::Changes });
        self.taken.insert(slot);
        self.given_at.insert(slot, now);
        Some(Given { slot, session, came })
    }

    pub(crate) fn give_back(&mut self, now: Now, slot: u32) {
        self.taken.remove(&slot);
        if let Some(held) = self.held.get_mut(&slot) {
            held.written = Written::No { since: now };
        }
    }

    /// Slots that hold what is nowhere else, and since when.
    pub(crate) fn unwritten(&self) -> impl Iterator<Item = (u32, Now)> + '_ {
        self.held.iter().filter_map(|(slot, held)| match held.written {
            Written::No { since } => Some((*slot, since)),
            Written::Changes | Written::Asked(_) | Written::Done => None,
        })
    }

    pub(crate) fn being_written(&self) -> impl Iterator<Item = Writing> + '_ {
        self.held.values().filter_map(|held| match held.written {
            Written::Asked(writing) => Some(writing),
            Written::Changes | Written::No { .. } | Written::Done => None,
        })
    }

    /// Whose context it is that is written from now on, and by which writing.
    pub(crate) fn begin_writing(&mut self, slot: u32) -> Option<(Arc<str>, Writing)> {
        let held = self.held.get_mut(&slot).filter(|held| matches!(held.written, Written::No { .. }))?;
        self.writing = Writing(self.writing.0 + 1);
        held.written = Written::Asked(self.writing);
        Some((held.session.clone(), self.writing))
    }

    /// Where the slot was given away meanwhile, what was written is not what it holds.
    pub(crate) fn end_writing(&mut self, writing: Writing) {
        if let Some(held) = self.held.values_mut().find(|held| held.written == Written::Asked(writing)) {
            held.written = Written::Done;
        }
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
        sessions.bind(at(0), (&m, "s"), 2);
        assert_eq!(sessions.replica_of(at(3599), &m, "s"), Some(2));
        assert_eq!(sessions.replica_of(at(3600), &m, "s"), None);
        sessions.used(at(1000), &m, "s");
        assert_eq!(sessions.replica_of(at(4599), &m, "s"), Some(2));
        assert_eq!(sessions.replica_of(at(1), &model("other"), "s"), None);
    }

    #[test]
    fn there_are_never_more_than_so_many_and_the_least_recently_used_go() {
        let (mut sessions, m) = (Sessions::default(), model("m"));
        for n in 0..MOST as u64 + 10 {
            sessions.bind(at(n / 100), (&m, &format!("{n:06}")), 0);
        }
        assert_eq!((sessions.bound.len(), sessions.by_use.len()), (MOST, MOST));
        assert_eq!(sessions.n_at(&m, 0) as usize, MOST);
        assert_eq!(sessions.replica_of(at(41), &m, "000009"), None);
        assert_eq!(sessions.replica_of(at(41), &m, "000010"), Some(0));
        sessions.bind(at(41 + 3600), (&m, "new"), 1);
        assert_eq!((sessions.bound.len(), sessions.n_at(&m, 0), sessions.n_at(&m, 1)), (1, 0, 1));
    }

    #[test]
    fn sessions_of_a_replica_that_is_not_wanted_are_free() {
        let (mut sessions, m) = (Sessions::default(), model("m"));
        sessions.bind(at(0), (&m, "a"), 0);
        sessions.bind(at(0), (&m, "b"), 1);
        sessions.forget_replica(&m, 1);
        assert_eq!([sessions.replica_of(at(1), &m, "a"), sessions.replica_of(at(1), &m, "b")], [Some(0), None]);
        assert_eq!((sessions.n_at(&m, 0), sessions.n_at(&m, 1)), (1, 0));
    }

    fn taken(slots: &mut Slots, seconds: u64, session: &str, room: (u32, u32)) -> Option<(u32, Came)> {
        slots.take(at(seconds), session, room).map(|given| (given.slot, given.came))
    }

    #[test]
    fn a_session_gets_its_own_slot_or_the_one_that_was_given_away_longest_ago() {
        let mut slots = Slots::default();
        assert_eq!(taken(&mut slots, 1, "a", (3, 0)), Some((0, Came::Anew)));
        assert_eq!(taken(&mut slots, 2, "b", (3, 1)), Some((1, Came::Anew)));
        assert_eq!(taken(&mut slots, 3, "c", (3, 2)), Some((2, Came::Anew)));
        (0..3).for_each(|slot| slots.give_back(at(3), slot));
        assert_eq!(taken(&mut slots, 4, "d", (3, 0)), Some((0, Came::Anew)), "the oldest");
        assert_eq!(taken(&mut slots, 5, "c", (3, 1)), Some((2, Came::Back)));
        assert_eq!(taken(&mut slots, 5, "c", (3, 2)), Some((1, Came::Anew)), "its own is taken");
        assert_eq!(taken(&mut slots, 5, "e", (3, 3)), None);
        slots.give_back(at(6), 1);
        slots.give_back(at(6), 0);
        assert_eq!(taken(&mut slots, 7, "a", (3, 1)), Some((0, Came::Anew)), "another was there meanwhile");
        assert_eq!(taken(&mut slots, 8, "c", (3, 2)), Some((1, Came::Back)), "where it was last");
    }

    #[test]
    fn a_session_in_two_slots_goes_on_in_the_one_it_came_to_last() {
        let mut slots = Slots::default();
        assert_eq!(taken(&mut slots, 1, "a", (2, 0)), Some((0, Came::Anew)));
        assert_eq!(taken(&mut slots, 2, "a", (2, 1)), Some((1, Came::Anew)));
        (0..2).for_each(|slot| slots.give_back(at(3), slot));
        assert_eq!(slots.unwritten().collect::<Vec<_>>(), [(1, at(3))], "the other is older");
        assert_eq!(taken(&mut slots, 4, "a", (2, 0)), Some((1, Came::Back)));
    }

    #[test]
    fn no_slot_is_named_beside_a_lease_in_one_that_nobody_knows() {
        let mut slots = Slots::default();
        assert_eq!(taken(&mut slots, 1, "a", (4, 1)), None);
        assert_eq!(taken(&mut slots, 1, "a", (4, 0)), Some((0, Came::Anew)));
        assert_eq!(taken(&mut slots, 1, "b", (4, 2)), None);
    }

    #[test]
    fn what_a_slot_holds_is_written_once_after_each_lease_and_never_during_one() {
        let mut slots = Slots::default();
        let unwritten = |slots: &Slots| slots.unwritten().collect::<Vec<_>>();
        assert_eq!(taken(&mut slots, 1, "a", (2, 0)), Some((0, Came::Anew)));
        assert_eq!((unwritten(&slots), slots.begin_writing(0)), (vec![], None), "K1");
        slots.give_back(at(2), 0);
        assert_eq!(unwritten(&slots), [(0, at(2))]);
        assert_eq!((slots.begin_writing(0), slots.begin_writing(0)), (Some(("a".into(), Writing(1))), None));
        assert_eq!((unwritten(&slots), slots.being_written().collect::<Vec<_>>()), (vec![], vec![Writing(1)]));
        slots.end_writing(Writing(1));
        assert_eq!((unwritten(&slots), slots.being_written().next()), (vec![], None));
        assert_eq!(taken(&mut slots, 3, "a", (2, 0)), Some((0, Came::Back)));
        slots.end_writing(Writing(1));
        slots.give_back(at(4), 0);
        assert_eq!(unwritten(&slots), [(0, at(4))], "late news of the writing before changes nothing");
    }
}
