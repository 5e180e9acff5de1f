//! [`Python`]: the private virtual environment in the data directory that builds engines and fetches model parts.
//!
//! ```text
//! <data>/python/            the environment, made by the system's python3, with a pip pinned by hash
//! <data>/python/pip.json    what it was made for; absent or different: made again
//! <data>/python.lock        held while it is made
//! ```
use crate::{
    dirs::{DirError, Dirs},
    disk,
    exit::{Exit, Failure, chain},
    out,
    prerequisites::{Missing, line_for},
    process::{Job, ProcessError},
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

const PIP: &str = include_str!("engine/pip.txt");
/// The oldest Python that the pinned packages run on.
const OLDEST: (u32, u32) = (3, 10);
/// Prints the version and the modules that are not there.
const ASK: &str = "import sys, importlib.util as u
print('%d.%d' % sys.version_info[:2], *(m for m in ('venv', 'ensurepip') if not u.find_spec(m)))";

/// Why there is no Python environment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PythonError {
    #[error("there is no python3")]
    None,
    #[error("{} is version {version}, too old", program.display())]
    TooOld { program: PathBuf, version: String },
    #[error("{} has no {module} module", program.display())]
    NoModule { program: PathBuf, module: String },
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error("cannot write in {}", path.display())]
    Disk { path: PathBuf, source: io::Error },
    #[error("the private Python environment cannot be made")]
    Make(#[source] ProcessError),
}

impl From<PythonError> for Failure {
    fn from(error: PythonError) -> Self {
        let what = chain(&error);
        match error {
            PythonError::None | PythonError::TooOld { .. } => {
                Self::new(Exit::Missing, what, line_for(&[Missing::Python]))
            }
            PythonError::NoModule { .. } => Self::new(Exit::Missing, what, line_for(&[Missing::PythonVenv])),
            PythonError::Dir(error) => error.into(),
            PythonError::Disk { path, .. } => {
                Self::new(Exit::Denied, what, format_args!("make {} writable for you", path.display()))
            }
            PythonError::Make(_) => {
                Self::new(Exit::Transfer, what, "check the network and pip's settings, then run the same command again")
            }
        }
    }
}

/// What the environment was made of.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Made {
    by: PathBuf,
    version: String,
    pip: String,
}

/// The environment, whole and with its own pip.
#[derive(Clone, Debug)]
pub(crate) struct Python {
    home: PathBuf,
}

impl Python {
    /// Finds the environment or makes it.
    pub(crate) async fn ensure(dirs: &Dirs) -> Result<Self, PythonError> {
        let data = dirs.make_data("")?;
        let home = data.join("python");
        let unwritable = |source| PythonError::Disk { path: data.clone(), source };
        let _lock =
            disk::lock(&data.join("python.lock"), "another motorpool that prepares Python").map_err(unwritable)?;
        let wanted = system_python(&data).await?;
        let (python, record) = (Self { home: home.clone() }, home.join("pip.json"));
        if disk::read_record::<Made>(&record).is_some_and(|made| made == wanted)
            && disk::is_executable(&python.program())
        {
            return Ok(python);
        }
        out::say("preparing a private Python environment ...");
        make(&wanted.by, &home).await.map_err(PythonError::Make)?;
        python.install(PIP).await?;
        disk::write_record(&record, &wanted).map_err(unwritable)?;
        Ok(python)
    }

    fn program(&self) -> PathBuf {
        self.home.join("bin/python")
    }

    /// `python <args>` with the environment's own programs first on the path.
    pub(crate) fn job<S: AsRef<OsStr>>(&self, args: &[S]) -> Job {
        let mut paths = vec![self.home.join("bin")];
        paths.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
        let job = Job::new(&self.program(), args, &self.home).with_env("PYTHONUNBUFFERED", "1");
        match std::env::join_paths(paths) {
            Ok(path) => job.with_env("PATH", path),
            Err(_) => job,
        }
    }

    /// `pip <args>`, never asking.
    pub(crate) fn pip<S: AsRef<OsStr>>(&self, args: &[S]) -> Job {
        let mut all: Vec<&OsStr> = ["-m", "pip", "--disable-pip-version-check", "--no-input"].map(OsStr::new).to_vec();
        all.extend(args.iter().map(AsRef::as_ref));
        self.job(&all)
    }

    /// Installs pinned wheels, each checked against its hash.
    pub(crate) async fn install(&self, requirements: &str) -> Result<(), PythonError> {
        let list = self.home.join("requirements.txt");
        fs::write(&list, requirements).map_err(|source| PythonError::Disk { path: list.clone(), source })?;
        let args = ["install", "--require-hashes", "--only-binary=:all:", "--no-deps", "-r"].map(OsStr::new);
        let args: Vec<_> = args.into_iter().chain([list.as_os_str()]).collect();
        self.pip(&args).run(&mut |_| {}).await.map_err(PythonError::Make)
    }
}

/// What the system's `python3` is, if it will do.
async fn system_python(dir: &Path) -> Result<Made, PythonError> {
    let program = disk::on_path("python3").ok_or(PythonError::None)?;
    let mut said = String::new();
    let mut on_line = |line: &str| line.clone_into(&mut said);
    Job::new(&program, &["-I", "-c", ASK], dir).run(&mut on_line).await.map_err(PythonError::Make)?;
    let mut words = said.split_whitespace();
    let version = words.next().unwrap_or_default().to_owned();
    if parse_version(&version).is_none_or(|version| version < OLDEST) {
        return Err(PythonError::TooOld { program, version });
    }
    if let Some(module) = words.next() {
        return Err(PythonError::NoModule { program, module: module.to_owned() });
    }
    Ok(Made { by: program, version, pip: PIP.trim().to_owned() })
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

async fn make(python: &Path, home: &Path) -> Result<(), ProcessError> {
    let dir = home.parent().unwrap_or(home);
    let args = ["-I", "-m", "venv", "--clear"].map(OsStr::new);
    let args: Vec<_> = args.into_iter().chain([home.as_os_str()]).collect();
    Job::new(python, &args, dir).run(&mut |_| {}).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert!(parse_version("3.9").is_some_and(|version| version < OLDEST));
        assert!(parse_version("3.10").is_some_and(|version| version >= OLDEST));
        assert_eq!(parse_version("3"), None);
    }

    #[test]
    fn every_pinned_package_carries_a_hash() {
        for line in PIP.lines().chain(include_str!("engine/tools.txt").lines()) {
            assert!(line.contains("==") && line.contains(" --hash=sha256:"), "{line}");
        }
    }
}
