//! A reply whose last byte is noticed, or that it never came.
use super::Recorder;
use crate::body::{BodyError, ReplyBody, boxed};
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

struct Watched<H> {
    body: ReplyBody,
    recorder: Recorder,
    /// What is given back with the last byte.
    _held: H,
}

/// `reply`, which tells `recorder` when it has come to its end, and holds `held` until it is dropped.
pub(crate) fn watched<H: Send + Unpin + 'static>(
    reply: Response<ReplyBody>,
    recorder: Recorder,
    held: H,
) -> Response<ReplyBody> {
    // Behind a 101 another reply begins, which has an end of its own.
    if reply.body().is_end_stream() && reply.status() != StatusCode::SWITCHING_PROTOCOLS {
        recorder.finished();
    }
    reply.map(|body| boxed(Watched { body, recorder, _held: held }))
}

impl<H: Unpin> Body for Watched<H> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let is_last = match &frame {
            None => true,
            Some(Ok(_)) => self.body.is_end_stream(),
            Some(Err(_)) => false,
        };
        if is_last {
            self.recorder.finished();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
