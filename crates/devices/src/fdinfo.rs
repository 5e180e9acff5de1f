//! Graphics memory by process, as the kernel's DRM drivers write it beside each descriptor of a device.
//!
//! One client of a device may be open under several descriptors, even of several processes: it is counted once, for
//! the lowest process id that shows it.
use motorpool_vocab::{Bytes, KIB, MIB};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The clients of all devices.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// By device, by process. `None`: a client of this device does not tell its memory.
    by_device: BTreeMap<String, Option<BTreeMap<u32, Bytes>>>,
}

impl Clients {
    /// Whether this kernel tells of anyone.
    pub(crate) fn tell_memory(&self) -> bool {
        self.by_device.values().any(Option::is_some)
    }

    /// The processes of the device at `address`; an empty map when no client is known there.
    pub(crate) fn on(&self, address: &str) -> Option<BTreeMap<u32, Bytes>> {
        self.by_device.get(address).cloned().unwrap_or_else(|| Some(BTreeMap::new()))
    }

    fn add(&mut self, pid: u32, client: Client) {
        let processes = self.by_device.entry(client.address).or_insert_with(|| Some(BTreeMap::new()));
        match (processes.as_mut(), client.vram) {
            (Some(by_process), Some(bytes)) => {
                let sum = by_process.entry(pid).or_insert(Bytes::ZERO);
                *sum = sum.saturating_add(bytes);
            }
            _ => *processes = None,
        }
    }
}

/// Looks through every process that we may look into.
pub(crate) fn observe_clients(root: &Path) -> Clients {
    let mut clients = Clients::default();
    let mut seen = BTreeSet::new();
    for pid in numbers(&root.join("proc")) {
        let folder = root.join(format!("proc/{pid}"));
        let is_drm =
            |fd: &u32| fs::read_link(folder.join(format!("fd/{fd}"))).is_ok_and(|to| to.starts_with("/dev/dri"));
        for fd in numbers(&folder.join("fd")).into_iter().filter(is_drm) {
            let Ok(text) = fs::read_to_string(folder.join(format!("fdinfo/{fd}"))) else { continue };
            let Some(client) = Client::parse(&text) else { continue };
            if seen.insert((client.address.clone(), client.id)) {
                clients.add(pid, client);
            }
        }
    }
    clients
}

/// Entries of a folder that are called by a number, ascending.
fn numbers(folder: &Path) -> BTreeSet<u32> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeSet::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Client {
    address: String,
    id: u64,
    vram: Option<Bytes>,
}

impl Client {
    /// Reads lines `drm-<key>:<blanks><value>` of amdgpu. What lies in graphics memory now is called `memory` by
    /// older kernels and `resident` by newer ones; `total` includes what was moved out.
    fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim);
        if value("drm-driver")? != "amdgpu" {
            return None;
        }
        let vram = ["drm-memory-vram", "drm-resident-vram", "drm-total-vram"].into_iter().find_map(value);
        Some(Self {
            address: value("drm-pdev")?.to_ascii_lowercase(),
            id: value("drm-client-id")?.parse().ok()?,
            vram: vram.and_then(bytes),
        })
    }
}

/// `12`, `12 KiB`, `12 MiB`.
fn bytes(text: &str) -> Option<Bytes> {
    let (n, unit) = text.split_once(' ').unwrap_or((text, ""));
    let unit = match unit.trim() {
        "" => 1,
        "KiB" => KIB,
        "MiB" => MIB,
        _ => return None,
    };
    n.parse::<u64>().ok()?.checked_mul(unit).map(Bytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OLD: &str = "pos:\t0\nflags:\t02\ndrm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t9\n\
                       drm-memory-vram:\t100 KiB\ndrm-memory-gtt: \t5 KiB\n";

    #[test]
    fn what_lies_in_graphics_memory_now_counts() {
        let client = |vram| Client { address: "0000:03:00.0".to_owned(), id: 9, vram };
        assert_eq!(Client::parse(OLD), Some(client(Some(Bytes::new(100 * KIB)))));
        let new = OLD.replace("memory-vram", "total-vram") + "drm-resident-vram:\t2 MiB\n";
        assert_eq!(Client::parse(&new), Some(client(Some(Bytes::mib(2)))));
        let total = OLD.replace("memory-vram:\t100 KiB", "total-vram:\t7");
        assert_eq!(Client::parse(&total), Some(client(Some(Bytes::new(7)))));
        assert_eq!(Client::parse(&OLD.replace("100 KiB", "100 pages")), Some(client(None)));
        assert_eq!(Client::parse(&OLD.replace("amdgpu", "i915")), None);
        assert_eq!(Client::parse("pos:\t0\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_is_taken_for_a_client_by_panicking(text in "(drm-(driver|pdev|client-id|memory-vram):\\PC{0,9}\n){0,5}") {
            let _ = Client::parse(&text);
        }
    }
}
