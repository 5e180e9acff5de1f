//! A copy of the fake NVML for each test, so that tests of one process do not see each other's devices.
use std::{env::consts, fs, path::PathBuf};
use tempfile::TempDir;

/// The library and its state file.
pub(crate) struct Fake {
    folder: TempDir,
}

impl Fake {
    pub(crate) fn new(state: &str) -> Self {
        let fake = Self { folder: tempfile::tempdir().expect("a temporary directory") };
        fs::copy(built(), fake.library()).expect("writable");
        fake.set(state);
        fake
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    /// A path of this test's own.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces the state in one step: no call sees half of it.
    pub(crate) fn set(&self, state: &str) {
        let next = self.path("next");
        fs::write(&next, state).expect("writable");
        fs::rename(next, self.path("libnvidia-ml.so.1.state")).expect("the same folder");
    }
}

/// Beside the test's own program: a `dev-dependency` makes cargo build it, whichever package is tested.
#[expect(clippy::disallowed_methods, reason = "a test asks where it runs, to find what was built with it")]
pub(crate) fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let name = format!("{}motorpool_fake_nvml{}", consts::DLL_PREFIX, consts::DLL_SUFFIX);
    let library = test.with_file_name(name);
    assert!(library.exists(), "{} is not built: cargo builds it for the tests of motorpool-devices", library.display());
    library
}
