//! [`Sights`]: how far a pool that cannot be read is trusted, and what others use of it (capacity.md §5).
//!
//! ```text
//!            read                     fails                 fails, 15 s after the first failure
//!   never ────────► Known(foreign) ─────────► Trusted ─────────────────────────────────────► Unknown
//!     └─ fails: Unknown      ▲───────────────────┴──────────── read ◄───────────────────────────┘
//!                            └─────────────── read ◄── Lost: unknown at once ◄── any of them
//! ```
//!
//! The old figure is never used: trusted, the ledger alone decides; unknown, no new claim goes there. A look that does not
//! come at all is no reading of any card: 15 s after the last one began its figures are too old to be used, and so long is
//! as long as a card that is missing is trusted. Where the
//! operator said how much there is, a pool that cannot be read is trusted however long that lasts; a card that is lost
//! never is.
//!
//! What others use of a card is what is neither free there nor ours. Ours is what its driver shows of our trees, loading,
//! stopping and stuck ones included; where it does not tell, it is what our lines say, so that an engine that is half
//! loaded never counts twice. Only a child with a line is ours: what is still there of one whose time to give its memory
//! back is over (`reclaim.rs`) is others' from then on. It is counted against the size of the card that bounds us: where
//! a driver shows more than the operator says, what others use of the rest takes nothing from us, and where it shows
//! less, the difference is not there.
use crate::{CardFigures, CardSight, MemorySight, Pool};
use motorpool_broker::{Place, Reading, Sight, SizedBy};
use motorpool_vocab::{Bytes, DeviceId, EventKind, Now};
use std::{collections::BTreeMap, time::Duration};

/// For so long from its first failure on a pool that was readable before is trusted.
const TRUSTED_WITHIN: Duration = Duration::from_secs(15);

/// How the last readings of every pool went.
#[derive(Debug, Default)]
pub(crate) struct Sights {
    pools: BTreeMap<Place, Last>,
    /// What the last look showed; a card that it did not show is not in it.
    figures: BTreeMap<DeviceId, CardFigures>,
    /// What servers of others held of system memory at the last look, the largest first.
    servers: Vec<(String, Bytes)>,
    /// When that look began.
    begun_at: Option<Now>,
    next_look: NextLook,
}

/// Until when the next look at the cards has to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NextLook {
    /// There was no card so far.
    #[default]
    Unasked,
    By(Now),
    /// It did not come, and nothing more follows from that.
    Overdue,
}

/// How the last readings of one pool went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Read,
    /// Read before, and not any more since then.
    MissingSince(Now),
    /// Never read, or not for too long.
    Unread,
    Lost,
}

/// What one reading of a pool came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Read,
    Failed,
    Lost,
}

impl Last {
    /// After one more reading.
    fn after(before: Option<Self>, now: Now, came: Came) -> Self {
        match (came, before) {
            (Came::Read, _) => Self::Read,
            (Came::Lost, _) => Self::Lost,
            (Came::Failed, Some(Self::Read)) => Self::MissingSince(now),
            (Came::Failed, Some(before)) => before,
            (Came::Failed, None) => Self::Unread,
        }
    }

    /// After time alone.
    fn at(self, now: Now) -> Self {
        match self {
            Self::MissingSince(since) if now.since(since) >= TRUSTED_WITHIN => Self::Unread,
            last => last,
        }
    }

    /// How a pool that was not read is seen.
    fn unread(self, sized: SizedBy) -> Sight {
        match (self, sized) {
            (Self::Lost, _) | (Self::Read | Self::Unread, SizedBy::Machine) => Sight::Unknown,
            (Self::MissingSince(_), _) | (_, SizedBy::Operator) => Sight::Trusted,
        }
    }
}

impl Sights {
    /// What the last look showed of a card.
    pub(crate) fn figures(&self, id: &DeviceId) -> Option<&CardFigures> {
        self.figures.get(id)
    }

    /// What servers of others held of system memory at the last look, the largest first.
    pub(crate) fn servers(&self) -> &[(String, Bytes)] {
        &self.servers
    }

    /// Whether a card can be read, or will be soon if it is what it was.
    pub(crate) fn is_readable(&self, id: &DeviceId) -> bool {
        matches!(self.pools.get(&Place::Card(id.clone())), Some(Last::Read | Last::MissingSince(_)))
    }

    /// The cards may be others now: the next look counts from now on, if the one before is overdue.
    pub(crate) fn are_of_another_host(&mut self) {
        if self.next_look == NextLook::Overdue {
            self.next_look = NextLook::Unasked;
        }
    }

    /// When trust in a pool that is missing ends, or in the last look.
    pub(crate) fn trust_ends(&self) -> impl Iterator<Item = Now> + '_ {
        let pools = self.pools.values().filter_map(|last| match last {
            Last::MissingSince(since) => Some(since.after(TRUSTED_WITHIN)),
            Last::Read | Last::Unread | Last::Lost => None,
        });
        let look = match self.next_look {
            NextLook::By(at) => Some(at),
            NextLook::Unasked | NextLook::Overdue => None,
        };
        pools.chain(look)
    }
}

impl Pool {
    /// A reading enters every judgement from now on. It stops nothing by itself.
    pub(crate) fn on_memory(&mut self, now: Now, memory: MemorySight) {
        let came = if memory.foreign.is_some() { Came::Read } else { Came::Failed };
        self.note(now, Place::SystemMemory, came);
        let unread = self.unread(&Place::SystemMemory);
        let sight = memory.foreign.map_or(unread, |foreign| Sight::Known { foreign });
        // What is over by it is found by the settling that follows every input.
        let _ = self.ledger.observe(Reading { place: Place::SystemMemory, sight });
        self.sights.servers = memory.servers;
        self.sights.servers.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
        self.press_by_memory(now, memory.available, memory.stalled);
    }

    /// The same of the cards. A look that began before the last one shows nothing new.
    pub(crate) fn on_cards(&mut self, now: Now, begun_at: Now, cards: &BTreeMap<DeviceId, CardSight>) {
        if self.sights.begun_at.is_some_and(|last| last > begun_at) {
            return;
        }
        self.sights.begun_at = Some(begun_at);
        self.sights.next_look = NextLook::By(begun_at.after(TRUSTED_WITHIN));
        self.correct_by_cards(now, begun_at, cards);
        self.sights.figures.clear();
        for id in self.card_ids() {
            let (came, figures) = match cards.get(&id) {
                Some(CardSight::Seen(figures)) => (Came::Read, Some(figures)),
                Some(CardSight::Lost) => (Came::Lost, None),
                Some(CardSight::Missing) | None => (Came::Failed, None),
            };
            self.note(now, Place::Card(id.clone()), came);
            self.sights.figures.extend(figures.map(|figures| (id, figures.clone())));
        }
        self.check_reclaims(now, begun_at);
        self.observe_cards();
        self.check_admissions(now, begun_at);
        self.prove_by_cards(now, begun_at);
        self.press_by_cards(now, begun_at);
    }

    /// What others use of each card follows from the last look and from what is ours now.
    pub(crate) fn observe_cards(&mut self) {
        for id in self.card_ids() {
            let place = Place::Card(id);
            if self.sights.pools.contains_key(&place) {
                let sight = self.sight_of(&place);
                let _ = self.ledger.observe(Reading { place, sight });
            }
        }
    }

    /// Trust ends by time, too.
    pub(crate) fn on_due_sights(&mut self, now: Now) {
        match self.sights.next_look {
            NextLook::Unasked if !self.ledger.bounds().cards.is_empty() => {
                self.sights.next_look = NextLook::By(now.after(TRUSTED_WITHIN));
            }
            NextLook::By(at) if at <= now => self.miss_look(now, at),
            NextLook::Unasked | NextLook::By(_) | NextLook::Overdue => {}
        }
        let after = |(place, last): (&Place, &Last)| (*last != last.at(now)).then(|| (place.clone(), last.at(now)));
        let changed: Vec<_> = self.sights.pools.iter().filter_map(after).collect();
        for (place, last) in changed {
            self.sights.pools.insert(place.clone(), last);
            let sight = self.sight_of(&place);
            let _ = self.ledger.observe(Reading { place, sight });
        }
    }

    /// No look came until `at`: what the last one showed is no figure any more, and no card has been read since.
    fn miss_look(&mut self, now: Now, at: Now) {
        self.sights.next_look = NextLook::Overdue;
        self.sights.figures.clear();
        for id in self.card_ids() {
            let place = Place::Card(id);
            let was_read = self.sights.pools.get(&place) == Some(&Last::Read);
            self.note(now, place.clone(), Came::Failed);
            if was_read {
                self.sights.pools.insert(place, Last::Unread);
            }
        }
        self.observe_cards();
        self.press_by_cards(now, at);
    }

    fn note(&mut self, now: Now, place: Place, came: Came) {
        let before = self.sights.pools.get(&place).map(|last| last.at(now));
        let last = Last::after(before, now, came);
        let device = match &place {
            Place::Card(id) => Some(id.clone()),
            Place::SystemMemory => None,
        };
        self.sights.pools.insert(place, last);
        match (before, came, device) {
            (Some(Last::Lost), Came::Read, Some(device)) if self.is_condemned(&device) => {
                self.pardon_cards(now, |id, _| *id == device);
            }
            (Some(Last::Lost), Came::Read, Some(device)) => self.publish(now, EventKind::DeviceBack { device }),
            (Some(Last::Lost), Came::Lost, _) => {}
            (_, Came::Lost, Some(device)) => self.publish(now, EventKind::DeviceLost { device }),
            (None | Some(Last::Read), Came::Failed, device) => self.publish(now, EventKind::ReadingMissing { device }),
            _ => {}
        }
    }

    pub(crate) fn sight_of(&self, place: &Place) -> Sight {
        let foreign = match place {
            Place::Card(id) if self.is_condemned(id) => return Sight::Unknown,
            Place::Card(id) => self.foreign_on(id),
            Place::SystemMemory => None,
        };
        foreign.map_or(self.unread(place), |foreign| Sight::Known { foreign })
    }

    /// How a pool is seen that was not read.
    fn unread(&self, place: &Place) -> Sight {
        let last = self.sights.pools.get(place).copied().unwrap_or(Last::Unread);
        last.unread(self.size_of(place))
    }

    /// Whether nothing new goes to a card because it is not there, or nobody knows it.
    pub(crate) fn is_unknown(&self, id: &DeviceId) -> bool {
        let place = Place::Card(id.clone());
        let is_there = self.ledger.bounds().cards.iter().any(|card| card.id == *id);
        !is_there
            || self.is_condemned(id)
            || self.sights.pools.contains_key(&place) && self.sight_of(&place) == Sight::Unknown
    }

    /// Cards that their driver calls lost, or that an engine died of.
    pub(crate) fn lost_cards(&self) -> Vec<DeviceId> {
        let is_lost = |id: &DeviceId| {
            self.is_condemned(id) || self.sights.pools.get(&Place::Card(id.clone())) == Some(&Last::Lost)
        };
        self.card_ids().into_iter().filter(is_lost).collect()
    }

    /// Whether the driver of one of these cards tells what is free there and not whose the rest is.
    pub(crate) fn tells_totals_only(&self, cards: &BTreeMap<DeviceId, Bytes>) -> bool {
        cards.keys().filter_map(|id| self.sights.figures(id)).any(|figures| figures.by_spawn.is_none())
    }

    /// What is neither free on a card nor ours; `None` when the last look did not show it.
    pub(crate) fn foreign_on(&self, id: &DeviceId) -> Option<Bytes> {
        let figures = self.sights.figures(id)?;
        let total = self.ledger.bounds().cards.iter().find(|card| card.id == *id)?.total;
        let ours = match &figures.by_spawn {
            Some(shown) => {
                Bytes::sum(shown.iter().filter(|(spawn, _)| self.ledger.line(**spawn).is_some()).map(|(_, b)| *b))
            }
            None => self.ledger.committed_on(id),
        };
        Some(total.saturating_sub(figures.free).saturating_sub(ours))
    }

    fn card_ids(&self) -> Vec<DeviceId> {
        self.ledger.bounds().cards.iter().map(|card| card.id.clone()).collect()
    }

    /// Who says how much there is; of system memory the operator does by an explicit budget.
    fn size_of(&self, place: &Place) -> SizedBy {
        match place {
            Place::SystemMemory if self.config.host.budget.explicit.is_none() => SizedBy::Machine,
            Place::SystemMemory => SizedBy::Operator,
            Place::Card(id) => {
                self.config.host.cards.iter().find(|card| card.id == *id).map(|card| card.sized).unwrap_or_default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        Now::from_nanos(seconds * 1_000_000_000)
    }

    /// Readings every 5 s from second 0 on, and how the pool is seen after each; `None`: as it was read.
    fn seen(sized: SizedBy, readings: &[Came]) -> Vec<Option<Sight>> {
        let mut last: Option<Last> = None;
        let of = |(n, came): (u64, &Came)| {
            let after = Last::after(last.map(|last| last.at(at(5 * n))), at(5 * n), *came);
            last = Some(after);
            (after != Last::Read).then(|| after.unread(sized))
        };
        (0..).zip(readings).map(of).collect()
    }

    const TRUSTED: Option<Sight> = Some(Sight::Trusted);
    const UNKNOWN: Option<Sight> = Some(Sight::Unknown);

    use Came::{Failed, Lost, Read};

    #[test]
    fn ten_seconds_without_a_reading_are_bridged_by_the_ledger_and_the_old_figure_is_gone() {
        let sights = seen(SizedBy::Machine, &[Read, Failed, Failed, Read]);
        assert_eq!(sights, [None, TRUSTED, TRUSTED, None]);
    }

    #[test]
    fn fifteen_seconds_after_the_first_failure_nothing_new_goes_there_until_it_is_read_again() {
        let sights = seen(SizedBy::Machine, &[Read, Failed, Failed, Failed, Failed, Failed, Read, Failed]);
        assert_eq!(sights, [None, TRUSTED, TRUSTED, TRUSTED, UNKNOWN, UNKNOWN, None, TRUSTED]);
    }

    #[test]
    fn what_was_never_read_is_unknown_at_once_unless_its_operator_says_how_much_there_is() {
        assert_eq!(seen(SizedBy::Machine, &[Failed, Failed, Read]), [UNKNOWN, UNKNOWN, None]);
        assert_eq!(seen(SizedBy::Operator, &[Failed; 9]), [TRUSTED; 9]);
    }

    #[test]
    fn what_is_lost_is_unknown_whoever_says_how_large_it_is_until_it_is_seen_again() {
        for sized in [SizedBy::Machine, SizedBy::Operator] {
            assert_eq!(
                seen(sized, &[Read, Lost, Failed, Lost, Read, Failed]),
                [None, UNKNOWN, UNKNOWN, UNKNOWN, None, TRUSTED]
            );
        }
    }
}
