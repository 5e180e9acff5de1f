//! [`Claim`]: what one child asks of the machine's memory.
use crate::{Bytes, DeviceId};
use std::collections::{BTreeMap, BTreeSet};

/// A file whose mapped pages are charged once, however many children map it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The device number of the file system.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Last change, nanoseconds since the epoch.
    pub mtime_nanos: i128,
}

/// Bytes by place. Granted or refused whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Per device: weights, KV, compute, the driver's overhead.
    pub device: BTreeMap<DeviceId, Bytes>,
    /// System memory that is this child's alone.
    pub ram_private: Bytes,
    /// Mapped files, shared with whoever else maps them.
    pub ram_files: BTreeSet<(FileId, Bytes)>,
    /// What its plan would put on graphics devices if they were large enough; zero for one that computes on the
    /// processor. Not charged by itself: its bytes are among the others.
    pub accelerated: Bytes,
}

impl Claim {
    /// A claim on private system memory only.
    pub fn private(bytes: Bytes) -> Self {
        Self { ram_private: bytes, ..Self::default() }
    }

    /// Everything in it, files counted whole: the figure shown to people (`residentBytes`).
    pub fn total(&self) -> Bytes {
        self.private_total().saturating_add(Bytes::sum(self.ram_files.iter().map(|(_, b)| *b)))
    }

    /// Everything but shared file pages.
    pub fn private_total(&self) -> Bytes {
        Bytes::sum(self.device.values().copied()).saturating_add(self.ram_private)
    }
}
