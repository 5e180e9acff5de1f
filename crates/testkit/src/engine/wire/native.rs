//! llama-server's own completions: no name of an event, no `[DONE]`.
use super::{Wire, data};
use crate::sampler::FinishReason;
use bytes::Bytes;
use serde_json::{Value, json};

pub(super) fn token(wire: &Wire, token: &str) -> Bytes {
    data(&json!({
        "index": 0, "content": token, "tokens": [wire.n_tokens], "stop": false, "id_slot": -1,
        "tokens_predicted": wire.n_tokens, "tokens_evaluated": wire.n_prompt(),
    }))
}

/// The whole reply, or with an empty `content` the last event of a stream.
pub(super) fn whole(wire: &Wire, content: &str, reason: FinishReason) -> Value {
    let stop_type = match reason {
        FinishReason::Stop => "eos",
        FinishReason::Length => "limit",
    };
    json!({
        "index": 0, "content": content, "tokens": [], "id_slot": 0, "stop": true, "model": wire.model,
        "tokens_predicted": wire.n_tokens, "tokens_evaluated": wire.n_prompt(), "generation_settings": {},
        "prompt": wire.prompt, "has_new_line": false, "truncated": false, "stop_type": stop_type,
        "stopping_word": "", "tokens_cached": 0, "timings": wire.timings(),
    })
}
