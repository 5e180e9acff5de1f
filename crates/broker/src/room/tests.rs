mod properties;

use super::*;
use crate::{
    BudgetSetting, Card, Choice, Company, Host, HostShape, Learned, Mapping, Parts, Place, Reading, Sight, Spillover,
    Split, Verdict, Which,
};
use motorpool_gguf::{Footprint, LayerBytes, Weights};
use motorpool_vocab::{DeviceId, FileId};

fn key(n: u64) -> EngineKey {
    format!("e:m{n}:0").parse().expect("a key")
}

fn idle(n: u64, hits: u32) -> Candidate {
    let (standing, reload) = (Standing::Idle, Duration::from_secs(1));
    Candidate { spawn: Spawn(n), key: key(n), standing, hits, last_use: Now::ZERO, reload }
}

fn busy(n: u64, hits: u32) -> Candidate {
    Candidate { standing: Standing::Busy, ..idle(n, hits) }
}

fn plain(budget: Bytes) -> Ledger {
    let host = Host { ram: Bytes::gib(512), budget: BudgetSetting::explicit(budget), ..Host::default() };
    Ledger::new(host.bounds())
}

fn ledger(budget_mib: u64, lines: &[(u64, u64)]) -> Ledger {
    let mut ledger = plain(Bytes::mib(budget_mib));
    for (spawn, mib) in lines {
        assert_eq!(ledger.reserve(Spawn(*spawn), Claim::private(Bytes::mib(*mib))), Verdict::Admit);
    }
    ledger
}

fn lump(mib: u64) -> Load {
    Load::lump(Claim::private(Bytes::mib(mib)))
}

fn asked(load: &Load) -> Query<'_> {
    Query { load, elders: &[], leaving: &[], draining: &[], fixed: &[], policy: Policy::DemandLru }
}

/// What was decided, without where.
#[derive(Debug, PartialEq, Eq)]
enum Decided {
    Fits,
    Wait,
    Evict(Vec<u64>),
    Drain(Vec<u64>),
    Never,
}

fn decide(ledger: &Ledger, query: &Query<'_>, candidates: &[Candidate]) -> Decided {
    let numbers = |set: Vec<Spawn>| set.into_iter().map(|spawn| spawn.0).collect();
    match pick_room(ledger, query, candidates) {
        Room::Fits(_) => Decided::Fits,
        Room::Wait(_) => Decided::Wait,
        Room::Evict { set, .. } => Decided::Evict(numbers(set)),
        Room::Drain { set, .. } => Decided::Drain(numbers(set)),
        Room::Never(_) => Decided::Never,
    }
}

#[test]
fn a_hundred_and_twentynine_of_a_hundred_and_ninetytwo() {
    let ledger = ledger(192 * 1024, &[(1, 100 * 1024)]);
    let load = lump(29 * 1024);
    assert_eq!(decide(&ledger, &asked(&load), &[idle(1, 0)]), Decided::Fits, "bytes, not a count of models");
}

#[test]
fn the_least_demanded_go_and_nobody_superfluous() {
    let ledger = ledger(2000, &[(1, 300), (2, 700), (3, 900)]);
    let load = lump(600);
    let candidates = [idle(3, 9), idle(1, 0), idle(2, 1)];
    assert_eq!(decide(&ledger, &asked(&load), &candidates), Decided::Evict(vec![2]), "1 alone is no help");
}

#[test]
fn an_impossible_claim_is_refused_with_its_proof_and_nobody_stopped() {
    let ledger = ledger(1024, &[(1, 300)]);
    let load = lump(1100);
    let excess = Excess { would_commit: Bytes::mib(1100), bound: Bytes::gib(1), which: Which::Total };
    let proof = Proof { claim: Claim::private(Bytes::mib(1100)), excess };
    assert_eq!(pick_room(&ledger, &asked(&load), &[idle(1, 0)]), Room::Never(proof));
}

#[test]
fn what_never_leaves_counts_in_the_proof() {
    let ledger = ledger(1024, &[(1, 300)]);
    let load = lump(800);
    let query = Query { fixed: &[Spawn(1)], ..asked(&load) };
    let Room::Never(proof) = pick_room(&ledger, &query, &[]) else { panic!("never") };
    assert_eq!(proof.excess.would_commit, Bytes::mib(1100));
}

#[test]
fn bytes_on_their_way_back_are_waited_for_instead_of_stopping_more() {
    let ledger = ledger(1024, &[(1, 500), (2, 500)]);
    let load = lump(400);
    let query = Query { leaving: &[Spawn(1)], ..asked(&load) };
    assert_eq!(decide(&ledger, &query, &[idle(2, 0)]), Decided::Wait);
}

#[test]
fn a_younger_build_takes_only_room_no_elder_needs() {
    let ledger = ledger(2000, &[(1, 1000)]);
    let elder = [Claim::private(Bytes::mib(1500))];
    let small = lump(400);
    let query = Query { elders: &elder, leaving: &[Spawn(1)], ..asked(&small) };
    assert_eq!(decide(&ledger, &query, &[]), Decided::Fits, "1,500 + 400 fit once 1 is gone");
    let larger = lump(600);
    let query = Query { load: &larger, ..query };
    assert_eq!(decide(&ledger, &query, &[]), Decided::Wait, "it fits now, but the elder could not come");
}

#[test]
fn busy_ones_are_drained_only_when_idle_ones_do_not_suffice_and_draining_ones_first() {
    let ledger = ledger(1100, &[(1, 500), (2, 500)]);
    let load = lump(400);
    assert_eq!(decide(&ledger, &asked(&load), &[busy(1, 0), idle(2, 9)]), Decided::Evict(vec![2]));
    assert_eq!(decide(&ledger, &asked(&load), &[busy(1, 0), busy(2, 9)]), Decided::Drain(vec![1]));
    let draining = Candidate { standing: Standing::Draining, ..idle(2, 9) };
    assert_eq!(decide(&ledger, &asked(&load), &[busy(1, 0), draining]), Decided::Drain(vec![2]));
    assert_eq!(decide(&ledger, &asked(&load), &[]), Decided::Wait, "others are protected for now");
}

#[test]
fn nobody_is_stopped_for_room_that_an_elders_drain_may_not_bring() {
    let ledger = ledger(1300, &[(1, 900), (2, 300)]);
    let (elder, load) = ([Claim::private(Bytes::mib(600))], lump(600));
    let query = Query { elders: &elder, draining: &[Spawn(1)], ..asked(&load) };
    assert_eq!(decide(&ledger, &query, &[idle(2, 0)]), Decided::Wait);
    let small = lump(90);
    let roomy = Query { load: &small, ..query };
    assert_eq!(decide(&ledger, &roomy, &[idle(2, 0)]), Decided::Fits, "it needs nobody to go");
    let gone = Query { leaving: &[Spawn(1)], draining: &[], ..query };
    assert_eq!(decide(&ledger, &gone, &[idle(2, 0)]), Decided::Evict(vec![2]), "1 cannot stay any more");
}

#[test]
fn a_candidate_that_is_leaving_or_has_no_line_or_comes_twice_is_judged_once() {
    let ledger = ledger(1100, &[(1, 500), (2, 500)]);
    let load = lump(1000);
    let query = Query { leaving: &[Spawn(1), Spawn(1)], draining: &[Spawn(1)], ..asked(&load) };
    let candidates = [idle(1, 0), idle(2, 0), idle(2, 0), idle(7, 0)];
    assert_eq!(decide(&ledger, &query, &candidates), Decided::Evict(vec![2]));
}

#[test]
fn two_that_share_a_file_free_it_only_together() {
    let file = (FileId { device: 1, inode: 1, size: 9, mtime_nanos: 0 }, Bytes::mib(600));
    let replica = Claim { ram_files: [file].into(), ..Claim::private(Bytes::mib(200)) };
    let mut ledger = plain(Bytes::mib(1300));
    for spawn in [1, 2] {
        assert_eq!(ledger.reserve(Spawn(spawn), replica.clone()), Verdict::Admit);
    }
    assert_eq!(ledger.committed(), Bytes::mib(1000));
    let ask = |mib, candidates: &[Candidate]| decide(&ledger, &asked(&lump(mib)), candidates);
    assert_eq!(ask(500, &[idle(1, 0), idle(2, 1)]), Decided::Evict(vec![1]), "one of them frees its 200 MiB");
    assert_eq!(ask(500, &[idle(1, 1), idle(2, 0)]), Decided::Evict(vec![2]));
    assert_eq!(ask(501, &[idle(1, 0), idle(2, 1)]), Decided::Evict(vec![1, 2]), "more takes the file, so both");
    let third = Load::lump(replica);
    assert_eq!(decide(&ledger, &asked(&third), &[]), Decided::Fits, "the file is there already");
}

// Several pools.

fn card(n: usize) -> DeviceId {
    DeviceId(format!("GPU-{n}").into())
}

fn discrete(cards: &[u64]) -> Host {
    let cards = cards.iter().enumerate().map(|(n, gib)| Card::new(&format!("GPU-{n}"), Bytes::gib(*gib))).collect();
    Host { shape: HostShape::DiscreteGpu, ram: Bytes::gib(64), cards, ..Host::default() }
}

fn on_card(n: usize, gib: u64) -> Claim {
    let accelerated = Bytes::gib(gib);
    Claim { device: [(card(n), accelerated)].into(), accelerated, ..Claim::default() }
}

fn with_lines(host: &Host, lines: &[Claim]) -> Ledger {
    let mut ledger = Ledger::new(host.bounds());
    for (spawn, claim) in (1..).zip(lines) {
        assert_eq!(ledger.reserve(Spawn(spawn), claim.clone()), Verdict::Admit);
    }
    ledger
}

fn layered(n: usize, mib: u64) -> Load {
    let weights = Weights { file: Bytes::mib(mib), repacked: Bytes::ZERO };
    let layer = LayerBytes { dense: weights, ..LayerBytes::default() };
    let footprint = Footprint { layers: vec![layer; n], ..Footprint::default() };
    let parts = Parts::Known { footprint, files: vec![], mapping: Mapping::SystemMemory };
    Load { parts, choice: Choice::default(), learned: Learned::default() }
}

#[test]
fn what_only_uses_the_processor_is_never_stopped_for_a_card() {
    let ledger = with_lines(&discrete(&[24]), &[Claim::private(Bytes::gib(20)), on_card(0, 20)]);
    let load = lump(10 * 1024);
    assert_eq!(decide(&ledger, &asked(&load), &[idle(1, 0), idle(2, 9)]), Decided::Evict(vec![2]));
    assert_eq!(decide(&ledger, &asked(&load), &[idle(1, 0)]), Decided::Wait, "it would be no help");
}

#[test]
fn a_model_on_the_processor_lives_beside_a_full_card() {
    let ledger = with_lines(&discrete(&[24]), &[on_card(0, 22)]);
    let choice = Choice { gpu_layers: Some(0), ..Choice::default() };
    let load = Load { choice, ..lump(30 * 1024) };
    assert_eq!(decide(&ledger, &asked(&load), &[idle(1, 0)]), Decided::Fits);
    let larger = Load { choice: load.choice.clone(), ..lump(39 * 1024) };
    let Room::Never(proof) = pick_room(&ledger, &asked(&larger), &[idle(1, 0)]) else { panic!("never") };
    assert_eq!(proof.excess.which, Which::SystemMemory, "38.4 GiB at most");
}

#[test]
fn over_several_placements_the_cheapest_set_wins() {
    let ledger = with_lines(&discrete(&[24, 24]), &[on_card(0, 20), on_card(1, 20)]);
    let load = lump(10 * 1024);
    let room = pick_room(&ledger, &asked(&load), &[idle(1, 5), idle(2, 1)]);
    let Room::Evict { set, placement } = room else { panic!("{room:?}") };
    assert_eq!((set, placement.split.devices), (vec![Spawn(2)], vec![(card(1), 1)]));
    let room = pick_room(&ledger, &asked(&load), &[idle(1, 1), idle(2, 5)]);
    assert_eq!(room.placement().map(|p| p.split.devices.clone()), Some(vec![(card(0), 1)]));
}

#[test]
fn two_cards_without_a_victim_are_cheaper_than_one_with() {
    let ledger = with_lines(&discrete(&[24, 24]), &[on_card(0, 15), on_card(1, 15)]);
    let room = pick_room(&ledger, &asked(&layered(14, 1024)), &[idle(1, 0), idle(2, 0)]);
    let Room::Fits(placement) = room else { panic!("{room:?}") };
    assert_eq!(placement.split.devices.len(), 2);
}

#[test]
fn layers_are_cut_for_the_room_that_will_be_there() {
    // With both gone both cards are equal; with 1 protected only a cut by what is left beside it fits.
    let ledger = with_lines(&discrete(&[24, 24]), &[on_card(0, 15), on_card(1, 20)]);
    let room = pick_room(&ledger, &asked(&layered(28, 1024)), &[idle(2, 0)]);
    let Room::Evict { set, placement } = room else { panic!("{room:?}") };
    assert_eq!((set, placement.split.devices), (vec![Spawn(2)], vec![(card(1), 21), (card(0), 8)]));
}

#[test]
fn a_model_above_the_ceiling_needs_every_other_accelerated_one_gone() {
    let lines = [on_card(0, 10), Claim::private(Bytes::gib(2)), on_card(0, 5)];
    let ledger = with_lines(&discrete(&[24]), &lines);
    let candidates = [idle(1, 0), idle(2, 0), idle(3, 0)];
    let room = pick_room(&ledger, &asked(&layered(40, 1024)), &candidates);
    let Room::Evict { set, placement } = room else { panic!("{room:?}") };
    assert_eq!((set, placement.company), (vec![Spawn(1), Spawn(3)], Company::Alone), "2 may stay");
    assert_eq!(placement.split.gpu_layers, 23);
    let smaller = layered(18, 1024);
    let fixed = Query { fixed: &[Spawn(3)], ..asked(&smaller) };
    let Room::Never(proof) = pick_room(&ledger, &fixed, &candidates) else { panic!("never") };
    assert_eq!((proof.excess.which, proof.excess.would_commit), (Which::CoResidency, Bytes::gib(23)));
}

#[test]
fn memory_that_is_overfull_alone_frees_nothing_of_a_card() {
    let lines = [on_card(0, 10), Claim::private(Bytes::gib(30))];
    let mut ledger = with_lines(&discrete(&[24]), &lines);
    let sight = Sight::Known { foreign: Bytes::gib(40) };
    assert_eq!(ledger.observe(Reading { place: Place::SystemMemory, sight }).ram, Bytes::gib(8), "22 GiB are left");
    let candidates = [idle(1, 0), idle(2, 9)];
    let load = Load::lump(Claim::private(Bytes::gib(5)));
    assert_eq!(decide(&ledger, &asked(&load), &candidates), Decided::Fits, "on the card");
    let choice = Choice { gpu_layers: Some(0), ..Choice::default() };
    let processor = Load { choice, ..load };
    assert_eq!(decide(&ledger, &asked(&processor), &candidates), Decided::Evict(vec![2]));
}

#[test]
fn a_shrunk_budget_makes_the_next_build_make_room() {
    let mut ledger = ledger(4000, &[(1, 1500), (2, 1500)]);
    let over = ledger.set_bounds(plain(Bytes::mib(2000)).bounds().clone());
    assert_eq!(over.total, Bytes::mib(1000));
    let load = lump(400);
    assert_eq!(decide(&ledger, &asked(&load), &[idle(1, 0), idle(2, 1)]), Decided::Evict(vec![1]));
    let whole = lump(600);
    assert_eq!(decide(&ledger, &asked(&whole), &[idle(1, 0), idle(2, 1)]), Decided::Evict(vec![1, 2]));
}

#[test]
fn a_budget_of_nothing_grants_everything() {
    let host = Host { budget: BudgetSetting::explicit(Bytes::ZERO), ..discrete(&[24]) };
    let ledger = with_lines(&host, &[on_card(0, 900)]);
    assert_eq!(decide(&ledger, &asked(&layered(900, 1024)), &[idle(1, 0)]), Decided::Fits);
}

#[test]
fn elders_count_on_the_card_where_they_were_judged_to_go() {
    let ledger = with_lines(&discrete(&[24, 24]), &[]);
    let elders = [on_card(0, 20)];
    let load = lump(10 * 1024);
    let room = pick_room(&ledger, &Query { elders: &elders, ..asked(&load) }, &[]);
    assert_eq!(room.placement().map(|p| p.split.devices.clone()), Some(vec![(card(1), 1)]));
    let elders = [on_card(0, 20), on_card(1, 20)];
    assert_eq!(decide(&ledger, &Query { elders: &elders, ..asked(&load) }, &[]), Decided::Wait);
}

// Policies.

#[test]
fn by_oldest_use_demand_does_not_count() {
    let ledger = ledger(1100, &[(1, 500), (2, 500)]);
    let load = lump(400);
    let used = |c: Candidate, at| Candidate { last_use: Now::from_nanos(at), ..c };
    let candidates = [used(idle(1, 9), 1), used(idle(2, 0), 2)];
    assert_eq!(decide(&ledger, &asked(&load), &candidates), Decided::Evict(vec![2]));
    let lru = Query { policy: Policy::Lru, ..asked(&load) };
    assert_eq!(decide(&ledger, &lru, &candidates), Decided::Evict(vec![1]));
}

#[test]
fn by_cost_two_cheap_ones_go_before_one_that_is_dear_to_have_back() {
    let ledger = ledger(2000, &[(1, 400), (2, 400), (3, 900)]);
    let slow = |c: Candidate, secs| Candidate { reload: Duration::from_secs(secs), ..c };
    let load = lump(1000);
    let gdsf = Query { policy: Policy::Gdsf, ..asked(&load) };
    let dear = [slow(idle(1, 2), 1), slow(idle(2, 2), 1), slow(idle(3, 2), 60)];
    assert_eq!(decide(&ledger, &gdsf, &dear), Decided::Evict(vec![1, 2]));
    let cheap = [slow(idle(1, 2), 30), slow(idle(2, 2), 40), slow(idle(3, 2), 60)];
    assert_eq!(decide(&ledger, &gdsf, &cheap), Decided::Evict(vec![3]), "60 against 70, though less by byte");
}

#[test]
fn a_lump_in_memory_keeps_its_files() {
    let file = (FileId { device: 1, inode: 1, size: 9, mtime_nanos: 0 }, Bytes::mib(600));
    let load = Load::lump(Claim { ram_files: [file].into(), ..Claim::private(Bytes::mib(1)) });
    let Room::Fits(placement) = pick_room(&plain(Bytes::gib(4)), &asked(&load), &[]) else { panic!("it fits") };
    assert_eq!((placement.claim.ram_files.len(), placement.split), (1, Split::processor()));
}
