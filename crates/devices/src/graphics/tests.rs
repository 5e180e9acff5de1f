use super::*;
use crate::{DeviceMemory, NoFigures, now};
use proptest::prelude::*;

fn nvidia(id: &str, pci: &str, name: &str) -> DeviceReading {
    let memory = DeviceMemory { total: Bytes::gib(24), used: Bytes::ZERO, free: Bytes::gib(24) };
    DeviceReading {
        id: DeviceId(id.into()),
        source: DeviceSource::Nvml,
        kind: DeviceKind::Card,
        name: name.into(),
        index: None,
        pci: Some(pci.into()),
        visible_as: Some(id.into()),
        taken_at: now(),
        memory: Ok(memory),
        by_process: None,
        shared: None,
    }
}

fn amd(pci: &str, name: &str) -> DeviceReading {
    DeviceReading { source: DeviceSource::Amdgpu, visible_as: Some("GPU-1234".into()), ..nvidia(pci, pci, name) }
}

fn listed(name: &str, description: &str, pci: Option<&str>) -> EngineDevice {
    EngineDevice {
        name: name.into(),
        description: description.into(),
        pci: pci.map(Into::into),
        total: Some(Bytes::gib(24)),
        free: Bytes::gib(23),
    }
}

/// What each device is called by engines, in the order of ids.
fn names(readings: &[DeviceReading], devices: &[EngineDevice]) -> Vec<(String, Vec<String>)> {
    let gpus = join(readings, &devices.iter().collect::<Vec<_>>());
    let mut found: Vec<_> = gpus.into_iter().map(|gpu| (gpu.id.to_string(), gpu.listed_as)).collect();
    found.sort();
    found
}

fn called(id: &str, names: &[&str]) -> (String, Vec<String>) {
    (id.into(), names.iter().map(|name| (*name).to_owned()).collect())
}

const RTX: &str = "NVIDIA GeForce RTX 3090";

#[test]
fn an_address_joins_whatever_the_orders_and_names_are() {
    let readings = [nvidia("GPU-b", "0000:02:00.0", RTX), nvidia("GPU-a", "0000:01:00.0", RTX)];
    let devices = [listed("CUDA0", RTX, Some("0000:02:00.0")), listed("CUDA1", "other", Some("0000:01:00.0"))];
    assert_eq!(names(&readings, &devices), [called("GPU-a", &["CUDA1"]), called("GPU-b", &["CUDA0"])]);
}

#[test]
fn a_name_joins_where_there_is_no_address_and_cards_of_one_name_follow_their_addresses() {
    let readings = [nvidia("GPU-c", "0000:03:00.0", "NVIDIA A30"), nvidia("GPU-b", "0000:02:00.0", RTX)];
    let devices = [listed("CUDA0", "NVIDIA A30", None), listed("CUDA1", RTX, None)];
    assert_eq!(names(&readings, &devices), [called("GPU-b", &["CUDA1"]), called("GPU-c", &["CUDA0"])]);
    let twins = [nvidia("GPU-z", "0000:01:00.0", RTX), nvidia("GPU-a", "0000:02:00.0", RTX)];
    let devices = [listed("CUDA0", RTX, None), listed("CUDA1", RTX, None)];
    assert_eq!(names(&twins, &devices), [called("GPU-a", &["CUDA1"]), called("GPU-z", &["CUDA0"])]);
}

#[test]
fn one_card_behind_two_backends_is_one_device() {
    let devices = [listed("CUDA0", RTX, None), listed("Vulkan0", RTX, None)];
    let readings = [nvidia("GPU-a", "0000:01:00.0", RTX)];
    assert_eq!(names(&readings, &devices), [called("GPU-a", &["CUDA0", "Vulkan0"])]);
    assert_eq!(names(&[], &devices), [called("CUDA0", &["CUDA0", "Vulkan0"])], "without a driver too");
}

#[test]
fn what_the_kernel_has_no_name_for_is_joined_when_it_is_the_only_one_of_its_vendor() {
    let devices = [listed("ROCm0", "AMD Radeon RX 7900 XTX", None)];
    assert_eq!(names(&[amd("0000:03:00.0", "AMD 0x744c")], &devices), [called("0000:03:00.0", &["ROCm0"])]);
    let two = [amd("0000:03:00.0", "AMD 0x744c"), amd("0000:04:00.0", "AMD 0x744c")];
    let found = names(&two, &devices);
    assert_eq!(found.last(), Some(&called("ROCm0", &["ROCm0"])), "which of two, nobody knows: {found:?}");
}

#[test]
fn different_addresses_are_different_devices_and_remote_or_empty_ones_are_none() {
    let readings = [nvidia("GPU-a", "0000:01:00.0", RTX)];
    let devices = [
        listed("CUDA0", RTX, Some("0000:09:00.0")),
        listed("RPC0[10.0.0.2:50052]", "RPC0[10.0.0.2:50052]", None),
        EngineDevice { total: Some(Bytes::ZERO), ..listed("BLAS", "OpenBLAS", None) },
    ];
    assert_eq!(names(&readings, &devices), [called("CUDA0", &["CUDA0"]), called("GPU-a", &[])]);
}

#[test]
fn a_lost_twin_that_cuda_still_lists_is_not_counted_on_top_of_what_the_driver_tells() {
    let readings = [nvidia("GPU-b", "0000:02:00.0", RTX)];
    let devices = [listed("CUDA0", RTX, None), listed("CUDA1", RTX, None)];
    assert_eq!(names(&readings, &devices), [called("GPU-b", &["CUDA0"])]);
    assert_eq!(names(&[], &devices), [called("CUDA0", &["CUDA0"]), called("CUDA1", &["CUDA1"])]);
}

#[test]
fn an_operators_own_choice_hides_the_others() {
    let cards: Vec<_> = ["a", "b", "c"].iter().zip(1..).map(|(id, n)| (id, format!("0000:0{n}:00.0"))).collect();
    let readings = cards.iter().map(|(id, pci)| nvidia(&format!("GPU-{id}{id}"), pci, RTX)).collect();
    let graphics = Graphics::new(readings, BTreeMap::new());
    let shown =
        |text: Option<&str>| -> Vec<String> { graphics.gpus(text).into_iter().map(|gpu| gpu.id.to_string()).collect() };
    assert_eq!(shown(None), ["GPU-aa", "GPU-bb", "GPU-cc"]);
    assert_eq!(shown(Some("2,0")), ["GPU-aa", "GPU-cc"]);
    assert_eq!(shown(Some("GPU-b")), ["GPU-bb"]);
    assert_eq!(shown(Some("1,-1,2")), ["GPU-bb"], "the first that is none ends it");
    assert_eq!(shown(Some("")), [""; 0]);
}

#[test]
fn a_device_answers_to_all_its_names() {
    let gpus = join(&[nvidia("GPU-a", "0000:0a:00.0", RTX)], &[&listed("CUDA0", RTX, None)]);
    for name in ["GPU-a", "0000:0A:00.0", "CUDA0"] {
        assert!(gpus[0].is_called(&DeviceId(name.into())), "{name}");
    }
    assert!(!gpus[0].is_called(&DeviceId("CUDA1".into())));
}

#[test]
fn only_figures_of_an_unknown_device_are_news() {
    let a = nvidia("GPU-a", "0000:01:00.0", RTX);
    let silent = DeviceReading { memory: Err(NoFigures::Other("no".into())), ..a.clone() };
    let graphics = Graphics::new(vec![silent.clone()], BTreeMap::new());
    assert!(!graphics.lacks(std::slice::from_ref(&silent)));
    assert!(graphics.lacks(std::slice::from_ref(&a)), "it tells its size at last");
    assert!(!Graphics::new(vec![a.clone()], BTreeMap::new()).lacks(&[a, silent]));
}

#[test]
fn what_cuda_lists_where_a_card_is_cut_up_is_the_first_instance_and_not_the_card_whose_address_it_has() {
    let card = DeviceReading { kind: DeviceKind::Partitioned, ..nvidia("GPU-a", "0000:01:00.0", "NVIDIA A100") };
    let instance = |id: &str| {
        let reading = nvidia(id, "", "NVIDIA A100 MIG 1g.10gb");
        DeviceReading { kind: DeviceKind::Instance, pci: None, ..reading }
    };
    let readings = [card, instance("MIG-1"), instance("MIG-2")];
    let gpus = join(&readings, &[&listed("CUDA0", "NVIDIA A100 MIG 1g.10gb", Some("0000:01:00.0"))]);
    let names: Vec<_> = gpus.iter().map(|gpu| (&*gpu.id.0, gpu.listed_as.len())).collect();
    assert_eq!(names, [("MIG-1", 1), ("MIG-2", 0), ("GPU-a", 0)]);
    assert_eq!(gpus[1].visible.as_ref().map(|visible| visible.id.as_str()), Some("MIG-2"));
}

proptest! {
    #[test]
    fn every_device_is_there_once_and_every_name_is_somebodys(
        drivers in prop::collection::vec((0u8..4, 0u8..3), 0..4),
        engines in prop::collection::vec((0usize..3, 0u8..4, 0u8..3, any::<bool>()), 0..6),
    ) {
        let pci = |n: u8| format!("0000:0{n}:00.0");
        let mut readings: Vec<_> =
            drivers.iter().map(|(at, name)| nvidia(&format!("GPU-{at}"), &pci(*at), &format!("card {name}"))).collect();
        readings.dedup_by(|a, b| a.id == b.id);
        readings.sort_by(|a, b| a.id.cmp(&b.id));
        readings.dedup_by(|a, b| a.id == b.id);
        let mut counts = [0; 3];
        let devices: Vec<_> = engines.iter().map(|(backend, at, name, has_address)| {
            let n = counts[*backend];
            counts[*backend] += 1;
            let address = has_address.then(|| pci(*at));
            let backend = ["CUDA", "Vulkan", "ROCm"][*backend];
            listed(&format!("{backend}{n}"), &format!("card {name}"), address.as_deref())
        }).collect();
        let gpus = join(&readings, &devices.iter().collect::<Vec<_>>());
        let ids: BTreeSet<_> = gpus.iter().map(|gpu| gpu.id.clone()).collect();
        prop_assert_eq!(ids.len(), gpus.len());
        let mut names: Vec<_> = gpus.iter().flat_map(|gpu| gpu.listed_as.clone()).collect();
        names.sort();
        let may_be_nobodys = |d: &EngineDevice| backend_of(&d.name) == "CUDA" && d.pci.is_none() && !readings.is_empty();
        let is_somebodys = |d: &&EngineDevice| !may_be_nobodys(d) || names.contains(&d.name);
        let mut wanted: Vec<_> = devices.iter().filter(is_somebodys).map(|device| device.name.clone()).collect();
        wanted.sort();
        prop_assert_eq!(&names, &wanted);
        for gpu in &gpus {
            let backends: BTreeSet<_> = gpu.listed_as.iter().map(|name| backend_of(name)).collect();
            prop_assert_eq!(backends.len(), gpu.listed_as.len());
        }
    }
}
