//! [`StateFiles`]: contexts of sessions on disk, `<state>/slots/<model>@<identity>/<session>.slot` (supervisor.md §7).
//!
//! ```text
//! slots/                       0700
//!   gemma3-270m@0f3c…/         a model as one build of its engine sees it, with one type of cache
//!     5a1e….slot               what the engine wrote for one session; named by a hash, as names of sessions may be private
//!     5a1e….12-3.part          being written by child 12, as its third
//! ```
//!
//! Everything here is best effort: what cannot be had costs its session a prompt. A folder of the same model with
//! another identity is of no use to anybody and is deleted when the model is launched, unless an engine still uses it.
use crate::{
    handle::file_name,
    identity::{add, hex},
    shelf::{Place, Shelf},
};
use motorpool_pool::Writing;
use motorpool_vocab::{Bytes, ModelId, Spawn};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

const WHOLE: &str = ".slot";
const PART: &str = ".part";

/// All contexts of sessions on disk.
#[derive(Debug)]
pub(crate) struct StateFiles {
    root: PathBuf,
    shelf: Mutex<Shelf>,
    /// How many engines have each folder.
    in_use: Mutex<BTreeMap<Arc<str>, usize>>,
}

impl StateFiles {
    /// What is there from earlier. Whatever is not whole is deleted, and what is more than may be. Blocks.
    pub(crate) fn open(root: PathBuf, budget: Bytes) -> Self {
        let files = Self { root, shelf: Mutex::new(Shelf::new(budget)), in_use: Mutex::default() };
        let mut found = Vec::new();
        for folder in names_in(&files.root) {
            let path = files.root.join(&*folder);
            for name in names_in(&path) {
                let whole = name.ends_with(WHOLE).then(|| fs::metadata(path.join(&*name)).ok()).flatten();
                match whole.and_then(|meta| Some((meta.modified().ok()?, meta.len()))) {
                    Some((used, bytes)) => found.push((used, (folder.clone(), name), Bytes::new(bytes))),
                    None if name.ends_with(PART) => remove(&path.join(&*name)),
                    None => {}
                }
            }
            // Only one without files can be.
            let _ = fs::remove_dir(&path);
        }
        found.sort();
        for (_, place, bytes) in found {
            files.put(place, bytes);
        }
        files
    }

    /// The folder of a model as an engine sees it: `about` names its files, its engine's build and what that is told, and
    /// `kv` the type of its cache. Blocks.
    pub(crate) fn folder(self: &Arc<Self>, model: &ModelId, (about, kv): (&str, &str)) -> io::Result<Folder> {
        let model = file_name(model.as_str());
        let name: Arc<str> = format!("{model}@{}", hash(&[about, kv])).into();
        *self.in_use.lock().entry(name.clone()).or_default() += 1;
        let folder = Folder { files: Arc::clone(self), name };
        self.forget_others(&model, &folder.name);
        DirBuilder::new().recursive(true).mode(0o700).create(folder.path())?;
        Ok(folder)
    }

    /// What other identities of the model left is of no use.
    fn forget_others(&self, model: &str, present: &str) {
        for other in names_in(&self.root) {
            let of_model = other.rsplit_once('@').is_some_and(|(of, _)| of == model);
            if of_model && *other != *present && !self.in_use.lock().contains_key(&other) {
                self.shelf.lock().forget_folder(&other);
                tracing::info!(folder = &*other, "contexts of sessions of another build or file are deleted");
                if let Err(error) = fs::remove_dir_all(self.root.join(&*other)) {
                    tracing::warn!(folder = &*other, %error, "cannot be deleted");
                }
            }
        }
    }

    fn put(&self, place: Place, bytes: Bytes) {
        let going = self.shelf.lock().put(place, bytes);
        for (folder, name) in going {
            remove(&self.root.join(&*folder).join(&*name));
        }
    }
}

/// What one engine keeps of its sessions.
#[derive(Debug)]
pub(crate) struct Folder {
    files: Arc<StateFiles>,
    name: Arc<str>,
}

impl Folder {
    pub(crate) fn path(&self) -> PathBuf {
        self.files.root.join(&*self.name)
    }

    /// The name under which a child writes the context of a session; [`Folder::is_written`] or [`Folder::give_up`] ends it.
    ///
    /// Its writing is in it: the same may be wanted again while an earlier one is under way, which would end it half done.
    pub(crate) fn part((spawn, Writing(n)): (Spawn, Writing), session: &str) -> String {
        format!("{}.{spawn}-{n}{PART}", hash(&[session]))
    }

    /// The child wrote it. How many bytes that are. Blocks.
    pub(crate) fn is_written(&self, by: (Spawn, Writing), session: &str) -> io::Result<Bytes> {
        let part = self.path().join(Self::part(by, session));
        let name = whole(session);
        let bytes = Bytes::new(fs::metadata(&part)?.len());
        fs::rename(&part, self.path().join(&*name))?;
        self.files.put((self.name.clone(), name), bytes);
        Ok(bytes)
    }

    /// The child did not write it, or not all. Blocks.
    pub(crate) fn give_up(&self, by: (Spawn, Writing), session: &str) {
        remove(&self.path().join(Self::part(by, session)));
    }

    /// The name of the file that holds the context of a session, if there is one; it was used now. Blocks.
    pub(crate) fn find(&self, session: &str) -> Option<Arc<str>> {
        let name = whole(session);
        if !self.files.shelf.lock().find(&(self.name.clone(), name.clone())) {
            return None;
        }
        // So that the order of use outlives us; without it this one only goes sooner.
        let touched = File::options().append(true).open(self.path().join(&*name));
        let _ = touched.and_then(|file| file.set_modified(SystemTime::now()));
        Some(name)
    }

    /// What is there for a session is of no use. Blocks.
    pub(crate) fn forget(&self, session: &str) {
        let name = whole(session);
        remove(&self.path().join(&*name));
        self.files.shelf.lock().forget(&(self.name.clone(), name));
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let mut in_use = self.files.in_use.lock();
        if let Some(n) = in_use.get_mut(&self.name) {
            *n -= 1;
            if *n == 0 {
                in_use.remove(&self.name);
            }
        }
    }
}

fn whole(session: &str) -> Arc<str> {
    format!("{}{WHOLE}", hash(&[session])).into()
}

/// 128 bits, which nobody finds two sessions of.
fn hash(words: &[&str]) -> String {
    let mut sum = Sha256::new();
    for word in words {
        add(&mut sum, OsStr::new(word));
    }
    hex(sum, 16)
}

fn names_in(folder: &Path) -> Vec<Arc<str>> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.file_name().to_str()?.into())).collect()
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "cannot be deleted");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const CHILD: (Spawn, Writing) = (Spawn(7), Writing(1));

    fn open(root: &Path, mib: u64) -> Arc<StateFiles> {
        Arc::new(StateFiles::open(root.join("slots"), Bytes::mib(mib)))
    }

    fn folder(files: &Arc<StateFiles>, about: &str) -> Folder {
        files.folder(&ModelId::new("qwen/3").expect("an id"), (about, "f16")).expect("made")
    }

    /// An engine wrote so many MiB for a session.
    fn write(folder: &Folder, session: &str, mib: u64) {
        let part = File::create(folder.path().join(Folder::part(CHILD, session))).expect("writable");
        part.set_len(mib << 20).expect("writable");
        assert_eq!(folder.is_written(CHILD, session).expect("there"), Bytes::mib(mib));
    }

    #[test]
    fn what_was_written_is_found_also_by_the_next_run_and_by_nobody_else() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let (files, mine) = (open(home.path(), 10), "session of mine");
        let of = folder(&files, "one");
        write(&of, mine, 1);
        let name = of.find(mine).expect("it is there");
        assert!(of.path().join(&*name).is_file());
        assert!(!name.contains(mine), "{name}");
        assert_eq!((of.find("another"), folder(&files, "two").find(mine)), (None, None));
        let mode = fs::metadata(of.path()).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop((files, of));
        let again = open(home.path(), 10);
        assert_eq!(again.shelf.lock().total(), Bytes::mib(1));
        assert!(folder(&again, "one").find(mine).is_some());
    }

    #[test]
    fn what_is_not_whole_is_never_found_and_does_not_outlive_a_run() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let files = open(home.path(), 10);
        let of = folder(&files, "one");
        let part = of.path().join(Folder::part(CHILD, "s"));
        fs::write(&part, "half").expect("writable");
        assert_eq!(of.find("s"), None);
        of.give_up(CHILD, "s");
        assert!(!part.exists());
        assert!(of.is_written(CHILD, "s").is_err(), "nothing was");
        fs::write(&part, "half").expect("writable");
        drop((files, of));
        open(home.path(), 10);
        assert!(!part.exists());
        assert_eq!(names_in(&home.path().join("slots")), [], "nor does an empty folder");
    }

    #[test]
    fn what_one_writing_does_leaves_another_of_the_same_session_alone() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let of = folder(&open(home.path(), 10), "one");
        let later = (CHILD.0, Writing(2));
        fs::write(of.path().join(Folder::part(later, "s")), "half").expect("writable");
        write(&of, "s", 1);
        of.give_up(CHILD, "s");
        assert_eq!(fs::read(of.path().join(Folder::part(later, "s"))).expect("there"), b"half");
    }

    #[test]
    fn the_disk_budget_holds_over_all_models_and_runs_by_last_use() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let files = open(home.path(), 10);
        let of = folder(&files, "one");
        for (session, at) in [("a", 1), ("b", 2), ("c", 3)] {
            write(&of, session, 3);
            let path = of.path().join(&*whole(session));
            let file = File::options().append(true).open(path).expect("there");
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(at)).expect("ours");
        }
        assert!(of.find("a").is_some());
        drop((files, of));
        let files = open(home.path(), 7);
        let of = folder(&files, "one");
        assert_eq!(["a", "b", "c"].map(|session| of.find(session).is_some()), [true, false, true]);
        assert_eq!(names_in(&of.path()).len(), 2, "the file of it is gone too");
        drop((files, of));
        let nothing = open(home.path(), 0);
        assert_eq!(nothing.shelf.lock().total(), Bytes::ZERO);
        assert_eq!(names_in(&folder(&nothing, "one").path()), []);
    }

    #[test]
    fn other_identities_of_a_model_go_when_it_is_launched_unless_an_engine_has_them() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let files = open(home.path(), 10);
        let other_model = files.folder(&ModelId::new("other").expect("an id"), ("one", "f16")).expect("made");
        let old = folder(&files, "one");
        write(&old, "s", 1);
        write(&other_model, "s", 1);
        let new = folder(&files, "two");
        assert!(old.find("s").is_some(), "its engine still runs");
        let path = old.path();
        drop(old);
        drop(new);
        folder(&files, "two");
        assert!(!path.exists());
        assert!(other_model.find("s").is_some());
        assert_eq!(files.shelf.lock().total(), Bytes::mib(1));
    }

    #[test]
    fn what_an_engine_could_not_read_is_forgotten() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let files = open(home.path(), 10);
        let of = folder(&files, "one");
        write(&of, "s", 1);
        of.forget("s");
        assert_eq!((of.find("s"), names_in(&of.path()).len()), (None, 0));
    }
}
