//! [`Points`]: where a change counts.
//!
//! A path is followed as the system follows it. Every link on the way counts by its name, and so does what it ends at: where
//! files are put into a container one link is changed for all of them, and who keeps files elsewhere edits them there.
//!
//! ```text
//! /c/m.conf ─► /c/..data ─► /c/..1 ─► /c/..1/m.conf      each of them a name, in a folder that is watched
//! ```
use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Component, Path, PathBuf},
};

/// As many as the system follows.
const MOST_LINKS: usize = 40;

/// Where a change counts, all of it without links in the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Points {
    /// Folders in which `*.toml` does.
    folders: BTreeSet<PathBuf>,
    /// What counts by its name: files, folders, links, and what is not there yet.
    names: BTreeSet<PathBuf>,
}

impl Points {
    /// Those of a configuration file, and of what lies in these folders beside it.
    pub(super) fn of(file: &Path, beside: &Path) -> Self {
        let mut points = Self::default();
        points.follow(file);
        for folder in [beside.to_owned(), beside.join("engines"), beside.join("catalog")] {
            let Some(real) = points.follow(&folder) else { continue };
            let entries = fs::read_dir(&real).into_iter().flatten().flatten().map(|entry| entry.path());
            entries.filter(|path| is_toml(path) && path.is_symlink()).for_each(|path| drop(points.follow(&path)));
            points.folders.insert(real);
        }
        points
    }

    /// Every folder to watch.
    pub(super) fn to_watch(&self) -> BTreeSet<&Path> {
        let around = self.names.iter().filter_map(|name| name.parent());
        around.chain(self.folders.iter().map(PathBuf::as_path)).collect()
    }

    /// Whether it counts what happens there.
    pub(super) fn has(&self, path: &Path) -> bool {
        let in_folder = || path.parent().is_some_and(|folder| self.folders.contains(folder));
        self.names.contains(path) || is_toml(path) && in_folder()
    }

    /// Where `path` ends, without links; of what is not there, its first part that is missing counts.
    fn follow(&mut self, path: &Path) -> Option<PathBuf> {
        let (mut at, mut n_links) = (PathBuf::from("/"), 0);
        let mut ahead = parts(&std::path::absolute(path).ok()?);
        while let Some(part) = ahead.pop() {
            if part == ".." {
                at.pop();
                continue;
            }
            at.push(part);
            let Ok(meta) = fs::symlink_metadata(&at) else {
                self.names.insert(at);
                return None;
            };
            if meta.is_symlink() {
                n_links += 1;
                let to = fs::read_link(&at).ok().filter(|_| n_links <= MOST_LINKS);
                self.names.insert(at.clone());
                at.pop();
                let to = to?;
                if to.is_absolute() {
                    at = PathBuf::from("/");
                }
                ahead.extend(parts(&to));
            }
        }
        self.names.insert(at.clone());
        Some(at)
    }
}

/// The parts of a path, the last first.
fn parts(path: &Path) -> Vec<OsString> {
    let counts = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(counts).map(|part| part.as_os_str().to_owned()).collect()
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder of its own, without links on the way to it.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = top.path().canonicalize().expect("there");
        (top, path)
    }

    #[test]
    fn every_link_on_the_way_counts_and_so_does_what_it_ends_at() {
        let (_top, top) = folder();
        let path = |name: &str| top.join(name);
        for folder in ["c/..1", "far", "far/models"] {
            fs::create_dir_all(path(folder)).expect("made");
        }
        for file in ["c/..1/m.conf", "far/b.toml", "far/models/a.toml", "far/models/.b"] {
            fs::write(path(file), "").expect("written");
        }
        symlink("..1", path("c/..data")).expect("made");
        symlink("..data/m.conf", path("c/m.conf")).expect("made");
        symlink(path("far/models"), path("c/catalog")).expect("made");
        symlink("../b.toml", path("far/models/b.toml")).expect("made");
        symlink("../gone/x.toml", path("far/models/x.toml")).expect("made");
        let points = Points::of(&path("c/m.conf"), &path("c"));
        for ours in [
            "c/m.conf",
            "c/..data",
            "c/..1/m.conf",
            "c/x.toml",
            "c/engines",
            "c/catalog",
            "far/models/a.toml",
            "far/models/new.toml",
            "far/b.toml",
            "far/gone",
        ] {
            assert!(points.has(&path(ours)), "{ours}: {points:#?}");
        }
        for other in ["c/notes", "c/..2", "c/..1/x.toml", "far/c.toml", "far/models/.b", "c/m.conf.swp"] {
            assert!(!points.has(&path(other)), "{other}: {points:#?}");
        }
        let watched = points.to_watch();
        for folder in ["c", "c/..1", "far", "far/models"] {
            assert!(watched.contains(path(folder).as_path()), "{folder}: {watched:?}");
        }
    }

    #[test]
    fn links_that_lead_nowhere_end_and_of_a_folder_that_is_not_there_its_first_missing_part_counts() {
        let (_top, top) = folder();
        symlink("b.toml", top.join("a.toml")).expect("made");
        symlink("a.toml", top.join("b.toml")).expect("made");
        let points = Points::of(&top.join("a.toml"), &top);
        assert!(points.has(&top.join("a.toml")) && points.has(&top.join("b.toml")));
        let beside = top.join("x/y");
        let points = Points::of(&beside.join("m.conf"), &beside);
        assert!(points.has(&top.join("x")) && !points.has(&beside.join("m.conf")));
        assert_eq!(points.to_watch(), BTreeSet::from([top.as_path()]));
    }
}
