//! Streams of engines, put together and translated: any bytes, cut anywhere.
#![no_main]
use libfuzzer_sys::fuzz_target;
use motorpool_gateway::{
    assemble::{Assembled, Assembler, Kind},
    ollama::{Delivery, Recast, Style, Terms},
};
use std::time::{Duration, Instant};

fn assembled<'a>(kind: Kind, chunks: impl Iterator<Item = &'a [u8]>) -> Option<Assembled> {
    let mut assembler = Assembler::new(kind);
    for chunk in chunks {
        match assembler.feed(chunk) {
            Ok(None) => {}
            Ok(ended) => return ended,
            Err(_) => return None,
        }
    }
    None
}

fuzz_target!(|data: &[u8]| {
    let Some((cut, stream)) = data.split_first() else { return };
    let size = usize::from(*cut) + 1;
    for kind in [Kind::Chat, Kind::Text, Kind::Native, Kind::Messages, Kind::Responses] {
        let whole = assembled(kind, std::iter::once(stream));
        assert_eq!(whole, assembled(kind, stream.chunks(size)), "where it is cut changes nothing");
        if let Some(Assembled::Refused { status, .. }) = whole {
            assert!((400..600).contains(&status));
        }
    }
    for (style, delivery) in [(Style::Message, Delivery::Lines), (Style::Response, Delivery::Whole)] {
        let terms = Terms { model: "m".into(), began: Instant::now(), loaded_within: Duration::ZERO };
        let mut recast = Recast::new(style, delivery, terms);
        for chunk in stream.chunks(size) {
            let ended = recast.feed(chunk);
            for line in recast.take_out().split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                serde_json::from_slice::<serde_json::Value>(line).expect("each line is JSON");
            }
            if !matches!(ended, Ok(None)) {
                break;
            }
        }
    }
});
