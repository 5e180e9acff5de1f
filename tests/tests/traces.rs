//! Traces of requests, as a collector gets them: the program must have been built with its feature `otel`.
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use motorpool_testkit::{Answer, Behaviour, FakeModel, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{CHAT, ask, chat, peek},
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value as Any},
    trace::v1::{Span, status::StatusCode},
};
use prost::Message as _;
use serde_json::Value;
use std::{
    convert::Infallible,
    fmt::Write as _,
    sync::{Arc, Mutex},
};
use tokio::{net::TcpListener, task::JoinSet};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";
const SECRET: &str = "the crown lies under the floor";

/// What a collector was sent.
#[derive(Clone, Debug, Default)]
struct Sent {
    bodies: Arc<Mutex<Vec<Bytes>>>,
}

/// A collector on a port of its own. Dropped, it is gone.
#[derive(Debug)]
struct Collector {
    sent: Sent,
    address: String,
    _serving: JoinSet<()>,
}

impl Collector {
    async fn start() -> Self {
        Self::start_after(0).await
    }

    /// One that says not a word to whoever connects first, so many of them.
    async fn start_after(n_silent: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("bound"));
        let sent = Sent::default();
        let (to, mut serving) = (sent.clone(), JoinSet::new());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            let mut silent = Vec::new();
            while silent.len() < n_silent
                && let Ok((stream, _)) = listener.accept().await
            {
                silent.push(stream);
            }
            while let Ok((stream, _)) = listener.accept().await {
                let to = to.clone();
                let service = service_fn(move |request| to.clone().take(request));
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { sent, address, _serving: serving }
    }

    /// Every span, once nobody sends any more.
    fn spans(&self) -> Vec<Span> {
        let read = |body: &Bytes| ExportTraceServiceRequest::decode(body.clone()).expect("an export");
        let bodies = self.sent.bodies.lock().expect("no panic");
        let resources = bodies.iter().map(read).flat_map(|export| export.resource_spans);
        let scopes = resources.flat_map(|spans| {
            let resource = spans.resource.expect("what sends it");
            assert_eq!(text(&resource.attributes, "service.name"), "motorpool");
            spans.scope_spans
        });
        scopes.flat_map(|scope| scope.spans).collect()
    }

    fn was_told(&self, word: &str) -> bool {
        let bodies = self.sent.bodies.lock().expect("no panic");
        bodies.iter().any(|body| body.windows(word.len()).any(|part| part == word.as_bytes()))
    }
}

impl Sent {
    async fn take(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        assert_eq!(
            (request.uri().path(), &request.headers()["content-type"]),
            ("/v1/traces", &"application/x-protobuf".parse().expect("valid"))
        );
        let body = request.into_body().collect().await.expect("whole").to_bytes();
        self.bodies.lock().expect("no panic").push(body);
        Ok(Response::new(Full::default()))
    }
}

/// An attribute's text; empty when it is not there.
fn text<'a>(attributes: &'a [KeyValue], name: &str) -> &'a str {
    let value = attributes.iter().find(|pair| pair.key == name).and_then(|pair| pair.value.as_ref()?.value.as_ref());
    if let Some(Any::StringValue(text)) = value { text } else { "" }
}

fn number(span: &Span, name: &str) -> Option<i64> {
    let value = &span.attributes.iter().find(|pair| pair.key == name)?.value;
    if let Some(Any::IntValue(n)) = value.as_ref()?.value { Some(n) } else { None }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a text takes everything");
        text
    })
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut all = spans.iter().filter(|span| span.name == name);
    let (first, second) = (all.next(), all.next());
    assert!(second.is_none(), "one `{name}`: {spans:#?}");
    first.unwrap_or_else(|| panic!("a `{name}`: {spans:#?}"))
}

/// A house whose daemon sends its traces there.
fn house_of(address: &str) -> (House, FakeModel) {
    let mut house = House::new();
    let model = house.fake("a", &Behaviour::default());
    house.set_env("OTEL_EXPORTER_OTLP_ENDPOINT", address);
    (house, model)
}

async fn send(daemon: &Daemon<'_>, body: &Value, parent: Option<&str>) -> Answer {
    let mut request = Request::post(CHAT).header("host", "localhost").header("content-type", "application/json");
    if let Some(parent) = parent {
        request = request.header("traceparent", parent);
    }
    let request = request.header("x-request-id", "mine-1").body(Full::new(Bytes::from(body.to_string())));
    daemon.http().send(request.expect("valid")).await.expect("an answer").whole().await.expect("its end")
}

async fn told_engine(model: &FakeModel) -> String {
    let counts = peek(model, "/fake/requests").await.expect("it runs");
    counts["last"]["headers"]["traceparent"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_request_is_one_trace_from_its_client_through_the_pool_to_the_engine() {
    for body in [chat("a", SECRET), ask("a", SECRET)] {
        let collector = Collector::start().await;
        let (house, model) = house_of(&collector.address);
        let daemon = house.start().await;
        let answer = send(&daemon, &body, Some(&format!("00-{TRACE}-{CLIENT}-01"))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let told = told_engine(&model).await;
        daemon.stop().await;

        let spans = collector.spans();
        assert_eq!(spans.len(), 3, "{spans:#?}");
        assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE), "{spans:#?}");
        let request = named(&spans, &format!("POST {CHAT}"));
        assert_eq!(hex(&request.parent_span_id), CLIENT);
        let (acquire, exchange) = (named(&spans, "acquire"), named(&spans, "exchange"));
        assert_eq!([&acquire.parent_span_id, &exchange.parent_span_id], [&request.span_id, &request.span_id]);
        assert!(acquire.end_time_unix_nano <= exchange.start_time_unix_nano, "{spans:#?}");
        assert!(exchange.end_time_unix_nano <= request.end_time_unix_nano, "{spans:#?}");
        assert_eq!(told, format!("00-{TRACE}-{}-01", hex(&exchange.span_id)), "the engine goes on from there");

        let of = |span: &Span, name: &str| text(&span.attributes, name).to_owned();
        assert_eq!(of(request, "gen_ai.request.model"), "a");
        assert_eq!(of(request, "motorpool.request"), "mine-1");
        assert_eq!(of(request, "motorpool.outcome"), "finished");
        assert!(number(request, "gen_ai.usage.output_tokens").is_some_and(|n| n > 0), "{request:#?}");
        assert_eq!([of(acquire, "motorpool.engine"), of(exchange, "motorpool.engine")], ["llama-server:a:0"; 2]);
        assert_eq!(number(exchange, "http.response.status_code"), Some(200));
        assert!(!collector.was_told(SECRET), "what people say is theirs");
    }
}

#[tokio::test]
async fn a_request_without_a_trace_begins_one_and_a_refused_one_says_why() {
    let collector = Collector::start().await;
    let (house, model) = house_of(&collector.address);
    let daemon = house.start().await;
    assert_eq!(send(&daemon, &chat("a", "hello"), None).await.status, 200);
    let told = told_engine(&model).await;
    assert_eq!(send(&daemon, &chat("nobody", "hello"), None).await.status, 404);
    daemon.stop().await;

    let spans = collector.spans();
    let requests: Vec<_> = spans.iter().filter(|span| span.parent_span_id.is_empty()).collect();
    let [served, refused] = requests[..] else { panic!("two traces: {spans:#?}") };
    assert_ne!(served.trace_id, refused.trace_id);
    let exchange = named(&spans, "exchange");
    assert_eq!(told, format!("00-{}-{}-01", hex(&served.trace_id), hex(&exchange.span_id)));
    let status = refused.status.as_ref().expect("a status");
    assert_eq!((status.code(), status.message.as_str()), (StatusCode::Error, "model_not_found"));
}

#[tokio::test]
async fn what_a_client_does_not_want_traced_is_not_and_its_engine_hears_so() {
    let collector = Collector::start().await;
    let (house, model) = house_of(&collector.address);
    let daemon = house.start().await;
    assert_eq!(send(&daemon, &chat("a", "hello"), Some(&format!("00-{TRACE}-{CLIENT}-00"))).await.status, 200);
    let told = told_engine(&model).await;
    daemon.stop().await;
    assert!(told.starts_with(&format!("00-{TRACE}-")) && told.ends_with("-00"), "{told}");
    assert_eq!(collector.spans(), []);
}

#[tokio::test]
async fn without_an_address_a_trace_passes_as_it_came() {
    for off in [("OTEL_EXPORTER_OTLP_ENDPOINT", ""), ("OTEL_SDK_DISABLED", "true")] {
        let collector = Collector::start().await;
        let (mut house, model) = house_of(&collector.address);
        house.set_env(off.0, off.1);
        let daemon = house.start().await;
        let parent = format!("00-{TRACE}-{CLIENT}-01");
        assert_eq!(send(&daemon, &chat("a", "hello"), Some(&parent)).await.status, 200);
        assert_eq!(told_engine(&model).await, parent);
        daemon.stop().await;
        assert_eq!(collector.spans(), []);
    }
}

#[tokio::test]
async fn a_collector_that_does_not_answer_keeps_nobody() {
    // It takes connections, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (house, _) = house_of(&format!("http://{}", silent.local_addr().expect("bound")));
    let daemon = house.start().await;
    for _ in 0..3 {
        assert_eq!(send(&daemon, &chat("a", "hello"), None).await.status, 200);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_collector_that_hangs_once_gets_what_comes_after_that() {
    let collector = Collector::start_after(1).await;
    let (mut house, _) = house_of(&collector.address);
    house.set_env("OTEL_EXPORTER_OTLP_TIMEOUT", "100");
    house.set_env("OTEL_BSP_SCHEDULE_DELAY", "20");
    let daemon = house.start().await;
    eventually("a later trace arrives", async || {
        assert_eq!(send(&daemon, &chat("a", "hello"), None).await.status, 200);
        (!collector.spans().is_empty()).then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_address_that_is_none_is_said_without_its_password() {
    let (house, _) = house_of("http://me:hunter2@not an address");
    house.write_config();
    let outcome = house.start_in_vain().await;
    assert!(outcome.stderr.contains("OTEL_EXPORTER_OTLP_ENDPOINT"), "{outcome:?}");
    assert!(!outcome.stderr.contains("hunter2"), "{outcome:?}");
}
