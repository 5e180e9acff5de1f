//! The machine that figures are of, in one line.
use serde::Serialize;
use std::fs;

/// What a figure is worth nothing without.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    memory_mib: u64,
    kernel: String,
}

impl Machine {
    /// This one.
    pub(crate) fn here() -> Self {
        let cpu = value_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "an unknown processor".into());
        let memory = value_of("/proc/meminfo", "MemTotal");
        let kib: Option<u64> = memory.and_then(|text| text.split(' ').next().and_then(|kib| kib.parse().ok()));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { cpu, cores, memory_mib: kib.unwrap_or_default() / 1024, kernel }
    }

    /// In one line.
    pub(crate) fn line(&self) -> String {
        let Self { cpu, cores, memory_mib, kernel } = self;
        format!("{cpu}, {cores} cores, {} GiB, Linux {kernel}", memory_mib / 1024)
    }
}

/// What stands behind `name:` in a file of the kernel's.
fn value_of(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|before| before.trim() == name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}
