//! The calls themselves. Each asks for one thing and gives bytes; nothing is judged here.
use super::{
    args,
    records::{self, BSD_BYTES, Listening, REGION_BYTES, Region, SOCKET_BYTES, TASK_BYTES, at},
};
use crate::{ProcessFacts, ProcessMemory, ReadingError, TreeMemory};
use motorpool_vocab::Bytes;
use nix::libc::{self, c_int, c_void};
use std::{
    collections::BTreeSet,
    ffi::{CStr, OsString},
    io,
    mem::{offset_of, size_of},
    os::unix::ffi::OsStringExt as _,
    path::PathBuf,
    ptr,
    time::Duration,
};

/// `PROC_PIDREGIONPATHINFO` and `PROC_PIDFDSOCKETINFO`, which `libc` does not name.
const REGION_PATH_INFO: c_int = 8;
const SOCKET_INFO: c_int = 3;
/// More parts than any process has: the kernel's answers are believed so far and no farther.
const MAX_REGIONS: usize = 1 << 18;
/// The most that `KERN_PROCARGS2` answers with: `ARG_MAX` of this system, and the number before it.
const MAX_ARGS: usize = (1 << 20) + size_of::<c_int>();

// What `records.rs` says of the records that `libc` knows.
const _: () = {
    use libc::{proc_bsdinfo as bsd, proc_taskinfo as task};
    assert!(size_of::<bsd>() == BSD_BYTES && size_of::<task>() == TASK_BYTES);
    assert!(offset_of!(bsd, pbi_status) == at::STATUS && offset_of!(bsd, pbi_pid) == at::PID);
    assert!(offset_of!(bsd, pbi_ppid) == at::PPID && offset_of!(bsd, pbi_pgid) == at::PGID);
    assert!(offset_of!(bsd, pbi_comm) == at::COMMAND && offset_of!(bsd, pbi_name) == at::NAME);
    assert!(offset_of!(bsd, pbi_nfiles) == at::NAME_END);
    assert!(offset_of!(bsd, pbi_start_tvsec) == at::START_SECONDS);
    assert!(offset_of!(bsd, pbi_start_tvusec) == at::START_MICROS);
    assert!(offset_of!(task, pti_resident_size) == at::RESIDENT);
    assert!(offset_of!(task, pti_total_user) == at::USER_TIME);
    assert!(offset_of!(task, pti_total_system) == at::SYSTEM_TIME);
};

fn id(pid: u32) -> io::Result<c_int> {
    c_int::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))
}

fn length(buffer: &[u8]) -> c_int {
    c_int::try_from(buffer.len()).unwrap_or(c_int::MAX)
}

/// How many bytes a call of `libproc` wrote; it answers nothing or less when it failed.
fn written(n: c_int) -> io::Result<usize> {
    usize::try_from(n).ok().filter(|n| *n > 0).ok_or_else(io::Error::last_os_error)
}

/// One record about a process, whole.
fn info(pid: u32, flavor: c_int, argument: u64, n_bytes: usize) -> io::Result<Vec<u8>> {
    let mut record = vec![0; n_bytes];
    let (pid, room) = (id(pid)?, length(&record));
    #[expect(unsafe_code, reason = "no wrapper has proc_pidinfo")]
    // SAFETY: it writes at most `room` bytes to the buffer, which is so long and outlives the call.
    let n = written(unsafe { libc::proc_pidinfo(pid, flavor, argument, record.as_mut_ptr().cast(), room) })?;
    if n == n_bytes { Ok(record) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

pub(crate) fn process(pid: u32) -> io::Result<ProcessFacts> {
    // The argument says that a zombie will do.
    let bsd = info(pid, libc::PROC_PIDTBSDINFO, 1, BSD_BYTES)?;
    let task = info(pid, libc::PROC_PIDTASKINFO, 0, TASK_BYTES).ok();
    #[expect(unsafe_code, reason = "the wrapper has no way to say that there is none")]
    // SAFETY: it takes a number and touches no memory of ours.
    let sid = unsafe { libc::getsid(id(pid)?) };
    let facts = records::process(&bsd, task.as_deref(), u32::try_from(sid).unwrap_or(0), page());
    facts.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn page() -> u64 {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    page.and_then(|n| u64::try_from(n).ok()).unwrap_or(16384)
}

pub(crate) fn pids() -> io::Result<Vec<u32>> {
    let mut room = 2048;
    loop {
        let mut found: Vec<c_int> = vec![0; room];
        let n_bytes = c_int::try_from(room * size_of::<c_int>()).unwrap_or(c_int::MAX);
        #[expect(unsafe_code, reason = "no wrapper has proc_listallpids")]
        // SAFETY: it writes at most `n_bytes` bytes to the buffer, which is so long and outlives the call.
        let n = unsafe { libc::proc_listallpids(found.as_mut_ptr().cast(), n_bytes) };
        let n = written(n)?;
        if n < room {
            found.truncate(n);
            return Ok(found.into_iter().filter_map(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0).collect());
        }
        room *= 2;
    }
}

/// Resources used, and why they cannot be told.
fn usage(pid: u32) -> io::Result<libc::rusage_info_v2> {
    let pid = id(pid)?;
    #[expect(unsafe_code, reason = "no wrapper has proc_pid_rusage")]
    // SAFETY: all zeroes is a rusage_info_v2; the call writes one of those, which this flavor is, and no more.
    unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage_info_v2>();
        let result = libc::proc_pid_rusage(pid, libc::RUSAGE_INFO_V2, (&raw mut usage).cast());
        if result == 0 { Ok(usage) } else { Err(io::Error::last_os_error()) }
    }
}

pub(crate) fn memory(pid: u32) -> io::Result<ProcessMemory> {
    let usage = usage(pid)?;
    Ok(ProcessMemory {
        anonymous: Bytes::new(usage.ri_phys_footprint),
        swapped: Bytes::ZERO,
        file: Bytes::new(usage.ri_resident_size.saturating_sub(usage.ri_phys_footprint)),
    })
}

pub(crate) fn io(pid: u32) -> io::Result<Bytes> {
    let usage = usage(pid)?;
    Ok(Bytes::new(usage.ri_diskio_bytesread).saturating_add(Bytes::new(usage.ri_diskio_byteswritten)))
}

/// The footprints of `pids` together. Swapped pages are in them.
pub(crate) fn private(pids: &[u32]) -> TreeMemory {
    let footprint = |pid: &u32| match usage(*pid) {
        Ok(usage) => Some(Bytes::new(usage.ri_phys_footprint)),
        Err(error) => is_gone(&error).then_some(Bytes::ZERO),
    };
    let sum = pids.iter().try_fold(Bytes::ZERO, |sum, pid| Some(sum.saturating_add(footprint(pid)?)));
    TreeMemory { pss: None, anonymous: sum, swapped: sum.map(|_| Bytes::ZERO) }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Which parts of which files `pid` shows in its memory. `None` when it lives and cannot be read.
pub(crate) fn mapped_files(pid: u32) -> Option<Vec<(PathBuf, u64, u64)>> {
    let (mut address, mut found) = (0, Vec::new());
    for _ in 0..MAX_REGIONS {
        let record = match info(pid, REGION_PATH_INFO, address, REGION_BYTES) {
            Ok(record) => record,
            // Behind the last part; or it is gone, and shows nothing any more.
            Err(error) if is_gone(&error) || (error.raw_os_error() == Some(libc::EINVAL) && address > 0) => break,
            Err(_) => return None,
        };
        let Region { end, file } = records::region(&record)?;
        found.extend(file);
        if end <= address {
            break;
        }
        address = end;
    }
    Some(found)
}

pub(crate) fn executable(pid: u32) -> Option<PathBuf> {
    let mut path = vec![0; usize::try_from(libc::PROC_PIDPATHINFO_MAXSIZE).ok()?];
    let (pid, room) = (id(pid).ok()?, u32::try_from(path.len()).ok()?);
    #[expect(unsafe_code, reason = "no wrapper has proc_pidpath")]
    // SAFETY: it writes at most `room` bytes to the buffer, which is so long and outlives the call.
    let n = written(unsafe { libc::proc_pidpath(pid, path.as_mut_ptr().cast(), room) }).ok()?;
    path.truncate(n);
    Some(OsString::from_vec(path).into())
}

/// Nobody tells which pages of a file are unchanged.
pub(crate) fn clean_file_ranges() -> Vec<(usize, usize)> {
    Vec::new()
}

/// Number and kind of every descriptor of `pid`.
fn descriptors(pid: u32) -> io::Result<Vec<libc::proc_fdinfo>> {
    let (pid, each) = (id(pid)?, size_of::<libc::proc_fdinfo>());
    let mut room = 256;
    loop {
        let mut found = vec![libc::proc_fdinfo { proc_fd: 0, proc_fdtype: 0 }; room];
        let n_bytes = c_int::try_from(room * each).unwrap_or(c_int::MAX);
        #[expect(unsafe_code, reason = "no wrapper has proc_pidinfo")]
        // SAFETY: it writes at most `n_bytes` bytes to the buffer, which is so long and outlives the call.
        let n = unsafe { libc::proc_pidinfo(pid, libc::PROC_PIDLISTFDS, 0, found.as_mut_ptr().cast(), n_bytes) };
        let n = written(n)? / each;
        if n < room {
            found.truncate(n);
            return Ok(found);
        }
        room *= 2;
    }
}

pub(crate) fn n_open_fds(pid: u32) -> Option<usize> {
    Some(descriptors(pid).ok()?.len())
}

/// The sockets of `pid` that listen. None of a process that may not be looked into.
fn listening(pid: u32) -> Vec<Listening> {
    let is_socket = |fd: &libc::proc_fdinfo| i32::try_from(fd.proc_fdtype) == Ok(libc::PROX_FDTYPE_SOCKET);
    let all = descriptors(pid).unwrap_or_default();
    all.iter().filter(|fd| is_socket(fd)).filter_map(|fd| records::listening(&socket(pid, fd.proc_fd)?)).collect()
}

fn socket(pid: u32, fd: c_int) -> Option<Vec<u8>> {
    let mut record = vec![0; SOCKET_BYTES];
    let (pid, room) = (id(pid).ok()?, length(&record));
    #[expect(unsafe_code, reason = "no wrapper has proc_pidfdinfo")]
    // SAFETY: it writes at most `room` bytes to the buffer, which is so long and outlives the call.
    let n = unsafe { libc::proc_pidfdinfo(pid, fd, SOCKET_INFO, record.as_mut_ptr().cast(), room) };
    (written(n).ok()? == SOCKET_BYTES).then_some(record)
}

fn listening_on(port: u16, pid: u32) -> BTreeSet<u64> {
    listening(pid).into_iter().filter(|one| one.port == port).map(|one| one.socket).collect()
}

/// Whether one of `ours` listens on `port` and no process besides does, of those that may be looked into.
pub(crate) fn listens(port: u16, ours: &[u32]) -> bool {
    let held: BTreeSet<u64> = ours.iter().flat_map(|pid| listening_on(port, *pid)).collect();
    let none_of_others = |all: Vec<u32>| {
        all.into_iter().filter(|pid| !ours.contains(pid)).all(|pid| listening_on(port, pid).is_subset(&held))
    };
    !held.is_empty() && pids().is_ok_and(none_of_others)
}

/// The first of `pids` that listens on `port`.
pub(crate) fn listener(port: u16, pids: &[u32]) -> Option<u32> {
    pids.iter().copied().find(|pid| !listening_on(port, *pid).is_empty())
}

/// Entries, each with a zero after it; behind them strings of the loader, which are none.
pub(crate) fn environment(pid: u32) -> io::Result<Vec<u8>> {
    let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, id(pid)?];
    let (mut answer, mut n) = (vec![0_u8; MAX_ARGS], MAX_ARGS);
    #[expect(unsafe_code, reason = "no wrapper has sysctl")]
    // SAFETY: the name has three parts; at most `n` bytes are written to the buffer, which is so long, and nothing is
    // set.
    let result = unsafe {
        let words = u32::try_from(name.len()).unwrap_or(0);
        libc::sysctl(name.as_mut_ptr(), words, answer.as_mut_ptr().cast(), &raw mut n, ptr::null_mut(), 0)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    answer.truncate(n);
    args::environment(&answer).map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What the kernel has under `name`, at most `most` bytes of it.
fn setting(name: &CStr, most: usize) -> io::Result<Vec<u8>> {
    let (mut answer, mut n) = (vec![0_u8; most], most);
    let nothing = ptr::null_mut::<c_void>();
    #[expect(unsafe_code, reason = "no wrapper has sysctlbyname")]
    // SAFETY: the name ends with a zero; at most `n` bytes are written to the buffer, which is so long, and nothing is
    // set.
    let result = unsafe { libc::sysctlbyname(name.as_ptr(), answer.as_mut_ptr().cast(), &raw mut n, nothing, 0) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    answer.truncate(n);
    Ok(answer)
}

fn text_setting(name: &CStr) -> io::Result<String> {
    let answer = setting(name, 256)?;
    Ok(String::from_utf8_lossy(answer.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned())
}

/// The name that the kernel draws at each boot.
pub(crate) fn boot_id() -> Result<String, ReadingError> {
    const NAME: &CStr = c"kern.bootsessionuuid";
    let path = || PathBuf::from("kern.bootsessionuuid");
    let id = text_setting(NAME).map_err(|source| ReadingError::Unreadable { path: path(), source })?;
    if id.is_empty() { Err(ReadingError::Malformed { path: path(), what: "boot id" }) } else { Ok(id) }
}

pub(crate) fn processor_name() -> Option<String> {
    text_setting(c"machdep.cpu.brand_string").ok().filter(|name| !name.is_empty())
}

/// Counted in ticks of the machine's own clock, so many of which make a second.
pub(crate) fn cpu_time(pid: u32) -> Option<Duration> {
    let usage = usage(pid).ok()?;
    let per_second = u64::from_ne_bytes(*setting(c"hw.tbfrequency", 8).ok()?.first_chunk()?);
    records::duration(usage.ri_user_time.saturating_add(usage.ri_system_time), per_second)
}
