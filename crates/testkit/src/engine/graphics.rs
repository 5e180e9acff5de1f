//! The graphics cards of this engine: those of the fake NVML, whose state file lies beside the library that
//! `LD_LIBRARY_PATH` leads to; and what it claims of them, which that library then shows.
//!
//! Devices are counted as by a real engine: all of them in the order of the line `engine` (else of their addresses), or
//! those of `CUDA_VISIBLE_DEVICES` in its order when the backend is CUDA. Without a state file there is none.
use motorpool_testkit::GraphicsClaim;
use std::{fs, io, path::PathBuf};

const STATE: &str = "libnvidia-ml.so.1.state";
const MIB: u64 = 1 << 20;

/// What the engine sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Graphics {
    backend: String,
    devices: Vec<Device>,
    claims: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Device {
    uuid: String,
    pci: String,
    total: u64,
    name: String,
    part: Part,
}

/// What of a card that is cut into instances it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Whole,
    /// CUDA does not show it.
    Cut,
    /// CUDA shows one at a time, and nothing beside it.
    Instance,
}

impl Graphics {
    pub(crate) fn of_the_environment() -> Self {
        let folders = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let state = folders.split(':').find_map(|folder| fs::read_to_string(PathBuf::from(folder).join(STATE)).ok());
        Self::read(&state.unwrap_or_default(), std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref())
    }

    /// Lines that are about something else are passed over.
    fn read(state: &str, visible: Option<&str>) -> Self {
        let mut graphics = Self { backend: "CUDA".into(), ..Self::default() };
        let mut order: Option<Vec<&str>> = None;
        for (word, rest) in state.lines().filter_map(|line| line.split_once(' ')) {
            match word {
                "device" => graphics.devices.extend(Device::parse(rest)),
                "claims" => graphics.claims = Some(rest.into()),
                "engine" => {
                    let mut words = rest.split(' ');
                    words.next().unwrap_or_default().clone_into(&mut graphics.backend);
                    order = Some(words.collect());
                }
                _ => {}
            }
        }
        graphics.devices.sort_by(|a, b| a.pci.cmp(&b.pci));
        let shown = visible.filter(|_| graphics.backend == "CUDA").map(|text| text.split(',').collect());
        if let Some(order) = shown.or(order) {
            let device = |uuid: &&str| graphics.devices.iter().find(|device| device.uuid == *uuid).cloned();
            graphics.devices = order.iter().map_while(device).collect();
        }
        if graphics.backend == "CUDA" {
            graphics.devices.retain(|device| device.part != Part::Cut);
            if let Some(at) = graphics.devices.iter().position(|device| device.part == Part::Instance) {
                graphics.devices = vec![graphics.devices.swap_remove(at)];
            }
        }
        graphics
    }

    /// What `--list-devices` prints.
    pub(crate) fn list(&self) -> String {
        let line = |(n, Device { name, total, .. }): (usize, &Device)| {
            format!("  {}{n}: {name} ({} MiB, {} MiB free)\n", self.backend, total / MIB, total / MIB)
        };
        let lines: String = self.devices.iter().enumerate().map(line).collect();
        format!("Available devices:\n{}", if lines.is_empty() { "  (none)\n".to_owned() } else { lines })
    }

    /// Claims so much, in all, of the devices that `--device` names (without that: of those it sees). What is to lie on a
    /// device that it does not have lies nowhere.
    pub(crate) fn claim(&self, named: Option<&str>, claims: &[GraphicsClaim]) -> io::Result<()> {
        let Some(folder) = &self.claims else { return Ok(()) };
        let used: Vec<&Device> = match named {
            Some(list) => list.split(',').filter_map(|name| self.named(name)).collect(),
            None => self.devices.iter().collect(),
        };
        let line = |claim: &GraphicsClaim| Some(format!("{} {}\n", used.get(claim.device)?.uuid, claim.bytes));
        let text: String = claims.iter().filter_map(line).collect();
        // In one step: the library reads at any time.
        let pid = std::process::id().to_string();
        let next = folder.join(format!(".{pid}"));
        fs::write(&next, text)?;
        fs::rename(next, folder.join(pid))
    }

    fn named(&self, name: &str) -> Option<&Device> {
        self.devices.get(name.strip_prefix(&self.backend)?.parse::<usize>().ok()?)
    }
}

impl Device {
    fn parse(text: &str) -> Option<Self> {
        let (fields, name) = text.split_once(" name=")?;
        let mut device = Self { name: name.to_owned(), ..Self::default() };
        for (key, value) in fields.split(' ').filter_map(|field| field.split_once('=')) {
            match key {
                "uuid" => value.clone_into(&mut device.uuid),
                "pci" => value.clone_into(&mut device.pci),
                "total" => device.total = value.parse().ok()?,
                "mig" if value == "on" => device.part = Part::Cut,
                "of" => device.part = Part::Instance,
                _ => {}
            }
        }
        Some(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &str = "driver 1\ndevice uuid=GPU-b pci=2 total=16777216 name=A card\n\
                         device uuid=GPU-a pci=1 total=8388608 used=5 name=B card\nlag-ms 5\n";

    fn listed(more: &str, visible: Option<&str>) -> String {
        Graphics::read(&format!("{STATE}{more}"), visible).list()
    }

    #[test]
    fn devices_are_counted_by_address_or_as_is_said_or_shown() {
        let (a, b) = ("B card (8 MiB, 8 MiB free)\n", "A card (16 MiB, 16 MiB free)\n");
        assert_eq!(listed("", None), format!("Available devices:\n  CUDA0: {a}  CUDA1: {b}"));
        assert_eq!(listed("engine CUDA GPU-b GPU-a\n", None), format!("Available devices:\n  CUDA0: {b}  CUDA1: {a}"));
        assert_eq!(listed("engine CUDA GPU-a GPU-b\n", Some("GPU-b")), format!("Available devices:\n  CUDA0: {b}"));
        assert_eq!(listed("engine Vulkan GPU-b\n", Some("GPU-a")), format!("Available devices:\n  Vulkan0: {b}"));
        assert_eq!(Graphics::read("", None).list(), "Available devices:\n  (none)\n");
    }

    #[test]
    fn what_is_claimed_lies_on_the_devices_that_are_named_and_on_no_other() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let graphics = Graphics::read(&format!("{STATE}claims {}\n", folder.path().display()), None);
        let claim = |device, bytes| GraphicsClaim { device, bytes, ..GraphicsClaim::default() };
        let shown = |named: Option<&str>, claims: &[GraphicsClaim]| {
            graphics.claim(named, claims).expect("writable");
            fs::read_to_string(folder.path().join(std::process::id().to_string())).expect("written")
        };
        assert_eq!(shown(None, &[claim(0, 5), claim(1, 6)]), "GPU-a 5\nGPU-b 6\n");
        assert_eq!(shown(Some("CUDA1"), &[claim(0, 5), claim(1, 6)]), "GPU-b 5\n");
        assert_eq!(shown(Some("none"), &[claim(0, 5)]), "");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1, "nothing half written is left");
    }
}
