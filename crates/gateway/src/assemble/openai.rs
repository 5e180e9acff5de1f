//! Replies of `/v1/chat/completions` and `/v1/completions`, put together from chunks.
use super::{
    AssembleError, Assembled, Kind,
    chunk::{Chunk, ChunkChoice, ToolCall},
    refused,
};
use crate::sse::Event;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// What the chunks have said so far.
#[derive(Debug)]
pub(super) struct Sum {
    pub(super) kind: Kind,
    pub(super) envelope: Envelope,
    pub(super) choices: BTreeMap<u32, Choice>,
    last_finished: u32,
    usage_of: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Envelope {
    pub(super) created: Option<Box<RawValue>>,
    pub(super) id: Option<Box<RawValue>>,
    pub(super) model: Option<Box<RawValue>>,
    pub(super) system_fingerprint: Option<Box<RawValue>>,
    pub(super) usage: Option<Box<RawValue>>,
    pub(super) timings: Option<Box<RawValue>>,
}

#[derive(Debug, Default)]
pub(super) struct Choice {
    pub(super) role: Option<String>,
    pub(super) text: String,
    pub(super) reasoning: String,
    pub(super) tool_calls: BTreeMap<u32, ToolCall>,
    pub(super) logprobs: Vec<Box<RawValue>>,
    pub(super) finish_reason: Option<Box<RawValue>>,
}

impl Sum {
    pub(super) fn new(kind: Kind) -> Self {
        let (envelope, choices) = (Envelope::default(), BTreeMap::new());
        Self { kind, envelope, choices, last_finished: 0, usage_of: None }
    }

    pub(super) fn take_event(&mut self, event: &Event) -> Result<Option<Assembled>, AssembleError> {
        if &event.data[..] == b"[DONE]" {
            return Ok(Some(Assembled::Reply(self.render())));
        }
        // llama-server sends `null` for prompts of a batch that have no token yet.
        let chunk: Option<Chunk<'_>> = serde_json::from_slice(&event.data).map_err(AssembleError::NotAChunk)?;
        let Some(chunk) = chunk else { return Ok(None) };
        if let Some(error) = chunk.error {
            return Ok(Some(refused(error)));
        }
        self.take(chunk);
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
