//! A stream whose head was sent before its engine was ready: [`Waiting`].
//!
//! A client, or a proxy before it, gives up on a silent connection. So a client that wants a stream is told so with a comment
//! every few seconds, at the price that what fails from then on has to be said inside the stream.
use crate::{
    body::{BodyError, ReplyBody},
    errors::Failure,
    exchange::DOCUMENT_BYTES,
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
use serde_json::json;
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::{Interval, MissedTickBehavior};

const LOADING: &str = "x-motorpool-loading";
const CONTENT: &str = "content";

/// A reply to come.
pub(crate) type Pending = Pin<Box<dyn Future<Output = Result<Response<ReplyBody>, Failure>> + Send>>;

/// When a waiting stream is told that it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitAfter {
    /// After so long.
    Time(Duration),
    /// The same, in words that stand in the reply.
    Content(Duration),
    /// Never: every failure is an ordinary status.
    Never,
}

impl CommitAfter {
    /// `X-Motorpool-Loading: off | comments | content | <seconds>`, else the configured time.
    pub(crate) fn of(headers: &HeaderMap, configured: Duration) -> Result<Self, Failure> {
        let Some(value) = headers.get(LOADING) else { return Ok(Self::Time(configured)) };
        match value.to_str().unwrap_or_default() {
            "off" => Ok(Self::Never),
            "comments" => Ok(Self::Time(configured)),
            CONTENT => Ok(Self::Content(configured)),
            text => match text.parse::<u32>() {
                Ok(seconds) => Ok(Self::Time(Duration::from_secs(seconds.into()))),
                Err(_) => Err(Failure::InvalidRequest {
                    message: "`X-Motorpool-Loading` is `off`, `comments`, `content` or a number of seconds".into(),
                    param: None,
                }),
            },
        }
    }
}

/// Refuses words in the reply where it has no place for them: who asked for those would take anything else for silence.
pub(crate) fn check_content(headers: &HeaderMap, has_place: bool) -> Result<(), Failure> {
    if has_place || headers.get(LOADING).is_none_or(|value| value != CONTENT) {
        return Ok(());
    }
    let message =
        "`X-Motorpool-Loading: content` is for streams of `/v1/chat/completions`; `comments` is for all streams";
    Err(Failure::InvalidRequest { message: message.into(), param: None })
}

/// The reply if it comes in time; else a stream that begins with comments.
pub(crate) async fn within(mut reply: Pending, after: CommitAfter, told: Told) -> Result<Response<ReplyBody>, Failure> {
    let (after, words) = match after {
        CommitAfter::Never => return reply.await,
        CommitAfter::Time(after) => (after, Words::Aside),
        CommitAfter::Content(after) => (after, Words::Content),
    };
    let came = if after.is_zero() {
        // A timer takes a moment even for nothing.
        poll_fn(|cx| Poll::Ready(reply.as_mut().poll(cx))).await
    } else {
        tokio::time::timeout(after, reply.as_mut()).await.map_or(Poll::Pending, Poll::Ready)
    };
    if let Poll::Ready(result) = came {
        return result;
    }
    let mut response = Response::new(Waiting::new(reply, told, words).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    write_stream_headers(headers);
    Ok(response)
}

/// What keeps proxies from holding a stream back. No length that an engine gave: where an error is told inside, it is another.
pub(crate) fn write_stream_headers(headers: &mut HeaderMap) {
    headers.remove(header::CONTENT_LENGTH);
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

/// Where a waiting client reads that it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    /// Beside the reply: people do not see it.
    Aside,
    /// As the beginning of a chat's reply: they do.
    Content,
}

impl Told {
    fn sign_of_life(&self, words: Words) -> Bytes {
        match self.caller.family.traits().commit {
            _ if words == Words::Content => self.content(),
            Commit::Ping => Bytes::from_static(b"event: ping\ndata: {\"type\":\"ping\"}\n\n"),
            Commit::Comment | Commit::Nothing => self.comment(),
        }
    }

    fn comment(&self) -> Bytes {
        format!(": {}\n\n", self.progress()).into()
    }

    /// A piece of the reply, as the engine's own pieces are.
    fn content(&self) -> Bytes {
        let delta = json!({ "role": "assistant", "content": format!("[{}]\n", self.progress()) });
        let piece = json!({
            "id": &*self.caller.request, "object": "chat.completion.chunk", "created": seconds_since_1970(),
            "model": self.model.as_ref().map_or("", ModelId::as_str),
            "choices": [{ "index": 0, "delta": delta, "finish_reason": null }],
        });
        format!("data: {piece}\n\n").into()
    }

    fn progress(&self) -> String {
        let snapshot = self.handle.snapshot();
        let progress = snapshot.entries.iter().find_map(|entry| match entry.phase {
            PhaseView::Starting { progress } if Some(entry.key.model()) == self.model.as_ref() => progress,
            _ => None,
        });
        progress.map_or("loading".to_owned(), |per_mille| format!("loading {} %", per_mille / 10))
    }
}

/// The body of such a stream.
struct Waiting {
    state: State,
    comments: Interval,
    told: Told,
    words: Words,
}

enum State {
    Waits(Pending),
    Streams(ReplyBody),
    /// It was no stream after all: an error, which becomes an event.
    Fails(Pin<Box<dyn Future<Output = Bytes> + Send>>),
    Ended,
}

impl Waiting {
    fn new(reply: Pending, told: Told, words: Words) -> Self {
        let mut comments = tokio::time::interval(COMMENT_EVERY);
        comments.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { state: State::Waits(reply), comments, told, words }
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

fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Whether these headers announce a stream of events.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"text/event-stream"))
}

/// An engine's error document as an event. Where its family's events are bare documents it is the document itself: JSON
/// without line ends is one data line; one with them is as many.
async fn as_event(response: Response<ReplyBody>, caller: Caller) -> Bytes {
    let status = response.status();
    let mut body = response.into_body();
    let mut document = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            // What has come of it may be no document.
            return Failure::of_engine(status, &document).event(&caller, 0);
        };
        document.extend_from_slice(&frame.into_data().unwrap_or_default());
        if document.len() > DOCUMENT_BYTES {
            return Failure::of_engine(status, &document).event(&caller, 0);
        }
    }
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
                        failure.seen_with(self.told.recorder.sight()).event(&self.told.caller, 0)
                    }
                    Poll::Pending => {
                        ready!(self.comments.poll_tick(cx));
                        return Poll::Ready(Some(Ok(Frame::data(self.told.sign_of_life(self.words)))));
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
