//! The machine as the broker sees it, from what the operator says of it and what was read.
//!
//! Graphics devices are what `[[device]]` names: none is looked for yet. Without any, everything is system memory.
use motorpool_catalog::{Budget, Capacity, DescribedHost, Device, HostShape as Wanted, Spillover as Spill};
use motorpool_pool::{BudgetSetting, Card, Host, HostShape, OnCpuFallback, Policy, SizedBy, Spillover};
use motorpool_vocab::Bytes;

/// The host with `ram` of usable system memory; `automatic` is what the environment says of the automatic budget.
pub(crate) fn of(capacity: &Capacity, devices: &[Device], ram: Bytes, automatic: Option<Bytes>) -> Host {
    Host {
        shape: shape(capacity.shape, devices),
        ram,
        ram_reserve: capacity.reserve,
        working_set: None,
        cards: devices.iter().map(card).collect(),
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
    of(&host.capacity, &host.devices, host.host.ram, None)
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
fn shape(wanted: Wanted, devices: &[Device]) -> HostShape {
    match wanted {
        Wanted::Auto if devices.is_empty() => HostShape::SystemRam,
        Wanted::Auto | Wanted::DiscreteGpu => HostShape::DiscreteGpu,
        Wanted::Unified => HostShape::Unified,
        Wanted::SystemRam => HostShape::SystemRam,
    }
}

fn card(device: &Device) -> Card {
    Card { id: device.id.clone(), total: device.total, reserve: device.reserve, sized: SizedBy::Operator }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_vocab::DeviceId;

    fn device(gib: u64) -> Device {
        Device { id: DeviceId("GPU-1".into()), total: Bytes::gib(gib), reserve: Bytes::gib(1) }
    }

    #[test]
    fn an_explicit_budget_wins_over_the_environments() {
        let ram = Bytes::gib(64);
        let auto = of(&Capacity::default(), &[], ram, Some(Bytes::gib(9)));
        assert_eq!(auto.bounds().budget.bound(), Some(Bytes::gib(9)));
        let capacity = Capacity { budget: Budget::Bytes(Bytes::gib(3)), ..Capacity::default() };
        assert_eq!(of(&capacity, &[], ram, Some(Bytes::gib(9))).bounds().budget.bound(), Some(Bytes::gib(3)));
        let none = Capacity { budget: Budget::Bytes(Bytes::ZERO), ..Capacity::default() };
        assert_eq!(of(&none, &[], ram, None).bounds().budget.bound(), None);
    }

    #[test]
    fn devices_make_a_discrete_host_unless_its_operator_says_otherwise() {
        let ram = Bytes::gib(64);
        assert_eq!(of(&Capacity::default(), &[], ram, None).shape, HostShape::SystemRam);
        let discrete = of(&Capacity::default(), &[device(24)], ram, None);
        assert_eq!((discrete.shape, discrete.cards.len()), (HostShape::DiscreteGpu, 1));
        assert_eq!(discrete.cards[0].reserve, Bytes::gib(1));
        let unified = Capacity { shape: Wanted::Unified, ..Capacity::default() };
        assert_eq!(of(&unified, &[device(24)], ram, None).shape, HostShape::Unified);
    }
}
