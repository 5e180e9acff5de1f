//! A log file that stays bounded: a new one every 10 MiB and every week, the last few kept, and those for a week.
//! [`remove_unused`] does the same to logs that nobody opens any more.
use std::{
    collections::BTreeSet,
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
        let mut log = Self::open_undated(path)?;
        log.begin_anew(SystemTime::now())?;
        Ok(log)
    }

    /// The same for what is kept until it is too large.
    pub(crate) fn open_undated(path: &Path) -> io::Result<Self> {
        Self::with_size(path, MAX_SIZE)
    }

    /// What was begun more than [`MAX_AGE`] ago is a full file now, where the file system knows when that was.
    fn begin_anew(&mut self, now: SystemTime) -> io::Result<()> {
        match self.file.metadata()?.created() {
            Ok(begun) if is_old(begun, now) && self.size > 0 => self.rotate(),
            _ => Ok(()),
        }
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
    (1..=N_KEPT).for_each(|n| remove_if_old(&numbered(path, n), now));
}

/// Removes every file of `folder` that nobody wrote to for [`MAX_AGE`], but what a living engine may write to.
pub(crate) fn remove_unused(folder: &Path, living: &BTreeSet<PathBuf>, now: SystemTime) {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path());
    files.filter(|path| !living.contains(path)).for_each(|path| remove_if_old(&path, now));
}

fn remove_if_old(path: &Path, now: SystemTime) {
    let metadata = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file);
    let changed = metadata.and_then(|metadata| metadata.modified().ok());
    if changed.is_some_and(|changed| is_old(changed, now)) {
        // It may be gone by now, which is what we want.
        let _ = fs::remove_file(path);
    }
}

fn is_old(time: SystemTime, now: SystemTime) -> bool {
    now.duration_since(time).is_ok_and(|age| age > MAX_AGE)
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

    #[test]
    fn what_was_begun_a_week_ago_is_full_whatever_its_size() {
        let (_folder, path, mut log) = log(1 << 20);
        log.append(b"old\n").expect("writable");
        log.begin_anew(SystemTime::now()).expect("writable");
        assert!(!numbered(&path, 1).exists());
        if fs::metadata(&path).and_then(|metadata| metadata.created()).is_err() {
            // This file system does not tell.
            return;
        }
        log.begin_anew(SystemTime::now() + MAX_AGE + Duration::from_mins(1)).expect("writable");
        log.append(b"new\n").expect("writable");
        assert_eq!(fs::read_to_string(numbered(&path, 1)).expect("there"), "old\n");
        assert_eq!(fs::read_to_string(&path).expect("there"), "new\n");
    }

    #[test]
    fn logs_of_engines_that_are_no_more_go_after_a_week_whatever_their_names() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| folder.path().join(name);
        for name in ["gone.log", "gone.log.3", "lives.log", "lives.log.1"] {
            fs::write(path(name), "x").expect("writable");
        }
        fs::create_dir(path("folder")).expect("writable");
        let left = || {
            let names = fs::read_dir(folder.path()).expect("there").flatten().map(|file| file.file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().expect("ASCII")).collect();
            names.sort();
            names
        };
        let (living, later) = ([path("lives.log")].into(), SystemTime::now() + MAX_AGE + Duration::from_mins(1));
        remove_unused(folder.path(), &living, SystemTime::now());
        assert_eq!(left().len(), 5);
        remove_unused(folder.path(), &living, later);
        assert_eq!(left(), ["folder", "lives.log"]);
    }
}
