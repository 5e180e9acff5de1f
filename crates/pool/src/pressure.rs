//! [`Pressures`]: memory that runs low, and not by our own doing (capacity.md §5).
//!
//! | pool | runs low | does not any more |
//! | --- | --- | --- |
//! | a card | free ≤ max(1 GiB, 8 %) *and* others use more than we leave to them; or an allocation failed there | free ≥ 1.5 × that, or others use no more than that and nothing failed |
//! | system memory | available ≤ max(1 GiB, 8 %), or some task stood still for it 10 % of the time | available ≥ 1.5 × that, and standing still for less than 10 % ÷ 1.5 |
//!
//! While it does, engines that hold some of it and were idle for 60 s go, least demanded first: one at a time. The next
//! one goes by what is read after the bytes of the last one are back. Nothing busy is touched, and nothing pinned. A card
//! that we filled ourselves is not under pressure: what we leave to others is free there.
//!
//! How long tasks stood still is an average that forgets over 10 s: after one engine went it still tells of the time
//! before. Alone, while enough is available, it says something new only two of its windows after that one's bytes are
//! back, by when it has forgotten 86 %: the spec's "re-read between" is a reading of what is now. What is available is of
//! now at once, so that memory that is really short does not wait for the average.
//!
//! A pool that cannot be read is not judged; a card that is lost is forgotten.
use crate::{Pool, entry::EntryId};
use motorpool_broker::{Candidate, Place};
use motorpool_vocab::{Bytes, CloseIfIdle, DeviceId, EventKind, ExitRecord, FailureClass, Now, Spawn, StopReason};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// So much free is little, whatever the size.
const LITTLE: Bytes = Bytes::gib(1);
/// So much of the size is little, in thousandths.
const LITTLE_SHARE: u64 = 80;
/// Where it ends, in thousandths of where it begins.
const ENDS_AT: u64 = 1_500;
/// Tasks stand still too much, and no more, in hundredths of a percent of the time.
const STALLED: u16 = 1_000;
const STALLED_ENDS: u16 = 667;
/// An engine that was used since then is not idle.
const IDLE_FOR: Duration = Duration::from_mins(1);
/// A reading of system memory does not say when it began; one that comes so much later did so after.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// For so long standing still tells of the time before as well: two windows of the kernel's average.
const STALLS_TOLD_WITHIN: Duration = Duration::from_secs(20);

/// Where memory runs low.
#[derive(Debug, Default)]
pub(crate) struct Pressures {
    low: BTreeMap<Place, Turn>,
    /// Cards where an allocation failed and too little has been free since.
    failed: BTreeSet<DeviceId>,
}

/// Whether the next engine may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// By any reading.
    Next,
    /// This one's bytes are not back.
    Leaves(Spawn),
    /// By a reading that began after this.
    ReadAfter(Now),
}

/// What one reading says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Low,
    /// As low as before.
    Between,
    Fine,
}

/// What counts as little of `total`.
fn little(total: Bytes) -> Bytes {
    LITTLE.max(total.per_mille(LITTLE_SHARE))
}

fn level_of(free: Bytes, total: Bytes) -> Level {
    if free <= little(total) {
        Level::Low
    } else if free >= little(total).per_mille(ENDS_AT) {
        Level::Fine
    } else {
        Level::Between
    }
}

fn level_of_stalls(stalled: u16) -> Level {
    if stalled >= STALLED {
        Level::Low
    } else if stalled < STALLED_ENDS {
        Level::Fine
    } else {
        Level::Between
    }
}

impl Pool {
    /// System memory was read.
    pub(crate) fn press_by_memory(&mut self, now: Now, available: Option<Bytes>, stalled: Option<u16>) {
        let of_available = available.map(|free| level_of(free, self.config.host.ram));
        let levels: Vec<Level> = of_available.into_iter().chain(stalled.map(level_of_stalls)).collect();
        if levels.is_empty() {
            return;
        }
        let level = if levels.contains(&Level::Low) {
            Level::Low
        } else if levels.iter().all(|level| *level == Level::Fine) {
            Level::Fine
        } else {
            Level::Between
        };
        let within = match of_available {
            Some(Level::Low | Level::Between) => READ_WITHIN,
            Some(Level::Fine) | None => STALLS_TOLD_WITHIN,
        };
        let is_fresh = |after: Now| now >= after.after(within);
        self.press(now, (Place::SystemMemory, available), level, is_fresh);
    }

    /// The cards were read in a look that began at `begun_at`.
    pub(crate) fn press_by_cards(&mut self, now: Now, begun_at: Now) {
        let cards = self.ledger.bounds().cards.iter().map(|card| card.id.clone()).collect::<Vec<_>>();
        for id in cards {
            let place = Place::Card(id.clone());
            if let Some((free, level)) = self.level_of_card(&id) {
                if level == Level::Fine {
                    self.pressures.failed.remove(&id);
                }
                self.press(now, (place, Some(free)), level, |after| begun_at >= after);
            } else if !self.sights.is_readable(&id) {
                self.pressures.low.remove(&place);
            }
        }
    }

    fn level_of_card(&self, id: &DeviceId) -> Option<(Bytes, Level)> {
        let (figures, foreign) = (self.sights.figures(id)?, self.foreign_on(id)?);
        let card = self.ledger.bounds().cards.iter().find(|card| card.id == *id)?;
        // What we leave to others: what no share has, or what the operator keeps.
        let left = card.total.saturating_sub(card.share).max(card.reserve);
        let failed = self.pressures.failed.contains(id);
        let level = match level_of(figures.free, figures.total) {
            Level::Fine => Level::Fine,
            Level::Low | Level::Between if failed => Level::Low,
            level if foreign > left => level,
            Level::Low | Level::Between => Level::Fine,
        };
        Some((figures.free, level))
    }

    fn press(&mut self, now: Now, (place, free): (Place, Option<Bytes>), level: Level, is_fresh: impl Fn(Now) -> bool) {
        let device = match &place {
            Place::Card(id) => Some(id.clone()),
            Place::SystemMemory => None,
        };
        match (level, self.pressures.low.contains_key(&place)) {
            (Level::Low, false) => {
                self.pressures.low.insert(place.clone(), Turn::Next);
                self.publish(now, EventKind::Pressure { device, free });
            }
            (Level::Fine, true) => {
                self.pressures.low.remove(&place);
                self.publish(now, EventKind::PressureOver { device });
            }
            (Level::Low | Level::Between, true) | (Level::Between | Level::Fine, false) => {}
        }
        let may_go = match self.pressures.low.get(&place) {
            Some(Turn::Next) => true,
            Some(Turn::ReadAfter(after)) => is_fresh(*after),
            Some(Turn::Leaves(_)) | None => false,
        };
        if may_go {
            self.let_one_go(now, &place);
        }
    }

    fn let_one_go(&mut self, now: Now, place: &Place) {
        let was_idle = |candidate: &Candidate| now.since(candidate.last_use) >= IDLE_FOR;
        for (entry, candidate) in self.idle_by_demand(now) {
            if was_idle(&candidate) && self.holds_some(candidate.spawn, place) && self.closes(entry) {
                self.pressures.low.insert(place.clone(), Turn::Leaves(candidate.spawn));
                return self.tear_down(now, entry, StopReason::MemoryPressure);
            }
        }
    }

    /// Whether the gate of `entry` closes, which it does when nobody is in.
    pub(crate) fn closes(&self, entry: EntryId) -> bool {
        self.entries[entry].serving().map(|serving| serving.gate.close_if_idle()) == Some(CloseIfIdle::Closed)
    }

    fn holds_some(&self, spawn: Spawn, place: &Place) -> bool {
        let Some(line) = self.ledger.line(spawn) else { return false };
        match place {
            Place::Card(id) => line.device.get(id).is_some_and(|bytes| !bytes.is_zero()),
            Place::SystemMemory => line.total() > Bytes::sum(line.device.values().copied()),
        }
    }

    /// The bytes of `spawn` are back, or never will be.
    pub(crate) fn pressed_out(&mut self, now: Now, spawn: Spawn) {
        for turn in self.pressures.low.values_mut().filter(|turn| **turn == Turn::Leaves(spawn)) {
            *turn = Turn::ReadAfter(now);
        }
    }

    /// A child ended; one that could not allocate on its cards shows that there is too little there.
    pub(crate) fn note_failed_allocation(&mut self, record: &ExitRecord) {
        if record.class == Some(FailureClass::OutOfDeviceMemory) {
            let line = self.ledger.line(record.spawn);
            self.pressures.failed.extend(line.into_iter().flat_map(|line| line.device.keys().cloned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_a_gibibyte_or_eight_percent_and_it_ends_half_as_much_above() {
        let of_card = |mib| level_of(Bytes::mib(mib), Bytes::gib(8));
        assert_eq!([1024, 1025, 1535, 1536].map(of_card), [Level::Low, Level::Between, Level::Between, Level::Fine]);
        let of_large = |mib| level_of(Bytes::mib(mib), Bytes::mib(100_000));
        assert_eq!(
            [8_000, 8_001, 11_999, 12_000].map(of_large),
            [Level::Low, Level::Between, Level::Between, Level::Fine]
        );
    }

    #[test]
    fn tasks_that_stand_still_a_tenth_of_the_time_are_pressure_until_it_is_two_thirds_of_that() {
        assert_eq!(
            [1_000, 999, 667, 666].map(level_of_stalls),
            [Level::Low, Level::Between, Level::Between, Level::Fine]
        );
    }
}
