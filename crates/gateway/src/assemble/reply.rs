//! The assembled reply as a document, members in llama-server's order.
use super::{
    Kind,
    chunk::ToolCall,
    openai::{Choice, Sum},
};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Serialize)]
struct Reply<'a> {
    choices: Vec<ReplyChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_fingerprint: Option<&'a RawValue>,
    object: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ReplyChoice<'a> {
    Chat {
        finish_reason: Option<&'a RawValue>,
        index: u32,
        message: Message<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Logprobs<'a>>,
    },
    Text {
        text: &'a str,
        index: u32,
        logprobs: Option<Logprobs<'a>>,
        finish_reason: Option<&'a RawValue>,
    },
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'a str,
    content: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reasoning_content: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
}

#[derive(Serialize)]
struct Call<'a> {
    r#type: &'static str,
    function: Function<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: &'a str,
}

#[derive(Serialize)]
struct Logprobs<'a> {
    content: &'a [Box<RawValue>],
}

impl Sum {
    pub(super) fn render(&self) -> Bytes {
        let envelope = &self.envelope;
        let reply = Reply {
            choices: self.choices.iter().map(|(index, choice)| choice.render(self.kind, *index)).collect(),
            created: envelope.created.as_deref(),
            model: envelope.model.as_deref(),
            system_fingerprint: envelope.system_fingerprint.as_deref(),
            object: match self.kind {
                Kind::Text => "text_completion",
                Kind::Chat | Kind::Native | Kind::Messages | Kind::Responses => "chat.completion",
            },
            usage: envelope.usage.as_deref(),
            id: envelope.id.as_deref(),
            timings: envelope.timings.as_deref(),
        };
        serde_json::to_vec(&reply).expect("texts and documents always serialise").into()
    }
}

impl Choice {
    fn render(&self, kind: Kind, index: u32) -> ReplyChoice<'_> {
        let logprobs = (!self.logprobs.is_empty()).then_some(Logprobs { content: &self.logprobs });
        let finish_reason = self.finish_reason.as_deref();
        match kind {
            Kind::Text => ReplyChoice::Text { text: &self.text, index, logprobs, finish_reason },
            Kind::Chat | Kind::Native | Kind::Messages | Kind::Responses => {
                ReplyChoice::Chat { finish_reason, index, message: self.message(), logprobs }
            }
        }
    }

    fn message(&self) -> Message<'_> {
        Message {
            role: self.role.as_deref().unwrap_or("assistant"),
            content: &self.text,
            reasoning_content: &self.reasoning,
            tool_calls: self.tool_calls.values().map(ToolCall::render).collect(),
        }
    }
}

impl ToolCall {
    fn render(&self) -> Call<'_> {
        Call { r#type: "function", function: Function { name: &self.name, arguments: &self.arguments }, id: &self.id }
    }
}
