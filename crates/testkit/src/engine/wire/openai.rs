//! Chat and completions of OpenAI's API.
use super::{CREATED, Usage, Wire, data};
use crate::sampler::FinishReason;
use bytes::Bytes;
use serde_json::{Value, json};

const DONE: &[u8] = b"data: [DONE]\n\n";

pub(super) fn chat_head(wire: &Wire) -> Bytes {
    data(&chat_chunk(wire, &json!({"role": "assistant", "content": null}), None))
}

pub(super) fn chat_token(wire: &Wire, token: &str) -> Bytes {
    data(&chat_chunk(wire, &json!({"content": token}), None))
}

/// Only the last chunk carries timings.
pub(super) fn chat_end(wire: &Wire, reason: FinishReason) -> Vec<Bytes> {
    let mut chunks = vec![chat_chunk(wire, &json!({}), Some(reason))];
    if wire.usage == Usage::Asked {
        let mut last = envelope(wire, "chat.completion.chunk", &json!([]));
        last["usage"] = usage(wire);
        chunks.push(last);
    }
    if let Some(last) = chunks.last_mut() {
        last["timings"] = wire.timings();
    }
    chunks.iter().map(data).chain([Bytes::from_static(DONE)]).collect()
}

pub(super) fn chat(wire: &Wire, reason: FinishReason) -> Value {
    let message = json!({"role": "assistant", "content": wire.text});
    let choice = json!({"finish_reason": name(reason), "index": 0, "message": message});
    accounted(wire, envelope(wire, "chat.completion", &json!([choice])))
}

pub(super) fn completion_token(wire: &Wire, token: &str) -> Bytes {
    data(&completion_of(wire, token, None))
}

/// Usage comes unasked.
pub(super) fn completion_end(wire: &Wire, reason: FinishReason) -> Vec<Bytes> {
    let last = accounted(wire, completion_of(wire, "", Some(reason)));
    vec![data(&last), Bytes::from_static(DONE)]
}

pub(super) fn completion(wire: &Wire, reason: FinishReason) -> Value {
    accounted(wire, completion_of(wire, &wire.text, Some(reason)))
}

fn chat_chunk(wire: &Wire, delta: &Value, reason: Option<FinishReason>) -> Value {
    let choice = json!({"finish_reason": reason.map(name), "index": 0, "delta": delta});
    envelope(wire, "chat.completion.chunk", &json!([choice]))
}

fn completion_of(wire: &Wire, text: &str, reason: Option<FinishReason>) -> Value {
    let choice = json!({"finish_reason": reason.map(name), "index": 0, "logprobs": null, "text": text});
    envelope(wire, "text_completion", &json!([choice]))
}

fn envelope(wire: &Wire, object: &str, choices: &Value) -> Value {
    json!({
        "choices": choices, "created": CREATED, "id": wire.id("chatcmpl"), "model": wire.model, "object": object,
        "system_fingerprint": "fake",
    })
}

fn accounted(wire: &Wire, mut reply: Value) -> Value {
    reply["usage"] = usage(wire);
    reply["timings"] = wire.timings();
    reply
}

fn usage(wire: &Wire) -> Value {
    let n_tokens = usize::try_from(wire.n_tokens).expect("a few tokens");
    json!({
        "completion_tokens": n_tokens, "prompt_tokens": wire.n_prompt(), "total_tokens": n_tokens + wire.n_prompt(),
        "prompt_tokens_details": {"cached_tokens": 0},
    })
}

fn name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}
