use super::*;
use motorpool_devices::{DeviceKind, DeviceMemory, Driver, EngineDevice, NvidiaReading, now};
use motorpool_pool::Card;
use motorpool_vocab::Now;

pub(crate) const A: &str = "GPU-aaaa";
pub(crate) const B: &str = "GPU-bbbb";

pub(crate) fn device(id: &str, free: u64, shown: Option<&[(u32, u64)]>) -> DeviceReading {
    let (total, free) = (Bytes::gib(24), Bytes::gib(free));
    DeviceReading {
        id: id_of(id),
        source: DeviceSource::Nvml,
        kind: DeviceKind::Card,
        name: "NVIDIA A30".into(),
        index: None,
        pci: Some(format!("0000:0{}:00.0", id.len() + usize::from(id == B))),
        visible_as: Some(id.into()),
        taken_at: now(),
        memory: Ok(DeviceMemory { total, used: total.saturating_sub(free), free }),
        by_process: shown.map(|shown| shown.iter().map(|(pid, gib)| (*pid, Bytes::gib(*gib))).collect()),
        shared: None,
    }
}

fn id_of(id: &str) -> DeviceId {
    DeviceId(id.into())
}

fn sighted(devices: Vec<DeviceReading>) -> Sighted {
    let nvidia = NvidiaReading { driver: Driver::Loaded { version: None }, devices, unnamed: vec![] };
    Sighted { begun_at: Now::ZERO, nvidia: Some(nvidia), amd: Some(vec![]) }
}

pub(crate) fn host(ids: &[&str]) -> Host {
    let cards = ids.iter().map(|id| Card::new(id, Bytes::gib(24))).collect();
    Host { shape: HostShape::DiscreteGpu, cards, ..Host::default() }
}

fn cards(ids: &[&str]) -> Cards {
    let known = vec![device(A, 24, None), device(B, 24, None)];
    Cards::new(&host(ids), Graphics::new(known, BTreeMap::new()))
}

fn ours(trees: &[(u64, &[u32], Option<u64>)]) -> BTreeMap<Spawn, Ours> {
    let on_cuda = |gib: u64| [("CUDA0".to_owned(), Bytes::gib(gib))].into();
    let tree = |pids: &[u32], held: Option<u64>| Ours { pids: pids.to_vec(), held: held.map(on_cuda) };
    trees.iter().map(|(spawn, pids, held)| (Spawn(*spawn), tree(pids, *held))).collect()
}

fn names(names: &[(u32, &str)]) -> Names {
    names.iter().map(|(pid, name)| (*pid, Called { name: (*name).to_owned(), counted_as: *pid })).collect()
}

fn figures(sights: &BTreeMap<DeviceId, CardSight>, id: &str) -> CardFigures {
    match &sights[&id_of(id)] {
        CardSight::Seen(figures) => figures.clone(),
        other => panic!("no figures: {other:?}"),
    }
}

#[test]
fn what_trees_hold_is_theirs_and_who_else_is_there_is_named_largest_first() {
    let look = sighted(vec![device(A, 10, Some(&[(7, 2), (8, 3), (50, 1), (51, 4)])), device(B, 24, Some(&[]))]);
    let trees = ours(&[(1, &[7, 8], None), (2, &[9], None)]);
    let names = names(&[(50, "Xorg"), (7, "llama-server")]);
    let sights = cards(&[A, B]).sights(&look, (&trees, &names));
    let a = figures(&sights, A);
    assert_eq!((a.total, a.free), (Bytes::gib(24), Bytes::gib(10)));
    assert_eq!(a.by_spawn, Some([(Spawn(1), Bytes::gib(5))].into()));
    let who: Vec<_> = a.tenants.iter().map(|tenant| (tenant.pid, tenant.name.as_deref(), tenant.bytes)).collect();
    assert_eq!(who, [(51, None, Bytes::gib(4)), (50, Some("Xorg"), Bytes::gib(1))]);
    assert_eq!(figures(&sights, B).by_spawn, Some(BTreeMap::new()));
}

#[test]
fn ids_of_another_namespace_are_noticed_and_tell_nothing_from_then_on() {
    let mut cards = cards(&[A]);
    let look = sighted(vec![device(A, 10, Some(&[(100_007, 5)]))]);
    let told = |cards: &mut Cards, trees: &[(u64, &[u32], Option<u64>)]| {
        let names = names(&[(7, "llama-server")]);
        figures(&cards.sights(&look, (&ours(trees), &names)), A).by_spawn.is_some()
    };
    assert!(told(&mut cards, &[]), "nothing is ours: all of it is others'");
    assert!(!told(&mut cards, &[(1, &[7], None)]), "it may hold what is shown for a process that is not here");
    assert!(told(&mut cards, &[(1, &[7], Some(0))]), "it says that it holds nothing");
    assert!(!told(&mut cards, &[(1, &[7], Some(5))]), "it holds memory and is not shown");
    assert!(!told(&mut cards, &[]), "a namespace does not change");
    let mut cards = cards.of(&host(&[A]), Graphics::new(vec![device(A, 24, None)], BTreeMap::new()));
    assert!(!told(&mut cards, &[]), "not for other cards either");
    assert!(figures(&cards.sights(&look, (&ours(&[]), &names(&[]))), A).tenants.is_empty());
}

/// Whether ids are taken for another namespace's when no process of an engine is shown that holds so much by these names.
fn is_foreign(mut cards: Cards, look: &Sighted, held: &[(&str, u64)]) -> bool {
    let held = held.iter().map(|(place, gib)| ((*place).to_owned(), Bytes::gib(*gib))).collect();
    let trees = [(Spawn(1), Ours { pids: vec![7], held: Some(held) })].into();
    cards.sights(look, (&trees, &names(&[(7, "llama-server")])));
    cards.space == PidSpace::Foreign
}

#[test]
fn what_an_engine_holds_on_another_drivers_devices_proves_nothing_about_this_ones_ids() {
    let amd = DeviceReading { source: DeviceSource::Amdgpu, visible_as: None, ..device(B, 4, Some(&[(7, 20)])) };
    let both = || Cards::new(&host(&[A, B]), Graphics::new(vec![device(A, 24, None), amd.clone()], BTreeMap::new()));
    let look = Sighted { amd: Some(vec![amd.clone()]), ..sighted(vec![device(A, 24, Some(&[]))]) };
    assert!(!is_foreign(both(), &look, &[("ROCm0", 20)]));
    assert!(!is_foreign(both(), &look, &[("Vulkan1", 20)]), "it may be either's");
    assert!(is_foreign(both(), &look, &[("ROCm0", 20), ("CUDA0", 1)]));
    assert!(is_foreign(cards(&[A]), &sighted(vec![device(A, 10, Some(&[]))]), &[("Vulkan0", 14)]), "there is no other");
    let trees = [(Spawn(1), Ours { pids: vec![7], held: Some([("ROCm0".to_owned(), Bytes::gib(20))].into()) })].into();
    let sights = both().sights(&look, (&trees, &names(&[])));
    assert_eq!(figures(&sights, A).by_spawn, Some(BTreeMap::new()), "it holds nothing there");
    assert_eq!(figures(&sights, B).by_spawn, Some([(Spawn(1), Bytes::gib(20))].into()));
}

#[test]
fn a_device_that_does_not_tell_whose_its_memory_is_may_hold_all_that_no_other_shows() {
    let silent = sighted(vec![device(A, 10, None), device(B, 24, Some(&[]))]);
    assert!(!is_foreign(cards(&[A, B]), &silent, &[("CUDA0", 14)]));
    let both = sighted(vec![device(A, 10, Some(&[])), device(B, 24, Some(&[]))]);
    assert!(is_foreign(cards(&[A, B]), &both, &[("CUDA0", 14)]));
}

#[test]
fn an_engine_that_has_taken_nothing_yet_is_not_shown_and_others_are_told_from_it_when_they_are_of_this_machine() {
    let trees = ours(&[(1, &[7], None)]);
    let look = sighted(vec![device(A, 10, Some(&[(50, 14)]))]);
    let of = |names: &Names| figures(&cards(&[A]).sights(&look, (&trees, names)), A).by_spawn;
    assert_eq!(of(&names(&[(50, "Xorg")])), Some(BTreeMap::new()));
    assert_eq!(of(&names(&[])), None);
    let empty = sighted(vec![device(A, 10, Some(&[]))]);
    let told = figures(&cards(&[A]).sights(&empty, (&trees, &names(&[]))), A).by_spawn;
    assert_eq!(told, None, "14 GiB are in use and shown to nobody");
}

#[test]
fn a_lost_card_is_lost_one_that_fails_is_missing_and_neither_hides_another() {
    let lost = DeviceReading { memory: Err(NoFigures::Lost("gone".into())), ..device(A, 0, None) };
    let fails = DeviceReading { memory: Err(NoFigures::Other("?".into())), ..device(A, 0, None) };
    for (reading, expected) in [(lost, CardSight::Lost), (fails, CardSight::Missing)] {
        let sights = cards(&[A, B]).sights(&sighted(vec![reading, device(B, 24, None)]), (&ours(&[]), &names(&[])));
        assert_eq!(sights[&id_of(A)], expected);
        assert!(matches!(sights[&id_of(B)], CardSight::Seen(_)));
    }
}

#[test]
fn every_card_is_told_of_whoever_named_it_and_whether_or_not_a_driver_answers() {
    let silent = Sighted { nvidia: None, ..sighted(vec![]) };
    let sights = cards(&[A, "CUDA7"]).sights(&silent, (&ours(&[]), &names(&[])));
    assert_eq!(sights.into_values().collect::<Vec<_>>(), [CardSight::Missing, CardSight::Missing]);
    let list = EngineDevice {
        name: "CUDA0".into(),
        description: "NVIDIA A30".into(),
        pci: None,
        total: Some(Bytes::gib(24)),
        free: Bytes::gib(24),
    };
    let graphics = Graphics::new(vec![device(A, 24, None)], [("/e".into(), vec![list])].into());
    let mut by_name = Cards::new(&host(&["CUDA0"]), graphics);
    let sights = by_name.sights(&sighted(vec![device(A, 10, None)]), (&ours(&[]), &names(&[])));
    assert_eq!(figures(&sights, "CUDA0").free, Bytes::gib(10), "by the engine's name of it");
}

#[test]
fn without_figures_by_process_nothing_is_told_of_anyone() {
    let look = sighted(vec![device(A, 10, None)]);
    let a = figures(&cards(&[A]).sights(&look, (&ours(&[(1, &[7], None)]), &names(&[]))), A);
    assert_eq!((a.by_spawn, a.tenants), (None, vec![]));
}

#[test]
fn devices_that_the_host_does_not_count_are_for_nobody() {
    let known = || Graphics::new(vec![device(A, 24, None)], BTreeMap::new());
    assert!(Cards::new(&Host::default(), known()).is_without());
    assert!(!Cards::new(&Host::default(), Graphics::default()).is_without(), "there are none");
    assert!(!Cards::new(&host(&[A]), known()).is_without());
    let unified = Host { shape: HostShape::Unified, ..Host::default() };
    assert!(!Cards::new(&unified, known()).is_without());
}

#[test]
fn what_a_program_holds_in_many_processes_is_one_figure() {
    let shown = [(50, 2), (60, 9), (61, 5), (70, 11)].map(|(pid, gib)| (pid, Bytes::gib(gib)));
    let mut names = names(&[(50, "Xorg"), (60, "child"), (61, "child"), (70, "blender")]);
    for child in [60, 61] {
        names.insert(child, Called { name: "external server desk".to_owned(), counted_as: 59 });
    }
    let sums = [(59, 14), (70, 11), (50, 2)].map(|(pid, gib)| (pid, Bytes::gib(gib)));
    assert_eq!(together(shown.to_vec(), &names), sums);
}
