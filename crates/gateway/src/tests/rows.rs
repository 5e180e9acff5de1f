//! The table of errors (gateway.md §3), row by row and in every family: before a commit, while a committed stream waits for
//! its engine, and inside its reply. What the pool refuses is driven in `families`.
use super::{
    families::{ASK, STREAMING, assert_told, last_event, refusals},
    *,
};
use crate::{
    errors::tests::one_of_each,
    keys::file::{self, KeyRecord, Scope, Strength},
};
use motorpool_vocab::{Bytes, StopReason};
use std::{collections::BTreeSet, path::Path};

/// Ollama's streams have no comments: until the first line there is nothing to commit.
const OLLAMA: &str = "/api/chat";

/// A body that every family takes.
fn body() -> Value {
    json!({"model":"m","stream":true,"messages":[{"role":"user","content":"x"}],"prompt":"x","input":"x","max_tokens":9})
}

/// What an engine does before its first result, what inside its reply, and how clients hear of it.
struct Failing {
    code: &'static str,
    status: u16,
    before: fn(&Engine, &Pool),
    inside: fn(&Engine, &Pool),
}

/// As often as it is tried.
fn closes(engine: &Engine) {
    (0..4).for_each(|_| engine.closes());
}

const ENGINES: [Failing; 5] = [
    Failing {
        code: "engine_crashed",
        status: 502,
        before: |engine, pool| {
            pool.crashes(FailureClass::Killed);
            closes(engine);
        },
        inside: |engine, pool| {
            pool.crashes(FailureClass::Killed);
            engine.breaks_after(&[&delta("a")]);
        },
    },
    Failing {
        code: "engine_crashed",
        status: 502,
        before: |engine, pool| {
            pool.stops(StopReason::Health);
            closes(engine);
        },
        inside: |engine, pool| {
            pool.stops(StopReason::Health);
            engine.breaks_after(&[&delta("a")]);
        },
    },
    Failing {
        code: "engine_timeout",
        status: 504,
        before: |engine, _| engine.hangs_after(&[]),
        inside: |engine, _| engine.hangs_after(&[&delta("a")]),
    },
    Failing {
        code: "evicted",
        status: 503,
        before: |engine, pool| {
            pool.stops(StopReason::User);
            closes(engine);
        },
        inside: |engine, pool| {
            pool.stops(StopReason::Evicted);
            engine.breaks_after(&[&delta("a")]);
        },
    },
    Failing {
        code: "shutting_down",
        status: 503,
        before: |engine, pool| {
            pool.stops(StopReason::Shutdown);
            closes(engine);
        },
        inside: |engine, pool| {
            pool.stops(StopReason::Shutdown);
            engine.breaks_after(&[&delta("a")]);
        },
    },
];

/// An engine that does so, in a pool that takes `delay` for an answer; and what a client reads of it.
async fn failing(deed: fn(&Engine, &Pool), delay: Duration, (path, headers): (&str, &str)) -> Reply {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.takes(delay);
    deed(&engine, &pool);
    let reply = server.post(path, &format!("{ASK}{headers}"), &body()).await;
    assert_eq!(engine.leases().await, 0, "{path}");
    reply
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_fails_is_told_before_a_commit_behind_one_and_inside_a_reply_in_every_family() {
    let long = Duration::from_secs(12);
    for Failing { code, status, before, inside } in ENGINES {
        for (path, frame) in STREAMING {
            let early = failing(before, Duration::ZERO, (path, "x-motorpool-loading: off\r\n")).await;
            assert_eq!(early.status, status, "{path} {early:?}");
            assert_told(path, &early.json(), (status.into(), code, 0));
            assert!(early.head.contains(&format!("x-motorpool-code: {code}")), "{path} {early:?}");
            let late = failing(before, long, (path, "")).await;
            assert_eq!(late.status, 200, "{path} {late:?}");
            assert_told(path, &last_event(&late.body, frame), (status.into(), code, 0));
            let broken = failing(inside, Duration::ZERO, (path, "")).await;
            assert!(broken.status == 200 && broken.body.starts_with(&delta("a")), "{path} {broken:?}");
            assert_told(path, &last_event(&broken.body, frame), (status.into(), code, 1));
        }
        // However long it waits, nothing is committed.
        for delay in [Duration::ZERO, long] {
            let early = failing(before, delay, (OLLAMA, "")).await;
            assert_eq!((early.status, early.json()["error"].is_string()), (status, true), "{early:?}");
            assert!(early.head.contains(&format!("x-motorpool-code: {code}")), "{early:?}");
        }
        let broken = failing(inside, Duration::ZERO, (OLLAMA, "")).await;
        let last: Value = serde_json::from_str(broken.body.lines().last().expect("a line")).expect("JSON");
        assert_eq!((broken.status, last["error"].is_string()), (200, true), "{broken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_engines_own_refusal_keeps_its_status_and_its_words_on_both_sides_of_a_commit() {
    let own: fn(&Engine, &Pool) = |engine, _| {
        engine.json(418, r#"{"error":{"code":418,"message":"I am a teapot","type":"invalid_request_error"}}"#);
    };
    for (path, frame) in STREAMING {
        let early = failing(own, Duration::ZERO, (path, "x-motorpool-loading: off\r\n")).await;
        assert!(early.status == 418 && early.body.contains("I am a teapot"), "{path} {early:?}");
        let late = failing(own, Duration::from_secs(12), (path, "")).await;
        let told = last_event(&late.body, frame);
        assert!(late.status == 200 && told.to_string().contains("I am a teapot"), "{path} {late:?}");
    }
    let ollama = failing(own, Duration::from_secs(12), (OLLAMA, "")).await;
    assert!(ollama.status == 418 && ollama.body.contains("I am a teapot"), "{ollama:?}");
}

/// A request that is decided before the pool is asked, so that no commit can come before it.
struct Refused {
    code: &'static str,
    status: u16,
    headers: &'static str,
    change: fn(&mut Value),
    settings: fn(&mut GatewaySettings),
}

const PLAIN: Refused = Refused { code: "", status: 0, headers: "", change: |_| {}, settings: |_| {} };

const REQUESTS: [Refused; 10] = [
    Refused { code: "model_not_found", status: 404, change: |body| body["model"] = json!("none"), ..PLAIN },
    Refused { code: "model_conflict", status: 400, headers: "x-motorpool-model: org/m\r\n", ..PLAIN },
    Refused { code: "invalid_request", status: 400, change: |body| *body = json!([]), ..PLAIN },
    Refused { code: "body_too_large", status: 413, settings: |s| s.limits.body = Bytes::new(16), ..PLAIN },
    Refused { code: "unsupported_media_type", status: 415, headers: "content-encoding: gzip\r\n", ..PLAIN },
    Refused { code: "origin_not_allowed", status: 403, headers: "origin: https://evil.example\r\n", ..PLAIN },
    Refused {
        code: "overloaded",
        status: 503,
        settings: |s| (s.limits.body_memory, s.limits.spool) = (Bytes::ZERO, Bytes::ZERO),
        ..PLAIN
    },
    Refused { code: "invalid_key", status: 401, headers: "authorization: Bearer mp_none\r\n", ..PLAIN },
    Refused { code: "not_allowed", status: 403, headers: "authorization: Bearer mp_other\r\n", ..PLAIN },
    Refused { code: "rate_limited", status: 429, headers: "authorization: Bearer mp_slow\r\n", ..PLAIN },
];

/// A key that may only look, and one that may ask once a minute.
fn write_keys(path: &Path) {
    let record = |name: &str, key: &str| KeyRecord {
        name: name.into(),
        hash: file::hash_of(key),
        scopes: vec![Scope::Inference],
        models: vec![],
        concurrent: None,
        per_minute: None,
        waiting: None,
        strength: Strength::Whole,
    };
    file::add(path, KeyRecord { scopes: vec![Scope::Read], ..record("other", "mp_other") }).expect("writable");
    file::add(path, KeyRecord { per_minute: Some(1), ..record("slow", "mp_slow") }).expect("writable");
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_a_status_however_early_it_wants_to_be_told_that_it_waits() {
    let folder = tempfile::tempdir().expect("a directory");
    let keys = folder.path().join("keys.json");
    write_keys(&keys);
    for Refused { code, status, headers, change, settings } in &REQUESTS {
        for path in STREAMING.map(|(path, _)| path).into_iter().chain([OLLAMA]) {
            let engine = Engine::start();
            let pool = Pool::of(&engine);
            pool.refuses();
            let server = Server::start(&pool, |s| {
                settings(s);
                s.keys = headers.starts_with("authorization").then(|| keys.clone());
            })
            .await;
            let mut body = body();
            change(&mut body);
            let headers = format!("{ASK}{headers}x-motorpool-loading: 0\r\n");
            if *code == "rate_limited" {
                server.post(path, &headers, &body).await;
            }
            let reply = server.post(path, &headers, &body).await;
            assert_eq!(reply.status, *status, "{code} {path} {reply:?}");
            assert!(reply.head.contains(&format!("x-motorpool-code: {code}\r\n")), "{path} {reply:?}");
            if path == OLLAMA {
                assert!(reply.json()["error"].is_string(), "{reply:?}");
            } else {
                assert_told(path, &reply.json(), ((*status).into(), code, 0));
            }
        }
    }
}

#[tokio::test]
async fn what_an_engine_writes_and_nobody_can_read_is_said_where_it_is_put_together() {
    for path in [CHAT, OLLAMA] {
        let engine = Engine::start();
        let server = Server::start(&Pool::of(&engine), |_| {}).await;
        engine.stream(&["data: {\"choices\":\n\n"]);
        let body = json!({"model":"m","stream":false,"messages":[{"role":"user","content":"x"}]});
        let reply = server.post(path, ASK, &body).await;
        assert_eq!((reply.status, engine.leases().await), (502, 0), "{path} {reply:?}");
        assert!(reply.head.contains("x-motorpool-code: engine_unreadable\r\n"), "{path} {reply:?}");
    }
}

/// What no request for a reply meets, or what cannot be made here: the file and the test that drive it.
const ELSEWHERE: [(&str, &str, &str); 14] = [
    (
        "engine_unreadable",
        "tests/rows.rs",
        "what_an_engine_writes_and_nobody_can_read_is_said_where_it_is_put_together",
    ),
    ("engine_error", "tests/families.rs", "an_error_document_that_breaks_off_behind_a_commit_is_still_told"),
    // Asked of a server that somebody else runs.
    ("will_not_fit", OF_SERVERS[0], "a_decline_is_said_in_each_apis_own_words_before_a_stream_and_inside_it"),
    ("residency_busy", OF_SERVERS[1], "a_server_that_another_one_of_us_changes_is_busy_in_every_family"),
    ("external_failed", OF_SERVERS[1], "a_server_that_hangs_up_has_failed_in_every_family"),
    // An operator's unload is told so, no request for a reply.
    ("engine_stuck", "refusals.rs", "an_unload_that_could_not_be_has_its_code"),
    // By the name it was addressed to.
    (
        "host_not_allowed",
        "../../../tests/tests/daemon/headers.rs",
        "pages_of_others_and_names_of_others_are_turned_away",
    ),
    // A path that is none has no family but by how it begins.
    ("not_found", "tests.rs", "what_cannot_be_is_said_in_the_callers_shape"),
    ("method_not_allowed", "tests.rs", "what_cannot_be_is_said_in_the_callers_shape"),
    ("not_supported", "tests/families.rs", "what_is_not_offered_is_said_in_the_familys_words"),
    // Before there is a path.
    ("version_not_supported", "tests.rs", "malformed_requests_are_refused_and_http_2_in_words"),
    ("pull_failed", "tests/reloads.rs", "a_pull_that_fails_is_told_whole_and_in_lines"),
    // Of a reload.
    ("invalid_configuration", "tests/reloads.rs", "only_what_a_file_says_is_the_fault_of_whoever_reloads"),
    // Of a question about usage.
    ("history_failed", "tests/records.rs", "a_history_that_cannot_be_read_is_told_and_may_be_asked_again"),
];

const OF_SERVERS: [&str; 2] =
    ["../../../tests/tests/external/served_fakes.rs", "../../../tests/tests/external/told.rs"];

/// The text of a test in a file of this workspace, to its closing bracket.
fn text_of(file: &str, test: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let begin = source.find(&format!("fn {test}(")).unwrap_or_else(|| panic!("{file} has no test `{test}`"));
    let end = ["\n}\n", "\n    }\n"].iter().filter_map(|end| source[begin..].find(end)).max().expect("it ends");
    source[begin..begin + end].to_owned()
}

#[test]
fn every_code_of_the_table_is_driven() {
    let all: BTreeSet<&str> = one_of_each().iter().map(|(.., code)| *code).collect();
    let refused = refusals();
    let driven = refused.iter().map(|(.., code)| *code);
    let driven = driven.chain(ENGINES.iter().map(|row| row.code)).chain(REQUESTS.iter().map(|row| row.code));
    let driven: BTreeSet<&str> = driven.chain(ELSEWHERE.iter().map(|(code, ..)| *code)).chain(["internal"]).collect();
    assert_eq!(driven, all, "what is our own fault cannot be driven");
    for (code, file, test) in ELSEWHERE {
        assert!(text_of(file, test).contains(code), "`{test}` in {file} does not look for {code}");
    }
}
