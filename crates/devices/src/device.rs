//! What every source of graphics devices reads: one device, its memory, and why there is no figure.
//!
//! Invariant: a reading holds what was read at `taken_at` or says why nothing was. Only what cannot change while
//! the machine runs (name, address, kind) is remembered of a device that no longer answers.
use motorpool_vocab::{Bytes, DeviceId, Now};
use std::collections::BTreeMap;

/// One device at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReading {
    /// The GPU's UUID (NVIDIA), the PCI address (AMD).
    pub id: DeviceId,
    /// Who was asked.
    pub source: DeviceSource,
    /// Whose memory it has.
    pub kind: DeviceKind,
    /// What the vendor calls it.
    pub name: String,
    /// Its place in the driver's order at this instant: for people, never a key.
    pub index: Option<u32>,
    /// `<domain>:<bus>:<device>.<function>`, four hexadecimal digits of domain, lower case.
    pub pci: Option<String>,
    /// What `CUDA_VISIBLE_DEVICES` and `ROCR_VISIBLE_DEVICES` call it in any order: `GPU-…`, `MIG-…`.
    pub visible_as: Option<String>,
    /// When the reading began.
    pub taken_at: Now,
    /// Its memory.
    pub memory: Result<DeviceMemory, NoFigures>,
    /// Bytes by process id, as the driver numbers processes: in a container those may be the host's
    /// ([`PidSpace`](crate::PidSpace)). `None`: not told, or not for each process.
    pub by_process: Option<BTreeMap<u32, Bytes>>,
    /// System memory that the driver lets the device use (GTT), where it is told.
    pub shared: Option<DeviceMemory>,
}

/// What does not change while the machine runs, so that it may be remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) source: DeviceSource,
    pub(crate) name: String,
    pub(crate) pci: Option<String>,
    pub(crate) visible_as: Option<String>,
    pub(crate) kind: DeviceKind,
}

impl Identity {
    /// A reading that says who and not how much.
    pub(crate) fn without_figures(&self, id: DeviceId, taken_at: Now, why: NoFigures) -> DeviceReading {
        DeviceReading {
            id,
            source: self.source,
            kind: self.kind,
            name: self.name.clone(),
            index: None,
            pci: self.pci.clone(),
            visible_as: self.visible_as.clone(),
            taken_at,
            memory: Err(why),
            by_process: None,
            shared: None,
        }
    }
}

/// Who was asked about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceSource {
    /// NVIDIA's management library.
    Nvml,
    /// The kernel's amdgpu driver.
    Amdgpu,
}

/// Whose memory a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Its own.
    Card,
    /// The system's: an integrated GPU.
    SharesRam,
    /// Its own, cut into instances (MIG): nothing lies on itself.
    Partitioned,
    /// Its own, a part of a card that is cut up.
    Instance,
    /// It has not answered so far.
    Unknown,
}

/// Memory of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// All of it.
    pub total: Bytes,
    /// `total − free`: what the driver keeps for itself is in use.
    pub used: Bytes,
    /// What can be had now.
    pub free: Bytes,
}

impl DeviceMemory {
    /// The figures of `total` with `free` left; an absurd pair is no figure.
    pub(crate) fn new(total: Bytes, free: Bytes) -> Result<Self, NoFigures> {
        if total.is_zero() || free > total {
            return Err(NoFigures::Other(format!("{} of {} bytes are free", free.get(), total.get())));
        }
        Ok(Self { total, used: total.saturating_sub(free), free })
    }
}

/// Why there are no figures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFigures {
    /// The device fell off the bus, is gone, or must be reset before it can be used.
    #[error("the device is lost: {0}")]
    Lost(String),
    /// The operating system or the driver refuses us.
    #[error("not permitted: {0}")]
    NotPermitted(String),
    /// It has no memory of its own to tell of.
    #[error("the device shares the system's memory")]
    SharesRam,
    /// It is cut into instances, which are devices of their own.
    #[error("the device is cut into instances (MIG)")]
    Partitioned,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_figures_are_no_figures() {
        let memory = DeviceMemory::new(Bytes::gib(24), Bytes::gib(20)).expect("figures");
        assert_eq!(memory.used, Bytes::gib(4));
        assert!(DeviceMemory::new(Bytes::ZERO, Bytes::ZERO).is_err(), "nothing at all is not a card without memory");
        assert!(DeviceMemory::new(Bytes::gib(1), Bytes::gib(2)).is_err());
    }
}
