//! [`Install`]: what was installed, as the file `install.json` remembers it.
use super::calibrate::Measured;
use crate::{
    dirs::Dirs,
    disk::{self, Stamp, Sum},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// One installed engine. Its record is written after all its tests, so whoever has one may use the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Install {
    /// The manifest's name.
    pub(crate) engine: String,
    /// The package's version.
    pub(crate) version: String,
    /// What the program says of itself.
    pub(crate) reported: String,
    pub(crate) program: PathBuf,
    pub(crate) stamp: Stamp,
    /// Every file beside the program: nearly all of an engine is in its libraries.
    pub(crate) files: BTreeMap<String, Sum>,
    /// How it was configured.
    pub(crate) build: String,
    /// RFC 3339.
    pub(crate) installed: String,
    /// What it takes, where that differs from build to build. Missing in older records and where it reports nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) calibration: Option<Measured>,
}

/// Where the versions of the engine `name` are.
pub(crate) fn engine_dir(dirs: &Dirs, name: &str) -> PathBuf {
    dirs.data.join("engines").join(name)
}

fn record_path(version_dir: &Path) -> PathBuf {
    version_dir.join("install.json")
}

impl Install {
    pub(crate) fn read(version_dir: &Path) -> Option<Self> {
        disk::read_record(&record_path(version_dir))
    }

    pub(crate) fn write(&self, version_dir: &Path) -> io::Result<()> {
        disk::write_record(&record_path(version_dir), self)
    }

    /// The first file that is gone or has other content.
    pub(crate) fn first_changed(&self) -> io::Result<Option<PathBuf>> {
        let dir = self.program.parent().unwrap_or(&self.program);
        let now = sums_in(dir)?;
        let changed = self.files.iter().find(|(name, sum)| now.get(*name) != Some(*sum));
        Ok(changed.map(|(name, _)| dir.join(name)))
    }

    /// Whether the program is, by size and time of change, the one that was tested.
    pub(crate) fn is_unchanged(&self) -> bool {
        Stamp::of(&self.program).is_ok_and(|stamp| stamp == self.stamp)
    }
}

/// The sum of every regular file in `dir`; links lead to one of them.
pub(crate) fn sums_in(dir: &Path) -> io::Result<BTreeMap<String, Sum>> {
    let mut sums = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let sum = Sum::of_file(&entry.path(), |_| {})?;
            sums.insert(entry.file_name().to_string_lossy().into_owned(), sum);
        }
    }
    Ok(sums)
}

/// Everything installed, by engine and version.
pub(crate) fn installed(dirs: &Dirs) -> Vec<Install> {
    let mut all: Vec<_> = folders(&dirs.data.join("engines"))
        .iter()
        .flat_map(|engine| folders(engine))
        .filter_map(|version| Install::read(&version))
        .collect();
    all.sort_by(|a, b| (&a.engine, &a.version).cmp(&(&b.engine, &b.version)));
    all
}

fn folders(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_version_with_its_record_is_installed_and_a_touched_program_shows() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = Dirs { data: top.path().into(), state: "/s".into(), run: "/r".into(), config: "/c".into() };
        let version_dir = engine_dir(&dirs, "e").join("1");
        fs::create_dir_all(&version_dir).expect("made");
        assert_eq!(installed(&dirs), []);
        let program = version_dir.join("p");
        fs::write(&program, "x").expect("written");
        let install = Install {
            engine: "e".into(),
            version: "1".into(),
            reported: "v".into(),
            stamp: Stamp::of(&program).expect("there"),
            files: sums_in(&version_dir).expect("read"),
            program: program.clone(),
            build: String::new(),
            installed: String::new(),
            calibration: None,
        };
        install.write(&version_dir).expect("written");
        assert_eq!(installed(&dirs), std::slice::from_ref(&install));
        assert!(install.is_unchanged());
        assert_eq!(install.first_changed().expect("read"), None);
        fs::write(&program, "xx").expect("written");
        assert!(!install.is_unchanged());
        assert_eq!(install.first_changed().expect("read"), Some(program));
    }
}
