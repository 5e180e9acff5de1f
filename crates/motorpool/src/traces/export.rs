//! Traces of requests, exported by OpenTelemetry's protocol (protobuf over HTTP) to whoever collects them.
//!
//! `OTEL_EXPORTER_OTLP_ENDPOINT`, or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, says where they go; without either, or with
//! `OTEL_SDK_DISABLED=true`, there are none. The other variables of the standard (headers, times, sampler, resource) mean what
//! they mean everywhere. Spans are sent in batches from a thread of their own, and none waits for a collector: what does not
//! fit is lost.
use crate::{
    exit::{Exit, Failure, chain},
    fetch,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use motorpool_gateway::{TRACE_TARGET, Traces};
use opentelemetry::{
    propagation::TextMapPropagator,
    trace::{TraceContextExt, TracerProvider},
};
use opentelemetry_http::{HeaderExtractor, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use std::{pin::Pin, time::Duration};
use tokio::runtime::Handle;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Layer, filter::Targets, registry::LookupSpan};

/// What a collector answers is never longer.
const ANSWER_BYTES: usize = 64 << 10;
/// A collector takes a batch in this time, unless the environment says otherwise: what the standard says.
const BATCH_WITHIN: Duration = Duration::from_secs(10);
/// How long it may take, in milliseconds, the first of them that says anything.
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
/// What is left of spans gets to the collector in this time when we end.
const LAST_SPANS_WITHIN: Duration = Duration::from_secs(2);

/// Whoever sends spans.
#[derive(Debug)]
pub(crate) struct Exporter(SdkTracerProvider);

impl Exporter {
    /// What the environment asks for, if it asks for anything. It sends from within the runtime that this is called in.
    pub(crate) fn from_environment() -> Result<Option<Self>, Failure> {
        let Some(name) = super::asked_by() else { return Ok(None) };
        // What it says of an address may hold a password of it.
        let unusable = |_| {
            let cure = format!("{name} is the address of a collector, such as http://127.0.0.1:4318");
            Failure::new(Exit::Config, format_args!("traces cannot be sent to what {name} says"), cure)
        };
        let connector = fetch::connector().map_err(|error| {
            Failure::new(Exit::Failed, chain(&error), "install the certificate authorities of the system")
        })?;
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let within = batch_within(|name| std::env::var(name).ok());
        let through = Through { client, runtime: Handle::current(), within };
        let exporter = SpanExporter::builder().with_http().with_http_client(through).build().map_err(unusable)?;
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("motorpool");
        }
        let resource =
            resource.with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build());
        Ok(Some(Self(provider.build())))
    }

    /// Takes the spans of requests, whatever the level of the log.
    pub(crate) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("motorpool"))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_target(false)
            .with_filter(Targets::new().with_target(TRACE_TARGET, tracing::Level::INFO))
    }

    /// For the gateway: clients' traces go on in ours, and ours in engines.
    #[expect(clippy::unused_self, reason = "without an exporter nothing is tied")]
    pub(crate) fn ties(&self) -> Traces {
        Traces::new(join, carry)
    }

    /// Sends what is left.
    pub(crate) async fn close(self) {
        // It waits for the exporter's thread, whose requests run here.
        let closing = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(LAST_SPANS_WITHIN));
        match tokio::time::timeout(LAST_SPANS_WITHIN, closing).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!("the last traces are lost: {error}"),
            Ok(Err(_)) | Err(_) => tracing::warn!("the last traces are lost: nobody took them in time"),
        }
    }
}

fn join(span: &Span, headers: &HeaderMap) {
    let named = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
    if named.span().span_context().is_valid() {
        // It fails for a span that nobody takes, and for none that has just been made.
        let _ = span.set_parent(named);
    }
}

fn carry(span: &Span) -> Option<HeaderValue> {
    let context = span.context();
    let span = context.span();
    let named = span.span_context();
    let text = format!("00-{}-{}-{:02x}", named.trace_id(), named.span_id(), named.trace_flags().to_u8());
    named.is_valid().then(|| HeaderValue::from_str(&text).expect("digits and dashes"))
}

/// Our own client, called from the exporter's thread.
#[derive(Debug)]
struct Through {
    client: Client<fetch::Connector, Full<Bytes>>,
    runtime: Handle,
    /// Batches are sent one after another: one that nobody takes would be the last.
    within: Duration,
}

fn batch_within(said: impl Fn(&str) -> Option<String>) -> Duration {
    let said = TIMEOUTS.iter().find_map(|name| said(name).filter(|text| !text.trim().is_empty()));
    said.and_then(|text| text.trim().parse().ok()).map_or(BATCH_WITHIN, Duration::from_millis)
}

type Sending<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Through {
    fn send_bytes<'life, 'sending>(&'life self, request: Request<Bytes>) -> Sending<'sending>
    where
        'life: 'sending,
        Self: 'sending,
    {
        let (client, within) = (self.client.clone(), self.within);
        let exchange = async move {
            let (head, body) = client.request(request.map(Full::new)).await?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(head, body))
        };
        let sent = self.runtime.spawn(async move { tokio::time::timeout(within, exchange).await? });
        Box::pin(async move { sent.await? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_how_long_a_collector_may_take_and_the_standard_otherwise() {
        let within = |set: &[(&str, &str)]| {
            batch_within(|name| set.iter().find(|(set, _)| *set == name).map(|(_, text)| (*text).to_owned()))
        };
        let [of_traces, of_all] = TIMEOUTS;
        assert_eq!(within(&[(of_all, "300"), (of_traces, " 20 ")]), Duration::from_millis(20));
        assert_eq!(within(&[(of_all, "300"), (of_traces, "")]), Duration::from_millis(300));
        for wrong in ["", "soon", "-1"] {
            assert_eq!(within(&[(of_all, wrong)]), Duration::from_secs(10), "{wrong}");
        }
    }
}
