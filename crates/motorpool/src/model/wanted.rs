//! [`Wanted`]: what somebody names when a model is to be here, and what it will be called.
use super::{ModelError, hub::Reference, store, store::Store};
use crate::{disk::Sum, out};
use motorpool_catalog::{Catalog, Model};
use motorpool_vocab::ModelId;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// A model of the catalog, or a source that no catalog names.
#[derive(Debug)]
pub(crate) enum Wanted {
    Known(Box<Model>),
    Url { id: ModelId, url: String },
    Hub(Reference),
    Packages(Packages),
    File { id: ModelId, path: PathBuf },
}

/// Packages of an index, each with a part of one model's file: `PKG+PKG==VERSION#sha256=SUM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packages {
    /// In the order of their parts.
    pub(crate) names: Vec<String>,
    pub(crate) version: String,
    /// Of the whole file, where it is told.
    pub(crate) sha256: Option<Sum>,
}

impl Packages {
    /// Without `pypi:` before it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (text, sha256) = match text.split_once('#') {
            Some((text, told)) => (text, Some(Sum::parse(told.strip_prefix("sha256=")?)?)),
            None => (text, None),
        };
        let (names, version) = text.split_once("==")?;
        // They become words of a command line.
        let is_word = |word: &str, more: &[char]| {
            let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
            let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(&c);
            ends_well(word.chars().next()) && ends_well(word.chars().next_back()) && word.chars().all(fits)
        };
        let names: Vec<String> = names.split('+').map(str::to_owned).collect();
        let fit = names.iter().all(|name| is_word(name, &['-', '_', '.'])) && is_word(version, &['.', '!', '+']);
        fit.then(|| Self { names, version: version.to_owned(), sha256 })
    }

    /// What the model is called: like the first package, without what tells its parts apart.
    pub(crate) fn id(&self) -> ModelId {
        let name = self.names[0].to_ascii_lowercase();
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let name = name.strip_suffix("part").map_or(self.names[0].as_str(), |rest| &self.names[0][..rest.len()]);
        let name = name.trim_end_matches(['-', '_', '.']);
        let lower = name.to_ascii_lowercase();
        let name = lower.strip_suffix("gguf").map_or(name, |rest| &name[..rest.len()]);
        id_of(name.trim_end_matches(['-', '_', '.']))
    }

    /// As its record tells where it came from.
    pub(crate) fn source(&self) -> String {
        format!("pypi:{}=={}", self.names.join("+"), self.version)
    }
}

impl Wanted {
    /// Reads a name, an address, a repository of the hub or a path.
    pub(crate) fn parse(text: &str, (store, catalog): (&Store, &Catalog)) -> Result<Self, ModelError> {
        if text.starts_with("https://") || text.starts_with("http://") {
            let id = id_of(&store::file_name_of(text));
            return Ok(Self::Url { id, url: text.to_owned() });
        }
        if let Some(rest) = text.strip_prefix("hf:") {
            let reference = Reference::parse(rest.strip_prefix("//").unwrap_or(rest));
            return reference.map(Self::Hub).ok_or_else(|| super::hub::HubError::Reference(text.to_owned()).into());
        }
        if let Some(path) = text.strip_prefix("file:") {
            return Self::file(Path::new(path.strip_prefix("//").unwrap_or(path)), (store, catalog));
        }
        if let Some(rest) = text.strip_prefix("pypi:") {
            let packages = Packages::parse(rest.strip_prefix("//").unwrap_or(rest));
            return packages.map(Self::Packages).ok_or_else(|| ModelError::Packages(text.to_owned()));
        }
        let is_path = text.to_ascii_lowercase().ends_with(".gguf") || text.starts_with(['/', '.']);
        if is_path && exact(catalog, text).is_none() {
            return Self::file(Path::new(text), (store, catalog));
        }
        Ok(Self::Known(Box::new(Model::clone(catalog.resolve(text)?))))
    }

    /// A file of this machine: the model whose file it is already, else a new one. It is called like the file; when that
    /// name belongs to another file, a number is added, so that no name changes its meaning.
    pub(crate) fn file(path: &Path, (store, catalog): (&Store, &Catalog)) -> Result<Self, ModelError> {
        if let Some(model) = model_of(path, (store, catalog))? {
            return Ok(Self::Known(Box::new(Model::clone(&model))));
        }
        let path = named(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let id = free_id(&id_of(&name), &path, (store, catalog));
        Ok(Self::File { id, path })
    }
}

/// `wanted`, or the same with a number when it belongs to another file; says so.
pub(super) fn free_id(wanted: &ModelId, path: &Path, (store, catalog): (&Store, &Catalog)) -> ModelId {
    let Some(by) = holder_of(wanted, (store, catalog)) else {
        if let Some(model) = exact(catalog, wanted.as_str()) {
            let gone = store.path_of(model);
            out::say(format_args!("`{wanted}` is {} from now on: {} is gone", path.display(), gone.display()));
        }
        return wanted.clone();
    };
    let numbered = |n: u32| ModelId::new(&format!("{wanted}-{n}")).expect("a longer id is one too");
    let free = |id: &ModelId| holder_of(id, (store, catalog)).is_none();
    let id = (2..=u32::MAX).map(numbered).find(free).expect("no catalog has so many");
    out::say(format_args!("the name `{wanted}` belongs to {}: this one is called `{id}`", by.display()));
    id
}

/// The model that is called just so. Names that another one's `*` takes in are free: there is no end of them.
pub(crate) fn exact<'a>(catalog: &'a Catalog, name: &str) -> Option<&'a Arc<Model>> {
    catalog.has_name(name).then(|| catalog.resolve(name).ok()).flatten()
}

/// The path without links, but with the name that the file is called by: the name of a split model's first file tells
/// where the others are, and what it links to may tell nothing.
fn named(path: &Path) -> Result<PathBuf, ModelError> {
    let none = || ModelError::NoFile(path.to_owned());
    let whole = std::path::absolute(path).map_err(|_| none())?;
    let (Some(folder), Some(name), true) = (whole.parent(), whole.file_name(), path.exists()) else {
        return Err(none());
    };
    Ok(folder.canonicalize().map_err(|_| none())?.join(name))
}

/// The model whose file is the one at `path`, by whatever name.
pub(crate) fn model_of(path: &Path, (store, catalog): (&Store, &Catalog)) -> Result<Option<Arc<Model>>, ModelError> {
    let path = path.canonicalize().map_err(|_| ModelError::NoFile(path.to_owned()))?;
    let is_its = |model: &&Arc<Model>| store.path_of(model).canonicalize().is_ok_and(|file| file == path);
    Ok(catalog.models().find(is_its).cloned())
}

/// The file of the model that is called `id`. A file that was entered here and is gone holds nothing: it was moved. What was
/// entered since the catalog was read holds its name too.
pub(super) fn holder_of(id: &ModelId, (store, catalog): (&Store, &Catalog)) -> Option<PathBuf> {
    let Some(model) = exact(catalog, id.as_str()) else {
        let is_entered = store.home(id).join("model.toml").exists();
        return store.record(id).map(|record| record.first.file).filter(|file| is_entered && file.exists());
    };
    let file = store.path_of(model);
    let entered = store.home(id).join("model.toml").exists() && store.record(id).is_some_and(|r| r.first.file == file);
    (!entered || file.exists()).then_some(file)
}

/// A model's id from the name of its first file.
pub(super) fn id_of(file: &str) -> ModelId {
    let stem = file.strip_suffix(".gguf").or_else(|| file.strip_suffix(".GGUF")).unwrap_or(file);
    let stem = match motorpool_gguf::shard_names(file) {
        Ok(Some(names)) => {
            let n_digits = format!("-00001-of-{:05}", names.len()).len();
            stem.get(..stem.len().saturating_sub(n_digits)).unwrap_or(stem)
        }
        _ => stem,
    };
    let fits = |c: char| !(c.is_whitespace() || c.is_control() || matches!(c, ':' | ',' | '*' | '/'));
    let id: String = stem.chars().map(|c| if fits(c) { c } else { '-' }).collect();
    ModelId::new(if id.is_empty() { "model" } else { &id }).expect("not empty and without a colon")
}

/// A model's id from a repository and a file there: that of the file, unless every model's file is called so.
pub(super) fn id_in(repo: &str, file: &str) -> ModelId {
    let lower = file.to_ascii_lowercase();
    if !(lower.starts_with("ggml-model") || lower.starts_with("model")) {
        return id_of(file);
    }
    let name = repo.rsplit('/').next().unwrap_or(repo);
    let name = name.strip_suffix("-GGUF").or_else(|| name.strip_suffix("-gguf")).unwrap_or(name);
    match super::hub::quant(file) {
        Some(quant) => id_of(&format!("{name}-{quant}")),
        None => id_of(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_named_with_their_version_and_no_word_of_them_is_an_option() {
        let sum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let two = Packages::parse(&format!("m-q4-gguf-part1+m-q4-gguf-part2==1.0.0#sha256={sum}")).expect("right");
        assert_eq!(two.names, ["m-q4-gguf-part1", "m-q4-gguf-part2"]);
        assert_eq!((two.version.as_str(), two.sha256), ("1.0.0", Sum::parse(sum)));
        assert_eq!((two.id().as_str(), two.source().as_str()), ("m-q4", "pypi:m-q4-gguf-part1+m-q4-gguf-part2==1.0.0"));
        for (package, id) in [("Tiny_Model", "Tiny_Model"), ("gguf", "model"), ("my.gguf", "my"), ("Q8-Part01", "Q8")] {
            let one = Packages::parse(&format!("{package}==2")).expect("right");
            assert_eq!((one.id().as_str(), one.sha256), (id, None));
        }
        for wrong in
            ["", "a", "a==", "==1", "a+==1", "-r==1", "a==-1", "a b==1", "a==1;x", "a==1#sha256=0", "a==1#x", "a>=1"]
        {
            assert_eq!(Packages::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_id_is_what_tells_models_apart() {
        for (repo, file, id) in [
            ("o/Qwen3-8B-GGUF", "Qwen3-8B-Q4_K_M.gguf", "Qwen3-8B-Q4_K_M"),
            ("o/Qwen3-8B-GGUF", "Qwen3-8B-Q8_0-00001-of-00003.gguf", "Qwen3-8B-Q8_0"),
            ("o/tiny-GGUF", "ggml-model-q4_0.gguf", "tiny-q4_0"),
            ("o/tiny-gguf", "model.gguf", "tiny"),
            ("o/r", "my model:1.gguf", "my-model-1"),
        ] {
            assert_eq!(id_in(repo, file).as_str(), id, "{file}");
        }
    }
}
