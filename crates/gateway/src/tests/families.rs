//! Each family through the whole server: what its clients are told before a commit and after it.
use super::*;

/// A path of each family that streams, and its own frame of an error.
const STREAMING: [(&str, &str); 4] = [
    (CHAT, "data: "),
    ("/v1/responses", "event: error\ndata: "),
    ("/v1/messages", "event: error\ndata: "),
    ("/completion", "data: "),
];

const PING: &str = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
const ASK: &str = "x-request-id: req_7\r\n";

/// Our code for an error document's or event's failure, by the words of the path's family; the whole form is compared
/// where it is made, in `errors::form`.
fn assert_told(path: &str, told: &Value, (status, code, sequence): (u64, &str, u64)) {
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
fn last_event(body: &str, frame: &str) -> Value {
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
    assert_eq!(server.get("/props", "").await.json(), json!({"role":"router","max_instances":3}));
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
