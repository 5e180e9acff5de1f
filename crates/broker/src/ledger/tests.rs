use super::*;
use crate::{BudgetSetting, Card, Host, HostShape, Spillover};
use motorpool_vocab::FileId;
use proptest::prelude::*;

fn file(inode: u64, mib: u64) -> (FileId, Bytes) {
    (FileId { device: 1, inode, size: mib, mtime_nanos: 0 }, Bytes::mib(mib))
}

fn mapping(private: u64, files: &[(FileId, Bytes)]) -> Claim {
    Claim { ram_private: Bytes::mib(private), ram_files: files.iter().copied().collect(), ..Claim::default() }
}

fn card(n: u64) -> DeviceId {
    DeviceId(format!("GPU-{n}").into())
}

/// Bytes on card `n`, all of them accelerated, and MiB of private memory beside them.
fn on_card(n: u64, mib: u64, ram: u64) -> Claim {
    let device = [(card(n), Bytes::mib(mib))].into();
    Claim { device, ram_private: Bytes::mib(ram), accelerated: Bytes::mib(mib), ..Claim::default() }
}

/// 64 GiB of memory of which `budget` may be used.
fn plain(budget: Bytes) -> Ledger {
    let host = Host { ram: Bytes::gib(64), budget: BudgetSetting::explicit(budget), ..Host::default() };
    Ledger::new(host.bounds())
}

fn discrete(cards: &[u64]) -> Host {
    let cards = (0..).zip(cards).map(|(n, gib): (u64, _)| Card::new(&format!("GPU-{n}"), Bytes::gib(*gib))).collect();
    Host { shape: HostShape::DiscreteGpu, ram: Bytes::gib(64), cards, ..Host::default() }
}

fn refused(verdict: Verdict) -> Excess {
    let Verdict::Refuse(excess) = verdict else { panic!("admitted") };
    assert!(excess.would_commit > excess.bound);
    excess
}

#[test]
fn two_replicas_share_their_file_and_the_last_one_takes_it_along() {
    for (first, last) in [(1, 2), (2, 1)] {
        let mut ledger = plain(Bytes::gib(2));
        assert_eq!(ledger.reserve(Spawn(1), mapping(100, &[file(1, 500)])), Verdict::Admit);
        assert_eq!(ledger.reserve(Spawn(2), mapping(100, &[file(1, 500)])), Verdict::Admit);
        assert_eq!(ledger.committed(), Bytes::mib(700));
        ledger.release(Spawn(first));
        assert_eq!(ledger.committed(), Bytes::mib(600));
        ledger.release(Spawn(last));
        assert_eq!(ledger.committed(), Bytes::ZERO);
    }
}

#[test]
fn of_one_file_the_largest_of_the_living_lines_is_charged() {
    let mut ledger = plain(Bytes::gib(2));
    let (id, _) = file(1, 500);
    let part = |mib| Claim { ram_files: [(id, Bytes::mib(mib))].into(), ..Claim::default() };
    for (spawn, mib) in [(1, 100), (2, 400), (3, 300)] {
        assert_eq!(ledger.reserve(Spawn(spawn), part(mib)), Verdict::Admit);
    }
    assert_eq!(ledger.committed(), Bytes::mib(400));
    ledger.release(Spawn(2));
    assert_eq!(ledger.committed(), Bytes::mib(300));
    assert!(ledger.shortfall(&[], &part(2048)).fits());
    assert_eq!(ledger.shortfall(&[Spawn(3)], &part(2049)).total, Bytes::mib(1), "not added to what is there");
}

#[test]
fn a_refusal_says_what_it_would_have_committed_and_changes_nothing() {
    let mut ledger = plain(Bytes::gib(1));
    assert_eq!(ledger.reserve(Spawn(1), Claim::private(Bytes::mib(800))), Verdict::Admit);
    let excess = refused(ledger.reserve(Spawn(2), mapping(200, &[file(1, 100)])));
    let expected = Excess { would_commit: Bytes::mib(1100), bound: Bytes::gib(1), which: Which::Total };
    assert_eq!(excess, expected);
    assert_eq!((ledger.line(Spawn(2)), ledger.committed()), (None, Bytes::mib(800)));
    assert_eq!(ledger.shortfall(&[], &Claim::private(Bytes::mib(300))).total, Bytes::mib(76));
    assert!(ledger.shortfall(&[Spawn(1)], &Claim::private(Bytes::mib(300))).fits());
}

#[test]
fn an_overflow_is_told_without_those_who_are_as_good_as_gone() {
    let mut ledger = plain(Bytes::gib(1));
    for (spawn, private) in [(1, 100), (2, 200)] {
        assert_eq!(ledger.reserve(Spawn(spawn), mapping(private, &[file(1, 500)])), Verdict::Admit);
    }
    let _ = ledger.correct(Spawn(1), mapping(400, &[file(1, 500)]));
    assert_eq!(ledger.overflow_without(&[]), ledger.overflow());
    assert_eq!(ledger.overflow().total, Bytes::mib(400 + 200 + 500 - 1024));
    assert!(ledger.overflow_without(&[Spawn(2), Spawn(9)]).is_none());
    ledger.release(Spawn(2));
    assert!(ledger.overflow().is_none(), "the file stays, for the other has it mapped");
}

#[test]
fn a_correction_may_overflow_and_then_grants_stop() {
    let mut ledger = plain(Bytes::gib(1));
    assert_eq!(ledger.reserve(Spawn(1), Claim::private(Bytes::mib(100))), Verdict::Admit);
    assert_eq!(ledger.correct(Spawn(1), Claim::private(Bytes::mib(1030))).total, Bytes::mib(6));
    refused(ledger.reserve(Spawn(2), Claim::private(Bytes::new(1))));
    assert_eq!(ledger.correct(Spawn(9), Claim::private(Bytes::gib(9))).total, Bytes::mib(6), "no line, no change");
}

#[test]
fn without_an_enforced_budget_everything_is_granted_and_tracked() {
    let mut ledger = Ledger::new(Host { budget: BudgetSetting::explicit(Bytes::ZERO), ..discrete(&[24]) }.bounds());
    assert_eq!(ledger.reserve(Spawn(1), Claim::private(Bytes::gib(900))), Verdict::Admit);
    assert_eq!(ledger.reserve(Spawn(2), on_card(0, 99_999, 0)), Verdict::Admit);
    assert_eq!(ledger.reserve(Spawn(3), on_card(7, 99_999, 0)), Verdict::Admit, "nor is any card");
    assert_eq!(ledger.committed(), Bytes::gib(900).saturating_add(Bytes::mib(2 * 99_999)));
    assert!(ledger.overflow().is_none());
}

#[test]
fn a_hundred_and_twentynine_of_a_hundred_and_ninetytwo() {
    let host = Host { shape: HostShape::Unified, ram: Bytes::gib(192), ..Host::default() };
    let mut ledger = Ledger::new(host.bounds());
    for (spawn, gib) in [(1, 100), (2, 29)] {
        let claim = Claim { accelerated: Bytes::gib(gib), ..Claim::private(Bytes::gib(gib)) };
        assert_eq!(ledger.reserve(Spawn(spawn), claim), Verdict::Admit, "bytes, not a count of models");
    }
}

#[test]
fn a_full_card_leaves_system_memory_alone_and_the_other_way_round() {
    let mut ledger = Ledger::new(discrete(&[24]).bounds());
    assert_eq!(ledger.reserve(Spawn(1), on_card(0, 22 * 1024, 0)), Verdict::Admit);
    assert_eq!(ledger.reserve(Spawn(2), Claim::private(Bytes::gib(38))), Verdict::Admit, "on the processor only");
    let excess = refused(ledger.reserve(Spawn(3), Claim::private(Bytes::gib(1)).clone()));
    assert_eq!(excess.which, Which::SystemMemory);
    ledger.release(Spawn(1));
    let excess = refused(ledger.reserve(Spawn(3), Claim::private(Bytes::gib(1))));
    let bound = Bytes::gib(64).per_mille(600);
    assert_eq!(excess, Excess { would_commit: Bytes::gib(39), bound, which: Which::SystemMemory });
    assert_eq!(ledger.reserve(Spawn(3), on_card(0, 1024, 0)), Verdict::Admit);
}

#[test]
fn the_ceiling_binds_only_beside_another_accelerated_resident() {
    let mut ledger = Ledger::new(discrete(&[24]).bounds());
    // Planned for the card, but most of it lies in system memory.
    let spilled = |gib| Claim { accelerated: Bytes::gib(gib), ..on_card(0, 10 * 1024, (gib - 10) * 1024) };
    assert_eq!(ledger.reserve(Spawn(1), spilled(30)), Verdict::Admit, "alone it may use both pools");
    let excess = refused(ledger.reserve(Spawn(2), on_card(0, 1024, 0)));
    assert_eq!((excess.which, excess.would_commit), (Which::CoResidency, Bytes::gib(31)));
    assert_eq!(excess.bound, Bytes::gib(24).per_mille(950));
    assert_eq!(ledger.reserve(Spawn(3), Claim::private(Bytes::gib(5))), Verdict::Admit, "the processor's own");
    let larger = ledger.shortfall(&[], &spilled(25)).co_residency;
    assert_eq!(larger, Bytes::gib(30), "a model above the ceiling needs the others gone, never more");
}

#[test]
fn two_models_that_fit_the_cards_together_live_together() {
    let mut ledger = Ledger::new(discrete(&[24, 8]).bounds());
    assert_eq!(ledger.reserve(Spawn(1), on_card(0, 20 * 1024, 100)), Verdict::Admit);
    assert_eq!(ledger.reserve(Spawn(2), on_card(1, 7 * 1024, 100)), Verdict::Admit);
    let excess = refused(ledger.reserve(Spawn(3), on_card(1, 1024, 0)));
    assert_eq!((excess.which, excess.would_commit), (Which::Device(card(1)), Bytes::gib(8)));
}

#[test]
fn with_spilling_allowed_the_ceiling_is_the_budget() {
    let host = Host { spillover: Spillover::On, ..discrete(&[24]) };
    let mut ledger = Ledger::new(host.bounds());
    assert_eq!(ledger.reserve(Spawn(1), on_card(0, 20 * 1024, 0)), Verdict::Admit);
    let spilled = Claim { accelerated: Bytes::gib(20), ..on_card(0, 1024, 19 * 1024) };
    assert_eq!(ledger.reserve(Spawn(2), spilled), Verdict::Admit);
}

#[test]
fn what_others_use_and_what_is_kept_for_them_shrinks_a_card() {
    let mut host = discrete(&[24]);
    host.cards[0].reserve = Bytes::gib(4);
    let mut ledger = Ledger::new(host.bounds());
    assert_eq!(ledger.share_now(&card(0)), Bytes::gib(20), "less than its share of 22.8 GiB");
    let foreign = |gib| Reading { place: Place::Card(card(0)), sight: Sight::Known { foreign: Bytes::gib(gib) } };
    assert!(ledger.observe(foreign(12)).is_none());
    let excess = refused(ledger.reserve(Spawn(1), on_card(0, 9 * 1024, 0)));
    assert_eq!((excess.which, excess.bound), (Which::Device(card(0)), Bytes::gib(8)));
    assert_eq!(ledger.reserve(Spawn(1), on_card(0, 8 * 1024, 0)), Verdict::Admit);
    assert_eq!(ledger.observe(foreign(13)).devices, [(card(0), Bytes::gib(1))].into(), "seen, and nobody evicted");
    assert_eq!(ledger.line(Spawn(1)), Some(&on_card(0, 8 * 1024, 0)));
}

#[test]
fn no_new_claim_goes_where_nobody_can_look_unless_the_ledger_is_trusted() {
    let mut ledger = Ledger::new(discrete(&[24, 24]).bounds());
    assert!(ledger.observe(Reading { place: Place::Card(card(0)), sight: Sight::Unknown }).is_none());
    let excess = refused(ledger.reserve(Spawn(1), on_card(0, 1, 0)));
    assert_eq!((excess.which, excess.bound), (Which::Device(card(0)), Bytes::ZERO));
    assert_eq!(ledger.reserve(Spawn(1), on_card(1, 1, 0)), Verdict::Admit, "other devices go on");
    assert!(ledger.observe(Reading { place: Place::Card(card(0)), sight: Sight::Trusted }).is_none());
    assert_eq!(ledger.reserve(Spawn(2), on_card(0, 1, 0)), Verdict::Admit);
    assert_eq!(refused(ledger.reserve(Spawn(3), on_card(9, 1, 0))).which, Which::Device(card(9)), "no such card");
}

#[test]
fn two_gib_of_memory_stay_with_the_system() {
    let host = Host { ram: Bytes::gib(4), ram_reserve: Bytes::mib(512), ..Host::default() };
    let mut ledger = Ledger::new(host.bounds());
    assert_eq!(ledger.ram_share_now(), Bytes::mib(1536), "less than 60 % of 4 GiB");
    let sight = Sight::Known { foreign: Bytes::gib(1) };
    assert!(ledger.observe(Reading { place: Place::SystemMemory, sight }).is_none());
    let excess = refused(ledger.reserve(Spawn(1), Claim::private(Bytes::mib(513))));
    assert_eq!((excess.which, excess.bound), (Which::SystemMemory, Bytes::mib(512)));
    assert_eq!(ledger.reserve(Spawn(1), Claim::private(Bytes::mib(512))), Verdict::Admit);
}

#[test]
fn on_a_unified_host_device_bytes_are_bytes_of_the_one_pool() {
    let host = Host { shape: HostShape::Unified, ram: Bytes::gib(64), ..Host::default() };
    let mut ledger = Ledger::new(host.bounds());
    assert_eq!(ledger.reserve(Spawn(1), on_card(0, 40 * 1024, 1024)), Verdict::Admit);
    assert_eq!(ledger.committed_ram(), Bytes::gib(41));
    let foreign = Reading { place: Place::SystemMemory, sight: Sight::Known { foreign: Bytes::gib(20) } };
    assert!(ledger.observe(foreign).is_none(), "42 GiB are left");
    assert_eq!(refused(ledger.reserve(Spawn(2), Claim::private(Bytes::gib(2)))).which, Which::SystemMemory);
    assert_eq!(refused(ledger.reserve(Spawn(2), Claim::private(Bytes::gib(8)))).which, Which::Total);
}

#[test]
fn a_budget_shrunk_below_what_is_committed_evicts_nobody_and_stops_grants() {
    let mut ledger = plain(Bytes::gib(8));
    assert_eq!(ledger.reserve(Spawn(1), Claim::private(Bytes::gib(6))), Verdict::Admit);
    let over = ledger.set_bounds(plain(Bytes::gib(4)).bounds().clone());
    assert_eq!((over.total, over.ram), (Bytes::gib(2), Bytes::gib(2)));
    assert_eq!(ledger.committed(), Bytes::gib(6));
    assert_eq!(refused(ledger.reserve(Spawn(2), Claim::private(Bytes::new(1)))).bound, Bytes::gib(4));
    assert!(ledger.set_bounds(plain(Bytes::ZERO).bounds().clone()).is_none());
    assert_eq!(ledger.reserve(Spawn(2), Claim::private(Bytes::gib(1))), Verdict::Admit);
}

#[test]
fn pools_are_shown_with_what_they_hold() {
    let mut ledger = Ledger::new(discrete(&[24]).bounds());
    assert_eq!(ledger.reserve(Spawn(1), on_card(0, 1024, 512)), Verdict::Admit);
    let [graphics, system] = ledger.pools().try_into().expect("two pools");
    assert_eq!((graphics.place, graphics.committed), (Place::Card(card(0)), Bytes::gib(1)));
    assert_eq!((graphics.share, graphics.share_now), (Bytes::gib(24).per_mille(950), Bytes::gib(24).per_mille(950)));
    assert_eq!((system.place, system.committed), (Place::SystemMemory, Bytes::mib(512)));
    assert_eq!((ledger.accelerated(), system.total), (Bytes::gib(1), Bytes::gib(64)));
}

#[test]
fn what_is_reserved_on_a_card_that_is_gone_is_shown_until_it_is_released() {
    let mut ledger = Ledger::new(discrete(&[24]).bounds());
    assert_eq!(ledger.reserve(Spawn(1), on_card(0, 1024, 512)), Verdict::Admit);
    let _ = ledger.set_bounds(discrete(&[]).bounds());
    let [gone, system] = ledger.pools().try_into().expect("two pools");
    assert_eq!((gone.place, gone.committed), (Place::Card(card(0)), Bytes::gib(1)));
    assert_eq!((gone.total, gone.share_now, gone.sight), (Bytes::ZERO, Bytes::ZERO, Sight::Unknown));
    assert_eq!(system.place, Place::SystemMemory);
    ledger.release(Spawn(1));
    assert_eq!(ledger.pools().len(), 1);
}

#[derive(Clone, Debug)]
enum Op {
    Reserve(u64, Claim),
    Correct(u64, Claim),
    Release(u64),
    Observe(Reading),
    Budget(u64),
}

fn any_claim() -> impl Strategy<Value = Claim> {
    let files = prop::collection::btree_set((0u64..4, 1u64..4), 0..3);
    let devices = prop::collection::btree_map(0u64..3, 0u64..900, 0..3);
    (0u64..900, files, devices, 0u64..1500).prop_map(|(private, files, devices, accelerated)| {
        let files = files.into_iter().map(|(n, times)| (file(n, 7).0, Bytes::mib(100 * times)));
        Claim {
            device: devices.into_iter().map(|(n, mib)| (card(n), Bytes::mib(mib))).collect(),
            ram_private: Bytes::mib(private),
            ram_files: files.collect(),
            accelerated: Bytes::mib(accelerated),
        }
    })
}

fn any_reading() -> impl Strategy<Value = Reading> {
    let place = prop_oneof![(0u64..3).prop_map(|n| Place::Card(card(n))), Just(Place::SystemMemory)];
    let sight = prop_oneof![
        4 => (0u64..2000).prop_map(|mib| Sight::Known { foreign: Bytes::mib(mib) }),
        1 => Just(Sight::Trusted),
        1 => Just(Sight::Unknown),
    ];
    (place, sight).prop_map(|(place, sight)| Reading { place, sight })
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0u64..8, any_claim()).prop_map(|(s, c)| Op::Reserve(s, c)),
        3 => (0u64..8, any_claim()).prop_map(|(s, c)| Op::Correct(s, c)),
        6 => (0u64..8).prop_map(Op::Release),
        2 => any_reading().prop_map(Op::Observe),
        1 => (1024u64..6000).prop_map(Op::Budget),
    ]
}

fn any_host() -> impl Strategy<Value = Host> {
    let shape = prop_oneof![Just(HostShape::Unified), Just(HostShape::DiscreteGpu), Just(HostShape::SystemRam)];
    let spillover = prop_oneof![Just(Spillover::Auto), Just(Spillover::On), Just(Spillover::Off)];
    (shape, spillover, 1u64..4).prop_map(|(shape, spillover, gib)| {
        let cards = vec![Card::new("GPU-0", Bytes::gib(gib)), Card::new("GPU-1", Bytes::gib(2))];
        Host { shape, ram: Bytes::gib(7), cards, spillover, ..Host::default() }
    })
}

/// Everything added up anew: by card, system memory alone, and how much is accelerated.
fn anew(lines: &BTreeMap<Spawn, Claim>) -> (BTreeMap<DeviceId, Bytes>, Bytes, Bytes) {
    let mut cards = BTreeMap::new();
    let mut files: BTreeMap<FileId, Bytes> = BTreeMap::new();
    for claim in lines.values() {
        for (id, bytes) in &claim.device {
            let sum: &mut Bytes = cards.entry(id.clone()).or_default();
            *sum = sum.saturating_add(*bytes);
        }
        for (id, bytes) in &claim.ram_files {
            let most = files.entry(*id).or_default();
            *most = (*most).max(*bytes);
        }
    }
    let private = Bytes::sum(lines.values().map(|claim| claim.ram_private));
    let accelerated = Bytes::sum(lines.values().map(|claim| claim.accelerated));
    (cards, private.saturating_add(Bytes::sum(files.into_values())), accelerated)
}

/// B1: what a grant of `claim` touched is within its bound.
fn check_grant(ledger: &Ledger, claim: &Claim, n_accelerated: usize) -> Result<(), TestCaseError> {
    let bound = ledger.budget().bound().expect("enforced");
    prop_assert!(claim.total().is_zero() || ledger.committed() <= bound, "B1: the total");
    if ledger.bounds().shape != HostShape::Unified {
        for (id, _) in claim.device.iter().filter(|(_, bytes)| !bytes.is_zero()) {
            prop_assert!(ledger.committed_on(id) <= ledger.share_now(id), "B1: {id}");
        }
        let uses_ram = !claim.ram_private.is_zero() || !claim.ram_files.is_empty();
        prop_assert!(!uses_ram || ledger.committed_ram() <= ledger.ram_share_now(), "B1: system memory");
    } else if !claim.total().is_zero() {
        prop_assert!(ledger.committed_ram() <= ledger.ram_share_now(), "B1: the one pool");
    }
    if !claim.accelerated.is_zero() && n_accelerated > 1 {
        prop_assert!(Some(ledger.accelerated()) <= ledger.bounds().ceiling(), "B1: the ceiling");
    }
    Ok(())
}

proptest! {
    /// B1, B2, B3 on hosts of every shape, against a model that adds everything up anew.
    #[test]
    fn grants_keep_the_bounds_and_are_whole(host in any_host(), ops in prop::collection::vec(any_op(), 1..60)) {
        let mut ledger = Ledger::new(host.bounds());
        let mut model: BTreeMap<Spawn, Claim> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Reserve(s, claim) => {
                    let (before, foretold) = (ledger.clone(), ledger.shortfall(&[Spawn(s)], &claim));
                    match ledger.reserve(Spawn(s), claim.clone()) {
                        Verdict::Admit => {
                            model.insert(Spawn(s), claim.clone());
                            let n_accelerated = model.values().filter(|c| !c.accelerated.is_zero()).count();
                            check_grant(&ledger, &claim, n_accelerated)?;
                            prop_assert!(foretold.fits());
                        }
                        Verdict::Refuse(excess) => {
                            prop_assert!(excess.would_commit > excess.bound);
                            prop_assert!(!foretold.fits());
                            prop_assert_eq!(ledger.committed(), before.committed(), "B3");
                        }
                    }
                }
                Op::Correct(s, claim) => {
                    let over = ledger.correct(Spawn(s), claim.clone());
                    model.entry(Spawn(s)).and_modify(|line| *line = claim);
                    let bound = ledger.budget().bound().expect("enforced");
                    prop_assert_eq!(over.total, ledger.committed().saturating_sub(bound));
                }
                Op::Release(s) => {
                    ledger.release(Spawn(s));
                    model.remove(&Spawn(s));
                }
                Op::Observe(reading) => drop(ledger.observe(reading)),
                Op::Budget(mib) => {
                    let budget = BudgetSetting::explicit(Bytes::mib(mib));
                    let _ = ledger.set_bounds(Host { budget, ..host.clone() }.bounds());
                }
            }
            let (cards, ram, accelerated) = anew(&model);
            let on_cards = Bytes::sum(cards.values().copied());
            for (id, bytes) in &cards {
                prop_assert_eq!(ledger.committed_on(id), *bytes);
            }
            prop_assert_eq!(ledger.committed(), ram.saturating_add(on_cards));
            prop_assert_eq!(ledger.accelerated(), accelerated);
            let lines = ledger.spawns().map(|spawn| (spawn, ledger.line(spawn).expect("a line").clone()));
            let lines: BTreeMap<_, _> = lines.collect();
            prop_assert_eq!(&lines, &model, "B2");
        }
    }
}
