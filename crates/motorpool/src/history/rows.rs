//! What the file tells of some time, put together: [`read`].
use super::file::millis;
use motorpool_gateway::{By, Question, UsageRow};
use rusqlite::{Connection, OpenFlags, Row};
use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Nobody reads more rows than this.
const MOST_ROWS: u32 = 20_000;
/// The writer keeps nobody out for long.
const BUSY_WITHIN: Duration = Duration::from_secs(1);
const HOUR: i64 = 3_600_000;

/// The rows, the earliest first; of too many the latest.
pub(super) fn read(path: &Path, Question { since, by }: Question) -> rusqlite::Result<Vec<UsageRow>> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(BUSY_WITHIN)?;
    // Its writer has made the file, and the table not yet.
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version == 0 {
        return Ok(Vec::new());
    }
    let since = millis(since);
    // What stands for `from`, and how wide it is.
    let (from, key) = match by {
        By::Hour => (format!("at / {HOUR} * {HOUR}"), "NULL"),
        By::Day => (format!("at / {0} * {0}", 24 * HOUR), "NULL"),
        By::Model => (since.to_string(), "NULL"),
        By::Key => (since.to_string(), "key"),
    };
    let select = format!(
        "SELECT {from} AS since, model, {key} AS name, COUNT(*), \
         SUM(outcome NOT IN ('finished', 'aborted')), SUM(outcome = 'aborted'), \
         SUM(prompt), SUM(cached), SUM(generated), SUM(took), CAST(AVG(first_result) AS INTEGER) \
         FROM requests WHERE at >= ?1 GROUP BY since, model, name ORDER BY since DESC, model, name LIMIT {MOST_ROWS}"
    );
    let mut select = connection.prepare(&select)?;
    let mut rows: Vec<_> = select.query_map([since], row)?.collect::<Result<_, _>>()?;
    rows.sort_by(|a, b| (a.from, &a.model, &a.key).cmp(&(b.from, &b.model, &b.key)));
    Ok(rows)
}

fn row(row: &Row<'_>) -> rusqlite::Result<UsageRow> {
    let n = |at: usize| Ok::<_, rusqlite::Error>(number(row.get(at)?));
    let maybe = |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(number));
    Ok(UsageRow {
        from: instant(n(0)?),
        model: row.get(1)?,
        key: row.get(2)?,
        requests: n(3)?,
        errors: n(4)?,
        aborted: n(5)?,
        prompt: maybe(6)?,
        cached: maybe(7)?,
        generated: maybe(8)?,
        took: Duration::from_micros(n(9)?),
        first_result_within: maybe(10)?.map(Duration::from_micros),
    })
}

fn number(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

fn instant(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}
