//! The machine that figures are of, in one line.
use nix::sys::utsname::{UtsName, uname};
use serde::Serialize;
use std::{ffi::OsStr, path::Path};

/// What a figure is worth nothing without.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    memory_mib: u64,
    #[serde(skip)]
    system: String,
    kernel: String,
}

impl Machine {
    /// This one.
    pub(crate) fn here() -> Self {
        let cpu = motorpool_devices::processor_name().unwrap_or_else(|| "an unknown processor".into());
        let memory = motorpool_devices::observe_ram(Path::new("/")).map_or(0, |ram| ram.total.get());
        let told = uname().ok();
        let text = |of: fn(&UtsName) -> &OsStr| told.as_ref().map(|told| of(told).to_string_lossy().into_owned());
        let (system, kernel) = (text(UtsName::sysname).unwrap_or_default(), text(UtsName::release).unwrap_or_default());
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { cpu, cores, memory_mib: memory >> 20, system, kernel }
    }

    /// In one line.
    pub(crate) fn line(&self) -> String {
        let Self { cpu, cores, memory_mib, system, kernel } = self;
        format!("{cpu}, {cores} cores, {} GiB, {system} {kernel}", memory_mib / 1024)
    }
}
