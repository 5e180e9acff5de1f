//! [`Capacity`] and [`Device`]: whose memory is ours, as the operator says it. [`DescribedHost`]: the same of a machine
//! that need not be this one.
//!
//! What is left out is read from the machine; nothing is read or computed here.
use crate::{
    ConfigError, Fault,
    document::{Origin, Step},
    form, quantity,
};
use motorpool_vocab::{Bytes, DeviceId};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// `[capacity]`: how much memory is ours.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Capacity {
    /// The bound on everything that engines take (`auto`).
    pub budget: Budget,
    /// System memory that is left to others, of any size (0). Of a device: [`Device::reserve`].
    #[serde(with = "form::Size")]
    pub reserve: Bytes,
    /// Whether graphics devices have memory of their own (`auto`).
    pub shape: HostShape,
    /// Whether a model that would stand beside others on graphics devices may lie in system memory (`auto`).
    pub allow_ram_spillover: Spillover,
    /// What becomes of an engine that was planned for graphics devices and computes on the processor (`fail`).
    pub on_cpu_fallback: OnCpuFallback,
    /// From the end of an engine until its cards have to have given its memory back; what is still there then counts as
    /// others' use (5 s).
    #[serde(with = "form::SomeTime")]
    pub reclaim_within: Duration,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            budget: Budget::default(),
            reserve: Bytes::ZERO,
            shape: HostShape::default(),
            allow_ram_spillover: Spillover::default(),
            on_cpu_fallback: OnCpuFallback::default(),
            reclaim_within: Duration::from_secs(5),
        }
    }
}

/// What becomes of an engine that computes on the processor against its plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnCpuFallback {
    /// It is stopped before it serves anybody, and its requests are refused with the class `cpu-fallback`.
    #[default]
    Fail,
    /// It serves, and the log says so.
    Warn,
}

/// A bound on memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    /// Computed from what the machine has.
    #[default]
    Auto,
    /// As the operator says. Below 1 GiB nothing is enforced.
    Bytes(Bytes),
}

/// Whether graphics devices have memory of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostShape {
    /// As the machine shows.
    #[default]
    Auto,
    /// Processor and graphics share one memory.
    Unified,
    /// Cards with their own memory, beside system memory.
    DiscreteGpu,
    /// System memory alone.
    SystemRam,
}

/// Whether accelerated models side by side may take more than graphics devices hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Spillover {
    /// Off where graphics devices have memory of their own, on elsewhere.
    #[default]
    Auto,
    /// Yes.
    On,
    /// No: one model alone may still use both memories.
    Off,
}

/// `[[device]]`: what the operator says of a graphics device.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// An id that outlives reboots (GPU UUID, PCI address), or the engine's own name of it. Visible ASCII without
    /// parentheses and commas; no two devices have the same.
    #[serde(deserialize_with = "device_id", serialize_with = "form::shown")]
    #[schemars(with = "String")]
    pub id: DeviceId,
    /// Its memory, above zero.
    #[serde(with = "form::SomeSize")]
    pub total: Bytes,
    /// What of it is left to others, at most all of it (0).
    #[serde(default, with = "form::Size")]
    pub reserve: Bytes,
}

/// A machine that is described, for plans: this one is not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DescribedHost {
    /// `[host]`: what the machine has.
    pub host: HostMemory,
    /// `[capacity]`: as in `motorpool.toml`.
    #[serde(default)]
    pub capacity: Capacity,
    /// `[[device]]`: as in `motorpool.toml`.
    #[serde(default, rename = "device")]
    pub devices: Vec<Device>,
}

/// `[host]` of a described machine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostMemory {
    /// System memory, above zero: the smaller of what is built in and what a control group allows.
    #[serde(with = "form::SomeSize")]
    pub ram: Bytes,
}

impl DescribedHost {
    /// What shows only across keys.
    pub(crate) fn checked(self, origin: &Origin) -> Result<Self, ConfigError> {
        check_devices(&self.devices, origin)?;
        if self.capacity.reserve >= self.host.ram {
            let why = format!("this leaves nothing of {}", self.host.ram);
            return Err(origin.fault(&[Step::Key("capacity"), Step::Key("reserve")], Fault::Value(why)));
        }
        Ok(self)
    }
}

/// One device for each id, and nothing reserved that is not there.
pub(crate) fn check_devices(devices: &[Device], origin: &Origin) -> Result<(), ConfigError> {
    for (at, device) in devices.iter().enumerate() {
        let fault = |key, fault| Err(origin.fault(&[Step::Key("device"), Step::Item(at), Step::Key(key)], fault));
        if devices[..at].iter().any(|other| other.id == device.id) {
            let name = format!("the device id `{}`", device.id);
            return fault("id", Fault::Taken { name, by: "a [[device]] above".into() });
        }
        if device.reserve > device.total {
            return fault("reserve", Fault::Value(format!("more is reserved than its {}", device.total)));
        }
    }
    Ok(())
}

pub(crate) fn device_id<'de, D: Deserializer<'de>>(reader: D) -> Result<DeviceId, D::Error> {
    quantity::checked(reader, "a device id such as \"GPU-1a2b3c4d\"", |text| {
        // It stands in parentheses in a denial, and between commas on engines' command lines.
        match text.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '(' | ')' | ',')) {
            Some(c) => Err(format!("the device id `{text}` holds {c:?}")),
            None if text.is_empty() => Err("a device id may not be empty".into()),
            None => Ok(DeviceId(text.into())),
        }
    })
}

impl Serialize for Budget {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => writer.serialize_str("auto"),
            Self::Bytes(size) => writer.serialize_str(&form::size_text(*size)),
        }
    }
}

impl<'de> Deserialize<'de> for Budget {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        quantity::checked(reader, "\"auto\" or a size such as \"24GiB\"", |text| match text {
            "auto" => Ok(Self::Auto),
            size => quantity::parse_size(size).map(Self::Bytes).map_err(|why| format!("{why}, or `auto`")),
        })
    }
}
