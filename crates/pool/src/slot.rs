//! [`LoadSlots`]: how many engines load at a time, and whose turn it is (pool.md §9).
//!
//! An engine looks at what is free while it loads, and some drivers do not stand two loads at once. A build that has
//! its room, and with it its line, takes the slots of *all* devices that it claims at once or none; one without a device
//! takes that of system memory. It holds them from the last checks before its start until it is ready or has failed.
//!
//! * First come, first served, by the order in which lines were reserved; builds that nobody waits for come last. A build
//!   that waits for one of its slots keeps the place in the others: nobody younger overtakes it there, and builds that
//!   share no slot with it go on.
//! * Slots are taken together by whoever comes first, so no two builds wait for each other.
//! * A load waits only for loads: nobody is stopped for a slot. What waits for one is not a victim, unless nobody waits
//!   for it: its line is the first to go when somebody needs the room (`room.rs`).
//! * Who holds what is not kept: it follows from the phases of the entries. A load that failed, was told to end or was
//!   left by everybody has another phase, so its slots are free.
use crate::{
    Pool,
    entry::{Admitting, EntryId, Phase},
};
use motorpool_broker::Place;
use motorpool_vocab::{Now, Spawn};
use std::{collections::BTreeMap, num::NonZeroU32};

/// How many engines load at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSlots {
    /// So many on each device, and so many in system memory alone.
    PerDevice(NonZeroU32),
    /// One of all.
    OneForAll,
}

impl Default for LoadSlots {
    fn default() -> Self {
        Self::PerDevice(NonZeroU32::MIN)
    }
}

/// A slot; `None` is the one for all.
type Slot = Option<Place>;

impl Pool {
    /// Whoever has a turn now takes its slots.
    pub(crate) fn settle_slots(&mut self, now: Now) {
        let width = match self.config.load_slots {
            LoadSlots::PerDevice(width) => width.get(),
            LoadSlots::OneForAll => 1,
        };
        let mut taken = BTreeMap::<Slot, u32>::new();
        for spawn in self.entries.values().filter_map(|e| holder(&e.phase)) {
            for slot in self.slots_of(spawn) {
                *taken.entry(slot).or_default() += 1;
            }
        }
        for (spawn, entry) in self.waiting_for_slots() {
            let slots = self.slots_of(spawn);
            let free = slots.iter().all(|slot| taken.get(slot).is_none_or(|n| *n < width));
            for slot in slots {
                *taken.entry(slot).or_default() += 1;
            }
            if free {
                self.begin_last_checks(now, entry);
            }
        }
    }

    fn waiting_for_slots(&self) -> Vec<(Spawn, EntryId)> {
        let waits = |(id, e): (EntryId, &crate::entry::Entry)| {
            let admission = e.admission().filter(|admission| admission.step == Admitting::WaitsForSlot)?;
            Some((admission.spawn, id))
        };
        let mut waiting: Vec<_> = self.entries.iter().filter_map(waits).collect();
        waiting.sort_unstable_by_key(|(spawn, entry)| (self.is_background(*entry), *spawn));
        waiting
    }

    /// The slots that the load of `spawn` takes.
    fn slots_of(&self, spawn: Spawn) -> Vec<Slot> {
        let Some(claim) = self.ledger.line(spawn) else { return vec![] };
        if self.config.load_slots == LoadSlots::OneForAll {
            return vec![None];
        }
        let on = claim.device.iter().filter(|(_, bytes)| !bytes.is_zero());
        let devices: Vec<_> = on.map(|(id, _)| Some(Place::Card(id.clone()))).collect();
        if devices.is_empty() { vec![Some(Place::SystemMemory)] } else { devices }
    }
}

/// Whose slots are held in this phase.
fn holder(phase: &Phase) -> Option<Spawn> {
    match phase {
        Phase::Starting(loading) => Some(loading.spawn),
        Phase::Admission(admission) if admission.step != Admitting::WaitsForSlot => Some(admission.spawn),
        _ => None,
    }
}
