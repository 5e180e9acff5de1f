//! [`Entry`]: the catalog entry of a model that no catalog names, `<data>/models/<id>/model.toml`.
//!
//! What cannot stand in a catalog (a projector whose path holds a comma) is left out and said, so that what is written
//! can always be read: one entry that cannot would hide every model.
use super::{ModelError, at};
use crate::{disk, out};
use motorpool_catalog::{Capability, Model, Source, Terms, parse_model};
use motorpool_gguf::Header;
use motorpool_vocab::ModelId;
use serde::Serialize;
use std::{io, path::Path};

/// What is said of it.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) id: &'a ModelId,
    pub(super) aliases: Vec<String>,
    /// Its first file.
    pub(super) file: &'a Path,
    pub(super) projector: Option<&'a Path>,
    pub(super) terms: Option<Terms>,
    pub(super) capability: Capability,
}

#[derive(Serialize)]
struct Written<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aliases: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    capabilities: Vec<&'a str>,
    source: File,
    projector: Option<File>,
    license: Option<License>,
}

#[derive(Serialize)]
struct File {
    file: String,
}

#[derive(Serialize)]
struct License {
    name: String,
    url: Option<String>,
    text: String,
}

impl Entry<'_> {
    /// Writes it into the model's folder.
    pub(super) fn write(&self, home: &Path) -> Result<(), ModelError> {
        let path = home.join("model.toml");
        let wrong = |error| ModelError::Disk { path: path.clone(), source: io::Error::other(error) };
        let mut text = self.text().map_err(&wrong)?;
        if let (Err(_), Some(projector)) = (read(&text), self.projector) {
            out::say(format_args!("{} cannot stand in a catalog: it is left out", projector.display()));
            text = Entry { projector: None, ..self.clone() }.text().map_err(&wrong)?;
        }
        read(&text).map_err(|error| wrong(error.to_string()))?;
        at(&path, disk::write_whole(&path, text.as_bytes()))
    }

    fn text(&self) -> Result<String, String> {
        let file = |path: &Path| {
            let text = path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()))?;
            Ok::<_, String>(File { file: plain(text) })
        };
        let license = self.terms.as_ref().map(|terms| License {
            name: plain(&terms.name),
            url: terms.url.clone().filter(|url| url.starts_with("https://")),
            text: plain(&terms.text),
        });
        let written = Written {
            id: self.id.as_str(),
            aliases: self.aliases.iter().map(|alias| plain(alias)).collect(),
            capabilities: Some(self.capability).filter(|c| *c != Capability::Chat).iter().map(|c| c.as_str()).collect(),
            source: file(self.file)?,
            projector: self.projector.map(file).transpose()?,
            license,
        };
        let text = toml::to_string(&written).map_err(|error| error.to_string())?;
        Ok(format!("# Written by `motorpool model`.\n{text}"))
    }
}

fn read(text: &str) -> Result<Model, motorpool_catalog::ConfigError> {
    parse_model(Source { file: "model.toml", text }, &|_| None)
}

/// A text in which nothing stands for a variable.
fn plain(text: &str) -> String {
    text.replace("${", "$${")
}

/// What a model is for, by what its file says of pooling.
pub(super) fn capability_of(header: &Header) -> Capability {
    // As llama.cpp numbers them: none, mean, cls, last, rank.
    match header.hyper("pooling_type") {
        Some(1..=3) => Capability::Embeddings,
        Some(4) => Capability::Rerank,
        _ => Capability::Chat,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_catalog::ModelSource;
    use motorpool_gguf::{read_header, write::Writer};

    fn written(entry: &Entry<'_>) -> Model {
        let home = tempfile::tempdir().expect("a temporary directory");
        entry.write(home.path()).expect("written");
        let text = std::fs::read_to_string(home.path().join("model.toml")).expect("there");
        read(&text).expect("it can be read")
    }

    #[test]
    fn whatever_a_path_or_a_licence_holds_the_entry_is_read_back_as_it_was() {
        let id = ModelId::new("a\"b'c").expect("an id");
        let (file, projector) = (Path::new("/a \"${HOME}\"/m.gguf"), Path::new("/p/mmproj-'x'.gguf"));
        let text = "line\n'''\n\"\"\" ${HOME:-x} \\ \u{1f}";
        let terms = Terms { name: "own ${X}".into(), url: Some("http://no".into()), text: text.into() };
        let aliases = vec!["o/r:Q4".to_owned()];
        let entry = Entry {
            id: &id,
            aliases: aliases.clone(),
            file,
            projector: Some(projector),
            terms: Some(terms),
            capability: Capability::Embeddings,
        };
        let model = written(&entry);
        assert_eq!((&model.id, &model.aliases), (&id, &aliases));
        assert_eq!(model.source, ModelSource::File(file.to_owned()));
        assert_eq!(model.projector.expect("one").file, projector);
        assert_eq!(model.capabilities, [Capability::Embeddings]);
        let terms = model.license.expect("terms");
        assert_eq!((terms.name.as_str(), terms.url, terms.text.as_str()), ("own ${X}", None, text));
        let odd = Entry { projector: Some(Path::new("/a,b.gguf")), terms: None, ..entry };
        assert_eq!(written(&odd).projector, None);
    }

    #[test]
    fn a_model_is_for_what_its_pooling_says() {
        let of = |pooling: Option<u32>| {
            let writer = Writer::new().set("general.architecture", "bert");
            let file = pooling.map_or(writer.clone(), |n| writer.set("bert.pooling_type", n)).finish();
            let length = file.len() as u64;
            capability_of(&read_header(std::io::Cursor::new(file), length).expect("a header"))
        };
        assert_eq!((of(None), of(Some(0))), (Capability::Chat, Capability::Chat));
        assert_eq!((of(Some(1)), of(Some(4))), (Capability::Embeddings, Capability::Rerank));
    }
}
