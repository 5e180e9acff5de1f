//! Who is next for a slot of an engine: [`pick_ticket`], a function over plain data (pool.md §6).
//!
//! ```text
//! older than the maximum wait, the oldest first
//!   └ interactive ─ background ─ ambient
//!       └ priority ─ whose owner had least ─ affinity (session 2, actor 1) ─ turn
//! ```
//!
//! The owner of a request is its access key, and what it has had is counted in requests; of one owner alone, nothing of that
//! changes the order. Age helps only whoever's owner has had least, so that a flood of old requests of one does not keep
//! others out; that one's own go by age.
//!
//! Interactive work may use every slot. Background and ambient work together use one fewer, but one at least, so that
//! whoever watches finds a slot; age does not change that. A request that another one waits for may use that slot
//! too: work inside work cannot wait for itself. Nothing ever uses more slots than there are.
use crate::RequestId;
use motorpool_vocab::{Lane, Now};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// A ticket as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Which.
    pub id: RequestId,
    /// How urgent it is.
    pub lane: Lane,
    /// Whether a request waits for it.
    pub descent: Descent,
    /// Since when it waits.
    pub since: Now,
    /// Its turn among equals: the smaller is first.
    pub turn: u64,
    /// What its caller says of it; the greater is first.
    pub priority: i32,
    /// What it finds there of itself.
    pub affinity: Affinity,
    /// Whose it is.
    pub owner: Owner,
}

/// Whose a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The same for the same owner, in one queue.
    pub id: usize,
    /// How much it has had of the engine, in requests.
    pub had: u64,
}

/// What owners have had of an engine lately: the virtual time of start-time fair queueing (Goyal, Vin and Cheng, 1996), in
/// requests. An owner that comes back begins where the others are: nobody saves up, and nobody is made to pay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    now: u64,
    /// Only of those that are ahead of `now`.
    ahead: BTreeMap<Option<Arc<str>>, u64>,
}

impl Shares {
    /// How much `owner` has had.
    pub(crate) fn of(&self, owner: Option<&Arc<str>>) -> u64 {
        self.ahead.get(&owner.cloned()).copied().unwrap_or(self.now)
    }

    /// One more request of `owner` was let in.
    pub(crate) fn take(&mut self, owner: Option<&Arc<str>>) {
        self.now = self.of(owner);
        self.ahead.insert(owner.cloned(), self.now + 1);
        self.ahead.retain(|_, had| *had > self.now);
    }
}

/// Whether a request is part of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descent {
    /// It stands alone.
    Alone,
    /// Another one waits for it.
    Child,
}

/// What a request finds on an engine of what was before. The greater is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Affinity {
    /// Nothing.
    None,
    /// Its actor used the engine last.
    Actor,
    /// Its session's context.
    Session,
}

/// What goes on at an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupied {
    /// Slots that it really has.
    pub width: u32,
    /// Leases on it.
    pub granted: u32,
    /// Those of them that are not interactive.
    pub background: u32,
    /// Whether it was quiet long enough for ambient work.
    pub quiet: Quiet,
}

/// Whether an engine was without work long enough for ambient work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiet {
    /// It was.
    Enough,
    /// Not yet.
    NotYet,
}

impl Occupied {
    /// Whether a ticket of this kind may have a slot now.
    fn admits(&self, lane: Lane, descent: Descent) -> bool {
        let most = self.width.saturating_sub(u32::from(descent == Descent::Alone)).max(1);
        let in_lane = match lane {
            Lane::Interactive => true,
            Lane::Background => self.background < most,
            Lane::Ambient => self.background < most && self.quiet == Quiet::Enough,
        };
        self.granted < self.width && in_lane
    }
}

/// Who goes first among those of one owner, whether there is a slot or not.
fn rank(now: Now, max_wait: Duration, ticket: &Queued) -> impl Ord + use<> {
    let overdue = is_overdue(now, max_wait, ticket);
    let by_lane = (ticket.lane, Reverse(ticket.priority), Reverse(ticket.affinity));
    (!overdue, if overdue { None } else { Some(by_lane) }, ticket.turn, ticket.id)
}

/// The next ticket that may have a slot now.
pub fn pick_ticket(now: Now, max_wait: Duration, occupied: Occupied, queue: &[Queued]) -> Option<RequestId> {
    let mut firsts: BTreeMap<usize, &Queued> = BTreeMap::new();
    for ticket in queue.iter().filter(|ticket| occupied.admits(ticket.lane, ticket.descent)) {
        let first = firsts.entry(ticket.owner.id).or_insert(ticket);
        if rank(now, max_wait, ticket) < rank(now, max_wait, first) {
            *first = ticket;
        }
    }
    next_of(now, max_wait, firsts.values().map(|ticket| (*ticket, ticket.owner.had))).map(|ticket| ticket.id)
}

/// All tickets in the order in which they would be served, if each were served as soon as it is its turn.
pub(crate) fn in_order(now: Now, max_wait: Duration, mut queue: Vec<Queued>) -> Vec<Queued> {
    queue.sort_by_key(|ticket| rank(now, max_wait, ticket));
    let mut owners: BTreeMap<usize, (VecDeque<Queued>, u64)> = BTreeMap::new();
    for ticket in queue {
        owners.entry(ticket.owner.id).or_insert_with(|| (VecDeque::new(), ticket.owner.had)).0.push_back(ticket);
    }
    let next = || {
        let firsts = owners.values().filter_map(|(own, had)| Some((own.front()?, *had)));
        let owner = next_of(now, max_wait, firsts)?.owner.id;
        let (own, had) = owners.get_mut(&owner)?;
        *had = had.saturating_add(1);
        own.pop_front()
    };
    std::iter::from_fn(next).collect()
}

/// Who is next of the first of each owner, given what that has had.
fn next_of<'a>(
    now: Now,
    max_wait: Duration,
    firsts: impl Iterator<Item = (&'a Queued, u64)> + Clone,
) -> Option<&'a Queued> {
    let least = firsts.clone().map(|(_, had)| had).min()?;
    let rank = |(ticket, had): &(&Queued, u64)| {
        let overdue = is_overdue(now, max_wait, ticket) && *had == least;
        let own = (ticket.turn, ticket.id);
        if overdue {
            return (false, None, own);
        }
        let by_lane = (ticket.lane, Reverse(ticket.priority), *had, Reverse(ticket.affinity));
        (true, Some(by_lane), own)
    };
    firsts.min_by_key(rank).map(|(ticket, _)| ticket)
}

fn is_overdue(now: Now, max_wait: Duration, ticket: &Queued) -> bool {
    ticket.lane != Lane::Ambient && now.since(ticket.since) >= max_wait
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX_WAIT: Duration = Duration::from_mins(1);

    fn at(seconds: u64) -> Now {
        Now::from_nanos(seconds * 1_000_000_000)
    }

    fn ticket(id: u64, lane: Lane) -> Queued {
        Queued {
            id: RequestId(id),
            lane,
            descent: Descent::Alone,
            since: at(100),
            turn: id,
            priority: 0,
            affinity: Affinity::None,
            owner: Owner::default(),
        }
    }

    fn occupied(width: u32, granted: u32, background: u32) -> Occupied {
        Occupied { width, granted, background, quiet: Quiet::NotYet }
    }

    fn picked(now: u64, occupied: Occupied, queue: &[Queued]) -> Option<u64> {
        pick_ticket(at(now), MAX_WAIT, occupied, queue).map(|id| id.0)
    }

    #[test]
    fn interactive_work_may_use_every_slot_and_background_work_leaves_one() {
        let (interactive, background) = ([ticket(1, Lane::Interactive)], [ticket(1, Lane::Background)]);
        for (width, most) in [(1, 1), (2, 1), (4, 3)] {
            for n in 0..=width {
                let now = picked(100, occupied(width, n, n), &background);
                assert_eq!(now.is_some(), n < most, "{n} of {width} in the background");
                assert_eq!(picked(100, occupied(width, n, n), &interactive).is_some(), n < width);
            }
        }
    }

    #[test]
    fn interactive_goes_first_and_ambient_only_when_it_was_quiet() {
        let queue = [ticket(1, Lane::Ambient), ticket(2, Lane::Background), ticket(3, Lane::Interactive)];
        assert_eq!(picked(100, occupied(4, 0, 0), &queue), Some(3));
        assert_eq!(picked(100, occupied(4, 0, 0), &queue[..2]), Some(2));
        assert_eq!(picked(100, occupied(4, 0, 0), &queue[..1]), None);
        let quiet = Occupied { quiet: Quiet::Enough, ..occupied(4, 0, 0) };
        assert_eq!(picked(100, quiet, &queue[..1]), Some(1));
    }

    #[test]
    fn the_overdue_go_first_but_never_into_the_slot_of_the_other_lane() {
        let old = Queued { since: at(40), ..ticket(9, Lane::Background) };
        let queue = [ticket(1, Lane::Interactive), old];
        assert_eq!(picked(100, occupied(4, 0, 0), &queue), Some(9));
        assert_eq!(picked(99, occupied(4, 0, 0), &queue), Some(1), "one second younger");
        assert_eq!(picked(100, occupied(2, 1, 1), &queue), Some(1), "the last slot is kept for those who watch");
        let ambient = Queued { since: at(0), ..ticket(8, Lane::Ambient) };
        let quiet = Occupied { quiet: Quiet::Enough, ..occupied(4, 0, 0) };
        assert_eq!(picked(100, quiet, &[ambient, queue[0]]), Some(1), "ambient work is never overdue");
    }

    #[test]
    fn among_equals_priority_then_session_then_actor_then_turn() {
        let with = |id, priority, affinity| Queued { priority, affinity, ..ticket(id, Lane::Interactive) };
        let queue = [
            with(1, 0, Affinity::None),
            with(2, 0, Affinity::None),
            with(3, 0, Affinity::Actor),
            with(4, 0, Affinity::Session),
            with(5, 1, Affinity::None),
        ];
        let order = in_order(at(100), MAX_WAIT, queue.to_vec());
        assert_eq!(order.iter().map(|t| t.id.0).collect::<Vec<_>>(), [5, 4, 3, 1, 2]);
    }

    /// A ticket of this owner, who has had so much.
    fn of(owner: usize, had: u64, id: u64) -> Queued {
        Queued { owner: Owner { id: owner, had }, ..ticket(id, Lane::Interactive) }
    }

    fn order(now: u64, queue: &[Queued]) -> Vec<u64> {
        in_order(at(now), MAX_WAIT, queue.to_vec()).iter().map(|ticket| ticket.id.0).collect()
    }

    #[test]
    fn owners_take_turns_however_many_wait_of_one() {
        let flood: Vec<_> = (1..=4).map(|id| of(1, 0, id)).collect();
        let queue = [flood.clone(), vec![of(2, 0, 5), of(2, 0, 6)]].concat();
        assert_eq!(order(100, &queue), [1, 5, 2, 6, 3, 4]);
        let served: Vec<_> = (1..=4).map(|id| of(1, 1, id)).collect();
        let queue = [served.clone(), vec![of(2, 0, 5)]].concat();
        assert_eq!(picked(100, occupied(2, 1, 0), &queue), Some(5), "who has none goes before who has one");
        let old: Vec<_> = served.iter().map(|ticket| Queued { since: at(0), ..*ticket }).collect();
        let queue = [old.clone(), vec![of(2, 0, 5)]].concat();
        assert_eq!(picked(100, occupied(2, 1, 0), &queue), Some(5), "and age does not change that");
        assert_eq!(picked(100, occupied(2, 1, 0), &old), Some(1));
    }

    #[test]
    fn who_was_away_begins_where_the_others_are() {
        let [a, b] = ["a", "b"].map(Arc::from);
        let mut shares = Shares::default();
        (0..5).for_each(|_| shares.take(Some(&a)));
        assert_eq!((shares.of(Some(&a)), shares.of(Some(&b))), (5, 4), "b is next, once");
        shares.take(Some(&b));
        assert_eq!((shares.of(Some(&a)), shares.of(Some(&b))), (5, 5));
        shares.take(Some(&b));
        assert_eq!(
            (shares.of(Some(&a)), shares.of(Some(&b)), shares.ahead.len()),
            (5, 6, 1),
            "who is not ahead is not remembered"
        );
    }

    #[test]
    fn an_owner_has_no_share_of_what_is_more_urgent() {
        let background = Queued { lane: Lane::Background, ..of(2, 0, 5) };
        let important = Queued { priority: 1, ..of(1, 9, 4) };
        let queue = [of(1, 9, 1), background, important, of(2, 0, 6)];
        assert_eq!(order(100, &queue), [4, 6, 1, 5]);
    }

    fn any_ticket() -> impl Strategy<Value = Queued> {
        let lane = prop_oneof![Just(Lane::Interactive), Just(Lane::Background), Just(Lane::Ambient)];
        (lane, 0u64..200, -1i32..2, 0u8..3).prop_map(|(lane, since, priority, found)| {
            let affinity = [Affinity::None, Affinity::Actor, Affinity::Session][usize::from(found)];
            Queued { since: at(since), priority, affinity, ..ticket(0, lane) }
        })
    }

    proptest! {
        #[test]
        fn of_one_owner_alone_what_it_has_changes_nothing(
            tickets in proptest::collection::vec(any_ticket(), 0..12),
            had in 0u64..4,
            now in 0u64..200,
        ) {
            let numbered = tickets.into_iter().zip(1..);
            let queue: Vec<_> = numbered.map(|(ticket, n)| Queued { id: RequestId(n), turn: n, ..ticket }).collect();
            let mut by_rank = queue.clone();
            by_rank.sort_by_key(|ticket| rank(at(now), MAX_WAIT, ticket));
            let own: Vec<_> = queue.iter().map(|ticket| Queued { owner: Owner { id: 7, had }, ..*ticket }).collect();
            let ids = |queue: &[Queued]| queue.iter().map(|ticket| ticket.id.0).collect::<Vec<_>>();
            prop_assert_eq!(order(now, &own), ids(&by_rank));
        }

        #[test]
        fn the_one_that_is_picked_is_the_first_in_order_of_those_that_may(
            tickets in proptest::collection::vec((any_ticket(), 0usize..3), 0..12),
            now in 0u64..200,
        ) {
            let had = [0, 1, 2];
            let numbered = tickets.into_iter().zip(1..);
            let own = |(ticket, owner): (Queued, usize), n| {
                Queued { id: RequestId(n), turn: n, owner: Owner { id: owner, had: had[owner] }, ..ticket }
            };
            let queue: Vec<_> = numbered.map(|(ticket, n)| own(ticket, n)).collect();
            let all = Occupied { quiet: Quiet::Enough, ..occupied(9, 0, 0) };
            prop_assert_eq!(picked(now, all, &queue), order(now, &queue).first().copied());
        }
    }

    #[test]
    fn work_inside_work_may_use_the_slot_that_is_kept_and_no_slot_that_is_not_there() {
        let child = Queued { descent: Descent::Child, ..ticket(1, Lane::Background) };
        assert_eq!(picked(100, occupied(2, 1, 1), &[child]), Some(1));
        assert_eq!(picked(100, occupied(1, 1, 1), &[child]), None);
        assert_eq!(picked(100, occupied(2, 2, 1), &[child]), None);
    }
}
