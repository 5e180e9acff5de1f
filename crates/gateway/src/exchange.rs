//! One request with an engine, from the lease to the reply: [`Job::run`].
//!
//! ```text
//! acquire ─► send ─► head ─► first bytes ─┬─ as they come ────► Relay, the lease inside
//!    ▲         │       │         │         └─ put together ────► a whole reply, lease given back
//!    └─────────┴───────┴─────────┘ the engine died: once more on another lease, nothing was sent yet
//! ```
use crate::{
    asker::Asker,
    assemble::{Assembled, Assembler, Kind},
    bare::without_usage,
    body::{ReplyBody, boxed, full},
    context::Context,
    drain::to_the_end,
    errors::{Awaited, Failure},
    family::{Caller, ErrorForm},
    headers,
    keys::Place,
    loading::{is_event_stream, write_stream_headers},
    ollama::{Opened, Opening, Translation},
    refusals::cause_of_death,
    relay::{Broken, Manner, Relay, Terms, next_bytes},
    retain::{Replay, Retained},
    splice::Splice,
    traces,
    upload::Upload,
    upstream::{Inflow, Often, SendError},
    usage::{Recorder, Tap},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header, response};
use motorpool_catalog::OnDisconnect;
use motorpool_pool::{Ask, SlotChoice};
use motorpool_supervisor::Lease;
use motorpool_vocab::ModelId;
use std::{sync::Arc, time::Duration};
use tracing::{Instrument, Span, field::display};

/// Of an error in a foreign form, so much is read.
pub(crate) const DOCUMENT_BYTES: usize = 64 << 10;

/// A request that is ready to go to an engine, any number of times.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) model: ModelId,
    /// The engine that it is made for: which of its paths, headers and forms of replies are known.
    pub(crate) engine: String,
    pub(crate) method: Method,
    pub(crate) path_and_query: String,
    /// What the engine may see.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Arc<Retained>,
    pub(crate) splice: Splice,
    pub(crate) reply: Reply,
    pub(crate) caller: Caller,
    pub(crate) asker: Asker,
    pub(crate) recorder: Recorder,
    /// Whether the engine bears that its client goes.
    pub(crate) on_disconnect: OnDisconnect,
    /// The rest of a form, of which `body` is the beginning; it is sent once.
    pub(crate) upload: Option<Upload>,
    /// Who says which slot of its engine is used.
    pub(crate) slots: SlotChoice,
    /// What its key gives it for as long as an engine works on it.
    pub(crate) place: Option<Place>,
}

/// How the engine's reply becomes the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// As it comes.
    AsItIs,
    /// The same, less the usage that only we asked for.
    WithoutUsage,
    /// The engine streams, the client reads a whole.
    Assembled(Kind),
    /// The client reads Ollama's words.
    Translated(Translation),
}

/// How one attempt failed.
enum Attempt {
    /// Another lease may do better: the engine died, and nothing was sent to the client.
    Died(Failure),
    /// It would fail again, or must not be tried again.
    Failed(Failure),
}

impl Job {
    /// The reply, or why there is none. Dropping the future takes back whatever was begun, if the engine bears that.
    pub(crate) async fn run(self: Arc<Self>, context: Arc<Context>) -> Result<Response<ReplyBody>, Failure> {
        match self.attempt(&context).await {
            Ok(response) => Ok(response),
            Err(Attempt::Failed(failure)) => Err(failure),
            Err(Attempt::Died(failure)) if self.upload.is_some() => Err(failure),
            Err(Attempt::Died(failure)) => {
                tracing::warn!(model = %self.model, request = self.asker.holder.request, %failure, "retried once");
                self.attempt(&context).await.map_err(|(Attempt::Died(f) | Attempt::Failed(f))| f)
            }
        }
    }

    async fn attempt(self: &Arc<Self>, context: &Arc<Context>) -> Result<Response<ReplyBody>, Attempt> {
        let (lease, loaded_within) = self.lease(context).await.map_err(Attempt::Failed)?;
        if self.on_disconnect == OnDisconnect::Abort {
            return self.exchange(context, lease, loaded_within).await;
        }
        let within = context.settings.limits.first_result;
        let (job, context) = (Arc::clone(self), Arc::clone(context));
        let exchange = async move { job.exchange(&context, lease, loaded_within).await };
        let broken = || Err(Attempt::Failed(Failure::Internal("an exchange broke off")));
        to_the_end(exchange, within, self.place.clone()).await.unwrap_or_else(broken)
    }

    /// A lease of the engine that this was made for, and how long that took.
    pub(crate) async fn lease(&self, context: &Context) -> Result<(Lease, Duration), Failure> {
        let ask = Ask { slots: self.slots, ..self.asker.ask(self.model.clone()) };
        let waiting = context.meters.wait();
        let span = traces::acquiring(self.recorder.span(), self.model.as_str());
        let (lease, loaded_within) = match context.handle.acquire(ask).instrument(span.clone()).await {
            Ok(lease) => {
                span.record("motorpool.engine", display(lease.key()));
                (lease, waiting.granted())
            }
            Err(refusal) => {
                let failure = context.refusal(refusal);
                traces::failed(&span, failure.verdict().code);
                waiting.refused(failure.verdict().code);
                return Err(failure);
            }
        };
        // A reload gave the model another engine while this waited: what was made for the old one must not reach the new one.
        if lease.key().provider() != self.engine {
            return Err(Failure::EngineBusy(format!(
                "the model `{}` was given another engine while this request waited; ask again",
                self.model
            )));
        }
        Ok((lease, loaded_within))
    }

    /// From a lease to the reply, in a span of its own.
    async fn exchange(
        &self,
        context: &Context,
        lease: Lease,
        loaded_within: Duration,
    ) -> Result<Response<ReplyBody>, Attempt> {
        self.recorder.is_served_by(lease.key(), lease.spawn());
        let span = traces::exchanging(self.recorder.span(), &lease);
        match self.ask(context, lease, (loaded_within, &span)).await {
            Ok(response) => Ok(traces::until_read(response, span)),
            Err(attempt) => {
                let (Attempt::Died(failure) | Attempt::Failed(failure)) = &attempt;
                traces::failed(&span, failure.verdict().code);
                Err(attempt)
            }
        }
    }

    async fn ask(
        &self,
        context: &Context,
        lease: Lease,
        (loaded_within, span): (Duration, &Span),
    ) -> Result<Response<ReplyBody>, Attempt> {
        let to = (lease.spawn(), lease.endpoint());
        let often = if self.upload.is_some() { Often::Once } else { Often::OnceMore };
        let came_from = self.came_from(context, span);
        let request = |uri| {
            let mut request = self.request(uri, &lease);
            if let Some(span) = &came_from {
                request.headers_mut().insert(traces::TRACE_PARENT, span.clone());
            }
            request
        };
        let sent = context.upstream.send(to, (&self.path_and_query, often), request).await;
        let (head, body) = match sent {
            Ok(reply) => reply.into_parts(),
            Err(error) => {
                // A form that its client broke says nothing of the engine.
                if let Some(failure) = self.upload.as_ref().and_then(Upload::broken) {
                    return Err(Attempt::Failed(failure));
                }
                // As long as its client sends it, the engine's silence is the client's.
                let is_slow = self.upload.as_ref().is_some_and(|upload| !upload.has_ended());
                if !(is_slow && matches!(error, SendError::Timeout(Awaited::FirstResult, _))) {
                    note_failure(&lease, &error);
                }
                return Err(self.no_reply(context, &lease, error).await);
            }
        };
        span.record("http.response.status_code", i64::from(head.status.as_u16()));
        note_status(&lease, head.status);
        // Parameters are dropped from the last one on: the engine hears of the end before its slot is given to somebody else.
        match &self.reply {
            Reply::Assembled(kind) if head.status.is_success() && is_event_stream(&head.headers) => {
                self.assembled(context, *kind, lease, body).await
            }
            Reply::Translated(translation) if head.status.is_success() => {
                self.translated(context, (translation, loaded_within), lease, body).await
            }
            _ => self.relayed(context, head, lease, body).await,
        }
    }

    /// What the engine is told of the span that asks it, if it may be told.
    fn came_from(&self, context: &Context, span: &Span) -> Option<HeaderValue> {
        let manifest = context.catalog.manifest(&self.engine)?;
        let carried = context.traces.get()?.carry(span);
        carried.filter(|_| manifest.passes_header(traces::TRACE_PARENT))
    }

    fn request(&self, uri: Uri, lease: &Lease) -> Request<ReplyBody> {
        let named = lease.slot().map(|slot| self.splice.with_slot(slot));
        let splice = named.as_ref().unwrap_or(&self.splice);
        let body = match &self.upload {
            None => boxed(Replay::new(Arc::clone(&self.body), splice)),
            Some(upload) => boxed(upload.body(&self.body, splice, lease.gate())),
        };
        self.addressed(uri, body)
    }

    /// The request as it goes to the engine of `lease`, less what its connection says.
    pub(crate) fn to(&self, lease: &Lease) -> Request<ReplyBody> {
        let uri = self.path_and_query.parse().expect("a path comes out of a URI");
        self.request(uri, lease)
    }

    /// Why there is no reply to a request that was made once.
    pub(crate) async fn unanswered(&self, context: &Context, lease: &Lease, error: SendError) -> Failure {
        note_failure(lease, &error);
        let (Attempt::Died(failure) | Attempt::Failed(failure)) = self.no_reply(context, lease, error).await;
        failure
    }

    /// A reply to a request that was made once, as it comes.
    pub(crate) async fn relay_plainly(
        &self,
        context: &Context,
        lease: Lease,
        reply: Response<Inflow>,
    ) -> Result<Response<ReplyBody>, Failure> {
        let (head, body) = reply.into_parts();
        note_status(&lease, head.status);
        self.relayed(context, head, lease, body).await.map_err(|(Attempt::Died(f) | Attempt::Failed(f))| f)
    }

    /// The same to an engine of which nothing is leased.
    pub(crate) fn plain_request(&self, uri: Uri) -> Request<ReplyBody> {
        self.addressed(uri, boxed(Replay::new(Arc::clone(&self.body), &self.splice)))
    }

    fn addressed(&self, uri: Uri, body: ReplyBody) -> Request<ReplyBody> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
        request
    }

    fn terms(&self, context: &Context, manner: Manner) -> Terms {
        let within = context.settings.limits.between_frames;
        Terms { handle: context.handle.clone(), manner, within, recorder: self.recorder.clone() }
    }

    /// The reply as it comes. Its first bytes are awaited, since until then the engine's death costs the client nothing.
    async fn relayed(
        &self,
        context: &Context,
        head: response::Parts,
        lease: Lease,
        mut body: Inflow,
    ) -> Result<Response<ReplyBody>, Attempt> {
        let limits = &context.settings.limits;
        let first = match next_bytes(&mut body, limits.first_result).await {
            Ok(first) => first,
            Err(broken) => return Err(self.died(context, &lease, broken).await),
        };
        if must_be_wrapped(&self.caller, &head) {
            let document = begin_of(first, &mut body, limits.between_frames).await;
            return Err(Attempt::Failed(Failure::of_engine(head.status, &document)));
        }
        let streams = is_event_stream(&head.headers);
        let manner = if streams { Manner::Events(self.caller.clone()) } else { Manner::Bytes };
        if head.status.is_client_error() || head.status.is_server_error() {
            self.recorder.refused_by_engine();
        }
        let relay = boxed(Relay::new(first, body, lease, self.terms(context, manner)));
        let relay = if self.reply == Reply::WithoutUsage && streams { without_usage(relay) } else { relay };
        let mut response = Response::new(relay);
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        headers::to_client(response.headers_mut());
        if streams {
            write_stream_headers(response.headers_mut());
        }
        Ok(response)
    }

    /// Reads the stream to its end and gives the lease back.
    async fn assembled(
        &self,
        context: &Context,
        kind: Kind,
        lease: Lease,
        mut body: Inflow,
    ) -> Result<Response<ReplyBody>, Attempt> {
        let limits = &context.settings.limits;
        let mut assembler = Assembler::new(kind);
        let mut tap = Tap::new(self.recorder.clone());
        let mut within = limits.first_result;
        loop {
            let next = next_bytes(&mut body, within).await;
            within = limits.between_frames;
            if next.is_ok() {
                lease.vital().moved();
            }
            match next {
                Ok(Some(bytes)) => {
                    tap.pass(&bytes);
                    match assembler.feed(&bytes) {
                        Ok(None) => {}
                        Ok(Some(Assembled::Refused { status, body })) if must_be_wrapped_as_json(&self.caller) => {
                            let status = StatusCode::from_u16(status).expect("the assembler gives 400 to 599");
                            return Err(Attempt::Failed(Failure::of_engine(status, &body)));
                        }
                        Ok(Some(whole)) => {
                            if matches!(whole, Assembled::Refused { .. }) {
                                self.recorder.refused_by_engine();
                            }
                            // Nothing but the end of the body follows: read, the connection can be kept.
                            body.skip_to_end();
                            return Ok(whole_reply(whole));
                        }
                        Err(error) => return Err(Attempt::Failed(Failure::EngineUnreadable(error.to_string()))),
                    }
                }
                Ok(None) => return Err(after(cause_of_death(&context.handle, lease.spawn()).await)),
                Err(broken) => return Err(self.died(context, &lease, broken).await),
            }
        }
    }

    /// The reply in Ollama's words. Its first line is awaited, for the same reason.
    async fn translated(
        &self,
        context: &Context,
        (translation, loaded_within): (&Translation, Duration),
        lease: Lease,
        mut body: Inflow,
    ) -> Result<Response<ReplyBody>, Attempt> {
        let limits = &context.settings.limits;
        let mut opening = Opening::new(translation, loaded_within);
        let mut tap = Tap::new(self.recorder.clone());
        let mut within = limits.first_result;
        loop {
            let next = next_bytes(&mut body, within).await;
            within = limits.between_frames;
            if next.is_ok() {
                lease.vital().moved();
            }
            let bytes = match next {
                Ok(Some(bytes)) => bytes,
                Ok(None) => {
                    let Some(reply) = opening.end() else {
                        return Err(after(cause_of_death(&context.handle, lease.spawn()).await));
                    };
                    return reply.map_err(Attempt::Failed);
                }
                Err(broken) => return Err(self.died(context, &lease, broken).await),
            };
            tap.pass(&bytes);
            match opening.feed(&bytes).map_err(Attempt::Failed)? {
                None => {}
                Some(Opened::Whole(reply)) => return Ok(reply),
                Some(Opened::Begun(first)) => {
                    let engine = boxed(Relay::new(None, body, lease, self.terms(context, Manner::Bytes)));
                    return Ok(opening.lines(first, engine, (self.caller.clone(), self.recorder.clone())));
                }
            }
        }
    }

    async fn no_reply(&self, context: &Context, lease: &Lease, error: SendError) -> Attempt {
        let request = &self.asker.holder.request;
        tracing::info!(request, key = %lease.key(), error = &error as &dyn std::error::Error, "an engine gave no reply");
        match error {
            SendError::Timeout(what, within) => Attempt::Failed(Failure::EngineTimeout { what, within }),
            SendError::Connect(_) | SendError::Closed(_) => after(cause_of_death(&context.handle, lease.spawn()).await),
        }
    }

    async fn died(&self, context: &Context, lease: &Lease, broken: Broken) -> Attempt {
        after(broken.cause(&context.handle, lease, &self.asker.holder.request).await)
    }
}

/// What it tells of an engine that there is no reply.
fn note_failure(lease: &Lease, error: &SendError) {
    match error {
        SendError::Timeout(Awaited::FirstResult, _) => lease.vital().fell_silent(),
        SendError::Timeout(..) | SendError::Connect(_) | SendError::Closed(_) => lease.vital().failed(),
    }
}

/// What a reply's status tells of its engine. What it does not offer, it said in words.
fn note_status(lease: &Lease, status: StatusCode) {
    if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
        lease.vital().failed();
    } else {
        lease.vital().answered();
    }
}

/// Whether this is an error in a form that no client of the API reads: a plain text, a page, another API's JSON.
pub(crate) fn must_be_wrapped(caller: &Caller, head: &response::Parts) -> bool {
    let is_json = head.headers.get(header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"application/json"));
    let is_error = head.status.is_client_error() || head.status.is_server_error();
    is_error && (!is_json || must_be_wrapped_as_json(caller))
}

/// Whether the engine's own JSON is an error in another API's form. It has the members of OpenAI's.
fn must_be_wrapped_as_json(caller: &Caller) -> bool {
    matches!(caller.family.traits().errors, ErrorForm::Typed | ErrorForm::Text)
}

/// As much of an error document as is read for its message.
pub(crate) async fn begin_of(first: Option<Bytes>, body: &mut Inflow, within: Duration) -> Vec<u8> {
    let mut document = first.map(Vec::from).unwrap_or_default();
    while document.len() < DOCUMENT_BYTES
        && let Ok(Some(more)) = next_bytes(body, within).await
    {
        document.extend_from_slice(&more);
    }
    document
}

fn whole_reply(whole: Assembled) -> Response<ReplyBody> {
    let (status, document): (StatusCode, Bytes) = match whole {
        Assembled::Reply(document) => (StatusCode::OK, document),
        Assembled::Refused { status, body } => {
            (StatusCode::from_u16(status).expect("the assembler gives 400 to 599"), body)
        }
    };
    let mut response = Response::new(full(document));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    response
}

/// Only an engine that died by itself is tried again (supervisor.md §3, "a crash in service"): what was stopped was stopped
/// for a reason. A prompt that wedges an engine would wedge the next one, with all that others have there.
fn after(failure: Failure) -> Attempt {
    match failure {
        Failure::EngineCrashed(_) => Attempt::Died(failure),
        other => Attempt::Failed(other),
    }
}
