//! [`TargetLock`]: at most one of us changes a server at a time, whatever processes and state directories we have.
//!
//! `flock` on `<user run directory>/motorpool/residency/<sha256 of the target key>.lock`, each time by an open file
//! description of its own, so that two tasks of one process exclude each other too. The system gives it back whenever
//! its holder ends.
use motorpool_vocab::TargetKey;
use sha2::{Digest as _, Sha256};
use std::{
    fmt::Write as _,
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

/// From one try to the next.
const PAUSE: Duration = Duration::from_millis(20);

/// Holds a server until it is dropped.
#[derive(Debug)]
pub struct TargetLock {
    _file: File,
}

/// Why a server is not ours to change.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another one of us held it all the time.
    #[error("another motorpool changed the server for {0:?}")]
    Busy(Duration),
    /// The lock file cannot be used.
    #[error("cannot lock {}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl TargetLock {
    /// Takes the lock of the server `key` below `run`, the user's run directory, waiting for it at most `within`. Dropping
    /// the future ends the wait.
    pub async fn take(run: &Path, key: &TargetKey, within: Duration) -> Result<Self, LockError> {
        let path = path_of(run, key);
        let file = open(&path).map_err(|source| LockError::Unusable { path: path.clone(), source })?;
        let until = tokio::time::Instant::now() + within;
        loop {
            // A blocking wait could not be cancelled: it would hold a thread for as long as others hold the lock.
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(source)) => return Err(LockError::Unusable { path, source }),
            }
            if tokio::time::Instant::now() >= until {
                return Err(LockError::Busy(within));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn path_of(run: &Path, key: &TargetKey) -> PathBuf {
    let mut name = String::new();
    for byte in Sha256::digest(key.as_str()) {
        write!(name, "{byte:02x}").expect("a text takes everything");
    }
    run.join("motorpool/residency").join(name + ".lock")
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_vocab::ServerUrl;

    fn key(text: &str) -> TargetKey {
        text.parse::<ServerUrl>().expect("an address").key()
    }

    async fn take(run: &Path, url: &str) -> Result<TargetLock, LockError> {
        TargetLock::take(run, &key(url), Duration::ZERO).await
    }

    #[tokio::test]
    async fn two_tasks_of_one_process_exclude_each_other_by_whatever_address() {
        let run = tempfile::tempdir().expect("a temporary directory");
        let first = take(run.path(), "http://localhost:1").await.expect("free");
        let second = take(run.path(), "http://127.0.0.1:1/v1/").await;
        assert!(matches!(second, Err(LockError::Busy(_))), "{second:?}");
        let _other = take(run.path(), "http://localhost:2").await.expect("another server");
        drop(first);
        take(run.path(), "http://localhost:1").await.expect("free again");
    }

    #[tokio::test]
    async fn who_waits_gets_it_when_the_holder_lets_go() {
        let run = tempfile::tempdir().expect("a temporary directory");
        let (held, at) = (take(run.path(), "http://h").await.expect("free"), key("http://h"));
        let folder = run.path().to_owned();
        let waiter = tokio::spawn(async move { TargetLock::take(&folder, &at, Duration::from_secs(30)).await });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(held);
        waiter.await.expect("no panic").expect("it is free");
    }

    #[tokio::test]
    async fn a_place_that_cannot_be_locked_is_an_error_and_never_a_lock() {
        let run = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(run.path().join("motorpool"), "").expect("written");
        let taken = take(run.path(), "http://h").await;
        assert!(matches!(taken, Err(LockError::Unusable { .. })), "{taken:?}");
    }
}
