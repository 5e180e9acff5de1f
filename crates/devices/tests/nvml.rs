//! NVIDIA devices through the real wrapper and a library that is not NVIDIA's: each thing it can tell, each fault.
mod support;

use motorpool_devices::{DeviceKind, DeviceReading, Driver, NoFigures, Nvidia, Probe, Prober, now};
use motorpool_vocab::{Bytes, GIB, Now};
use nix::{sys::stat::Mode, unistd::mkfifo};
use std::{collections::BTreeMap, fs, sync::mpsc, thread, time::Duration};
use support::Fake;

const A: &str = "GPU-aaaa";
const B: &str = "GPU-bbbb";

/// Two cards of 24 GiB: one with 1 GiB used and 1 GiB reserved, one empty.
fn two_cards(more: &str) -> String {
    let (total, gib) = (24 * GIB, GIB);
    format!(
        "device uuid={A} pci=00000000:01:00.0 total={total} reserved={gib} used={gib} name=NVIDIA GeForce RTX 3090\n\
         device uuid={B} pci=00000000:02:00.0 total={total} mig=off name=NVIDIA A30\n{more}"
    )
}

fn nvidia(fake: &Fake) -> Nvidia {
    Nvidia::new(Some(fake.library()))
}

fn observed(more: &str) -> Vec<DeviceReading> {
    let fake = Fake::new(&two_cards(more));
    nvidia(&fake).observe().devices
}

fn device<'a>(devices: &'a [DeviceReading], uuid: &str) -> &'a DeviceReading {
    devices.iter().find(|device| &*device.id.0 == uuid).expect("a reading of each device")
}

fn is_lost(device: &DeviceReading) -> bool {
    matches!(device.memory, Err(NoFigures::Lost(_))) && device.by_process.is_none()
}

#[test]
fn a_card_is_read_whole() {
    let before = now();
    let fake = Fake::new(&two_cards("driver 580.1\n"));
    let reading = nvidia(&fake).observe();
    assert_eq!(reading.driver, Driver::Loaded { version: Some("580.1".to_owned()) });
    assert!(reading.unnamed.is_empty());
    let a = device(&reading.devices, A);
    assert_eq!((a.name.as_str(), a.kind, a.index), ("NVIDIA GeForce RTX 3090", DeviceKind::Card, Some(0)));
    assert_eq!((a.pci.as_deref(), a.visible_as.as_deref()), (Some("0000:01:00.0"), Some(A)));
    let memory = a.memory.clone().expect("figures");
    assert_eq!((memory.total, memory.free), (Bytes::gib(24), Bytes::gib(22)));
    assert_eq!(memory.used, Bytes::gib(2), "what the driver keeps for itself is not free");
    assert!(before <= a.taken_at && a.taken_at <= now());
    assert_eq!(a.by_process, Some(BTreeMap::new()), "no process, and the driver says so");
}

#[test]
fn a_missing_library_is_no_device_and_no_error() {
    let fake = Fake::new("");
    let mut nvidia = Nvidia::new(Some(fake.path("nowhere.so")));
    let reading = nvidia.observe();
    assert!(matches!(reading.driver, Driver::NoLibrary { .. }), "{:?}", reading.driver);
    assert!(reading.devices.is_empty() && reading.unnamed.is_empty());
    fake.set(&two_cards(""));
    fs::copy(support::built(), fake.path("nowhere.so")).expect("writable");
    fs::write(fake.path("nowhere.so.state"), two_cards("")).expect("writable");
    assert_eq!(nvidia.observe().devices.len(), 2, "a driver that is installed later is found");
}

#[test]
fn ids_and_figures_stay_with_their_cards_when_the_order_changes() {
    let fake = Fake::new(&two_cards(""));
    let mut nvidia = nvidia(&fake);
    let before = nvidia.observe().devices;
    fake.set(&two_cards(&format!("order {B} {A}\n")));
    let after = nvidia.observe().devices;
    for uuid in [A, B] {
        assert_eq!(device(&before, uuid).memory, device(&after, uuid).memory);
        assert_eq!(device(&before, uuid).pci, device(&after, uuid).pci);
    }
    assert_eq!((device(&before, A).index, device(&after, A).index), (Some(0), Some(1)), "the index is for people");
}

#[test]
fn a_driver_that_fails_to_start_leaves_known_devices_without_figures_and_comes_back() {
    let fake = Fake::new(&two_cards("fault init driver-not-loaded\n"));
    let mut nvidia = nvidia(&fake);
    let reading = nvidia.observe();
    assert!(matches!(reading.driver, Driver::Failed(NoFigures::Other(_))), "{:?}", reading.driver);
    assert!(reading.devices.is_empty(), "none is known yet");
    fake.set(&two_cards(""));
    assert_eq!(nvidia.observe().devices.len(), 2);
    fake.set(&two_cards("fault count unknown\n"));
    let reading = nvidia.observe();
    assert!(matches!(reading.driver, Driver::Failed(_)));
    assert_eq!(reading.devices.len(), 2);
    for device in &reading.devices {
        assert!(matches!(device.memory, Err(NoFigures::Other(_))), "the old figure is never used");
        assert_eq!((device.kind, device.index, &device.by_process), (DeviceKind::Card, None, &None));
    }
    fake.set(&two_cards(""));
    assert!(nvidia.observe().devices.iter().all(|device| device.memory.is_ok()));
}

#[test]
fn a_lost_card_is_known_by_its_id_hides_no_other_and_comes_back() {
    let fake = Fake::new(&two_cards(""));
    let mut nvidia = nvidia(&fake);
    nvidia.observe();
    fake.set(&two_cards(&format!("fault all {A} lost\n")));
    for _ in 0..2 {
        let reading = nvidia.observe();
        assert!(is_lost(device(&reading.devices, A)) && device(&reading.devices, B).memory.is_ok());
        assert_eq!(device(&reading.devices, A).name, "NVIDIA GeForce RTX 3090");
        assert_eq!(reading.unnamed.len(), 1, "it is enumerated and does not say who it is");
    }
    fake.set(&two_cards(""));
    assert!(device(&nvidia.observe().devices, A).memory.is_ok());
}

#[test]
fn a_card_that_is_enumerated_no_more_is_lost() {
    let fake = Fake::new(&two_cards(""));
    let mut nvidia = nvidia(&fake);
    nvidia.observe();
    fake.set(&format!("device uuid={B} total={GIB} name=NVIDIA A30\n"));
    let devices = nvidia.observe().devices;
    assert!(is_lost(device(&devices, A)) && device(&devices, B).memory.is_ok());
}

#[test]
fn a_card_that_only_enumeration_forgets_is_still_read() {
    let fake = Fake::new(&two_cards(""));
    let mut nvidia = nvidia(&fake);
    nvidia.observe();
    fake.set(&two_cards(&format!("order {B}\n")));
    let devices = nvidia.observe().devices;
    assert_eq!((device(&devices, A).index, device(&devices, A).memory.is_ok()), (None, true));
}

#[test]
fn a_card_that_wants_a_reset_is_lost() {
    let devices = observed(&format!("fault nvmlDeviceGetMemoryInfo_v2 {A} reset-required\n"));
    assert!(matches!(device(&devices, A).memory, Err(NoFigures::Lost(_))));
    assert_eq!(device(&devices, A).kind, DeviceKind::Unknown, "it never told");
    assert!(device(&devices, B).memory.is_ok());
}

#[test]
fn a_device_without_memory_of_its_own_shares_the_systems() {
    let devices = observed(&format!("fault nvmlDeviceGetMemoryInfo_v2 {A} not-supported\n"));
    let a = device(&devices, A);
    assert_eq!((a.kind, a.memory.clone()), (DeviceKind::SharesRam, Err(NoFigures::SharesRam)));
    assert_eq!(device(&devices, B).kind, DeviceKind::Card);
}

#[test]
fn a_card_that_we_may_not_read_says_so() {
    let devices = observed(&format!("fault nvmlDeviceGetMemoryInfo_v2 {A} not-permitted\n"));
    assert!(matches!(device(&devices, A).memory, Err(NoFigures::NotPermitted(_))));
}

#[test]
fn an_unknown_error_is_no_figure_either() {
    let devices = observed(&format!("fault nvmlDeviceGetMemoryInfo_v2 {A} unknown\n"));
    assert!(matches!(device(&devices, A).memory, Err(NoFigures::Other(_))));
}

#[test]
fn what_cannot_change_is_remembered_of_a_device_that_fails() {
    let fake = Fake::new(&two_cards(""));
    let mut nvidia = nvidia(&fake);
    nvidia.observe();
    fake.set(&two_cards(&format!(
        "fault nvmlDeviceGetMemoryInfo_v2 {A} unknown\nfault nvmlDeviceGetName {A} unknown\n\
         fault nvmlDeviceGetPciInfo_v3 {A} unknown\n"
    )));
    let devices = nvidia.observe().devices;
    let a = device(&devices, A);
    assert_eq!((a.kind, a.name.as_str()), (DeviceKind::Card, "NVIDIA GeForce RTX 3090"));
    assert_eq!(a.pci.as_deref(), Some("0000:01:00.0"));
    assert!(matches!(a.memory, Err(NoFigures::Other(_))), "and nothing else");
}

#[test]
fn a_card_of_zero_bytes_has_no_figures() {
    let fake = Fake::new(&format!("device uuid={A} total=0 name=strange\n"));
    let devices = nvidia(&fake).observe().devices;
    assert!(matches!(device(&devices, A).memory, Err(NoFigures::Other(_))));
}

#[test]
fn a_partitioned_card_is_told_and_has_no_figures() {
    let fake = Fake::new(&format!("device uuid={A} total={GIB} mig=on name=NVIDIA A100\n"));
    let devices = nvidia(&fake).observe().devices;
    let a = device(&devices, A);
    assert_eq!((a.kind, a.memory.clone()), (DeviceKind::Partitioned, Err(NoFigures::Partitioned)));
}

#[test]
fn the_instances_of_a_partitioned_card_are_devices_of_their_own() {
    let instance =
        |n: u64| format!("device uuid=MIG-{n} of={A} total={} used={GIB} name=NVIDIA A100 MIG 1g.10gb\n", n * 10 * GIB);
    let card = format!("device uuid={A} pci=00000000:01:00.0 total={} mig=on name=NVIDIA A100\n", 80 * GIB);
    let both = format!("{card}{}{}", instance(1), instance(2));
    let fake = Fake::new(&format!("{both}process uuid=MIG-2 pid=7 bytes=5\n"));
    let mut nvidia = nvidia(&fake);
    let devices = nvidia.observe().devices;
    assert_eq!(devices.len(), 3, "{devices:?}");
    assert_eq!(device(&devices, A).memory, Err(NoFigures::Partitioned));
    for (uuid, total) in [("MIG-1", 10), ("MIG-2", 20)] {
        let one = device(&devices, uuid);
        let memory = one.memory.clone().expect("figures");
        assert_eq!((memory.total, memory.used), (Bytes::gib(total), Bytes::gib(1)));
        assert_eq!((one.kind, one.pci.as_deref(), one.index), (DeviceKind::Instance, None, None), "{uuid}");
        assert_eq!((one.name.as_str(), one.visible_as.as_deref()), ("NVIDIA A100 MIG 1g.10gb", Some(uuid)));
    }
    assert_eq!(device(&devices, "MIG-2").by_process, Some(BTreeMap::from([(7, Bytes::new(5))])));
    fake.set(&format!("{card}{}", instance(2)));
    let devices = nvidia.observe().devices;
    assert!(is_lost(device(&devices, "MIG-1")) && device(&devices, "MIG-2").memory.is_ok());
    fake.set(&format!("{both}fault nvmlDeviceGetMemoryInfo_v2 MIG-1 not-supported\n"));
    let devices = nvidia.observe().devices;
    assert!(matches!(device(&devices, "MIG-1").memory, Err(NoFigures::Other(_))), "it is not the system's");
}

#[test]
fn a_process_that_computes_and_draws_is_counted_once_by_the_larger_figure() {
    let devices = observed(&format!(
        "process uuid={A} pid=7 bytes=100\nprocess uuid={A} pid=7 bytes=300 kind=graphics\n\
         process uuid={A} pid=8 bytes=50 kind=graphics\nprocess uuid={B} pid=7 bytes=1\n\
         process uuid={A} pid=9 bytes=20\nprocess uuid={A} pid=9 bytes=10 kind=graphics\n"
    ));
    let expected = BTreeMap::from([(7, Bytes::new(300)), (8, Bytes::new(50)), (9, Bytes::new(20))]);
    assert_eq!(device(&devices, A).by_process, Some(expected));
    assert_eq!(device(&devices, B).by_process, Some(BTreeMap::from([(7, Bytes::new(1))])));
}

#[test]
fn many_processes_are_all_listed() {
    use std::fmt::Write as _;
    let mut processes = String::new();
    for pid in 1..=40 {
        writeln!(processes, "process uuid={A} pid={pid} bytes={pid}").expect("a string takes all");
    }
    let devices = observed(&processes);
    let by_process = device(&devices, A).by_process.clone().expect("figures");
    assert_eq!((by_process.len(), Bytes::sum(by_process.into_values())), (40, Bytes::new(820)));
}

#[test]
fn figures_that_lack_one_process_are_none() {
    let processes = format!("process uuid={A} pid=7 bytes=100\nprocess uuid={A} pid=8 bytes=unknown\n");
    let devices = observed(&processes);
    assert_eq!(device(&devices, A).by_process, None);
    assert!(device(&devices, A).memory.is_ok(), "the card's own figures stand");
}

#[test]
fn a_driver_without_figures_by_process_gives_none() {
    let compute = format!("fault nvmlDeviceGetComputeRunningProcesses_v3 {A} not-permitted\n");
    assert_eq!(device(&observed(&compute), A).by_process, None);
    let graphics = format!("process uuid={A} pid=7 bytes=5\nfault nvmlDeviceGetGraphicsRunningProcesses_v3 {A} ");
    let of = |error: &str| device(&observed(&format!("{graphics}{error}\n")), A).by_process.clone();
    assert_eq!(of("not-supported"), Some(BTreeMap::from([(7, Bytes::new(5))])), "a card that cannot draw");
    assert_eq!(of("not-permitted"), None);
}

#[test]
fn a_container_sees_the_process_ids_of_its_host() {
    let devices = observed(&format!("process uuid={A} pid=7 bytes=5\npid-offset 100000\n"));
    assert_eq!(device(&devices, A).by_process, Some(BTreeMap::from([(100_007, Bytes::new(5))])));
}

#[test]
fn claims_are_used_while_their_process_lives_and_until_the_lag_is_over() {
    let fake = Fake::new("");
    let claims = fake.path("claims");
    fs::create_dir(&claims).expect("writable");
    let (me, nobody) = (std::process::id(), 4_194_305);
    fs::write(claims.join(me.to_string()), format!("{A} {GIB}\n{B} {}\n", 2 * GIB)).expect("writable");
    fs::write(claims.join(nobody.to_string()), format!("{A} {}\n", 4 * GIB)).expect("writable");
    let state = |lag: u64| two_cards(&format!("claims {}\nlag-ms {lag}\n", claims.display()));
    let used = |devices: &[DeviceReading], uuid| device(devices, uuid).memory.clone().expect("figures").used;
    let mut nvidia = nvidia(&fake);
    fake.set(&state(3_600_000));
    let devices = nvidia.observe().devices;
    assert_eq!((used(&devices, A), used(&devices, B)), (Bytes::gib(7), Bytes::gib(2)));
    let entries = BTreeMap::from([(me, Bytes::gib(1)), (nobody, Bytes::gib(4))]);
    assert_eq!(device(&devices, A).by_process, Some(entries), "the entry stays as long as the bytes do");
    fake.set(&state(0));
    let devices = nvidia.observe().devices;
    assert_eq!(used(&devices, A), Bytes::gib(3), "2 GiB of the card's own, 1 GiB of a process that lives");
    assert_eq!(device(&devices, A).by_process, Some(BTreeMap::from([(me, Bytes::gib(1))])));
}

#[test]
fn a_call_that_hangs_answers_when_the_card_is_well_again() {
    let fake = Fake::new("");
    let pipe = fake.path("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
    fake.set(&two_cards(&format!("hang nvmlDeviceGetMemoryInfo_v2 {}\n", pipe.display())));
    let library = fake.library();
    let asking = thread::spawn(move || Nvidia::new(Some(library)).observe());
    let hanging = fs::OpenOptions::new().write(true).open(&pipe).expect("the call opened it too");
    assert!(!asking.is_finished(), "it reads what nobody writes");
    fake.set(&two_cards(""));
    drop(hanging);
    let reading = asking.join().expect("no panic");
    assert!(reading.devices.iter().all(|device| device.memory.is_ok()));
}

#[test]
fn a_card_that_hangs_its_driver_is_stuck_for_the_prober_and_read_anew_when_it_is_well() {
    let fake = Fake::new("");
    let pipe = fake.path("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
    fake.set(&two_cards(&format!("hang nvmlDeviceGetMemoryInfo_v2 {}\n", pipe.display())));
    let (wake, awake) = mpsc::channel();
    let mut nvidia = nvidia(&fake);
    let woken = move || wake.send(()).unwrap_or_default();
    let prober = Prober::new("nvml", Duration::from_secs(2), move || nvidia.observe(), woken).expect("a thread");
    let at = |seconds| Now::ZERO.after(Duration::from_secs(seconds));
    prober.start(at(1));
    let hanging = fs::OpenOptions::new().write(true).open(&pipe).expect("the call opened it too");
    assert_eq!(prober.poll(at(30)), Probe::Stuck { since: at(1) });
    fake.set(&two_cards(""));
    drop(hanging);
    awake.recv().expect("the call came back");
    assert_eq!(prober.poll(at(31)), Probe::Idle, "what it read before it hung is not used");
    prober.start(at(31));
    awake.recv().expect("an answer");
    let Probe::Answered(reading) = prober.poll(at(31)) else { panic!("an answer lies ready") };
    assert!(reading.devices.iter().all(|device| device.memory.is_ok()));
}

#[test]
fn a_state_that_is_not_understood_is_a_failing_driver() {
    let fake = Fake::new("nonsense\n");
    assert!(matches!(nvidia(&fake).observe().driver, Driver::Failed(_)));
}
