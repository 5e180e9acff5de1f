//! A log file that stays bounded: a new one every 10 MiB, the last few kept, and those for a week.
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// When a file is full.
const MAX_SIZE: u64 = 10 << 20;
/// How many full files stay beside the current one: a flood must not fill the disk within the week.
const N_KEPT: u32 = 8;
/// How long they stay.
const MAX_AGE: Duration = Duration::from_hours(7 * 24);

/// The log of one engine: `<path>`, and before it `<path>.1` (newest) to `<path>.8`.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
    max_size: u64,
}

impl LogFile {
    /// Goes on where an earlier run ended. The folder must be there.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::with_size(path, MAX_SIZE)
    }

    fn with_size(path: &Path, max_size: u64) -> io::Result<Self> {
        remove_old(path, SystemTime::now());
        let file = append_to(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, max_size })
    }

    /// Appends whole lines, first making room. What the disk does not take is lost, and so is nothing else.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.size >= self.max_size {
            self.rotate()?;
        }
        self.size = self.size.saturating_add(u64::try_from(lines.len()).unwrap_or(u64::MAX));
        self.file.write_all(lines)
    }

    fn rotate(&mut self) -> io::Result<()> {
        for n in (1..N_KEPT).rev() {
            // Absent ones are the rule, and one that cannot be moved is overwritten by the next.
            let _ = fs::rename(numbered(&self.path, n), numbered(&self.path, n + 1));
        }
        fs::rename(&self.path, numbered(&self.path, 1))?;
        remove_old(&self.path, SystemTime::now());
        self.file = append_to(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn numbered(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    name.into()
}

/// Removes full files that nobody wrote to for [`MAX_AGE`].
fn remove_old(path: &Path, now: SystemTime) {
    for old in (1..=N_KEPT).map(|n| numbered(path, n)) {
        let changed = fs::metadata(&old).and_then(|metadata| metadata.modified());
        if changed.is_ok_and(|changed| now.duration_since(changed).is_ok_and(|age| age > MAX_AGE)) {
            // It may be gone by now, which is what we want.
            let _ = fs::remove_file(&old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn log(max_size: u64) -> (tempfile::TempDir, PathBuf, LogFile) {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("engine.log");
        let log = LogFile::with_size(&path, max_size).expect("writable");
        (folder, path, log)
    }

    #[test]
    fn full_files_are_numbered_and_the_oldest_goes() {
        let (_folder, path, mut log) = log(4);
        for n in 0..12 {
            log.append(format!("{n:03}\n").as_bytes()).expect("writable");
        }
        assert_eq!(fs::read_to_string(&path).expect("there"), "011\n");
        assert_eq!(fs::read_to_string(numbered(&path, 1)).expect("there"), "010\n");
        assert_eq!(fs::read_to_string(numbered(&path, N_KEPT)).expect("there"), "003\n");
        assert!(!numbered(&path, N_KEPT + 1).exists());
    }

    #[test]
    fn a_log_goes_on_after_a_restart_and_is_nobody_elses_to_read() {
        let (_folder, path, mut log) = log(8);
        log.append(b"one\n").expect("writable");
        let mut again = LogFile::with_size(&path, 8).expect("writable");
        again.append(b"two\n").expect("writable");
        again.append(b"six\n").expect("writable");
        assert_eq!(fs::read_to_string(numbered(&path, 1)).expect("there"), "one\ntwo\n");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn full_files_go_after_a_week() {
        let (_folder, path, mut log) = log(1);
        log.append(b"old\n").expect("writable");
        log.append(b"new\n").expect("writable");
        remove_old(&path, SystemTime::now());
        assert!(numbered(&path, 1).exists());
        remove_old(&path, SystemTime::now() + MAX_AGE + Duration::from_mins(1));
        assert!(!numbered(&path, 1).exists() && path.exists());
    }
}
