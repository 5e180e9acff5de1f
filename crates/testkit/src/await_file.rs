//! Waiting for a file to appear without spending processor time: a waiting engine must look stalled.
use std::{io, path::Path};

/// Blocks until `file` exists. Its directory must exist.
pub fn await_file(file: &Path) -> io::Result<()> {
    imp::await_file(file)
}

#[cfg(target_os = "linux")]
mod imp {
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
    use std::{io, path::Path};

    pub(super) fn await_file(file: &Path) -> io::Result<()> {
        let directory = file.parent().unwrap_or(Path::new("/"));
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
        inotify.add_watch(directory, AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO)?;
        while !file.exists() {
            match inotify.read_events() {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::{io, path::Path, time::Duration};

    #[expect(clippy::unnecessary_wraps, reason = "the same signature everywhere")]
    pub(super) fn await_file(file: &Path) -> io::Result<()> {
        while !file.exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}
