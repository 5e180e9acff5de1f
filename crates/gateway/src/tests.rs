//! The whole server against engines that do as they are told, and a pool of one engine.
mod keys;

use crate::{
    Gateway, GatewaySettings, Handover, Listener, UsageRecord,
    testing::{Engine, Pool, catalog},
};
use motorpool_catalog::Config;
use motorpool_vocab::FailureClass;
use serde_json::{Value, json};
use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

mod bounds;
mod control;
mod crashes;
mod families;
mod forms;
mod gone;
mod ollama;
mod page;
mod records;
mod reloads;
mod rows;
mod upgrades;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{Mutex, mpsc, watch},
};

struct Server {
    address: std::net::SocketAddr,
    records: Mutex<mpsc::Receiver<UsageRecord>>,
    handover: Handover,
    _stop: watch::Sender<bool>,
    _spool: tempfile::TempDir,
}

impl Server {
    async fn start(pool: &Pool, change: impl FnOnce(&mut GatewaySettings)) -> Self {
        Self::start_at("127.0.0.1:0", pool, change).await
    }

    /// Listens there, and is asked over loopback.
    async fn start_at(listen: &str, pool: &Pool, change: impl FnOnce(&mut GatewaySettings)) -> Self {
        let spool = tempfile::tempdir().expect("a directory");
        let mut settings = GatewaySettings::new(&Config::default(), None, spool.path().to_owned());
        change(&mut settings);
        let listener = TcpListener::bind(listen).await.expect("a port");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.local_addr().expect("bound").port()));
        let (stop, told) = watch::channel(false);
        let gateway = Gateway::new(
            pool.handle(),
            catalog(&[("m", &["alias"]), ("org/m", &[]), ("vectors", &[]), ("stranger", &[]), ("hearing", &[])]),
            settings,
        );
        let (outlet, records) = mpsc::channel(64);
        gateway.records_to(outlet);
        let handover = gateway.handover();
        tokio::spawn(gateway.serve(vec![Listener::Tcp(listener)], told));
        Self { address, records: Mutex::new(records), handover, _stop: stop, _spool: spool }
    }

    /// The next request's record.
    async fn record(&self) -> UsageRecord {
        self.records.lock().await.recv().await.expect("it serves")
    }

    /// Sends `request` on a connection of its own and reads until the server closes it.
    async fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut text = Vec::new();
        stream.read_to_end(&mut text).await.expect("it answers");
        String::from_utf8_lossy(&text).into_owned()
    }

    async fn post(&self, path: &str, headers: &str, body: &Value) -> Reply {
        self.post_text(path, headers, &body.to_string()).await
    }

    async fn post_text(&self, path: &str, headers: &str, body: &str) -> Reply {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        Reply::of(&self.raw(&request).await)
    }

    async fn get(&self, path: &str, headers: &str) -> Reply {
        Reply::of(
            &self.raw(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n")).await,
        )
    }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        let head = head.to_ascii_lowercase();
        let body = if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
        Self { status, head, body }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    fn code(&self) -> Value {
        self.json()["error"]["code"].clone()
    }
}

fn unchunked(mut text: &str) -> String {
    let mut out = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        out.push_str(&rest[..size]);
        text = rest[size..].trim_start_matches("\r\n");
    }
    out
}

const CHAT: &str = "/v1/chat/completions";

fn delta(text: &str) -> String {
    format!("data: {}\n\n", json!({"choices":[{"index":0,"delta":{"content":text},"finish_reason":null}],"id":"x"}))
}

const END: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

#[tokio::test]
async fn a_whole_reply_is_put_together_and_a_stream_goes_through() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    engine.stream(&[&delta("hé"), &delta("llo"), END]);
    let reply = server
        .post(CHAT, "authorization: Bearer s\r\nx-stainless-os: linux\r\n", &json!({"model":"alias","messages":[]}))
        .await;
    assert_eq!((reply.status, reply.json()["choices"][0]["message"]["content"].as_str()), (200, Some("héllo")));
    let asked = engine.heard().await;
    assert_eq!(asked.json(), json!({"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true}}));
    assert!(asked.head.contains("x-stainless-os") && !asked.head.contains("authorization"), "{}", asked.head);

    engine.stream(&[&delta("a"), ":\n\n", END]);
    let body = json!({"model":"m","stream":true});
    let reply = server.post(CHAT, "", &body).await;
    assert_eq!(reply.body, delta("a") + ":\n\n" + END);
    assert!(
        reply.head.contains("x-accel-buffering: no") && reply.head.contains("x-request-id: req_"),
        "{}",
        reply.head
    );
    assert!(!reply.head.contains("server:") && !reply.head.contains("access-control"), "{}", reply.head);
    assert_eq!(engine.heard().await.body, body.to_string());
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test]
async fn a_session_has_its_slot_named_unless_it_names_one_itself() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    for (headers, body, slot) in [
        ("", json!({"model":"m","stream":true}), Value::Null),
        ("x-motorpool-session: s\r\n", json!({"model":"m","stream":true}), json!(3)),
        ("", json!({"model":"m","stream":true,"user":"u"}), json!(3)),
        ("x-motorpool-session: s\r\n", json!({"model":"m","stream":true,"id_slot":1}), json!(1)),
    ] {
        engine.stream(&[&delta("a"), END]);
        let reply = server.post(CHAT, headers, &body).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(engine.heard().await.json()["id_slot"], slot, "{headers}{body}");
    }
    engine.json(200, "{}");
    let raw = server.post("/m/m/v1/completions", "x-motorpool-session: s\r\n", &json!({"model":"m"})).await;
    assert_eq!(
        (raw.status, engine.heard().await.body),
        (200, json!({"model":"m"}).to_string()),
        "bytes stay as they are"
    );
    let wrong = server.post(CHAT, "x-motorpool-lane: fast\r\n", &json!({"model":"m"})).await;
    assert_eq!(wrong.status, 400);
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test]
async fn an_engines_refusal_goes_through_and_is_always_json() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let told = r#"{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}"#;
    engine.json(400, told);
    let reply = server.post(CHAT, "", &json!({"model":"m"})).await;
    assert_eq!((reply.status, reply.body.as_str()), (400, told));

    engine.text(500, "proxy error");
    let reply = server.post(CHAT, "", &json!({"model":"m"})).await;
    assert_eq!((reply.status, reply.code()), (500, json!("engine_error")));
    assert!(reply.body.contains(": proxy error"), "{reply:?}");

    for path in ["/completion", "/m/m/completion"] {
        engine.text(500, "<html>gone</html>");
        let reply = server.post(path, "", &json!({"model":"m"})).await;
        let error = &reply.json()["error"];
        assert_eq!(
            (reply.status, &error["code"], &error["type"]),
            (500, &json!(500), &json!("server_error")),
            "{reply:?}"
        );
        engine.json(400, told);
        let reply = server.post(path, "", &json!({"model":"m"})).await;
        assert_eq!((reply.status, reply.body.as_str()), (400, told), "its own words stay");
    }
}

#[tokio::test]
async fn what_cannot_be_is_said_in_the_callers_shape() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |s| s.limits.body = motorpool_vocab::Bytes::new(64)).await;
    for (reply, status, code) in [
        (server.post(CHAT, "", &json!({"model":"none"})).await, 404, json!("model_not_found")),
        (server.post(CHAT, "", &json!({})).await, 400, json!("invalid_request")),
        (server.post_text(CHAT, "", "{").await, 400, json!("invalid_request")),
        (server.post_text(CHAT, "", r#"{"model":"m","model":"m"}"#).await, 400, json!("invalid_request")),
        (server.post(CHAT, "x-motorpool-model: org/m\r\n", &json!({"model":"m"})).await, 400, json!("model_conflict")),
        (server.post(CHAT, "", &json!({"model":"m","pad":"x".repeat(64)})).await, 413, json!("body_too_large")),
        (
            server.post(CHAT, "content-encoding: gzip\r\n", &json!({"model":"m"})).await,
            415,
            json!("unsupported_media_type"),
        ),
        (
            server.post(CHAT, "content-encoding: identity, gzip\r\n", &json!({"model":"m"})).await,
            415,
            json!("unsupported_media_type"),
        ),
        (
            server.post(CHAT, "content-encoding: identity\r\ncontent-encoding: br\r\n", &json!({"model":"m"})).await,
            415,
            json!("unsupported_media_type"),
        ),
        (server.get("/v1/models/", "").await, 404, json!("not_found")),
        (server.get("/logs/stream/", "").await, 404, json!(404)),
        (
            server.post_text("/api/motorpool/v1/plan", "", &"x".repeat((1 << 20) + 1)).await,
            413,
            json!("body_too_large"),
        ),
        (
            server.post(CHAT, "origin: https://evil.example\r\n", &json!({"model":"m"})).await,
            403,
            json!("origin_not_allowed"),
        ),
        (server.get("/v1/none", "").await, 404, json!("not_found")),
        (server.get(CHAT, "").await, 405, json!("method_not_allowed")),
        (server.get("/v1/responses/x", "").await, 501, json!("not_supported")),
        (server.get("/api/motorpool/v1/none", "").await, 404, json!("not_found")),
        (server.post("/api/motorpool/v1/status", "", &json!({})).await, 405, json!("method_not_allowed")),
        (server.post("/api/motorpool/v1/shutdown", "", &json!({})).await, 403, json!("not_allowed")),
        (server.post("/m/m/slots/0", "", &json!({})).await, 403, json!(403)),
        (server.post("/m/none/completion", "", &json!({})).await, 404, json!(404)),
    ] {
        assert_eq!((reply.status, reply.code()), (status, code), "{reply:?}");
        assert!(reply.head.contains("x-should-retry: false"), "{reply:?}");
    }
}

#[tokio::test]
async fn a_raw_path_reaches_the_engine_byte_for_byte() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    engine.json(200, "{}");
    let reply = server.post_text("/m/org%2Fm/completion?a=%2F", "", r#"{ "model" : "whatever" }"#).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let asked = engine.heard().await;
    assert!(asked.head.starts_with("post /completion?a=%2f "), "{}", asked.head);
    assert_eq!(asked.body, r#"{ "model" : "whatever" }"#);
    let reply = server.post("/m/m/completion", "", &json!({"model":"org/m"})).await;
    assert_eq!((reply.status, reply.code()), (400, json!(400)), "{reply:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_stream_is_told_so_and_others_get_a_status() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.takes(Duration::from_secs(17));
    engine.stream(&[&delta("a"), END]);
    let body = json!({"model":"m","stream":true});
    let reply = server.post(CHAT, "", &body).await;
    assert_eq!(reply.body, ": loading\n\n".repeat(2) + &delta("a") + END);

    engine.json(503, "{\n\"error\":{}}");
    let reply = server.post(CHAT, "x-motorpool-loading: 1\r\n", &body).await;
    assert_eq!(
        (reply.status, reply.body.as_str()),
        (200, (": loading\n\n".repeat(4) + "data: {\ndata: \"error\":{}}\n\n").as_str())
    );

    pool.refuses();
    let reply = server.post(CHAT, "", &body).await;
    assert!(reply.status == 200 && reply.body.contains("\"code\":\"shutting_down\""), "{reply:?}");
    for (headers, body) in [("x-motorpool-loading: off\r\n", &body), ("", &json!({"model":"m"}))] {
        let reply = server.post(CHAT, headers, body).await;
        assert_eq!((reply.status, reply.code()), (503, json!("shutting_down")));
        assert!(reply.head.contains("retry-after: 5"), "{reply:?}");
    }
}

#[tokio::test]
async fn a_client_that_goes_takes_its_request_with_it_in_every_phase() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    for (body, phase) in [
        (json!({"model":"m","stream":true}), "prefill"),
        (json!({"model":"m"}), "whole"),
        (json!({"model":"m","echo":true}), "as it is"),
        (json!({"model":"m","stream":true}), "stream"),
    ] {
        if phase == "stream" {
            engine.hangs_after(&[&delta("a")]);
        } else {
            engine.hangs_after(&[]);
        }
        let mut stream = TcpStream::connect(server.address).await.expect("it listens");
        let text = body.to_string();
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", text.len());
        stream.write_all((head + &text).as_bytes()).await.expect("it reads");
        engine.heard().await;
        if phase == "stream" {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.expect("it began");
            // Half-closed is gone, too.
            stream.shutdown().await.expect("open until now");
        } else {
            drop(stream);
        }
        engine.closed().await;
        assert_eq!(engine.leases().await, 0, "{phase}");
    }
    pool.never_grants();
    let mut stream = TcpStream::connect(server.address).await.expect("it listens");
    stream
        .write_all(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 13\r\n\r\n{\"model\":\"m\"}",
        )
        .await
        .expect("it reads");
    pool.asked().await;
    drop(stream);
    pool.cancelled().await;
}

#[tokio::test]
async fn malformed_requests_are_refused_and_http_2_in_words() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let both = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n";
    let padded = |length: &str| {
        let hidden = "GET /ready HTTP/1.1\r\nhost: x\r\n\r\n";
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length:{length}{}\r\n\r\n{hidden}", hidden.len())
    };
    for length in [" ".repeat(60), "0".repeat(80)] {
        let answers = server.raw(&padded(&length)).await;
        assert_eq!((Reply::of(&answers).status, answers.matches("HTTP/1.1 ").count()), (400, 1), "{answers}");
    }
    for request in
        [both, "GET /health HTTP/1.1\nhost: localhost\n\n", "GET /health HTTP/1.1\r\nhost: localhost\r\n x: y\r\n\r\n"]
    {
        assert_eq!(Reply::of(&server.raw(request).await).status, 400, "{request:?}");
    }
    let reply = Reply::of(&server.raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await);
    assert_eq!((reply.status, reply.code()), (505, json!("version_not_supported")));
    let old = Reply::of(&server.raw("GET /health HTTP/1.0\r\n\r\n").await);
    assert_eq!((old.status, old.json()), (200, json!({"status":"ok"})));
}

#[tokio::test]
async fn listings_need_nobody() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let models = server.get("/v1/models", "").await.json();
    assert_eq!(models["data"][1]["id"], "m");
    assert_eq!(models["data"][1]["status"], json!({"value":"unloaded"}));
    assert_eq!(server.get("/v1/models/org%2Fm", "").await.json()["id"], "org/m");
    assert_eq!(server.get("/v1/models/none", "").await.code(), "model_not_found");
    assert_eq!(server.get("/api/motorpool/v1/models/org%2Fm", "").await.json()["state"], "unloaded");
    let status = server.get("/api/motorpool/v1/status", "").await.json();
    assert_eq!((&status["engines"], &status["pool"]["committedBytes"]), (&json!([]), &json!(0)));
    assert_eq!(server.get("/ready", "").await.status, 200);
    let head = Reply::of(&server.raw("HEAD /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await);
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let page = "OPTIONS /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\norigin: http://localhost:3000\r\naccess-control-request-method: GET\r\naccess-control-request-headers: authorization\r\n\r\n";
    let reply = Reply::of(&server.raw(page).await);
    assert_eq!(reply.status, 204);
    for line in [
        "access-control-allow-origin: http://localhost:3000",
        "access-control-allow-headers: authorization",
        "vary: origin",
    ] {
        assert!(reply.head.contains(line), "{reply:?}");
    }
}

#[tokio::test]
async fn the_control_socket_knows_its_caller_and_may_end_the_server() {
    let pool = Pool::of(&Engine::start());
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("control.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let settings = GatewaySettings::new(&Config::default(), None, dir.path().to_owned());
    let gateway = Gateway::new(pool.handle(), catalog(&[("m", &[])]), settings);
    let asked = gateway.shutdown_asked();
    let (stop, told) = watch::channel(false);
    let served = tokio::spawn(gateway.serve(vec![Listener::Control(listener)], told));
    let mut stream = UnixStream::connect(&path).await.expect("it listens");
    let request = "POST /api/motorpool/v1/shutdown HTTP/1.1\r\nhost: anything.example\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("it reads");
    asked.notified().await;
    stop.send(true).expect("it serves");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("it answers and closes");
    assert_eq!(Reply::of(&text).status, 202);
    served.await.expect("it has ended");
}

#[tokio::test]
async fn a_connection_past_the_limit_is_told_so() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |s| s.limits.connections = 1).await;
    let mut held = TcpStream::connect(server.address).await.expect("it listens");
    held.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("it reads");
    let mut byte = [0];
    held.read_exact(&mut byte).await.expect("it answers");
    let reply = server.get("/health", "").await;
    assert_eq!((reply.status, reply.code()), (503, json!("overloaded")));
    let full = server.post("/v1/messages", "", &json!({})).await.json();
    assert_eq!((&full["type"], &full["error"]["type"]), (&json!("error"), &json!("overloaded_error")), "{full}");
    assert!(full["request_id"].as_str().is_some_and(|id| id.starts_with("req_")), "{full}");
    assert!(server.post("/api/chat", "", &json!({})).await.json()["error"].is_string());
    assert_eq!(server.post("/completion", "", &json!({})).await.code(), 503);
}

#[tokio::test]
async fn our_own_interface_is_described_as_it_is() {
    let server = Server::start(&Pool::of(&Engine::start()), |_| {}).await;
    let document = server.get("/api/motorpool/v1/openapi.json", "").await.json();
    let paths = document["paths"].as_object().expect("paths");
    for wanted in ["/api/motorpool/v1/status", "/api/motorpool/v1/engines/{key}/logs", CHAT, "/api/chat"] {
        assert!(paths.contains_key(wanted), "{wanted}");
    }
    for (path, methods) in paths {
        for verb in methods.as_object().expect("methods").keys() {
            let (other, allow) =
                if verb == "get" { ("POST", "allow: get, head, options") } else { ("GET", "allow: post, options") };
            for other in [other, "PUT"] {
                let path = path.replace("{id}", "m").replace("{key}", "llama-server:m:0");
                let request = format!(
                    "{other} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
                );
                let reply = Reply::of(&server.raw(&request).await);
                assert_eq!(reply.status, 405, "{other} {path}: {reply:?}");
                assert!(reply.head.contains(allow), "{other} {path}: {reply:?}");
            }
        }
    }
    let budget = server.get("/api/motorpool/v1/budget", "").await.json();
    assert_eq!(budget, server.get("/api/motorpool/v1/status", "").await.json()["pool"]);
    for (query, status) in [("", 400), ("?model=none", 404)] {
        assert_eq!(server.get(&format!("/api/motorpool/v1/explain{query}"), "").await.status, status, "{query}");
    }
}
