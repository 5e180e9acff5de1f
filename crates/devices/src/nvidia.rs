//! NVIDIA devices, through the management library (NVML) of the driver, loaded at run time.
//!
//! Boundary: reads; sets nothing. Every call may block for as long as the driver likes (a sick card: for ever), so
//! [`Nvidia`] belongs on a [`Prober`](crate::Prober)'s thread.
//!
//! - No library is no NVIDIA device, and no error. It is looked for again at each reading.
//! - Each device's figures are a result of their own: one sick card hides no other.
//! - A card that is cut into instances (MIG) has no figures of its own. Its instances are devices like any other, but for
//!   the PCI address, which is the card's.
//! - A device once seen is in every later reading: when the driver enumerates it no more, it is asked for by UUID,
//!   and the answer is why it has no figures. After a loss the library is started anew, else a card that came back
//!   would stay lost.
use crate::{
    device::{DeviceKind, DeviceMemory, DeviceReading, DeviceSource, Identity, NoFigures},
    now,
};
use motorpool_vocab::{Bytes, DeviceId, Now};
use nvml_wrapper::{
    Device, Nvml, enums::device::UsedGpuMemory, error::NvmlError, struct_wrappers::device::ProcessInfo,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    path::PathBuf,
};

/// Words in names of devices that share the system's memory, whatever their driver tells of it: Grace Blackwell's
/// small system and the Jetson family.
const SHARING: &[&str] = &["GB10", "Tegra", "Jetson", "Xavier", "Orin", "Thor"];

/// The devices of one driver over time.
#[derive(Debug)]
pub struct Nvidia {
    library: Option<PathBuf>,
    nvml: Option<Nvml>,
    known: BTreeMap<DeviceId, Identity>,
}

/// What the driver and its devices said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvidiaReading {
    /// The driver.
    pub driver: Driver,
    /// Every device seen so far, those enumerated now first, in the driver's order.
    pub devices: Vec<DeviceReading>,
    /// Devices that are enumerated but would not tell their UUID, by index.
    pub unnamed: Vec<(u32, NoFigures)>,
}

/// The driver, as its library tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// It answers.
    Loaded {
        /// Its version, such as `570.86.10`.
        version: Option<String>,
    },
    /// There is no library, or it cannot be loaded.
    NoLibrary {
        /// What the loader said.
        why: String,
    },
    /// The library is there and fails.
    Failed(NoFigures),
}

impl Nvidia {
    /// Nothing is loaded before the first reading. `library`: `libnvidia-ml.so.1` from where the loader finds it,
    /// unless another is named.
    pub fn new(library: Option<PathBuf>) -> Self {
        Self { library, nvml: None, known: BTreeMap::new() }
    }

    /// Asks the driver for everything. Blocks for as long as it takes.
    pub fn observe(&mut self) -> NvidiaReading {
        let begun = now();
        let nvml = match self.nvml.take().map_or_else(|| self.load(), Ok) {
            Ok(nvml) => nvml,
            Err(NvmlError::LibloadingError(e)) => {
                let why = NoFigures::Other("the driver's library is gone".to_owned());
                return self.without_driver(begun, Driver::NoLibrary { why: e.to_string() }, &why);
            }
            Err(e) => return self.failed(begun, &e),
        };
        match nvml.device_count() {
            Ok(n_devices) => {
                let reading = self.observe_devices(&nvml, n_devices);
                let is_lost = |device: &DeviceReading| matches!(device.memory, Err(NoFigures::Lost(_)));
                if reading.unnamed.is_empty() && !reading.devices.iter().any(is_lost) {
                    self.nvml = Some(nvml);
                }
                reading
            }
            Err(e) => self.failed(begun, &e),
        }
    }

    fn load(&self) -> Result<Nvml, NvmlError> {
        match self.library.as_deref().map(OsStr::new) {
            Some(path) => Nvml::builder().lib_path(path).init(),
            None => Nvml::init(),
        }
    }

    fn failed(&self, taken_at: Now, e: &NvmlError) -> NvidiaReading {
        let why = no_figures(e);
        self.without_driver(taken_at, Driver::Failed(why.clone()), &why)
    }

    fn without_driver(&self, taken_at: Now, driver: Driver, why: &NoFigures) -> NvidiaReading {
        let blank =
            |(id, identity): (&DeviceId, &Identity)| identity.without_figures(id.clone(), taken_at, why.clone());
        NvidiaReading { driver, devices: self.known.iter().map(blank).collect(), unnamed: Vec::new() }
    }

    fn observe_devices(&mut self, nvml: &Nvml, n_devices: u32) -> NvidiaReading {
        let (mut devices, mut unnamed) = (Vec::new(), Vec::new());
        for index in 0..n_devices {
            let named = nvml.device_by_index(index).and_then(|device| Ok((DeviceId(device.uuid()?.into()), device)));
            match named {
                Ok((id, device)) => {
                    devices.push(self.observe_device(id, &device, Some(index)));
                    devices.extend(self.observe_instances(&device));
                }
                Err(e) => unnamed.push((index, no_figures(&e))),
            }
        }
        let seen: BTreeSet<&DeviceId> = devices.iter().map(|device| &device.id).collect();
        let missing: Vec<DeviceId> = self.known.keys().filter(|id| !seen.contains(id)).cloned().collect();
        for id in missing {
            devices.push(self.observe_missing(nvml, id));
        }
        let driver = Driver::Loaded { version: nvml.sys_driver_version().ok() };
        NvidiaReading { driver, devices, unnamed }
    }

    /// One that does not tell its UUID cannot be given to an engine, and is as if it were not there.
    fn observe_instances(&mut self, card: &Device<'_>) -> Vec<DeviceReading> {
        if !is_partitioned(card) {
            return Vec::new();
        }
        // Places without an instance answer that nothing was found there.
        let places = 0..card.mig_device_count().unwrap_or(0);
        let instances = places.filter_map(|place| card.mig_device_by_index(place).ok());
        let named = instances.filter_map(|instance| Some((DeviceId(instance.uuid().ok()?.into()), instance)));
        named.map(|(id, instance)| self.observe_device(id, &instance, None)).collect()
    }

    fn observe_missing(&mut self, nvml: &Nvml, id: DeviceId) -> DeviceReading {
        let taken_at = now();
        match nvml.device_by_uuid(&*id.0) {
            Ok(device) => self.observe_device(id, &device, None),
            Err(e) => self.known[&id].without_figures(id, taken_at, no_figures(&e)),
        }
    }

    fn observe_device(&mut self, id: DeviceId, device: &Device<'_>, index: Option<u32>) -> DeviceReading {
        let taken_at = now();
        let memory = if id.is_instance() { memory_of_instance(device) } else { memory_of(device) };
        let before = self.known.get(&id);
        let name = device.name().ok().or_else(|| before.map(|identity| identity.name.clone())).unwrap_or_default();
        let pci = device.pci_info().ok().filter(|_| !id.is_instance()).map(|pci| pci_address(&pci.bus_id));
        let pci = pci.or_else(|| before.and_then(|identity| identity.pci.clone()));
        let of_instance = id.is_instance().then_some(DeviceKind::Instance);
        let kind = of_instance
            .or_else(|| kind_of(&name, &memory))
            .or(before.map(|identity| identity.kind))
            .unwrap_or(DeviceKind::Unknown);
        let visible_as = Some(id.0.to_string());
        let identity = Identity { source: DeviceSource::Nvml, name, pci, visible_as, kind };
        let by_process = processes_of(device);
        self.known.insert(id.clone(), identity.clone());
        DeviceReading { index, memory, by_process, ..identity.without_figures(id, taken_at, NoFigures::SharesRam) }
    }
}

fn memory_of(device: &Device<'_>) -> Result<DeviceMemory, NoFigures> {
    if is_partitioned(device) {
        return Err(NoFigures::Partitioned);
    }
    match device.memory_info() {
        Ok(memory) => DeviceMemory::new(Bytes::new(memory.total), Bytes::new(memory.free)),
        Err(NvmlError::NotSupported) => Err(NoFigures::SharesRam),
        Err(e) => Err(no_figures(&e)),
    }
}

/// An instance that does not tell its memory has some all the same.
fn memory_of_instance(device: &Device<'_>) -> Result<DeviceMemory, NoFigures> {
    let memory = device.memory_info().map_err(|e| no_figures(&e))?;
    DeviceMemory::new(Bytes::new(memory.total), Bytes::new(memory.free))
}

/// Most devices know no such mode and say so with an error.
fn is_partitioned(device: &Device<'_>) -> bool {
    device.mig_mode().is_ok_and(|mode| mode.current != 0)
}

/// `None`: this reading does not tell.
fn kind_of(name: &str, memory: &Result<DeviceMemory, NoFigures>) -> Option<DeviceKind> {
    let shares = name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| SHARING.contains(&word));
    match memory {
        Err(NoFigures::SharesRam) => Some(DeviceKind::SharesRam),
        _ if shares => Some(DeviceKind::SharesRam),
        Err(NoFigures::Partitioned) => Some(DeviceKind::Partitioned),
        Ok(_) => Some(DeviceKind::Card),
        Err(_) => None,
    }
}

/// A process may compute and draw at once; the driver then shows the same bytes in both lists, so the larger counts.
fn processes_of(device: &Device<'_>) -> Option<BTreeMap<u32, Bytes>> {
    let compute = retried(|| device.running_compute_processes()).ok()?;
    let graphics = match retried(|| device.running_graphics_processes()) {
        Err(NvmlError::NotSupported) => Vec::new(),
        other => other.ok()?,
    };
    by_process(compute.iter().chain(&graphics))
}

/// The list is asked for its length first: many processes that start in between make it too long once.
fn retried<T>(ask: impl Fn() -> Result<T, NvmlError>) -> Result<T, NvmlError> {
    match ask() {
        Err(NvmlError::InsufficientSize(_)) => ask(),
        other => other,
    }
}

/// `None` when one process is shown without its bytes: a sum that lacks it would be too small.
fn by_process<'a>(shown: impl Iterator<Item = &'a ProcessInfo>) -> Option<BTreeMap<u32, Bytes>> {
    let mut found = BTreeMap::new();
    for process in shown {
        let UsedGpuMemory::Used(bytes) = process.used_gpu_memory else { return None };
        let entry = found.entry(process.pid).or_insert(Bytes::ZERO);
        *entry = Bytes::new(bytes).max(*entry);
    }
    Some(found)
}

/// NVML writes eight digits of domain, the kernel four.
fn pci_address(bus_id: &str) -> String {
    let lower = bus_id.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 && domain.starts_with("0000") => format!("{}:{rest}", &domain[4..]),
        _ => lower,
    }
}

fn no_figures(e: &NvmlError) -> NoFigures {
    let text = e.to_string();
    match e {
        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::NotFound => NoFigures::Lost(text),
        NvmlError::NoPermission | NvmlError::OperatingSystem => NoFigures::NotPermitted(text),
        _ => NoFigures::Other(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_address_is_written_as_the_kernel_writes_it() {
        assert_eq!(pci_address("00000000:0A:00.0"), "0000:0a:00.0");
        assert_eq!(pci_address("00010000:0A:00.0"), "00010000:0a:00.0");
        assert_eq!(pci_address("0000:01:00.0"), "0000:01:00.0");
        assert_eq!(pci_address("ééé:1"), "ééé:1");
    }

    #[test]
    fn a_device_known_to_share_is_no_card_whatever_it_tells() {
        let memory = DeviceMemory::new(Bytes::gib(64), Bytes::gib(60));
        assert_eq!(kind_of("NVIDIA GB10", &memory), Some(DeviceKind::SharesRam));
        assert_eq!(kind_of("Orin (nvgpu)", &memory), Some(DeviceKind::SharesRam));
        assert_eq!(kind_of("NVIDIA GeForce GB107", &memory), Some(DeviceKind::Card));
        assert_eq!(kind_of("NVIDIA A100", &Err(NoFigures::Lost(String::new()))), None);
    }
}
