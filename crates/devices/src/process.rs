//! Facts about processes, as `/proc` tells them at one instant.
//!
//! A process id alone is no identity: between reading it and using it the process may be gone and the id another's.
//! Whoever acts on what is read here opens a pidfd first and reads afterwards; id and start time together name one
//! process of one boot. Whatever cannot be read (gone, another user's) is `None` or left out.
use crate::ram::kib_field;
use motorpool_vocab::Bytes;
use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::PathBuf,
};

/// One process at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Its id.
    pub pid: u32,
    /// The name of its program, at most 15 bytes, as the process likes to be called.
    pub name: String,
    /// The kernel's letter for its state; `Z` is a zombie.
    pub state: char,
    /// Its parent.
    pub ppid: u32,
    /// Its process group.
    pub pgid: u32,
    /// Its session.
    pub sid: u32,
    /// When it was forked, in clock ticks since boot. Unchanged by exec.
    pub start_time: u64,
    /// Processor time spent, user and system, in clock ticks.
    pub cpu_ticks: u64,
    /// Resident memory, of all kinds, in pages.
    pub rss_pages: u64,
}

impl ProcessFacts {
    /// Whether it runs no more and only waits to be reaped.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Resident memory, of all kinds.
    pub fn rss(&self) -> Bytes {
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
        Bytes::new(self.rss_pages).saturating_mul(page.and_then(|n| u64::try_from(n).ok()).unwrap_or(4096))
    }

    /// Reads the one line of `/proc/<pid>/stat`. The name stands in parentheses and may hold blanks, newlines and
    /// parentheses itself, so the *last* one ends it.
    fn parse(text: &str) -> Option<Self> {
        let (pid, rest) = text.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc(5) counts from 1 and the state is its third field.
        let field = |n: usize| fields.get(n - 3).copied();
        let number = |n: usize| field(n)?.parse::<u64>().ok();
        let id = |n: usize| field(n)?.parse::<u32>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            name: name.to_owned(),
            state: field(3)?.chars().next()?,
            ppid: id(4)?,
            pgid: id(5)?,
            sid: id(6)?,
            cpu_ticks: number(14)?.saturating_add(number(15)?),
            start_time: number(22)?,
            rss_pages: number(24)?,
        })
    }
}

/// Resident memory of one process by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Anonymous pages in memory.
    pub anonymous: Bytes,
    /// Anonymous pages swapped out.
    pub swapped: Bytes,
    /// File and shared-memory pages mapped and in memory.
    pub file: Bytes,
}

/// One process, or `None` when there is none by this id.
pub fn observe_process(pid: u32) -> Option<ProcessFacts> {
    // A name need not be UTF-8.
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    ProcessFacts::parse(&String::from_utf8_lossy(&text))
}

/// Memory of one process by kind; `None` when it is gone. A kernel thread or zombie has none.
pub fn observe_memory(pid: u32) -> Option<ProcessMemory> {
    let text = fs::read(format!("/proc/{pid}/status")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let field = |name| kib_field(&text, name).unwrap_or(Bytes::ZERO);
    Some(ProcessMemory {
        anonymous: field("RssAnon:"),
        swapped: field("VmSwap:"),
        file: field("RssFile:").saturating_add(field("RssShmem:")),
    })
}

/// Bytes that a process has read and written so far, by any means. `None` when it is gone or another user's.
pub fn observe_io(pid: u32) -> Option<Bytes> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).map(Bytes::new);
    Some(of("rchar:")?.saturating_add(of("wchar:")?))
}

/// The program file that a process runs. A deleted one ends in ` (deleted)`.
pub fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Address ranges of this process that show a file as it is: mapped from one, not writable, no page of it changed.
pub fn clean_file_ranges() -> Vec<(usize, usize)> {
    fs::read_to_string("/proc/self/smaps").map(|smaps| clean_ranges(&smaps)).unwrap_or_default()
}

/// `smaps` has a head line for each mapping (`<start>-<end> <permissions> … <path>`) and lines `Name: n kB` below.
fn clean_ranges(smaps: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut current = None;
    for line in smaps.lines() {
        if let Some(mapping) = Mapping::parse(line) {
            current = Some(mapping).filter(|mapping| mapping.is_read_only_file);
        } else if let (Some(mapping), Some("0")) = (&current, kib_text(line, "Anonymous:")) {
            found.push(mapping.range);
        }
    }
    found
}

struct Mapping {
    range: (usize, usize),
    is_read_only_file: bool,
}

impl Mapping {
    fn parse(head: &str) -> Option<Self> {
        let (range, rest) = head.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        let is_file = rest.split_ascii_whitespace().nth(4).is_some_and(|path| path.starts_with('/'));
        let is_read_only_file = is_file && rest.starts_with("r-");
        Some(Self { range: (address(start)?, address(end)?), is_read_only_file })
    }
}

fn kib_text<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.strip_prefix(name)?.trim().strip_suffix(" kB")
}

/// How many descriptors a process holds.
pub fn n_open_fds(pid: u32) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().count())
}

/// Every process id there is.
pub fn pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Every process there is.
pub fn processes() -> Vec<ProcessFacts> {
    pids().into_iter().filter_map(observe_process).collect()
}

/// Whether the environment that a process was started with holds exactly `NAME=value`. `None` when it cannot be
/// read: gone, another user's, or a program that hides it. A zombie's is empty.
pub fn has_environment(pid: u32, entry: &str) -> Option<bool> {
    let block = environment_block(pid)?;
    Some(block.split(|byte| *byte == 0).any(|found| found == entry.as_bytes()))
}

/// The value of `name` in the environment that a process was started with.
pub fn environment_value(pid: u32, name: &str) -> Option<OsString> {
    let block = environment_block(pid)?;
    let value = |found: &[u8]| found.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
    block.split(|byte| *byte == 0).find_map(value).map(OsString::from_vec)
}

fn environment_block(pid: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/environ")).ok()
}

/// Every process whose environment holds exactly `NAME=value`.
pub fn processes_with(entry: &str) -> Vec<u32> {
    pids().into_iter().filter(|pid| has_environment(*pid, entry) == Some(true)).collect()
}

/// Children of `pid`, their children, and so on, nearest first; without `pid` itself.
pub fn descendants(pid: u32) -> Vec<u32> {
    descendants_in(&processes(), pid)
}

/// [`descendants`], as far as `table` knows them.
pub fn descendants_in(table: &[ProcessFacts], pid: u32) -> Vec<u32> {
    below(pid, table.iter().map(|process| (process.pid, process.ppid)))
}

fn below(top: u32, parents: impl IntoIterator<Item = (u32, u32)>) -> Vec<u32> {
    let mut children = BTreeMap::<u32, Vec<u32>>::new();
    for (pid, parent) in parents {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = Vec::new();
    let mut next = VecDeque::from([top]);
    while let Some(pid) = next.pop_front() {
        // Taken out, so that a table torn by recycled ids cannot lead in a circle.
        for child in children.remove(&pid).unwrap_or_default() {
            found.push(child);
            next.push_back(child);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str =
        "41 (tmux: (x) ) R 1 40 39 0 -1 4194560 1 2 3 4 7 5 0 0 20 0 1 0 123456 1000 250 18446744073709551615 1";

    #[test]
    fn a_name_with_parentheses_and_blanks_shifts_no_field() {
        let facts = ProcessFacts::parse(LINE).expect("a process");
        assert_eq!((facts.pid, facts.name.as_str(), facts.state), (41, "tmux: (x) ", 'R'));
        assert_eq!((facts.ppid, facts.pgid, facts.sid), (1, 40, 39));
        assert_eq!((facts.cpu_ticks, facts.start_time, facts.rss_pages), (12, 123_456, 250));
        assert!(!facts.is_zombie());
    }

    #[test]
    fn this_process_knows_itself() {
        let me = std::process::id();
        let facts = observe_process(me).expect("it runs");
        assert_eq!(facts.pid, me);
        assert!(facts.rss() > Bytes::ZERO && facts.start_time > 0);
        let program = executable(me).expect("it runs");
        assert!(program.is_absolute() && program.is_file(), "{}", program.display());
        assert!(n_open_fds(me).is_some_and(|n| n >= 3));
        assert!(observe_memory(me).is_some_and(|memory| memory.anonymous > Bytes::ZERO));
        assert!(observe_io(me).is_some_and(|bytes| bytes > Bytes::ZERO));
        assert!(processes().iter().any(|process| process.pid == me));
        assert!(descendants(facts.ppid).contains(&me));
    }

    #[test]
    fn an_environment_entry_is_matched_whole() {
        let me = std::process::id();
        let path = environment_value(me, "PATH").expect("tests run with a PATH");
        let entry = format!("PATH={}", path.display());
        assert_eq!(has_environment(me, &entry), Some(true));
        assert_eq!(has_environment(me, "PATH="), Some(false), "a prefix is no match");
        assert_eq!(has_environment(me, &format!("{entry}x")), Some(false));
        assert_eq!(environment_value(me, "PAT"), None);
        assert!(processes_with(&entry).contains(&me));
    }

    #[test]
    fn only_unchanged_pages_of_files_are_clean() {
        let smaps = "1000-2000 r-xp 00000000 fe:00 1 /bin/engine\nRss: 4 kB\nAnonymous:             0 kB\n\
                     2000-3000 r--p 00001000 fe:00 1 /bin/engine\nAnonymous:             4 kB\n\
                     3000-4000 rw-p 00002000 fe:00 1 /bin/engine\nAnonymous:             0 kB\n\
                     4000-5000 r-xp 00000000 00:00 0 [vdso]\nAnonymous:             0 kB\n\
                     5000-6000 r--p 00000000 00:00 0\nAnonymous:             0 kB\n";
        assert_eq!(clean_ranges(smaps), [(0x1000, 0x2000)]);
        assert!(!clean_file_ranges().is_empty());
    }

    #[test]
    fn nobody_is_nothing() {
        assert_eq!(observe_process(u32::MAX), None);
        assert_eq!(has_environment(u32::MAX, "A=b"), None);
        assert_eq!(executable(u32::MAX), None);
        assert_eq!(n_open_fds(u32::MAX), None);
    }

    #[test]
    fn descendants_are_found_through_every_generation_and_in_no_circle() {
        assert_eq!(below(1, [(2, 1), (3, 2), (4, 3), (9, 8), (5, 1)]), [2, 5, 3, 4]);
        assert_eq!(below(1, [(2, 1), (1, 2)]), [2, 1]);
    }

    proptest! {
        #[test]
        fn no_text_is_taken_for_a_process_by_panicking(text in "\\PC{0,80}", cut in 0usize..120) {
            let _ = ProcessFacts::parse(&text);
            let _ = ProcessFacts::parse(LINE.get(..cut).unwrap_or(LINE));
        }

        #[test]
        fn any_name_is_read_back(name in "[^\u{0}]{0,15}") {
            let line = LINE.replace("tmux: (x) ", &name);
            prop_assert_eq!(ProcessFacts::parse(&line).map(|facts| facts.name), Some(name));
        }
    }
}
