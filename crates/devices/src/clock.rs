//! The clock that counts suspend, and the name of this boot.
use crate::{ReadingError, check_supported, read};
use motorpool_vocab::Now;
use nix::time::{ClockId, clock_gettime};
use std::path::Path;

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
// `mach_continuous_time` by another name: it goes on in sleep, and no correction of the calendar bends it.
#[cfg(target_os = "macos")]
const CLOCK: ClockId = ClockId::from_raw(nix::libc::CLOCK_MONOTONIC_RAW);
// Where there is no boot-time clock this one may stand still in suspend: limits then count waking time only.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "macos")))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// This instant, in nanoseconds since boot, suspend included.
pub fn now() -> Now {
    let time = clock_gettime(CLOCK).expect("a clock that every kernel we run on has");
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    Now::from_nanos(part(time.tv_sec()).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec())))
}

/// How many of the ticks in which processor time of processes is counted are one second.
pub fn cpu_ticks_per_second() -> u64 {
    // The coarsest of what macOS counts in, so that nothing that computes is taken for idle.
    if cfg!(target_os = "macos") {
        return 24_000_000;
    }
    let told = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    told.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(100)
}

/// The id that the kernel drew at boot: process ids and start times of another boot mean nothing.
///
/// `root` is `/` but in tests.
pub fn boot_id(root: &Path) -> Result<String, ReadingError> {
    #[cfg(target_os = "macos")]
    if root == Path::new("/") {
        return crate::darwin::boot_id();
    }
    check_supported()?;
    let (path, text) = read(root.join("proc/sys/kernel/random/boot_id"))?;
    let id = text.trim();
    if id.is_empty() { Err(ReadingError::Malformed { path, what: "boot id" }) } else { Ok(id.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_advances_and_the_boot_stays() {
        let before = now();
        assert!(before > Now::ZERO && now() >= before);
        assert_eq!(boot_id(Path::new("/")).expect("linux"), boot_id(Path::new("/")).expect("linux"));
    }

    #[test]
    fn a_boot_without_id_is_an_error() {
        let root = tempfile::tempdir().expect("a temporary directory");
        assert!(matches!(boot_id(root.path()), Err(ReadingError::Unreadable { .. })));
        let dir = root.path().join("proc/sys/kernel/random");
        std::fs::create_dir_all(&dir).expect("writable");
        std::fs::write(dir.join("boot_id"), "\n").expect("writable");
        assert!(matches!(boot_id(root.path()), Err(ReadingError::Malformed { .. })));
    }
}
