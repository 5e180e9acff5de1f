//! Who is next for a slot of an engine: [`pick_ticket`], a function over plain data (pool.md §6).
//!
//! ```text
//! older than the maximum wait, the oldest first
//!   └ interactive ─ background ─ ambient
//!       └ priority ─ affinity (session 2, actor 1) ─ turn
//! ```
//!
//! Interactive work may use every slot. Background and ambient work together use one fewer, but one at least, so that
//! whoever watches finds a slot; age does not change that. A request that another one waits for may use that slot
//! too: work inside work cannot wait for itself. Nothing ever uses more slots than there are.
use crate::RequestId;
use motorpool_vocab::{Lane, Now};
use std::{cmp::Reverse, time::Duration};

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

/// Who goes first, whether there is a slot or not.
fn rank(now: Now, max_wait: Duration, ticket: &Queued) -> impl Ord + use<> {
    let overdue = ticket.lane != Lane::Ambient && now.since(ticket.since) >= max_wait;
    let by_lane = (ticket.lane, Reverse(ticket.priority), Reverse(ticket.affinity));
    (!overdue, if overdue { None } else { Some(by_lane) }, ticket.turn, ticket.id)
}

/// The next ticket that may have a slot now.
pub fn pick_ticket(now: Now, max_wait: Duration, occupied: Occupied, queue: &[Queued]) -> Option<RequestId> {
    let may = queue.iter().filter(|ticket| occupied.admits(ticket.lane, ticket.descent));
    may.min_by_key(|ticket| rank(now, max_wait, ticket)).map(|ticket| ticket.id)
}

/// All tickets in the order in which they would be served.
pub(crate) fn in_order(now: Now, max_wait: Duration, mut queue: Vec<Queued>) -> Vec<Queued> {
    queue.sort_by_key(|ticket| rank(now, max_wait, ticket));
    queue
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn work_inside_work_may_use_the_slot_that_is_kept_and_no_slot_that_is_not_there() {
        let child = Queued { descent: Descent::Child, ..ticket(1, Lane::Background) };
        assert_eq!(picked(100, occupied(2, 1, 1), &[child]), Some(1));
        assert_eq!(picked(100, occupied(1, 1, 1), &[child]), None);
        assert_eq!(picked(100, occupied(2, 2, 1), &[child]), None);
    }
}
