//! Files that must be right or absent: hashes, stamps, atomic replacement, free room, locks.
use motorpool_vocab::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use std::{
    fmt,
    fs::{self, File, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// What must stay free after anything is written.
const SLACK: Bytes = Bytes::mib(256);

/// The SHA-256 of some content.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Sum([u8; 32]);

impl Sum {
    /// Parses 64 hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut sum = [0; 32];
        for (byte, digits) in sum.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(sum))
    }

    /// Of a whole file. `meter` hears how many bytes were read.
    pub(crate) fn of_file(path: &Path, mut meter: impl FnMut(u64)) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        let mut n_read = 0u64;
        loop {
            let n = file.read(&mut buffer)?;
            if n == 0 {
                return Ok(Self(hasher.finalize().into()));
            }
            hasher.update(&buffer[..n]);
            n_read = n_read.saturating_add(n as u64);
            meter(n_read);
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Sum> for String {
    fn from(sum: Sum) -> Self {
        sum.to_string()
    }
}

impl TryFrom<String> for Sum {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("not 64 hexadecimal digits")
    }
}

/// Size and time of change: the cheap sign that a file is the one that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub(crate) size: u64,
    pub(crate) mtime: i64,
    pub(crate) mtime_nanos: i64,
}

impl Stamp {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        Ok(Self { size: meta.len(), mtime: meta.mtime(), mtime_nanos: meta.mtime_nsec() })
    }
}

/// Writes a file whole or not at all, synced, 0600.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = with_suffix(path, ".new");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

/// Writes a record as JSON.
pub(crate) fn write_record<T: Serialize>(path: &Path, record: &T) -> io::Result<()> {
    write_whole(path, &serde_json::to_vec_pretty(record)?)
}

/// Reads a record, `None` when there is none or it cannot be understood (it is then made again).
pub(crate) fn read_record<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// `path` with more at its end.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What an unprivileged user can still write on the file system of `dir`.
pub(crate) fn free_at(dir: &Path) -> io::Result<Bytes> {
    let stat = nix::sys::statvfs::statvfs(dir)?;
    Ok(Bytes::new(wide(stat.blocks_available())).saturating_mul(stat.fragment_size()))
}

/// Systems count in numbers of different width.
fn wide(n: impl Into<u64>) -> u64 {
    n.into()
}

/// There is too little room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{needs} are needed and {free} are free")]
pub(crate) struct NoRoom {
    pub(crate) needs: Bytes,
    pub(crate) free: Bytes,
}

/// Checks that `bytes` more fit on the file system of `dir`. A file system that does not say has room.
pub(crate) fn check_room(dir: &Path, bytes: Bytes) -> Result<(), NoRoom> {
    let needs = bytes.saturating_add(SLACK);
    match free_at(dir) {
        Ok(free) if free < needs => Err(NoRoom { needs, free }),
        _ => Ok(()),
    }
}

/// A lock on a directory's work, held until dropped; the kernel gives it back when the process ends.
#[derive(Debug)]
pub(crate) struct WorkLock(#[expect(dead_code, reason = "holding it is its use")] File);

/// Takes the lock file `path`, waiting for another process that has it, after one line about it.
pub(crate) fn lock(path: &Path, waiting_for: &str) -> io::Result<WorkLock> {
    lock_after(path, || crate::out::say(format_args!("waiting for {waiting_for}")))
}

fn lock_after(path: &Path, mut when_taken: impl FnMut()) -> io::Result<WorkLock> {
    loop {
        let file = lock_file(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                when_taken();
                file.lock()?;
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if is_still_at(&file, path)? {
            return Ok(WorkLock(file));
        }
    }
}

/// The same at once or not at all: `None`, when somebody has it.
pub(crate) fn try_lock(path: &Path) -> io::Result<Option<WorkLock>> {
    loop {
        let file = lock_file(path)?;
        match file.try_lock() {
            Ok(()) if is_still_at(&file, path)? => return Ok(Some(WorkLock(file))),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

fn lock_file(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether this is the file that others find. Who had it before us may have removed it with its folder: then it keeps
/// nobody out.
fn is_still_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The executable `name` on the search path.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| is_executable(file))
}

/// Whether we may run this file.
pub(crate) fn is_executable(file: &Path) -> bool {
    file.is_file() && nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_printed_and_parsed_alike_and_nothing_else_is_one() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("f");
        fs::write(&file, b"abc").expect("written");
        let sum = Sum::of_file(&file, |_| {}).expect("read");
        assert_eq!(sum.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(Sum::parse(&sum.to_string()), Some(sum));
        assert_eq!(Sum::parse(""), None);
        assert_eq!(Sum::parse(&"é".repeat(32)), None);
        assert_eq!(Sum::parse(&"+f".repeat(32)), None);
    }

    #[test]
    fn a_record_that_cannot_be_understood_is_no_record() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("r.json");
        write_record(&path, &Stamp { size: 1, mtime: 2, mtime_nanos: 3 }).expect("written");
        assert_eq!(read_record::<Stamp>(&path).map(|stamp| stamp.size), Some(1));
        fs::write(&path, b"{\"size\":").expect("torn");
        assert_eq!(read_record::<Stamp>(&path), None);
        assert!(!with_suffix(&path, ".new").exists());
    }

    #[test]
    fn who_waited_for_a_lock_that_is_gone_takes_the_one_that_is_there() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("lock");
        let mut first = try_lock(&path).expect("made");
        assert!(first.is_some());
        let second = lock_after(&path, || {
            fs::remove_file(&path).expect("ours");
            drop(first.take());
        });
        assert!(second.is_ok() && try_lock(&path).expect("asked").is_none(), "who comes third waits for the second");
        drop(second);
        assert!(try_lock(&path).expect("asked").is_some());
    }

    #[test]
    fn more_than_the_disk_holds_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        assert!(check_room(dir.path(), Bytes::MAX).is_err());
        assert!(check_room(dir.path(), Bytes::ZERO).is_ok());
    }
}
