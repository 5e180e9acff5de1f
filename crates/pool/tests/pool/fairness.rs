//! P5 and P6: nobody starves, in virtual time, whatever the traffic.
use crate::world::{World, catalog};
use motorpool_pool::RequestId;
use motorpool_vocab::Now;
use proptest::prelude::*;
use std::{collections::BTreeMap, time::Duration};

#[test]
fn whose_model_takes_longer_to_be_looked_at_keeps_its_place_in_the_line() {
    let mut w = World::with(1024, catalog(&[("a", 900, ""), ("b", 900, ""), ("c", 900, "")]));
    let a = w.resident("a");
    w.pass(Duration::from_secs(11));
    let (b, c) = (w.acquire("b"), w.acquire("c"));
    let slow = w.checks.remove(0);
    w.check_all();
    w.pass(Duration::from_secs(1));
    w.checks.push(slow);
    w.check_all();
    w.leave(a);
    w.obey();
    assert!(w.is_granted(b), "{:?}", w.outcome(b));
    assert!(!w.is_granted(c), "{:?}", w.outcome(c));
}

proptest! {
    /// P5 for two models that fit one at a time and are asked for ever: neither starves.
    #[test]
    fn two_models_for_one_place_both_progress(gaps in prop::collection::vec(0u64..8_000, 30..60)) {
        let mut w = World::new(1024);
        let (mut granted, mut open) = ([0usize; 2], Vec::new());
        for (n, gap) in gaps.iter().enumerate() {
            let id = w.acquire(["a", "b"][n % 2]);
            open.push((n % 2, id));
            w.obey();
            w.pass(Duration::from_millis(*gap));
            if let Some(id) = w.leases.keys().next().copied() {
                w.leave(id);
            }
        }
        for (model, id) in open {
            granted[model] += usize::from(w.is_granted(id));
        }
        prop_assert!(granted[0] > 0 && granted[1] > 0, "P5: {granted:?}");
    }

    /// P6: under traffic on two engines without a pause, whoever needs the room of both is served within the maximum
    /// wait and its drain wait, when no turn takes longer than that.
    #[test]
    fn a_waiter_is_served_in_time_under_steady_traffic(
        (width, more) in (1u32..4, prop_oneof![Just(""), Just("priority = 1")]),
        turns in prop::collection::vec((0usize..3, 1u64..20), 110..140),
    ) {
        let mut w = World::with(1300, catalog(&[("a", 600, more), ("b", 600, ""), ("big", 1200, "")]));
        w.width = width;
        let mut ends: BTreeMap<RequestId, Now> = BTreeMap::new();
        let (mut big, mut served_after) = (None, 0);
        for (second, (n, held)) in (0u64..).zip(turns) {
            match (second, n) {
                (15, _) => big = Some(w.acquire("big")),
                (_, 0) => drop(w.enter("a").or_else(|| Some(w.acquire("a")))),
                (_, 1) => drop(w.enter("b").or_else(|| Some(w.acquire("b")))),
                _ => {}
            }
            w.obey();
            let now = w.now;
            for id in w.leases.keys() {
                ends.entry(*id).or_insert(now.after(Duration::from_secs(held)));
            }
            for id in ends.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect::<Vec<_>>() {
                ends.remove(&id);
                w.leave(id);
                w.obey();
            }
            served_after += usize::from(big.is_some_and(|id| w.is_granted(id)) && second > 15);
            w.pass(Duration::from_secs(1));
            let late = second >= 15 + 90 && !big.is_some_and(|id| w.is_granted(id));
            prop_assert!(!late, "P6: {:?}", big.and_then(|id| w.outcome(id)));
        }
        prop_assert!(served_after > 0);
    }
}
