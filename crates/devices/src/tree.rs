//! Memory of a process and all below it, by kind, and the files it has mapped.
//!
//! A sum in which one process could not be read is `None`: it would be too small. A process that is gone, and a
//! zombie, has nothing and is no gap.
use crate::ram::kib_field;
use motorpool_vocab::Bytes;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Memory of one tree of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeMemory {
    /// Its share of what is resident: pages that several processes map are divided among them. Not told by macOS.
    pub pss: Option<Bytes>,
    /// Anonymous pages in memory, its own alone but for pages shared after a fork. On macOS its footprint, in which swapped
    /// pages and those of a graphics part are.
    pub anonymous: Option<Bytes>,
    /// Anonymous pages swapped out. On macOS none beside the footprint.
    pub swapped: Option<Bytes>,
}

/// Sums over `pids`, each of the tree once. `root` is `/` but in tests. Asking for the share makes the kernel walk
/// every page table: milliseconds for each GiB.
pub fn observe_tree(root: &Path, pids: &[u32]) -> TreeMemory {
    let mut pss = Some(Bytes::ZERO);
    for pid in pids {
        let rollup = File::read(&root.join(format!("proc/{pid}/smaps_rollup")));
        add(&mut pss, rollup.field("Pss:", "Rss:"));
    }
    TreeMemory { pss, ..observe_private(root, pids) }
}

/// [`observe_tree`] without the share: the kernel has these sums at hand.
pub fn observe_private(root: &Path, pids: &[u32]) -> TreeMemory {
    #[cfg(target_os = "macos")]
    if root == Path::new("/") {
        return crate::darwin::private(pids);
    }
    let mut tree = TreeMemory { pss: None, anonymous: Some(Bytes::ZERO), swapped: Some(Bytes::ZERO) };
    for pid in pids {
        let status = File::read(&root.join(format!("proc/{pid}/status")));
        add(&mut tree.anonymous, status.field("RssAnon:", "VmRSS:"));
        add(&mut tree.swapped, status.field("VmSwap:", "VmRSS:"));
    }
    tree
}

fn add(sum: &mut Option<Bytes>, more: Option<Bytes>) {
    *sum = sum.zip(more).map(|(sum, more)| sum.saturating_add(more));
}

/// A file of one process.
enum File {
    Text(String),
    Gone,
    Unreadable,
}

impl File {
    fn read(path: &Path) -> Self {
        match fs::read(path) {
            Ok(text) => Self::Text(String::from_utf8_lossy(&text).into_owned()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Self::Gone,
            // It went between opening and reading, or is a zombie.
            Err(e) if e.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32) => Self::Gone,
            Err(_) => Self::Unreadable,
        }
    }

    /// A field that every process with memory of its own has if it has `witness`.
    fn field(&self, name: &str, witness: &str) -> Option<Bytes> {
        match self {
            Self::Text(text) if text.lines().any(|line| line.starts_with(witness)) => kib_field(text, name),
            Self::Text(_) | Self::Gone => Some(Bytes::ZERO),
            Self::Unreadable => None,
        }
    }
}

/// Bytes of each file that at least one of `pids` has mapped; parts mapped twice count once. `None` when one of them
/// lives and cannot be read. Only what stays mapped counts: an engine unmaps what it copied to a device.
pub fn observe_mapped_files(root: &Path, pids: &[u32]) -> Option<BTreeMap<PathBuf, Bytes>> {
    let mut parts = BTreeMap::<PathBuf, Vec<(u64, u64)>>::new();
    for pid in pids {
        for (path, from, to) in mapped_parts(root, *pid)? {
            parts.entry(path).or_default().push((from, to));
        }
    }
    Some(parts.into_iter().map(|(path, parts)| (path, covered(parts))).collect())
}

/// Which parts of which files `pid` has mapped.
fn mapped_parts(root: &Path, pid: u32) -> Option<Vec<(PathBuf, u64, u64)>> {
    #[cfg(target_os = "macos")]
    if root == Path::new("/") {
        return crate::darwin::mapped_files(pid);
    }
    match File::read(&root.join(format!("proc/{pid}/maps"))) {
        File::Text(text) => Some(text.lines().filter_map(parse_mapping).collect()),
        File::Gone => Some(vec![]),
        File::Unreadable => None,
    }
}

/// `<start>-<end> <permissions> <offset> <device> <inode> <path>`: which part of which file.
fn parse_mapping(line: &str) -> Option<(PathBuf, u64, u64)> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let offset = hex(fields.nth(1)?)?;
    let path = fields.nth(2)?.trim_start();
    let length = hex(end)?.checked_sub(hex(start)?)?;
    path.starts_with('/').then(|| Some((path.into(), offset, offset.checked_add(length)?)))?
}

/// How much the ranges cover together.
fn covered(mut ranges: Vec<(u64, u64)>) -> Bytes {
    ranges.sort_unstable();
    let (mut sum, mut reached) = (0u64, 0u64);
    for (from, to) in ranges {
        sum = sum.saturating_add(to.saturating_sub(from.max(reached)));
        reached = reached.max(to);
    }
    Bytes::new(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_vocab::KIB;
    use proptest::prelude::*;
    use std::process;
    use tempfile::TempDir;

    fn machine(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().expect("a temporary directory");
        for (name, text) in files {
            let path = root.path().join("proc").join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, text).expect("writable");
        }
        root
    }

    const ROLLUP: &str = "5d0-7ff ---p 00000000 00:00 0 [rollup]\nRss: 300 kB\nPss:  200 kB\nPss_Anon: 90 kB\n";
    const STATUS: &str = "Name:\tx\nVmRSS:\t300 kB\nRssAnon:\t100 kB\nRssFile:\t200 kB\nVmSwap:\t  8 kB\n";

    fn kib(n: u64) -> Bytes {
        Bytes::new(n * KIB)
    }

    fn tree(pss: u64, anonymous: u64, swapped: u64) -> TreeMemory {
        TreeMemory { pss: Some(kib(pss)), anonymous: Some(kib(anonymous)), swapped: Some(kib(swapped)) }
    }

    #[test]
    fn a_tree_is_the_sum_of_its_processes() {
        let files =
            [("1/smaps_rollup", ROLLUP), ("1/status", STATUS), ("2/smaps_rollup", ROLLUP), ("2/status", STATUS)];
        let root = machine(&files);
        let expected = tree(400, 200, 16);
        assert_eq!(observe_tree(root.path(), &[1, 2]), expected);
        assert_eq!(observe_tree(root.path(), &[1, 2, 3]), expected, "one that is gone holds nothing");
        assert_eq!(observe_private(root.path(), &[1, 2, 3]), TreeMemory { pss: None, ..expected });
    }

    #[test]
    fn a_zombie_holds_nothing() {
        let root = machine(&[("1/smaps_rollup", ""), ("1/status", "Name:\tx\nState:\tZ (zombie)\n")]);
        assert_eq!(observe_tree(root.path(), &[1]), tree(0, 0, 0));
    }

    #[test]
    fn a_part_that_cannot_be_read_makes_its_sum_unknown_and_no_other() {
        let root = machine(&[("1/status", STATUS), ("2/smaps_rollup", ROLLUP), ("2/status", STATUS)]);
        // A folder in place of the file: not readable, whoever asks.
        fs::create_dir(root.path().join("proc/1/smaps_rollup")).expect("writable");
        let expected = TreeMemory { pss: None, ..tree(0, 200, 16) };
        assert_eq!(observe_tree(root.path(), &[1, 2]), expected);
    }

    #[test]
    fn a_kernel_that_does_not_tell_a_field_is_not_zero() {
        let root = machine(&[("1/smaps_rollup", "Rss: 3 kB\n"), ("1/status", "VmRSS:\t3 kB\nVmSwap:\t8 kB\n")]);
        let expected = TreeMemory { pss: None, anonymous: None, ..tree(0, 0, 8) };
        assert_eq!(observe_tree(root.path(), &[1]), expected);
    }

    #[test]
    fn this_process_has_memory() {
        let tree = observe_tree(Path::new("/"), &[process::id()]);
        let is_there = |part: Option<Bytes>| part.is_some_and(|bytes| !bytes.is_zero());
        assert!(is_there(tree.pss) && is_there(tree.anonymous) && tree.swapped.is_some(), "{tree:?}");
        let files = observe_mapped_files(Path::new("/"), &[process::id()]).expect("ours");
        assert!(files.values().any(|bytes| !bytes.is_zero()));
    }

    const MAPS: &str = "1000-3000 r--s 00000000 fe:00 12 /models/a b.gguf\n3000-5000 r--s 00004000 fe:00 12 /models/a b.gguf\n\
                        9000-a000 rw-p 00000000 00:00 0 \nb000-c000 r-xp 00000000 fe:00 9                  /lib/libc.so\n\
                        d000-e000 rw-p 00000000 00:00 0                          [heap]\nnonsense\n";

    #[test]
    fn a_file_is_counted_once_however_many_map_it() {
        let second = "1000-4000 r--s 00001000 fe:00 12 /models/a b.gguf\n";
        let root = machine(&[("1/maps", MAPS), ("2/maps", second)]);
        let of = |pids: &[u32]| observe_mapped_files(root.path(), pids).expect("readable");
        let model = Path::new("/models/a b.gguf");
        assert_eq!(of(&[1])[model], Bytes::new(0x4000));
        assert_eq!(of(&[1, 2])[model], Bytes::new(0x6000), "0–2000 and 1000–4000 and 4000–6000");
        assert_eq!(of(&[1]).len(), 2, "no heap, no anonymous part");
        assert_eq!(of(&[9]), BTreeMap::new());
    }

    #[test]
    fn maps_that_cannot_be_read_are_not_none_mapped() {
        let root = machine(&[("1/maps", MAPS)]);
        fs::create_dir_all(root.path().join("proc/2/maps")).expect("writable");
        assert_eq!(observe_mapped_files(root.path(), &[1, 2]), None);
    }

    proptest! {
        #[test]
        fn no_line_is_taken_for_a_mapping_by_panicking(line in "([0-9a-f]{0,17}[- :]?){0,8}/?\\PC{0,8}") {
            let _ = parse_mapping(&line);
        }

        #[test]
        fn covered_is_what_a_count_of_each_byte_says(ranges in prop::collection::vec((0u64..40, 0u64..40), 0..6)) {
            let ranges: Vec<_> = ranges.into_iter().map(|(from, length)| (from, from + length)).collect();
            let counted = (0..80).filter(|at| ranges.iter().any(|(from, to)| (*from..*to).contains(at))).count();
            prop_assert_eq!(covered(ranges), Bytes::new(counted as u64));
        }
    }
}
