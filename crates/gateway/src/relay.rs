//! An engine's reply on its way to a client, frame by frame: [`Relay`].
//!
//! It holds the lease to the last byte. Dropping it, in whichever state, closes the engine's connection and then gives the
//! lease back: that is all a client that is gone needs. When the engine fails inside a stream, the stream ends with the
//! API's error event; any other reply breaks off.
use crate::{
    assemble::{Assembled, refused_by},
    body::BodyError,
    errors::{Awaited, Failure},
    family::{Caller, StreamError},
    outside::Visit,
    refusals::cause_of_death,
    sse::EventReader,
    upstream::Inflow,
    usage::{Recorder, Tap},
};
use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use motorpool_supervisor::{Lease, PoolHandle};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep};

/// What an engine sends to keep a silent stream open: no sign of work.
const PING: &[u8] = b":\n\n";

/// What became of a reply that was waited for.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The engine's connection ended, or speaks no HTTP.
    Cut(hyper::Error),
    /// Nothing came for so long.
    Silent(Duration),
}

impl Broken {
    /// Why, when the engine's end is known.
    pub(crate) async fn cause(self, handle: &PoolHandle, lease: &Lease, request: &str) -> Failure {
        match self {
            Self::Silent(within) => {
                lease.vital().fell_silent();
                Failure::EngineTimeout { what: Awaited::NextFrame, within }
            }
            Self::Cut(error) => {
                lease.vital().failed();
                let key = lease.key();
                tracing::info!(request, %key, error = &error as &dyn std::error::Error, "an engine's reply broke off");
                cause_of_death(handle, lease.spawn()).await
            }
        }
    }
}

impl Broken {
    /// The same of a server whose end nobody tells us.
    fn cause_outside(self) -> Failure {
        match self {
            Self::Silent(within) => Failure::EngineTimeout { what: Awaited::NextFrame, within },
            Self::Cut(_) => Failure::ExternalFailed("the server's reply broke off".into()),
        }
    }
}

/// The next bytes of a reply. Pings are passed over, and do not count as life.
pub(crate) async fn next_bytes(body: &mut Inflow, within: Duration) -> Result<Option<Bytes>, Broken> {
    let next = async {
        loop {
            match body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(Broken::Cut(error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if bytes != PING && !bytes.is_empty() => return Ok(Some(bytes)),
                    _ => {}
                },
            }
        }
    };
    tokio::time::timeout(within, next).await.unwrap_or(Err(Broken::Silent(within)))
}

/// Whether a reply that broke can end in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// A stream of events, whose errors are said to this caller.
    Events(Caller),
    /// A stream of lines.
    Lines,
    /// Anything else.
    Bytes,
}

/// The body that a client reads. See the module's documentation.
pub(crate) struct Relay {
    first: Option<Bytes>,
    // Dropped before the lease: the engine hears of the end before its slot is given to somebody else.
    state: State,
    lease: Option<Lease>,
    visit: Option<Visit>,
    handle: PoolHandle,
    manner: Manner,
    silence: Silence,
    events: Events,
    tap: Tap,
}

/// How a reply is passed on.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) handle: PoolHandle,
    pub(crate) manner: Manner,
    /// The longest silence.
    pub(crate) within: Duration,
    pub(crate) recorder: Recorder,
}

/// How many events went to the client, by the blank lines behind them: one error event must not stand before its elders.
#[derive(Debug, Default)]
pub(crate) struct Events {
    n: u64,
    n_lines: u64,
    after_lf: bool,
    /// The last bytes, as many as tell whether an event has ended with them.
    tail: Vec<u8>,
}

impl Events {
    /// These bytes go to the client.
    pub(crate) fn pass(&mut self, bytes: &[u8]) {
        for at in memchr::memchr_iter(b'\n', bytes) {
            let before = if at == 0 { self.after_lf } else { bytes[at - 1] == b'\n' };
            self.n += u64::from(before);
            self.n_lines += 1;
        }
        self.after_lf = bytes.last().map_or(self.after_lf, |last| *last == b'\n');
        let n_old = BLANK_BYTES.saturating_sub(bytes.len()).min(self.tail.len());
        self.tail.drain(..self.tail.len() - n_old);
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(BLANK_BYTES)..]);
    }

    /// The event that ends the stream, or the line where lines are its events. One that the engine left half is ended
    /// first: they are two.
    pub(crate) fn last(&self, failure: &Failure, caller: &Caller) -> Bytes {
        let (ends, end): (&[&[u8]], &[u8]) = match caller.family.traits().stream {
            StreamError::Line => (&[b"\n"], b"\n"),
            StreamError::Data | StreamError::Named | StreamError::Sequenced => (&BLANKS, b"\n\n"),
        };
        if self.tail.is_empty() || ends.iter().any(|end| self.tail.ends_with(end)) {
            return failure.event(caller, self.n);
        }
        [end, &*failure.event(caller, self.n + 1)].concat().into()
    }

    /// About how many tokens went to the client: an event or a line is about one. Nothing is known of a reply that is
    /// whole when it comes.
    fn n_tokens(&self, manner: &Manner) -> Option<u64> {
        match manner {
            Manner::Events(_) => Some(self.n),
            Manner::Lines => Some(self.n_lines),
            Manner::Bytes => None,
        }
    }
}

/// Behind an event, its last line's end included.
const BLANKS: [&[u8]; 2] = [b"\n\n", b"\n\r\n"];
/// The longest of them.
const BLANK_BYTES: usize = 3;

enum State {
    Flowing(Inflow),
    Dying(Pin<Box<dyn Future<Output = Failure> + Send>>),
    Ended,
}

/// A timer that is read when it fires, not set at each frame.
struct Silence {
    within: Duration,
    last_data: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Relay {
    /// What `rest` brings behind `first`.
    pub(crate) fn new(first: Option<Bytes>, rest: Inflow, lease: Lease, terms: Terms) -> Self {
        let Terms { handle, manner, within, recorder } = terms;
        let silence = Silence { within, last_data: Instant::now(), timer: Box::pin(tokio::time::sleep(within)) };
        Self {
            first,
            state: State::Flowing(rest),
            lease: Some(lease),
            visit: None,
            handle,
            manner,
            silence,
            events: Events::default(),
            tap: Tap::new(recorder),
        }
    }

    /// The same of a server that somebody else runs: its visit is over with the last byte.
    pub(crate) fn of_visit(first: Option<Bytes>, rest: Inflow, visit: Visit, terms: Terms) -> Self {
        let Terms { handle, manner, within, recorder } = terms;
        let silence = Silence { within, last_data: Instant::now(), timer: Box::pin(tokio::time::sleep(within)) };
        Self {
            first,
            state: State::Flowing(rest),
            lease: None,
            visit: Some(visit),
            handle,
            manner,
            silence,
            events: Events::default(),
            tap: Tap::new(recorder),
        }
    }

    /// What a flowing reply gives next.
    fn poll_flowing(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let State::Flowing(incoming) = &mut self.state else { return Poll::Ready(None) };
        loop {
            return match Pin::new(&mut *incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let Ok(bytes) = frame.into_data() else { continue };
                    if bytes != PING {
                        self.silence.last_data = Instant::now();
                        self.lease.iter().for_each(|lease| lease.vital().moved());
                    }
                    Poll::Ready(Some(Ok(bytes)))
                }
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(Broken::Cut(error)))),
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => {
                    ready!(self.silence.poll(cx));
                    Poll::Ready(Some(Err(Broken::Silent(self.silence.within))))
                }
            };
        }
    }

    /// The upstream is closed; what it died of is asked.
    fn begin_dying(&mut self, broken: Broken) {
        let lease = self.lease.take();
        let (handle, request) = (self.handle.clone(), self.tap.recorder().request());
        self.state = State::Dying(Box::pin(async move {
            match lease {
                Some(lease) => broken.cause(&handle, &lease, &request).await,
                None => broken.cause_outside(),
            }
        }));
    }

    /// What the client reads of these bytes: they themselves, or, where the engine gives up in words that are not the
    /// API's, the API's.
    fn give(&mut self, bytes: Bytes) -> Frame<Bytes> {
        self.tap.pass(&bytes);
        if let (Manner::Bytes, Some(visit)) = (&self.manner, &mut self.visit)
            && let Some(n_tokens) = self.tap.recorder().generated()
        {
            visit.stay.on_whole(n_tokens);
        }
        if let Manner::Events(caller) = &self.manner
            && let Some(failure) = given_up(&bytes)
        {
            self.tap.recorder().failed(&failure);
            if matches!(caller.family.traits().stream, StreamError::Named | StreamError::Sequenced) {
                let event = failure.event(caller, self.events.n);
                self.end();
                return Frame::data(event);
            }
        }
        self.events.pass(&bytes);
        Frame::data(bytes)
    }

    fn end(&mut self) {
        self.lease.iter().for_each(|lease| lease.vital().moved());
        self.state = State::Ended;
        self.lease = None;
        self.visit = None;
    }
}

/// The engine's own error, if these bytes begin with the event of one. It writes each event as one piece.
fn given_up(bytes: &[u8]) -> Option<Failure> {
    const BEGINNINGS: [&[u8]; 2] = [b"data: {\"error\"", b"event: error\n"];
    if !BEGINNINGS.iter().any(|begin| bytes.starts_with(begin)) {
        return None;
    }
    let mut reader = EventReader::default();
    reader.push(bytes);
    let event = reader.next_event().ok()??;
    match refused_by(&event).ok()?? {
        Assembled::Refused { status, body } => Some(Failure::of_engine(StatusCode::from_u16(status).ok()?, &body)),
        Assembled::Reply(_) => None,
    }
}

impl Silence {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let due = self.last_data + self.within;
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due);
        }
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(self.give(first))));
        }
        loop {
            if let State::Dying(cause) = &mut self.state {
                let failure = ready!(cause.as_mut().poll(cx)).seen_with(self.tap.recorder().sight());
                self.tap.recorder().failed(&failure);
                self.end();
                return Poll::Ready(Some(match &self.manner {
                    Manner::Events(caller) => Ok(Frame::data(self.events.last(&failure, caller))),
                    Manner::Lines | Manner::Bytes => Err(failure.into()),
                }));
            }
            let flowing = self.poll_flowing(cx);
            if flowing.is_pending() {
                let n_tokens = self.events.n_tokens(&self.manner);
                if let (Some(visit), Some(n)) = (&mut self.visit, n_tokens) {
                    visit.poll_silence(cx, n);
                }
            }
            match ready!(flowing) {
                Some(Ok(bytes)) => {
                    let frame = self.give(bytes);
                    let n_tokens = self.events.n_tokens(&self.manner);
                    if let (Some(visit), Some(n)) = (&mut self.visit, n_tokens) {
                        visit.stay.on_tokens(n);
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                Some(Err(broken)) => self.begin_dying(broken),
                None => {
                    self.end();
                    return Poll::Ready(None);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none()
            && match &self.state {
                State::Flowing(incoming) => incoming.is_end_stream(),
                State::Dying(_) => false,
                State::Ended => true,
            }
    }

    fn size_hint(&self) -> SizeHint {
        // Inside a stream of events an error may be told in other words, or behind what came.
        if matches!(self.manner, Manner::Events(_)) {
            return SizeHint::default();
        }
        let first = self.first.as_ref().map_or(0, |b| b.len() as u64);
        match &self.state {
            State::Flowing(incoming) => match incoming.size_hint().exact() {
                Some(rest) => SizeHint::with_exact(first + rest),
                None => SizeHint::default(),
            },
            State::Dying(_) | State::Ended => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;

    #[test]
    fn tokens_are_about_events_or_lines_and_of_a_whole_reply_nothing_is_known() {
        let mut events = Events::default();
        for bytes in ["data: 1\n\nda", "ta: 2\n", "\n"] {
            events.pass(bytes.as_bytes());
        }
        let caller = Caller { family: Family::OpenAi, request: "r".into() };
        assert_eq!(events.n_tokens(&Manner::Events(caller)), Some(2));
        let mut lines = Events::default();
        for bytes in ["{}\n{}", "\n{}\n"] {
            lines.pass(bytes.as_bytes());
        }
        assert_eq!((lines.n_tokens(&Manner::Lines), lines.n_tokens(&Manner::Bytes)), (Some(3), None));
    }
}
