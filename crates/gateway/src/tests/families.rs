//! Each family through the whole server: what its clients are told before a commit and after it.
use super::*;
use crate::{
    errors::{Retry, Verdict},
    refusals::failure_of,
};
use motorpool_pool::{Denial, Excess, Host, Proof, Refusal, RefusedContext, StartFault, Which};
use motorpool_vocab::{Bytes, Claim, EngineKey, ModelId};

/// A path of each family that streams, and its own frame of an error.
pub(super) const STREAMING: [(&str, &str); 4] = [
    (CHAT, "data: "),
    ("/v1/responses", "event: error\ndata: "),
    ("/v1/messages", "event: error\ndata: "),
    ("/completion", "data: "),
];

const PING: &str = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
pub(super) const ASK: &str = "x-request-id: req_7\r\n";

/// Our code for an error document's or event's failure, by the words of the path's family; the whole form is compared
/// where it is made, in `errors::form`.
pub(super) fn assert_told(path: &str, told: &Value, (status, code, sequence): (u64, &str, u64)) {
    match path {
        "/v1/messages" => {
            assert_eq!((&told["type"], &told["request_id"]), (&json!("error"), &json!("req_7")), "{told}");
            assert_eq!(told["error"]["code"], code, "{told}");
        }
        "/completion" => assert_eq!(told["error"]["code"], status, "{told}"),
        "/v1/responses" if told["type"] == "error" => {
            assert_eq!((&told["code"], &told["sequence_number"]), (&json!(code), &json!(sequence)), "{told}");
        }
        _ => assert_eq!(told["error"]["code"], code, "{told}"),
    }
}

/// The last event of a stream, its frame taken off.
pub(super) fn last_event(body: &str, frame: &str) -> Value {
    let event = body.trim_end().rsplit("\n\n").next().expect("an event");
    let data = event.strip_prefix(frame).unwrap_or_else(|| panic!("{frame:?} before {event:?}"));
    serde_json::from_str(data).expect("JSON")
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_a_status_before_a_commit_and_the_familys_event_after_it() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.takes(Duration::from_secs(12));
    pool.refuses();
    for (path, frame) in STREAMING {
        let body = json!({"model":"m","stream":true});
        let early = server.post(path, &format!("{ASK}x-motorpool-loading: off\r\n"), &body).await;
        assert_eq!(early.status, 503, "{early:?}");
        assert_told(path, &early.json(), (503, "shutting_down", 0));
        for line in ["x-motorpool-code: shutting_down", "x-should-retry: true", "retry-after: 5", "request-id: req_7"] {
            assert!(early.head.contains(line), "{path}: {early:?}");
        }
        let late = server.post(path, ASK, &body).await;
        assert_eq!(late.status, 200, "{late:?}");
        let sign = if path == "/v1/messages" { PING } else { ": loading\n\n" };
        assert!(late.body.starts_with(sign), "{path}: {late:?}");
        assert_told(path, &last_event(&late.body, frame), (503, "shutting_down", 0));
    }
}

#[tokio::test]
async fn an_error_stands_alone_behind_an_event_that_the_engine_left_half() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    for (path, frame) in STREAMING {
        for half in ["data: {\"half", "data: {}\n", "data: {}\r\n"] {
            engine.breaks_after(&["event: a\ndata: 1\n\n", half]);
            pool.crashes(FailureClass::Killed);
            let reply = server.post(path, ASK, &json!({"model":"m","stream":true})).await;
            assert!(reply.body.starts_with(&format!("event: a\ndata: 1\n\n{half}\n\n{frame}{{")), "{reply:?}");
            assert_told(path, &last_event(&reply.body, frame), (502, "engine_crashed", 2));
            engine.heard().await;
        }
        engine.breaks_after(&["data: 1\r\n\r\n"]);
        pool.crashes(FailureClass::Killed);
        let reply = server.post(path, ASK, &json!({"model":"m","stream":true})).await;
        assert!(reply.body.starts_with(&format!("data: 1\r\n\r\n{frame}{{")), "{reply:?}");
        engine.heard().await;
    }
    // A stream out of which something is taken.
    engine.breaks_after(&["data: 1\n\n", "data: {\"half"]);
    pool.crashes(FailureClass::Killed);
    let reply = server.post(CHAT, ASK, &json!({"model":"stranger","stream":true})).await;
    assert!(reply.body.starts_with("data: 1\n\ndata: {\"half\n\ndata: {"), "{reply:?}");
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test]
async fn an_engine_with_its_own_word_for_its_model_is_asked_by_that_in_every_family() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let by_header = format!("{ASK}x-motorpool-model: stranger\r\n");
    for (path, headers, body) in [
        (CHAT, ASK, json!({"model": "stranger", "messages": []})),
        (CHAT, &by_header, json!({"messages": []})),
        ("/v1/messages", ASK, json!({"model": "stranger", "messages": []})),
        ("/api/chat", ASK, json!({"model": "stranger", "messages": [{"role": "user", "content": "hello"}]})),
    ] {
        engine.json(400, "{}");
        server.post(path, headers, &body).await;
        let heard = engine.heard().await.json();
        assert_eq!(heard["model"], "its-own", "{path} {heard}");
    }
}

#[tokio::test]
async fn a_stream_whose_length_its_engine_told_is_whole_also_where_its_words_are_changed() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let says = |stream: &str| {
        let length = stream.len();
        engine.says(&format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n{stream}"
        ));
    };
    for path in ["/v1/messages", "/v1/responses"] {
        says(
            r#"data: {"error":{"code":500,"message":"it broke","type":"server_error"}}

"#,
        );
        let reply = server.post(path, ASK, &json!({"model":"m","stream":true})).await;
        assert!(!reply.head.contains("content-length"), "{path} {reply:?}");
        assert_told(path, &last_event(&reply.body, "event: error\ndata: "), (500, "engine_error", 0));
    }
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n";
    says(&(delta("a") + usage + "data: [DONE]\n\n"));
    let reply = server.post(CHAT, ASK, &json!({"model":"stranger","stream":true})).await;
    assert_eq!((reply.status, reply.body), (200, delta("a") + "data: [DONE]\n\n"));
    says(&delta("a"));
    assert_eq!(server.post(CHAT, ASK, &json!({"model":"m","stream":true})).await.body, delta("a"));
}

#[tokio::test(start_paused = true)]
async fn an_error_document_that_breaks_off_behind_a_commit_is_still_told() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.takes(Duration::from_secs(2));
    for (path, frame) in STREAMING {
        engine.breaks_in_document(503, "{\"error\":{");
        pool.crashes(FailureClass::Killed);
        let headers = format!("{ASK}x-motorpool-loading: 1\r\n");
        let reply = server.post(path, &headers, &json!({"model":"m","stream":true})).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_told(path, &last_event(&reply.body, frame), (503, "engine_error", 0));
        engine.heard().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_it_reads_in_a_chats_reply_that_its_model_loads_and_others_are_told_that_it_has_no_place() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.takes(Duration::from_secs(17));
    engine.stream(&[&delta("a"), END]);
    let wish = "x-motorpool-loading: content\r\n";
    let reply = server.post(CHAT, wish, &json!({"model":"m","stream":true})).await;
    let rest = reply.body.strip_suffix(&(delta("a") + END)).unwrap_or_else(|| panic!("{reply:?}"));
    let events: Vec<Value> = rest
        .split_terminator("\n\n")
        .map(|event| serde_json::from_str(event.strip_prefix("data: ").expect("data")).expect("JSON"))
        .collect();
    assert_eq!(events.len(), 2, "{reply:?}");
    for event in &events {
        assert_eq!(event["choices"][0]["delta"]["content"], "[loading]\n");
        assert_eq!((&event["object"], &event["model"]), (&json!("chat.completion.chunk"), &json!("m")));
    }
    for path in
        ["/v1/completions", "/v1/messages", "/v1/responses", "/completion", "/api/chat", "/m/m/v1/chat/completions"]
    {
        let reply = server.post(path, wish, &json!({"model":"m","stream":true})).await;
        assert!(
            reply.status == 400 && reply.body.contains("for streams of `/v1/chat/completions`"),
            "{path} {reply:?}"
        );
    }
    engine.json(200, "{}");
    let whole = server.post("/v1/embeddings", "", &json!({"model":"vectors","input":"a"})).await;
    assert_eq!(whole.status, 200, "{whole:?}");
}

#[tokio::test]
async fn what_is_only_counted_takes_no_slot_of_an_engine_that_serves_and_an_engine_says_what_it_is() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    let router = json!({"role": "router", "max_instances": 5});
    assert_eq!(server.get("/props?model=m", "").await.json(), router, "nothing is loaded for a look");
    assert_eq!(server.get("/props?model=none", "").await.status, 404);
    pool.serves_with_no_slot_free();
    pool.never_grants();
    for path in ["/v1/messages/count_tokens", "/tokenize", "/apply-template", "/v1/responses/input_tokens"] {
        engine.json(200, "{\"input_tokens\":3}");
        let reply = server.post(path, "", &json!({"model":"alias","messages":[]})).await;
        assert_eq!((reply.status, reply.json()), (200, json!({"input_tokens": 3})), "{path} {reply:?}");
        assert_eq!(engine.heard().await.json()["model"], "m", "{path}");
    }
    engine.text(500, "<html>");
    let reply = server.post("/v1/messages/count_tokens", "", &json!({"model":"m"})).await;
    assert_eq!((reply.status, &reply.json()["type"]), (500, &json!("error")), "{reply:?}");
    engine.heard().await;

    engine.json(200, "{\"total_slots\":4}");
    assert_eq!(server.get("/props?model=alias", "").await.json(), json!({"total_slots": 4}));
    let heard = engine.heard().await;
    assert!(heard.head.starts_with("get /props http/1.1"), "{}", heard.head);
    assert_eq!(server.get("/props", "").await.json(), router, "none of several");
    assert_eq!(pool.n_granted(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_hangs_is_not_waited_for_by_who_only_looks_or_counts() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.serves_with_no_slot_free();
    let began = tokio::time::Instant::now();
    engine.hangs_after(&[]);
    let router = json!({"role": "router", "max_instances": 5});
    assert_eq!(server.get("/props?model=m", "").await.json(), router);
    // What is not counted aside is counted with a lease.
    engine.hangs_after(&[]);
    engine.json(200, "{\"tokens\":[]}");
    let counted = server.post("/tokenize", "", &json!({"model":"m","content":"x"})).await;
    assert_eq!((counted.status, counted.json()), (200, json!({"tokens":[]})));
    engine.breaks_in_document(200, "{");
    engine.hangs_after(&["half"]);
    assert_eq!(server.get("/props?model=m", "").await.json(), router);
    assert_eq!(server.get("/props?model=m", "").await.json(), router);
    assert!(began.elapsed() < Duration::from_mins(2), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_raw_path_that_does_not_stream_has_a_status_whatever_its_body_says() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.takes(Duration::from_secs(12));
    for (path, streams) in [("/m/m/tokenize", false), ("/m/m/v1/embeddings", false), ("/m/m/completion", true)] {
        let model = if path.ends_with("embeddings") { path.replace("/m/m/", "/m/vectors/") } else { path.to_owned() };
        engine.json(200, "{\"whole\":1}");
        let reply = server.post(&model, "", &json!({"stream":true})).await;
        assert_eq!((reply.status, reply.body.starts_with(": loading")), (200, streams), "{path} {reply:?}");
        assert!(streams || reply.json() == json!({"whole":1}), "{path} {reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_document_without_end_behind_a_commit_is_told_by_its_beginning() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.takes(Duration::from_secs(2));
    let long = "x".repeat(1 << 20);
    for (path, frame) in STREAMING {
        engine.json(503, &format!("{{\"error\":{{\"message\":\"{long}\"}}}}"));
        let headers = format!("{ASK}x-motorpool-loading: 1\r\n");
        let reply = server.post(path, &headers, &json!({"model":"m","stream":true})).await;
        assert!(reply.status == 200 && reply.body.len() < 10_000, "{path} {}", reply.body.len());
        assert_told(path, &last_event(&reply.body, frame), (503, "engine_error", 0));
    }
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_its_familys_event() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    for (path, frame) in STREAMING {
        engine.breaks_after(&["event: a\ndata: 1\n\n", "event: b\ndata: 2\n", "\n"]);
        pool.crashes(FailureClass::Killed);
        let reply = server.post(path, ASK, &json!({"model":"m","stream":true})).await;
        assert!(reply.body.starts_with("event: a\ndata: 1\n\nevent: b\ndata: 2\n\n"), "{reply:?}");
        assert_told(path, &last_event(&reply.body, frame), (502, "engine_crashed", 2));
        let heard = engine.heard().await;
        assert!(heard.head.starts_with(&format!("post {path} ")), "{}", heard.head);
    }
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test]
async fn an_engines_refusal_is_said_in_words_that_the_familys_clients_read() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let said = r#"{"error":{"code":400,"message":"no such template","type":"invalid_request_error"}}"#;
    for path in [CHAT, "/v1/responses", "/completion"] {
        engine.json(400, said);
        let reply = server.post(path, "", &json!({"model":"m","stream":true})).await;
        assert_eq!((reply.status, reply.body.as_str()), (400, said), "{path}");
    }
    engine.json(400, said);
    let reply = server.post("/v1/messages", ASK, &json!({"model":"m","stream":true})).await;
    let message = "the engine answered with status 400 Bad Request: no such template";
    let error = json!({"type":"invalid_request_error","message":message,"code":"engine_error"});
    assert_eq!((reply.status, reply.json()), (400, json!({"type":"error","error":error,"request_id":"req_7"})));
}

#[tokio::test]
async fn what_is_not_offered_is_said_in_the_familys_words() {
    let server = Server::start(&Pool::of(&Engine::start()), |_| {}).await;
    let ollama = server.post("/api/create", "", &json!({"model":"m"})).await;
    assert_eq!(ollama.status, 501);
    assert_eq!(ollama.json(), json!({"error":"this part of the API is not offered by this server"}));
    let responses = server.get("/v1/responses/resp_1", "").await;
    assert_eq!((responses.status, responses.code()), (501, json!("not_supported")));
    let messages = server.get("/v1/messages", "").await;
    assert_eq!((messages.status, &messages.json()["type"]), (405, &json!("error")));
    assert!(messages.head.contains("allow: post, options") || messages.head.contains("allow: POST, OPTIONS"));
    let root = server.get("/", "").await;
    assert_eq!((root.status, root.body.as_str()), (200, "Motorpool is running"));
    assert_eq!(server.get("/props", "").await.json(), json!({"role":"router","max_instances":5}));
    assert_eq!(server.get("/models", "").await.json(), server.get("/v1/models", "").await.json());
}

#[tokio::test]
async fn a_body_is_asked_for_only_once_its_length_has_passed() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let head = |length: u64| {
        format!(
            "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let refused = server.raw(&head(1 << 40)).await;
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    let taken = server.raw(&(head(2) + "[]")).await;
    assert!(taken.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 "), "{taken}");
}

/// A refusal, its status and its code.
pub(super) type Row = (fn() -> Refusal, u16, &'static str);

/// What the pool may answer, and how clients hear of it.
pub(super) fn refusals() -> Vec<Row> {
    fn key() -> EngineKey {
        "llama-server:m:0".parse().expect("a key")
    }
    fn failed(class: FailureClass) -> Refusal {
        Refusal::StartFailed { key: key(), fault: StartFault { class, message: "why".into(), tail: vec![] } }
    }
    fn denied(context: Option<RefusedContext>) -> Refusal {
        let (would_commit, bound) = (Bytes::gib(9), Bytes::gib(8));
        let excess = Excess { would_commit, bound, which: Which::Total };
        let proof = Proof { claim: Claim::private(Bytes::gib(9)), excess };
        Refusal::CapacityDenied(Box::new(Denial::new(key(), proof, &Host::default().bounds()).of_context(context)))
    }
    const WITHIN: Duration = Duration::from_secs(3);
    vec![
        (|| Refusal::UnknownModel(ModelId::new("m").expect("an id")), 404, "model_not_found"),
        (|| denied(None), 503, "capacity_denied"),
        (|| denied(Some(RefusedContext { asked: 8192, fits: 4096 })), 503, "context_denied"),
        (|| Refusal::EngineBusy { key: key(), within: WITHIN }, 503, "engine_busy"),
        (|| Refusal::QueueFull { queue: motorpool_pool::Queue::All, limit: 9 }, 429, "queue_full"),
        (|| Refusal::QueueTimeout { key: key(), within: WITHIN }, 504, "queue_timeout"),
        (|| Refusal::Cancelled, 503, "cancelled"),
        (|| failed(FailureClass::LoadStalled), 502, "engine_start_failed"),
        (|| failed(FailureClass::ModelCorrupt), 500, "engine_start_failed"),
        (|| failed(FailureClass::DeviceLost), 503, "device_lost"),
        (|| Refusal::Evicted(key()), 503, "evicted"),
        (|| Refusal::Drained(key()), 503, "drained"),
        (|| Refusal::Retired, 503, "shutting_down"),
        (
            || Refusal::GpuPaused { key: key(), happened: "now".into(), signature: "x".into(), within: WITHIN },
            503,
            "gpu_paused",
        ),
        (
            || {
                let fault = StartFault { class: FailureClass::Killed, message: "why".into(), tail: vec![] };
                Refusal::BreakerOpen { key: key(), fault, retry_in: WITHIN }
            },
            503,
            "breaker_open",
        ),
        (|| Refusal::ShuttingDown, 503, "shutting_down"),
    ]
}

/// A client is told when to come again, and only where that helps.
fn assert_advised(reply: &Reply, verdict: &Verdict) {
    let after = reply.head.lines().find_map(|line| line.strip_prefix("retry-after: ")).map(str::to_owned);
    let want = if let Retry::After(seconds) = verdict.retry { Some(seconds.clamp(1, 60).to_string()) } else { None };
    assert_eq!(after, want, "{reply:?}");
    let again = format!("x-should-retry: {}\r\n", verdict.retry != Retry::Never);
    assert!(reply.head.contains(&again), "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn whatever_the_pool_refuses_is_said_on_both_sides_of_a_commit_in_every_family() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.takes(Duration::from_secs(12));
    for (refusal, status, code) in refusals() {
        pool.refuses_with(refusal);
        for (path, frame) in STREAMING {
            let body = json!({"model":"m","stream":true});
            let early = server.post(path, &format!("{ASK}x-motorpool-loading: off\r\n"), &body).await;
            assert_eq!(early.status, status, "{path} {early:?}");
            assert_told(path, &early.json(), (status.into(), code, 0));
            assert!(early.head.contains(&format!("x-motorpool-code: {code}")), "{path} {early:?}");
            assert_advised(&early, &failure_of(refusal()).verdict());
            let late = server.post(path, ASK, &body).await;
            assert_eq!(late.status, 200, "{path} {late:?}");
            assert_told(path, &last_event(&late.body, frame), (status.into(), code, 0));
        }
        let ollama =
            server.post("/api/chat", ASK, &json!({"model":"m","messages":[{"role":"user","content":"x"}]})).await;
        assert_eq!((ollama.status, ollama.json()["error"].is_string()), (status, true), "{ollama:?}");
        assert_advised(&ollama, &failure_of(refusal()).verdict());
        assert!(ollama.head.contains(&format!("x-motorpool-code: {code}")), "{ollama:?}");
    }
}

#[tokio::test]
async fn an_engine_that_gives_up_inside_a_stream_is_quoted_in_the_familys_words() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let error = r#"{"code":400,"message":"too long","type":"exceed_context_size_error"}"#;
    let bare = format!("data: {{\"error\":{error}}}\n\n");
    let named = format!("event: error\ndata: {error}\n\n");
    for (path, event) in [(CHAT, &bare), ("/completion", &bare)] {
        engine.stream(&["data: 1\n\n", event]);
        let reply = server.post(path, ASK, &json!({"model":"m","stream":true})).await;
        assert_eq!(reply.body, format!("data: 1\n\n{event}"), "its clients know that form");
    }
    for path in ["/v1/messages", "/v1/responses"] {
        for event in [&bare, &named] {
            engine.stream(&["event: a\ndata: 1\n\n", event]);
            let reply = server.post(path, ASK, &json!({"model":"m","stream":true})).await;
            let told = last_event(&reply.body, "event: error\ndata: ");
            assert_told(path, &told, (400, "engine_error", 1));
            assert!(told.to_string().contains("too long"), "{told}");
        }
        engine.stream(&[&bare]);
        let reply = server.post(path, ASK, &json!({"model":"m"})).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.body.contains("too long"), "{reply:?}");
    }
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test]
async fn who_leaves_before_a_whole_reply_frees_its_slot_at_once_in_every_family() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let message = json!([{"role":"user","content":"x"}]);
    for (path, body) in [
        (CHAT, json!({"model":"m","messages":message})),
        ("/v1/completions", json!({"model":"m","prompt":"x"})),
        ("/completion", json!({"model":"m","prompt":"x"})),
        ("/v1/messages", json!({"model":"m","messages":message,"max_tokens":9})),
        ("/v1/responses", json!({"model":"m","input":"x"})),
        ("/api/chat", json!({"model":"m","messages":message,"stream":false})),
        ("/api/generate", json!({"model":"m","prompt":"x","stream":false})),
    ] {
        engine.hangs_after(&["data: null\n\n"]);
        let mut stream = TcpStream::connect(server.address).await.expect("it listens");
        let text = body.to_string();
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", text.len());
        stream.write_all((head + &text).as_bytes()).await.expect("it reads");
        assert_eq!(engine.heard().await.json()["stream"], true, "{path}: only then does the engine notice");
        drop(stream);
        engine.closed().await;
        assert_eq!(engine.leases().await, 0, "{path}");
    }
}
