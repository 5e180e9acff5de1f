//! Where cargo put the programs under test.
use std::path::{Path, PathBuf};

/// The program `name` of this workspace, as built for the running test.
///
/// # Panics
/// When it is not there: `cargo test --workspace` builds it, running one package's tests alone does not.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let program = beside(&test, name);
    assert!(program.exists(), "{} is not built: run `cargo test --workspace`, or build it first", program.display());
    program
}

/// Tests lie in `<profile>/deps`, examples in `<profile>/examples`, programs in `<profile>`.
fn beside(test: &Path, name: &str) -> PathBuf {
    let directory = test.parent().expect("a file has a directory");
    let is_below = directory.ends_with("deps") || directory.ends_with("examples");
    let profile = if is_below { directory.parent().unwrap_or(directory) } else { directory };
    profile.join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_lie_above_tests_and_examples() {
        for from in ["/t/debug/deps/pool-0a1b", "/t/debug/examples/figures"] {
            let found = beside(Path::new(from), "motorpool");
            assert_eq!(found, Path::new("/t/debug").join(format!("motorpool{}", std::env::consts::EXE_SUFFIX)));
        }
    }
}
