//! AMD devices, as the kernel's amdgpu driver tells them in `/sys/class/drm` and `/proc/<pid>/fdinfo`.
//!
//! - The id is the PCI address. A device once seen is in every later reading, as lost when its folder is gone.
//! - Card or APU: the header of `gpu_metrics` says it. The driver writes format 1 for cards and 2 or 3 for APUs
//!   (`kgd_pp_interface.h` of the kernel; cards since Vega 12, APUs since Renoir). Size would not do: an APU may be
//!   given 96 GiB. Devices older than that are judged by it, though: the carve-out of an old APU is at most 2 GiB.
//! - An APU's own memory is that carve-out; what it takes of the rest is [`DeviceReading::shared`] (GTT).
//! - Figures by process come from DRM clients (`drm-usage-stats.rst` of the kernel, since Linux 5.14). Before the
//!   first client was seen, no process may mean no support, so it is `None`. Processes of other users that we may
//!   not look into are missing: what they hold is in `used` alone.
use crate::{
    device::{DeviceKind, DeviceMemory, DeviceReading, DeviceSource, Identity, NoFigures},
    fdinfo::{self, Clients},
    now,
};
use motorpool_vocab::{Bytes, DeviceId};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

const VENDOR: &str = "0x1002";
/// The most that firmware sets aside for an APU older than `gpu_metrics`.
const MOST_OLD_CARVE_OUT: Bytes = Bytes::gib(2);
/// What the kernel answers for a device that fell off the bus.
const GONE: &[nix::errno::Errno] = &[nix::errno::Errno::ENODEV, nix::errno::Errno::ENXIO];

/// AMD's devices over time.
#[derive(Debug)]
pub struct Amdgpu {
    root: PathBuf,
    known: BTreeMap<DeviceId, Identity>,
    tells_clients: bool,
}

impl Amdgpu {
    /// `root` is `/` but in tests.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), known: BTreeMap::new(), tells_clients: false }
    }

    /// Reads every device seen so far, in the order of their ids. Looks through the descriptors of all processes
    /// when there is a device: tens of milliseconds on a busy machine.
    pub fn observe(&mut self) -> Vec<DeviceReading> {
        let taken_at = now();
        let folders = self.folders();
        if folders.is_empty() && self.known.is_empty() {
            return Vec::new();
        }
        let clients = fdinfo::observe_clients(&self.root);
        self.tells_clients |= clients.tell_memory();
        let mut found = BTreeMap::new();
        for (address, folder) in folders {
            let id = DeviceId(address.as_str().into());
            let identity = Identity::read(&address, &folder);
            let why = NoFigures::SharesRam;
            let reading = DeviceReading {
                memory: memory(&folder, Heap::Vram).map_err(|e| identity.why(e)),
                shared: memory(&folder, Heap::Gtt).ok(),
                by_process: self.by_process(&clients, &address),
                ..identity.without_figures(id.clone(), taken_at, why)
            };
            self.known.insert(id.clone(), identity);
            found.insert(id, reading);
        }
        for (id, identity) in &self.known {
            let lost = || NoFigures::Lost("its folder in /sys is gone".to_owned());
            found.entry(id.clone()).or_insert_with(|| identity.without_figures(id.clone(), taken_at, lost()));
        }
        found.into_values().collect()
    }

    fn by_process(&self, clients: &Clients, address: &str) -> Option<BTreeMap<u32, Bytes>> {
        if self.tells_clients { clients.on(address) } else { None }
    }

    /// The folder of each device by its address. `card0` is a device, `card0-DP-1` one of its connectors.
    fn folders(&self) -> BTreeMap<String, PathBuf> {
        let Ok(entries) = fs::read_dir(self.root.join("sys/class/drm")) else { return BTreeMap::new() };
        let device = |entry: fs::DirEntry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix("card")?;
            let folder = entry.path().join("device");
            let is_ours = number.parse::<u32>().is_ok() && text(&folder, "vendor")? == VENDOR;
            if is_ours { Some((address(&folder)?, folder)) } else { None }
        };
        entries.flatten().filter_map(device).collect()
    }
}

impl Identity {
    fn read(address: &str, folder: &Path) -> Self {
        let name = text(folder, "product_name").filter(|name| !name.is_empty());
        let model = || format!("AMD {}", text(folder, "device").unwrap_or_default());
        Self {
            source: DeviceSource::Amdgpu,
            name: name.unwrap_or_else(model),
            pci: Some(address.to_owned()),
            visible_as: text(folder, "unique_id").filter(|id| !id.is_empty()).map(|id| format!("GPU-{id}")),
            kind: kind(folder),
        }
    }

    /// An APU may have no memory set aside at all.
    fn why(&self, why: NoFigures) -> NoFigures {
        match why {
            NoFigures::Other(_) if self.kind == DeviceKind::SharesRam => NoFigures::SharesRam,
            why => why,
        }
    }
}

/// Two memories that a device uses, by how their files are called.
#[derive(Clone, Copy)]
enum Heap {
    Vram,
    Gtt,
}

impl Heap {
    fn files(self) -> (&'static str, &'static str) {
        match self {
            Self::Vram => ("mem_info_vram_total", "mem_info_vram_used"),
            Self::Gtt => ("mem_info_gtt_total", "mem_info_gtt_used"),
        }
    }
}

fn memory(folder: &Path, heap: Heap) -> Result<DeviceMemory, NoFigures> {
    let (total, used) = heap.files();
    let (total, used) = (number(folder, total)?, number(folder, used)?);
    if used > total {
        return Err(NoFigures::Other(format!("{} of {} bytes are used", used.get(), total.get())));
    }
    DeviceMemory::new(total, total.saturating_sub(used))
}

fn kind(folder: &Path) -> DeviceKind {
    // The header: two bytes of size, one of format, one of revision.
    match fs::read(folder.join("gpu_metrics")).ok().and_then(|header| header.get(2).copied()) {
        Some(1) => DeviceKind::Card,
        Some(2 | 3) => DeviceKind::SharesRam,
        _ => match number(folder, Heap::Vram.files().0) {
            Ok(total) if total <= MOST_OLD_CARVE_OUT => DeviceKind::SharesRam,
            Ok(_) => DeviceKind::Card,
            Err(_) => DeviceKind::Unknown,
        },
    }
}

fn address(folder: &Path) -> Option<String> {
    let uevent = text(folder, "uevent")?;
    uevent.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME=")).map(str::to_ascii_lowercase)
}

fn text(folder: &Path, name: &str) -> Option<String> {
    fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned())
}

fn number(folder: &Path, name: &str) -> Result<Bytes, NoFigures> {
    let text = fs::read_to_string(folder.join(name)).map_err(|e| no_figures(name, &e))?;
    text.trim().parse().map(Bytes::new).map_err(|_| NoFigures::Other(format!("no number in {name}")))
}

fn no_figures(name: &str, e: &io::Error) -> NoFigures {
    let why = format!("{name}: {e}");
    match e.kind() {
        io::ErrorKind::PermissionDenied => NoFigures::NotPermitted(why),
        _ if e.raw_os_error().is_some_and(|code| GONE.iter().any(|gone| *gone as i32 == code)) => NoFigures::Lost(why),
        _ => NoFigures::Other(why),
    }
}

#[cfg(test)]
mod tests;
