//! The scan of request bodies and the splices made from it: any bytes, cut anywhere.
#![no_main]
use libfuzzer_sys::fuzz_target;
use motorpool_gateway::{
    scan::{Findings, Scan, ScanError},
    splice::{Edits, Piece, Splice, Streaming},
};
use serde_json::{Map, Value};

fn scan<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Result<Findings, ScanError> {
    let mut scan = Scan::new(&["messages"]);
    for chunk in chunks {
        scan.feed(chunk)?;
    }
    scan.finish()
}

fn spliced(body: &[u8], splice: &Splice) -> Vec<u8> {
    let place = |n| usize::try_from(n).expect("it is in memory");
    let mut out = Vec::new();
    for piece in splice.pieces() {
        match piece {
            Piece::Kept(range) => out.extend(&body[place(range.start)..place(range.end)]),
            Piece::New(bytes) => out.extend(bytes),
        }
    }
    out
}

fuzz_target!(|data: &[u8]| {
    let Some((cut, body)) = data.split_first() else { return };
    let whole = scan(std::iter::once(body));
    assert_eq!(whole.clone().ok(), scan(body.chunks(usize::from(*cut) + 1)).ok(), "where it is cut changes nothing");
    let parsed = serde_json::from_slice::<Map<String, Value>>(body).ok();
    let Ok(found) = whole else {
        assert!(parsed.is_none() || matches!(whole, Err(ScanError::Twice(_) | ScanError::Model)), "refused: {whole:?}");
        return;
    };
    let Some(mut wanted) = parsed else { return };
    let edits = Edits { model: Some("m"), streaming: Streaming::ForcedWithUsage, rules: None };
    let edited = spliced(body, &Splice::new(&found, body.len() as u64, edits));
    wanted.insert("model".into(), "m".into());
    wanted.insert("stream".into(), true.into());
    wanted.insert("stream_options".into(), serde_json::json!({ "include_usage": true }));
    assert_eq!(serde_json::from_slice::<Map<String, Value>>(&edited).expect("still an object"), wanted);
});
