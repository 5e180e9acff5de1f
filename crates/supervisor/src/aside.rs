//! A database that cannot be read any more makes way for a new one, and stays for whoever wants to look into it.
use std::{ffi::OsString, fs, io, path::Path};

/// Takes the database at `path` out of the way, as `<path>.damaged`, in the place of what was set aside before.
pub fn set_aside(path: &Path) -> io::Result<()> {
    let beside = |end: &str| {
        let mut name = OsString::from(path);
        name.push(end);
        name
    };
    // They belong to the damaged file, and would be taken for the new one's.
    for end in ["-wal", "-shm"] {
        match fs::remove_file(beside(end)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, beside(".damaged"))
}
