//! Engines on this machine: found, installed, verified.
//!
//! ```text
//! <data>/engines/<name>/lock                     one installation at a time
//! <data>/engines/<name>/<version>/source/        unpacked package; its build directory survives an interruption
//! <data>/engines/<name>/<version>/site/          what pip installed; the program and its libraries
//! <data>/engines/<name>/<version>/build.log      what the build said
//! <data>/engines/<name>/<version>/install.json   written last: only with it the engine is installed
//! ```
pub(crate) mod calibrate;
pub(crate) mod devices;
pub(crate) mod discover;
pub(crate) mod gpu;
pub(crate) mod install;
pub(crate) mod record;
pub(crate) mod smoke;

use crate::{
    dirs::DirError,
    disk,
    exit::{Exit, Failure, chain},
    prerequisites::{self, Missing},
    process::ProcessError,
    python::PythonError,
};
use motorpool_vocab::EngineKey;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Why an engine is not installed, or not as it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error("there is no way to install an engine called `{0}`")]
    Unknown(String),
    #[error("no engine is called `{name}`; there are: {}", known.join(", "))]
    NoSuch { name: String, known: Vec<String> },
    #[error("no program of the engine `{0}` was found")]
    NoProgram(String),
    #[error("`{0}` is not installed by motorpool")]
    NotInstalled(String),
    #[error("{0} runs now")]
    InUse(EngineKey),
    #[error("{} missing", list(.0))]
    Prerequisites(Vec<Missing>),
    #[error("there is a graphics card, and {0} is missing to build for it")]
    NoToolkit(Missing),
    #[error("too little disk space for a build in {}", dir.display())]
    NoRoom { dir: PathBuf, source: disk::NoRoom },
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error(transparent)]
    Python(#[from] PythonError),
    #[error("cannot read or write {}", path.display())]
    Disk { path: PathBuf, source: io::Error },
    #[error("the source package cannot be fetched")]
    Fetch(#[source] ProcessError),
    #[error("the source package has SHA-256 {found} instead of {wanted}")]
    Hash { wanted: &'static str, found: String },
    #[error("the build failed")]
    Build { source: ProcessError, log: PathBuf },
    #[error("the package brought no {}", .0.display())]
    Incomplete(PathBuf),
    #[error("{} does not tell its version", program.display())]
    Probe { program: PathBuf, source: ProcessError },
    #[error("{} failed its test with a small model", program.display())]
    Smoke { program: PathBuf, source: smoke::SmokeError },
    #[error("{} is not the file that was installed: {what}", program.display())]
    Changed { program: PathBuf, what: &'static str },
}

fn list(missing: &[Missing]) -> String {
    let names: Vec<_> = missing.iter().map(ToString::to_string).collect();
    format!("{} {}", names.join(" and "), if names.len() == 1 { "is" } else { "are" })
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let what = chain(&error);
        match error {
            EngineError::Unknown(_) => Self::new(Exit::NotFound, what, "run `motorpool engine install llama-server`"),
            EngineError::NoSuch { .. } => Self::new(Exit::NotFound, what, "describe it in engines/<name>.toml"),
            EngineError::NoProgram(name) => Self::new(Exit::NotFound, what, cure_of_absence(&name)),
            EngineError::NotInstalled(_) => {
                Self::new(Exit::NotFound, what, "run `motorpool engine list` for what there is, and where from")
            }
            EngineError::InUse(key) => Self::new(Exit::InUse, what, format_args!("run `motorpool unload {key}` first")),
            EngineError::Prerequisites(missing) => Self::new(Exit::Missing, what, prerequisites::line_for(&missing)),
            EngineError::NoToolkit(missing) => {
                let line = prerequisites::line_for(&[missing]);
                let brew = if cfg!(target_os = "macos") { ", or `brew install llama.cpp`" } else { "" };
                Self::new(Exit::Missing, what, format_args!("{line}{brew}; to do without the card, add --cpu"))
            }
            EngineError::NoRoom { dir, .. } => Self::new(Exit::Missing, what, prerequisites::line_for_room(&dir)),
            EngineError::Dir(error) => error.into(),
            EngineError::Python(error) => error.into(),
            EngineError::Disk { path, .. } => {
                Self::new(Exit::Denied, what, format_args!("check the permissions of {}", path.display()))
            }
            EngineError::Fetch(_) => {
                Self::new(Exit::Transfer, what, "check the network and pip's settings, then run the same command again")
            }
            EngineError::Hash { .. } => {
                Self::new(Exit::Transfer, what, "empty pip's cache with `python3 -m pip cache purge` and try again")
            }
            EngineError::Build { log, .. } => Self::new(
                Exit::Broken,
                what,
                format_args!("read {}, then run the same command again: it continues", log.display()),
            ),
            EngineError::Incomplete(_)
            | EngineError::Probe { .. }
            | EngineError::Smoke { .. }
            | EngineError::Changed { .. } => Self::new(Exit::Broken, what, REINSTALL),
        }
    }
}

/// How an engine's program comes to be here.
pub(crate) fn cure_of_absence(name: &str) -> String {
    if name == install::LLAMA_SERVER {
        let brew = if cfg!(target_os = "macos") { "`brew install llama.cpp`, or " } else { "" };
        format!("run {brew}`motorpool engine install {name}`")
    } else {
        format!("put its program on PATH, or name it with `program` in [engine.{name}]")
    }
}

/// What an engine's program is called that computes on none of the graphics devices that are here.
pub(crate) const CPU_ONLY: &str = "CPU only (GPU present)";

const REINSTALL: &str = "run `motorpool engine remove llama-server`, then `motorpool engine install llama-server`";

/// Adds the path to an I/O error.
fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, EngineError> {
    result.map_err(|source| EngineError::Disk { path: path.to_owned(), source })
}
