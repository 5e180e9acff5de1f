//! Anthropic's messages: every event has a name, and nothing is `[DONE]`.
use super::{Wire, named};
use crate::sampler::FinishReason;
use bytes::Bytes;
use serde_json::{Value, json};

pub(super) fn head(wire: &Wire) -> Vec<Bytes> {
    let start = json!({"type": "message_start", "message": envelope(wire, &json!([]), None)});
    let block = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    vec![named("message_start", &start), named("content_block_start", &block)]
}

pub(super) fn token(token: &str) -> Bytes {
    let delta = json!({"type": "text_delta", "text": token});
    named("content_block_delta", &json!({"type": "content_block_delta", "index": 0, "delta": delta}))
}

pub(super) fn end(wire: &Wire, reason: FinishReason) -> Vec<Bytes> {
    let delta = json!({
        "type": "message_delta", "delta": {"stop_reason": name(reason), "stop_sequence": null},
        "usage": {"output_tokens": wire.n_tokens},
    });
    vec![
        named("content_block_stop", &json!({"type": "content_block_stop", "index": 0})),
        named("message_delta", &delta),
        named("message_stop", &json!({"type": "message_stop"})),
    ]
}

pub(super) fn whole(wire: &Wire, reason: FinishReason) -> Value {
    let mut message = envelope(wire, &json!([{"type": "text", "text": wire.text}]), Some(name(reason)));
    message["usage"]["output_tokens"] = json!(wire.n_tokens);
    message
}

fn envelope(wire: &Wire, content: &Value, stop_reason: Option<&str>) -> Value {
    json!({
        "id": wire.id("chatcmpl"), "type": "message", "role": "assistant", "content": content, "model": wire.model,
        "stop_reason": stop_reason, "stop_sequence": null,
        "usage": {"cache_read_input_tokens": 0, "input_tokens": wire.n_prompt(), "output_tokens": 0},
    })
}

fn name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "end_turn",
        FinishReason::Length => "max_tokens",
    }
}
