//! `/api/embed` and `/api/embeddings`: a request for `/v1/embeddings`, and its reply.
use super::{
    Translation,
    request::{Asked, Call, Delivery, ForEngine, NotTranslated, Object},
};
use crate::errors::Failure;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Embed<'a> {
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow, default)]
    dimensions: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Rows<'a> {
    #[serde(borrow)]
    data: Vec<Row<'a>>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Row<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    embedding: &'a RawValue,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
}

#[derive(Serialize)]
struct Embedded<'a> {
    model: &'a str,
    embeddings: Vec<&'a RawValue>,
    total_duration: u64,
    load_duration: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_eval_count: Option<u64>,
}

#[derive(Serialize)]
struct One<'a> {
    embedding: &'a RawValue,
}

pub(super) fn request(call: Call, body: &[u8], model: &str) -> Result<Asked, NotTranslated> {
    let asked: Embed<'_> = serde_json::from_slice(body)?;
    let (name, input) = match call {
        Call::Embeddings => ("prompt", asked.prompt),
        Call::Chat | Call::Generate | Call::Embed => ("input", asked.input),
    };
    let is_text = |raw: &&RawValue| raw.get().starts_with('"') || name == "input" && raw.get().starts_with('[');
    let nothing = |raw: &RawValue| matches!(raw.get(), "\"\"" | "[]");
    let input = match input {
        None => return Ok(Asked::Presence(Delivery::Whole)),
        Some(raw) if nothing(raw) => return Ok(Asked::Presence(Delivery::Whole)),
        Some(raw) if is_text(&raw) => raw,
        Some(_) => return Err(NotTranslated::Member(name, "a text, or where several can be, a list of them")),
    };
    let mut out = Object::of(model);
    out.member("input", &[input.get().as_bytes()]);
    out.member("encoding_format", &[b"\"float\""]);
    if let Some(dimensions) = asked.dimensions {
        out.member("dimensions", &[dimensions.get().as_bytes()]);
    }
    Ok(Asked::Engine(ForEngine { path: "/v1/embeddings", body: out.end(), delivery: Delivery::Whole }))
}

/// The engine's reply as Ollama's. `loaded_within` is what it took until an engine was there.
pub(crate) fn embedded(
    document: &[u8],
    translation: &Translation,
    loaded_within: std::time::Duration,
) -> Result<Vec<u8>, Failure> {
    let mut rows: Rows<'_> =
        serde_json::from_slice(document).map_err(|error| Failure::EngineUnreadable(error.to_string()))?;
    rows.data.sort_by_key(|row| row.index);
    let written = if translation.call == Call::Embeddings {
        let first = rows.data.first().ok_or_else(|| Failure::EngineUnreadable("it holds no embedding".into()))?;
        serde_json::to_vec(&One { embedding: first.embedding })
    } else {
        serde_json::to_vec(&Embedded {
            model: &translation.model,
            embeddings: rows.data.iter().map(|row| row.embedding).collect(),
            total_duration: super::reply::nanos(translation.began.elapsed()),
            load_duration: super::reply::nanos(loaded_within),
            prompt_eval_count: rows.usage.and_then(|usage| usage.prompt_tokens),
        })
    };
    Ok(written.expect("texts and documents always serialise"))
}

/// The reply to who embeds nothing.
pub(super) fn none(model: &str) -> Vec<u8> {
    serde_json::to_vec(&serde_json::json!({ "model": model, "embeddings": [] })).expect("a text always serialises")
}
