//! One chunk of an engine's stream, as llama-server and OpenAI's API write it.
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Deserialize)]
pub(crate) struct Chunk<'a> {
    #[serde(borrow, default)]
    pub(crate) choices: Vec<ChunkChoice<'a>>,
    #[serde(borrow)]
    pub(crate) created: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) model: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) system_fingerprint: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) timings: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(crate) struct ChunkChoice<'a> {
    #[serde(default)]
    pub(crate) index: u32,
    #[serde(borrow)]
    pub(crate) delta: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(crate) text: Option<Cow<'a, str>>,
    pub(crate) logprobs: Option<Logprobs>,
    #[serde(borrow)]
    pub(crate) finish_reason: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
pub(crate) struct Delta<'a> {
    #[serde(borrow)]
    pub(crate) role: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) reasoning_content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) tool_calls: Option<Vec<ToolCallDelta<'a>>>,
}

#[derive(Deserialize)]
pub(crate) struct ToolCallDelta<'a> {
    #[serde(default)]
    pub(crate) index: u32,
    #[serde(borrow)]
    pub(crate) id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) function: Option<FunctionDelta<'a>>,
}

#[derive(Deserialize)]
pub(crate) struct FunctionDelta<'a> {
    #[serde(borrow)]
    pub(crate) name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) arguments: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
pub(crate) struct Logprobs {
    pub(crate) content: Option<Vec<Box<RawValue>>>,
}

/// A call of a tool, put together.
#[derive(Debug, Default)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl ToolCall {
    pub(crate) fn take(&mut self, part: ToolCallDelta<'_>) {
        self.id.push_str(part.id.as_deref().unwrap_or_default());
        let Some(function) = part.function else { return };
        self.name.push_str(function.name.as_deref().unwrap_or_default());
        self.arguments.push_str(function.arguments.as_deref().unwrap_or_default());
    }
}
