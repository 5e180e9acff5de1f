//! Who listens on a port: whether an answer there comes from our own child.
//!
//! On macOS sockets are only told with the process that holds them, and only to its user: that nobody else listens there
//! too is known of the processes of one's own alone.
#[cfg(target_os = "macos")]
use crate::darwin as os;
#[cfg(not(target_os = "macos"))]
use proc_net as os;

/// Whether one of `pids` holds a socket that listens on TCP `port`, and nobody else's socket does so too
/// (several may, with `SO_REUSEPORT`).
pub fn listens(port: u16, pids: &[u32]) -> bool {
    os::listens(port, pids)
}

/// Who of `pids` holds a socket that listens on TCP `port`, the first of several. What others' processes hold cannot be read.
pub fn listener(port: u16, pids: &[u32]) -> Option<u32> {
    os::listener(port, pids)
}

/// Linux: `/proc/net` and the descriptors of each process.
#[cfg(not(target_os = "macos"))]
mod proc_net {
    use std::{collections::BTreeSet, fs};

    /// The kernel's number for a listening TCP socket.
    const LISTEN: &str = "0A";

    pub(super) fn listens(port: u16, pids: &[u32]) -> bool {
        let listening = listening(port);
        let ours: BTreeSet<u64> = pids.iter().flat_map(|pid| socket_inodes(*pid)).collect();
        !listening.is_empty() && listening.is_subset(&ours)
    }

    pub(super) fn listener(port: u16, pids: &[u32]) -> Option<u32> {
        let listening = listening(port);
        let holds = |pid: &&u32| socket_inodes(**pid).iter().any(|inode| listening.contains(inode));
        if listening.is_empty() { None } else { pids.iter().find(holds).copied() }
    }

    fn listening(port: u16) -> BTreeSet<u64> {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
        tables.iter().flat_map(|table| inodes_listening(table, port)).collect()
    }

    /// Inodes of the sockets that listen on `port`, from a table of `/proc/net`.
    pub(super) fn inodes_listening(table: &str, port: u16) -> Vec<u64> {
        let wanted = format!("{port:04X}");
        let inode = |line: &str| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
            let matches = local_port == wanted && *fields.get(3)? == LISTEN;
            if matches { fields.get(9)?.parse().ok() } else { None }
        };
        table.lines().filter_map(inode).collect()
    }

    fn socket_inodes(pid: u32) -> Vec<u64> {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
        let inode = |entry: fs::DirEntry| {
            let target = fs::read_link(entry.path()).ok()?;
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        };
        entries.flatten().filter_map(inode).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn a_port_of_our_own_is_told_from_a_strangers() {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = socket.local_addr().expect("bound").port();
        let me = std::process::id();
        assert!(listens(port, &[me]));
        assert!(listens(port, &[1, me]));
        assert!(!listens(port, &[]), "nobody is not us");
        assert_eq!((listener(port, &[1, me]), listener(port, &[])), (Some(me), None));
        drop(socket);
        assert!(!listens(port, &[me]), "closed");
    }

    #[cfg(not(target_os = "macos"))]
    #[test]
    fn only_listening_sockets_of_that_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0\n\
             1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0\n\
             2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0\n\
             3: short line\n";
        assert_eq!(proc_net::inodes_listening(table, 8080), [111]);
        assert_eq!(proc_net::inodes_listening(table, 9), [0u64; 0]);
    }
}
