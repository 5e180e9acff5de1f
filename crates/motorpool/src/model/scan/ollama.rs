//! Ollama's models: a manifest names the blobs of each, `manifests/<registry>/<namespace>/<name>/<tag>`.
//!
//! Blobs are files that are called by their SHA-256. Manifests are somebody else's text: a digest that is none leads
//! nowhere.
use super::{Found, NOT_UTF8, Owner, Passed, Scan, judge, walk};
use crate::{disk::Sum, model::wanted::id_of};
use motorpool_vocab::Bytes;
use serde::Deserialize;
use std::path::{Path, PathBuf};

const LIBRARY: [&str; 2] = ["registry.ollama.ai", "library"];
const MODEL: &str = "application/vnd.ollama.image.model";
const PROJECTOR: &str = "application/vnd.ollama.image.projector";
const ADAPTER: &str = "application/vnd.ollama.image.adapter";

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
struct Layer {
    #[serde(rename = "mediaType")]
    kind: String,
    digest: String,
}

pub(super) fn look(root: &Path) -> Scan {
    let manifests = root.join("manifests");
    let walk::Tree { mut files, cut } = walk::all_files(&manifests, &|_| true);
    let mut scan = Scan { cut: cut.into_iter().collect(), ..Scan::default() };
    files.sort_by(|a, b| a.path.cmp(&b.path));
    for file in files {
        let Some(name) = file.path.strip_prefix(&manifests).ok().and_then(name_of) else { continue };
        match found(root, &file.path, &name) {
            Ok(found) => scan.models.push(found),
            Err(why) => scan.passed.push(Passed { file: file.path, why }),
        }
    }
    scan
}

/// `name:tag`, with its namespace or registry where that is not the usual one.
fn name_of(path: &Path) -> Option<String> {
    let parts: Vec<&str> = path.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    let [registry, namespace, name, tag] = parts[..] else { return None };
    let place = match [registry, namespace] {
        LIBRARY => String::new(),
        [usual, namespace] if usual == LIBRARY[0] => format!("{namespace}/"),
        _ => format!("{registry}/{namespace}/"),
    };
    Some(format!("{place}{name}:{tag}"))
}

fn found(root: &Path, manifest: &Path, name: &str) -> Result<Found, String> {
    let text = std::fs::read(manifest).map_err(|error| error.to_string())?;
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|_| "it is no manifest".to_owned())?;
    let of = |kind: &'static str| manifest.layers.iter().filter(move |layer| layer.kind == kind);
    if of(ADAPTER).next().is_some() {
        return Err("it is another model with an adapter".to_owned());
    }
    let mut models = of(MODEL);
    let (Some(layer), None) = (models.next(), models.next()) else {
        return Err("it names no model in one file".to_owned());
    };
    let (file, sum) = blob(root, &layer.digest).ok_or("its model is not there")?;
    if file.to_str().is_none() {
        return Err(NOT_UTF8.to_owned());
    }
    let capability = judge(&file)?;
    let projector = of(PROJECTOR).next().and_then(|layer| blob(root, &layer.digest)).map(|(file, _)| file);
    let bytes = std::fs::metadata(&file).map_or(Bytes::ZERO, |meta| Bytes::new(meta.len()));
    let id = id_of(name.strip_suffix(":latest").unwrap_or(name));
    Ok(Found {
        name: id.to_string(),
        owner: Owner::Ollama,
        file,
        files: 1,
        bytes: bytes.get(),
        projector,
        aliases: vec![name.to_owned()],
        sha256: Some(sum),
        capability,
        hub: None,
    })
}

/// The file with this digest.
fn blob(root: &Path, digest: &str) -> Option<(PathBuf, Sum)> {
    let sum = Sum::parse(digest.strip_prefix("sha256:")?)?;
    let names = [format!("sha256-{sum}"), format!("sha256:{sum}")];
    let mut paths = names.iter().map(|name| root.join("blobs").join(name));
    paths.find(|path| path.is_file()).map(|path| (path, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_as_short_as_ollama_writes_it() {
        for (path, name) in [
            ("registry.ollama.ai/library/tiny/latest", Some("tiny:latest")),
            ("registry.ollama.ai/me/tiny/1b", Some("me/tiny:1b")),
            ("hf.co/org/tiny-GGUF/Q4_0", Some("hf.co/org/tiny-GGUF:Q4_0")),
            ("registry.ollama.ai/library/tiny", None),
        ] {
            assert_eq!(name_of(Path::new(path)).as_deref(), name, "{path}");
        }
    }

    #[test]
    fn a_digest_that_is_none_leads_nowhere() {
        let top = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir_all(top.path().join("blobs")).expect("made");
        let sum = "a".repeat(64);
        std::fs::write(top.path().join(format!("blobs/sha256-{sum}")), "x").expect("written");
        std::fs::write(top.path().join("secret"), "x").expect("written");
        assert!(blob(top.path(), &format!("sha256:{sum}")).is_some());
        for digest in ["sha256:../../secret", "../secret", &sum, "sha256:", &format!("md5:{sum}")] {
            assert_eq!(blob(top.path(), digest), None, "{digest}");
        }
    }
}
