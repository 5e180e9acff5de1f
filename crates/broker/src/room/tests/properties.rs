//! Rooms over random machines, against every possible set.
use super::*;
use proptest::prelude::*;

/// A machine with lines on it, and who of them may go.
#[derive(Clone, Debug)]
struct Scene {
    host: Host,
    lines: Vec<(Claim, u32, u64)>,
    n_fixed: usize,
    load: Load,
}

fn any_line(n_cards: usize) -> impl Strategy<Value = Claim> {
    let device = prop::option::of((0..n_cards.max(1), 1u64..900));
    (device, 0u64..600, 0u64..3, any::<bool>()).prop_map(move |(device, private, inode, whole)| {
        let id = FileId { device: 0, inode, size: 1, mtime_nanos: 0 };
        let device = device.filter(|_| n_cards > 0).map(|(n, mib)| (card(n), Bytes::mib(mib)));
        let on_device = device.as_ref().map_or(Bytes::ZERO, |(_, bytes)| *bytes);
        let file = Bytes::mib(200 * inode + if whole { 0 } else { 50 });
        Claim {
            device: device.into_iter().collect(),
            ram_private: Bytes::mib(private),
            ram_files: [(id, file)].into(),
            accelerated: on_device,
        }
    })
}

fn any_load() -> impl Strategy<Value = Load> {
    prop_oneof![
        (1u64..2500).prop_map(lump),
        (1usize..12, 1u64..400).prop_map(|(n, mib)| layered(n, mib)),
        (1u64..2500).prop_map(|mib| {
            let choice = Choice { gpu_layers: Some(0), ..Choice::default() };
            Load { choice, ..lump(mib) }
        }),
    ]
}

fn any_scene(n_lines: std::ops::Range<usize>) -> impl Strategy<Value = Scene> {
    let shape = prop_oneof![Just(HostShape::SystemRam), Just(HostShape::Unified), Just(HostShape::DiscreteGpu)];
    let spillover = prop_oneof![3 => Just(Spillover::Auto), 1 => Just(Spillover::On)];
    (shape, 0usize..4, spillover, 2600u64..5000).prop_flat_map(move |(shape, n_cards, spillover, ram)| {
        let n_cards = if shape == HostShape::DiscreteGpu { n_cards } else { 0 };
        let cards = (0..n_cards).map(|n| Card::new(&format!("GPU-{n}"), Bytes::gib(1 + n as u64 % 2))).collect();
        let host = Host { shape, ram: Bytes::mib(ram), cards, spillover, ..Host::default() };
        let lines = prop::collection::vec((any_line(n_cards), 0u32..4, 0u64..3), n_lines.clone());
        (lines, 0usize..3, any_load()).prop_map(move |(lines, n_fixed, load)| Scene {
            host: host.clone(),
            lines,
            n_fixed: n_fixed.saturating_sub(1),
            load,
        })
    })
}

impl Scene {
    /// Every line is there, whatever the bounds say.
    fn ledger(&self) -> Ledger {
        let free = Host { budget: BudgetSetting::explicit(Bytes::ZERO), ..self.host.clone() };
        let lines: Vec<_> = self.lines.iter().map(|(claim, ..)| claim.clone()).collect();
        let mut ledger = with_lines(&free, &lines);
        let enforced = self.host.bounds();
        if enforced.budget.bound().is_none() {
            let _ = ledger
                .set_bounds(Host { budget: BudgetSetting::explicit(Bytes::gib(1)), ..self.host.clone() }.bounds());
        } else {
            let _ = ledger.set_bounds(enforced);
        }
        ledger
    }

    fn fixed(&self) -> Vec<Spawn> {
        (1..=self.n_fixed as u64).map(Spawn).filter(|s| s.0 <= self.lines.len() as u64).collect()
    }

    fn candidates(&self) -> Vec<Candidate> {
        let all = (1..)
            .zip(&self.lines)
            .map(|(n, (_, hits, reload))| Candidate { reload: Duration::from_secs(*reload), ..idle(n, *hits) });
        all.skip(self.fixed().len()).collect()
    }
}

/// Whether `placement` would do without `set`.
fn would_do(ledger: &Ledger, set: &[Spawn], placement: &Placement) -> bool {
    let others = ledger.spawns().filter(|spawn| !set.contains(spawn)).filter_map(|spawn| ledger.line(spawn));
    let alone = Bytes::sum(others.map(|line| line.accelerated)).is_zero();
    (placement.company == Company::Any || alone) && ledger.shortfall(set, &placement.claim).fits()
}

fn the_attempts(ledger: &Ledger, scene: &Scene, candidates: &[Candidate]) -> Vec<Placement> {
    let (base, most) = (Scratch::without(ledger, []), Scratch::with_only(ledger, &scene.fixed()));
    let movable = candidates.iter().map(|c| (c, ledger.lines().find(c.spawn).expect("a line")));
    attempts(ledger, &scene.load, &views(&scene.load, (&base, &most), &movable.collect::<Vec<_>>()))
}

/// Every subset of `in_order`, the most demanded in the highest bit: ascending in the order that P10 minimises.
fn subsets(in_order: &[Spawn]) -> impl Iterator<Item = Vec<Spawn>> + '_ {
    (0u32..1 << in_order.len())
        .map(|mask| (0..in_order.len()).filter(|i| mask >> i & 1 == 1).map(|i| in_order[i]).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// P10: sufficient, irredundant, lexicographically optimal over every placement; several pools, shared files.
    #[test]
    fn victim_sets_equal_brute_force(scene in any_scene(1..13)) {
        let ledger = scene.ledger();
        let (fixed, candidates) = (scene.fixed(), scene.candidates());
        let mut in_order: Vec<_> = candidates.iter().map(|c| (c.hits, c.last_use, c.key.clone(), c.spawn)).collect();
        in_order.sort();
        let in_order: Vec<_> = in_order.into_iter().map(|c| c.3).collect();
        let attempts = the_attempts(&ledger, &scene, &candidates);
        let best = subsets(&in_order).find_map(|set| {
            attempts.iter().find(|placement| would_do(&ledger, &set, placement)).map(|p| (set, p.clone()))
        });
        let room = pick_room(&ledger, &Query { fixed: &fixed, ..asked(&scene.load) }, &candidates);
        match (best, room) {
            (None, Room::Never(proof)) => prop_assert!(proof.excess.would_commit > proof.excess.bound),
            (Some((set, placement)), Room::Fits(found)) => {
                prop_assert!(set.is_empty());
                prop_assert_eq!(placement, found);
            }
            (Some((set, placement)), Room::Evict { set: found, placement: at }) => {
                prop_assert_eq!(set, found, "P10");
                prop_assert_eq!(placement, at);
            }
            (expected, found) => prop_assert!(false, "{expected:?} but {found:?}"),
        }
    }

    /// A set that is granted is enough: the line can be reserved once they are gone (B1, B3).
    #[test]
    fn what_is_promised_can_be_reserved(scene in any_scene(1..30), policy in 0usize..3) {
        let mut ledger = scene.ledger();
        let policy = [Policy::DemandLru, Policy::Lru, Policy::Gdsf][policy];
        let (fixed, candidates) = (scene.fixed(), scene.candidates());
        let query = Query { fixed: &fixed, policy, ..asked(&scene.load) };
        match pick_room(&ledger, &query, &candidates) {
            Room::Fits(placement) => prop_assert_eq!(ledger.reserve(Spawn(99), placement.claim), Verdict::Admit),
            Room::Evict { set, placement } => {
                for n in 0..set.len() {
                    let without: Vec<_> = set.iter().enumerate().filter(|(i, _)| *i != n).map(|(_, s)| *s).collect();
                    prop_assert!(!would_do(&ledger, &without, &placement), "P10: {:?} is superfluous", set[n]);
                }
                for spawn in set {
                    ledger.release(spawn);
                }
                prop_assert_eq!(ledger.reserve(Spawn(99), placement.claim), Verdict::Admit);
            }
            Room::Never(proof) => prop_assert!(ledger.excess_without(
                &ledger.spawns().filter(|s| !fixed.contains(s)).collect::<Vec<_>>(), &proof.claim) == Some(proof.excess)),
            room => prop_assert!(false, "{room:?}"),
        }
    }

    /// With up to twelve candidates `gdsf` finds the set that costs the least to have back.
    #[test]
    fn the_cheapest_set_to_have_back_equals_brute_force(scene in any_scene(1..13)) {
        let ledger = scene.ledger();
        let (fixed, candidates) = (scene.fixed(), scene.candidates());
        let cost = |set: &[Spawn]| -> u128 {
            let of = candidates.iter().filter(|c| set.contains(&c.spawn));
            of.map(|c| u128::from(c.hits) * c.reload.as_millis()).sum()
        };
        let all: Vec<_> = candidates.iter().map(|c| c.spawn).collect();
        let attempts = the_attempts(&ledger, &scene, &candidates);
        let sufficient = subsets(&all).filter(|set| attempts.iter().any(|p| would_do(&ledger, set, p)));
        let least = sufficient.map(|set| cost(&set)).min();
        let query = Query { fixed: &fixed, policy: Policy::Gdsf, ..asked(&scene.load) };
        match pick_room(&ledger, &query, &candidates) {
            Room::Fits(_) => prop_assert_eq!(least, Some(0)),
            Room::Evict { set, .. } => prop_assert_eq!(least, Some(cost(&set))),
            Room::Never(_) => prop_assert_eq!(least, None),
            room => prop_assert!(false, "{room:?}"),
        }
    }
}
