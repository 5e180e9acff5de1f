//! The machine as the broker sees it, from what the operator says of it and what was read.
//!
//! | device | becomes |
//! | --- | --- |
//! | named in `[[device]]` | a card of the operator's size, whoever else tells of it, by any of its names; its id is that of the device, so that what is reserved there stays where it is when somebody names it |
//! | read, with memory of its own | a card of the size that was read |
//! | only listed by an engine, and smaller than system memory | a card of that size: nobody reads it, so its list is its operator's word |
//! | one that shares system memory | none: alone it makes the host unified, beside a card it is ignored |
//! | cut into instances (MIG: those are cards), or without figures | none, until its operator gives its size |
use motorpool_broker::{Evidence, Platform, Seen, decide_shape};
use motorpool_catalog::{Budget, Capacity, DescribedHost, Device, HostShape as Wanted, Spillover as Spill};
use motorpool_devices::{DeviceKind, DeviceSource, Gpu, ToldBy};
use motorpool_pool::{BudgetSetting, Card, Host, HostShape, OnCpuFallback, Policy, SizedBy, Spillover};
use motorpool_vocab::{Bytes, DeviceId};

/// System memory, and what else than the configuration says how much of it is ours.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// What may be used in all.
    pub(crate) ram: Bytes,
    /// What the environment says of the automatic budget.
    pub(crate) automatic: Option<Bytes>,
    pub(crate) platform: Platform,
    /// What the platform recommends as the most for graphics work.
    pub(crate) working_set: Option<Bytes>,
}

/// What this program was built for.
pub(crate) const PLATFORM: Platform = if cfg!(target_os = "macos") { Platform::Apple } else { Platform::Other };

/// The host with this memory and the `gpus` that engines can use.
pub(crate) fn of(capacity: &Capacity, devices: &[Device], memory: Memory, gpus: &[Gpu]) -> Host {
    let Memory { ram, automatic, platform, working_set } = memory;
    let shape = shape((capacity.shape, devices), memory, gpus);
    let found = gpus.iter().filter(|gpu| !devices.iter().any(|device| gpu.is_called(&device.id)));
    // Graphics parts there have no memory of their own, whatever an engine lists.
    let found = found.filter(|gpu| platform != Platform::Apple && !seen(gpu).shares(ram)).filter_map(found_card);
    Host {
        shape,
        ram,
        ram_reserve: capacity.reserve,
        working_set,
        cards: named_cards(devices, gpus).chain(found).collect(),
        budget: BudgetSetting {
            explicit: match capacity.budget {
                Budget::Bytes(bytes) => Some(bytes),
                Budget::Auto => None,
            },
            automatic,
        },
        spillover: match capacity.allow_ram_spillover {
            Spill::Auto => Spillover::Auto,
            Spill::On => Spillover::On,
            Spill::Off => Spillover::Off,
        },
    }
}

/// A machine that is described; nothing of this one counts.
pub(crate) fn described(host: &DescribedHost) -> Host {
    of(&host.capacity, &host.devices, Memory { ram: host.host.ram, ..Memory::default() }, &[])
}

pub(crate) fn policy(wanted: motorpool_catalog::Policy) -> Policy {
    match wanted {
        motorpool_catalog::Policy::DemandLru => Policy::DemandLru,
        motorpool_catalog::Policy::Lru => Policy::Lru,
        motorpool_catalog::Policy::Gdsf => Policy::Gdsf,
    }
}

pub(crate) fn on_cpu_fallback(wanted: motorpool_catalog::OnCpuFallback) -> OnCpuFallback {
    match wanted {
        motorpool_catalog::OnCpuFallback::Fail => OnCpuFallback::Fail,
        motorpool_catalog::OnCpuFallback::Warn => OnCpuFallback::Warn,
    }
}

/// A device whose size the operator gives is a card of its own, unless the operator says otherwise.
fn shape((wanted, devices): (Wanted, &[Device]), memory: Memory, gpus: &[Gpu]) -> HostShape {
    let Memory { ram, platform, .. } = memory;
    let setting = match wanted {
        Wanted::Auto if devices.is_empty() => None,
        Wanted::Auto | Wanted::DiscreteGpu => Some(HostShape::DiscreteGpu),
        Wanted::Unified => Some(HostShape::Unified),
        Wanted::SystemRam => Some(HostShape::SystemRam),
    };
    // One that tells no size takes nothing and proves nothing.
    let counted = gpus.iter().filter(|gpu| seen(gpu).shares(ram) || found_card(gpu).is_some());
    decide_shape(&Evidence { setting, platform, ram, devices: counted.map(seen).collect() })
}

fn seen(gpu: &Gpu) -> Seen {
    match gpu.told_by {
        ToldBy::Driver(DeviceSource::Nvml, DeviceKind::SharesRam) => Seen::KnownToShare,
        ToldBy::Driver(DeviceSource::Nvml, _) => Seen::Nvml,
        ToldBy::Driver(DeviceSource::Amdgpu, DeviceKind::SharesRam) => Seen::AmdApu,
        ToldBy::Driver(DeviceSource::Amdgpu, _) => Seen::AmdCard,
        ToldBy::Engine => Seen::Listed(gpu.total),
    }
}

fn named_cards(devices: &[Device], gpus: &[Gpu]) -> impl Iterator<Item = Card> {
    let named = |device: &Device| {
        let gpu = gpu_called(&device.id, gpus);
        let id = gpu.map_or(&device.id, |gpu| &gpu.id).clone();
        let names = gpu.map(names_of).unwrap_or_default();
        Card { id, names, total: device.total, reserve: device.reserve, sized: SizedBy::Operator }
    };
    let twice = named_twice(devices, gpus);
    devices.iter().filter(move |device| !twice.iter().any(|(again, _)| *again == device.id)).map(named)
}

/// Those that name a card once more, each with the one before that does: that one counts.
pub(crate) fn named_twice(devices: &[Device], gpus: &[Gpu]) -> Vec<(DeviceId, DeviceId)> {
    let id = |device: &Device| gpu_called(&device.id, gpus).map_or(&device.id, |gpu| &gpu.id).clone();
    let again = |(at, device): (usize, &Device)| {
        let first = devices[..at].iter().find(|before| id(before) == id(device))?;
        Some((device.id.clone(), first.id.clone()))
    };
    devices.iter().enumerate().filter_map(again).collect()
}

/// The device of this id, else the only one that is called so: the instances of a card that is cut up have one address.
fn gpu_called<'a>(name: &DeviceId, gpus: &'a [Gpu]) -> Option<&'a Gpu> {
    let mut called = gpus.iter().filter(|gpu| gpu.is_called(name));
    let exact = gpus.iter().find(|gpu| gpu.id == *name);
    exact.or_else(|| called.next().filter(|_| called.next().is_none()))
}

fn names_of(gpu: &Gpu) -> Vec<DeviceId> {
    gpu.names().map(|name| DeviceId(name.into())).collect()
}

/// Cards that were known `before` keep the ids they had: what is reserved there is reserved under those. A name of several
/// is nobody's.
pub(crate) fn keep_ids(host: &mut Host, before: &[DeviceId]) {
    let is = |name: &DeviceId, other: &DeviceId| name.0.eq_ignore_ascii_case(&other.0);
    for known in before {
        let of_it = |card: &Card| is(&card.id, known) || card.names.iter().any(|name| is(name, known));
        let mut named = host.cards.iter_mut().filter(|card| of_it(card));
        if let (Some(card), None) = (named.next(), named.next())
            && !before.contains(&card.id)
        {
            card.names.retain(|name| !is(name, known));
            card.names.push(std::mem::replace(&mut card.id, known.clone()));
        }
    }
}

fn found_card(gpu: &Gpu) -> Option<Card> {
    let sized = match gpu.told_by {
        ToldBy::Driver(_, DeviceKind::Partitioned | DeviceKind::SharesRam) => return None,
        ToldBy::Driver(..) => SizedBy::Machine,
        ToldBy::Engine => SizedBy::Operator,
    };
    Some(Card { id: gpu.id.clone(), names: names_of(gpu), total: gpu.total?, reserve: Bytes::ZERO, sized })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAM: Memory = Memory { ram: Bytes::gib(64), automatic: None, platform: Platform::Other, working_set: None };

    fn device(id: &str, gib: u64) -> Device {
        Device { id: DeviceId(id.into()), total: Bytes::gib(gib), reserve: Bytes::gib(1) }
    }

    fn gpu(id: &str, told_by: ToldBy, gib: Option<u64>) -> Gpu {
        Gpu {
            id: DeviceId(id.into()),
            name: "a card".into(),
            pci: None,
            told_by,
            total: gib.map(Bytes::gib),
            visible: None,
            listed_as: vec![format!("CUDA{}", id.len())],
        }
    }

    const fn nvml(kind: DeviceKind) -> ToldBy {
        ToldBy::Driver(DeviceSource::Nvml, kind)
    }

    fn found(devices: &[Device], gpus: &[Gpu]) -> (HostShape, Vec<(String, u64, SizedBy)>) {
        let host = of(&Capacity::default(), devices, RAM, gpus);
        let card = |card: Card| (card.id.to_string(), card.total.get() >> 30, card.sized);
        (host.shape, host.cards.into_iter().map(card).collect())
    }

    #[test]
    fn an_explicit_budget_wins_over_the_environments() {
        let nine = Memory { automatic: Some(Bytes::gib(9)), ..RAM };
        let auto = of(&Capacity::default(), &[], nine, &[]);
        assert_eq!(auto.bounds().budget.bound(), Some(Bytes::gib(9)));
        let capacity = Capacity { budget: Budget::Bytes(Bytes::gib(3)), ..Capacity::default() };
        let bound = of(&capacity, &[], nine, &[]).bounds().budget.bound();
        assert_eq!(bound, Some(Bytes::gib(3)));
        let unlimited = Capacity { budget: Budget::Bytes(Bytes::ZERO), ..Capacity::default() };
        assert_eq!(of(&unlimited, &[], RAM, &[]).bounds().budget.bound(), None);
    }

    #[test]
    fn on_apples_machines_all_memory_is_one_within_what_the_platform_recommends() {
        let mac = Memory { platform: Platform::Apple, working_set: Some(Bytes::gib(40)), ..RAM };
        let host = of(&Capacity::default(), &[], mac, &[gpu("Metal", ToldBy::Engine, Some(40))]);
        assert_eq!(
            (host.shape, host.cards.len()),
            (HostShape::Unified, 0),
            "two thirds of it would be a card elsewhere"
        );
        assert_eq!(host.bounds().budget.bound(), Some(Bytes::gib(40)));
    }

    #[test]
    fn devices_make_a_discrete_host_unless_its_operator_says_otherwise() {
        assert_eq!(found(&[], &[]).0, HostShape::SystemRam);
        let discrete = of(&Capacity::default(), &[device("GPU-1", 24)], RAM, &[]);
        assert_eq!((discrete.shape, discrete.cards.len()), (HostShape::DiscreteGpu, 1));
        assert_eq!(discrete.cards[0].reserve, Bytes::gib(1));
        let unified = Capacity { shape: Wanted::Unified, ..Capacity::default() };
        assert_eq!(of(&unified, &[device("GPU-1", 24)], RAM, &[]).shape, HostShape::Unified);
    }

    #[test]
    fn what_is_read_is_a_card_of_its_own_and_what_only_an_engine_lists_is_one_too() {
        let cards = [gpu("GPU-a", nvml(DeviceKind::Card), Some(139)), gpu("Vulkan1", ToldBy::Engine, Some(16))];
        let expected = vec![("GPU-a".into(), 139, SizedBy::Machine), ("Vulkan1".into(), 16, SizedBy::Operator)];
        assert_eq!(found(&[], &cards), (HostShape::DiscreteGpu, expected));
    }

    #[test]
    fn the_operators_word_takes_the_place_of_a_reading_by_any_name_and_adds_to_the_others() {
        let cards = [gpu("GPU-a", nvml(DeviceKind::Card), Some(24)), gpu("GPU-bb", nvml(DeviceKind::Card), Some(24))];
        let devices = [device("CUDA5", 20), device("mine", 8)];
        let (shape, cards) = found(&devices, &cards);
        let expected =
            [("GPU-a", 20, SizedBy::Operator), ("mine", 8, SizedBy::Operator), ("GPU-bb", 24, SizedBy::Machine)];
        assert_eq!(shape, HostShape::DiscreteGpu);
        assert_eq!(cards, expected.map(|(id, gib, sized)| (id.to_owned(), gib, sized)));
    }

    #[test]
    fn a_card_that_is_named_twice_is_there_once_as_it_was_named_first() {
        let cards = [gpu("GPU-a", nvml(DeviceKind::Card), Some(24))];
        let devices = [device("CUDA5", 20), device("GPU-a", 8)];
        assert_eq!(found(&devices, &cards).1, [("GPU-a".to_owned(), 20, SizedBy::Operator)]);
        let id = |text: &str| DeviceId(text.into());
        assert_eq!(named_twice(&devices, &cards), [(id("GPU-a"), id("CUDA5"))]);
    }

    #[test]
    fn the_address_of_instances_names_none_of_them() {
        let instance =
            |id: &str| Gpu { pci: Some("0000:01:00.0".into()), ..gpu(id, nvml(DeviceKind::Instance), Some(10)) };
        let cards = [instance("MIG-1"), instance("MIG-22")];
        assert_eq!(found(&[device("0000:01:00.0", 20)], &cards).1[0].0, "0000:01:00.0");
        assert_eq!(found(&[device("MIG-22", 9)], &cards).1[0], ("MIG-22".to_owned(), 9, SizedBy::Operator));
        let mut parted = of(&Capacity::default(), &[], RAM, &cards);
        keep_ids(&mut parted, &[DeviceId("0000:01:00.0".into())]);
        let ids: Vec<_> = parted.cards.iter().map(|card| &*card.id.0).collect();
        assert_eq!(ids, ["MIG-1", "MIG-22"], "two cards of one id could not be told apart");
    }

    #[test]
    fn a_card_keeps_the_id_under_which_something_may_be_reserved_on_it() {
        let card = gpu("GPU-a", nvml(DeviceKind::Card), Some(24));
        let mut late = of(&Capacity::default(), &[device("CUDA5", 20)], RAM, std::slice::from_ref(&card));
        keep_ids(&mut late, &[DeviceId("CUDA5".into())]);
        assert_eq!((&*late.cards[0].id.0, &late.cards[0].names[..]), ("CUDA5", &[DeviceId("GPU-a".into())][..]));
        let mut same = of(&Capacity::default(), &[device("CUDA5", 20)], RAM, &[card]);
        keep_ids(&mut same, &[DeviceId("GPU-a".into()), DeviceId("CUDA5".into())]);
        assert_eq!(&*same.cards[0].id.0, "GPU-a");
        keep_ids(&mut late, &[DeviceId("gpu-A".into())]);
        assert_eq!(&*late.cards[0].id.0, "gpu-A", "names are compared as people write them");
    }

    #[test]
    fn what_is_integrated_is_ignored_beside_a_card_and_unified_alone() {
        let apu = gpu("0000:0a:00.0", ToldBy::Driver(DeviceSource::Amdgpu, DeviceKind::SharesRam), Some(2));
        let small = gpu("GPU-s", nvml(DeviceKind::SharesRam), None);
        let listed = gpu("Vulkan0", ToldBy::Engine, Some(60));
        let all = [apu, small, listed];
        assert_eq!(found(&[], &all), (HostShape::Unified, vec![]));
        let beside = [&all[..], &[gpu("GPU-a", nvml(DeviceKind::Card), Some(24))]].concat();
        let expected = vec![("GPU-a".to_owned(), 24, SizedBy::Machine)];
        assert_eq!(found(&[], &beside), (HostShape::DiscreteGpu, expected));
    }

    #[test]
    fn what_tells_no_size_is_no_card_until_its_operator_gives_one() {
        let silent = [
            gpu("GPU-u", nvml(DeviceKind::Unknown), None),
            gpu("GPU-m", nvml(DeviceKind::Partitioned), Some(80)),
            gpu("Vulkan0", ToldBy::Engine, None),
        ];
        assert_eq!(found(&[], &silent), (HostShape::SystemRam, vec![]));
        let named = found(&[device("GPU-u", 24)], &silent);
        assert_eq!(named, (HostShape::DiscreteGpu, vec![("GPU-u".into(), 24, SizedBy::Operator)]));
    }
}
