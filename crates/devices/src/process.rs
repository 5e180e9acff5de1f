//! Facts about processes, as the kernel tells them at one instant: through `/proc` (`proc_fs.rs`), on macOS through
//! `libproc` and `sysctl` (`darwin/`).
//!
//! A process id alone is no identity: between reading it and using it the process may be gone and the id another's.
//! Whoever acts on what is read here takes hold of the process first and reads afterwards; id and start time together
//! name one process of one boot. Whatever cannot be read (gone, another user's) is `None` or left out. Whoever concludes
//! from that that nobody is there asks where an error says that we could not look: [`look_at_processes`] and its like.
#[cfg(target_os = "macos")]
use crate::darwin as os;
#[cfg(not(target_os = "macos"))]
use crate::proc_fs as os;
use motorpool_vocab::Bytes;
use nix::errno::Errno;
use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    io,
    os::unix::ffi::OsStringExt,
    path::PathBuf,
    time::Duration,
};

/// One process at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Its id.
    pub pid: u32,
    /// The name of its program, cut (Linux: 15 bytes, macOS: 31), as the process likes to be called.
    pub name: String,
    /// The kernel's letter for its state; `Z` is a zombie.
    pub state: char,
    /// Its parent.
    pub ppid: u32,
    /// Its process group.
    pub pgid: u32,
    /// Its session; 0 where that is not told.
    pub sid: u32,
    /// When it was forked. Unchanged by exec. Linux: clock ticks since boot; macOS: microseconds since 1970.
    pub start_time: u64,
    /// Processor time spent, user and system: on Linux in clock ticks, on macOS in those of its own clock. What is not
    /// told (macOS, another user's process) is 0: this says only whether more was spent than before.
    pub cpu_ticks: u64,
    /// Resident memory, of all kinds, in pages. On macOS that of another user's process is not told, and 0.
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
}

/// Resident memory of one process by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Anonymous pages in memory. On macOS its footprint: what is compressed, swapped out or a graphics part's included.
    pub anonymous: Bytes,
    /// Anonymous pages swapped out. On macOS none: they are in the footprint.
    pub swapped: Bytes,
    /// File and shared-memory pages mapped and in memory. On macOS what is resident beyond the footprint, at least so much.
    pub file: Bytes,
}

/// One process, or `None` when there is none by this id, or none that can be looked at.
pub fn observe_process(pid: u32) -> Option<ProcessFacts> {
    look_at_process(pid).ok().flatten()
}

/// [`observe_process`], where an error says that *we* could not look, for want of descriptors or memory.
pub fn look_at_process(pid: u32) -> io::Result<Option<ProcessFacts>> {
    unless_we_lack(os::process(pid))
}

/// Of what could not be read, `None`: it is gone, or not ours to see. But an error that only says what we lack ourselves.
pub(crate) fn unless_we_lack<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) => match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => Err(error),
            _ => Ok(None),
        },
    }
}

/// Memory of one process by kind; `None` when it is gone (on macOS: or another user's). A kernel thread or zombie has none.
pub fn observe_memory(pid: u32) -> Option<ProcessMemory> {
    look_at_memory(pid).ok().flatten()
}

/// [`observe_memory`], where an error says that *we* could not look, for want of descriptors or memory.
pub fn look_at_memory(pid: u32) -> io::Result<Option<ProcessMemory>> {
    unless_we_lack(os::memory(pid))
}

/// Bytes that a process has read and written so far, by any means; on macOS those of disks alone. `None` when it is gone
/// or another user's.
pub fn observe_io(pid: u32) -> Option<Bytes> {
    look_at_io(pid).ok().flatten()
}

/// [`observe_io`], where an error says that *we* could not look, for want of descriptors or memory.
pub fn look_at_io(pid: u32) -> io::Result<Option<Bytes>> {
    unless_we_lack(os::io(pid))
}

/// The processor time that all threads of a process took so far, theirs and the kernel's for them. `None` when it is gone or
/// another user's.
pub fn observe_cpu_time(pid: u32) -> Option<Duration> {
    os::cpu_time(pid)
}

/// How the processor of this machine is called.
pub fn processor_name() -> Option<String> {
    os::processor_name()
}

/// The program file that a process runs. On Linux a deleted one ends in ` (deleted)`.
pub fn executable(pid: u32) -> Option<PathBuf> {
    os::executable(pid)
}

/// Address ranges of this process that show a file as it is: mapped from one, not writable, no page of it changed.
/// None where that is not told, as on macOS.
pub fn clean_file_ranges() -> Vec<(usize, usize)> {
    os::clean_file_ranges()
}

/// How many descriptors a process holds.
pub fn n_open_fds(pid: u32) -> Option<usize> {
    os::n_open_fds(pid)
}

/// Every process id there is. An error: nobody could be listed, which is not nobody.
pub fn pids() -> io::Result<Vec<u32>> {
    os::pids()
}

/// Every process that can be seen now; none when they cannot be listed.
pub fn processes() -> Vec<ProcessFacts> {
    pids().unwrap_or_default().into_iter().filter_map(observe_process).collect()
}

/// Every process there is, or why not all of them could be looked at.
pub fn look_at_processes() -> io::Result<Vec<ProcessFacts>> {
    pids()?.into_iter().filter_map(|pid| look_at_process(pid).transpose()).collect()
}

/// Whether the environment that a process was started with holds exactly `NAME=value`. `None` when it cannot be
/// read: gone, another user's, or a program that hides it. A zombie's is empty.
///
/// On macOS a zombie's cannot be read, and one that is empty cannot be told from one that is hidden: programs of the
/// system (`/bin/sh`) hide theirs.
pub fn has_environment(pid: u32, entry: &str) -> Option<bool> {
    look_for_environment(pid, entry).ok().flatten()
}

/// [`has_environment`], where an error says that *we* could not look, for want of descriptors or memory.
pub fn look_for_environment(pid: u32, entry: &str) -> io::Result<Option<bool>> {
    let block = unless_we_lack(os::environment(pid))?;
    Ok(block.map(|block| block.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())))
}

/// The value of `name` in the environment that a process was started with.
pub fn environment_value(pid: u32, name: &str) -> Option<OsString> {
    let block = os::environment(pid).ok()?;
    let value = |found: &[u8]| found.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
    block.split(|byte| *byte == 0).find_map(value).map(OsString::from_vec)
}

/// Every process whose environment holds exactly `NAME=value`.
pub fn processes_with(entry: &str) -> Vec<u32> {
    pids().unwrap_or_default().into_iter().filter(|pid| has_environment(*pid, entry) == Some(true)).collect()
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
        assert!(observe_cpu_time(me).is_some_and(|time| time > Duration::ZERO));
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
    fn nobody_is_nothing() {
        assert_eq!(observe_process(u32::MAX), None);
        assert_eq!(has_environment(u32::MAX, "A=b"), None);
        assert_eq!(executable(u32::MAX), None);
        assert_eq!(n_open_fds(u32::MAX), None);
        assert_eq!(observe_cpu_time(u32::MAX), None);
    }

    #[test]
    fn what_we_lack_ourselves_says_nothing_of_others() {
        let failed = |errno: Errno| unless_we_lack(Err::<(), _>(errno.into()));
        for gone in [Errno::ENOENT, Errno::ESRCH, Errno::EACCES, Errno::EPERM, Errno::EINVAL] {
            assert_eq!(failed(gone).expect("an answer"), None, "{gone}");
        }
        assert_eq!(unless_we_lack(Err::<(), _>(io::ErrorKind::InvalidData.into())).expect("an answer"), None);
        for lacking in [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM] {
            assert!(failed(lacking).is_err(), "{lacking}");
        }
        let me = std::process::id();
        assert!(look_at_processes().expect("linux").iter().any(|process| process.pid == me));
    }

    #[test]
    fn descendants_are_found_through_every_generation_and_in_no_circle() {
        assert_eq!(below(1, [(2, 1), (3, 2), (4, 3), (9, 8), (5, 1)]), [2, 5, 3, 4]);
        assert_eq!(below(1, [(2, 1), (1, 2)]), [2, 1]);
    }
}
