//! Files below a folder, as far as they may be models. Links are followed, each folder is looked into once, and a tree
//! that does not end is left, which is told.
use super::{Passed, group::Seen};
use motorpool_vocab::Bytes;
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Folders below each other.
const DEEPEST: usize = 8;
/// Files and folders in all.
const MOST: usize = 200_000;

/// What lies below a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) files: Vec<Seen>,
    /// The folder at which the look at it ended, when it ended early.
    pub(super) cut: Option<Passed>,
}

/// Every GGUF file below `root`, by path. What cannot be read is not there.
pub(super) fn model_files(root: &Path) -> Tree {
    let mut tree = all_files(root, &|path| path.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("gguf")));
    tree.files.sort_by(|a, b| a.path.cmp(&b.path));
    tree
}

/// Every file below `root` that `fits`.
pub(super) fn all_files(root: &Path, fits: &dyn Fn(&Path) -> bool) -> Tree {
    walk(root, fits, MOST)
}

/// The same, of the first `n_most` files and folders.
fn walk(root: &Path, fits: &dyn Fn(&Path) -> bool, n_most: usize) -> Tree {
    let (mut found, mut folders, mut seen, mut n_left) = (vec![], vec![(root.to_owned(), 0)], BTreeSet::new(), n_most);
    let mut cut = None;
    while let Some((folder, depth)) = folders.pop().filter(|_| cut.is_none()) {
        let mut entries = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut paths: Vec<PathBuf> = entries.by_ref().take(n_left).collect();
        n_left -= paths.len();
        if entries.next().is_some() {
            let why = format!("{} holds more than {n_most} files and folders: the rest was not seen", root.display());
            cut = Some(Passed { file: folder, why });
        }
        paths.sort();
        for path in paths.into_iter().filter(|path| !is_hidden(path)) {
            let Ok(meta) = fs::metadata(&path) else { continue };
            if meta.is_dir() && depth < DEEPEST && seen.insert((meta.dev(), meta.ino())) {
                folders.push((path, depth + 1));
            } else if meta.is_file() && fits(&path) {
                found.push(Seen { path, size: Bytes::new(meta.len()) });
            }
        }
    }
    Tree { files: found, cut }
}

/// Programs keep there what is not for others: locks, what is not whole yet.
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_tree_that_is_too_large_is_seen_in_part_and_that_is_told() {
        let top = tempfile::tempdir().expect("a temporary directory");
        for name in ["a", "b", "c"] {
            fs::write(top.path().join(name), "x").expect("written");
        }
        let tree = |n_most| walk(top.path(), &|_| true, n_most);
        assert_eq!((tree(3).files.len(), tree(3).cut), (3, None));
        let cut = tree(2);
        assert_eq!((cut.files.len(), cut.cut.as_ref().map(|cut| cut.file.as_path())), (2, Some(top.path())));
        assert!(cut.cut.is_some_and(|cut| cut.why.contains("more than 2 files")));
    }

    #[test]
    fn links_are_followed_once_and_what_is_hidden_is_not_seen() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| top.path().join(name);
        for folder in ["a/b", "elsewhere", ".hidden"] {
            fs::create_dir_all(path(folder)).expect("made");
        }
        for file in ["a/b/m.gguf", "a/M.GGUF", "a/readme.md", ".hidden/m.gguf", "elsewhere/e.gguf"] {
            fs::write(path(file), "x").expect("written");
        }
        symlink(path("a"), path("a/b/round")).expect("made");
        symlink(path("a"), path("a/b/again")).expect("made");
        symlink(path("elsewhere/e.gguf"), path("a/e.gguf")).expect("made");
        symlink(path("nowhere"), path("a/gone.gguf")).expect("made");
        let names = |root: &str| {
            let files = model_files(&path(root)).files.into_iter();
            files
                .map(|file| file.path.strip_prefix(top.path()).expect("below").display().to_string())
                .collect::<Vec<_>>()
        };
        let inside = names("a");
        assert!(
            inside.len() <= 6 && ["a/M.GGUF", "a/b/m.gguf", "a/e.gguf"].iter().all(|f| inside.contains(&(*f).into())),
            "{inside:?}"
        );
        assert_eq!(names("nowhere"), [""; 0]);
    }
}
