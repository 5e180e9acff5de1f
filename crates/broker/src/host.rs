//! [`Host`]: the machine as the operator and its readings describe it; [`decide_shape`]: what kind of machine it is.
//!
//! Boundary: values in, values out. Reading drivers and files is for `devices`; bounds follow in `bounds.rs`.
use crate::BudgetSetting;
use motorpool_vocab::{Bytes, DeviceId};

/// From this share of system memory on, a device that only an engine lists is taken to be that memory.
const SHARES_FROM: u64 = 750;

/// How processor and graphics devices share memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostShape {
    /// One memory for both.
    Unified,
    /// Cards with memory of their own.
    DiscreteGpu,
    /// No graphics device that counts.
    #[default]
    SystemRam,
}

impl HostShape {
    /// The stable name in configuration, the API and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unified => "unified",
            Self::DiscreteGpu => "discrete-gpu",
            Self::SystemRam => "system-ram",
        }
    }
}

/// Everything that [`decide_shape`] looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// What the operator says.
    pub setting: Option<HostShape>,
    /// What the program was built for.
    pub platform: Platform,
    /// Memory of the system that we may use.
    pub ram: Bytes,
    /// The graphics devices that anybody reported, each once.
    pub devices: Vec<Seen>,
}

/// The platform, as far as it decides anything here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Platform {
    /// Apple's: processor and graphics always share their memory.
    Apple,
    /// Any other.
    #[default]
    Other,
}

/// How a graphics device became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// NVML says how much memory it has, and it is none of those known to share.
    Nvml,
    /// A device known to share system memory, though its driver is NVIDIA's (GB10, Jetson, Tegra).
    KnownToShare,
    /// An AMD processor's graphics part.
    AmdApu,
    /// Any other AMD device.
    AmdCard,
    /// Only an engine lists it, with the memory it reports, when it does.
    Listed(Option<Bytes>),
}

impl Seen {
    /// Whether it uses system memory, of which there is `ram`.
    pub fn shares(self, ram: Bytes) -> bool {
        match self {
            Self::Nvml | Self::AmdCard | Self::Listed(None) => false,
            Self::KnownToShare | Self::AmdApu => true,
            Self::Listed(Some(memory)) => memory >= ram.per_mille(SHARES_FROM),
        }
    }
}

/// The shape of a host, decided in the order of capacity.md §1. A device that shares system memory is ignored beside
/// one that does not; one whose memory nobody knows is not taken for system memory.
pub fn decide_shape(evidence: &Evidence) -> HostShape {
    if let Some(setting) = evidence.setting {
        return setting;
    }
    if evidence.platform == Platform::Apple {
        return HostShape::Unified;
    }
    if evidence.devices.is_empty() {
        HostShape::SystemRam
    } else if evidence.devices.iter().all(|seen| seen.shares(evidence.ram)) {
        HostShape::Unified
    } else {
        HostShape::DiscreteGpu
    }
}

/// Whether layers may lie in system memory while others use the cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spillover {
    /// No on a host with cards, yes elsewhere.
    #[default]
    Auto,
    /// Yes.
    On,
    /// No.
    Off,
}

/// A machine. The default has no memory that we know of and therefore no enforced budget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// How its memory is shared.
    pub shape: HostShape,
    /// Memory of the system that we may use: the smaller of the machine's and the control group's.
    pub ram: Bytes,
    /// What of it the operator keeps for others.
    pub ram_reserve: Bytes,
    /// What the platform recommends as the most for graphics work; it bounds a unified host.
    pub working_set: Option<Bytes>,
    /// Graphics cards; looked at on a discrete host only.
    pub cards: Vec<Card>,
    /// What the operator says about the budget.
    pub budget: BudgetSetting,
    /// What the operator says about spilling.
    pub spillover: Spillover,
}

/// A graphics card with memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Which.
    pub id: DeviceId,
    /// What else it is called; a model's choice may name it so.
    pub names: Vec<DeviceId>,
    /// All its memory.
    pub total: Bytes,
    /// What of it the operator keeps for others.
    pub reserve: Bytes,
    /// Who says how much there is.
    pub sized: SizedBy,
}

/// Who says how large a pool is: the operator's word holds where nothing can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SizedBy {
    /// The configuration.
    Operator,
    /// A reading.
    #[default]
    Machine,
}

impl Card {
    /// A card that was read and of which nothing is kept for others.
    pub fn new(id: &str, total: Bytes) -> Self {
        Self { id: DeviceId(id.into()), names: vec![], total, reserve: Bytes::ZERO, sized: SizedBy::Machine }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(ram: u64, devices: &[Seen]) -> HostShape {
        decide_shape(&Evidence { ram: Bytes::gib(ram), devices: devices.to_vec(), ..Evidence::default() })
    }

    const fn listed(gib: u64) -> Seen {
        Seen::Listed(Some(Bytes::gib(gib)))
    }

    #[test]
    fn the_operator_decides_first_and_the_platform_next() {
        let mac = Evidence { platform: Platform::Apple, devices: vec![Seen::AmdCard], ..Evidence::default() };
        assert_eq!(decide_shape(&mac), HostShape::Unified);
        let told = Evidence { setting: Some(HostShape::DiscreteGpu), ..mac };
        assert_eq!(decide_shape(&told), HostShape::DiscreteGpu);
    }

    #[test]
    fn a_card_that_its_driver_reads_is_discrete_whatever_its_size() {
        assert_eq!(shape(128, &[Seen::Nvml]), HostShape::DiscreteGpu, "139 GiB of graphics memory in 128 GiB");
        assert_eq!(shape(128, &[Seen::AmdCard]), HostShape::DiscreteGpu);
    }

    #[test]
    fn devices_known_to_share_make_a_unified_host() {
        assert_eq!(shape(128, &[Seen::KnownToShare]), HostShape::Unified);
        assert_eq!(shape(32, &[Seen::AmdApu]), HostShape::Unified);
    }

    #[test]
    fn only_a_device_known_from_a_list_is_judged_by_its_size_and_each_alone() {
        assert_eq!(shape(64, &[listed(60)]), HostShape::Unified);
        assert_eq!(shape(64, &[listed(48)]), HostShape::Unified, "75 % are enough");
        assert_eq!(shape(64, &[listed(47)]), HostShape::DiscreteGpu);
        assert_eq!(shape(64, &[listed(40), listed(40)]), HostShape::DiscreteGpu, "sizes are not added up");
    }

    #[test]
    fn what_is_integrated_is_ignored_beside_a_card() {
        assert_eq!(shape(64, &[Seen::AmdApu, Seen::Nvml]), HostShape::DiscreteGpu);
        assert_eq!(shape(64, &[listed(64), Seen::AmdCard]), HostShape::DiscreteGpu);
    }

    #[test]
    fn no_device_is_system_memory_and_an_unknown_size_is_not_a_large_one() {
        assert_eq!(shape(64, &[]), HostShape::SystemRam);
        assert_eq!(shape(64, &[Seen::Listed(None)]), HostShape::DiscreteGpu);
    }
}
