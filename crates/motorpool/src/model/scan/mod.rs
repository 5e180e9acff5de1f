//! [`scan`]: models that lie on this machine already, in a folder or where other programs keep theirs.
//!
//! Nothing is copied, moved or written there. What is no model is passed over, with the reason; the files of one model are
//! one row. Entering one (`enter.rs`) makes a catalog entry that names its path: removing that entry leaves the file.
//!
//! | whose | where | read in |
//! | --- | --- | --- |
//! | Hugging Face | `HF_HUB_CACHE`, `$HF_HOME/hub`, `~/.cache/huggingface/hub`: `models--ORG--NAME/snapshots/COMMIT/` | `places.rs` |
//! | llama.cpp | `LLAMA_CACHE`, `~/.cache/llama.cpp` | `places.rs` |
//! | LM Studio | `~/.lmstudio/models`, `~/.cache/lm-studio/models`: `PUBLISHER/NAME/` | `places.rs` |
//! | Ollama | `OLLAMA_MODELS`, `~/.ollama/models`, its service's: `manifests/` name `blobs/` | `ollama.rs` |
mod enter;
mod group;
mod ollama;
mod places;
mod walk;

use super::{ModelError, entry::capability_of, store};
use crate::{disk::Sum, out};
use group::Group;
use motorpool_catalog::Capability;
use serde::{Serialize, Serializer};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

pub(crate) use enter::enter;
pub(crate) use group::is_projector;
pub(crate) use places::{Place, caches};

/// Why what has a name of other bytes is passed over.
const NOT_UTF8: &str = "its path is not UTF-8, and a catalog cannot name it";

/// Whose a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Owner {
    Folder,
    HuggingFace,
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    #[serde(rename = "lmstudio")]
    LmStudio,
    Ollama,
}

impl Owner {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::HuggingFace => "Hugging Face",
            Self::LlamaCpp => "llama.cpp",
            Self::LmStudio => "LM Studio",
            Self::Ollama => "Ollama",
        }
    }
}

/// A file of a repository of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OnHub {
    /// `ORG/NAME`.
    pub(crate) repo: String,
    pub(crate) path: String,
}

/// A model that lies somewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Found {
    /// What it is called there.
    pub(crate) name: String,
    pub(crate) owner: Owner,
    /// Its first file.
    pub(crate) file: PathBuf,
    /// All of its files, the projector not counted.
    pub(crate) files: usize,
    /// Their size in bytes.
    pub(crate) bytes: u64,
    pub(crate) projector: Option<PathBuf>,
    /// Names by which people know it.
    pub(crate) aliases: Vec<String>,
    /// Of its first file, where its place tells.
    pub(crate) sha256: Option<Sum>,
    #[serde(skip)]
    pub(crate) capability: Capability,
    /// Its first file on the hub, where its place tells.
    #[serde(skip)]
    pub(crate) hub: Option<OnHub>,
}

/// A file that is no model to us.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Passed {
    /// Shown as far as it is UTF-8.
    #[serde(serialize_with = "shown")]
    pub(crate) file: PathBuf,
    pub(crate) why: String,
}

/// What a look at places brought.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Scan {
    pub(crate) models: Vec<Found>,
    pub(crate) passed: Vec<Passed>,
    /// Folders that were not looked into to their end.
    pub(crate) cut: Vec<Passed>,
}

impl Scan {
    /// Says what nobody would miss otherwise.
    pub(crate) fn say_where_it_was_cut(&self) {
        for Passed { file, why } in &self.cut {
            out::say(format_args!("stopped in {}: {why}", file.display()));
        }
    }
}

fn shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// Looks at these places, in order. A file that is in several of them is found where it comes first.
pub(crate) fn scan(places: &[Place]) -> Scan {
    let mut scan = Scan::default();
    // By what it really is: caches are full of links.
    let mut by_file: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for place in places {
        let brought = match place.owner {
            Owner::Ollama => ollama::look(&place.root),
            owner => look(&place.root, owner),
        };
        for found in brought.models {
            let real = found.file.canonicalize().unwrap_or_else(|_| found.file.clone());
            if let Some(&at) = by_file.get(&real) {
                let known: &mut Found = &mut scan.models[at];
                let news = found.aliases.into_iter().filter(|alias| !known.aliases.contains(alias));
                let news: Vec<_> = news.collect();
                known.aliases.extend(news);
            } else {
                by_file.insert(real, scan.models.len());
                scan.models.push(found);
            }
        }
        scan.passed.extend(brought.passed);
        scan.cut.extend(brought.cut);
    }
    scan.models.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
    scan
}

/// A place whose files tell by their names what belongs together.
fn look(root: &Path, owner: Owner) -> Scan {
    let tree = walk::model_files(root);
    let (files, odd): (Vec<_>, Vec<_>) = tree.files.into_iter().partition(|seen| seen.path.to_str().is_some());
    let (groups, torn) = group::groups(files);
    let mut scan = Scan { cut: tree.cut.into_iter().collect(), ..Scan::default() };
    scan.passed.extend(odd.into_iter().map(|seen| Passed { file: seen.path, why: NOT_UTF8.to_owned() }));
    let torn = torn.into_iter().map(|file| Passed { file, why: "files of its split model are missing".to_owned() });
    scan.passed.extend(torn);
    for group in groups {
        match found(root, owner, group) {
            Ok(found) => scan.models.push(found),
            Err(passed) => scan.passed.push(passed),
        }
    }
    scan
}

fn found(root: &Path, owner: Owner, group: Group) -> Result<Found, Passed> {
    let Group { first, n_files, bytes, projector } = group;
    let capability = judge(&first).map_err(|why| Passed { file: first.clone(), why })?;
    let called = places::called(root, owner, &first);
    let sha256 = if owner == Owner::HuggingFace && n_files == 1 { sum_of_blob(&first) } else { None };
    Ok(Found {
        name: called.name,
        owner,
        file: first,
        files: n_files,
        bytes: bytes.get(),
        projector,
        aliases: called.aliases,
        sha256,
        capability,
        hub: called.hub,
    })
}

/// What the model at `first` is for, or why it is none.
fn judge(first: &Path) -> Result<Capability, String> {
    let header = store::header_of(first).map_err(|error| match error {
        ModelError::Gguf { source, .. } => source.to_string(),
        other => other.to_string(),
    })?;
    match header.metadata().str("general.type") {
        Some(kind @ ("adapter" | "mmproj" | "imatrix")) => return Err(format!("it is no model by itself: `{kind}`")),
        _ if header.architecture() == Some("clip") => return Err("it is no model by itself: `mmproj`".to_owned()),
        _ => {}
    }
    if header.tensor_bytes().is_zero() {
        return Err("it holds no weights".to_owned());
    }
    Ok(capability_of(&header))
}

/// The name of the blob that a file of the hub's cache links to is its SHA-256.
fn sum_of_blob(file: &Path) -> Option<Sum> {
    Sum::parse(file.canonicalize().ok()?.file_name()?.to_str()?)
}
