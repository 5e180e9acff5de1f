//! [`Graphics`]: every graphics device of this machine, each once, whoever tells of it.
//!
//! ```text
//! drivers: DeviceReading ──┐
//!                          ├─► join ─► Gpu: one id, all its names
//! engines: EngineDevice ───┘
//! ```
//!
//! One device is known to its driver, and to each backend of each engine (`CUDA0` and `Vulkan0` may be the same card).
//! They are joined by the PCI address, else by the name, in [`join`] and nowhere else. Cards of one name are told
//! apart by their order: with `CUDA_DEVICE_ORDER=PCI_BUS_ID`, under which engines run, a list follows the addresses.
//! (Vulkan promises no order: there, cards of one name and without addresses may change places.)
//!
//! Boundary: values in, values out. What only an engine lists has the engine's name as its id.
use crate::{DeviceKind, DeviceReading, DeviceSource, EngineDevice};
use motorpool_vocab::{Bytes, DeviceId};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// What drivers and engines told.
#[derive(Clone, Debug, Default)]
pub struct Graphics {
    readings: Vec<DeviceReading>,
    lists: BTreeMap<PathBuf, Vec<EngineDevice>>,
}

/// One graphics device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// The GPU's UUID, its PCI address, or an engine's name for what no driver tells of.
    pub id: DeviceId,
    /// What the vendor calls it.
    pub name: String,
    /// Its address, when somebody tells it.
    pub pci: Option<String>,
    /// Who tells of it.
    pub told_by: ToldBy,
    /// All its memory, when somebody tells it.
    pub total: Option<Bytes>,
    /// How an engine is shown this device and no other, whatever the order.
    pub visible: Option<Visible>,
    /// What engines call it (`CUDA0`, `Vulkan1`) where they see all devices.
    pub listed_as: Vec<String>,
}

/// Who tells of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToldBy {
    /// A driver, which knows what kind it is.
    Driver(DeviceSource, DeviceKind),
    /// Only an engine.
    Engine,
}

/// A variable that names the devices that an engine sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visible {
    /// Its name.
    pub variable: &'static str,
    /// How engines name what they see by it: this and a number, in the variable's order.
    pub backend: &'static str,
    /// The device's name there.
    pub id: String,
}

impl Graphics {
    /// What was `read` of devices, and the list of each engine's program that was asked.
    pub fn new(readings: Vec<DeviceReading>, lists: BTreeMap<PathBuf, Vec<EngineDevice>>) -> Self {
        Self { readings, lists }
    }

    /// Every device that anybody told of. `cuda_visible`: the operator's own `CUDA_VISIBLE_DEVICES`, whose others are
    /// none of ours.
    pub fn gpus(&self, cuda_visible: Option<&str>) -> Vec<Gpu> {
        let listed: Vec<&EngineDevice> = self.lists.values().flatten().collect();
        restrict(join(&self.readings, &listed), cuda_visible)
    }

    /// The devices as one engine's program names them; without its list, as their vendor's backend does.
    pub fn gpus_for(&self, program: &Path) -> Vec<Gpu> {
        let listed: Vec<&EngineDevice> = self.lists.get(program).into_iter().flatten().collect();
        join(&self.readings, &listed)
    }

    /// Whether these hold figures of a device that was not known so far.
    pub fn lacks(&self, readings: &[DeviceReading]) -> bool {
        let known = |id: &DeviceId| self.readings.iter().any(|known| known.id == *id && known.memory.is_ok());
        readings.iter().any(|reading| reading.memory.is_ok() && !known(&reading.id))
    }
}

impl Gpu {
    /// Whether `id` is one of its names.
    pub fn is_called(&self, id: &DeviceId) -> bool {
        self.id.0.eq_ignore_ascii_case(&id.0) || self.names().any(|name| name.eq_ignore_ascii_case(&id.0))
    }

    /// What it is called besides its id.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let visible = self.visible.as_ref().map(|visible| visible.id.as_str());
        let names = self.pci.as_deref().into_iter().chain(visible).chain(self.listed_as.iter().map(String::as_str));
        names.filter(|name| **name != *self.id.0)
    }

    fn of_driver(reading: &DeviceReading) -> Self {
        let (variable, backend) = match reading.source {
            DeviceSource::Nvml => ("CUDA_VISIBLE_DEVICES", "CUDA"),
            DeviceSource::Amdgpu => ("ROCR_VISIBLE_DEVICES", "ROCm"),
        };
        Self {
            id: reading.id.clone(),
            name: reading.name.clone(),
            pci: reading.pci.clone(),
            told_by: ToldBy::Driver(reading.source, reading.kind),
            total: reading.memory.as_ref().ok().map(|memory| memory.total),
            visible: reading.visible_as.clone().map(|id| Visible { variable, backend, id }),
            listed_as: vec![],
        }
    }

    fn of_engine(device: &EngineDevice) -> Self {
        Self {
            id: DeviceId(device.name.as_str().into()),
            name: device.description.clone(),
            pci: device.pci.clone(),
            told_by: ToldBy::Engine,
            total: device.total,
            visible: None,
            listed_as: vec![device.name.clone()],
        }
    }

    /// Whether a device of this backend can be this one.
    fn can_be(&self, backend: &str) -> bool {
        match self.told_by {
            // It has the address of its instances, one of which is listed.
            ToldBy::Driver(_, DeviceKind::Partitioned) => false,
            ToldBy::Driver(DeviceSource::Nvml, _) => !matches!(backend, "ROCm" | "HIP"),
            ToldBy::Driver(DeviceSource::Amdgpu, _) => backend != "CUDA",
            ToldBy::Engine => true,
        }
    }
}

/// Every device once, by address where there is one: those of drivers, then those that only an engine lists.
pub(crate) fn join(readings: &[DeviceReading], listed: &[&EngineDevice]) -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = readings.iter().map(Gpu::of_driver).collect();
    gpus.sort_by(|a, b| (&a.pci, &a.id).cmp(&(&b.pci, &b.id)));
    let listed: Vec<&EngineDevice> = listed.iter().copied().filter(|device| is_here(device)).collect();
    let backends: BTreeSet<&str> = listed.iter().map(|device| backend_of(&device.name)).collect();
    for backend in backends {
        // One backend lists a device once: who has been found is not looked for again.
        let mut found: BTreeMap<usize, &str> = BTreeMap::new();
        let of_backend: Vec<_> = listed.iter().filter(|device| backend_of(&device.name) == backend).collect();
        for rule in [is_at, is_named, is_alone] {
            for device in &of_backend {
                if found.values().any(|name| *name == device.name) {
                    continue;
                }
                let may_be = |at: &usize| !found.contains_key(at) && gpus[*at].can_be(backend);
                let free: Vec<usize> = (0..gpus.len()).filter(may_be).collect();
                let n_left = of_backend.len() - found.len();
                let is_it = |at: &&usize| rule(&gpus[**at], device, (free.len(), n_left));
                if let Some(at) = free.iter().find(is_it) {
                    found.insert(*at, &device.name);
                }
            }
        }
        let found: Vec<(usize, String)> = found.into_iter().map(|(at, name)| (at, name.to_owned())).collect();
        // NVIDIA's driver tells of every device that CUDA computes on: what is left without an address is one of them, or
        // one that is lost, and would be counted twice.
        let all_told = backend == "CUDA" && readings.iter().any(|reading| reading.source == DeviceSource::Nvml);
        let is_another = |device: &EngineDevice| !all_told || device.pci.is_some();
        let is_new =
            |device: &&&&EngineDevice| is_another(device) && !found.iter().any(|(_, name)| *name == device.name);
        let new: Vec<Gpu> = of_backend.iter().filter(is_new).map(|device| Gpu::of_engine(device)).collect();
        for (at, name) in found {
            gpus[at].listed_as.push(name);
        }
        for gpu in new {
            // Two programs may list the same.
            if !gpus.iter().any(|known| known.id == gpu.id) {
                gpus.push(gpu);
            }
        }
    }
    gpus
}

/// Devices of other machines and those without memory are none of ours.
fn is_here(device: &EngineDevice) -> bool {
    !device.name.starts_with("RPC") && device.total.is_some_and(|total| !total.is_zero())
}

/// `CUDA0` → `CUDA`.
fn backend_of(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

fn is_at(gpu: &Gpu, device: &EngineDevice, _: (usize, usize)) -> bool {
    gpu.pci.is_some() && gpu.pci == device.pci
}

/// Where both tell an address and those differ, a name proves nothing. Drivers put a name of theirs behind: `(RADV …)`.
fn is_named(gpu: &Gpu, device: &EngineDevice, _: (usize, usize)) -> bool {
    let plain = |name: &str| name.split(" (").next().unwrap_or(name).trim().to_ascii_lowercase();
    let name = plain(&gpu.name);
    !name.is_empty() && name == plain(&device.description) && (gpu.pci.is_none() || device.pci.is_none())
}

/// One device left on either side, of one vendor's backend: sysfs has no name for many AMD cards.
fn is_alone(gpu: &Gpu, device: &EngineDevice, (n_free, n_left): (usize, usize)) -> bool {
    let of_vendor = gpu.visible.as_ref().is_some_and(|visible| visible.backend == backend_of(&device.name));
    (n_free, n_left) == (1, 1) && of_vendor && (gpu.pci.is_none() || device.pci.is_none())
}

/// Leaves out what the operator's `CUDA_VISIBLE_DEVICES` hides: UUIDs or their beginnings, or places in the order of
/// addresses, up to the first that is neither.
fn restrict(gpus: Vec<Gpu>, cuda_visible: Option<&str>) -> Vec<Gpu> {
    let Some(text) = cuda_visible else { return gpus };
    let is_cuda = |gpu: &Gpu| matches!(gpu.told_by, ToldBy::Driver(DeviceSource::Nvml, _));
    let cuda: Vec<DeviceId> = gpus.iter().filter(|gpu| is_cuda(gpu)).map(|gpu| gpu.id.clone()).collect();
    let named = |word: &str| match word.parse::<usize>() {
        Ok(place) => cuda.get(place),
        Err(_) if word.is_empty() => None,
        Err(_) => cuda.iter().find(|id| id.0.starts_with(word)),
    };
    let shown: Vec<&DeviceId> = text.split(',').map(str::trim).map_while(named).collect();
    let is_shown = |gpu: &Gpu| !is_cuda(gpu) || shown.contains(&&gpu.id);
    gpus.iter().filter(|gpu| is_shown(gpu)).cloned().collect()
}

#[cfg(test)]
mod tests;
