//! Where other programs keep their models, and what a model is called there.
use super::{OnHub, Owner, walk};
use crate::model::{
    hub::{self, quant},
    wanted::id_of,
};
use serde_json::Value;
use std::path::{Path, PathBuf};

type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A folder to look into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) owner: Owner,
    pub(crate) root: PathBuf,
}

/// What a model is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Called {
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
    pub(super) hub: Option<OnHub>,
}

/// The usual caches that are here.
pub(crate) fn caches(var: Environment<'_>) -> Vec<Place> {
    let home = var("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = var("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
    let hub = ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"].into_iter().find_map(var).map(PathBuf::from);
    let hub = hub.or_else(|| Some(hub::home(var)?.join("hub")));
    let llama = if cfg!(target_os = "macos") { home.join("Library/Caches/llama.cpp") } else { cache.join("llama.cpp") };
    let ollama = match var("OLLAMA_MODELS") {
        Some(said) => vec![PathBuf::from(said)],
        None => vec![home.join(".ollama/models"), "/usr/share/ollama/.ollama/models".into()],
    };
    let lm_studio = [moved_folder(&home), Some(home.join(".lmstudio/models")), Some(cache.join("lm-studio/models"))];
    let places = hub.into_iter().map(|root| (Owner::HuggingFace, root));
    let places = places.chain([(Owner::LlamaCpp, var("LLAMA_CACHE").map_or(llama, PathBuf::from))]);
    let places = places.chain(lm_studio.into_iter().flatten().map(|root| (Owner::LmStudio, root)));
    let places = places.chain(ollama.into_iter().map(|root| (Owner::Ollama, root)));
    places.filter(|(_, root)| root.is_dir()).map(|(owner, root)| Place { owner, root }).collect()
}

/// Where LM Studio was told to keep its models.
fn moved_folder(home: &Path) -> Option<PathBuf> {
    let settings = std::fs::read(home.join(".lmstudio/settings.json")).ok()?;
    let settings: Value = serde_json::from_slice(&settings).ok()?;
    settings["downloadsFolder"].as_str().map(PathBuf::from).filter(|path| path.is_absolute())
}

/// What the model whose first file is `first` is called below `root`.
pub(super) fn called(root: &Path, owner: Owner, first: &Path) -> Called {
    let file = first.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let parts: Vec<&str> =
        first.strip_prefix(root).into_iter().flat_map(Path::iter).filter_map(|p| p.to_str()).collect();
    let hub = match (owner, parts.as_slice()) {
        (Owner::HuggingFace, [repo, "snapshots", _, path @ ..]) => {
            repo_of(repo).map(|repo| OnHub { repo, path: path.join("/") })
        }
        (Owner::LmStudio, [publisher, name, path]) => {
            Some(OnHub { repo: format!("{publisher}/{name}"), path: (*path).to_owned() })
        }
        (Owner::LlamaCpp, [_]) => by_manifest(root, file),
        _ => None,
    };
    let file = hub.as_ref().map_or(file, |hub| hub::base(&hub.path));
    let alias = |hub: &OnHub| Some(format!("{}:{}", hub.repo, quant(file)?));
    Called { name: id_of(file).to_string(), aliases: hub.as_ref().and_then(alias).into_iter().collect(), hub }
}

/// `models--ORG--NAME`.
fn repo_of(folder: &str) -> Option<String> {
    let (org, name) = folder.strip_prefix("models--")?.split_once("--")?;
    (!org.is_empty() && !name.is_empty()).then(|| format!("{org}/{name}"))
}

/// llama.cpp's cache is flat: `ORG_NAME_FILE`, and a manifest tells where each part ends.
fn by_manifest(root: &Path, file: &str) -> Option<OnHub> {
    let is_manifest = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("manifest=") && Path::new(name).extension().is_some_and(|ext| ext == "json")
    };
    walk::all_files(root, &is_manifest).files.iter().find_map(|manifest| {
        let name = manifest.path.file_stem()?.to_str()?;
        let [_, org, repo, _tag] = name.split('=').collect::<Vec<_>>()[..] else { return None };
        let text: Value = serde_json::from_slice(&std::fs::read(&manifest.path).ok()?).ok()?;
        let there = text["ggufFile"]["rfilename"].as_str()?;
        let is_it = format!("{org}_{repo}_{}", there.replace('/', "_")) == file;
        is_it.then(|| OnHub { repo: format!("{org}/{repo}"), path: there.to_owned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called_in(owner: Owner, path: &str) -> (String, Vec<String>) {
        let Called { name, aliases, .. } = called(Path::new("/r"), owner, &Path::new("/r").join(path));
        (name, aliases)
    }

    #[test]
    fn a_model_is_called_as_its_owner_calls_it() {
        let alias = |alias: &str| vec![alias.to_owned()];
        let hub =
            called_in(Owner::HuggingFace, "models--org--tiny-GGUF/snapshots/0abc/big/tiny-Q8_0-00001-of-00002.gguf");
        assert_eq!(hub, ("tiny-Q8_0".into(), alias("org/tiny-GGUF:Q8_0")));
        assert_eq!(called_in(Owner::LmStudio, "p/n/m-Q4_K_M.gguf"), ("m-Q4_K_M".into(), alias("p/n:Q4_K_M")));
        assert_eq!(called_in(Owner::LmStudio, "p/n/m.gguf"), ("m".into(), vec![]));
        assert_eq!(called_in(Owner::Folder, "p/n/m-Q4_0.gguf"), ("m-Q4_0".into(), vec![]));
        assert_eq!(called_in(Owner::LlamaCpp, "org_tiny_m-Q4_0.gguf"), ("org_tiny_m-Q4_0".into(), vec![]));
    }

    #[test]
    fn llama_cpps_cache_is_read_by_its_manifests() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let manifest = r#"{"ggufFile": {"rfilename": "sub/m-Q4_0.gguf"}}"#;
        std::fs::write(top.path().join("manifest=org=tiny_x=Q4_0.json"), manifest).expect("written");
        std::fs::write(top.path().join("manifest=org=other=latest.json"), "{").expect("written");
        let called = called(top.path(), Owner::LlamaCpp, &top.path().join("org_tiny_x_sub_m-Q4_0.gguf"));
        assert_eq!((called.name.as_str(), called.aliases), ("m-Q4_0", vec!["org/tiny_x:Q4_0".to_owned()]));
        assert_eq!(called.hub, Some(OnHub { repo: "org/tiny_x".into(), path: "sub/m-Q4_0.gguf".into() }));
    }

    #[test]
    fn the_environment_says_where_caches_are_and_the_home_directory_when_it_does_not() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| top.path().join(name);
        let usual = [".cache/huggingface/hub", ".cache/llama.cpp", ".lmstudio/models", ".ollama/models", "x/hub", "lm"];
        for name in usual {
            std::fs::create_dir_all(path(name)).expect("made");
        }
        let settings = serde_json::json!({ "downloadsFolder": path("lm") });
        std::fs::write(path(".lmstudio/settings.json"), settings.to_string()).expect("written");
        let roots = |set: &[(&str, PathBuf)]| {
            let set = [set, &[("HOME", top.path().to_owned())]].concat();
            let var = move |name: &str| {
                let value = set.iter().find(|(key, _)| *key == name);
                value.map(|(_, path)| path.display().to_string())
            };
            caches(&var)
                .into_iter()
                .map(|place| place.root)
                .filter(|root| root.starts_with(top.path()))
                .collect::<Vec<_>>()
        };
        if cfg!(target_os = "linux") {
            let expected = [usual[0], usual[1], "lm", usual[2], usual[3]].map(path);
            assert_eq!(roots(&[]), expected);
        }
        let moved = roots(&[("HF_HOME", path("x")), ("LLAMA_CACHE", path("gone")), ("OLLAMA_MODELS", path("lm"))]);
        assert_eq!(moved, ["x/hub", "lm", ".lmstudio/models", "lm"].map(path));
    }
}
