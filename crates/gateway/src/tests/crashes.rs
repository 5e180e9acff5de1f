//! Engines that die under a request, before its first byte, between requests and inside a reply.
use super::*;

#[tokio::test]
async fn a_crash_before_the_first_byte_is_retried_once_and_then_told() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    let body = json!({"model":"m","messages":["x".repeat(100_000)],"stream":true});
    pool.crashes(FailureClass::Assertion);
    engine.closes();
    engine.stream(&[&delta("a"), END]);
    let reply = server.post(CHAT, "", &body).await;
    assert_eq!((reply.status, reply.body), (200, delta("a") + END));
    assert_eq!(engine.heard().await.body, engine.heard().await.body);

    // The connection kept from before, a new one in its place, and one with the next lease.
    for _ in 0..3 {
        engine.closes();
    }
    let reply = server.post(CHAT, "", &body).await;
    assert_eq!((reply.status, reply.code()), (502, json!("engine_crashed")));
    assert!(reply.body.contains("(assertion)") && reply.head.contains("x-should-retry: true"), "{reply:?}");
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test]
async fn a_kept_connection_that_died_says_nothing_of_the_engine() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    let body = json!({"model":"m","input":"x"});
    engine.json(200, "{}");
    assert_eq!(server.post("/m/m/tokenize", "", &body).await.status, 200);
    engine.closes();
    engine.json(200, "{}");
    assert_eq!(server.post("/m/m/tokenize", "", &body).await.status, 200);
    assert_eq!(pool.n_granted(), 2);
}

#[tokio::test]
async fn a_whole_reply_survives_a_crash_in_its_middle() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.crashes(FailureClass::Killed);
    engine.breaks_after(&[&delta("lost")]);
    engine.stream(&[&delta("kept"), END]);
    let reply = server.post(CHAT, "", &json!({"model":"m"})).await;
    assert_eq!(reply.json()["choices"][0]["message"]["content"], "kept");
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_an_error_event() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.crashes(FailureClass::Killed);
    engine.breaks_after(&[&delta("a")]);
    let reply = server.post(CHAT, "", &json!({"model":"m","stream":true})).await;
    let event = reply.body.strip_prefix(&delta("a")).and_then(|e| e.strip_prefix("data: ")).expect("an event");
    let event: Value = serde_json::from_str(event.trim()).expect("JSON");
    assert_eq!((reply.status, &event["error"]["code"]), (200, &json!("engine_crashed")));
    assert_eq!(engine.leases().await, 0);
}
