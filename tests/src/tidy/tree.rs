//! Walks the checked-out files.
use super::{Complaint, house::TOP_LEVEL, source::Source};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member lies below the root").to_owned()
}

/// What the top level shows beside what the drawing names, and what it lacks.
pub fn unexpected_at_top(root: &Path) -> io::Result<Vec<Complaint>> {
    let mut shown = Vec::new();
    for entry in fs::read_dir(root)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // What cargo builds is in nobody's clone.
        if !name.starts_with('.') && name != "target" {
            shown.push(name);
        }
    }
    Ok(top_level_complaints(&shown))
}

fn top_level_complaints(shown: &[String]) -> Vec<Complaint> {
    let strange = shown.iter().filter(|name| !TOP_LEVEL.contains(&name.as_str()));
    strange.map(|name| format!("{name}: is not of the top level; tool configuration lives in dot files")).collect()
}

/// Every Rust file of ours, read.
pub fn sources(root: &Path) -> io::Result<Vec<Result<Source, Complaint>>> {
    let mut files = Vec::new();
    for folder in ["crates", "tests", "fuzz"] {
        collect(&root.join(folder), &mut files)?;
    }
    files.sort();
    let read = |file: &PathBuf| {
        let path = file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned();
        Ok(Source::read(&path, &fs::read_to_string(file)?))
    };
    files.iter().map(read).collect()
}

/// The text of every Rust file of ours.
pub fn texts(root: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    for folder in ["crates", "tests"] {
        collect(&root.join(folder), &mut files)?;
    }
    files.iter().map(fs::read_to_string).collect()
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_at_the_top_is_found() {
        let shown = ["Cargo.toml", "deny.toml", "crates"].map(str::to_owned);
        assert_eq!(top_level_complaints(&shown).len(), 1);
    }
}
