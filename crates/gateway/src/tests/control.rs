//! The spellings of llama.cpp's router and of llama-swap.
use super::*;

#[tokio::test]
async fn models_are_loaded_and_unloaded_in_the_words_of_llama_cpps_router() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    let reply = server.post("/models/load", "", &json!({"model":"org/m"})).await;
    assert_eq!((reply.status, reply.json()), (200, json!({"success":true})));
    let reply = server.post("/models/unload", "", &json!({"model":"org/m"})).await;
    assert_eq!(reply.status, 400, "{reply:?}");
    assert_eq!(reply.json()["error"]["message"], "model is not running");
    for (path, body, status) in [
        ("/models/load", json!({"model":"none"}), 404),
        ("/models/load", json!({}), 400),
        ("/models/unload", json!("m"), 400),
    ] {
        let reply = server.post(path, "", &body).await;
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (status, &json!(status)), "{path} {reply:?}");
    }
    let reply = server.post("/models/load", "origin: http://localhost:3000\r\n", &json!({"model":"m"})).await;
    assert_eq!(reply.status, 403, "a page of somebody else's changes nothing: {reply:?}");
}

#[tokio::test]
async fn llama_swaps_clients_see_what_runs_and_may_end_it() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    assert_eq!(server.get("/running", "").await.json(), json!({"running":[]}));
    for (reply, want) in [
        (server.get("/unload", "").await, "OK"),
        (server.post("/api/models/unload", "", &json!({})).await, r#"{"msg":"ok"}"#),
        (server.post("/api/models/unload/org%2Fm", "", &json!({})).await, "OK"),
        (server.get("/logs", "").await, ""),
        (server.get("/logs/stream/m", "").await, ""),
    ] {
        assert_eq!((reply.status, reply.body.as_str()), (200, want), "{reply:?}");
    }
    assert_eq!(server.post("/api/models/unload/none", "", &json!({})).await.status, 404);
    let far = server.get("/unload", "sec-fetch-site: cross-site\r\n").await;
    assert_eq!(far.status, 403, "no picture of a page's unloads anything");
}

#[tokio::test]
async fn no_name_is_not_the_default_models() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |s| s.defaults.model = Some("m".into())).await;
    for (path, body) in [
        ("/models/load", json!({"model":""})),
        ("/models/unload", json!({"model":""})),
        ("/api/models/unload/", json!({})),
    ] {
        let reply = server.post(path, "", &body).await;
        assert!(reply.status == 400 && reply.body.contains("the name of a model is missing"), "{path} {reply:?}");
    }
}
