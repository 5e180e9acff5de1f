//! Which files are one model: [`groups`], by their names alone.
//!
//! Shards belong together. A projector belongs to the models of its folder when its name says of which, or when there is
//! only one it can be of: `mmproj-F16.gguf` beside several quantisations of one model, not beside two models.
use crate::model::hub::quant;
use motorpool_gguf::shard_names;
use motorpool_vocab::Bytes;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

/// A file that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) path: PathBuf,
    pub(super) size: Bytes,
}

/// The files of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) first: PathBuf,
    pub(super) n_files: usize,
    pub(super) bytes: Bytes,
    pub(super) projector: Option<PathBuf>,
}

/// The models among these files; and the first files of those that are not all there.
pub(super) fn groups(files: Vec<Seen>) -> (Vec<Group>, Vec<PathBuf>) {
    let (projectors, others): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| is_projector(&file.path));
    let (mut groups, mut torn) = (Vec::new(), Vec::new());
    for file in &others {
        // Further shards come with their first one.
        let Ok(names) = shard_names(name(&file.path)) else {
            torn.extend(orphan(&file.path, &others));
            continue;
        };
        let names = names.unwrap_or_else(|| vec![name(&file.path).to_owned()]);
        let paths: Vec<_> = names.iter().map(|name| file.path.with_file_name(name)).collect();
        let sizes: Vec<_> =
            paths.iter().filter_map(|path| Some(others.iter().find(|f| f.path == *path)?.size)).collect();
        if sizes.len() < paths.len() {
            torn.push(file.path.clone());
            continue;
        }
        let (first, bytes) = (file.path.clone(), Bytes::sum(sizes));
        groups.push(Group { first, n_files: paths.len(), bytes, projector: None });
    }
    let firsts: Vec<PathBuf> = groups.iter().map(|group| group.first.clone()).collect();
    for group in &mut groups {
        group.projector = pick_projector(&projectors, &group.first, &firsts);
    }
    torn.sort();
    torn.dedup();
    (groups, torn)
}

/// A further shard whose first one is not there.
fn orphan(path: &Path, all: &[Seen]) -> Option<PathBuf> {
    let stem = name(path).strip_suffix(".gguf")?;
    let (before, count) = stem.rsplit_once("-of-")?;
    let (prefix, _) = before.rsplit_once('-')?;
    let first = path.with_file_name(format!("{prefix}-00001-of-{count}.gguf"));
    (!all.iter().any(|file| file.path == first)).then(|| path.to_owned())
}

/// Of those that fit, the one with the fewest words of its own, ties by name.
fn pick_projector(projectors: &[Seen], first: &Path, firsts: &[PathBuf]) -> Option<PathBuf> {
    let beside: BTreeSet<String> =
        firsts.iter().filter(|other| other.parent() == first.parent()).map(|other| base(name(other))).collect();
    let own = base(name(first));
    let fits = |projector: &&Seen| {
        let of = base(name(&projector.path));
        let is_named = !of.is_empty() && (own.starts_with(&of) || of.starts_with(&own));
        projector.path.parent() == first.parent() && (is_named || (of.is_empty() && beside.len() == 1))
    };
    let rank = |projector: &&Seen| {
        let words = name(&projector.path).to_ascii_lowercase();
        let precision = ["bf16", "f16", "q8", "f32"].iter().position(|word| words.contains(word)).unwrap_or(4);
        // `bf16` holds `f16`, which is liked better.
        let precision = [1, 0, 2, 3, 4][precision];
        (usize::MAX - base(name(&projector.path)).len(), precision, projector.path.clone())
    };
    projectors.iter().filter(fits).min_by_key(rank).map(|projector| projector.path.clone())
}

pub(crate) fn is_projector(path: &Path) -> bool {
    name(path).to_ascii_lowercase().contains("mmproj")
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// What a model is called whatever its quantisation: the words of a name before it, without those that any has.
fn base(name: &str) -> String {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_ascii_lowercase();
    let quant = quant(name).map(|quant| quant.to_ascii_lowercase()).unwrap_or_default();
    let stem = match stem.rsplit_once(&quant).filter(|_| !quant.is_empty()) {
        Some((before, _)) => before.to_owned(),
        None => stem,
    };
    let words = stem.split(['-', '.', '_']).filter(|word| !matches!(*word, "" | "mmproj" | "model" | "ggml" | "gguf"));
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row = (String, usize, Option<String>);

    fn seen(paths: &[&str]) -> (Vec<Row>, Vec<String>) {
        let file = |path: &&str| Seen { path: path.into(), size: Bytes::new(10) };
        let text = |path: &PathBuf| path.display().to_string();
        let (groups, torn) = groups(paths.iter().map(file).collect());
        let of = |group: &Group| {
            assert_eq!(group.bytes.get(), 10 * group.n_files as u64);
            (text(&group.first), group.n_files, group.projector.as_ref().map(text))
        };
        (groups.iter().map(of).collect(), torn.iter().map(text).collect())
    }

    #[test]
    fn shards_are_one_model_and_without_one_of_them_none() {
        let (groups, torn) = seen(&[
            "/a/m-00001-of-00002.gguf",
            "/a/m-00002-of-00002.gguf",
            "/b/m-00001-of-00002.gguf",
            "/c/x-00002-of-00002.gguf",
        ]);
        assert_eq!(groups, [("/a/m-00001-of-00002.gguf".into(), 2, None)]);
        assert_eq!(torn, ["/b/m-00001-of-00002.gguf", "/c/x-00002-of-00002.gguf"]);
    }

    #[test]
    fn a_projector_goes_with_the_models_that_it_can_only_be_of() {
        let projector_of =
            |paths: &[&str]| seen(paths).0.into_iter().map(|(_, _, projector)| projector).collect::<Vec<_>>();
        let with = |name: &str| Some(format!("/a/{name}"));
        let both = projector_of(&["/a/m-Q4_0.gguf", "/a/m-Q8_0.gguf", "/a/mmproj-F16.gguf"]);
        assert_eq!(both, [with("mmproj-F16.gguf"), with("mmproj-F16.gguf")]);
        let unclear = projector_of(&["/a/m-Q4_0.gguf", "/a/n-Q4_0.gguf", "/a/mmproj-F16.gguf"]);
        assert_eq!(unclear, [None, None]);
        let named = projector_of(&["/a/m-4b-Q4_0.gguf", "/a/n-Q4_0.gguf", "/a/mmproj-m-4b-F16.gguf"]);
        assert_eq!(named, [with("mmproj-m-4b-F16.gguf"), None]);
        let behind = projector_of(&["/a/m-Q4_0.gguf", "/a/m.mmproj-q8_0.gguf", "/a/m.mmproj-f16.gguf"]);
        assert_eq!(behind, [with("m.mmproj-f16.gguf")]);
        assert_eq!(projector_of(&["/a/m.gguf", "/b/mmproj-F16.gguf"]), [None]);
        assert_eq!(projector_of(&["/a/mmproj-F16.gguf"]).len(), 0);
    }
}
