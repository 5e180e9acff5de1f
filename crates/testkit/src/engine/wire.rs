//! The bytes of replies, as llama-server 11434 was seen to write them, one file for each family of APIs. No clock and
//! no counter goes in: equal requests get equal bytes.
mod messages;
mod native;
mod openai;
mod responses;

use crate::sampler::FinishReason;
use bytes::Bytes;
use serde_json::{Value, json};

const CREATED: u64 = 1_700_000_000;

/// Which API a reply belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Chat,
    Completion,
    /// llama-server's own.
    Native,
    /// Anthropic's.
    Messages,
    Responses,
}

/// Whether a chat's stream ends with a chunk of usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    Asked,
    Unasked,
}

/// Writes one reply, and knows what it said so far.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) family: Family,
    pub(crate) id: u64,
    pub(crate) model: String,
    pub(crate) usage: Usage,
    pub(crate) prompt: String,
    pub(crate) n_tokens: u32,
    pub(crate) text: String,
}

impl Wire {
    /// What a stream begins with.
    pub(crate) fn head(&self) -> Vec<Bytes> {
        match self.family {
            Family::Chat => vec![openai::chat_head(self)],
            Family::Completion | Family::Native => Vec::new(),
            Family::Messages => messages::head(self),
            Family::Responses => responses::head(self),
        }
    }

    /// One token more.
    pub(crate) fn say(&mut self, token: &str) {
        self.n_tokens += 1;
        self.text += token;
    }

    /// The event of the token just said.
    pub(crate) fn token(&self, token: &str) -> Bytes {
        match self.family {
            Family::Chat => openai::chat_token(self, token),
            Family::Completion => openai::completion_token(self, token),
            Family::Native => native::token(self, token),
            Family::Messages => messages::token(token),
            Family::Responses => responses::token(self, token),
        }
    }

    /// What a stream ends with.
    pub(crate) fn end(&self, reason: FinishReason) -> Vec<Bytes> {
        match self.family {
            Family::Chat => openai::chat_end(self, reason),
            Family::Completion => openai::completion_end(self, reason),
            Family::Native => vec![data(&native::whole(self, "", reason))],
            Family::Messages => messages::end(self, reason),
            Family::Responses => responses::end(self),
        }
    }

    /// What a stream breaks off with.
    pub(crate) fn failure(&self) -> Bytes {
        let mut error = error(500, "server_error", "Decode failed.");
        match self.family {
            Family::Messages => named("error", &error["error"].take()),
            _ => data(&error),
        }
    }

    /// The reply in one piece.
    pub(crate) fn whole(&self, reason: FinishReason) -> Value {
        match self.family {
            Family::Chat => openai::chat(self, reason),
            Family::Completion => openai::completion(self, reason),
            Family::Native => native::whole(self, &self.text, reason),
            Family::Messages => messages::whole(self, reason),
            Family::Responses => responses::whole(self),
        }
    }

    fn n_prompt(&self) -> usize {
        n_words(&self.prompt)
    }

    fn id(&self, prefix: &str) -> String {
        format!("{prefix}-{:016x}", self.id)
    }

    fn timings(&self) -> Value {
        json!({
            "cache_n": 0, "prompt_n": self.n_prompt(), "prompt_ms": 1.0, "prompt_per_token_ms": 1.0,
            "prompt_per_second": 1000.0, "predicted_n": self.n_tokens, "predicted_ms": 1.0,
            "predicted_per_token_ms": 1.0, "predicted_per_second": 1000.0,
        })
    }
}

/// A word is a token of a prompt.
pub(crate) fn n_words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// llama-server's shape of an error.
pub(crate) fn error(code: u16, kind: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message, "type": kind}})
}

/// A server-sent event without a name.
fn data(data: &Value) -> Bytes {
    format!("data: {data}\n\n").into()
}

/// A server-sent event with a name.
fn named(name: &str, data: &Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}
