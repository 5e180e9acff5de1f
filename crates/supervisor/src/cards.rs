//! [`Cards`]: from what drivers say of devices and processes to what the pool is told of its cards.
//!
//! Drivers number processes as the kernel does outside of every container, and name devices by themselves. A card of
//! the pool is looked for by any of its device's names, a process by the trees of our engines.
//!
//! Whose numbers the driver's are is found by evidence ([`PidSpace`]): a process of ours is shown, or an engine says
//! that it holds memory on this driver's devices, all of them tell whose theirs is, and no process of ours is shown.
//! What an engine holds on devices of another driver proves nothing about this one. Until there is evidence, figures by
//! process are passed on only where they can mislead nobody: no engine of ours may hold memory there, or every process
//! that is shown is one of this machine as we see it.
use crate::drivers::Sighted;
use motorpool_devices::{DeviceReading, DeviceSource, Gpu, Graphics, NoFigures, PidSpace, ToldBy, tenants};
use motorpool_pool::{CardFigures, CardSight, Host, HostShape, Tenant};
use motorpool_vocab::{Bytes, DeviceId, Spawn};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// So many processes that are not ours are named.
const MOST_TENANTS: usize = 8;

/// The cards of the pool, and what was found out about their drivers.
#[derive(Debug, Default)]
pub(crate) struct Cards {
    ids: Vec<DeviceId>,
    graphics: Graphics,
    shape: HostShape,
    /// Of NVIDIA's driver. AMD's figures are read from our own `/proc`.
    space: PidSpace,
}

/// The tree of one engine, as far as cards are concerned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ours {
    pub(crate) pids: Vec<u32>,
    /// What it says that it holds on graphics devices; `None`: it has not said, and may hold anything.
    pub(crate) held: Option<Held>,
}

/// Bytes by the engine's name of the device (`CUDA0`).
pub(crate) type Held = BTreeMap<String, Bytes>;

/// Whether a device is one of NVIDIA's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfNvidia {
    Yes,
    /// Its name does not tell, and there are others.
    Perhaps,
    No,
}

/// Every process here, by id, with its name.
pub(crate) type Names = BTreeMap<u32, Called>;

/// What a process is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Called {
    pub(crate) name: String,
    /// Under whose id it is counted: what one program holds in many processes is one figure.
    pub(crate) counted_as: u32,
}

impl Cards {
    pub(crate) fn new(host: &Host, graphics: Graphics) -> Self {
        let ids = host.cards.iter().map(|card| card.id.clone()).collect();
        Self { ids, graphics, shape: host.shape, space: PidSpace::default() }
    }

    /// The cards of another host; whose numbers the driver's are is no other than before.
    pub(crate) fn of(&self, host: &Host, graphics: Graphics) -> Self {
        Self { space: self.space, ..Self::new(host, graphics) }
    }

    /// Whether there are devices and the host counts none of them.
    pub(crate) fn is_without(&self) -> bool {
        self.shape == HostShape::SystemRam && !self.graphics.gpus(None).is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether drivers tell of a device that was not known when the cards were chosen.
    pub(crate) fn lacks(&self, sighted: &Sighted) -> bool {
        self.graphics.lacks(&sighted.devices())
    }

    /// The devices as `program` names them.
    pub(crate) fn gpus_for(&self, program: &Path) -> Vec<Gpu> {
        self.graphics.gpus_for(program)
    }

    /// What was seen of every card. A card of which nobody tells anything is missing.
    pub(crate) fn sights(
        &mut self,
        sighted: &Sighted,
        (ours, names): (&BTreeMap<Spawn, Ours>, &Names),
    ) -> BTreeMap<DeviceId, CardSight> {
        let devices = sighted.devices();
        self.learn_space(&devices, ours);
        let sight = |id: &DeviceId| {
            let reading = self.reading_of(id, &devices);
            let shown = reading.and_then(|reading| self.by_process(reading, (ours, names)));
            (id.clone(), sight(reading, shown, (ours, names)))
        };
        self.ids.iter().map(sight).collect()
    }

    /// What was said of the card that is called so.
    pub(crate) fn reading_of<'a>(&self, id: &DeviceId, devices: &'a [DeviceReading]) -> Option<&'a DeviceReading> {
        let gpus = self.graphics.gpus(None);
        let gpu = gpus.iter().find(|gpu| gpu.is_called(id))?;
        devices.iter().find(|reading| reading.id == gpu.id)
    }

    /// Whose device an engine calls `place`.
    fn of_nvidia(&self, place: &str) -> OfNvidia {
        if place.starts_with("CUDA") {
            return OfNvidia::Yes;
        }
        if place.starts_with("ROCm") || place.starts_with("HIP") {
            return OfNvidia::No;
        }
        let gpus = self.graphics.gpus(None);
        let is_one = |gpu: &Gpu| matches!(gpu.told_by, ToldBy::Driver(DeviceSource::Nvml, _));
        match gpus.iter().filter(|gpu| is_one(gpu)).count() {
            0 => OfNvidia::No,
            n if n == gpus.len() => OfNvidia::Yes,
            _ => OfNvidia::Perhaps,
        }
    }

    /// Bytes by process of one device, where those can be told apart by our ids.
    fn by_process<'a>(
        &self,
        reading: &'a DeviceReading,
        (ours, names): (&BTreeMap<Spawn, Ours>, &Names),
    ) -> Option<&'a BTreeMap<u32, Bytes>> {
        let shown = reading.by_process.as_ref()?;
        let may_hold =
            |held: &Held| held.iter().any(|(place, bytes)| !bytes.is_zero() && self.of_nvidia(place) != OfNvidia::No);
        let tells = match self.space {
            _ if reading.source != DeviceSource::Nvml => true,
            PidSpace::Ours => true,
            PidSpace::Foreign => false,
            PidSpace::Unknown => {
                !ours.values().any(|tree| tree.held.as_ref().is_none_or(may_hold))
                    || (!shown.is_empty() && shown.keys().all(|pid| names.contains_key(pid)))
            }
        };
        tells.then_some(shown)
    }

    fn learn_space(&mut self, devices: &[DeviceReading], ours: &BTreeMap<Spawn, Ours>) {
        let devices = devices.iter().filter(|device| device.source == DeviceSource::Nvml);
        let told: Vec<Option<&BTreeMap<u32, Bytes>>> = devices.map(|device| device.by_process.as_ref()).collect();
        if told.iter().all(Option::is_none) {
            return;
        }
        let all = told.iter().flatten().flat_map(|shown| shown.iter()).map(|(pid, bytes)| (*pid, *bytes)).collect();
        let pids = ours.values().flat_map(|tree| tree.pids.iter().copied()).collect();
        // It may hold all of it on the one device that does not tell.
        let held = ours.values().filter(|_| told.iter().all(Option::is_some)).filter_map(|tree| tree.held.as_ref());
        let held = held.flatten().filter(|(place, _)| self.of_nvidia(place) == OfNvidia::Yes).map(|(_, bytes)| *bytes);
        let after = self.space.after(&all, &pids, Bytes::sum(held));
        if after == PidSpace::Foreign && self.space != after {
            tracing::warn!(
                "the graphics driver shows processes by ids that are not ours, such as those of a container's host: \
                 what engines hold on cards is taken from their reservations; run with the host's process ids to have it measured"
            );
        }
        self.space = after;
    }
}

fn sight(
    reading: Option<&DeviceReading>,
    shown: Option<&BTreeMap<u32, Bytes>>,
    (ours, names): (&BTreeMap<Spawn, Ours>, &Names),
) -> CardSight {
    let Some(reading) = reading else { return CardSight::Missing };
    let memory = match &reading.memory {
        Ok(memory) => memory,
        Err(NoFigures::Lost(_)) => return CardSight::Lost,
        Err(_) => return CardSight::Missing,
    };
    let of = |tree: &Ours| Bytes::sum(tree.pids.iter().filter_map(|pid| shown?.get(pid).copied()));
    let by_spawn = shown.map(|_| {
        let holds = ours.iter().map(|(spawn, tree)| (*spawn, of(tree)));
        holds.filter(|(_, bytes)| !bytes.is_zero()).collect()
    });
    let pids: BTreeSet<u32> = ours.values().flat_map(|tree| tree.pids.iter().copied()).collect();
    let tenants = shown.map(|shown| together(tenants(shown, &pids), names)).unwrap_or_default();
    let tenant = |(pid, bytes)| Tenant { pid, name: names.get(&pid).map(|called| called.name.clone()), bytes };
    CardSight::Seen(CardFigures {
        total: memory.total,
        free: memory.free,
        by_spawn,
        tenants: tenants.into_iter().take(MOST_TENANTS).map(tenant).collect(),
    })
}

/// What the processes of one program hold together, the largest first.
fn together(tenants: Vec<(u32, Bytes)>, names: &Names) -> Vec<(u32, Bytes)> {
    let mut sums = BTreeMap::<u32, Bytes>::new();
    for (pid, bytes) in tenants {
        let sum = sums.entry(names.get(&pid).map_or(pid, |called| called.counted_as)).or_default();
        *sum = sum.saturating_add(bytes);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
    sums
}

#[cfg(test)]
pub(crate) mod tests;
