//! A stream whose head was sent before its engine was ready: [`Waiting`].
//!
//! A client, or a proxy before it, gives up on a silent connection. So a client that wants a stream is told so with a comment
//! every few seconds, at the price that what fails from then on has to be said inside the stream.
use crate::{
    body::{BodyError, ReplyBody},
    errors::Failure,
    family::{Caller, Commit, StreamError},
    settings::COMMENT_EVERY,
    usage::Recorder,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use motorpool_supervisor::PoolHandle;
use motorpool_vocab::{ModelId, PhaseView};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Interval, MissedTickBehavior};

/// A reply to come.
pub(crate) type Pending = Pin<Box<dyn Future<Output = Result<Response<ReplyBody>, Failure>> + Send>>;

/// When a waiting stream is told that it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitAfter {
    /// After so long.
    Time(Duration),
    /// Never: every failure is an ordinary status.
    Never,
}

impl CommitAfter {
    /// `X-Motorpool-Loading: off | comments | <seconds>`, else the configured time.
    pub(crate) fn of(headers: &HeaderMap, configured: Duration) -> Result<Self, Failure> {
        let Some(value) = headers.get("x-motorpool-loading") else { return Ok(Self::Time(configured)) };
        match value.to_str().unwrap_or_default() {
            "off" => Ok(Self::Never),
            "comments" => Ok(Self::Time(configured)),
            text => match text.parse::<u32>() {
                Ok(seconds) => Ok(Self::Time(Duration::from_secs(seconds.into()))),
                Err(_) => Err(Failure::InvalidRequest {
                    message: "`X-Motorpool-Loading` is `off`, `comments` or a number of seconds".into(),
                    param: None,
                }),
            },
        }
    }
}

/// The reply if it comes in time; else a stream that begins with comments.
pub(crate) async fn within(mut reply: Pending, after: CommitAfter, told: Told) -> Result<Response<ReplyBody>, Failure> {
    let CommitAfter::Time(after) = after else { return reply.await };
    if let Ok(result) = tokio::time::timeout(after, reply.as_mut()).await {
        return result;
    }
    let mut response = Response::new(Waiting::new(reply, told).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    write_stream_headers(headers);
    Ok(response)
}

/// What keeps proxies from holding a stream back.
pub(crate) fn write_stream_headers(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
}

/// What a waiting client is told, and how.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) handle: PoolHandle,
    /// `None`: one whose progress nobody knows.
    pub(crate) model: Option<ModelId>,
    pub(crate) caller: Caller,
    pub(crate) recorder: Recorder,
}

impl Told {
    fn sign_of_life(&self) -> Bytes {
        match self.caller.family.traits().commit {
            Commit::Ping => Bytes::from_static(b"event: ping\ndata: {\"type\":\"ping\"}\n\n"),
            Commit::Comment | Commit::Nothing => self.comment(),
        }
    }

    fn comment(&self) -> Bytes {
        let snapshot = self.handle.snapshot();
        let progress = snapshot.entries.iter().find_map(|entry| match entry.phase {
            PhaseView::Starting { progress } if Some(entry.key.model()) == self.model.as_ref() => progress,
            _ => None,
        });
        match progress {
            Some(per_mille) => format!(": loading {} %\n\n", per_mille / 10).into(),
            None => Bytes::from_static(b": loading\n\n"),
        }
    }
}

/// The body of such a stream.
struct Waiting {
    state: State,
    comments: Interval,
    told: Told,
}

enum State {
    Waits(Pending),
    Streams(ReplyBody),
    /// It was no stream after all: an error, which becomes an event.
    Fails(Pin<Box<dyn Future<Output = Bytes> + Send>>),
    Ended,
}

impl Waiting {
    fn new(reply: Pending, told: Told) -> Self {
        let mut comments = tokio::time::interval(COMMENT_EVERY);
        comments.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { state: State::Waits(reply), comments, told }
    }

    fn begin(&mut self, response: Response<ReplyBody>) {
        let is_stream = response.status().is_success() && is_event_stream(response.headers());
        self.state = if is_stream {
            State::Streams(response.into_body())
        } else {
            self.told.recorder.refused_by_engine();
            State::Fails(Box::pin(as_event(response, self.told.caller.clone())))
        };
    }
}

/// Whether these headers announce a stream of events.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"text/event-stream"))
}

/// An engine's error document as an event. Where its family's events are bare documents it is the document itself: JSON
/// without line ends is one data line; one with them is as many.
async fn as_event(response: Response<ReplyBody>, caller: Caller) -> Bytes {
    let status = response.status();
    let Ok(document) = response.into_body().collect().await else { return Bytes::new() };
    let document = document.to_bytes();
    if caller.family.traits().stream != StreamError::Data {
        return Failure::of_engine(status, &document).event(&caller, 0);
    }
    let text = String::from_utf8_lossy(&document).replace('\n', "\ndata: ");
    format!("data: {text}\n\n").into()
}

impl Body for Waiting {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            let event = match &mut self.state {
                State::Streams(body) => return Pin::new(body).poll_frame(cx),
                State::Ended => return Poll::Ready(None),
                State::Fails(event) => ready!(event.as_mut().poll(cx)),
                State::Waits(reply) => match reply.as_mut().poll(cx) {
                    Poll::Ready(Ok(response)) => {
                        self.begin(response);
                        continue;
                    }
                    Poll::Ready(Err(failure)) => {
                        self.told.recorder.failed(&failure);
                        failure.event(&self.told.caller, 0)
                    }
                    Poll::Pending => {
                        ready!(self.comments.poll_tick(cx));
                        return Poll::Ready(Some(Ok(Frame::data(self.told.sign_of_life()))));
                    }
                },
            };
            self.state = State::Ended;
            return Poll::Ready(Some(Ok(Frame::data(event))));
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Ended)
    }
}

#[cfg(test)]
mod tests;
