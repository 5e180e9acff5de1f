//! Embeddings and rankings: numbers made from the texts.
use crate::{
    answer::{self, Reply},
    engine::Engine,
    wire::n_words,
};
use bytes::Bytes;
use http::StatusCode;
use motorpool_testkit::embedding;
use serde_json::{Value, json};
use std::sync::Arc;

/// What is to be made of the texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    OpenAi,
    /// llama-server's own.
    Native,
    Ranking,
}

/// Answers with one row for each text.
pub(crate) async fn embed(engine: Arc<Engine>, shape: Shape, shown: Value, body: Bytes) -> Reply {
    let mut work = engine.begin(shown);
    if let Some(refusal) = answer::unwell(&engine).or_else(|| unsupported(&engine, shape)) {
        return refusal;
    }
    let Ok(request) = serde_json::from_slice::<Value>(&body) else {
        return answer::error(StatusCode::BAD_REQUEST, "invalid_request_error", "parse error");
    };
    if shape == Shape::OpenAi && engine.arguments.words.windows(2).any(|pair| pair == ["--pooling", "none"]) {
        let why = "Pooling type 'none' is not OAI compatible. Please use a different pooling type";
        return answer::error(StatusCode::BAD_REQUEST, "invalid_request_error", why);
    }
    work.take_slot().await;
    let reply = match shape {
        Shape::OpenAi => list(&engine, &texts(&request["input"])),
        Shape::Native => {
            rows(&texts(if request["content"].is_null() { &request["input"] } else { &request["content"] }))
        }
        Shape::Ranking => ranking(&engine, &texts(&request["documents"])),
    };
    work.finish();
    answer::json(StatusCode::OK, &reply)
}

/// Each needs a flag of its own.
fn unsupported(engine: &Engine, shape: Shape) -> Option<Reply> {
    let (flags, what): (&[&str], _) = match shape {
        Shape::Ranking => (&["--rerank", "--reranking"], "reranking. Start it with `--reranking`"),
        Shape::OpenAi | Shape::Native => (&["--embedding", "--embeddings"], "embeddings. Start it with `--embeddings`"),
    };
    let is_given = engine.arguments.words.iter().any(|word| flags.contains(&word.as_str()));
    let refusal = || {
        answer::error(
            StatusCode::NOT_IMPLEMENTED,
            "not_supported_error",
            &format!("This server does not support {what}"),
        )
    };
    (!is_given).then(refusal)
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(texts) => texts.iter().map(plain).collect(),
        one => vec![plain(one)],
    }
}

/// A text, or the text of any other value.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn list(engine: &Engine, texts: &[String]) -> Value {
    let row =
        |(index, text): (usize, &String)| json!({"object": "embedding", "index": index, "embedding": embedding(text)});
    let data: Vec<Value> = texts.iter().enumerate().map(row).collect();
    json!({"object": "list", "model": engine.arguments.alias, "data": data, "usage": usage(texts)})
}

fn rows(texts: &[String]) -> Value {
    let row = |(index, text): (usize, &String)| json!({"index": index, "embedding": [embedding(text)]});
    texts.iter().enumerate().map(row).collect()
}

fn ranking(engine: &Engine, texts: &[String]) -> Value {
    let row = |(index, text): (usize, &String)| json!({"index": index, "relevance_score": embedding(text)[0]});
    let results: Vec<Value> = texts.iter().enumerate().map(row).collect();
    json!({"object": "list", "model": engine.arguments.alias, "results": results, "usage": usage(texts)})
}

fn usage(texts: &[String]) -> Value {
    let n: usize = texts.iter().map(|text| n_words(text)).sum();
    json!({"prompt_tokens": n, "total_tokens": n})
}
