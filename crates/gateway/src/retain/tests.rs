use super::*;
use crate::{
    scan::Scan,
    splice::{Edits, Splice},
};
use http_body_util::BodyExt;

fn store(body_memory: u64, bodies_memory: u64, spool: u64) -> (Arc<BodyStore>, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let limits = BodyLimits { body: 10_000_000, body_memory, bodies_memory, spool, spool_dir: dir.path().to_owned() };
    (BodyStore::new(limits), dir)
}

async fn keep(store: &Arc<BodyStore>, body: &[u8]) -> Result<Arc<Retained>, Failure> {
    let mut intake = store.intake(None)?;
    for frame in body.chunks(1000) {
        intake.push(frame).await?;
    }
    intake.finish().await.map(Arc::new)
}

async fn replayed(whole: &Arc<Retained>, splice: &Splice) -> Vec<u8> {
    let replay = Replay::new(Arc::clone(whole), splice);
    assert_eq!(http_body::Body::size_hint(&replay).exact(), Some(splice.len()));
    let bytes = replay.collect().await.expect("it can be read").to_bytes();
    assert_eq!(bytes.len() as u64, splice.len());
    bytes.to_vec()
}

#[tokio::test]
async fn a_short_body_stays_in_memory_and_a_long_one_goes_to_a_file_without_a_name() {
    let (store, dir) = store(5_000, 100_000, 10_000_000);
    let short = keep(&store, &[b'a'; 5_000]).await.expect("it fits");
    assert_eq!(store.taken(), (5_000, 0));
    let long: Vec<u8> = (0..3_000_001_u32).map(|n| n.to_le_bytes()[0]).collect();
    let kept = keep(&store, &long).await.expect("it fits");
    assert_eq!(store.taken(), (5_000, 3_000_001));
    assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0);
    assert_eq!(replayed(&short, &Splice::untouched(5_000)).await, [b'a'; 5_000]);
    assert_eq!(replayed(&kept, &Splice::untouched(3_000_001)).await, long);
    drop((short, kept));
    assert_eq!(store.taken(), (0, 0));
}

#[tokio::test]
async fn a_replay_is_exact_twice_and_edited() {
    let body = format!(r#"{{"model":"old","pad":"{}","stream":false}}"#, "x".repeat(600_000));
    let mut scan = Scan::new(&[]);
    scan.feed(body.as_bytes()).expect("an object");
    let found = scan.finish().expect("whole");
    let splice = Splice::new(&found, body.len() as u64, Edits { model: Some("new"), ..Edits::default() });
    for memory in [1_000_000, 100] {
        let (store, _dir) = store(memory, memory, 10_000_000);
        let kept = keep(&store, body.as_bytes()).await.expect("it fits");
        for _ in 0..2 {
            assert_eq!(replayed(&kept, &splice).await, body.replace("old", "new").into_bytes());
        }
    }
}

#[tokio::test]
async fn memory_of_all_bodies_is_bounded_and_then_the_spool() {
    let (store, _dir) = store(5_000, 8_000, 6_000);
    let first = keep(&store, &[b'a'; 5_000]).await.expect("in memory");
    let second = keep(&store, &[b'b'; 5_000]).await.expect("in a file");
    assert_eq!(store.taken(), (5_000, 5_000));
    let third = keep(&store, &[b'c'; 5_000]).await.expect_err("no room");
    assert_eq!(third.verdict().code, "overloaded");
    assert_eq!(store.taken(), (5_000, 5_000));
    drop((first, second));
    assert_eq!(store.taken(), (0, 0));
}

#[tokio::test]
async fn a_body_past_its_limit_is_refused_by_its_word_or_by_its_bytes() {
    let (store, _dir) = store(u64::MAX, u64::MAX, u64::MAX);
    let too_large = Failure::BodyTooLarge { limit: 10_000_000 };
    assert_eq!(store.intake(Some(10_000_001)).expect_err("too long"), too_large);
    let mut intake = store.intake(Some(10_000_000)).expect("just");
    intake.push(&vec![0; 10_000_000]).await.expect("just");
    assert_eq!(intake.push(b"x").await.expect_err("too long"), too_large);
    drop(intake);
    assert_eq!(store.taken(), (0, 0));
}
