//! The records of `libproc`, read from their bytes. Where a field lies is taken from `sys/proc_info.h`, and for those
//! records that the crate `libc` knows compared with it when this is compiled for macOS (`calls.rs`).
use crate::process::ProcessFacts;
use std::{ffi::OsString, os::unix::ffi::OsStringExt as _, path::PathBuf, time::Duration};

/// `struct proc_bsdinfo`.
pub(super) const BSD_BYTES: usize = 136;
/// `struct proc_taskinfo`.
pub(super) const TASK_BYTES: usize = 96;
/// `struct socket_fdinfo`.
pub(super) const SOCKET_BYTES: usize = 792;
/// `struct proc_regionwithpathinfo`.
pub(super) const REGION_BYTES: usize = 1272;

/// Where the fields lie that are read here.
pub(super) mod at {
    pub(crate) const STATUS: usize = 4;
    pub(crate) const PID: usize = 12;
    pub(crate) const PPID: usize = 16;
    /// `pbi_comm`, 16 bytes; `pbi_name`, 32 bytes, follows.
    pub(crate) const COMMAND: usize = 48;
    pub(crate) const NAME: usize = 64;
    pub(crate) const NAME_END: usize = 96;
    pub(crate) const PGID: usize = 100;
    pub(crate) const START_SECONDS: usize = 120;
    pub(crate) const START_MICROS: usize = 128;
    pub(crate) const RESIDENT: usize = 8;
    pub(crate) const USER_TIME: usize = 16;
    pub(crate) const SYSTEM_TIME: usize = 24;
    pub(super) const SOCKET: usize = 160;
    pub(super) const SOCKET_KIND: usize = 256;
    pub(super) const LOCAL_PORT: usize = 268;
    pub(super) const TCP_STATE: usize = 344;
    pub(super) const REGION_OFFSET: usize = 16;
    pub(super) const REGION_ADDRESS: usize = 80;
    pub(super) const REGION_SIZE: usize = 88;
    pub(super) const REGION_PATH: usize = 248;
}

/// `SOCKINFO_TCP`.
const KIND_TCP: u32 = 2;
/// `TSI_S_LISTEN`.
const LISTENING: u32 = 1;
const MICROS: u64 = 1_000_000;

fn u32_at(record: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*record.get(at..)?.first_chunk()?))
}

fn u64_at(record: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*record.get(at..)?.first_chunk()?))
}

/// A string that a zero or the end of its field ends.
fn text_in(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// What a process is, from `proc_bsdinfo`, and what it spends, from `proc_taskinfo`, when that is told.
pub(super) fn process(bsd: &[u8], task: Option<&[u8]>, sid: u32, page: u64) -> Option<ProcessFacts> {
    let name = [at::NAME..at::NAME_END, at::COMMAND..at::NAME].map(|field| bsd.get(field).map(text_in));
    let name = name.into_iter().flatten().find(|name| !name.is_empty()).unwrap_or_default();
    let spent = |at| task.and_then(|task| u64_at(task, at)).unwrap_or(0);
    Some(ProcessFacts {
        pid: u32_at(bsd, at::PID)?,
        name: String::from_utf8_lossy(name).into_owned(),
        state: state(u32_at(bsd, at::STATUS)?),
        ppid: u32_at(bsd, at::PPID)?,
        pgid: u32_at(bsd, at::PGID)?,
        sid,
        start_time: u64_at(bsd, at::START_SECONDS)?.checked_mul(MICROS)?.checked_add(u64_at(bsd, at::START_MICROS)?)?,
        cpu_ticks: spent(at::USER_TIME).saturating_add(spent(at::SYSTEM_TIME)),
        rss_pages: spent(at::RESIDENT).checked_div(page).unwrap_or(0),
    })
}

/// So many ticks of a clock that ticks so often.
pub(super) fn duration(ticks: u64, per_second: u64) -> Option<Duration> {
    let rest = u128::from(ticks.checked_rem(per_second)?) * 1_000_000_000 / u128::from(per_second);
    Some(Duration::new(ticks / per_second, u32::try_from(rest).ok()?))
}

/// The letter that Linux has for it.
fn state(status: u32) -> char {
    match status {
        1 => 'I',
        2 => 'R',
        3 => 'S',
        4 => 'T',
        5 => 'Z',
        _ => '?',
    }
}

/// A TCP socket that listens: its handle in the kernel, and its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listening {
    pub(super) socket: u64,
    pub(super) port: u16,
}

/// From `socket_fdinfo`; `None` for any other socket.
pub(super) fn listening(record: &[u8]) -> Option<Listening> {
    if u32_at(record, at::SOCKET_KIND)? != KIND_TCP || u32_at(record, at::TCP_STATE)? != LISTENING {
        return None;
    }
    // An int that holds sixteen bits as they go over the wire.
    let port = u16::from_be_bytes(*record.get(at::LOCAL_PORT..)?.first_chunk()?);
    Some(Listening { socket: u64_at(record, at::SOCKET)?, port })
}

/// A part of a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// The first address behind it.
    pub(super) end: u64,
    /// The file that it shows, and which part of that.
    pub(super) file: Option<(PathBuf, u64, u64)>,
}

/// From `proc_regionwithpathinfo`.
pub(super) fn region(record: &[u8]) -> Option<Region> {
    let size = u64_at(record, at::REGION_SIZE)?;
    let end = u64_at(record, at::REGION_ADDRESS)?.checked_add(size)?;
    let from = u64_at(record, at::REGION_OFFSET)?;
    let path = text_in(record.get(at::REGION_PATH..REGION_BYTES)?);
    let to = from.checked_add(size).filter(|_| path.first() == Some(&b'/'));
    Some(Region { end, file: to.map(|to| (OsString::from_vec(path.to_owned()).into(), from, to)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn record(n_bytes: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut record = vec![0; n_bytes];
        for (at, bytes) in fields {
            record[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        record
    }

    fn bsd(status: u32, name: &[u8]) -> Vec<u8> {
        let fields: [(usize, &[u8]); 8] = [
            (at::STATUS, &status.to_ne_bytes()),
            (at::PID, &41u32.to_ne_bytes()),
            (at::PPID, &1u32.to_ne_bytes()),
            (at::COMMAND, b"llama-server-lon"),
            (at::NAME, name),
            (at::PGID, &40u32.to_ne_bytes()),
            (at::START_SECONDS, &1_700_000_000u64.to_ne_bytes()),
            (at::START_MICROS, &7u64.to_ne_bytes()),
        ];
        record(BSD_BYTES, &fields)
    }

    #[test]
    fn a_process_is_read_with_and_without_what_it_spends() {
        let fields: [(usize, &[u8]); 3] = [
            (at::RESIDENT, &(3u64 * 16384).to_ne_bytes()),
            (at::USER_TIME, &5u64.to_ne_bytes()),
            (at::SYSTEM_TIME, &6u64.to_ne_bytes()),
        ];
        let task = record(TASK_BYTES, &fields);
        let facts = process(&bsd(2, b"llama-server-long"), Some(&task), 39, 16384).expect("a process");
        assert_eq!((facts.pid, facts.ppid, facts.pgid, facts.sid), (41, 1, 40, 39));
        assert_eq!((facts.name.as_str(), facts.state), ("llama-server-long", 'R'));
        assert_eq!((facts.start_time, facts.cpu_ticks, facts.rss_pages), (1_700_000_000_000_007, 11, 3));
        let zombie = process(&bsd(5, b""), None, 0, 16384).expect("a process");
        assert!(zombie.is_zombie());
        assert_eq!((zombie.name.as_str(), zombie.cpu_ticks), ("llama-server-lon", 0), "a full field has no zero");
    }

    #[test]
    fn only_a_tcp_socket_that_listens_counts_and_its_port_is_in_network_order() {
        let socket = |kind: u32, state: u32| {
            let fields: [(usize, &[u8]); 4] = [
                (at::SOCKET, &0xfeed_u64.to_ne_bytes()),
                (at::SOCKET_KIND, &kind.to_ne_bytes()),
                (at::LOCAL_PORT, &[0x1f, 0x90, 0, 0]),
                (at::TCP_STATE, &state.to_ne_bytes()),
            ];
            listening(&record(SOCKET_BYTES, &fields))
        };
        assert_eq!(socket(KIND_TCP, LISTENING), Some(Listening { socket: 0xfeed, port: 8080 }));
        assert_eq!(socket(KIND_TCP, 4), None, "a connection");
        assert_eq!(socket(1, LISTENING), None, "no TCP");
    }

    #[test]
    fn a_region_shows_a_part_of_a_file_or_none() {
        let with = |path: &[u8], offset: u64| {
            let fields: [(usize, &[u8]); 4] = [
                (at::REGION_OFFSET, &offset.to_ne_bytes()),
                (at::REGION_ADDRESS, &0x1000u64.to_ne_bytes()),
                (at::REGION_SIZE, &0x4000u64.to_ne_bytes()),
                (at::REGION_PATH, path),
            ];
            region(&record(REGION_BYTES, &fields)).expect("whole")
        };
        let file = Some(("/models/a b.gguf".into(), 0x8000, 0xc000));
        assert_eq!(with(b"/models/a b.gguf", 0x8000), Region { end: 0x5000, file });
        assert_eq!(with(b"", 0), Region { end: 0x5000, file: None });
        assert_eq!(with(b"/x", u64::MAX), Region { end: 0x5000, file: None }, "no file is so long");
        assert_eq!(with(&[b'/'; 1024], 0).file.map(|(path, ..)| path.as_os_str().len()), Some(1024), "no zero at all");
    }

    #[test]
    fn ticks_are_time_of_whatever_clock() {
        assert_eq!(duration(36_000_001, 24_000_000), Some(Duration::new(1, 500_000_041)));
        assert_eq!(duration(u64::MAX, 1), Some(Duration::from_secs(u64::MAX)));
        assert_eq!(duration(u64::MAX, u64::MAX), Some(Duration::from_secs(1)));
        assert_eq!(duration(5, 0), None);
    }

    proptest! {
        #[test]
        fn records_that_are_short_or_odd_never_panic(bytes in vec(any::<u8>(), 0..REGION_BYTES + 8), page in 0u64..2) {
            let _ = (process(&bytes, Some(&bytes), 0, page), listening(&bytes), region(&bytes));
        }
    }
}
