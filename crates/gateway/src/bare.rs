//! A stream without the usage that only we asked for: [`without_usage`].
//!
//! OpenAI's API tells the usage of a stream in an event of its own, without choices, to who asks for it. Engines that count
//! nowhere else are asked in any case; a client that did not ask must not find an event that it does not know.
use crate::body::{BodyError, ReplyBody, boxed};
use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame};
use memchr::memmem;
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

/// More than that is no event of usage: it goes on as it is.
const LONGEST: usize = 64 << 10;

struct Bare {
    engine: ReplyBody,
    unread: BytesMut,
}

/// `stream` less its events of usage.
pub(crate) fn without_usage(stream: ReplyBody) -> ReplyBody {
    boxed(Bare { engine: stream, unread: BytesMut::new() })
}

/// Whether this event tells usage and nothing else.
fn is_usage(event: &[u8]) -> bool {
    let has = |text: &[u8]| memmem::find(event, text).is_some();
    (has(b"\"choices\":[]") || has(b"\"choices\": []")) && has(b"\"usage\":")
}

/// Behind the first blank line; lines end with LF or CRLF.
fn end_of_event(bytes: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', bytes).find_map(|at| match &bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

impl Bare {
    /// Events that are whole, less those of usage.
    fn take(&mut self, bytes: &[u8]) -> Bytes {
        self.unread.extend_from_slice(bytes);
        let mut out = BytesMut::new();
        while let Some(end) = end_of_event(&self.unread) {
            let event = self.unread.split_to(end);
            if !is_usage(&event) {
                out.extend_from_slice(&event);
            }
        }
        if self.unread.len() > LONGEST {
            out.extend_from_slice(&self.unread);
            self.unread.advance(self.unread.len());
        }
        out.freeze()
    }
}

impl Body for Bare {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            let out = match ready!(Pin::new(&mut self.engine).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => self.take(&bytes),
                    Err(_) => continue,
                },
                None if self.unread.is_empty() => return Poll::Ready(None),
                None => self.unread.split().freeze(),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            };
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::full;

    #[test]
    fn only_events_that_tell_usage_and_nothing_else_are_taken_out_wherever_the_stream_is_cut() {
        let text = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n: ping\n\n\
                    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n";
        let want = text.replace("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n", "");
        for end in ["\n", "\r\n"] {
            let (text, want) = (text.replace('\n', end), want.replace('\n', end));
            for size in 1..40 {
                let mut bare = Bare { engine: full(""), unread: BytesMut::new() };
                let out: Vec<u8> = text.as_bytes().chunks(size).flat_map(|piece| bare.take(piece)).collect();
                assert_eq!(String::from_utf8(out).expect("text"), want, "{size}");
                assert!(bare.unread.is_empty(), "nothing is held back: {size} {end:?}");
            }
        }
    }
}
