//! Ollama's API over the whole server.
use super::*;
use crate::testing::SLOT;

const CHAT_PATH: &str = "/api/chat";

fn chat(more: &Value) -> Value {
    let mut body = json!({"model":"m:latest","messages":[{"role":"user","content":"x"}]});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("members").clone());
    body
}

fn usage() -> String {
    r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}

data: [DONE]

"#
    .into()
}

fn told(line: &str) -> Value {
    serde_json::from_str(line).expect("a line of JSON")
}

#[tokio::test]
async fn a_chat_goes_out_as_openais_and_comes_back_line_by_line() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    engine.stream(&[&delta("a"), ":\n\n", &delta("b"), &usage()]);
    let reply =
        server.post(CHAT_PATH, "x-motorpool-session: s\r\naccept: application/x-ndjson\r\n", &chat(&json!({}))).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.head.contains("content-type: application/x-ndjson"), "{reply:?}");
    let lines: Vec<_> = reply.body.lines().map(told).collect();
    let said = |line: &Value| (line["message"]["content"].clone(), line["done"].clone());
    assert_eq!(
        lines.iter().map(said).collect::<Vec<_>>(),
        [(json!("a"), json!(false)), (json!("b"), json!(false)), (json!(""), json!(true))]
    );
    assert_eq!((&lines[2]["model"], &lines[2]["prompt_eval_count"]), (&json!("m:latest"), &json!(5)));
    let heard = engine.heard().await;
    assert!(heard.head.starts_with("post /v1/chat/completions ") && !heard.head.contains("ndjson"), "{}", heard.head);
    let want = json!({"id_slot":SLOT,"model":"m","stream":true,"stream_options":{"include_usage":true},
                      "messages":[{"role":"user","content":"x"}]});
    assert_eq!(heard.json(), want);

    engine.stream(&[&delta("a"), &delta("b"), &usage()]);
    let reply = server.post("/api/generate", "", &json!({"model":"m","prompt":"p","stream":false})).await;
    assert!(reply.head.contains("content-type: application/json"), "{reply:?}");
    assert_eq!((&reply.json()["response"], &reply.json()["eval_count"]), (&json!("ab"), &json!(2)));
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test]
async fn embeddings_come_back_in_order() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let rows =
        json!({"data":[{"index":1,"embedding":[2.50]},{"index":0,"embedding":[1e-3]}],"usage":{"prompt_tokens":4}});
    engine.json(200, &rows.to_string());
    let reply = server.post("/api/embed", "", &json!({"model":"vectors","input":["a","b"]})).await;
    assert_eq!((&reply.json()["embeddings"], &reply.json()["prompt_eval_count"]), (&json!([[1e-3], [2.5]]), &json!(4)));
    assert_eq!(engine.heard().await.json()["input"], json!(["a", "b"]));
    engine.json(200, &rows.to_string());
    let reply = server.post("/api/embeddings", "", &json!({"model":"vectors","prompt":"a"})).await;
    assert_eq!(reply.json(), json!({"embedding":[1e-3]}));
    engine.json(200, "[]");
    let reply = server.post("/api/embed", "", &json!({"model":"vectors","input":"a"})).await;
    assert_eq!(reply.status, 502, "{reply:?}");
    let reply = server.post("/api/embed", "", &json!({"model":"m","input":"a"})).await;
    assert_eq!(reply.status, 400, "it is for chats: {reply:?}");
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test]
async fn errors_are_one_text_before_the_first_line_and_after_it() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    let failed = r#"data: {"error":{"code":400,"message":"too long"}}

"#;
    engine.stream(&[failed]);
    let reply = server.post(CHAT_PATH, "", &chat(&json!({}))).await;
    assert_eq!(reply.status, 400);
    assert_eq!(reply.json(), json!({"error":"the engine answered with status 400 Bad Request: too long"}));
    engine.stream(&[&delta("a"), failed]);
    let reply = server.post(CHAT_PATH, "", &chat(&json!({}))).await;
    let last = told(reply.body.lines().last().expect("a line"));
    assert_eq!(
        (reply.status, &last["error"]),
        (200, &json!("the engine answered with status 400 Bad Request: too long"))
    );

    pool.crashes(FailureClass::Killed);
    engine.breaks_after(&[&delta("a")]);
    let reply = server.post(CHAT_PATH, "", &chat(&json!({}))).await;
    let last = told(reply.body.lines().last().expect("a line"));
    assert_eq!(last, json!({"error":"the engine ended while it served this request (killed)"}));

    for (body, status) in [
        (json!({"model":"none","messages":[]}), 404),
        (json!({"model":"m","messages":7}), 400),
        (json!({"model":"m","messages":[],"model":"m2"}), 404),
    ] {
        let reply = server.post(CHAT_PATH, "", &body).await;
        assert_eq!(reply.status, status, "{reply:?}");
        assert!(reply.json()["error"].is_string(), "{reply:?}");
    }
    let reply = server.post("/api/generate", "", &json!({"model":"m","prompt":"x","template":"t"})).await;
    assert_eq!(reply.status, 501, "{reply:?}");
    for path in ["/api/create", "/api/copy", "/api/push", "/api/delete", "/api/blobs/sha256:0", "/api/pull"] {
        let reply = server.post(path, "", &json!({"model":"m"})).await;
        assert_eq!(reply.status, 501, "{path}");
        assert!(reply.json()["error"].is_string(), "{reply:?}");
    }
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_the_result_however_long_it_takes() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.takes(Duration::from_mins(5));
    pool.refuses();
    let reply = server.post(CHAT_PATH, "", &chat(&json!({}))).await;
    assert_eq!((reply.status, reply.json()), (503, json!({"error":"the server is shutting down"})));
}

#[tokio::test]
async fn who_asks_for_nothing_has_the_model_loaded_or_let_go() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    let reply = server.post("/api/generate", "", &json!({"model":"m"})).await;
    assert_eq!((&reply.json()["done_reason"], pool.n_granted()), (&json!("load"), 1));
    let reply = server.post(CHAT_PATH, "", &json!({"model":"m","keep_alive":0})).await;
    assert_eq!((&reply.json()["done_reason"], pool.n_granted()), (&json!("unload"), 1), "nothing was there");
    assert_eq!(reply.json()["message"], json!({"role":"assistant","content":""}));
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test]
async fn models_are_listed_and_shown_as_ollamas_clients_read_them() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    assert_eq!(server.get("/api/version", "").await.json(), json!({"version":"0.12.0"}));
    let tags = server.get("/api/tags", "").await.json();
    let names: Vec<_> = tags["models"].as_array().expect("rows").iter().map(|row| row["name"].clone()).collect();
    assert!(names.contains(&json!("m")) && names.contains(&json!("org/m")), "{tags}");
    assert_eq!(tags["models"][0]["details"]["format"], "gguf");
    assert_eq!(server.get("/api/ps", "").await.json(), json!({"models":[]}));
    let shown = server.post("/api/show", "", &json!({"name":"org/m:latest"})).await.json();
    assert_eq!(shown["capabilities"], json!(["completion", "tools"]), "{shown}");
    assert_eq!(server.post("/api/show", "", &json!({"model":"none"})).await.status, 404);
    assert_eq!(server.post_text("/api/show", "", &"x".repeat(70_000)).await.status, 413);
    let root = server.get("/", "").await;
    assert_eq!((root.status, root.body.as_str()), (200, "Motorpool is running"));
}
