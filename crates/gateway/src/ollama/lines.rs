//! A reply that goes to an Ollama client line by line: [`Lines`]; and how its first line, or all of it, is made:
//! [`Opening`].
use super::{
    Ended, Recast, Style, Translation, embedded,
    reply::Terms,
    request::{Call, Delivery},
};
use crate::{
    body::{BodyError, ReplyBody, boxed, full},
    errors::Failure,
    family::Caller,
    loading::write_stream_headers,
    sse::EVENT_BYTES,
    usage::Recorder,
};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

/// The body that a client reads. It holds the engine's reply, and so the lease, until the last line is made.
struct Lines {
    ready: Option<Bytes>,
    recast: Recast,
    /// `None`: the last line is made.
    engine: Option<ReplyBody>,
    caller: Caller,
    recorder: Recorder,
}

impl Translation {
    /// What reads the engine's stream.
    fn recast(&self, loaded_within: Duration) -> Recast {
        let terms = Terms { model: self.model.clone(), began: self.began, loaded_within };
        Recast::new(Style::of(self.call), self.delivery, terms)
    }

    /// What the reply is called.
    fn content_type(&self) -> &'static str {
        if self.delivery == Delivery::Lines { NDJSON } else { JSON }
    }

    /// Whether the engine's reply is one document.
    fn is_whole(&self) -> bool {
        matches!(self.call, Call::Embed | Call::Embeddings)
    }
}

/// A translated reply before its first line, or before all of it: until then its end costs the client nothing.
pub(crate) struct Opening<'a> {
    translation: &'a Translation,
    loaded_within: Duration,
    recast: Recast,
    /// What has come of a reply that is one document.
    document: Vec<u8>,
}

/// What a reply can begin with.
pub(crate) enum Opened {
    /// All of it.
    Whole(Response<ReplyBody>),
    /// Its first lines; [`Opening::lines`] gives the others.
    Begun(Bytes),
}

impl<'a> Opening<'a> {
    pub(crate) fn new(translation: &'a Translation, loaded_within: Duration) -> Self {
        Self { translation, loaded_within, recast: translation.recast(loaded_within), document: Vec::new() }
    }

    /// Takes in what comes next.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Option<Opened>, Failure> {
        if self.translation.is_whole() {
            self.document.extend_from_slice(bytes);
            let is_too_long = self.document.len() > EVENT_BYTES;
            return if is_too_long { Err(Failure::EngineUnreadable("it is too long".into())) } else { Ok(None) };
        }
        let kind = self.translation.content_type();
        let told = first_line(&mut self.recast, bytes)?;
        Ok(told.map(|(lines, is_all)| if is_all { Opened::Whole(whole(lines, kind)) } else { Opened::Begun(lines) }))
    }

    /// What the end of it makes of a reply that is one document; `None`: of any other it came too early.
    pub(crate) fn end(&self) -> Option<Result<Response<ReplyBody>, Failure>> {
        let read = || Ok(whole(embedded(&self.document, self.translation, self.loaded_within)?, JSON));
        self.translation.is_whole().then(read)
    }

    /// `first`, and the lines that `rest` still makes.
    pub(crate) fn lines(self, first: Bytes, rest: ReplyBody, who: (Caller, Recorder)) -> Response<ReplyBody> {
        Lines::response(first, self.recast, rest, who)
    }
}

/// What a stream has given so far; `None`: nothing that can be told.
fn first_line(recast: &mut Recast, bytes: &[u8]) -> Result<Option<(Bytes, bool)>, Failure> {
    let ended = recast.feed(bytes).map_err(|error| Failure::EngineUnreadable(error.to_string()))?;
    if let Some(Ended::Refused(status, document)) = &ended {
        let status = StatusCode::from_u16(*status).expect("it gives 400 to 599");
        return Err(Failure::of_engine(status, document));
    }
    let out = recast.take_out();
    Ok((!out.is_empty()).then(|| (out.into(), ended.is_some())))
}

/// A reply that has come to its end.
pub(crate) fn whole(document: impl Into<Bytes>, kind: &'static str) -> Response<ReplyBody> {
    let mut response = Response::new(full(document));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

impl Lines {
    /// `first`, and what `recast` makes of what `engine` still gives.
    fn response(
        first: Bytes,
        recast: Recast,
        engine: ReplyBody,
        (caller, recorder): (Caller, Recorder),
    ) -> Response<ReplyBody> {
        let lines = Self { ready: Some(first), recast, engine: Some(engine), caller, recorder };
        let mut response = Response::new(boxed(lines));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(NDJSON));
        write_stream_headers(response.headers_mut());
        response
    }

    /// The lines that these bytes make, the last one when it is that.
    fn take(&mut self, bytes: &[u8]) -> Bytes {
        let told = first_line(&mut self.recast, bytes);
        match told {
            Ok(None) => Bytes::new(),
            Ok(Some((lines, is_last))) => {
                if is_last {
                    self.engine = None;
                }
                lines
            }
            Err(failure) => self.fail(&failure),
        }
    }

    fn fail(&mut self, failure: &Failure) -> Bytes {
        self.engine = None;
        self.recorder.failed(failure);
        failure.event(&self.caller, 0)
    }
}

/// What lines of documents are called.
pub(crate) const NDJSON: &str = "application/x-ndjson";
/// What one document is called.
pub(crate) const JSON: &str = "application/json; charset=utf-8";

impl Body for Lines {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(ready) = self.ready.take() {
            return Poll::Ready(Some(Ok(Frame::data(ready))));
        }
        loop {
            let Some(engine) = &mut self.engine else { return Poll::Ready(None) };
            let lines = match ready!(Pin::new(engine).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => self.take(&bytes),
                    Err(_) => continue,
                },
                Some(Err(error)) => {
                    let failure = error.downcast::<Failure>().map_or(Failure::EngineCrashed(None), |failure| *failure);
                    self.fail(&failure)
                }
                None => self.fail(&Failure::EngineUnreadable("it ended without a last word".into())),
            };
            if !lines.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(lines))));
            }
        }
    }
}
