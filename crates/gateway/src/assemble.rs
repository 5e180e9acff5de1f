//! Replies for clients that did not ask for a stream, put together from the engine's stream.
//!
//! Why: an engine notices at once that the reader of a stream has gone, and of a whole reply late or never. So the
//! upstream call streams where the reply can be made equal to the engine's own but for `id`, `created` and `timings`;
//! [`can_assemble`] says where. Chunks of `/v1/chat/completions` and `/v1/completions` are read, in the shape that
//! llama-server gives them; numbers of token probabilities, usage and timings are copied as they are written.
//!
//! What the engine holds back from its streams at a length limit is not in them: the first bytes of a character, and of
//! a tag that its chat parser waits for.
pub(crate) mod chunk;
mod reply;
#[cfg(test)]
mod tests;
mod wanted;

use crate::sse::{EventReader, EventTooLong};
use bytes::Bytes;
use chunk::{Chunk, ChunkChoice, ToolCall};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
pub use wanted::{PLAIN_MEMBERS, can_assemble};

/// Which API the reply belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Text,
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assembled {
    /// The whole reply, a JSON document.
    Reply(Bytes),
    /// The engine gave up: the status the error names, and its document.
    Refused {
        /// 400 to 599.
        status: u16,
        /// `{"error":…}` as the engine wrote it.
        body: Bytes,
    },
}

/// Why a stream cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// One event is too long.
    #[error(transparent)]
    TooLong(#[from] EventTooLong),
    /// An event is no chunk of such a reply.
    #[error("the engine's stream holds an event that is no chunk of a reply")]
    NotAChunk(#[source] serde_json::Error),
}

/// Takes a stream's bytes, gives the reply.
#[derive(Debug)]
pub struct Assembler {
    kind: Kind,
    events: EventReader,
    envelope: Envelope,
    choices: BTreeMap<u32, Choice>,
    last_finished: u32,
    usage_of: Option<u32>,
}

#[derive(Debug, Default)]
struct Envelope {
    created: Option<Box<RawValue>>,
    id: Option<Box<RawValue>>,
    model: Option<Box<RawValue>>,
    system_fingerprint: Option<Box<RawValue>>,
    usage: Option<Box<RawValue>>,
    timings: Option<Box<RawValue>>,
}

#[derive(Debug, Default)]
struct Choice {
    role: Option<String>,
    text: String,
    reasoning: String,
    tool_calls: BTreeMap<u32, ToolCall>,
    logprobs: Vec<Box<RawValue>>,
    finish_reason: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ErrorCode {
    code: Option<u16>,
}

impl Assembler {
    /// For a reply of this kind.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            events: EventReader::default(),
            envelope: Envelope::default(),
            choices: BTreeMap::new(),
            last_finished: 0,
            usage_of: None,
        }
    }

    /// Takes the stream's next bytes; `Some` once it has said its last word. A stream that ends before that was cut.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Assembled>, AssembleError> {
        self.events.push(bytes);
        while let Some(event) = self.events.next_event()? {
            if &event.data[..] == b"[DONE]" {
                return Ok(Some(Assembled::Reply(self.render())));
            }
            // llama-server sends `null` for prompts of a batch that have no token yet.
            let chunk: Option<Chunk<'_>> = serde_json::from_slice(&event.data).map_err(AssembleError::NotAChunk)?;
            let Some(chunk) = chunk else { continue };
            if let Some(error) = chunk.error {
                return Ok(Some(refused(error)));
            }
            self.take(chunk);
        }
        Ok(None)
    }

    fn take(&mut self, chunk: Chunk<'_>) {
        let whose = chunk.choices.first().map(|c| c.index);
        let ends = chunk.usage.is_some() || chunk.choices.iter().any(|c| c.finish_reason.is_some());
        self.envelope.take_names(&chunk, ends);
        for part in chunk.choices {
            let finished = part.finish_reason.is_some();
            let index = part.index;
            self.choices.entry(index).or_default().take(part);
            if finished {
                self.last_finished = index;
            }
        }
        // Each choice reports its own usage right behind its end; a whole reply reports the first choice's.
        let whose = whose.unwrap_or(self.last_finished);
        if chunk.usage.is_some() && self.usage_of.is_none_or(|of| whose < of) {
            self.usage_of = Some(whose);
            self.envelope.usage = chunk.usage.map(ToOwned::to_owned);
            self.envelope.timings = chunk.timings.map(ToOwned::to_owned);
        }
    }
}

impl Envelope {
    fn take_names(&mut self, chunk: &Chunk<'_>, ends: bool) {
        let first = |slot: &mut Option<Box<RawValue>>, value: Option<&RawValue>| {
            if slot.is_none() {
                *slot = value.map(ToOwned::to_owned);
            }
        };
        first(&mut self.id, chunk.id);
        first(&mut self.model, chunk.model);
        first(&mut self.system_fingerprint, chunk.system_fingerprint);
        if ends {
            self.created = None;
        }
        first(&mut self.created, chunk.created);
    }
}

impl Choice {
    fn take(&mut self, part: ChunkChoice<'_>) {
        let delta = part.delta.unwrap_or_default();
        if let Some(role) = delta.role {
            self.role = Some(role.into_owned());
        }
        self.text.push_str(part.text.as_deref().unwrap_or_default());
        self.text.push_str(delta.content.as_deref().unwrap_or_default());
        self.reasoning.push_str(delta.reasoning_content.as_deref().unwrap_or_default());
        for call in delta.tool_calls.unwrap_or_default() {
            self.tool_calls.entry(call.index).or_default().take(call);
        }
        self.logprobs.extend(part.logprobs.and_then(|l| l.content).unwrap_or_default());
        if let Some(reason) = part.finish_reason {
            self.finish_reason = Some(reason.to_owned());
        }
    }
}

fn refused(error: &RawValue) -> Assembled {
    let code = serde_json::from_str::<ErrorCode>(error.get()).ok().and_then(|e| e.code);
    let status = code.filter(|c| (400..600).contains(c)).unwrap_or(500);
    Assembled::Refused { status, body: format!("{{\"error\":{error}}}").into() }
}
