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
    /// When the file was begun, where that counts.
    begun: Option<SystemTime>,
}

impl LogFile {
    /// Goes on where an earlier run ended. The folder must be there.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut log = Self::open_undated(path)?;
        let now = SystemTime::now();
        // Where the file system does not know, it counts from now on.
        log.begun = Some(log.file.metadata()?.created().unwrap_or(now));
        log.make_room(now)?;
        Ok(log)
    }

    /// The same for what is kept until it is too large.
    pub(crate) fn open_undated(path: &Path) -> io::Result<Self> {
        Self::with_size(path, MAX_SIZE)
    }

    fn with_size(path: &Path, max_size: u64) -> io::Result<Self> {
        remove_old(path, SystemTime::now());
        let file = append_to(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, max_size, begun: None })
    }

    /// Appends whole lines, first making room. What the disk does not take is lost, and so is nothing else.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.append_at(SystemTime::now(), lines)
    }

    fn append_at(&mut self, now: SystemTime, lines: &[u8]) -> io::Result<()> {
        self.make_room(now)?;
        self.size = self.size.saturating_add(u64::try_from(lines.len()).unwrap_or(u64::MAX));
        self.file.write_all(lines)
    }

    /// What has its size, or was begun more than [`MAX_AGE`] ago, is a full file.
    fn make_room(&mut self, now: SystemTime) -> io::Result<()> {
        let is_old = self.size > 0 && self.begun.is_some_and(|begun| is_old(begun, now));
        if is_old || self.size >= self.max_size { self.rotate(now) } else { Ok(()) }
    }

    /// One that fails is tried again, and loses nothing but lines: the old file is let go of when the new one is there, and
    /// full files move on only for one that takes their place.
    fn rotate(&mut self, now: SystemTime) -> io::Result<()> {
        // Somebody may have removed it, or put something else there that is not ours to number.
        if fs::symlink_metadata(&self.path).is_ok_and(|current| current.is_file()) {
            let first_free = (1..=N_KEPT).find(|n| fs::symlink_metadata(numbered(&self.path, *n)).is_err());
            for n in (1..first_free.unwrap_or(N_KEPT)).rev() {
                // One that cannot be moved is overwritten by the next.
                let _ = fs::rename(numbered(&self.path, n), numbered(&self.path, n + 1));
            }
            fs::rename(&self.path, numbered(&self.path, 1))?;
            remove_old(&self.path, now);
        }
        self.file = append_to(&self.path)?;
        self.size = self.file.metadata()?.len();
        self.begun = self.begun.map(|_| now);
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
    fn what_was_begun_a_week_ago_is_full_whatever_its_size_and_whoever_has_it_open() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("engine.log");
        let mut log = LogFile::open(&path).expect("writable");
        let later = |n| SystemTime::now() + n * (MAX_AGE + Duration::from_mins(1));
        log.append(b"old\n").expect("writable");
        log.append(b"old\n").expect("writable");
        assert!(!numbered(&path, 1).exists());
        log.append_at(later(1), b"new\n").expect("writable");
        log.append_at(later(1), b"new\n").expect("writable");
        assert_eq!(fs::read_to_string(&path).expect("there"), "new\nnew\n");
        log.append_at(later(2), b"newer\n").expect("writable");
        assert_eq!(fs::read_to_string(&path).expect("there"), "newer\n");
        let mut undated = LogFile::open_undated(&path).expect("writable");
        undated.append_at(later(4), b"newest\n").expect("writable");
        assert_eq!(fs::read_to_string(&path).expect("there"), "newer\nnewest\n", "this one has no age");
    }

    #[test]
    fn a_file_that_somebody_removed_is_begun_anew_and_full_ones_stay_where_they_are() {
        let (_folder, path, mut log) = log(4);
        log.append(b"one\n").expect("writable");
        log.append(b"two\n").expect("writable");
        fs::remove_file(&path).expect("there");
        log.append(b"new\n").expect("writable");
        assert_eq!(fs::read_to_string(&path).expect("begun anew"), "new\n");
        assert_eq!(fs::read_to_string(numbered(&path, 1)).expect("untouched"), "one\n");
        log.append(b"six\n").expect("writable");
        assert_eq!(fs::read_to_string(numbered(&path, 1)).expect("there"), "new\n");
        assert_eq!(fs::read_to_string(numbered(&path, 2)).expect("there"), "one\n");
    }

    #[test]
    fn what_is_in_the_way_costs_lines_while_it_is_there_and_no_full_file() {
        let (_folder, path, mut log) = log(4);
        log.append(b"one\n").expect("writable");
        log.append(b"two\n").expect("writable");
        fs::remove_file(&path).expect("there");
        fs::create_dir(&path).expect("free");
        for _ in 0..2 * N_KEPT {
            log.append(b"lost\n").expect_err("a folder takes no lines");
        }
        fs::remove_dir(&path).expect("empty");
        log.append(b"new\n").expect("writable");
        assert_eq!(fs::read_to_string(&path).expect("begun anew"), "new\n");
        assert_eq!(fs::read_to_string(numbered(&path, 1)).expect("untouched"), "one\n");
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
