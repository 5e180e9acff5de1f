//! One request with somebody else's server, from its visit to the reply.
//!
//! ```text
//! visit ─► send ─┬─ an error ─► what it means ─┬─ again: something of ours went, or the model did
//!            ▲   │                             └─ the caller's
//!            └───┼──────────────────────────────┘
//!                └─ well ─► first bytes ─► Relay, the visit inside
//! ```
use super::{
    Foreign, Visit,
    loads::{Api, Loads},
};
use crate::{
    asker::Asker,
    body::{ReplyBody, boxed, full},
    context::Context,
    errors::{Awaited, Failure},
    exchange::{begin_of, must_be_wrapped},
    family::Caller,
    headers,
    inference::commit_after,
    loading::{self, CommitAfter, Told, is_event_stream, write_stream_headers},
    ollama::{self, Abroad, Call, Opened, Opening, Translation},
    receive::Received,
    relay::{Broken, Manner, Relay, Terms, next_bytes},
    retain::{Replay, Retained},
    route::{Served, Way},
    scan::Findings,
    splice::{Edits, Splice, Streaming},
    upstream::Inflow,
    usage::{Recorder, Tap},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header, request, response};
use motorpool_catalog::{ExternalKind, Parameters};
use motorpool_external::{Next, Refusal, residency::Decline};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// A request that is ready to go.
struct Job {
    to: Foreign,
    method: Method,
    path: &'static str,
    headers: HeaderMap,
    body: Arc<Retained>,
    found: Findings,
    loads: Loads,
    caller: Caller,
    recorder: Recorder,
    /// Its reply is said in Ollama's words, which the server does not speak.
    translation: Option<Translation>,
}

/// Answers a path of the table by a model of somebody else's server.
pub(crate) async fn by_table(
    context: &Arc<Context>,
    to: Foreign,
    (served, head): (&'static Served, request::Parts),
    (received, asker): (Received, Asker),
) -> Result<Response<ReplyBody>, Failure> {
    if !context.handle.is_open() {
        return Err(Failure::ShuttingDown);
    }
    let found = received.found.unwrap_or_default();
    let api = if matches!(served.way, Way::Translated(_)) { Api::Ollama } else { Api::Other };
    let loads = Loads::of((to.outside.config.kind, api), &found)?;
    let mut headers = headers::to_engine(&head.headers, motorpool_catalog::always_passes);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers::name_request(&mut headers, &asker.holder.request);
    let after = match served.way {
        Way::Assembled(_) | Way::Streamed => commit_after(context, &head.headers, &found, served.family)?,
        _ => CommitAfter::Never,
    };
    let caller = Caller { family: served.family, request: asker.holder.request.as_str().into() };
    let recorder = head.extensions.get::<Recorder>().cloned();
    let recorder = recorder.ok_or(Failure::Internal("a request without a record"))?;
    recorder.is_for_foreign(&to.outside.config.id, &to.qualified());
    let told = Told { handle: context.handle.clone(), model: None, caller: caller.clone(), recorder: recorder.clone() };
    let (method, path, body) = (head.method, served.path, received.body);
    let mut job = Job { to, method, path, headers, body, found, loads, caller, recorder, translation: None };
    if let Way::Translated(call) = served.way
        && job.to.outside.config.kind != ExternalKind::Ollama
    {
        job.translate(context, call).await?;
    }
    let context = Arc::clone(context);
    loading::within(Box::pin(async move { job.run(&context).await }), after, told).await
}

impl Job {
    /// Says in OpenAI's words what was asked in Ollama's.
    async fn translate(&mut self, context: &Context, call: Call) -> Result<(), Failure> {
        let name = self.found.model().unwrap_or(&self.to.wire);
        let Abroad { path, body, found, translation } =
            ollama::abroad(context, (call, &self.body), (&self.to.wire, name)).await?;
        (self.path, self.body, self.found, self.translation) = (path, body, found, Some(translation));
        self.headers.remove(header::ACCEPT);
        Ok(())
    }

    /// The reply, or why there is none. Dropping the future gives the model free.
    async fn run(&self, context: &Context) -> Result<Response<ReplyBody>, Failure> {
        let (limits, began) = (&context.settings.limits, Instant::now());
        let wish = (self.to.wire.as_str(), self.loads.context);
        let visit = self.to.outside.watch.visit(wish, context.settings.drain_wait).await;
        let mut visit = visit.map_err(|why| self.refused(&why))?;
        let loaded_within = began.elapsed();
        let mut first = None;
        loop {
            let (head, mut body) = self.send(context, &mut visit).await?.into_parts();
            if head.status.is_client_error() || head.status.is_server_error() {
                let document = begin_of(None, &mut body, limits.between_frames).await;
                match visit.stay.on_refused(head.status.as_u16(), &document).await {
                    Ok(Next::Again) => {
                        tracing::info!(request = &*self.caller.request, model = self.to.qualified(), "asked once more");
                        first.get_or_insert((head, document));
                    }
                    Ok(Next::Surface) => return self.said_no(head, document),
                    Ok(Next::SurfaceFirst) => {
                        let (head, document) = first.unwrap_or((head, document));
                        return self.said_no(head, document);
                    }
                    Err(why) => return Err(self.refused(&why)),
                }
                continue;
            }
            if let Some(translation) = &self.translation {
                return self.translated(context, (translation, loaded_within), body, visit).await;
            }
            let first = match next_bytes(&mut body, limits.first_result).await {
                Ok(first) => first,
                Err(broken) => return Err(self.broken(&broken)),
            };
            visit.stay.on_first_result().await;
            return Ok(self.relayed(context, head, (first, body), visit));
        }
    }

    async fn send(&self, context: &Context, visit: &mut Visit) -> Result<Response<Inflow>, Failure> {
        let within = context.settings.limits.first_result;
        let (wire, rules) = (visit.stay.wire_model().to_owned(), self.loads.rules(visit.stay.loaded_with()));
        match tokio::time::timeout(within, visit.stay.send(self.path, || self.request(&wire, &rules))).await {
            Ok(Ok(reply)) => Ok(reply.map(Inflow::from)),
            Ok(Err(error)) => {
                tracing::info!(
                    request = &*self.caller.request,
                    model = self.to.qualified(),
                    error = &error as &dyn std::error::Error,
                    "no reply"
                );
                Err(self.failed(&error.to_string()))
            }
            Err(_) => Err(Failure::EngineTimeout { what: Awaited::FirstResult, within }),
        }
    }

    /// An error that is the caller's.
    fn said_no(&self, mut head: response::Parts, document: Vec<u8>) -> Result<Response<ReplyBody>, Failure> {
        if must_be_wrapped(&self.caller, &head) {
            return Err(Failure::of_engine(head.status, &document));
        }
        self.recorder.refused_by_engine();
        headers::to_client(&mut head.headers);
        head.headers.remove(header::CONTENT_LENGTH);
        Ok(Response::from_parts(head, full(document)))
    }

    /// The reply in Ollama's words.
    async fn translated(
        &self,
        context: &Context,
        (translation, loaded_within): (&Translation, Duration),
        mut body: Inflow,
        mut visit: Visit,
    ) -> Result<Response<ReplyBody>, Failure> {
        let limits = &context.settings.limits;
        let mut opening = Opening::new(translation, loaded_within);
        let mut tap = Tap::new(self.recorder.clone());
        let broken = |broken: Broken| self.broken(&broken);
        let mut next = next_bytes(&mut body, limits.first_result).await.map_err(broken)?;
        visit.stay.on_first_result().await;
        loop {
            let Some(bytes) = next else {
                let too_early = || Err(self.failed("the server's reply broke off"));
                return opening.end().unwrap_or_else(too_early);
            };
            tap.pass(&bytes);
            match opening.feed(&bytes)? {
                None => {}
                Some(Opened::Whole(reply)) => return Ok(reply),
                Some(Opened::Begun(first)) => {
                    let rest = boxed(Relay::of_visit(None, body, visit, self.terms(context, Manner::Bytes)));
                    return Ok(opening.lines(first, rest, (self.caller.clone(), self.recorder.clone())));
                }
            }
            next = next_bytes(&mut body, limits.between_frames).await.map_err(broken)?;
        }
    }

    fn terms(&self, context: &Context, manner: Manner) -> Terms {
        let within = context.settings.limits.between_frames;
        Terms { handle: context.handle.clone(), manner, within, recorder: self.recorder.clone() }
    }

    fn relayed(
        &self,
        context: &Context,
        head: response::Parts,
        (first, rest): (Option<Bytes>, Inflow),
        visit: Visit,
    ) -> Response<ReplyBody> {
        let streams = is_event_stream(&head.headers);
        let kind = head.headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let manner = match kind {
            _ if streams => Manner::Events(self.caller.clone()),
            // Ollama's streams.
            kind if kind.starts_with(b"application/x-ndjson") => Manner::Lines,
            _ => Manner::Bytes,
        };
        let relay = Relay::of_visit(first, rest, visit, self.terms(context, manner));
        let mut response = Response::from_parts(head, boxed(relay));
        headers::to_client(response.headers_mut());
        if streams {
            write_stream_headers(response.headers_mut());
        }
        response
    }

    /// What is sent. What a client wrote behind the path does not travel: it could tell a router to load by itself.
    fn request(&self, wire: &str, rules: &Parameters) -> Request<ReplyBody> {
        let edits = Edits { model: Some(wire), streaming: Streaming::AsAsked, rules: Some(rules) };
        let splice = Splice::new(&self.found, self.body.len(), edits);
        let mut request = Request::new(boxed(Replay::new(Arc::clone(&self.body), &splice)));
        *request.method_mut() = self.method.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }

    fn refused(&self, why: &Refusal) -> Failure {
        let message = format!("{}: {why}", self.to.qualified());
        match why {
            Refusal::Declined(Decline::NoSuchModel) | Refusal::Unknown(_) => Failure::NotOffered(message),
            Refusal::Declined(Decline::Unread(_)) => Failure::ExternalFailed(message),
            Refusal::Declined(_) => Failure::WillNotFit(message),
            Refusal::Lock(_) => Failure::ResidencyBusy(message),
            Refusal::InUse(_) => Failure::EngineBusy(message),
            Refusal::Failed(_) | Refusal::Server(_) | Refusal::NotOurs | Refusal::BrokeOff => {
                Failure::ExternalFailed(message)
            }
        }
    }

    fn broken(&self, broken: &Broken) -> Failure {
        self.to.outside.watch.guest().distrust();
        match broken {
            Broken::Silent(within) => Failure::EngineTimeout { what: Awaited::NextFrame, within: *within },
            Broken::Cut(_) => self.failed("the server's reply broke off"),
        }
    }

    fn failed(&self, why: &str) -> Failure {
        Failure::ExternalFailed(format!("{}: {why}", self.to.qualified()))
    }
}
