//! [`Sights`]: how far a pool that cannot be read is trusted (capacity.md §5).
//!
//! ```text
//!            read                     fails                 fails, 15 s after the first failure
//!   never ────────► Known(foreign) ─────────► Trusted ─────────────────────────────────────► Unknown
//!     └─ fails: Unknown      ▲───────────────────┴──────────── read ◄───────────────────────────┘
//! ```
//!
//! The old figure is never used: trusted, the ledger alone decides; unknown, no new claim goes there. Where the
//! operator said how much there is, a pool that cannot be read is trusted however long that lasts.
use crate::Pool;
use motorpool_broker::{Place, Reading, Sight};
use motorpool_vocab::{Bytes, EventKind, Now};
use std::{collections::BTreeMap, time::Duration};

/// For so long from its first failure on a pool that was readable before is trusted.
const TRUSTED_WITHIN: Duration = Duration::from_secs(15);

/// How the last readings of every pool went.
#[derive(Debug, Default)]
pub(crate) struct Sights {
    pools: BTreeMap<Place, Last>,
}

/// How the last readings of one pool went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Read,
    /// Read before, and not any more since then.
    MissingSince(Now),
    Never,
}

/// Who says how much there is of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Operator,
    Machine,
}

impl Last {
    /// After one more reading.
    fn after(before: Option<Self>, now: Now, foreign: Option<Bytes>) -> Self {
        match (foreign, before) {
            (Some(_), _) => Self::Read,
            (None, Some(Self::Read)) => Self::MissingSince(now),
            (None, Some(before)) => before,
            (None, None) => Self::Never,
        }
    }

    fn sight(self, now: Now, (foreign, size): (Option<Bytes>, Size)) -> Sight {
        match (foreign, self) {
            (Some(foreign), _) => Sight::Known { foreign },
            (None, Self::MissingSince(since)) if now.since(since) < TRUSTED_WITHIN => Sight::Trusted,
            (None, _) if size == Size::Operator => Sight::Trusted,
            (None, _) => Sight::Unknown,
        }
    }
}

impl Pool {
    /// A reading enters every judgement from now on. It stops nothing by itself.
    pub(crate) fn on_reading(&mut self, now: Now, place: Place, foreign: Option<Bytes>) {
        let before = self.sights.pools.get(&place).copied();
        let last = Last::after(before, now, foreign);
        if foreign.is_none() && before.is_none_or(|before| before == Last::Read) {
            let device = match &place {
                Place::Card(id) => Some(id.clone()),
                Place::SystemMemory => None,
            };
            self.publish(now, EventKind::ReadingMissing { device });
        }
        let sight = last.sight(now, (foreign, self.size_of(&place)));
        self.sights.pools.insert(place.clone(), last);
        // What is over by it is found by the settling that follows every input.
        let _ = self.ledger.observe(Reading { place, sight });
    }

    /// Cards are those that the operator names; of system memory the operator says how much by an explicit budget.
    fn size_of(&self, place: &Place) -> Size {
        match place {
            Place::SystemMemory if self.config.host.budget.explicit.is_none() => Size::Machine,
            Place::SystemMemory | Place::Card(_) => Size::Operator,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        Now::from_nanos(seconds * 1_000_000_000)
    }

    /// Readings every 5 s from second 0 on, and how the pool is seen after each.
    fn seen(size: Size, readings: &[Option<u64>]) -> Vec<Sight> {
        let mut last = None;
        let of = |(n, gib): (u64, &Option<u64>)| {
            let (now, foreign) = (at(5 * n), gib.map(Bytes::gib));
            let after = Last::after(last, now, foreign);
            last = Some(after);
            after.sight(now, (foreign, size))
        };
        (0..).zip(readings).map(of).collect()
    }

    const KNOWN: Sight = Sight::Known { foreign: Bytes::gib(1) };

    #[test]
    fn ten_seconds_without_a_reading_are_bridged_by_the_ledger_and_the_old_figure_is_gone() {
        let sights = seen(Size::Machine, &[Some(1), None, None, Some(1)]);
        assert_eq!(sights, [KNOWN, Sight::Trusted, Sight::Trusted, KNOWN]);
    }

    #[test]
    fn fifteen_seconds_after_the_first_failure_nothing_new_goes_there_until_it_is_read_again() {
        let sights = seen(Size::Machine, &[Some(1), None, None, None, None, None, Some(1), None]);
        let (trusted, unknown) = (Sight::Trusted, Sight::Unknown);
        assert_eq!(sights, [KNOWN, trusted, trusted, trusted, unknown, unknown, KNOWN, trusted]);
    }

    #[test]
    fn what_was_never_read_is_unknown_at_once_unless_its_operator_says_how_much_there_is() {
        assert_eq!(seen(Size::Machine, &[None, None, Some(1)]), [Sight::Unknown, Sight::Unknown, KNOWN]);
        assert_eq!(seen(Size::Operator, &[None; 9]), [Sight::Trusted; 9]);
    }
}
