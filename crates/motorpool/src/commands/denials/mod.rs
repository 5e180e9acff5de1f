//! `motorpool denials LOG`: counts the refusals that a log tells of, so that nobody needs an expression of their own.
mod line;
mod tally;

use crate::{
    args::Denials,
    exit::{Exit, Failure},
    out::Out,
};
use std::{
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
};
use tally::Tally;

const BUFFER: usize = 1 << 16;
/// The name that stands for standard input.
const STDIN: &str = "-";

/// A log that cannot be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", if path == Path::new(STDIN) { "standard input".into() } else { path.display().to_string() })]
struct Unread {
    path: PathBuf,
    source: io::Error,
}

impl From<Unread> for Failure {
    fn from(error: Unread) -> Self {
        let what = crate::exit::chain(&error);
        let (exit, cure) = match error.source.kind() {
            io::ErrorKind::NotFound => (Exit::NotFound, "name the file that holds what the daemon wrote to stderr"),
            io::ErrorKind::IsADirectory => (Exit::Usage, "name a file in it"),
            io::ErrorKind::PermissionDenied => (Exit::Denied, "run this as a user who may read it"),
            _ => (Exit::Failed, "check its disk"),
        };
        Self::new(exit, what, cure)
    }
}

pub(super) fn perform(out: Out, Denials { log }: Denials) -> Result<(), Failure> {
    let tally = read(&log).map_err(|source| Unread { path: log, source })?;
    out.data(&tally.report(), || tally.for_people())
}

fn read(path: &Path) -> io::Result<Tally> {
    if path == Path::new(STDIN) {
        return Tally::of(BufReader::with_capacity(BUFFER, io::stdin().lock()));
    }
    Tally::of(BufReader::with_capacity(BUFFER, File::open(path)?))
}
