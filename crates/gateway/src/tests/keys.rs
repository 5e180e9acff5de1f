//! Access keys, over the whole server.
mod pages;
mod unlisted;

use super::{CHAT, END, Server, delta};
use crate::{
    GatewaySettings,
    keys::{
        Keyring, KeysNeeded, Visitor,
        file::{self, KeyRecord, Scope, Strength},
    },
    testing::{Engine, Pool, catalog_of},
};
use motorpool_catalog::{Config, OnDisconnect};
use motorpool_pool::{Refusal, StartFault};
use motorpool_vocab::{FailureClass, StopReason};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

struct House {
    server: Server,
    engine: Engine,
    folder: tempfile::TempDir,
    pool: Pool,
}

impl House {
    /// A server with one key for each of these.
    async fn with(keys: &[(&str, KeyRecord)]) -> Self {
        Self::starting(keys, |_| {}).await
    }

    async fn starting(keys: &[(&str, KeyRecord)], change: impl FnOnce(&mut GatewaySettings)) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("keys.json");
        for (key, record) in keys {
            file::add(&path, KeyRecord { hash: file::hash_of(key), ..record.clone() }).expect("writable");
        }
        let engine = Engine::start();
        let pool = Pool::of(&engine);
        let server = Server::start(&pool, |settings| {
            settings.keys = Some(path);
            change(settings);
        })
        .await;
        Self { server, engine, folder, pool }
    }

    async fn chat(&self, headers: &str) -> (u16, String) {
        self.engine.stream(&[&delta("hello"), END]);
        let reply = self.server.post(CHAT, headers, &ask()).await;
        (reply.status, code_of(&reply.head))
    }

    async fn get(&self, path: &str, headers: &str) -> u16 {
        self.server.get(path, headers).await.status
    }
}

fn ask() -> Value {
    json!({"model": "m", "messages": []})
}

fn code_of(head: &str) -> String {
    let line = head.lines().find_map(|line| line.strip_prefix("x-motorpool-code: "));
    line.unwrap_or_default().to_owned()
}

fn of(name: &str, scopes: &[Scope]) -> KeyRecord {
    let (hash, scopes) = (String::new(), scopes.to_vec());
    let strength = Strength::Whole;
    KeyRecord {
        name: name.into(),
        hash,
        scopes,
        models: vec![],
        concurrent: None,
        per_minute: None,
        waiting: None,
        strength,
    }
}

fn bearer(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}

#[tokio::test]
async fn as_soon_as_there_is_a_key_every_request_needs_one_in_any_of_three_headers() {
    let house = House::with(&[("mp_a", of("a", &[Scope::Inference]))]).await;
    for (headers, status, code) in [
        ("", 401, "invalid_key"),
        ("authorization: Bearer mp_b\r\n", 401, "invalid_key"),
        ("authorization: Basic mp_a\r\n", 401, "invalid_key"),
        ("authorization: Bearer mp_a\r\nx-api-key: mp_b\r\n", 401, "invalid_key"),
        ("authorization: bearer mp_a\r\n", 200, ""),
        ("x-api-key: mp_a\r\n", 200, ""),
        ("api-key: mp_a\r\nauthorization: Bearer mp_a\r\n", 200, ""),
    ] {
        assert_eq!(house.chat(headers).await, (status, code.to_owned()), "K1: {headers}");
    }
    let refused = house.server.get("/v1/models", "").await;
    assert!(refused.head.contains("www-authenticate: bearer"), "{}", refused.head);
    assert_eq!((house.get("/health", "").await, house.get("/api/motorpool/v1/status", "").await), (200, 401));
}

#[tokio::test]
async fn a_key_may_do_what_its_scopes_say() {
    let keys = [("i", of("i", &[Scope::Inference])), ("r", of("r", &[Scope::Read])), ("m", of("m", &[Scope::Manage]))];
    let house = House::with(&keys).await;
    let status = "/api/motorpool/v1/status";
    for (key, chat, models, view, change) in
        [("i", 200, 200, 403, 403), ("r", 403, 200, 200, 403), ("m", 403, 200, 200, 404)]
    {
        let shown = bearer(key);
        assert_eq!(house.chat(&shown).await.0, chat, "{key}");
        assert_eq!(house.get("/v1/models", &shown).await, models, "{key}");
        for path in [status, "/metrics", "/api/motorpool/v1/usage?by=hour&since=24h", "/api/motorpool/v1/denials"] {
            assert_eq!(house.get(path, &shown).await, view, "{key} {path}");
        }
        let path = "/api/motorpool/v1/models/none/load";
        assert_eq!(house.server.post(path, &shown, &json!({})).await.status, change, "{key}");
        // Other people's servers: looked at, planned on, changed.
        let residency = "/api/motorpool/v1/residency";
        assert_eq!(house.get(residency, &shown).await, view, "{key}");
        let plan = house.server.post(&format!("{residency}/plan"), &shown, &json!({"model": "none"})).await;
        assert_eq!(plan.status, if view == 200 { 404 } else { 403 }, "{key}");
        let release = house.server.post(&format!("{residency}/release"), &shown, &json!({})).await;
        assert_eq!(release.status, if change == 404 { 200 } else { 403 }, "{key}");
    }
    for (key, unload, load, pull, logs) in
        [("i", 403, 403, 403, 403), ("r", 403, 403, 403, 200), ("m", 200, 404, 404, 200)]
    {
        let shown = bearer(key);
        let none = json!({"model":"none"});
        assert_eq!(house.get("/unload", &shown).await, unload, "{key}");
        assert_eq!(house.server.post("/models/load", &shown, &none).await.status, load, "{key}");
        assert_eq!(house.server.post("/api/pull", &shown, &none).await.status, pull, "{key}");
        assert_eq!(house.get("/logs", &shown).await, logs, "{key}");
    }
    let urgent = bearer("i") + "x-motorpool-priority: 1\r\n";
    assert_eq!(house.chat(&urgent).await, (403, "not_allowed".to_owned()));
}

#[tokio::test]
async fn a_key_for_some_models_sees_and_uses_no_others() {
    let only = KeyRecord { models: vec!["org/m".into()], ..of("a", &[Scope::Inference]) };
    let house = House::with(&[("mp_a", only)]).await;
    let shown = bearer("mp_a");
    let told = async |path: &str, headers: &str, body: Value| {
        let reply = house.server.post(path, &format!("{shown}{headers}"), &body).await;
        (reply.status, code_of(&reply.head), reply.body)
    };
    // What is there and not its own is as unknown as what is not there, and so is what is like it.
    for (path, name) in [(CHAT, "model"), ("/api/show", "name"), ("/v1/completions", "model")] {
        for asked in ["m", "alias", "alia", "none"] {
            let (status, code, body) = told(path, "", json!({name: asked, "messages": []})).await;
            assert_eq!((status, code.as_str()), (404, "model_not_found"), "{path} {asked} {body}");
            let unknown = body.replace(&format!("`{asked}`"), "`…`");
            let (.., other) = told(path, "", json!({name: "nothing like it", "messages": []})).await;
            assert_eq!(unknown, other.replace("`nothing like it`", "`…`"), "{path} {asked}");
        }
    }
    assert_eq!(told("/m/m/v1/chat/completions", "", ask()).await.0, 404);
    assert_eq!(told("/m/alias/nothing", "", ask()).await.0, 404, "before its paths are told");
    let near = told(CHAT, "", json!({"model": "org/n"})).await;
    assert!(near.2.contains("did you mean `org/m`?"), "{}", near.2);
    let nameless = told(CHAT, "", json!({"messages": []})).await;
    assert!(nameless.0 == 400 && nameless.2.contains("there are: org/m\""), "{}", nameless.2);
    let two = told(CHAT, "x-motorpool-model: vectors\r\n", json!({"model": "org/m"})).await;
    assert_eq!((two.0, two.1.as_str()), (404, "model_not_found"), "{}", two.2);
    // Nor does a name in a body that an engine's own path takes tell which are there.
    for name in ["m", "alias", "vectors", "none"] {
        house.engine.json(200, "{}");
        let (status, _, body) = told("/m/org/m/completion", "", json!({"model": name})).await;
        assert_eq!((status, body.as_str()), (200, "{}"), "{name}");
        let by_header = told("/m/org/m/completion", &format!("x-motorpool-model: {name}\r\n"), json!({})).await;
        assert_eq!((by_header.0, by_header.1.as_str()), (404, "model_not_found"), "{name}");
        assert!(!by_header.2.contains("org/m"), "{name}: {}", by_header.2);
    }
    let list = house.server.get("/v1/models", &shown).await.json();
    assert_eq!(
        list["data"].as_array().map(|rows| rows.iter().map(|row| row["id"].clone()).collect()),
        Some(vec![json!("org/m")])
    );
    for path in ["/v1/models/m", "/v1/models/alias", "/v1/models/none"] {
        assert_eq!(house.get(path, &shown).await, 404, "{path}");
    }
}

#[tokio::test]
async fn only_who_may_look_into_the_pool_is_told_what_happens_there() {
    let keys = [
        ("i", of("i", &[Scope::Inference])),
        ("r", of("r", &[Scope::Inference, Scope::Read])),
        ("m", of("m", &[Scope::Inference, Scope::Manage])),
    ];
    let house = House::with(&keys).await;
    house.pool.refuses_with(|| {
        let tail = vec!["/secret/tail".into()];
        let fault = StartFault { class: FailureClass::ModelMissing, message: "no file /secret/m.gguf".into(), tail };
        Refusal::StartFailed { key: "llama-server:m:0".parse().expect("a key"), fault }
    });
    let stream = json!({"model": "m", "messages": [], "stream": true});
    for (key, sees) in [("i", false), ("r", true), ("m", true)] {
        let (before, after) = (bearer(key), format!("{}x-motorpool-loading: 0\r\n", bearer(key)));
        for (path, headers, body, status) in [
            (CHAT, &before, ask(), 500),
            ("/v1/messages", &before, ask(), 500),
            ("/m/m/v1/chat/completions", &before, ask(), 500),
            (CHAT, &after, stream.clone(), 200),
        ] {
            let reply = house.server.post(path, headers, &body).await;
            assert_eq!(reply.status, status, "{key} {path}: {reply:?}");
            assert!(reply.body.contains("model-missing"), "the class: {key} {path}: {reply:?}");
            assert_eq!(reply.body.contains("/secret"), sees, "{key} {path}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn what_happens_to_an_engine_inside_a_reply_is_told_no_more_of_than_before_it() {
    let keys = [("i", of("i", &[Scope::Inference])), ("r", of("r", &[Scope::Inference, Scope::Read]))];
    let house = House::with(&keys).await;
    house.pool.stops(StopReason::MemoryPressure);
    let stream = json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": true});
    for (key, sees) in [("i", false), ("r", true)] {
        for path in [CHAT, "/v1/messages", "/api/chat"] {
            house.engine.breaks_after(&[&delta("a")]);
            let reply = house.server.post(path, &bearer(key), &stream).await;
            assert!(reply.status == 200 && reply.body.contains("was stopped"), "{key} {path}: {reply:?}");
            assert_eq!(reply.body.contains("memory"), sees, "{key} {path}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn a_file_of_keys_that_could_not_be_read_is_read_as_soon_as_it_can_be() {
    let house = House::with(&[("mp_a", of("a", &[Scope::Inference]))]).await;
    let keyring = Keyring::new(Some(house.folder.path().join("garbled")));
    let path = house.folder.path().join("garbled");
    let text = std::fs::read(house.folder.path().join("keys.json")).expect("there");
    let headers = [("authorization", "Bearer mp_a")]
        .into_iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)));
    let headers: http::HeaderMap = headers.collect();
    let visitor = Visitor { peer: std::net::IpAddr::from([127, 0, 0, 1]), keys: KeysNeeded::OnceThereAre };
    let start = std::time::Instant::now();
    let opens = |seconds| keyring.admit(&headers, visitor, start + std::time::Duration::from_secs(seconds)).is_ok();
    // Of the same length and time as what can be read.
    std::fs::write(&path, vec![b'x'; text.len()]).expect("writable");
    let time = std::fs::metadata(&path).and_then(|found| found.modified()).expect("there");
    assert!(!opens(0));
    std::fs::write(&path, &text).expect("writable");
    std::fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(time)).expect("ours");
    assert!(opens(2));
}

#[tokio::test]
async fn what_a_key_may_ask_in_a_minute_is_counted_for_it_alone() {
    let few = KeyRecord { per_minute: Some(2), ..of("few", &[Scope::Inference]) };
    let house = House::with(&[("few", few), ("other", of("other", &[Scope::Inference]))]).await;
    for want in [(200, ""), (200, ""), (429, "rate_limited")] {
        assert_eq!(house.chat(&bearer("few")).await, (want.0, want.1.to_owned()), "K2");
    }
    let refused = house.server.post(CHAT, &bearer("few"), &ask()).await;
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    assert_eq!(house.chat(&bearer("other")).await.0, 200, "K2");
}

#[tokio::test]
async fn an_engine_that_works_on_for_who_has_gone_counts_among_what_the_key_may_have_at_a_time() {
    let one = KeyRecord { concurrent: Some(1), ..of("one", &[Scope::Inference]) };
    let house = House::starting(&[("one", one)], |settings| settings.limits.connections = 1).await;
    let draining = catalog_of(&[("m", &[])], |manifest| manifest.on_disconnect = OnDisconnect::Drain);
    house.server.handover.reload(draining, &Config::default(), vec![]);
    // The one place for connections is free when the last of them is over.
    let next = async || loop {
        match house.chat(&bearer("one")).await {
            (503, code) if code == "overloaded" => {}
            other => return other,
        }
    };
    for _ in 0..3 {
        assert_eq!(next().await.0, 200, "K2: who reads to the end has its place back");
    }
    house.engine.heard().await;
    house.engine.hangs_after(&[&delta("a")]);
    let text = json!({"model": "m", "stream": true}).to_string();
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\n{}content-length: {}\r\n\r\n", bearer("one"), text.len());
    let begun = async || {
        let mut stream = TcpStream::connect(house.server.address).await.expect("it listens");
        stream.write_all((head.clone() + &text).as_bytes()).await.expect("it reads");
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.expect("it answers");
        (status.ends_with(b"200"), stream)
    };
    let stream = loop {
        if let (true, stream) = begun().await {
            break stream;
        }
    };
    drop(stream);
    assert_eq!(next().await, (429, "rate_limited".to_owned()), "K2: the engine works on");
}

#[tokio::test]
async fn an_address_that_guesses_is_not_answered_what_its_next_key_is_worth() {
    let house = House::with(&[("mp_a", of("a", &[Scope::Inference]))]).await;
    for _ in 0..10 {
        assert_eq!(house.get("/v1/models", &bearer("guess")).await, 401);
    }
    assert_eq!(house.get("/v1/models", &bearer("mp_a")).await, 429, "K3");
}

#[tokio::test]
async fn a_valid_key_lifts_the_rules_on_hosts_and_proxies_and_not_that_on_pages() {
    let house = House::with(&[("mp_a", of("a", &[Scope::Inference]))]).await;
    let get = async |lines: &str| {
        let request = format!("GET /v1/models HTTP/1.1\r\nconnection: close\r\n{lines}\r\n");
        super::Reply::of(&house.server.raw(&request).await).status
    };
    let key = bearer("mp_a");
    assert_eq!(get(&format!("host: pool.example\r\nx-forwarded-for: 1.2.3.4\r\n{key}")).await, 200);
    assert_eq!(get("host: localhost\r\nx-forwarded-for: 127.0.0.1\r\n").await, 401);
    assert_eq!(get("host: pool.example\r\nx-forwarded-for: 127.0.0.1\r\n").await, 403, "names come before keys");
    assert_eq!(get("host: localhost\r\norigin: https://evil.example\r\n").await, 403, "and so do pages");
    assert_eq!(get(&format!("host: pool.example\r\norigin: https://evil.example\r\n{key}")).await, 403);
}

#[tokio::test]
async fn what_everybody_may_ask_is_answered_through_a_proxy_to_who_has_a_key_and_pages_may_ask_first() {
    let house = House::with(&[("mp_a", of("a", &[Scope::Inference]))]).await;
    let ask = async |method: &str, path: &str, lines: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n{lines}\r\n");
        super::Reply::of(&house.server.raw(&request).await).status
    };
    let far = "host: pool.example\r\nvia: 1.1 proxy\r\n";
    for (method, path, ok) in
        [("GET", "/health", 200), ("GET", "/v1/health", 200), ("GET", "/ready", 200), ("OPTIONS", "/v1/models", 204)]
    {
        assert_eq!(ask(method, path, "host: localhost\r\n").await, ok, "{path}");
        assert_eq!(ask(method, path, &format!("{far}{}", bearer("mp_a"))).await, ok, "{path}");
        assert_eq!(ask(method, path, far).await, 403, "{path}");
        assert_eq!(ask(method, path, &format!("{far}{}", bearer("guess"))).await, 403, "{path}");
    }
    let preflight = |origin: &str| format!("{far}origin: {origin}\r\naccess-control-request-method: POST\r\n");
    assert_eq!(ask("OPTIONS", CHAT, &preflight("http://localhost:3000")).await, 204);
    assert_eq!(ask("OPTIONS", CHAT, &preflight("https://evil.example")).await, 403);
    assert_eq!(ask("OPTIONS", CHAT, &preflight("http://pool.example")).await, 403, "a name that anybody points at us");
}

#[tokio::test]
async fn a_file_of_keys_that_cannot_be_read_opens_nothing() {
    let house = House::with(&[("mp_a", of("a", &[Scope::Inference]))]).await;
    std::fs::write(house.folder.path().join("keys.json"), "{").expect("writable");
    assert_eq!(house.get("/v1/models", &bearer("mp_a")).await, 401, "K1");
}

#[tokio::test]
async fn of_what_a_client_sends_an_engine_sees_nothing_that_is_not_for_it() {
    let house = House::with(&[("mp_a", of("a", &[Scope::Inference, Scope::Manage]))]).await;
    let forbidden = [
        "authorization: Bearer mp_a",
        "x-api-key: mp_a",
        "api-key: mp_a",
        "proxy-authorization: Basic secret",
        "proxy-connection: secret",
        "cookie: secret",
        "origin: http://localhost:1",
        "referer: http://secret/",
        "forwarded: for=secret",
        "x-forwarded-for: 9.9.9.9",
        "x-forwarded-host: secret",
        "x-forwarded-proto: secret",
        "via: 1.1 secret",
        "x-motorpool-session: secret",
        "x-motorpool-lane: background",
        "x-motorpool-job: secret",
        "x-motorpool-actor: secret",
        "x-motorpool-parent: secret",
        "x-motorpool-priority: 1",
        "x-motorpool-loading: off",
        "x-motorpool-model: m",
        "x-conversation-id: secret",
        "x-real-ip: secret",
        "x-whatever: secret",
        "te: trailers",
        "trailer: secret",
        "keep-alive: secret",
        "openai-beta: secret",
        "expect: 100-continue",
    ];
    let allowed = [
        "accept: text/event-stream",
        "user-agent: a",
        "anthropic-version: 1",
        "openai-organization: o",
        "x-stainless-os: x",
        "traceparent: t",
        "x-request-id: r",
    ];
    let lines = [&forbidden[..], &allowed[..]].concat().join("\r\n") + "\r\n";
    let length = ask().to_string().len();
    let body = ask();
    for path in [CHAT, "/m/m/v1/chat/completions", "/v1/messages", "/api/chat"] {
        house.engine.stream(&[&delta("a"), END]);
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close, OpenAI-Beta\r\n{lines}content-length: {length}\r\n\r\n{body}"
        );
        let body = json!({"model": "m", "messages": []});
        assert_eq!(body.to_string().len(), length);
        let reply = house.server.raw(&request).await;
        if path == "/api/chat" {
            assert!(reply.contains("\"done_reason\":\"load\""), "nothing was asked of the engine: {reply}");
            continue;
        }
        let heard = house.engine.heard().await.head;
        let names: Vec<&str> =
            heard.lines().skip(1).filter_map(|line| line.split_once(": ")).map(|(name, _)| name).collect();
        for line in allowed {
            assert!(heard.contains(&format!("\r\n{line}\r\n")), "{path} {line}: {heard}");
        }
        let known = ["host", "content-type", "content-length"];
        let strangers =
            names.iter().filter(|name| !known.contains(name) && !allowed.iter().any(|line| line.starts_with(*name)));
        assert_eq!(strangers.collect::<Vec<_>>(), Vec::<&&str>::new(), "{path}: {heard}");
        assert!(!heard.contains("secret") && !heard.contains("mp_a"), "{path}: {heard}");
    }
}

#[tokio::test]
async fn an_address_that_other_machines_reach_lets_nobody_in_without_a_key_unless_its_operator_says_so() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    for (from_afar, expected) in [(KeysNeeded::Always, 401), (KeysNeeded::OnceThereAre, 200)] {
        let folder = tempfile::tempdir().expect("a directory");
        let keys = folder.path().join("keys.json");
        let path = keys.clone();
        let server = Server::start_at("0.0.0.0:0", &pool, move |settings| {
            (settings.keys, settings.keys_from_afar) = (Some(path), from_afar);
        })
        .await;
        assert_eq!(server.get("/v1/models", "").await.status, expected, "K1, {from_afar:?}");
        assert_eq!(server.get("/health", "").await.status, 200);
        let key = KeyRecord { hash: file::hash_of("mp_a"), ..of("a", &[Scope::Inference]) };
        file::add(&keys, key).expect("writable");
        let server = Server::start_at("0.0.0.0:0", &pool, |settings| settings.keys = Some(keys)).await;
        assert_eq!(server.get("/v1/models", &bearer("mp_a")).await.status, 200);
    }
}

#[tokio::test]
async fn a_key_that_could_be_guessed_opens_only_to_this_machine() {
    let short = KeyRecord { strength: Strength::Short, ..of("short", &[Scope::Inference]) };
    let house = House::with(&[("hunter22", short), ("whole", of("whole", &[Scope::Inference]))]).await;
    assert_eq!(house.get("/v1/models", &bearer("hunter22")).await, 200);
    let proxied = |key: &str| format!("{}x-forwarded-for: 10.0.0.1\r\n", bearer(key));
    assert_eq!(house.get("/v1/models", &proxied("whole")).await, 200);
    assert_eq!(house.get("/v1/models", &proxied("hunter22")).await, 401, "K4");
}
