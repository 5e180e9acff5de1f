//! [`Here`]: which models of the hub lie on this machine already, pulled by us or kept by other programs.
use super::{
    hub::{Reference, RemoteFile, Unchosen, pick_files},
    scan::{self, OnHub, Owner},
    store::{Pulled, Store},
};
use crate::dirs::Dirs;
use motorpool_gguf::shard_names;
use motorpool_vocab::Bytes;
use std::{
    cmp::Reverse,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// A model of the hub that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    from: OnHub,
    /// Its first file.
    pub(crate) file: PathBuf,
    pub(crate) projector: Option<PathBuf>,
}

/// What is here, ours first, then the newest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Here {
    kept: Vec<Kept>,
    /// Addresses that files were pulled from.
    addresses: Vec<(String, PathBuf)>,
}

impl Here {
    /// Reads our own records, and looks where others keep what they got from the hub.
    pub(crate) fn look(dirs: &Dirs, var: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut pulled = Store::new(dirs).records();
        pulled.retain(|pulled| pulled.pieces().all(|piece| piece.file.exists()));
        let is_address = |pulled: &&Pulled| pulled.source.starts_with("http");
        let address = |pulled: &Pulled| (pulled.source.clone(), pulled.first.file.clone());
        let addresses = pulled.iter().filter(is_address).map(address).collect();
        let mut places = scan::caches(var);
        places.retain(|place| place.owner != Owner::Ollama);
        let mut others: Vec<_> = scan::scan(&places).models.into_iter().filter_map(of_others).collect();
        others.sort_by_key(|kept| Reverse(changed(&kept.file)));
        Self { kept: pulled.iter().filter_map(of_ours).chain(others).collect(), addresses }
    }

    /// The model that `reference` means, of those that are here; of which revision, nobody asks.
    pub(crate) fn find(&self, reference: &Reference) -> Result<&Kept, Unchosen> {
        let of_repo = || self.kept.iter().filter(|kept| kept.from.repo.eq_ignore_ascii_case(&reference.repo));
        let mut files: Vec<RemoteFile> = Vec::new();
        for path in of_repo().flat_map(|kept| shards(&kept.from.path)) {
            if !files.iter().any(|file| file.path == path) {
                files.push(RemoteFile { path, size: Bytes::ZERO, sha256: None });
            }
        }
        let choice = pick_files(&files, reference.wanted.as_deref())?;
        of_repo().find(|kept| kept.from.path == choice.shards[0].path).ok_or(Unchosen::Empty)
    }

    /// What was pulled from this address.
    pub(crate) fn at(&self, address: &str) -> Option<&Path> {
        self.addresses.iter().find(|(known, _)| known == address).map(|(_, file)| file.as_path())
    }
}

fn of_ours(pulled: &Pulled) -> Option<Kept> {
    let from = pulled.source.strip_prefix("hf:").and_then(Reference::parse)?;
    let projector = pulled.beside.iter().map(|piece| &piece.file).find(|file| scan::is_projector(file));
    Some(Kept {
        from: OnHub { repo: from.repo, path: from.wanted? },
        file: pulled.first.file.clone(),
        projector: projector.cloned(),
    })
}

fn of_others(found: scan::Found) -> Option<Kept> {
    Some(Kept { from: found.hub?, file: found.file, projector: found.projector })
}

fn changed(file: &Path) -> Option<SystemTime> {
    file.metadata().and_then(|meta| meta.modified()).ok()
}

/// All files of the model whose first is at `path`.
fn shards(path: &str) -> Vec<String> {
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (&path[..=folder.len()], name));
    let names = shard_names(name).ok().flatten().unwrap_or_else(|| vec![name.to_owned()]);
    names.iter().map(|name| format!("{folder}{name}")).collect()
}

#[cfg(test)]
impl Here {
    /// With these: where each is from, and its file and projector here.
    pub(crate) fn of(kept: &[(&str, &str, &str, Option<&str>)]) -> Self {
        let one = |(repo, path, file, projector): &(&str, &str, &str, Option<&str>)| Kept {
            from: OnHub { repo: (*repo).to_owned(), path: (*path).to_owned() },
            file: file.into(),
            projector: projector.map(PathBuf::from),
        };
        Self { kept: kept.iter().map(one).collect(), addresses: vec![("https://h/m.gguf".into(), "/u.gguf".into())] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_here_is_found_as_the_hub_would_choose_it() {
        let here = Here::of(&[
            ("o/r", "m-Q4_K_M.gguf", "/new/4", None),
            ("o/r", "m-Q4_K_M.gguf", "/old/4", None),
            ("O/R", "big/m-Q8_0-00001-of-00002.gguf", "/8", None),
            ("o/only", "odd.gguf", "/odd", None),
            ("o/two", "a-Q5_0.gguf", "/a", None),
            ("o/two", "b-Q5_0.gguf", "/b", None),
        ]);
        let find = |text: &str| {
            let found = here.find(&Reference::parse(text).expect("one"));
            found.ok().map(|kept| kept.file.display().to_string())
        };
        for (text, file) in [
            ("o/r", Some("/new/4")),
            ("o/r:q8_0", Some("/8")),
            ("o/r:big/m-Q8_0-00002-of-00002.gguf", Some("/8")),
            ("o/r:Q6_K", None),
            ("o/only", Some("/odd")),
            ("o/two", None),
            ("o/two:Q5_0", None),
            ("o/two:b-Q5_0.gguf", Some("/b")),
            ("o/none", None),
        ] {
            assert_eq!(find(text).as_deref(), file, "{text}");
        }
        assert_eq!(here.at("https://h/m.gguf"), Some(Path::new("/u.gguf")));
        assert_eq!(here.at("https://h/n.gguf"), None);
    }
}
