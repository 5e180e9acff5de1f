//! [`Book`]: what is done with records that a file takes, and with those that it does not.
use super::file::{File, FileError, Terms};
use motorpool_gateway::UsageRecord;
use motorpool_supervisor::set_aside;
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

/// Between two looks for what is too old.
const FORGET_EVERY: Duration = Duration::from_hours(1);
/// Between two tries to open a file that could not be used.
const OPEN_EVERY: Duration = Duration::from_mins(1);

/// The file, and what was lost.
#[derive(Debug)]
pub(super) struct Book {
    path: PathBuf,
    terms: Terms,
    file: Option<File>,
    tried_at: Instant,
    forgot_at: Option<Instant>,
    /// Records that are in no file.
    n_lost: Arc<AtomicU64>,
    standing: Standing,
}

/// Whether records are kept, as it was last said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Keeps,
    Loses,
}

impl Book {
    /// Counts in `n_lost` what it could not write.
    pub(super) fn open(path: PathBuf, terms: Terms, n_lost: Arc<AtomicU64>) -> Self {
        let (tried_at, standing) = (Instant::now(), Standing::Keeps);
        let mut book = Self { path, terms, file: None, tried_at, forgot_at: None, n_lost, standing };
        book.try_to_open();
        book
    }

    #[cfg(test)]
    pub(super) fn n_lost(&self) -> u64 {
        self.n_lost.load(Ordering::Relaxed)
    }

    /// Takes these. What cannot be written is lost.
    pub(super) fn write(&mut self, records: &[UsageRecord]) {
        if self.file.is_none() && self.tried_at.elapsed() >= OPEN_EVERY {
            self.try_to_open();
        }
        let Some(file) = &mut self.file else { return self.lose(records, None) };
        match file.append(records) {
            Ok(()) => self.kept(),
            Err(error) if error.is_damage() => self.begin_anew(records, &error),
            Err(error) if error.is_full() => self.make_room(records, error),
            Err(error) => self.lose(records, Some(error)),
        }
        self.forget_what_is_old();
    }

    fn try_to_open(&mut self) {
        self.tried_at = Instant::now();
        match File::open_or_anew(&self.path, self.terms) {
            Ok(file) => self.file = Some(file),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "what requests take is not kept");
                self.standing = Standing::Loses;
            }
        }
    }

    /// It was damaged while it was open.
    fn begin_anew(&mut self, records: &[UsageRecord], error: &FileError) {
        tracing::warn!(path = %self.path.display(), %error, "what requests took is set aside as damaged and begun anew");
        self.file = None;
        // One that cannot be moved is found damaged again at the next try.
        if set_aside(&self.path).is_ok() {
            self.try_to_open();
        }
        match self.file.as_mut().map(|file| file.append(records)) {
            Some(Ok(())) => self.kept(),
            Some(Err(error)) => self.lose(records, Some(error)),
            None => self.lose(records, None),
        }
    }

    fn make_room(&mut self, records: &[UsageRecord], error: FileError) {
        let Some(file) = &mut self.file else { return };
        let written = match file.forget_the_oldest() {
            Ok(true) => file.append(records),
            Ok(false) => Err(error),
            Err(error) => Err(error),
        };
        match written {
            Ok(()) => self.kept(),
            Err(error) => self.lose(records, Some(error)),
        }
    }

    fn forget_what_is_old(&mut self) {
        if self.forgot_at.is_some_and(|at| at.elapsed() < FORGET_EVERY) {
            return;
        }
        self.forgot_at = Some(Instant::now());
        let then = SystemTime::now().checked_sub(self.terms.keep);
        if let (Some(file), Some(then)) = (&self.file, then)
            && let Err(error) = file.forget_before(then)
        {
            tracing::warn!(%error, "old records of requests stay for now");
        }
    }

    fn kept(&mut self) {
        if std::mem::replace(&mut self.standing, Standing::Keeps) == Standing::Loses {
            tracing::info!(lost = self.n_lost.load(Ordering::Relaxed), "what requests take is kept again");
        }
    }

    fn lose(&mut self, records: &[UsageRecord], error: Option<FileError>) {
        self.n_lost.fetch_add(u64::try_from(records.len()).unwrap_or(0), Ordering::Relaxed);
        let before = std::mem::replace(&mut self.standing, Standing::Loses);
        if let (Standing::Keeps, Some(error)) = (before, error) {
            tracing::warn!(path = %self.path.display(), %error, "records of requests are lost");
        }
    }
}
