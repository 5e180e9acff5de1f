//! [`pick_measured`]: who goes for what a driver says is missing on cards.
//!
//! The ledger has granted the claim already: what is missing is memory that is really there, so what an engine frees is
//! what it really holds. The set is found as any other (`victims.rs`): the shortest prefix of the order given that
//! suffices on every card, from which members are dropped, most demanded first, while it still does.
use motorpool_vocab::{Bytes, DeviceId, Spawn};
use std::collections::BTreeMap;

/// The members of `candidates`, least demanded first and each with what it frees on each card, that give what is
/// `missing`; `None` when all together do not.
pub fn pick_measured(
    missing: &BTreeMap<DeviceId, Bytes>,
    candidates: &[(Spawn, BTreeMap<DeviceId, Bytes>)],
) -> Option<Vec<Spawn>> {
    let frees = |(_, frees): &(Spawn, BTreeMap<DeviceId, Bytes>), id| frees.get(id).copied().unwrap_or_default();
    let suffices = |set: &[&(Spawn, BTreeMap<DeviceId, Bytes>)]| {
        missing.iter().all(|(id, bytes)| Bytes::sum(set.iter().map(|c| frees(c, id))) >= *bytes)
    };
    let mut set = Vec::new();
    for candidate in candidates {
        if suffices(&set) {
            break;
        }
        set.push(candidate);
    }
    if !suffices(&set) {
        return None;
    }
    for at in (0..set.len()).rev() {
        let one = set.remove(at);
        if !suffices(&set) {
            set.insert(at, one);
        }
    }
    Some(set.into_iter().map(|(spawn, _)| *spawn).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(cards: &[(&str, u64)]) -> BTreeMap<DeviceId, Bytes> {
        cards.iter().map(|(id, gib)| (DeviceId((*id).into()), Bytes::gib(*gib))).collect()
    }

    #[test]
    fn the_least_demanded_that_suffice_go_and_nobody_who_is_no_use() {
        let candidates = [
            (Spawn(1), on(&[("B", 9)])),
            (Spawn(2), on(&[("A", 2)])),
            (Spawn(3), on(&[("A", 3)])),
            (Spawn(4), on(&[("A", 9)])),
        ];
        let pick = |missing: &[(&str, u64)]| pick_measured(&on(missing), &candidates);
        assert_eq!(pick(&[("A", 2)]), Some(vec![Spawn(2)]));
        assert_eq!(pick(&[("A", 5)]), Some(vec![Spawn(2), Spawn(3)]));
        assert_eq!(pick(&[("A", 3)]), Some(vec![Spawn(3)]), "the smaller one does not help");
        assert_eq!(pick(&[("A", 14), ("B", 1)]), Some(vec![Spawn(1), Spawn(2), Spawn(3), Spawn(4)]));
        assert_eq!(pick(&[("A", 15)]), None, "not even all: nobody goes");
        assert_eq!(pick(&[]), Some(vec![]));
    }
}
