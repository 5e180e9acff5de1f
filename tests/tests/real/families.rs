//! The real engine's own spellings and APIs, through the daemon: what it says there is what its clients read.
use motorpool_tests::e2e::installed::{MODEL, engine_itself, house};
use serde_json::{Value, json};

/// Names of all members, at every depth.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
        Value::Array(items) => items.iter().take(1).map(shape).collect(),
        Value::String(_) => json!("text"),
        Value::Number(_) => json!("number"),
        other => other.clone(),
    }
}

#[tokio::test]
async fn each_api_of_the_engine_is_answered_as_the_engine_answers_it() {
    let house = house().await;
    let daemon = house.start().await;
    let messages = json!([{"role": "user", "content": "Count from one to twenty."}]);
    let chat = json!({"model": MODEL, "messages": messages, "max_tokens": 6, "temperature": 0, "seed": 1});
    let input = json!({"model": MODEL, "input": "Count.", "max_output_tokens": 6, "temperature": 0});
    let prompt = json!({"model": MODEL, "prompt": "One, two,", "n_predict": 4, "temperature": 0, "seed": 1});
    for (path, body) in [
        ("/v1/messages", &chat),
        ("/v1/messages/count_tokens", &chat),
        ("/v1/responses", &input),
        ("/responses", &input),
        ("/chat/completions", &chat),
        ("/completion", &prompt),
        ("/completions", &prompt),
        ("/tokenize", &json!({"content": "One, two", "model": MODEL})),
        ("/apply-template", &chat),
    ] {
        let ours = daemon.http().post(path, body).await.expect("an answer");
        let theirs = engine_itself(&house).post(path, body).await.expect("an answer");
        assert_eq!((ours.status, theirs.status.as_u16()), (theirs.status, 200), "{path}: {}", ours.text());
        assert_eq!(shape(&ours.json()), shape(&theirs.json()), "{path}: {}", ours.text());
    }
    daemon.stop().await;
}
