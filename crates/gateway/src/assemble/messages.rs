//! Replies of `/v1/messages`, put together block by block.
use super::{AssembleError, Assembled, members::Members, refused_by};
use crate::sse::Event;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// What the events have said so far.
#[derive(Debug, Default)]
pub(super) struct Message {
    id: Option<Box<RawValue>>,
    model: Option<Box<RawValue>>,
    usage: Vec<Box<RawValue>>,
    stop_reason: Option<Box<RawValue>>,
    stop_sequence: Option<Box<RawValue>>,
    blocks: Vec<Block>,
}

/// One block of the content. The engine numbers blocks as if thoughts came first, text next, calls last.
#[derive(Debug)]
struct Block {
    index: u32,
    kind: Kind,
    text: String,
    id: String,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Thinking,
    Text,
    ToolUse,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    r#type: Cow<'a, str>,
    #[serde(default)]
    index: u32,
    #[serde(borrow)]
    message: Option<Start<'a>>,
    #[serde(borrow)]
    content_block: Option<BlockStart<'a>>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Start<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct BlockStart<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    thinking: Option<Cow<'a, str>>,
    #[serde(borrow)]
    partial_json: Option<Cow<'a, str>>,
    #[serde(borrow)]
    stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    stop_sequence: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Reply<'a> {
    id: &'a RawValue,
    r#type: &'static str,
    role: &'static str,
    content: Vec<Told<'a>>,
    model: Option<&'a RawValue>,
    stop_reason: Option<&'a RawValue>,
    stop_sequence: Option<&'a RawValue>,
    usage: Members<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Told<'a> {
    Thinking { thinking: &'a str, signature: &'static str },
    Text { text: &'a str },
    ToolUse { id: &'a str, name: &'a str, input: &'a RawValue },
}

impl Message {
    pub(super) fn take_event(&mut self, event: &Event) -> Result<Option<Assembled>, AssembleError> {
        if let Some(refused) = refused_by(event)? {
            return Ok(Some(refused));
        }
        let part: Part<'_> = serde_json::from_slice(&event.data).map_err(AssembleError::NotAChunk)?;
        if part.r#type == "message_stop" {
            return Ok(Some(Assembled::Reply(self.render()?)));
        }
        self.take(part);
        Ok(None)
    }

    fn take(&mut self, part: Part<'_>) {
        let kept = |raw: Option<&RawValue>| raw.map(ToOwned::to_owned);
        if let Some(start) = part.message {
            self.id = kept(start.id);
            self.model = kept(start.model);
            self.usage.extend(kept(start.usage));
        }
        if let Some(start) = part.content_block {
            let kind = match &*start.r#type {
                "thinking" => Kind::Thinking,
                "tool_use" => Kind::ToolUse,
                _ => Kind::Text,
            };
            let (id, name) = (start.id.into_owned(), start.name.into_owned());
            self.blocks.push(Block { index: part.index, kind, text: String::new(), id, name });
        }
        self.usage.extend(kept(part.usage));
        let Some(delta) = part.delta else { return };
        if let Some(block) = self.blocks.iter_mut().rfind(|block| block.index == part.index) {
            let texts = [delta.text, delta.thinking, delta.partial_json];
            texts.into_iter().flatten().for_each(|text| block.text.push_str(&text));
        }
        if part.r#type == "message_delta" {
            self.stop_reason = kept(delta.stop_reason);
            self.stop_sequence = kept(delta.stop_sequence);
        }
    }

    fn render(&mut self) -> Result<Bytes, AssembleError> {
        self.blocks.sort_by_key(|block| block.kind);
        let mut usage = Members::default();
        for raw in &self.usage {
            usage.extend(serde_json::from_str(raw.get()).map_err(AssembleError::NotAChunk)?);
        }
        let reply = Reply {
            id: self.id.as_deref().ok_or(AssembleError::NoBeginning)?,
            r#type: "message",
            role: "assistant",
            content: self.blocks.iter().filter_map(Block::told).collect(),
            model: self.model.as_deref(),
            stop_reason: self.stop_reason.as_deref(),
            stop_sequence: self.stop_sequence.as_deref(),
            usage,
        };
        Ok(serde_json::to_vec(&reply).expect("texts and documents always serialise").into())
    }
}

impl Block {
    fn told(&self) -> Option<Told<'_>> {
        let text = self.text.as_str();
        match self.kind {
            Kind::Thinking | Kind::Text if text.is_empty() => None,
            Kind::Thinking => Some(Told::Thinking { thinking: text, signature: "" }),
            Kind::Text => Some(Told::Text { text }),
            // What was cut is no object; the engine says so, too.
            Kind::ToolUse => {
                let input = serde_json::from_str(text).unwrap_or_else(|_| nothing());
                Some(Told::ToolUse { id: &self.id, name: &self.name, input })
            }
        }
    }
}

fn nothing() -> &'static RawValue {
    serde_json::from_str("{}").expect("an object")
}
