//! Processes as Linux tells of them: files of `/proc/<pid>`.
use crate::{
    process::{ProcessFacts, ProcessMemory},
    ram::kib_field,
};
use motorpool_vocab::Bytes;
use nix::{
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use std::{fs, io, path::PathBuf, time::Duration};

impl ProcessFacts {
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

pub(crate) fn process(pid: u32) -> io::Result<ProcessFacts> {
    // A name need not be UTF-8.
    let text = fs::read(format!("/proc/{pid}/stat"))?;
    ProcessFacts::parse(&String::from_utf8_lossy(&text)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

pub(crate) fn memory(pid: u32) -> io::Result<ProcessMemory> {
    let text = fs::read(format!("/proc/{pid}/status"))?;
    let text = String::from_utf8_lossy(&text);
    let field = |name| kib_field(&text, name).unwrap_or(Bytes::ZERO);
    Ok(ProcessMemory {
        anonymous: field("RssAnon:"),
        swapped: field("VmSwap:"),
        file: field("RssFile:").saturating_add(field("RssShmem:")),
    })
}

pub(crate) fn io(pid: u32) -> io::Result<Bytes> {
    let text = fs::read_to_string(format!("/proc/{pid}/io"))?;
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).map(Bytes::new);
    let both = of("rchar:").zip(of("wchar:"));
    both.map(|(read, written)| read.saturating_add(written)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

pub(crate) fn cpu_time(pid: u32) -> Option<Duration> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
    clock_gettime(clock).ok().map(Duration::from)
}

pub(crate) fn processor_name() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|before| before.trim() == "model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

pub(crate) fn executable(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

pub(crate) fn clean_file_ranges() -> Vec<(usize, usize)> {
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

pub(crate) fn n_open_fds(pid: u32) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().count())
}

pub(crate) fn pids() -> io::Result<Vec<u32>> {
    let names = fs::read_dir("/proc")?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    Ok(names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
}

/// Entries, each with a zero after it.
pub(crate) fn environment(pid: u32) -> io::Result<Vec<u8>> {
    fs::read(format!("/proc/{pid}/environ"))
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
    fn only_unchanged_pages_of_files_are_clean() {
        let smaps = "1000-2000 r-xp 00000000 fe:00 1 /bin/engine\nRss: 4 kB\nAnonymous:             0 kB\n\
                     2000-3000 r--p 00001000 fe:00 1 /bin/engine\nAnonymous:             4 kB\n\
                     3000-4000 rw-p 00002000 fe:00 1 /bin/engine\nAnonymous:             0 kB\n\
                     4000-5000 r-xp 00000000 00:00 0 [vdso]\nAnonymous:             0 kB\n\
                     5000-6000 r--p 00000000 00:00 0\nAnonymous:             0 kB\n";
        assert_eq!(clean_ranges(smaps), [(0x1000, 0x2000)]);
        assert!(!clean_file_ranges().is_empty());
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
