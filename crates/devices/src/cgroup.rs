//! Memory limits of the control groups around this process, and deaths in ours: v1, v2, or both side by side; our own
//! group of v2, and who is in a group.
//!
//! The kernel charges a process to its group and to every group above it, so the whole path counts. Where a group
//! is mounted is read from `mountinfo`, not assumed: in a container the mount shows only our own part of the tree.
use crate::{ReadingError, check_supported, process::unless_we_lack, read};
use motorpool_vocab::Bytes;
use std::{
    io,
    path::{Path, PathBuf},
};

/// What the groups leave us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    /// The smallest limit.
    pub(crate) limit: Option<Bytes>,
    /// The least that any limited group has left.
    pub(crate) available: Option<Bytes>,
}

/// The file names of one version, and how its statistics are called.
struct Version {
    limits: &'static [&'static str],
    usage: &'static str,
    reclaimable: &'static [&'static str],
    inherited_limit: Option<&'static str>,
    /// Where deaths for want of memory are counted, as `oom_kill <n>`.
    kills: &'static str,
}

// `memory.high` does not kill but throttles to a crawl, so it is as good as a limit.
static V2: Version = Version {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    reclaimable: &["inactive_file", "active_file", "slab_reclaimable"],
    inherited_limit: None,
    kills: "memory.events",
};
static V1: Version = Version {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    reclaimable: &["total_inactive_file", "total_active_file"],
    inherited_limit: Some("hierarchical_memory_limit"),
    kills: "memory.oom_control",
};
/// v1 has no word for "no limit", only a number near 2^63.
const V1_NO_LIMIT: u64 = 1 << 62;

/// The tightest bound over all groups around us. No control groups at all is no bound.
pub(crate) fn observe_bound(root: &Path) -> Result<Bound, ReadingError> {
    let (Some(groups), Some(mounts)) =
        (optional(root.join("proc/self/cgroup"))?, optional(root.join("proc/self/mountinfo"))?)
    else {
        return Ok(Bound::default());
    };
    let mut bound = Bound::default();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let Some(group) = mount.group_in(&groups) else { continue };
        for folder in mount.folders(root, group) {
            bound = tighter(bound, observe_folder(&folder, mount.version)?);
        }
    }
    Ok(bound)
}

/// How many processes of our control group the kernel has killed for want of memory; with v2 those of the groups
/// below too. `None`: nobody counts, for there is no group, or an old kernel. `root` is `/` but in tests.
pub fn observe_oom_kills(root: &Path) -> Result<Option<u64>, ReadingError> {
    check_supported()?;
    let (Some(groups), Some(mounts)) =
        (optional(root.join("proc/self/cgroup"))?, optional(root.join("proc/self/mountinfo"))?)
    else {
        return Ok(None);
    };
    for mount in mounts.lines().filter_map(Mount::parse) {
        let folder = mount.group_in(&groups).and_then(|group| mount.folders(root, group).into_iter().next());
        let Some(path) = folder.map(|folder| folder.join(mount.version.kills)) else { continue };
        let Some(text) = optional(path.clone())? else { continue };
        if let Some(count) = kills_in(&text) {
            let malformed = ReadingError::Malformed { path, what: "number of kills" };
            return count.parse().map(Some).map_err(|_| malformed);
        }
    }
    Ok(None)
}

/// How many processes of the control group (v2) in `folder`, and of those below it, the kernel has killed for want of
/// memory. `None` where memory is not this group's to count, or where there is no such group.
pub fn group_oom_kills(folder: &Path) -> Option<u64> {
    kills_in(&std::fs::read_to_string(folder.join(V2.kills)).ok()?)?.parse().ok()
}

/// The count that a file of events holds.
fn kills_in(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")).map(str::trim)
}

/// The folder of our own control group of version 2; `None` where there is none, or where it is not shown to us.
/// `root` is `/` but in tests.
pub fn own_group(root: &Path) -> Option<PathBuf> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = std::fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let mount = mounts.lines().filter_map(Mount::parse).find(|mount| mount.version.inherited_limit.is_none())?;
    let below = Path::new(mount.group_in(&groups)?).strip_prefix(&mount.top).ok()?;
    let plain = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    plain.then(|| root.join(mount.point.trim_start_matches('/')).join(below))
}

/// Every process of the control group (v2) in `folder` and of those below it. None where there is no such group; an error
/// says that *we* could not look.
pub fn group_members(folder: &Path) -> io::Result<Vec<u32>> {
    let text = unless_we_lack(std::fs::read_to_string(folder.join("cgroup.procs")))?.unwrap_or_default();
    // 0 is one that our process ids do not reach.
    let mut found: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect();
    for below in groups_below(folder)? {
        found.extend(group_members(&below)?);
    }
    Ok(found)
}

/// The control groups right below the one in `folder`; an error says that *we* could not look.
pub fn groups_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = unless_we_lack(std::fs::read_dir(folder))?.into_iter().flatten().flatten();
    Ok(entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect())
}

fn tighter(a: Bound, b: Bound) -> Bound {
    let least = |a: Option<Bytes>, b: Option<Bytes>| a.into_iter().chain(b).min();
    Bound { limit: least(a.limit, b.limit), available: least(a.available, b.available) }
}

/// One mount of a memory hierarchy.
struct Mount {
    version: &'static Version,
    /// Which part of the tree is mounted.
    top: String,
    /// Where.
    point: String,
}

impl Mount {
    /// Reads a line of `mountinfo`: `36 35 98:0 <top> <point> <options> … - <type> <source> <super options>`.
    fn parse(line: &str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let mut back = back.split(' ');
        let version = match (back.next()?, back.nth(1)?) {
            ("cgroup2", _) => &V2,
            ("cgroup", options) if options.split(',').any(|option| option == "memory") => &V1,
            _ => return None,
        };
        let mut front = front.split(' ').skip(3).map(unescape);
        Some(Self { version, top: front.next()?, point: front.next()? })
    }

    /// Our group in this hierarchy, from `/proc/self/cgroup`: lines `<id>:<controllers>:<group>`.
    fn group_in<'a>(&self, groups: &'a str) -> Option<&'a str> {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, group) = (parts.next()?, parts.next()?);
            let ours = match self.version.inherited_limit {
                None => controllers.is_empty(),
                Some(_) => controllers.split(',').any(|controller| controller == "memory"),
            };
            ours.then_some(group)
        })
    }

    /// The folders of our group and of every group above it that this mount shows, innermost first.
    fn folders(&self, root: &Path, group: &str) -> Vec<PathBuf> {
        let point = root.join(self.point.trim_start_matches('/'));
        // A group outside the mounted part (`/../x` in a namespace): only the mount's top is known to hold us.
        let below = Path::new(group).strip_prefix(&self.top).unwrap_or(Path::new(""));
        let plain = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        let innermost = if plain { point.join(below) } else { point.clone() };
        innermost.ancestors().take_while(|folder| folder.starts_with(&point)).map(Path::to_owned).collect()
    }
}

/// `mountinfo` writes blanks and backslashes as `\040`.
fn unescape(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

fn observe_folder(folder: &Path, version: &Version) -> Result<Bound, ReadingError> {
    let mut limit = None;
    for name in version.limits {
        limit = limit.into_iter().chain(read_limit(folder.join(name))?).min();
    }
    let stat = optional(folder.join("memory.stat"))?.unwrap_or_default();
    let of = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    let inherited = version.inherited_limit.and_then(of).filter(|n| *n < V1_NO_LIMIT).map(Bytes::new);
    let Some(limit) = limit.into_iter().chain(inherited).min() else { return Ok(Bound::default()) };
    let (path, text) = read(folder.join(version.usage))?;
    let usage = number(path, &text)?;
    let reclaimable = Bytes::sum(version.reclaimable.iter().filter_map(|name| of(name)).map(Bytes::new));
    let available = limit.saturating_sub(usage.saturating_sub(reclaimable));
    Ok(Bound { limit: Some(limit), available: Some(available) })
}

/// `None` for no limit and for no such file (the top group of v2 has none).
fn read_limit(path: PathBuf) -> Result<Option<Bytes>, ReadingError> {
    match optional(path.clone())? {
        None => Ok(None),
        Some(text) if text.trim() == "max" => Ok(None),
        Some(text) => Ok(Some(number(path, &text)?).filter(|n| n.get() < V1_NO_LIMIT)),
    }
}

fn number(path: PathBuf, text: &str) -> Result<Bytes, ReadingError> {
    let malformed = ReadingError::Malformed { path, what: "number of bytes" };
    text.trim().parse().map(Bytes::new).map_err(|_| malformed)
}

fn optional(path: PathBuf) -> Result<Option<String>, ReadingError> {
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ReadingError::Unreadable { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(line: &str) -> Mount {
        Mount::parse(line).expect("a memory hierarchy")
    }

    #[test]
    fn only_memory_hierarchies_are_mounts() {
        assert!(Mount::parse("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu").is_none());
        assert!(Mount::parse("22 27 0:21 / /proc rw,relatime - proc proc rw").is_none());
        assert!(Mount::parse("nonsense").is_none());
        assert_eq!(mount("1 2 0:3 / /a\\040b rw shared:1 - cgroup2 none rw").point, "/a b");
    }

    #[test]
    fn a_path_leads_from_our_group_to_the_top_of_the_mount() {
        let whole = mount("1 2 0:3 / /cg rw - cgroup2 none rw");
        let folders = whole.folders(Path::new("/under"), "/a/b");
        assert_eq!(folders, ["/under/cg/a/b", "/under/cg/a", "/under/cg"].map(PathBuf::from));
        let part = mount("1 2 0:3 /docker/x /cg rw - cgroup2 none rw");
        assert_eq!(part.folders(Path::new("/"), "/docker/x/y"), ["/cg/y", "/cg"].map(PathBuf::from));
        assert_eq!(part.folders(Path::new("/"), "/elsewhere"), ["/cg"].map(PathBuf::from));
        assert_eq!(whole.folders(Path::new("/"), "/../up"), ["/cg"].map(PathBuf::from));
    }

    #[test]
    fn our_group_is_found_by_controller() {
        let groups = "11:cpu,cpuacct:/no\n4:memory,hugetlb:/yes:with:colons\n0::/two\n";
        assert_eq!(mount("1 2 0:3 / /cg rw - cgroup none rw,memory").group_in(groups), Some("/yes:with:colons"));
        assert_eq!(mount("1 2 0:3 / /cg rw - cgroup2 none rw").group_in(groups), Some("/two"));
    }

    fn machine(groups: &str, mounts: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir_all(root.path().join("proc/self")).expect("made");
        std::fs::write(root.path().join("proc/self/cgroup"), groups).expect("written");
        std::fs::write(root.path().join("proc/self/mountinfo"), mounts).expect("written");
        root
    }

    #[test]
    fn our_own_group_is_that_of_version_2_and_none_where_it_is_not_shown() {
        let hybrid = "1 2 0:3 / /cg/memory rw - cgroup none rw,memory\n1 2 0:4 / /cg/two rw - cgroup2 none rw\n";
        let root = machine("4:memory:/m\n0::/a/b\n", hybrid);
        assert_eq!(own_group(root.path()), Some(root.path().join("cg/two/a/b")));
        for (groups, mounts) in [
            ("4:memory:/m\n", hybrid),
            ("0::/../up\n", hybrid),
            ("0::/elsewhere\n", "1 2 0:4 /docker/x /cg rw - cgroup2 none rw\n"),
            ("0::/a\n", "1 2 0:3 / /cg/memory rw - cgroup none rw,memory\n"),
        ] {
            assert_eq!(own_group(machine(groups, mounts).path()), None, "{groups} {mounts}");
        }
    }

    #[test]
    fn deaths_in_a_group_are_counted_where_memory_is_its_to_count() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(group_oom_kills(folder.path()), None);
        for (text, kills) in [
            ("low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 1\n", Some(3)),
            ("low 0\noom 4\n", None),
            ("oom_kill many\n", None),
        ] {
            std::fs::write(folder.path().join("memory.events"), text).expect("written");
            assert_eq!(group_oom_kills(folder.path()), kills, "{text}");
        }
    }

    #[test]
    fn members_are_those_of_the_groups_below_too() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(folder.path().join("sub")).expect("made");
        std::fs::write(folder.path().join("cgroup.procs"), "7\n0\n9\n").expect("written");
        std::fs::write(folder.path().join("sub/cgroup.procs"), "11\n").expect("written");
        assert_eq!(group_members(folder.path()).expect("readable"), [7, 9, 11]);
        assert_eq!(group_members(&folder.path().join("absent")).expect("nobody"), [0; 0]);
    }
}
