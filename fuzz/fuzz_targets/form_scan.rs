//! The scan of forms with files: any bytes, cut anywhere. What it calls the model stands there.
#![no_main]
use libfuzzer_sys::fuzz_target;
use motorpool_gateway::multipart::{FormError, FormScan, Named};

fn scan<'a>(mut chunks: impl Iterator<Item = &'a [u8]>) -> Result<Option<Named>, FormError> {
    let mut scan = FormScan::new("b");
    chunks.try_for_each(|chunk| scan.feed(chunk))?;
    scan.finish()?;
    Ok(scan.named().cloned())
}

fuzz_target!(|data: &[u8]| {
    let Some((cut, form)) = data.split_first() else { return };
    let whole = scan(std::iter::once(form));
    let pieces = scan(form.chunks(usize::from(*cut) + 1));
    assert_eq!(whole.clone().ok(), pieces.ok(), "where it is cut changes nothing");
    if let Ok(Some(named)) = whole {
        let place = |n| usize::try_from(n).expect("it is in memory");
        assert_eq!(&form[place(named.at.start)..place(named.at.end)], named.model.as_bytes());
    }
});
