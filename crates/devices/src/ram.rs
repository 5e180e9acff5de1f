//! System memory, as much of it as we may use.
use crate::{ReadingError, cgroup, check_supported, read};
use motorpool_vocab::{Bytes, KIB};
use std::path::Path;

/// One reading of system memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ram {
    /// What the machine has.
    pub total: Bytes,
    /// The smallest limit of a control group around us, when it is below `total`.
    pub limit: Option<Bytes>,
    /// What can be had now without swapping: the smaller of the machine's figure and what the control groups
    /// around us leave, page cache counted as available in both.
    pub available: Bytes,
}

impl Ram {
    /// What may be used in all: the smaller of machine and limit.
    pub fn usable(&self) -> Bytes {
        self.limit.map_or(self.total, |limit| limit.min(self.total))
    }
}

/// Reads system memory. `root` is `/` but in tests.
pub fn observe_ram(root: &Path) -> Result<Ram, ReadingError> {
    #[cfg(target_os = "macos")]
    if root == Path::new("/") {
        return crate::apple::observe_ram();
    }
    check_supported()?;
    let (path, text) = read(root.join("proc/meminfo"))?;
    let field = |name, what| kib_field(&text, name).ok_or(ReadingError::Malformed { path: path.clone(), what });
    let total = field("MemTotal:", "MemTotal")?;
    let available = field("MemAvailable:", "MemAvailable")?;
    let bound = cgroup::observe_bound(root)?;
    Ok(Ram {
        total,
        limit: bound.limit.filter(|limit| *limit < total),
        available: bound.available.map_or(available, |left| left.min(available)),
    })
}

/// What the platform recommends as the most of system memory for graphics work; `None` where nobody says so, which is
/// everywhere but on Apple's machines. May block for as long as a graphics part takes to wake.
pub fn observe_working_set() -> Option<Bytes> {
    #[cfg(target_os = "macos")]
    return crate::apple::observe_working_set();
    #[cfg(not(target_os = "macos"))]
    None
}

/// The value of `Name:   123 kB`.
pub(crate) fn kib_field(text: &str, name: &str) -> Option<Bytes> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let n: u64 = rest.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    n.checked_mul(KIB).map(Bytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MEMINFO: &str = "MemTotal:       16777216 kB\nMemFree:          100 kB\nMemAvailable:    8388608 kB\n";

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary directory");
        for (name, text) in [("proc/meminfo", MEMINFO)].iter().chain(files) {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, text).expect("writable");
        }
        root
    }

    fn observed(files: &[(&str, &str)]) -> Ram {
        observe_ram(machine(files).path()).expect("a reading")
    }

    const V2: &str = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      31 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn a_machine_without_control_groups_is_usable_whole() {
        let ram = observed(&[]);
        assert_eq!(ram, Ram { total: Bytes::gib(16), limit: None, available: Bytes::gib(8) });
        assert_eq!(ram.usable(), Bytes::gib(16));
    }

    #[test]
    fn the_tightest_v2_group_above_us_binds() {
        let ram = observed(&[
            ("proc/self/cgroup", "0::/user.slice/pool.service\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/user.slice/memory.max", "4294967296\n"),
            ("sys/fs/cgroup/user.slice/memory.current", "3221225472\n"),
            ("sys/fs/cgroup/user.slice/memory.stat", "anon 5\ninactive_file 1073741824\nactive_file 0\n"),
            ("sys/fs/cgroup/user.slice/pool.service/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/pool.service/memory.high", "max\n"),
        ]);
        assert_eq!(ram.limit, Some(Bytes::gib(4)));
        assert_eq!(ram.usable(), Bytes::gib(4));
        assert_eq!(ram.available, Bytes::gib(2), "page cache of the group counts as available");
    }

    #[test]
    fn throttling_counts_as_a_limit() {
        let ram = observed(&[
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/a/memory.max", "8589934592\n"),
            ("sys/fs/cgroup/a/memory.high", "2147483648\n"),
            ("sys/fs/cgroup/a/memory.current", "0\n"),
        ]);
        assert_eq!((ram.limit, ram.available), (Some(Bytes::gib(2)), Bytes::gib(2)));
    }

    #[test]
    fn a_v1_limit_binds_beside_an_empty_unified_tree() {
        let ram = observed(&[
            ("proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/abc\n0::/\n"),
            ("proc/self/mountinfo", V1),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "2147483648\n"),
            ("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "2147483648\n"),
            (
                "sys/fs/cgroup/memory/docker/abc/memory.stat",
                "total_inactive_file 536870912\ntotal_active_file 536870912\n",
            ),
        ]);
        assert_eq!((ram.limit, ram.available), (Some(Bytes::gib(2)), Bytes::gib(1)));
    }

    #[test]
    fn a_v1_limit_hidden_above_the_mount_is_seen_through_the_statistics() {
        let ram = observed(&[
            ("proc/self/cgroup", "4:memory:/docker/abc\n"),
            ("proc/self/mountinfo", "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n"),
            ("sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 1073741824\n"),
        ]);
        assert_eq!(ram.limit, Some(Bytes::gib(1)));
    }

    #[test]
    fn a_limit_above_the_machine_is_none() {
        let ram = observed(&[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/memory.max", "1099511627776\n"),
            ("sys/fs/cgroup/memory.current", "1099511627776\n"),
        ]);
        assert_eq!(ram.limit, None);
    }

    #[test]
    fn a_limit_that_cannot_be_understood_is_an_error_and_not_infinity() {
        let root = machine(&[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/memory.max", "lots\n"),
        ]);
        assert!(matches!(observe_ram(root.path()), Err(ReadingError::Malformed { .. })));
    }

    #[test]
    fn a_limit_without_its_usage_is_an_error_and_not_all_free() {
        let root = machine(&[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/memory.max", "1073741824\n"),
        ]);
        assert!(matches!(observe_ram(root.path()), Err(ReadingError::Unreadable { .. })));
    }

    fn kills(files: &[(&str, &str)]) -> Option<u64> {
        crate::observe_oom_kills(machine(files).path()).expect("a reading")
    }

    #[test]
    fn deaths_for_want_of_memory_are_counted_in_our_own_group() {
        let v2 = [
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/a/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 1\n"),
        ];
        assert_eq!(kills(&v2), Some(2));
        let hybrid = [
            ("proc/self/cgroup", "4:memory:/a\n0::/\n"),
            ("proc/self/mountinfo", V1),
            ("sys/fs/cgroup/memory/a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"),
        ];
        assert_eq!(kills(&hybrid), Some(5));
        assert_eq!(kills(&v2[..2]), None, "the top group counts nothing");
        assert_eq!(kills(&[]), None);
        let root = machine(&[v2[0], v2[1], ("sys/fs/cgroup/a/memory.events", "oom_kill many\n")]);
        assert!(matches!(crate::observe_oom_kills(root.path()), Err(ReadingError::Malformed { .. })));
    }

    #[test]
    fn the_tighter_of_two_hierarchies_binds_and_the_machine_may_have_less_than_a_group_leaves() {
        let hybrid = |v1: &str, v2: &str| {
            observed(&[
                ("proc/self/cgroup", "4:memory:/a\n0::/b\n"),
                ("proc/self/mountinfo", V1),
                ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", v1),
                ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "0\n"),
                ("sys/fs/cgroup/unified/b/memory.max", v2),
                ("sys/fs/cgroup/unified/b/memory.current", "0\n"),
            ])
        };
        let (two, twelve) = ("2147483648\n", "12884901888\n");
        assert_eq!(hybrid(two, twelve).limit, Some(Bytes::gib(2)));
        assert_eq!(hybrid(twelve, two).limit, Some(Bytes::gib(2)));
        let wide = hybrid(twelve, "max\n");
        assert_eq!((wide.limit, wide.available), (Some(Bytes::gib(12)), Bytes::gib(8)), "MemAvailable is less");
    }

    #[test]
    fn missing_figures_are_errors() {
        let root = machine(&[("proc/meminfo", "MemTotal: 5 kB\n")]);
        assert!(matches!(observe_ram(root.path()), Err(ReadingError::Malformed { what: "MemAvailable", .. })));
        let nothing = tempfile::tempdir().expect("a temporary directory");
        assert!(matches!(observe_ram(nothing.path()), Err(ReadingError::Unreadable { .. })));
    }

    #[test]
    fn this_machine_can_be_read() {
        let ram = observe_ram(Path::new("/")).expect("linux");
        assert!(ram.available <= ram.total && ram.usable() <= ram.total && !ram.usable().is_zero());
    }
}
