//! Ollama's API before the real engine.
use motorpool_tests::e2e::installed::{MODEL, house, model_file};
use serde_json::{Value, json};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[tokio::test]
async fn ollamas_clients_chat_continue_and_embed_with_the_real_engine() {
    let mut house = house().await;
    let entry =
        "slots = 1\nprompt_cache = \"0MiB\"\ncapabilities = [\"embeddings\"]\nextra_args = [\"--pooling\", \"mean\"]\n";
    house.add_model("embedder", &model_file(), entry);
    let daemon = house.start().await;
    let options = json!({"temperature": 0, "seed": 1, "num_predict": 6});
    let chat = json!({"model": MODEL, "messages": [{"role": "user", "content": "Count to five."}], "options": options});
    let streamed = daemon.http().post("/api/chat", &chat).await.expect("an answer");
    assert_eq!(streamed.headers["content-type"], "application/x-ndjson", "{}", streamed.text());
    let told = lines(&streamed.text());
    let said: String = told.iter().filter_map(|line| line["message"]["content"].as_str()).collect();
    let last = told.last().expect("a line");
    assert_eq!((&last["done"], &last["done_reason"], &last["eval_count"]), (&json!(true), &json!("length"), &json!(6)));
    for name in ["total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_duration"] {
        assert!(last[name].is_u64(), "{name}: {last}");
    }
    let mut whole = chat.clone();
    whole["stream"] = json!(false);
    let reply = daemon.http().post("/api/chat", &whole).await.expect("an answer").json();
    assert_eq!(reply["message"]["content"], said, "{reply}");
    let raw = json!({"model": MODEL, "prompt": "One, two, three,", "raw": true, "stream": false, "options": options});
    let reply = daemon.http().post("/api/generate", &raw).await.expect("an answer").json();
    assert!(reply["response"].as_str().is_some_and(|text| text.contains("four")), "{reply}");
    let ps = daemon.http().get("/api/ps").await.expect("an answer").json();
    assert_eq!(ps["models"][0]["name"], MODEL, "{ps}");
    let body = json!({"model": "embedder:latest", "input": ["one", "two"]});
    let reply = daemon.http().post("/api/embed", &body).await.expect("an answer").json();
    let rows = reply["embeddings"].as_array().expect("rows");
    assert!(rows.len() == 2 && rows.iter().all(|row| row.as_array().is_some_and(|row| row.len() == 640)), "{reply}");
    daemon.stop().await;
}
