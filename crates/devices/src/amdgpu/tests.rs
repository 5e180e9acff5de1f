//! A machine of files under a temporary root.
use super::*;
use motorpool_vocab::KIB;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

const CARD: &str = "0000:03:00.0";

struct Machine {
    root: TempDir,
}

impl Machine {
    fn new() -> Self {
        Self { root: tempfile::tempdir().expect("a temporary directory") }
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    fn with_card(self, number: u32, address: &str, vram: u64) -> Self {
        let folder = format!("sys/class/drm/card{number}/device");
        self.write(&format!("{folder}/vendor"), "0x1002\n");
        self.write(&format!("{folder}/device"), "0x744c\n");
        self.write(&format!("{folder}/uevent"), format!("DRIVER=amdgpu\nPCI_SLOT_NAME={address}\n"));
        self.write(&format!("{folder}/unique_id"), "deadbeef00000001\n");
        self.write(&format!("{folder}/gpu_metrics"), [120, 0, 1, 3, 0, 0]);
        self.write(&format!("{folder}/mem_info_vram_total"), format!("{vram}\n"));
        self.write(&format!("{folder}/mem_info_vram_used"), "1073741824\n");
        self.write(&format!("{folder}/mem_info_gtt_total"), format!("{}\n", Bytes::gib(16).get()));
        self.write(&format!("{folder}/mem_info_gtt_used"), "0\n");
        self
    }

    fn with_client(self, pid: u32, fd: u32, client: &str) -> Self {
        self.write(&format!("proc/{pid}/fdinfo/{fd}"), format!("pos:\t0\ndrm-driver:\tamdgpu\n{client}"));
        fs::create_dir_all(self.root.path().join(format!("proc/{pid}/fd"))).expect("writable");
        let link = self.root.path().join(format!("proc/{pid}/fd/{fd}"));
        symlink("/dev/dri/renderD128", link).expect("writable");
        self
    }

    fn amdgpu(&self) -> Amdgpu {
        Amdgpu::new(self.root.path())
    }

    fn observed(&self) -> Vec<DeviceReading> {
        self.amdgpu().observe()
    }
}

fn client(id: u32, kib: u64) -> String {
    format!("drm-pdev:\t{CARD}\ndrm-client-id:\t{id}\ndrm-memory-vram:\t{kib} KiB\n")
}

#[test]
fn a_card_is_read_by_its_address() {
    let machine = Machine::new().with_card(1, CARD, 24 << 30);
    machine.write("sys/class/drm/card1-DP-1/device/vendor", "0x1002\n");
    machine.write("sys/class/drm/card1-DP-1/device/uevent", "PCI_SLOT_NAME=a connector's\n");
    machine.write("sys/class/drm/card0/device/vendor", "0x8086\n");
    machine.write("sys/class/drm/version", "drm\n");
    let devices = machine.observed();
    let [card] = &devices[..] else { panic!("one AMD device: {devices:?}") };
    assert_eq!((&*card.id.0, card.kind, card.source), (CARD, DeviceKind::Card, DeviceSource::Amdgpu));
    assert_eq!((card.name.as_str(), card.visible_as.as_deref()), ("AMD 0x744c", Some("GPU-deadbeef00000001")));
    let memory = card.memory.clone().expect("figures");
    assert_eq!((memory.total, memory.used, memory.free), (Bytes::gib(24), Bytes::gib(1), Bytes::gib(23)));
    assert_eq!(card.shared.map(|shared| shared.total), Some(Bytes::gib(16)));
    assert_eq!(card.by_process, None, "no client yet, or a kernel that tells of none");
}

#[test]
fn an_apu_is_told_by_its_metrics_however_much_it_was_given() {
    let machine = Machine::new().with_card(0, CARD, 96 << 30);
    for format in [2, 3] {
        machine.write("sys/class/drm/card0/device/gpu_metrics", [120, 0, format, 0]);
        assert_eq!(machine.observed()[0].kind, DeviceKind::SharesRam);
    }
}

#[test]
fn a_device_older_than_metrics_is_judged_by_size() {
    for (vram, kind) in
        [(512 << 20, DeviceKind::SharesRam), (2 << 30, DeviceKind::SharesRam), (8 << 30, DeviceKind::Card)]
    {
        let machine = Machine::new().with_card(0, CARD, vram);
        fs::remove_file(machine.root.path().join("sys/class/drm/card0/device/gpu_metrics")).expect("there");
        assert_eq!(machine.observed()[0].kind, kind);
    }
}

#[test]
fn an_apu_with_nothing_set_aside_shares_all_of_it() {
    let machine = Machine::new().with_card(0, CARD, 0);
    machine.write("sys/class/drm/card0/device/gpu_metrics", [120, 0, 2, 0]);
    machine.write("sys/class/drm/card0/device/mem_info_vram_used", "0\n");
    assert_eq!(machine.observed()[0].memory, Err(NoFigures::SharesRam));
}

#[test]
fn a_figure_that_is_missing_or_absurd_is_no_figure() {
    let machine = Machine::new().with_card(0, CARD, 24 << 30);
    machine.write("sys/class/drm/card0/device/mem_info_vram_used", "lots\n");
    assert!(matches!(machine.observed()[0].memory, Err(NoFigures::Other(_))));
    machine.write("sys/class/drm/card0/device/mem_info_vram_used", format!("{}\n", u64::MAX));
    assert!(matches!(machine.observed()[0].memory, Err(NoFigures::Other(_))));
    fs::remove_file(machine.root.path().join("sys/class/drm/card0/device/mem_info_vram_used")).expect("there");
    assert!(matches!(machine.observed()[0].memory, Err(NoFigures::Other(_))));
}

#[test]
fn errors_of_the_kernel_are_told_apart() {
    let of = |code: nix::errno::Errno| no_figures("x", &io::Error::from_raw_os_error(code as i32));
    assert!(matches!(of(nix::errno::Errno::ENODEV), NoFigures::Lost(_)));
    assert!(matches!(of(nix::errno::Errno::EPERM), NoFigures::NotPermitted(_)));
    assert!(matches!(of(nix::errno::Errno::EIO), NoFigures::Other(_)));
}

#[test]
fn a_device_that_is_gone_is_lost_and_comes_back() {
    let machine = Machine::new().with_card(0, CARD, 24 << 30);
    let mut amdgpu = machine.amdgpu();
    amdgpu.observe();
    fs::remove_dir_all(machine.root.path().join("sys/class/drm/card0")).expect("ours");
    let gone = amdgpu.observe();
    assert!(matches!(gone[0].memory, Err(NoFigures::Lost(_))), "the old figure is never used");
    assert_eq!((&*gone[0].id.0, gone[0].kind, gone[0].shared), (CARD, DeviceKind::Card, None));
    let machine = machine.with_card(3, CARD, 24 << 30);
    assert!(amdgpu.observe()[0].memory.is_ok(), "whatever number it has now");
    drop(machine);
}

#[test]
fn a_client_is_counted_once_under_however_many_descriptors() {
    let machine = Machine::new()
        .with_card(0, CARD, 24 << 30)
        .with_card(1, "0000:99:00.0", 24 << 30)
        .with_client(100, 5, &client(1, 1000))
        .with_client(100, 6, &client(1, 1000))
        .with_client(100, 7, &client(2, 10))
        .with_client(200, 5, &client(1, 1000))
        .with_client(300, 5, &client(3, 7))
        .with_client(300, 6, "drm-pdev:\t0000:99:00.0\ndrm-client-id:\t3\ndrm-memory-vram:\t1 KiB\n");
    let devices = machine.observed();
    let expected = BTreeMap::from([(100, Bytes::new(1010 * KIB)), (300, Bytes::new(7 * KIB))]);
    assert_eq!(devices[0].by_process, Some(expected));
    let expected = BTreeMap::from([(300, Bytes::new(KIB))]);
    assert_eq!(devices[1].by_process, Some(expected), "each device numbers its own clients");
}

#[test]
fn once_clients_are_told_none_means_none() {
    let machine = Machine::new().with_card(0, CARD, 24 << 30).with_client(100, 5, &client(1, 1000));
    let mut amdgpu = machine.amdgpu();
    assert_eq!(amdgpu.observe()[0].by_process.as_ref().map(BTreeMap::len), Some(1));
    fs::remove_dir_all(machine.root.path().join("proc/100")).expect("ours");
    assert_eq!(amdgpu.observe()[0].by_process, Some(BTreeMap::new()));
}

#[test]
fn a_client_that_does_not_tell_its_memory_leaves_the_sum_unknown() {
    let machine = Machine::new()
        .with_card(0, CARD, 24 << 30)
        .with_client(100, 5, &client(1, 1000))
        .with_client(200, 5, &format!("drm-pdev:\t{CARD}\ndrm-client-id:\t2\n"))
        .with_client(300, 5, &client(3, 1000));
    assert_eq!(machine.observed()[0].by_process, None);
}

#[test]
fn a_machine_without_amd_is_no_device() {
    assert_eq!(Machine::new().observed(), []);
}
