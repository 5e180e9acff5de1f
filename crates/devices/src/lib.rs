//! What the machine says: graphics devices, system memory, processes, the clock.
//!
//! Boundary: reads and interprets, decides and changes nothing; no process is started or signalled here. A figure
//! that cannot be had is an error or `None`, never zero and never an old figure. Functions block for as long as
//! the files of `/proc` and `/sys` take, which is microseconds; a scan over all processes takes milliseconds, and a
//! graphics driver may take for ever.
//!
//! | reading | file | source |
//! | --- | --- | --- |
//! | [`DeviceReading`] | `device.rs` | what every source of devices below makes |
//! | [`Nvidia`] | `nvidia.rs` | NVML, the library of NVIDIA's driver |
//! | [`Amdgpu`] | `amdgpu.rs`, `fdinfo.rs` | `/sys/class/drm/card*/device`, `/proc/<pid>/fdinfo` |
//! | [`EngineDevice`] | `device_list.rs` | what the engine prints |
//! | [`Graphics`], [`Gpu`] | `graphics.rs` | the readings above, each device once |
//! | [`tenants`], [`foreign_ram`], [`PidSpace`] | `foreign.rs` | the readings above |
//! | [`Prober`] | `prober.rs` | a probe that may block for ever, on its own thread |
//! | [`Ram`] | `ram.rs`, `cgroup.rs` | `/proc/meminfo`, memory limits of cgroup v1, v2 and hybrid |
//! | [`MemoryPressure`], [`observe_oom_kills`] | `pressure.rs`, `cgroup.rs` | `/proc/pressure/memory`, `memory.events` |
//! | [`own_group`], [`group_members`], [`group_oom_kills`] | `cgroup.rs` | `/proc/self/cgroup`, `cgroup.procs` and `memory.events` of version 2 |
//! | [`TreeMemory`], [`observe_mapped_files`] | `tree.rs` | `/proc/<pid>/{smaps_rollup,status,maps}` |
//! | [`ProcessFacts`], [`ProcessMemory`] | `process.rs`, `proc_fs.rs` | `/proc/<pid>/{stat,status,io,exe,environ,fd}` |
//! | [`listens`] | `listener.rs` | `/proc/net/tcp`, `/proc/net/tcp6`, `/proc/<pid>/fd` |
//! | [`now`], [`boot_id`] | `clock.rs` | `CLOCK_BOOTTIME`, `/proc/sys/kernel/random/boot_id` |
//! | [`GpuPanic`] | `gpu_panic.rs` | reports in `DiagnosticReports`, macOS |
//! | [`observe_working_set`] and [`Ram`] on Apple's machines | `apple.rs` | Metal, the kernel |
//! | processes, [`TreeMemory`], [`observe_mapped_files`], [`listens`], [`boot_id`] on macOS | `darwin/` | `libproc`, `sysctl` |
//!
//! macOS is type-checked and was never run. What it does not have there (memory pressure, control groups, counts of deaths
//! for want of memory) answers [`ReadingError::Unsupported`] or `None`, and so does everything but NVML on any other system.
mod amdgpu;
#[cfg(any(target_os = "macos", test))]
mod apple;
mod cgroup;
mod clock;
#[cfg(any(target_os = "macos", test))]
mod darwin;
mod device;
mod device_list;
mod fdinfo;
mod foreign;
mod gpu_panic;
mod graphics;
mod listener;
mod nvidia;
mod pressure;
mod prober;
#[cfg(not(target_os = "macos"))]
mod proc_fs;
mod process;
mod ram;
mod tree;

pub use amdgpu::Amdgpu;
pub use cgroup::{group_members, group_oom_kills, groups_below, observe_oom_kills, own_group};
pub use clock::{boot_id, cpu_ticks_per_second, now};
pub use device::{DeviceKind, DeviceMemory, DeviceReading, DeviceSource, NoFigures};
pub use device_list::{EngineDevice, parse_device_list, parse_used_devices};
pub use foreign::{PidSpace, foreign_ram, tenants};
pub use gpu_panic::{GpuPanic, observe_gpu_panic};
pub use graphics::{Gpu, Graphics, ToldBy, Visible};
pub use listener::{listener, listens};
pub use nvidia::{Driver, Nvidia, NvidiaReading};
pub use pressure::{MemoryPressure, observe_memory_pressure};
pub use prober::{Probe, Prober, Started};
pub use process::{
    ProcessFacts, ProcessMemory, clean_file_ranges, descendants, descendants_in, environment_value, executable,
    has_environment, look_at_io, look_at_memory, look_at_process, look_at_processes, look_for_environment, n_open_fds,
    observe_cpu_time, observe_io, observe_memory, observe_process, pids, processes, processes_with, processor_name,
};
pub use ram::{Ram, observe_ram, observe_working_set};
pub use tree::{TreeMemory, observe_mapped_files, observe_private, observe_tree};

use std::{io, path::PathBuf};

/// Why there is no reading.
#[derive(Debug, thiserror::Error)]
pub enum ReadingError {
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("no {what} in {}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// This operating system is not read.
    #[error("reading this is not supported on this operating system")]
    Unsupported,
}

/// Refuses where the files below would not mean what we think.
fn check_supported() -> Result<(), ReadingError> {
    if cfg!(target_os = "linux") { Ok(()) } else { Err(ReadingError::Unsupported) }
}

fn read(path: PathBuf) -> Result<(PathBuf, String), ReadingError> {
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(source) => Err(ReadingError::Unreadable { path, source }),
    }
}
