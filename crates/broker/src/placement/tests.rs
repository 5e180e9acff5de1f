use super::*;
use crate::{BudgetSetting, Card, Choice, Host, Learned, Mapping, Place, Reading, Sight, Spillover, Verdict, Which};
use motorpool_gguf::{Footprint, LayerBytes, Weights};
use motorpool_vocab::Spawn;
use proptest::prelude::*;

fn id(name: &str) -> DeviceId {
    DeviceId(name.into())
}

fn discrete(cards: &[(&str, u64)]) -> Host {
    let cards = cards.iter().map(|(id, gib)| Card::new(id, Bytes::gib(*gib))).collect();
    Host { shape: HostShape::DiscreteGpu, ram: Bytes::gib(128), cards, ..Host::default() }
}

fn weights(mib: u64) -> Weights {
    Weights { file: Bytes::mib(mib), repacked: Bytes::ZERO }
}

/// `n` layers of 1 GiB, of which `experts` MiB are experts, and nothing else.
fn layers(n: usize, experts: u64) -> Footprint {
    let layer = LayerBytes { dense: weights(1024 - experts), experts: weights(experts), ..LayerBytes::default() };
    Footprint { layers: vec![layer; n], ..Footprint::default() }
}

fn load(footprint: Footprint, choice: Choice) -> Load {
    let parts = Parts::Known { footprint, files: vec![], mapping: Mapping::SystemMemory };
    Load { parts, choice, learned: Learned::default() }
}

fn auto(footprint: Footprint) -> Load {
    load(footprint, Choice::default())
}

fn lump(gib: u64) -> Load {
    Load::lump(Claim::private(Bytes::gib(gib)))
}

fn ledger(host: &Host) -> Ledger {
    Ledger::new(host.bounds())
}

fn place(ledger: &Ledger, load: &Load) -> Placement {
    pick_placement(ledger, load).expect("a place")
}

fn devices(placement: &Placement) -> Vec<(&str, u32)> {
    placement.split.devices.iter().map(|(id, n)| (&*id.0, *n)).collect()
}

#[test]
fn one_device_is_taken_the_smallest_that_fits_and_ties_go_by_id() {
    let host = discrete(&[("C", 24), ("B", 8), ("A", 8), ("D", 4)]);
    assert_eq!(devices(&place(&ledger(&host), &auto(layers(7, 0)))), [("A", 8)]);
    assert_eq!(devices(&place(&ledger(&host), &auto(layers(20, 0)))), [("C", 21)]);
    assert_eq!(devices(&place(&ledger(&host), &auto(layers(3, 0)))), [("D", 4)]);
}

#[test]
fn a_chosen_card_is_found_by_any_of_its_names_and_reserved_under_its_id() {
    let named = |card: &str, names: &[&str]| {
        let names = names.iter().map(|name| id(name)).collect();
        Card { names, ..Card::new(card, Bytes::gib(24)) }
    };
    let cards = vec![named("A", &["CUDA0", "0000:01:00.0"]), named("B", &["CUDA1"])];
    let host = Host { cards, ..discrete(&[]) };
    let on = |names: &[&str]| {
        let devices = Some(names.iter().map(|name| id(name)).collect());
        place(&ledger(&host), &load(layers(7, 0), Choice { devices, ..Choice::default() }))
    };
    assert_eq!(devices(&on(&["CUDA1"])), [("B", 8)]);
    assert_eq!(devices(&on(&["0000:01:00.0"])), [("A", 8)]);
    assert_eq!(devices(&on(&["cuda0", "A"])), [("A", 8)], "one card, named twice");
    assert_eq!(on(&["CUDA1"]).claim, on(&["B"]).claim);
}

#[test]
fn what_several_cards_are_called_names_none_of_them() {
    let cut = |card: &str| Card { names: vec![id("0000:01:00.0")], ..Card::new(card, Bytes::gib(24)) };
    let bounds = Host { cards: vec![cut("MIG-a"), cut("MIG-b")], ..discrete(&[]) }.bounds();
    assert_eq!(bounds.id_of(&id("0000:01:00.0")), id("0000:01:00.0"));
    assert_eq!(bounds.id_of(&id("MIG-b")), id("MIG-b"));
}

#[test]
fn what_fits_no_single_device_goes_over_the_largest_in_proportion() {
    let four = discrete(&[("A", 8), ("B", 24), ("C", 8), ("D", 16)]);
    assert_eq!(devices(&place(&ledger(&four), &auto(layers(36, 0)))), [("B", 22), ("D", 15)], "of 37 with the output");
    let three = place(&ledger(&four), &auto(layers(41, 0)));
    assert_eq!(three.split.devices.len(), 3);
    assert_eq!(three.split.devices[2].0, id("A"), "ties by id");
    let whole = Bytes::sum(three.claim.device.values().copied());
    assert_eq!((whole, three.claim.accelerated), (Bytes::gib(41), Bytes::gib(41)));
    assert_eq!(place(&ledger(&four), &auto(layers(50, 0))).split.devices.len(), 4);
}

#[test]
fn one_engine_is_never_split_over_instances_of_cards_that_are_cut_up_but_each_serves_one() {
    let host = discrete(&[("MIG-a", 40), ("MIG-b", 8), ("A", 24), ("B", 24)]);
    let on = |n| place(&ledger(&host), &auto(layers(n, 0)));
    assert_eq!(devices(&on(7)), [("MIG-b", 8)]);
    assert_eq!(devices(&on(36)), [("MIG-a", 37)]);
    assert_eq!(devices(&on(40)), [("A", 20), ("B", 21)]);
    let spilled = on(60);
    assert_eq!((devices(&spilled).len(), spilled.company), (2, Company::Alone), "{spilled:?}");
    assert!(spilled.split.devices.iter().all(|(id, _)| !id.is_instance()), "{spilled:?}");
    let cut = discrete(&[("MIG-a", 24), ("MIG-b", 24)]);
    let spilled = place(&ledger(&cut), &auto(layers(40, 0)));
    assert_eq!(devices(&spilled), [("MIG-a", 23)], "as on one card");
}

#[test]
fn a_model_larger_than_the_cards_spills_when_it_is_alone() {
    let host = discrete(&[("A", 24)]);
    let mut ledger = ledger(&host);
    let placement = place(&ledger, &auto(layers(40, 0)));
    assert_eq!((devices(&placement), placement.company), (vec![("A", 23)], Company::Alone), "22 layers, the output");
    assert_eq!(placement.claim.device[&id("A")], Bytes::gib(22));
    assert_eq!(placement.claim.accelerated, Bytes::gib(40), "what it would have used");
    assert_eq!(placement.claim.total(), Bytes::gib(40));
    assert_eq!(ledger.reserve(Spawn(1), placement.claim), Verdict::Admit);
    let proof = pick_placement(&ledger, &lump(1)).expect_err("beside it");
    assert_eq!((proof.excess.which, proof.excess.would_commit), (Which::CoResidency, Bytes::gib(41)));
}

#[test]
fn beside_others_nothing_spills_unless_allowed() {
    let host = discrete(&[("A", 24)]);
    let mut refusing = ledger(&host);
    assert_eq!(refusing.reserve(Spawn(1), place(&refusing, &lump(10)).claim), Verdict::Admit);
    let proof = pick_placement(&refusing, &auto(layers(20, 0))).expect_err("no spilling");
    assert_eq!(proof.excess.which, Which::CoResidency);
    let mut allowing = ledger(&Host { spillover: Spillover::On, ..host });
    assert_eq!(allowing.reserve(Spawn(1), place(&allowing, &lump(10)).claim), Verdict::Admit);
    let placement = place(&allowing, &auto(layers(20, 0)));
    assert_eq!((devices(&placement), placement.company), (vec![("A", 13)], Company::Any));
}

#[test]
fn nothing_spills_beside_others_though_the_ceiling_would_allow_it() {
    let mut ledger = ledger(&discrete(&[("A", 24)]));
    assert_eq!(ledger.reserve(Spawn(1), place(&ledger, &lump(10)).claim), Verdict::Admit);
    let sight = Sight::Known { foreign: Bytes::gib(4) };
    let _ = ledger.observe(Reading { place: Place::Card(id("A")), sight });
    let proof = pick_placement(&ledger, &auto(layers(12, 0))).expect_err("10 + 12 of 22.8, but 20 are left");
    let expected = (Which::Device(id("A")), Bytes::gib(22), Bytes::gib(20));
    assert_eq!((proof.excess.which, proof.excess.would_commit, proof.excess.bound), expected);
}

#[test]
fn experts_go_to_memory_before_layers_do() {
    let host = discrete(&[("A", 24)]);
    let placement = place(&ledger(&host), &auto(layers(40, 512)));
    assert_eq!((placement.split.gpu_layers, placement.split.cpu_moe), (41, 35), "40 - 35 × 0.5 fit 22.8");
    let dense = place(&ledger(&host), &auto(layers(40, 0)));
    assert_eq!((dense.split.gpu_layers, dense.split.cpu_moe), (23, 0));
    let larger = place(&ledger(&host), &auto(layers(50, 512)));
    assert_eq!((larger.split.gpu_layers, larger.split.cpu_moe), (46, 50), "all experts, then layers");
}

#[test]
fn spilling_takes_as_many_cards_as_hold_the_most() {
    let two = discrete(&[("A", 8), ("B", 16)]);
    let placement = place(&ledger(&two), &auto(layers(40, 0)));
    assert_eq!(devices(&placement), [("B", 15), ("A", 8)]);
    let heavy = Footprint { device_overhead: Bytes::gib(10), ..layers(40, 0) };
    assert_eq!(devices(&place(&ledger(&two), &auto(heavy))), [("B", 6)], "the overhead leaves no room on A");
}

#[test]
fn without_any_room_on_a_card_memory_takes_all_of_a_model_that_is_alone() {
    let mut ledger = ledger(&discrete(&[("A", 24)]));
    let _ = ledger.observe(Reading { place: Place::Card(id("A")), sight: Sight::Unknown });
    for load in [auto(layers(10, 0)), lump(10)] {
        let placement = place(&ledger, &load);
        assert_eq!((placement.split, placement.company), (Split::processor(), Company::Alone));
        assert_eq!((placement.claim.total(), placement.claim.accelerated), (Bytes::gib(10), Bytes::ZERO));
    }
}

#[test]
fn the_processor_only_is_a_choice_that_needs_no_card() {
    let mut ledger = ledger(&discrete(&[("A", 24)]));
    assert_eq!(ledger.reserve(Spawn(1), place(&ledger, &lump(22)).claim), Verdict::Admit);
    for choice in
        [Choice { gpu_layers: Some(0), ..Choice::default() }, Choice { devices: Some(vec![]), ..Choice::default() }]
    {
        let lump = Load { choice: choice.clone(), ..lump(30) };
        for load in [lump, load(layers(30, 0), choice)] {
            let placement = place(&ledger, &load);
            assert_eq!((placement.claim.total(), placement.claim.accelerated), (Bytes::gib(30), Bytes::ZERO));
            assert_eq!((placement.split, placement.company), (Split::processor(), Company::Any));
        }
    }
}

#[test]
fn an_operators_choice_is_obeyed_or_refused() {
    let host = discrete(&[("A", 24), ("B", 8)]);
    let on = |names: &[&str]| Choice { devices: Some(names.iter().map(|n| id(n)).collect()), ..Choice::default() };
    let ledger = ledger(&host);
    assert_eq!(devices(&place(&ledger, &load(layers(4, 0), on(&["A"])))), [("A", 5)], "B would fit better");
    assert_eq!(devices(&place(&ledger, &load(layers(4, 0), on(&["B", "A"])))).len(), 2, "over both, though one does");
    let partly = Choice { gpu_layers: Some(11), ..Choice::default() };
    let placement = place(&ledger, &load(layers(40, 0), partly));
    assert_eq!((devices(&placement), placement.claim.accelerated), (vec![("A", 11)], Bytes::gib(10)));
    let too_many = Choice { gpu_layers: Some(30), ..on(&["A"]) };
    let proof = pick_placement(&ledger, &load(layers(40, 0), too_many)).expect_err("29 GiB on a card of 22.8");
    assert_eq!(proof.excess.which, Which::Device(id("A")));
    let unknown = pick_placement(&ledger, &load(layers(4, 0), Choice { gpu_layers: Some(5), ..on(&["Z"]) }));
    assert_eq!(unknown.expect_err("no such card").excess.which, Which::Device(id("Z")));
    let experts = Choice { cpu_moe: Some(40), ..Choice::default() };
    assert_eq!(place(&ledger, &load(layers(40, 512), experts)).split.cpu_moe, 40);
}

#[test]
fn what_is_known_only_as_a_whole_must_fit_one_card_whole() {
    let ledger = ledger(&discrete(&[("A", 24), ("B", 24)]));
    let placement = place(&ledger, &lump(20));
    assert_eq!((devices(&placement), placement.claim.accelerated), (vec![("A", 1)], Bytes::gib(20)));
    let larger = place(&ledger, &lump(30));
    assert_eq!((larger.split, larger.company), (Split::processor(), Company::Alone), "two cards would hold it");
}

#[test]
fn hosts_with_one_pool_have_one_place() {
    for (shape, accelerated) in [(HostShape::Unified, 20), (HostShape::SystemRam, 0)] {
        let ledger = ledger(&Host { shape, ram: Bytes::gib(64), ..Host::default() });
        for load in [lump(20), auto(layers(20, 0))] {
            let placement = place(&ledger, &load);
            assert!(placement.split.devices.is_empty());
            assert_eq!(placement.claim.total(), Bytes::gib(20));
            assert_eq!(placement.claim.accelerated, Bytes::gib(accelerated));
        }
        let proof = pick_placement(&ledger, &lump(50)).expect_err("too large");
        assert_eq!((proof.excess.which, proof.excess.would_commit), (Which::Total, Bytes::gib(50)));
    }
}

#[test]
fn the_proof_is_of_the_attempt_that_is_short_of_the_least() {
    let ledger = ledger(&Host { ram: Bytes::gib(64), ..discrete(&[("A", 24)]) });
    let proof = pick_placement(&ledger, &auto(layers(100, 0))).expect_err("too large");
    let bound = Bytes::gib(24).per_mille(950).saturating_add(Bytes::gib(64).per_mille(600));
    assert_eq!(proof.excess, crate::Excess { would_commit: Bytes::gib(100), bound, which: Which::Total });
    assert_eq!(proof.claim.device[&id("A")], Bytes::gib(22), "over both pools, not on the card alone");
}

#[test]
fn without_an_enforced_budget_there_is_always_a_place() {
    let host = Host { budget: BudgetSetting::explicit(Bytes::ZERO), ..discrete(&[("A", 8), ("B", 24)]) };
    let mut ledger = ledger(&host);
    assert_eq!(devices(&place(&ledger, &lump(20))), [("B", 1)], "where it fits");
    assert_eq!(ledger.reserve(Spawn(1), place(&ledger, &lump(20)).claim), Verdict::Admit);
    let absurd = Choice { gpu_layers: Some(u32::MAX), ..Choice::default() };
    assert_eq!(devices(&place(&ledger, &load(layers(400, 0), absurd))), [("A", 401)], "where most is free");
}

#[test]
fn a_footprint_without_layers_or_with_the_largest_sizes_is_placed_or_refused() {
    let ledger = ledger(&discrete(&[("A", 24), ("B", 8)]));
    let nothing = place(&ledger, &auto(Footprint::default()));
    assert_eq!(nothing.claim.total(), Bytes::ZERO);
    let all = Weights { file: Bytes::MAX, repacked: Bytes::MAX };
    let layer = LayerBytes { dense: all, experts: all, kept: all, cache: Bytes::MAX, adapters: Bytes::MAX };
    let absurd = Footprint { layers: vec![layer; 3], output: all, input: Bytes::MAX, ..Footprint::default() };
    assert_eq!(pick_placement(&ledger, &auto(absurd)).expect_err("absurd").excess.would_commit, Bytes::MAX);
}

fn any_footprint() -> impl Strategy<Value = Footprint> {
    let layer = (0u64..400, 0u64..400, 0u64..50, 0u64..50).prop_map(|(dense, experts, kept, mib)| LayerBytes {
        dense: weights(dense),
        experts: weights(experts),
        kept: weights(kept),
        cache: Bytes::mib(mib),
        adapters: Bytes::mib(mib / 2),
    });
    let rest = prop::collection::vec(0u64..200, 6);
    (prop::collection::vec(layer, 0..12), rest).prop_map(|(layers, rest)| Footprint {
        layers,
        output: weights(rest[0]),
        input: Bytes::mib(rest[1]),
        compute_device: Bytes::mib(rest[2]),
        device_overhead: Bytes::mib(rest[3]),
        projector: Bytes::mib(rest[4]),
        baseline: Bytes::mib(rest[5]),
        ..Footprint::default()
    })
}

proptest! {
    /// B3 and more: every attempt holds every byte of weights and cache somewhere, once.
    #[test]
    fn no_attempt_loses_a_byte(
        footprint in any_footprint(),
        cards in prop::collection::vec(1u64..5, 0..5),
        foreign in 0u64..3,
        spillover in prop_oneof![Just(Spillover::On), Just(Spillover::Off)],
    ) {
        let named: Vec<_> = (0..).zip(&cards).map(|(n, gib): (u64, _)| (format!("GPU-{n}"), *gib)).collect();
        let named: Vec<_> = named.iter().map(|(id, gib)| (id.as_str(), *gib)).collect();
        let mut ledger = ledger(&Host { spillover, ..discrete(&named) });
        let sight = Sight::Known { foreign: Bytes::gib(foreign) };
        let _ = ledger.observe(Reading { place: Place::Card(id("GPU-0")), sight });
        let view = Scratch::without(&ledger, []).view();
        let f = &footprint;
        let adapters = Bytes::sum(f.layers.iter().map(|layer| layer.adapters));
        let always = Bytes::sum([f.weights(), f.cache(), adapters, f.projector, f.baseline]);
        for placement in attempts(&ledger, &auto(footprint.clone()), &[view]) {
            let each = f.compute_device.saturating_add(f.device_overhead);
            let n = u64::try_from(placement.split.devices.len()).expect("few");
            let whole = always.saturating_add(each.saturating_mul(n));
            prop_assert_eq!(placement.claim.total(), whole, "{:?}", placement.split);
            let layers: u32 = placement.split.devices.iter().map(|(_, n)| n).sum();
            prop_assert_eq!(layers, placement.split.gpu_layers);
            prop_assert!(placement.claim.accelerated <= whole.saturating_add(each));
        }
    }
}
