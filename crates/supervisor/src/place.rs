//! [`Place`]: a folder of its own for each engine below the run directory, with its socket in it.
//!
//! Nothing else of the run directory is an engine's to write to: there is the control socket, and there are the sockets of
//! others. The folder goes with its engine, and with whatever that left in it.
use motorpool_catalog::Transport;
use motorpool_vocab::{Endpoint, Spawn};
use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder},
    io,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

/// The folder of one engine. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Place {
    spawn: Spawn,
    folder: PathBuf,
}

impl Place {
    /// Numbers are never given twice: what stands there is left of a start that was broken off.
    pub(crate) fn make(run: &Path, spawn: Spawn) -> io::Result<Self> {
        let folder = folder_of(run, spawn);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self { spawn, folder })
    }

    pub(crate) fn spawn(&self) -> Spawn {
        self.spawn
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A socket of its own, or a port that is free now; should somebody else take that, the engine says so.
    pub(crate) fn pick_endpoint(&self, transport: Transport) -> io::Result<Endpoint> {
        Ok(match transport {
            // llama-server takes a host for a socket by the end of its name.
            Transport::Unix => Endpoint::Unix(self.folder.join("e.sock")),
            Transport::Tcp => Endpoint::Tcp(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port()),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed now is when the next supervisor starts.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn folder_of(run: &Path, spawn: Spawn) -> PathBuf {
    run.join(format!("e{spawn}"))
}

/// Removes folders that an earlier supervisor left, but those of engines that still live. Blocks.
pub(crate) fn remove_left(run: &Path, living: &BTreeSet<Spawn>) {
    for entry in fs::read_dir(run).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix('e')).and_then(|n| n.parse().ok());
        if number.is_some_and(|n| !living.contains(&Spawn(n))) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn an_engines_socket_is_in_a_folder_of_its_own_that_goes_with_it() {
        let run = tempfile::tempdir().expect("a temporary directory");
        let place = Place::make(run.path(), Spawn(u64::MAX)).expect("writable");
        let Ok(Endpoint::Unix(socket)) = place.pick_endpoint(Transport::Unix) else { panic!("a socket") };
        assert_eq!((socket.parent(), socket.extension()), (Some(place.folder()), Some("sock".as_ref())));
        let name = socket.strip_prefix(run.path()).expect("below");
        assert!(name.as_os_str().len() < 32, "the room that is kept for it");
        assert_eq!(fs::metadata(place.folder()).expect("made").permissions().mode() & 0o777, 0o700);
        fs::write(&socket, "left behind").expect("writable");
        drop(place);
        assert_eq!(fs::read_dir(run.path()).expect("there").count(), 0);
    }

    #[test]
    fn what_an_earlier_supervisor_left_goes_but_what_is_of_engines_that_live_and_what_is_no_engines() {
        let run = tempfile::tempdir().expect("a temporary directory");
        for name in ["e3", "e4", "empty", "e", "x5"] {
            fs::create_dir(run.path().join(name)).expect("writable");
        }
        fs::write(run.path().join("e3/sock"), "").expect("writable");
        remove_left(run.path(), &[Spawn(4)].into());
        let mut left: Vec<_> = fs::read_dir(run.path()).expect("there").flatten().map(|e| e.file_name()).collect();
        left.sort();
        assert_eq!(left, ["e", "e4", "empty", "x5"]);
    }
}
