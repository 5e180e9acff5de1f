//! One record for each request to a model, however it ends.
use super::*;
use crate::{Outcome, Tokens, UsageHistory};
use std::sync::Arc;

fn counted() -> String {
    let usage = json!({"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}});
    format!("data: {}\n\ndata: [DONE]\n\n", json!({"choices":[],"usage":usage}))
}

const COUNTS: Tokens = Tokens { prompt: Some(9), cached: Some(4), generated: Some(3), per_second: None };

#[tokio::test]
async fn each_request_gives_one_record_with_what_the_engine_counted() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    for (path, body) in [
        (CHAT, json!({"model":"alias","stream":true})),
        (CHAT, json!({"model":"m"})),
        ("/m/m/v1/chat/completions", json!({"stream":true})),
        ("/api/chat", json!({"model":"m","messages":[{"role":"user","content":"x"}]})),
    ] {
        engine.stream(&[&delta("a"), &counted()]);
        let reply = server.post(path, "x-request-id: mine\r\n", &body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let record = server.record().await;
        assert_eq!((record.request.as_str(), record.path.as_str()), ("mine", path));
        assert_eq!((record.tokens, record.outcome), (COUNTS, Outcome::Finished), "{path}");
        assert_eq!(record.model.as_deref(), Some("m"));
        assert!(record.first_result_within.is_some_and(|within| within <= record.took), "{record:?}");
    }
    engine.json(400, "{}");
    server.post(CHAT, "", &json!({"model":"m","stream":true})).await;
    assert_eq!(server.record().await.outcome, Outcome::Failed("engine_error"));
    engine.stream(&["data: {\"error\":{\"code\":400,\"message\":\"too long\"}}\n\n"]);
    assert_eq!(server.post(CHAT, "", &json!({"model":"m"})).await.status, 400);
    assert_eq!(server.record().await.outcome, Outcome::Failed("engine_error"), "a refusal in a whole reply is one");
    server.get("/v1/models", "").await;
    server.post(CHAT, "", &json!({"model":"none"})).await;
    let record = server.record().await;
    assert_eq!(
        (record.outcome, record.model, record.tokens),
        (Outcome::Failed("model_not_found"), None, Tokens::default())
    );
    assert!(server.records.lock().await.try_recv().is_err(), "a list asks no model");
}

#[tokio::test]
async fn what_breaks_or_is_left_has_its_record_too() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.crashes(FailureClass::Killed);
    for (path, body) in [
        (CHAT, json!({"model":"m","stream":true})),
        ("/api/chat", json!({"model":"m","messages":[{"role":"user","content":"x"}]})),
    ] {
        engine.breaks_after(&[&delta("a")]);
        server.post(path, "", &body).await;
        assert_eq!(server.record().await.outcome, Outcome::Failed("engine_crashed"), "{path}");
        engine.heard().await;
    }
    for parts in [&[][..], &[&delta("a")][..]] {
        let parts: Vec<&str> = parts.iter().map(|part: &&String| part.as_str()).collect();
        engine.hangs_after(&parts);
        let mut stream = TcpStream::connect(server.address).await.expect("it listens");
        let body = json!({"model":"m","stream":true}).to_string();
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.expect("it reads");
        engine.heard().await;
        if !parts.is_empty() {
            stream.read_exact(&mut [0]).await.expect("it began");
        }
        drop(stream);
        engine.closed().await;
        let record = server.record().await;
        assert_eq!((record.outcome, record.tokens.generated), (Outcome::Aborted, None));
        assert_eq!(record.first_result_within.is_some(), !parts.is_empty());
    }
}

#[tokio::test]
async fn counts_that_only_we_asked_for_are_not_told() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let end = "data: [DONE]\n\n";
    for (options, told) in [
        (json!({"stream":true}), delta("a") + end),
        (json!({"stream":true,"stream_options":{"include_usage":false}}), delta("a") + end),
        (json!({"stream":true,"stream_options":{"include_usage":true}}), delta("a") + &counted()),
    ] {
        engine.stream(&[&delta("a"), &counted()]);
        let mut body = json!({"model":"stranger"});
        body.as_object_mut().expect("an object").extend(options.as_object().expect("members").clone());
        let reply = server.post(CHAT, "", &body).await;
        assert_eq!(reply.body, told, "{options}");
        assert_eq!(engine.heard().await.json()["stream_options"], json!({"include_usage":true}));
        assert_eq!(server.record().await.tokens, COUNTS);
    }
}

#[tokio::test]
async fn a_history_that_cannot_be_read_is_told_and_may_be_asked_again() {
    let server = Server::start(&Pool::of(&Engine::start()), |_| {}).await;
    let history = UsageHistory::new(|_| Box::pin(async { Err("no disk".to_owned()) }), Arc::default());
    server.handover.0.now().context.history.set(history).expect("none yet");
    let reply = server.get("/api/motorpool/v1/usage", "").await;
    assert_eq!((reply.status, reply.code()), (500, json!("history_failed")), "{reply:?}");
    assert!(reply.head.contains("x-should-retry: true"), "{reply:?}");
}
