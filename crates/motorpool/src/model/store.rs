//! [`Store`]: where models' files are, and what is known of each.
use super::{ModelError, at};
use crate::{
    dirs::Dirs,
    disk::{self, Stamp, Sum},
};
use motorpool_catalog::{Model, ModelSource};
use motorpool_gguf::{Header, check_shards, read_header, shard_names};
use motorpool_vocab::{Bytes, ModelId};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fmt::Write,
    fs::{self, File},
    io::BufReader,
    path::{Path, PathBuf},
};

/// What is known of a model, in its folder.
const RECORD: &str = "model.json";

/// One file of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) file: PathBuf,
    /// As it was then.
    pub(crate) stamp: Stamp,
    /// `None`: it was entered where it lay, and not read through.
    pub(crate) sha256: Option<Sum>,
}

impl Piece {
    pub(crate) fn is_unchanged(&self) -> bool {
        Stamp::of(&self.file).is_ok_and(|stamp| stamp == self.stamp)
    }
}

/// A model whose files were checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pulled {
    pub(crate) id: String,
    /// Its first file, which an engine is given.
    #[serde(flatten)]
    pub(crate) first: Piece,
    /// Where it came from.
    pub(crate) source: String,
    /// RFC 3339.
    pub(crate) checked: String,
    /// Its other files: further shards, a projector.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) beside: Vec<Piece>,
}

impl Pulled {
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        std::iter::once(&self.first).chain(&self.beside)
    }

    pub(crate) fn is_unchanged(&self) -> bool {
        self.pieces().all(Piece::is_unchanged)
    }
}

/// What is there of a model's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Presence {
    Ready,
    Partial,
    Changed,
    Absent,
}

impl Presence {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Partial => "partial",
            Self::Changed => "changed",
            Self::Absent => "absent",
        }
    }
}

/// The folder of all models.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    root: PathBuf,
}

impl Store {
    pub(crate) fn new(dirs: &Dirs) -> Self {
        Self { root: dirs.data.join("models") }
    }

    /// The folder of one model.
    pub(crate) fn home(&self, id: &ModelId) -> PathBuf {
        self.root.join(folder_name(id))
    }

    /// Where the model's file is, or will be; the first one of a split model.
    pub(crate) fn path_of(&self, model: &Model) -> PathBuf {
        match &model.source {
            ModelSource::Pypi { file, .. } => self.home(&model.id).join(file),
            ModelSource::Https { url, .. } => self.home(&model.id).join(file_name_of(url)),
            ModelSource::File(path) => path.clone(),
        }
    }

    pub(crate) fn record(&self, id: &ModelId) -> Option<Pulled> {
        disk::read_record(&self.record_path(id))
    }

    /// Of every model that has one, by folder.
    pub(crate) fn records(&self) -> Vec<Pulled> {
        let folders = fs::read_dir(&self.root).into_iter().flatten().flatten().map(|entry| entry.path());
        let folders: BTreeSet<PathBuf> = folders.collect();
        folders.iter().filter_map(|home| disk::read_record(&home.join(RECORD))).collect()
    }

    pub(crate) fn record_path(&self, id: &ModelId) -> PathBuf {
        self.home(id).join(RECORD)
    }

    pub(crate) fn presence(&self, model: &Model) -> Presence {
        let path = self.path_of(model);
        match (self.record(&model.id), &model.source) {
            (Some(pulled), _) if pulled.is_unchanged() => Presence::Ready,
            (Some(_), _) if path.exists() => Presence::Changed,
            (None, ModelSource::File(_)) if path.exists() => Presence::Ready,
            _ if disk::with_suffix(&path, ".partial").exists() => Presence::Partial,
            _ => Presence::Absent,
        }
    }
}

/// What the header of `path` says; every file of a split model must be there and fit the others.
pub(crate) fn header_of(path: &Path) -> Result<Header, ModelError> {
    let wrong = |source| ModelError::Gguf { path: path.to_owned(), source };
    let shards = shards_of(path).map_err(wrong)?;
    let mut headers = shards.iter().map(|shard| one_header(shard)).collect::<Result<Vec<_>, _>>()?;
    if headers.len() > 1 {
        check_shards(&headers).map_err(wrong)?;
    }
    Ok(headers.swap_remove(0))
}

fn one_header(path: &Path) -> Result<Header, ModelError> {
    if !path.is_file() {
        return Err(ModelError::NoFile(path.to_owned()));
    }
    let file = at(path, File::open(path))?;
    let length = at(path, file.metadata())?.len();
    read_header(BufReader::new(file), length).map_err(|source| ModelError::Gguf { path: path.to_owned(), source })
}

/// All files of the model whose first is `path`.
pub(crate) fn shards_of(path: &Path) -> Result<Vec<PathBuf>, motorpool_gguf::GgufError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let names = shard_names(name)?.unwrap_or_else(|| vec![name.to_owned()]);
    Ok(names.iter().map(|name| path.with_file_name(name)).collect())
}

/// The size of the model whose first file is `path`.
pub(crate) fn size_of(path: &Path) -> Bytes {
    let shards = shards_of(path).unwrap_or_default();
    Bytes::sum(shards.iter().filter_map(|shard| Some(Bytes::new(fs::metadata(shard).ok()?.len()))))
}

/// The last part of an address's path, safe as a file name.
pub(crate) fn file_name_of(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    safe_name(path.trim_end_matches('/').rsplit('/').next().unwrap_or_default())
}

/// `name`, as the name of a file that is in nobody's way.
pub(crate) fn safe_name(name: &str) -> String {
    let safe: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-+".contains(c) { c } else { '_' }).collect();
    if safe.trim_start_matches('.').is_empty() {
        "model.gguf".to_owned()
    } else {
        safe.trim_start_matches('.').to_owned()
    }
}

/// One folder name for each id: everything but letters, digits, `-`, `_` and inner `.` as `%` and two digits.
fn folder_name(id: &ModelId) -> String {
    let mut name = String::new();
    for (n, byte) in id.as_str().bytes().enumerate() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => name.push(byte.into()),
            b'.' if n > 0 => name.push('.'),
            _ => write!(name, "%{byte:02X}").expect("a text takes everything"),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ModelId {
        ModelId::new(text).expect("no colon")
    }

    #[test]
    fn every_id_has_its_own_folder_and_none_leads_out() {
        let names: Vec<_> = ["a/b", "a%2Fb", "..", ".a", "a.b", "é"].map(|text| folder_name(&id(text))).into();
        assert_eq!(names, ["a%2Fb", "a%252Fb", "%2E.", "%2Ea", "a.b", "%C3%A9"]);
    }

    #[test]
    fn an_address_gives_a_plain_file_name() {
        assert_eq!(file_name_of("https://h/a/m-q4.gguf?download=true"), "m-q4.gguf");
        assert_eq!(file_name_of("https://h/a/..%2F.b c"), "_2F.b_c");
        assert_eq!(file_name_of("https://h/.."), "model.gguf");
    }

    #[test]
    fn what_is_there_of_a_file_is_told() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = Dirs { data: top.path().into(), state: "/s".into(), run: "/r".into(), config: "/c".into() };
        let store = Store::new(&dirs);
        let source = ModelSource::Https { url: "https://h/m.gguf".into(), sha256: String::new() };
        let model = Model::new(id("m"), "llama-server", source);
        let path = store.path_of(&model);
        assert_eq!(store.presence(&model), Presence::Absent);
        fs::create_dir_all(store.home(&model.id)).expect("made");
        fs::write(disk::with_suffix(&path, ".partial"), "x").expect("written");
        assert_eq!(store.presence(&model), Presence::Partial);
        fs::write(&path, "xy").expect("written");
        let pulled = Pulled {
            id: "m".into(),
            first: Piece { file: path.clone(), stamp: Stamp::of(&path).expect("there"), sha256: None },
            source: String::new(),
            checked: String::new(),
            beside: vec![],
        };
        disk::write_record(&store.record_path(&model.id), &pulled).expect("written");
        assert_eq!(store.presence(&model), Presence::Ready);
        fs::write(&path, "xyz").expect("written");
        assert_eq!(store.presence(&model), Presence::Changed);
    }
}
