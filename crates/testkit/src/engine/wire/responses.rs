//! OpenAI's responses. llama-server calls a reply cut by its limit completed too.
use super::{CREATED, Wire, named};
use bytes::Bytes;
use serde_json::{Value, json};

pub(super) fn head(wire: &Wire) -> Vec<Bytes> {
    let begun = json!({"id": wire.id("resp"), "object": "response", "status": "in_progress"});
    let item = json!({
        "content": [], "id": wire.id("msg"), "role": "assistant", "status": "in_progress", "type": "message",
    });
    let part = json!({"item_id": wire.id("msg"), "part": {"type": "output_text", "text": ""}});
    vec![
        event("response.created", json!({"response": begun})),
        event("response.in_progress", json!({"response": begun})),
        event("response.output_item.added", json!({"item": item})),
        event("response.content_part.added", part),
    ]
}

pub(super) fn token(wire: &Wire, token: &str) -> Bytes {
    event("response.output_text.delta", json!({"item_id": wire.id("msg"), "delta": token}))
}

pub(super) fn end(wire: &Wire) -> Vec<Bytes> {
    let id = wire.id("msg");
    let mut completed = json!({"response": envelope(wire)});
    completed["timings"] = wire.timings();
    vec![
        event("response.output_text.done", json!({"item_id": id, "text": wire.text})),
        event("response.content_part.done", json!({"item_id": id, "part": part(wire)})),
        event("response.output_item.done", json!({"item": item(wire)})),
        event("response.completed", completed),
    ]
}

pub(super) fn whole(wire: &Wire) -> Value {
    let mut response = envelope(wire);
    response["completed_at"] = json!(CREATED);
    response
}

fn envelope(wire: &Wire) -> Value {
    let (n_prompt, n_tokens) = (wire.n_prompt(), usize::try_from(wire.n_tokens).expect("a few tokens"));
    json!({
        "id": wire.id("resp"), "object": "response", "created_at": CREATED, "status": "completed",
        "model": wire.model, "output": [item(wire)],
        "usage": {
            "input_tokens": n_prompt, "output_tokens": n_tokens, "total_tokens": n_prompt + n_tokens,
            "input_tokens_details": {"cached_tokens": 0},
        },
    })
}

fn item(wire: &Wire) -> Value {
    json!({
        "type": "message", "status": "completed", "id": wire.id("msg"), "content": [part(wire)], "role": "assistant",
    })
}

fn part(wire: &Wire) -> Value {
    json!({"type": "output_text", "annotations": [], "logprobs": [], "text": wire.text})
}

fn event(kind: &str, mut body: Value) -> Bytes {
    body["type"] = json!(kind);
    named(kind, &body)
}
