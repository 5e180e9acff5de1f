//! [`until_returned`]: engines of an earlier supervisor are gone; cards may still hold what they held (capacity.md, B4).
//!
//! Until they have it back it would count as somebody else's, and the first load would be refused for it. A card agrees in
//! a look that began after they were gone: where its driver tells what each process holds, when it shows some and none of
//! them, nor anybody else who does not live; else, as nobody saw what was free before, when hardly anything is in use there. One that
//! cannot be read is not waited for. After the time that an evicted engine's memory is given, it is somebody else's.
use crate::{lookout::Lookout, settle::Past};
use motorpool_devices::{DeviceReading, pids};
use motorpool_vocab::{Bytes, DeviceId};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// How often cards are looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// So much of what was reserved may still be in use, whoever uses it, in thousandths.
const IN_USE_TO: u64 = 100;

/// What is awaited of one card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Awaited {
    bytes: Bytes,
    pids: BTreeSet<u32>,
}

/// What engines that are gone held, by card.
fn awaited(past: &[Past]) -> BTreeMap<DeviceId, Awaited> {
    let mut all = BTreeMap::<DeviceId, Awaited>::new();
    for Past { pid, held } in past {
        for (id, bytes) in held.iter().filter(|(_, bytes)| **bytes > 0) {
            let card = all.entry(DeviceId(id.as_str().into())).or_default();
            card.bytes = card.bytes.saturating_add(Bytes::new(*bytes));
            card.pids.extend(pid);
        }
    }
    all
}

impl Awaited {
    /// Whether the card has it back, when these processes live.
    fn is_back(&self, reading: &DeviceReading, living: &BTreeSet<u32>) -> bool {
        let Ok(memory) = &reading.memory else { return true };
        let is_dead = |pid: &u32| self.pids.contains(pid) || !living.contains(pid);
        // Where process ids mean nothing to a driver it shows nobody, whatever is in use.
        let shown = reading.by_process.as_ref().filter(|shown| !shown.is_empty());
        let shows_others_only = shown.is_some_and(|shown| !shown.keys().any(is_dead));
        shows_others_only || memory.total.saturating_sub(memory.free) <= self.bytes.per_mille(IN_USE_TO)
    }
}

/// Waits for the memory of engines that are gone, `within` at most.
pub(crate) async fn until_returned(lookout: &Lookout, past: &[Past], within: Duration) {
    let mut awaited = awaited(past);
    let looks = async {
        while !awaited.is_empty() {
            let readings = lookout.readings(awaited.keys()).await;
            // Whom nobody could list is none that lives: then all that a card shows may be theirs.
            let living = pids().unwrap_or_default().into_iter().collect();
            awaited.retain(|id, card| readings.get(id).is_some_and(|reading| !card.is_back(reading, &living)));
            if !awaited.is_empty() {
                sleep(LOOK_EVERY).await;
            }
        }
    };
    let came = timeout(within, looks).await;
    if came.is_err() {
        let cards: Vec<String> = awaited.keys().map(ToString::to_string).collect();
        tracing::warn!(
            cards = cards.join(", "),
            "what engines of an earlier run held is not back; it counts as others' use"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::tests::{A, B, device};

    fn past(pid: Option<u32>, held: &[(&str, u64)]) -> Past {
        let held = held.iter().map(|(id, gib)| ((*id).to_owned(), Bytes::gib(*gib).get())).collect();
        Past { pid, held }
    }

    fn id(id: &str) -> DeviceId {
        DeviceId(id.into())
    }

    #[test]
    fn what_several_held_on_one_card_is_awaited_together_and_system_memory_is_not() {
        let all = awaited(&[past(Some(7), &[(A, 10), (B, 0)]), past(None, &[(A, 2)]), past(Some(9), &[])]);
        assert_eq!(all, [(id(A), Awaited { bytes: Bytes::gib(12), pids: [7].into() })].into());
    }

    #[test]
    fn a_card_agrees_when_it_shows_none_of_them_and_nobody_who_is_dead() {
        let card = Awaited { bytes: Bytes::gib(20), pids: [7].into() };
        let living = [7, 50].into();
        let back = |free, shown: Option<&[(u32, u64)]>| card.is_back(&device(A, free, shown), &living);
        assert!(!back(4, Some(&[(7, 20)])), "its number may be another's by now, but not on this card");
        assert!(!back(4, Some(&[(50, 1), (8, 19)])), "a process of its tree");
        assert!(back(4, Some(&[(50, 20)])), "somebody else's");
        assert!(back(24, Some(&[])));
        assert!(!back(4, Some(&[])), "somebody has it, whom the driver cannot name");
    }

    #[test]
    fn where_only_totals_are_told_hardly_anything_may_be_in_use() {
        let card = Awaited { bytes: Bytes::gib(20), pids: [7].into() };
        let back = |free| card.is_back(&device(A, free, None), &[50].into());
        assert!(back(24) && back(22) && !back(21) && !back(4));
    }
}
