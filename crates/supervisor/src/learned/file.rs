//! [`File`]: the database file that keeps lessons. One process writes it; others may look.
use super::row::{Row, RowId};
use crate::aside::set_aside;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};
use std::{io, path::Path, time::Duration};

/// The version of the table below. A file of a later one is left alone.
const VERSION: i64 = 1;
/// Others only read, and shortly.
const BUSY_WITHIN: Duration = Duration::from_secs(1);
const TABLE: &str = "
    CREATE TABLE lessons (
        about TEXT NOT NULL,
        context_per_slot INTEGER NOT NULL,
        slots INTEGER NOT NULL,
        kv_type TEXT NOT NULL,
        placement TEXT NOT NULL,
        lesson TEXT NOT NULL,
        used INTEGER NOT NULL,
        PRIMARY KEY (about, context_per_slot, slots, kv_type, placement)
    ) STRICT;
    PRAGMA user_version = 1;";

/// An open file.
#[derive(Debug)]
pub(super) struct File {
    connection: Connection,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("it is damaged: {what}")]
    Damaged { what: String },
    #[error("it is of version {version}, and this program knows {VERSION}")]
    Newer { version: i64 },
    #[error("what is damaged cannot be set aside")]
    Stays(#[source] io::Error),
}

type Rows = Vec<(RowId, Row)>;

impl File {
    /// Opens or makes the file at `path`, with what is in it; one that is damaged is set aside and begun anew. `None`
    /// when that is not possible, which is logged.
    pub(super) fn open_or_anew(path: &Path) -> Option<(Self, Rows)> {
        let opened = Self::open(path).or_else(|error| {
            if !error.is_damage() {
                return Err(error);
            }
            tracing::warn!(path = %path.display(), %error, "what loads taught is set aside as damaged and begun anew");
            set_aside(path).map_err(FileError::Stays)?;
            Self::open(path)
        });
        opened
            .inspect_err(|error| {
                tracing::warn!(path = %path.display(), %error, "what loads teach is not kept, only until this process ends");
            })
            .ok()
    }

    /// What is in the file at `path`, which is not touched; `None` when there is nothing that can be read.
    pub(super) fn look_at(path: &Path) -> Option<(Self, Rows)> {
        let looked = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(FileError::from);
        let looked = looked.and_then(|connection| {
            connection.busy_timeout(BUSY_WITHIN)?;
            check_version(&connection)?;
            let rows = rows(&connection)?;
            Ok((Self { connection }, rows))
        });
        looked.inspect_err(|error| tracing::debug!(path = %path.display(), %error, "nothing was learned yet")).ok()
    }

    fn open(path: &Path) -> Result<(Self, Rows), FileError> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_WITHIN)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // After a crash of the machine the last lessons may be missing; the file is whole.
        connection.pragma_update(None, "synchronous", "normal")?;
        let state: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if state != "ok" {
            return Err(FileError::Damaged { what: state });
        }
        if check_version(&connection)? == 0 {
            connection.execute_batch(&format!("BEGIN; {TABLE} COMMIT;"))?;
        }
        let rows = rows(&connection)?;
        Ok((Self { connection }, rows))
    }

    /// Writes one row, in the place of the one before.
    pub(super) fn put(&self, id: &RowId, row: &Row) -> rusqlite::Result<()> {
        let RowId { about, context_per_slot, slots, kv_type, placement } = id;
        let put = "INSERT OR REPLACE INTO lessons VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let values = params![about, context_per_slot, slots, kv_type, placement, row.text(), count(row.used)];
        self.connection.prepare_cached(put)?.execute(values).map(drop)
    }

    /// Notes that a row was used.
    pub(super) fn used(&self, id: &RowId, used: u64) -> rusqlite::Result<()> {
        let RowId { about, context_per_slot, slots, kv_type, placement } = id;
        let update = "UPDATE lessons SET used = ?6 WHERE about = ?1 AND context_per_slot = ?2 AND slots = ?3 \
                      AND kv_type = ?4 AND placement = ?5";
        let values = params![about, context_per_slot, slots, kv_type, placement, count(used)];
        self.connection.prepare_cached(update)?.execute(values).map(drop)
    }

    /// Takes a row out.
    pub(super) fn remove(&self, id: &RowId) -> rusqlite::Result<()> {
        let RowId { about, context_per_slot, slots, kv_type, placement } = id;
        let delete = "DELETE FROM lessons WHERE about = ?1 AND context_per_slot = ?2 AND slots = ?3 \
                      AND kv_type = ?4 AND placement = ?5";
        let values = params![about, context_per_slot, slots, kv_type, placement];
        self.connection.prepare_cached(delete)?.execute(values).map(drop)
    }
}

impl FileError {
    /// Whether another file in its place would do.
    fn is_damage(&self) -> bool {
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
}

fn check_version(connection: &Connection) -> Result<i64, FileError> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version > VERSION { Err(FileError::Newer { version }) } else { Ok(version) }
}

/// What was written by us; anything else is passed over.
fn rows(connection: &Connection) -> rusqlite::Result<Rows> {
    let select = "SELECT about, context_per_slot, slots, kv_type, placement, lesson, used FROM lessons";
    let mut select = connection.prepare(select)?;
    let found = select.query_map([], |row| {
        let id = RowId {
            about: row.get(0)?,
            context_per_slot: row.get(1)?,
            slots: row.get(2)?,
            kv_type: row.get(3)?,
            placement: row.get(4)?,
        };
        let (text, used): (String, i64) = (row.get(5)?, row.get(6)?);
        Ok((id, text, u64::try_from(used).unwrap_or(0)))
    })?;
    let read = |found: rusqlite::Result<(RowId, String, u64)>| match found {
        Ok((id, text, used)) => Row::read(&id, &text, used).map(|row| Ok((id, row))),
        Err(rusqlite::Error::IntegralValueOutOfRange(..)) => None,
        Err(error) => Some(Err(error)),
    };
    found.filter_map(read).collect()
}

/// As the database counts.
fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_pool::{Belief, Death, Doubt, KvType, LaunchKey, LaunchPlan, Lesson, Marks, Side, Split};
    use motorpool_vocab::{Bytes, DeviceId, Spawn};
    use std::{fs, path::PathBuf};

    fn place() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("learned.sqlite");
        (folder, path)
    }

    fn marks(n: u64) -> Marks {
        Marks { private: Some(Bytes::new(n)), device: [(DeviceId("GPU-é".into()), Bytes::new(u64::MAX))].into() }
    }

    fn row(context_per_slot: u32) -> (RowId, Row) {
        let plan = LaunchPlan { context_per_slot, slots: 3, kv: KvType::F16 };
        let split = Split { devices: vec![(DeviceId("GPU-é".into()), 7)], gpu_layers: u32::MAX, cpu_moe: 2 };
        let key = LaunchKey { plan, split };
        let (spawn, estimate, needed) = (Spawn(9), marks(4), marks(5));
        let lesson = Lesson {
            key: key.clone(),
            believed: Some(marks(1)),
            doubted: Some(Doubt { spawn: Spawn(u64::MAX), marks: Marks::default(), side: Side::Below }),
            died: Some(Death { spawn, belief: Belief::Doubted, estimate, needed }),
        };
        (RowId::of("files=1:2:3:4 build=x", &key), Row { lesson, died_at: 77, used: 8 })
    }

    fn open(path: &Path) -> (File, Rows) {
        File::open_or_anew(path).expect("usable")
    }

    #[test]
    fn what_is_written_is_read_back_and_a_look_changes_nothing() {
        let (_folder, path) = place();
        assert!(File::look_at(&path).is_none() && !path.exists());
        let (file, rows) = open(&path);
        assert_eq!(rows, []);
        let (first, second) = (row(1024), row(2048));
        for (id, row) in [&first, &second, &second] {
            file.put(id, row).expect("writable");
        }
        file.used(&second.0, 20).expect("writable");
        let later = (second.0.clone(), Row { used: 20, ..second.1.clone() });
        assert_eq!(File::look_at(&path).expect("there").1, [first.clone(), later.clone()], "while it is open");
        file.remove(&first.0).expect("writable");
        drop(file);
        assert_eq!(open(&path).1, [later]);
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_begun_anew() {
        let (folder, path) = place();
        fs::write(&path, "SQLite format 3\0 no, it is not").expect("writable");
        fs::write(folder.path().join("learned.sqlite-wal"), "left by it").expect("writable");
        let (file, rows) = open(&path);
        assert_eq!(rows, []);
        assert!(fs::read(folder.path().join("learned.sqlite.damaged")).expect("kept").ends_with(b"not"));
        let (id, row) = row(1024);
        file.put(&id, &row).expect("writable");
        drop(file);
        let mut bytes = fs::read(&path).expect("there");
        bytes.iter_mut().skip(4096).for_each(|byte| *byte = 0xA5);
        fs::write(&path, bytes).expect("writable");
        assert_eq!(open(&path).1, [], "pages of nonsense");
    }

    #[test]
    fn a_table_of_somebody_else_is_set_aside_and_a_row_that_cannot_be_read_hides_no_other() {
        let (_folder, path) = place();
        Connection::open(&path).expect("new").execute_batch("CREATE TABLE lessons (x)").expect("writable");
        let (file, _) = open(&path);
        let (id, row) = row(1024);
        file.put(&id, &row).expect("writable");
        let spoil =
            "INSERT INTO lessons VALUES ('a', 1, 1, 'f16', '{}', 'no lesson', 1), ('b', -5, 1, 'f16', '', '', 1)";
        file.connection.execute(spoil, []).expect("writable");
        drop(file);
        assert_eq!(open(&path).1, [(id, row)]);
    }

    #[test]
    fn a_file_of_a_later_version_is_left_alone() {
        let (_folder, path) = place();
        drop(open(&path));
        Connection::open(&path).and_then(|c| c.pragma_update(None, "user_version", 2)).expect("writable");
        let before = fs::read(&path).expect("there");
        assert!(File::open_or_anew(&path).is_none() && File::look_at(&path).is_none());
        assert_eq!(fs::read(&path).expect("there"), before);
    }

    #[test]
    fn a_place_where_nothing_can_be_written_is_done_without() {
        let (folder, _) = place();
        assert!(File::open_or_anew(folder.path()).is_none(), "a directory");
        assert!(File::open_or_anew(&folder.path().join("no/such/learned.sqlite")).is_none());
    }
}
