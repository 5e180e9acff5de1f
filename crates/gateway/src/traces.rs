//! Spans of one request, for whoever exports traces: its own, the one of its wait for a lease, the one of its exchange with
//! an engine.
//!
//! ```text
//! client's `traceparent` ─► request ─┬─ acquire   the pool: until there is a lease
//!                                    └─ exchange  the engine: to its last byte ─► `traceparent` for the engine
//! ```
//!
//! They are spans of `tracing` under [`TARGET`] and nothing else: where nobody wants that target, none is made and a request
//! pays for a look at a flag. What ties them to traces of others is given to us ([`Traces`]), since its form is the
//! exporter's. Neither prompts nor replies are ever in a span.
use crate::{
    body::{BodyError, ReplyBody, boxed},
    usage::{Outcome, UsageRecord, whole_millis},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response};
use http_body::{Body, Frame, SizeHint};
use motorpool_supervisor::Lease;
use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tracing::{Span, field::Empty};

/// The target of every span of a request.
pub const TARGET: &str = "motorpool::trace";

/// The header that names a trace and the span in it from which a request came.
pub(crate) const TRACE_PARENT: &str = "traceparent";

type Join = dyn Fn(&Span, &HeaderMap) + Send + Sync;
type Carry = dyn Fn(&Span) -> Option<HeaderValue> + Send + Sync;

/// Ties spans to traces of others.
#[derive(Clone)]
pub struct Traces {
    join: Arc<Join>,
    carry: Arc<Carry>,
}

impl Traces {
    /// `join` makes a span part of the trace that a request's headers name; `carry` gives the `traceparent` of a span.
    pub fn new(
        join: impl Fn(&Span, &HeaderMap) + Send + Sync + 'static,
        carry: impl Fn(&Span) -> Option<HeaderValue> + Send + Sync + 'static,
    ) -> Self {
        Self { join: Arc::new(join), carry: Arc::new(carry) }
    }

    /// The span of a request that came with these headers.
    pub(crate) fn begin(&self, method: &Method, path: &str, headers: &HeaderMap) -> Span {
        let span = tracing::info_span!(
            target: TARGET,
            parent: None,
            "request",
            otel.name = format_args!("{method} {path}"),
            otel.kind = "server",
            otel.status_code = Empty,
            otel.status_description = Empty,
            http.request.method = method.as_str(),
            url.path = path,
            motorpool.request = Empty,
            motorpool.outcome = Empty,
            motorpool.first_result_ms = Empty,
            gen_ai.request.model = Empty,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
        );
        (self.join)(&span, headers);
        span
    }

    /// What an engine is told instead of what the client said: that it is asked from this span.
    pub(crate) fn carry(&self, span: &Span) -> Option<HeaderValue> {
        if span.is_disabled() { None } else { (self.carry)(span) }
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traces")
    }
}

/// A request's wait for a lease, below its span.
pub(crate) fn acquiring(request: &Span, model: &str) -> Span {
    if request.is_disabled() {
        return Span::none();
    }
    tracing::info_span!(
        target: TARGET,
        parent: request,
        "acquire",
        otel.kind = "internal",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.request.model = model,
        motorpool.engine = Empty,
    )
}

/// What an engine is asked, below a request's span.
pub(crate) fn exchanging(request: &Span, lease: &Lease) -> Span {
    if request.is_disabled() {
        return Span::none();
    }
    let span = tracing::info_span!(
        target: TARGET,
        parent: request,
        "exchange",
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        motorpool.engine = %lease.key(),
        motorpool.spawn = %lease.spawn(),
        motorpool.slot = Empty,
        http.response.status_code = Empty,
    );
    if let Some(slot) = lease.slot() {
        span.record("motorpool.slot", i64::from(slot));
    }
    span
}

/// It ended in a failure of this code.
pub(crate) fn failed(span: &Span, code: &str) {
    span.record("otel.status_code", "ERROR").record("otel.status_description", code);
}

/// Exporters know whole numbers with a sign; one without is a text to them.
fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// What became of a request.
pub(crate) fn ended(span: &Span, record: &UsageRecord) {
    if span.is_disabled() {
        return;
    }
    span.record("motorpool.request", record.request.as_str());
    if let Some(model) = &record.model {
        span.record("gen_ai.request.model", model.as_str());
    }
    if let Some(n) = record.tokens.prompt {
        span.record("gen_ai.usage.input_tokens", number(n));
    }
    if let Some(n) = record.tokens.generated {
        span.record("gen_ai.usage.output_tokens", number(n));
    }
    if let Some(within) = record.first_result_within {
        span.record("motorpool.first_result_ms", number(whole_millis(within)));
    }
    let outcome = match record.outcome {
        Outcome::Finished => "finished",
        Outcome::Failed(code) => {
            failed(span, code);
            "failed"
        }
        Outcome::Aborted => "aborted",
    };
    span.record("motorpool.outcome", outcome);
}

/// `response`, whose body ends `span` with its last byte.
pub(crate) fn until_read(response: Response<ReplyBody>, span: Span) -> Response<ReplyBody> {
    if span.is_disabled() {
        return response;
    }
    response.map(|body| boxed(Traced { body, span: Some(span) }))
}

struct Traced {
    body: ReplyBody,
    span: Option<Span>,
}

impl Body for Traced {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) || self.body.is_end_stream() {
            self.span = None;
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
