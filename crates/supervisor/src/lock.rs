//! **S4**: at most one supervisor per state directory.
use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// Holds the state directory until it is dropped, or this process ends in whatever way.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

/// Why the state directory is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another supervisor runs on it.
    #[error("another supervisor{} already uses {}", pid_text(*pid), state.display())]
    Held {
        /// The state directory.
        state: PathBuf,
        /// Its process, as it wrote itself down.
        pid: Option<u32>,
    },
    /// The lock file cannot be used.
    #[error("cannot lock {}", path.display())]
    Unusable {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn pid_text(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

impl StateLock {
    /// Takes `<state>/lock` without waiting. The directory must be there.
    pub fn take(state: &Path) -> Result<Self, LockError> {
        let path = state.join("lock");
        let unusable = |source| LockError::Unusable { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // The number is a courtesy; without it the message is still true.
                let _ = file.read_to_string(&mut text);
                return Err(LockError::Held { state: state.to_owned(), pid: text.trim().parse().ok() });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        let written =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(unusable)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_supervisor_is_told_who_is_there() {
        let state = tempfile::tempdir().expect("a temporary directory");
        let first = StateLock::take(state.path()).expect("free");
        let second = StateLock::take(state.path()).expect_err("held");
        let me = std::process::id();
        assert_eq!(
            second.to_string(),
            format!("another supervisor (process {me}) already uses {}", state.path().display())
        );
        drop(first);
        StateLock::take(state.path()).expect("free again");
    }

    #[test]
    fn a_state_directory_that_is_not_there_is_named() {
        let state = tempfile::tempdir().expect("a temporary directory");
        let absent = StateLock::take(&state.path().join("absent")).expect_err("no directory");
        assert!(matches!(absent, LockError::Unusable { .. }));
    }
}
