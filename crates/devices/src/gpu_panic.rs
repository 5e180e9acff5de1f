//! [`observe_gpu_panic`]: whether the graphics driver brought the machine down lately, by the reports that macOS leaves.
//!
//! Loading onto the GPU right after such a panic has brought machines down again (pool.md §9). A report counts when its
//! name ends in `.panic` or `.ips`, it is new enough, and one of its first 16 KiB names the driver.
use regex::bytes::Regex;
use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::SystemTime,
};

/// Of a report, so much is read.
const READ: u64 = 16 * 1024;

/// Parts of the graphics driver, as a report of its panic names them.
static SIGNATURE: LazyLock<Regex> = LazyLock::new(|| {
    let parts =
        r"IOGPUMemory|IOAccelerator|AGXAccelerator|AGXG\d|completeMemory\(\)\s+prepare\s+count\s+underflow|IOGPUFamily";
    Regex::new(&format!("(?i){parts}")).expect("an expression")
});

/// A panic of the graphics driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuPanic {
    /// Its report.
    pub report: PathBuf,
    /// What of the driver is named there.
    pub signature: String,
    /// When the report was written.
    pub at: SystemTime,
}

/// The newest panic of the graphics driver after `since` that a report in one of `folders` tells of. Folders and reports
/// that cannot be read tell of none. Takes as long as listing the folders.
pub fn observe_gpu_panic(folders: &[PathBuf], since: SystemTime) -> Option<GpuPanic> {
    let found = folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    let mut reports: Vec<(SystemTime, PathBuf)> = found
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "panic" || e == "ips"))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .filter(|(at, _)| *at > since)
        .collect();
    reports.sort_unstable();
    reports.into_iter().rev().find_map(|(at, report)| Some(GpuPanic { signature: signature(&report)?, report, at }))
}

fn signature(report: &Path) -> Option<String> {
    let mut text = Vec::new();
    File::open(report).ok()?.take(READ).read_to_end(&mut text).ok()?;
    let found = SIGNATURE.find(&text)?;
    Some(String::from_utf8_lossy(found.as_bytes()).split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    struct Reports(tempfile::TempDir);

    impl Reports {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a temporary directory"))
        }

        /// A report that was written so many seconds after 1970.
        fn write(&self, name: &str, text: &str, at: u64) -> &Self {
            let file = File::create(self.0.path().join(name)).expect("writable");
            std::io::Write::write_all(&mut &file, text.as_bytes()).expect("written");
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(at)).expect("its time");
            self
        }

        fn found(&self, since: u64) -> Option<String> {
            let since = SystemTime::UNIX_EPOCH + Duration::from_secs(since);
            let panic = observe_gpu_panic(&[PathBuf::from("/nowhere"), self.0.path().to_owned()], since)?;
            Some(panic.signature)
        }
    }

    #[test]
    fn the_newest_report_that_names_the_driver_is_the_one() {
        let reports = Reports::new();
        reports.write("a.panic", "panic(cpu 1): iogpumemory.cpp:1", 100);
        reports.write("b.ips", "x\n\"completeMemory()  prepare\tcount underflow\" y", 200);
        reports.write("c.ips", "Safari crashed", 300);
        reports.write("d.txt", "IOGPUFamily", 400);
        assert_eq!(reports.found(50).as_deref(), Some("completeMemory() prepare count underflow"));
        assert_eq!(reports.found(200), None, "a report as old as that does not count");
        assert_eq!(reports.found(199).as_deref(), Some("completeMemory() prepare count underflow"));
    }

    #[test]
    fn each_name_of_the_driver_counts_in_any_case_and_only_near_the_beginning() {
        for name in ["IOGPUMemory", "ioaccelerator", "AGXACCELERATOR", "AGXG13X", "IOGPUFamily"] {
            let reports = Reports::new();
            reports.write("a.panic", &format!("{}{name}", "x".repeat(16_000)), 100);
            assert!(reports.found(0).is_some(), "{name}");
            reports.write("a.panic", &format!("{}{name}", "x".repeat(16_384)), 100);
            assert_eq!(reports.found(0), None, "{name} too late in it");
        }
        let reports = Reports::new();
        assert_eq!(reports.write("a.panic", "AGXGx IOGPU", 100).found(0), None);
    }
}
