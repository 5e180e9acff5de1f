//! [`Cgroup`]: the control group (version 2) of one engine: a net that no process leaves by a new session, an empty
//! environment or a new parent.
//!
//! The supervisor names it below its own group and writes the name down before the keeper makes it; the keeper stays
//! outside and puts the engine in before exec. Where none can be made (version 1 only, a folder that is not ours) there
//! is none, and the other nets do. Its name holds the nonce, so what a journal names is ours or nobody's.
use crate::nonce::Nonce;
use motorpool_devices::{group_members, groups_below};
use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// A group of ours; it need not be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// The one of `nonce` below `own`.
    pub(crate) fn below(own: &Path, nonce: &Nonce) -> Self {
        Self(own.join(name(nonce)))
    }

    /// The one that somebody wrote down. `None` when it is not called as that of `nonce`: then it is not ours.
    pub(crate) fn written_down(folder: &Path, nonce: &Nonce) -> Option<Self> {
        folder.file_name().is_some_and(|found| found == name(nonce).as_str()).then(|| Self(folder.to_owned()))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// Kills all who are in it. A kernel before 5.14 cannot; then they are killed one by one, by whoever asks for them.
    pub(crate) fn kill(&self) {
        // Not there any more is what we want.
        let _ = self.write("cgroup.kill", "1");
    }

    /// Who is in it. Zombies are not. An error says that we could not look.
    pub(crate) fn members(&self) -> io::Result<Vec<u32>> {
        group_members(&self.0)
    }

    /// Removes it with the groups below it. Whether it is still there, for somebody is in it.
    pub(crate) fn is_left(&self) -> bool {
        remove(&self.0).is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
    }

    /// Never makes a file: a folder without these files is no control group.
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        File::options().write(true).open(self.0.join(name))?.write_all(text.as_bytes())
    }
}

/// For the keeper; whoever sweeps needs none of it.
#[cfg(target_os = "linux")]
impl Cgroup {
    /// Makes it with `pid` in it. After an error there is none.
    pub(crate) fn make_for(&self, pid: u32) -> io::Result<()> {
        fs::create_dir(&self.0)?;
        self.write("cgroup.procs", &pid.to_string()).inspect_err(|_| drop(fs::remove_dir(&self.0)))
    }

    /// How many of it the kernel killed for want of memory, where that is counted.
    pub(crate) fn oom_kills(&self) -> Option<u64> {
        motorpool_devices::group_oom_kills(&self.0)
    }
}

fn name(nonce: &Nonce) -> String {
    format!("motorpool-{}", nonce.as_str())
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            groups_below(folder).unwrap_or_default().iter().try_for_each(|below| remove(below))?;
            fs::remove_dir(folder)
        }
        other => other,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn group() -> (tempfile::TempDir, Nonce, Cgroup) {
        let own = tempfile::tempdir().expect("a temporary directory");
        let nonce = Nonce::draw().expect("random bits");
        let group = Cgroup::below(own.path(), &nonce);
        (own, nonce, group)
    }

    #[test]
    fn a_folder_that_is_no_control_group_is_not_taken_for_one_and_not_left() {
        let (own, _, group) = group();
        assert!(group.make_for(1).is_err());
        assert_eq!(fs::read_dir(own.path()).expect("there").count(), 0);
        assert!(group.make_for(1).is_err() && group.members().expect("nobody").is_empty() && !group.is_left());
        group.kill();
    }

    #[test]
    fn what_is_called_otherwise_is_not_ours() {
        let (own, nonce, group) = group();
        assert_eq!(Cgroup::written_down(group.folder(), &nonce).as_ref(), Some(&group));
        let other = Nonce::draw().expect("random bits");
        for folder in [own.path().to_owned(), own.path().join(name(&other)), group.folder().join("below")] {
            assert_eq!(Cgroup::written_down(&folder, &nonce), None, "{}", folder.display());
        }
    }

    #[test]
    fn its_files_are_written_and_read_as_the_kernel_wants_them() {
        let (_own, _, group) = group();
        fs::create_dir(group.folder()).expect("made");
        for file in ["cgroup.procs", "cgroup.kill"] {
            fs::write(group.folder().join(file), "").expect("written");
        }
        group.write("cgroup.procs", "17").expect("there");
        group.kill();
        assert_eq!(group.members().expect("readable"), [17]);
        assert_eq!(fs::read_to_string(group.folder().join("cgroup.kill")).expect("there"), "1");
    }
}
