//! Looks at an engine's program and a model's file before anything is touched for them.
//!
//! A file's verdict is kept by its identity, so a file that did not change is read once.
use crate::handle::Post;
use motorpool_catalog::{Catalog, Manifest, Model};
use motorpool_gguf::{Header, check_shards, read_header, shard_names};
use motorpool_pool::{BuildId, Facts, Input, StartFault};
use motorpool_vocab::{Bytes, EngineKey, FailureClass, FileId};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fmt,
    fs::{self, File},
    io::{self, BufReader},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::mpsc;

/// Finds the program of an engine.
pub type Discover = Box<dyn Fn(&Manifest) -> Result<PathBuf, StartFault> + Send + Sync>;
/// Finds the file of a model.
pub type Locate = Box<dyn Fn(&Model) -> Result<PathBuf, StartFault> + Send + Sync>;

/// What a header says, as far as a launch needs it.
#[derive(Clone, Debug, Default)]
struct Told {
    context_length: Option<u32>,
    architecture: Option<String>,
}

pub(crate) struct Checker {
    catalog: Arc<Catalog>,
    discover: Discover,
    locate: Locate,
    verdicts: Mutex<HashMap<Vec<FileId>, Result<Told, StartFault>>>,
}

impl Checker {
    pub(crate) fn new(catalog: Arc<Catalog>, discover: Discover, locate: Locate) -> Self {
        Self { catalog, discover, locate, verdicts: Mutex::default() }
    }

    /// Checks on a thread that may block; the verdict comes as an input.
    pub(crate) fn spawn(
        self: Arc<Self>,
        build: BuildId,
        key: EngineKey,
        model: Arc<Model>,
        inbox: mpsc::WeakUnboundedSender<Post>,
    ) {
        tokio::spawn(async move {
            let checked = tokio::task::spawn_blocking(move || self.check(&key, &model)).await;
            let result = checked
                .unwrap_or_else(|_| Err(fault(FailureClass::Unknown, "the check of the model's file broke off")));
            if let Some(inbox) = inbox.upgrade() {
                // A loop that is gone needs no verdict.
                let _ = inbox.send(Post::Input(Input::Checked { build, result }));
            }
        });
    }

    fn check(&self, key: &EngineKey, model: &Model) -> Result<Facts, StartFault> {
        let manifest = self.catalog.manifest(key.provider()).ok_or_else(|| {
            fault(FailureClass::EngineMissing, format!("no engine manifest is named {}", key.provider()))
        })?;
        let program = (self.discover)(manifest)?;
        let model_path = (self.locate)(model)?;
        let shards = shards_of(&model_path)?;
        let files = shards.iter().map(|path| Ok((path, identify(path)?))).collect::<Result<Vec<_>, StartFault>>()?;
        let told = self.verdict(&files)?;
        Ok(Facts {
            program,
            model_path,
            files: files.into_iter().map(|(_, id)| (id, Bytes::new(id.size))).collect(),
            context_length: told.context_length,
            architecture: told.architecture,
        })
    }

    fn verdict(&self, files: &[(&PathBuf, FileId)]) -> Result<Told, StartFault> {
        let ids: Vec<FileId> = files.iter().map(|(_, id)| *id).collect();
        if let Some(known) = self.verdicts.lock().get(&ids) {
            return known.clone();
        }
        let verdict = read_all(files);
        self.verdicts.lock().insert(ids, verdict.clone());
        verdict
    }
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").finish_non_exhaustive()
    }
}

fn shards_of(first: &Path) -> Result<Vec<PathBuf>, StartFault> {
    let Some(name) = first.file_name().and_then(|name| name.to_str()) else { return Ok(vec![first.to_owned()]) };
    match shard_names(name) {
        Ok(Some(names)) => Ok(names.iter().map(|name| first.with_file_name(name)).collect()),
        Ok(None) => Ok(vec![first.to_owned()]),
        Err(error) => Err(fault(error.class(), format!("{}: {error}", first.display()))),
    }
}

fn identify(path: &Path) -> Result<FileId, StartFault> {
    let about = |error: io::Error| {
        let class = match error.kind() {
            io::ErrorKind::NotFound => FailureClass::ModelMissing,
            _ => FailureClass::Unknown,
        };
        fault(class, format!("model file {}: {error}", path.display()))
    };
    let metadata = fs::metadata(path).map_err(about)?;
    if !metadata.is_file() {
        return Err(fault(FailureClass::ModelCorrupt, format!("{} is not a file", path.display())));
    }
    let mtime_nanos = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    Ok(FileId { device: metadata.dev(), inode: metadata.ino(), size: metadata.len(), mtime_nanos })
}

fn read_all(files: &[(&PathBuf, FileId)]) -> Result<Told, StartFault> {
    let headers = files.iter().map(|(path, id)| read_one(path, id.size)).collect::<Result<Vec<_>, _>>()?;
    let first = files.first().map(|(path, _)| path.display().to_string()).unwrap_or_default();
    check_shards(&headers).map_err(|error| fault(error.class(), format!("{first}: {error}")))?;
    let Some(header) = headers.first() else { return Ok(Told::default()) };
    Ok(Told {
        context_length: header.context_length().and_then(|n| u32::try_from(n).ok()),
        architecture: header.architecture().map(str::to_owned),
    })
}

fn read_one(path: &Path, size: u64) -> Result<Header, StartFault> {
    let file = File::open(path)
        .map_err(|error| fault(FailureClass::ModelMissing, format!("model file {}: {error}", path.display())))?;
    read_header(BufReader::with_capacity(1 << 16, file), size)
        .map_err(|error| fault(error.class(), format!("model file {}: {error}", path.display())))
}

fn fault(class: FailureClass, message: impl Into<String>) -> StartFault {
    StartFault { class, message: message.into(), tail: vec![] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_catalog::{ModelSource, shipped};
    use motorpool_gguf::write::smoke_model;
    use motorpool_vocab::ModelId;

    fn checked(file: &Path) -> Result<Facts, StartFault> {
        let (manifests, _) = shipped();
        let model = Model::new(ModelId::new("m").expect("an id"), "llama-server", ModelSource::File(file.to_owned()));
        let catalog = Arc::new(Catalog::new(manifests, vec![model]).expect("a catalog"));
        let located = file.to_owned();
        let checker =
            Checker::new(catalog.clone(), Box::new(|_| Ok("/bin/sh".into())), Box::new(move |_| Ok(located.clone())));
        let model = catalog.resolve("m").expect("it is there").clone();
        checker.check(&"llama-server:m:0".parse().expect("a key"), &model)
    }

    #[test]
    fn a_whole_file_is_passed_with_what_its_header_says() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("m.gguf");
        fs::write(&path, smoke_model()).expect("written");
        let facts = checked(&path).expect("passed");
        assert_eq!(facts.architecture.as_deref(), Some("llama"));
        assert_eq!(facts.files.len(), 1);
        assert_eq!(facts.files[0].1, Bytes::new(smoke_model().len() as u64));
    }

    #[test]
    fn what_is_missing_cut_garbage_or_no_file_is_told_apart() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let class = |path: &Path| checked(path).expect_err("refused").class;
        assert_eq!(class(&folder.path().join("nowhere.gguf")), FailureClass::ModelMissing);
        assert_eq!(class(folder.path()), FailureClass::ModelCorrupt);
        let path = folder.path().join("m.gguf");
        let whole = smoke_model();
        fs::write(&path, &whole[..whole.len() - 100]).expect("written");
        assert_eq!(class(&path), FailureClass::ModelCorrupt);
        fs::write(&path, b"not a model at all").expect("written");
        assert_eq!(class(&path), FailureClass::ModelCorrupt);
    }

    #[test]
    fn a_missing_shard_is_named() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("m-00001-of-00002.gguf");
        fs::write(&path, smoke_model()).expect("written");
        let refused = checked(&path).expect_err("refused");
        assert_eq!(refused.class, FailureClass::ModelMissing);
        assert!(refused.message.contains("m-00002-of-00002.gguf"), "{}", refused.message);
    }
}
