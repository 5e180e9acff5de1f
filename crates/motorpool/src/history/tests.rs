use super::*;
use motorpool_gateway::{By, Outcome, Tokens};
use motorpool_vocab::Bytes;
use rusqlite::Connection;
use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

const TERMS: Terms = Terms { keep: Duration::from_hours(24 * 365), disk: 1 << 20 };
const HOUR: Duration = Duration::from_hours(1);

/// On 2026-01-02 at 03:04, so long later.
fn at(later: Duration) -> SystemTime {
    UNIX_EPOCH + Duration::from_mins(29_455_384) + later
}

fn record(at: SystemTime, model: Option<&str>) -> UsageRecord {
    UsageRecord {
        at,
        request: "req_1".into(),
        path: "/v1/chat/completions".into(),
        model: model.map(str::to_owned),
        server: None,
        key: None,
        tokens: Tokens { prompt: Some(9), cached: Some(4), generated: Some(3), per_second: None },
        first_result_within: Some(Duration::from_millis(20)),
        took: Duration::from_millis(500),
        outcome: Outcome::Finished,
    }
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("requests.sqlite");
    (folder, path)
}

fn opened(path: &Path, terms: Terms) -> Book {
    Book::open(path.to_owned(), terms, Arc::default())
}

fn asked(path: &Path, by: By) -> Vec<UsageRow> {
    rows::read(path, Question { since: at(Duration::ZERO), by }).expect("readable")
}

#[test]
fn requests_are_put_together_by_hour_day_model_and_key_and_what_nobody_counted_is_unknown() {
    let (_folder, path) = place();
    let mut book = opened(&path, TERMS);
    let uncounted = UsageRecord { tokens: Tokens::default(), first_result_within: None, ..record(at(HOUR), Some("b")) };
    let failed = UsageRecord { outcome: Outcome::Failed("queue_full"), ..uncounted.clone() };
    let left = UsageRecord { outcome: Outcome::Aborted, key: Some("team".into()), ..record(at(HOUR), Some("a")) };
    let before = record(at(Duration::ZERO) - Duration::from_secs(1), Some("a"));
    book.write(&[before, record(at(Duration::ZERO), Some("a")), record(at(Duration::from_mins(5)), Some("a"))]);
    book.write(&[uncounted, failed, left, record(at(HOUR * 30), None)]);
    let hours = asked(&path, By::Hour);
    let shown = |row: &UsageRow| (row.model.clone(), row.requests, row.errors, row.aborted, row.prompt);
    let some = |model: &str| Some(model.to_owned());
    assert_eq!(
        hours.iter().map(shown).collect::<Vec<_>>(),
        [
            (some("a"), 2, 0, 0, Some(18)),
            (some("a"), 1, 0, 1, Some(9)),
            (some("b"), 2, 1, 0, None),
            (None, 1, 0, 0, Some(9)),
        ]
    );
    let minutes = Duration::from_mins(4);
    let begins: Vec<_> = hours.iter().map(|row| row.from).collect();
    assert_eq!(begins, [at(Duration::ZERO), at(HOUR), at(HOUR), at(HOUR * 30)].map(|at| at - minutes));
    assert_eq!((hours[0].took, hours[0].first_result_within), (HOUR / 3600, Some(Duration::from_millis(20))));
    assert_eq!((hours[0].cached, hours[0].generated, hours[2].first_result_within), (Some(8), Some(6), None));
    let days = asked(&path, By::Day);
    assert_eq!(days.iter().map(|row| row.requests).collect::<Vec<_>>(), [3, 2, 1]);
    let models = asked(&path, By::Model);
    assert_eq!(
        models.iter().map(|row| (row.model.clone(), row.requests)).collect::<Vec<_>>(),
        [(None, 1), (some("a"), 3), (some("b"), 2)]
    );
    let keys = asked(&path, By::Key);
    let of_key: Vec<_> =
        keys.iter().filter(|row| row.key.is_some()).map(|row| (row.key.clone(), row.requests)).collect();
    assert_eq!((keys.len(), of_key), (4, vec![(some("team"), 1)]));
}

#[test]
fn a_damaged_file_is_set_aside_and_begun_anew_also_while_it_is_open() {
    let (folder, path) = place();
    fs::write(&path, "SQLite format 3\0 no, it is not").expect("writable");
    let mut book = opened(&path, TERMS);
    book.write(&[record(at(HOUR), Some("a"))]);
    assert_eq!((asked(&path, By::Model).len(), book.n_lost()), (1, 0));
    assert!(fs::read(folder.path().join("requests.sqlite.damaged")).expect("kept").ends_with(b"not"));
    // Somebody else takes the table away under it.
    Connection::open(&path).expect("open").execute_batch("DROP TABLE requests").expect("writable");
    book.write(&[record(at(HOUR), Some("b"))]);
    let rows = asked(&path, By::Model);
    assert_eq!((rows.len(), rows[0].model.as_deref(), book.n_lost()), (1, Some("b"), 0));
}

#[test]
fn a_file_of_a_later_version_is_left_alone_and_what_cannot_be_written_is_counted() {
    let (_folder, path) = place();
    drop(opened(&path, TERMS));
    Connection::open(&path).and_then(|c| c.pragma_update(None, "user_version", 2)).expect("writable");
    let before = fs::read(&path).expect("there");
    let mut book = opened(&path, TERMS);
    book.write(&[record(at(HOUR), None), record(at(HOUR), None)]);
    assert!(book.n_lost() == 2 && fs::read(&path).expect("there") == before);
    let (folder, _) = place();
    let mut book = opened(&folder.path().join("no/such/requests.sqlite"), TERMS);
    book.write(&[record(at(HOUR), None)]);
    assert_eq!(book.n_lost(), 1);
}

#[test]
fn what_a_disk_does_not_take_in_time_is_lost_and_counted_and_later_rows_go_again() {
    let (_folder, path) = place();
    let mut book = opened(&path, TERMS);
    let other = Connection::open(&path).expect("open");
    other.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
    book.write(&[record(at(HOUR), Some("a")), record(at(HOUR), Some("a"))]);
    assert_eq!((book.n_lost(), asked(&path, By::Model).len()), (2, 0));
    other.execute_batch("COMMIT").expect("ours");
    book.write(&[record(at(HOUR), Some("b"))]);
    assert_eq!((book.n_lost(), asked(&path, By::Model)[0].model.as_deref()), (2, Some("b")));
}

#[test]
fn a_file_grows_to_its_bound_and_the_oldest_rows_go() {
    let (_folder, path) = place();
    let mut book = opened(&path, Terms { disk: 256 << 10, ..TERMS });
    let request = "r".repeat(200);
    for n in 0..200_u32 {
        let rows: Vec<_> = (0..64_u32)
            .map(|m| UsageRecord {
                request: request.clone(),
                ..record(at(Duration::from_secs((n * 64 + m).into())), Some("m"))
            })
            .collect();
        book.write(&rows);
    }
    assert_eq!(book.n_lost(), 0);
    let length = fs::metadata(&path).expect("there").len();
    assert!(length <= 256 << 10, "{length}");
    let rows = asked(&path, By::Hour);
    let kept: u64 = rows.iter().map(|row| row.requests).sum();
    assert!((100..2000).contains(&kept), "{kept}");
    assert!(rows.last().is_some_and(|last| last.from >= at(HOUR * 2)), "the newest stay: {rows:?}");
}

#[test]
fn what_is_too_old_goes() {
    let (_folder, path) = place();
    let mut book = opened(&path, Terms { keep: HOUR, ..TERMS });
    let now = SystemTime::now();
    book.write(&[record(now - HOUR * 2, Some("old")), record(now, Some("new"))]);
    let rows = rows::read(&path, Question { since: UNIX_EPOCH, by: By::Model }).expect("readable");
    assert_eq!(rows.iter().map(|row| row.model.as_deref()).collect::<Vec<_>>(), [Some("new")]);
}

#[test]
fn names_are_cut_and_counts_beyond_reason_sum_up() {
    let (_folder, path) = place();
    let mut book = opened(&path, TERMS);
    let long = "é".repeat(5000);
    let tokens = Tokens { prompt: Some(u64::MAX), ..Tokens::default() };
    let wild = UsageRecord { path: long.clone(), tokens, took: Duration::MAX, ..record(at(HOUR), Some(&long)) };
    book.write(&vec![wild; 100]);
    let rows = asked(&path, By::Model);
    assert_eq!((rows[0].prompt, rows[0].requests, book.n_lost()), (Some(100 << 40), 100, 0));
    assert_eq!(rows[0].model.as_deref().map(str::len), Some(256));
}

#[test]
fn a_file_that_its_writer_has_just_made_tells_of_nothing() {
    let (_folder, path) = place();
    let made = Connection::open(&path).expect("made");
    assert_eq!(asked(&path, By::Model), [], "it is empty");
    made.pragma_update(None, "journal_mode", "wal").expect("ours");
    assert_eq!(asked(&path, By::Model), [], "its table comes next");
}

#[tokio::test]
async fn who_tells_never_waits_and_what_was_told_is_written_at_the_end() {
    let (folder, path) = place();
    assert!(History::open(folder.path(), &UsageSettings { disk: Bytes::ZERO, ..UsageSettings::default() }).is_none());
    assert!(!path.exists());
    let (outlet, history) = History::open(folder.path(), &UsageSettings::default()).expect("it is wanted");
    for _ in 0..MOST_WAITING {
        outlet.try_send(record(SystemTime::now(), Some("m"))).expect("there is room for as many");
    }
    drop(outlet);
    let answers = history.answers();
    history.close().await;
    drop(answers);
    let rows = rows::read(&path, Question { since: UNIX_EPOCH, by: By::Model }).expect("readable");
    assert_eq!(rows[0].requests, u64::try_from(MOST_WAITING).expect("few"));
}

#[tokio::test]
async fn a_question_that_is_left_keeps_its_place_until_the_file_is_read() {
    let places = Arc::new(Semaphore::new(1));
    let (begun, begins) = tokio::sync::oneshot::channel();
    let (go_on, waits) = std::sync::mpsc::channel();
    let left = tokio::spawn(in_turn(Arc::clone(&places), move || {
        begun.send(()).expect("awaited");
        waits.recv().expect("told");
    }));
    begins.await.expect("it begins");
    left.abort();
    assert!(left.await.is_err_and(|error| error.is_cancelled()));
    assert_eq!(places.available_permits(), 0, "it is read on");
    go_on.send(()).expect("it waits");
    assert_eq!(in_turn(places, || 7).await, Ok(7));
}
