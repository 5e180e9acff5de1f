//! The JSON of replies, as llama-server writes it. No clock and no counter goes in: equal requests get equal bytes.
use crate::sampler::FinishReason;
use bytes::Bytes;
use serde_json::{Value, json};

const CREATED: u64 = 1_700_000_000;

/// Which API a reply belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Chat,
    Completion,
}

/// Whether a stream ends with a chunk of usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    Asked,
    Unasked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Chunk,
    Whole,
}

/// Writes one reply.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) family: Family,
    pub(crate) id: u64,
    pub(crate) model: String,
    pub(crate) usage: Usage,
    pub(crate) n_prompt: usize,
    pub(crate) n_tokens: usize,
}

impl Wire {
    /// What a stream begins with.
    pub(crate) fn head(&self) -> Option<Bytes> {
        match self.family {
            Family::Chat => Some(event(&self.chunk(&json!({"role": "assistant", "content": null}), None))),
            Family::Completion => None,
        }
    }

    /// One token.
    pub(crate) fn token(&mut self, text: &str) -> Bytes {
        self.n_tokens += 1;
        let content = match self.family {
            Family::Chat => json!({"content": text}),
            Family::Completion => json!(text),
        };
        event(&self.chunk(&content, None))
    }

    /// What a stream ends with. Only its last chunk carries timings; completions tell usage unasked.
    pub(crate) fn end(&self, reason: FinishReason) -> Vec<Bytes> {
        let (mut last, before) = match (self.family, self.usage) {
            (Family::Completion, _) => (self.chunk(&json!(""), Some(reason)), None),
            (Family::Chat, Usage::Unasked) => (self.chunk(&json!({}), Some(reason)), None),
            (Family::Chat, Usage::Asked) => {
                (self.envelope(Form::Chunk, &json!([])), Some(self.chunk(&json!({}), Some(reason))))
            }
        };
        if self.family == Family::Completion || self.usage == Usage::Asked {
            last["usage"] = self.usage();
        }
        last["timings"] = self.timings();
        let mut frames: Vec<Bytes> = before.iter().chain([&last]).map(event).collect();
        frames.push(Bytes::from_static(b"data: [DONE]\n\n"));
        frames
    }

    /// The reply in one piece.
    pub(crate) fn whole(&self, text: &str, reason: FinishReason) -> Value {
        let choice = match self.family {
            Family::Chat => json!({
                "finish_reason": name(reason), "index": 0, "message": {"role": "assistant", "content": text},
            }),
            Family::Completion => json!({
                "finish_reason": name(reason), "index": 0, "logprobs": null, "text": text,
            }),
        };
        let mut whole = self.envelope(Form::Whole, &json!([choice]));
        whole["usage"] = self.usage();
        whole["timings"] = self.timings();
        whole
    }

    fn chunk(&self, content: &Value, reason: Option<FinishReason>) -> Value {
        let finish = reason.map(name);
        let choice = match self.family {
            Family::Chat => json!({"finish_reason": finish, "index": 0, "delta": content}),
            Family::Completion => json!({"finish_reason": finish, "index": 0, "logprobs": null, "text": content}),
        };
        self.envelope(Form::Chunk, &json!([choice]))
    }

    fn envelope(&self, form: Form, choices: &Value) -> Value {
        let object = match (self.family, form) {
            (Family::Chat, Form::Chunk) => "chat.completion.chunk",
            (Family::Chat, Form::Whole) => "chat.completion",
            (Family::Completion, _) => "text_completion",
        };
        json!({
            "choices": choices, "created": CREATED, "id": format!("chatcmpl-{:016x}", self.id), "model": self.model,
            "object": object, "system_fingerprint": "fake",
        })
    }

    fn usage(&self) -> Value {
        json!({
            "completion_tokens": self.n_tokens, "prompt_tokens": self.n_prompt,
            "total_tokens": self.n_tokens + self.n_prompt, "prompt_tokens_details": {"cached_tokens": 0},
        })
    }

    fn timings(&self) -> Value {
        json!({
            "cache_n": 0, "prompt_n": self.n_prompt, "prompt_ms": 1.0, "prompt_per_token_ms": 1.0,
            "prompt_per_second": 1000.0, "predicted_n": self.n_tokens, "predicted_ms": 1.0,
            "predicted_per_token_ms": 1.0, "predicted_per_second": 1000.0,
        })
    }
}

/// One server-sent event.
pub(crate) fn event(data: &Value) -> Bytes {
    format!("data: {data}\n\n").into()
}

/// llama-server's shape of an error.
pub(crate) fn error(code: u16, kind: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message, "type": kind}})
}

fn name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}
