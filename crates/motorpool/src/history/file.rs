//! [`File`]: the database file that keeps one row for each request. One process writes it; others may read.
use motorpool_gateway::{Outcome, UsageRecord};
use motorpool_supervisor::set_aside;
use rusqlite::{Connection, ErrorCode, params};
use std::{
    io,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The version of the table below. A file of a later one is left alone.
const VERSION: i64 = 1;
/// Others only read, and shortly.
const BUSY_WITHIN: Duration = Duration::from_secs(1);
/// Bytes of a page, and the fewest pages that a file needs.
const PAGE: u64 = 4096;
const LEAST_PAGES: u64 = 16;
/// What of a name is kept, in bytes.
const NAME_BYTES: usize = 256;
/// No request has more tokens, whatever its engine says: so that sums stay numbers.
const MOST_TOKENS: u64 = 1 << 40;
const TABLE: &str = "
    CREATE TABLE requests (
        at INTEGER NOT NULL,
        request TEXT NOT NULL,
        path TEXT NOT NULL,
        model TEXT,
        key TEXT,
        prompt INTEGER,
        cached INTEGER,
        generated INTEGER,
        first_result INTEGER,
        took INTEGER NOT NULL,
        outcome TEXT NOT NULL
    ) STRICT;
    CREATE INDEX requests_at ON requests (at);
    PRAGMA user_version = 1;";

/// What is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// How long.
    pub(super) keep: Duration,
    /// In how many bytes.
    pub(super) disk: u64,
}

/// An open file.
#[derive(Debug)]
pub(super) struct File {
    connection: Connection,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("it is damaged: {what}")]
    Damaged { what: String },
    #[error("it is of version {version}, and this program knows {VERSION}")]
    Newer { version: i64 },
    #[error("what is damaged cannot be set aside")]
    Stays(#[source] io::Error),
}

impl File {
    /// Opens or makes the file at `path`; one that is damaged is set aside and begun anew.
    pub(super) fn open_or_anew(path: &Path, terms: Terms) -> Result<Self, FileError> {
        Self::open(path, terms).or_else(|error| {
            if !error.is_damage() {
                return Err(error);
            }
            tracing::warn!(path = %path.display(), %error, "what requests took is set aside as damaged and begun anew");
            set_aside(path).map_err(FileError::Stays)?;
            Self::open(path, terms)
        })
    }

    fn open(path: &Path, terms: Terms) -> Result<Self, FileError> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_WITHIN)?;
        // Before anything that writes.
        let version = check_version(&connection)?;
        if version == 0 {
            connection.pragma_update(None, "auto_vacuum", "incremental")?;
        }
        connection.pragma_update(None, "journal_mode", "wal")?;
        // After a crash of the machine the last rows may be missing; the file is whole.
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "journal_size_limit", 4 << 20)?;
        let pages = (terms.disk / PAGE).max(LEAST_PAGES);
        connection.pragma_update(None, "max_page_count", count(pages))?;
        let state: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if state != "ok" {
            return Err(FileError::Damaged { what: state });
        }
        if version == 0 {
            connection.execute_batch(&format!("BEGIN; {TABLE} COMMIT;"))?;
        }
        // A table of somebody else has none of these.
        connection.prepare("SELECT at, request, path, key, prompt, cached, first_result, outcome FROM requests")?;
        Ok(Self { connection })
    }

    /// Writes all of them, or none.
    pub(super) fn append(&mut self, records: &[UsageRecord]) -> Result<(), FileError> {
        let transaction = self.connection.transaction()?;
        {
            let insert = "INSERT INTO requests VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
            let mut insert = transaction.prepare_cached(insert)?;
            for record in records {
                let outcome = match record.outcome {
                    Outcome::Finished => "finished",
                    Outcome::Aborted => "aborted",
                    Outcome::Failed(code) => code,
                };
                let tokens = |n: Option<u64>| n.map(|n| count(n.min(MOST_TOKENS)));
                insert.execute(params![
                    millis(record.at),
                    cut(&record.request),
                    cut(&record.path),
                    record.model.as_deref().map(cut),
                    record.key.as_deref().map(cut),
                    tokens(record.tokens.prompt),
                    tokens(record.tokens.cached),
                    tokens(record.tokens.generated),
                    record.first_result_within.map(micros),
                    micros(record.took),
                    outcome,
                ])?;
            }
        }
        Ok(transaction.commit()?)
    }

    /// Takes out what came before `then`.
    pub(super) fn forget_before(&self, then: SystemTime) -> Result<(), FileError> {
        self.connection.execute("DELETE FROM requests WHERE at < ?1", [millis(then)])?;
        self.give_back()
    }

    /// Takes out the oldest tenth if the file is as large as it may be; whether it was.
    pub(super) fn forget_the_oldest(&self) -> Result<bool, FileError> {
        let pragma = |name: &str| self.connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
        let (pages, free, most) = (pragma("page_count")?, pragma("freelist_count")?, pragma("max_page_count")?);
        // Else it is the disk that is full, and no row of ours makes room on it.
        if (pages - free) < most - most / 8 {
            return Ok(false);
        }
        let oldest = "DELETE FROM requests WHERE rowid IN (SELECT rowid FROM requests ORDER BY at \
                      LIMIT (SELECT COUNT(*) / 10 + 1 FROM requests))";
        self.connection.execute(oldest, [])?;
        Ok(true)
    }

    fn give_back(&self) -> Result<(), FileError> {
        Ok(self.connection.execute_batch("PRAGMA incremental_vacuum")?)
    }
}

impl FileError {
    /// Whether another file in its place would do.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            // A table of ours that cannot be read or made was made by somebody else.
            Self::Damaged { .. } | Self::Sqlite(rusqlite::Error::SqlInputError { .. }) => true,
            Self::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::Unknown)
            ),
            Self::Newer { .. } | Self::Stays(_) => false,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull))
    }
}

fn check_version(connection: &Connection) -> Result<i64, FileError> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version > VERSION { Err(FileError::Newer { version }) } else { Ok(version) }
}

/// As the database counts.
fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Since the epoch.
pub(super) fn millis(at: SystemTime) -> i64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// At most a year, so that sums stay numbers.
fn micros(time: Duration) -> i64 {
    i64::try_from(time.min(Duration::from_hours(366 * 24)).as_micros()).unwrap_or(i64::MAX)
}

/// What of a text is kept.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(NAME_BYTES)]
}
