//! The `messages` of a chat, and the prompt of `/api/generate`, as messages of OpenAI's API.
//!
//! One message at a time is read and written: a list of a million costs what its text costs.
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::VecDeque, fmt};

/// Messages, written: the inside of a JSON array.
#[derive(Debug, Default)]
pub(super) struct Messages(pub(super) Vec<u8>);

#[derive(Default, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    pub(super) role: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) thinking: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) images: Option<Vec<Image<'a>>>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<Vec<ToolCall<'a>>>,
    #[serde(borrow, default)]
    pub(super) tool_name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) tool_call_id: Option<Cow<'a, str>>,
}

/// A picture, in Base64.
#[derive(Deserialize)]
pub(super) struct Image<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

#[derive(Deserialize)]
pub(super) struct ToolCall<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    function: Function<'a>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl<'de> Deserialize<'de> for Messages {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_seq(List)
    }
}

struct List;

impl<'de> de::Visitor<'de> for List {
    type Value = Messages;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Messages, A::Error> {
        let mut writer = Writer::default();
        while let Some(message) = list.next_element::<Message<'de>>()? {
            writer.write(&message);
        }
        Ok(Messages(writer.out))
    }
}

/// Writes messages, and knows which calls of tools wait for their result.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) out: Vec<u8>,
    n_calls: usize,
    waiting: VecDeque<(String, String)>,
}

#[derive(Serialize)]
struct Written<'a> {
    role: &'a str,
    content: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WrittenCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: Url },
}

#[derive(Serialize)]
struct Url {
    url: String,
}

#[derive(Serialize)]
struct WrittenCall<'a> {
    id: String,
    r#type: &'static str,
    function: WrittenFunction<'a>,
}

#[derive(Serialize)]
struct WrittenFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl Writer {
    pub(super) fn write(&mut self, message: &Message<'_>) {
        let tool_calls = message.tool_calls.iter().flatten().map(|call| self.call(call)).collect();
        let written = Written {
            role: &message.role,
            content: content(message),
            reasoning_content: message.thinking.as_deref().filter(|text| !text.is_empty()),
            tool_calls,
            tool_call_id: (message.role == "tool").then(|| self.answered(message)).flatten(),
            name: message.tool_name.as_deref(),
        };
        if !self.out.is_empty() {
            self.out.push(b',');
        }
        serde_json::to_writer(&mut self.out, &written).expect("texts always serialise");
    }

    fn call<'a>(&mut self, call: &'a ToolCall<'_>) -> WrittenCall<'a> {
        let id = call
            .id
            .as_deref()
            .filter(|id| !id.is_empty())
            .map_or_else(|| format!("call_{}", self.n_calls), str::to_owned);
        self.n_calls += 1;
        self.waiting.push_back((id.clone(), call.function.name.clone().into_owned()));
        let arguments = call.function.arguments.map_or("{}", RawValue::get);
        WrittenCall { id, r#type: "function", function: WrittenFunction { name: &call.function.name, arguments } }
    }

    /// Which call a result belongs to: the one it names, else the first of its tool that waits, else the first.
    fn answered(&mut self, message: &Message<'_>) -> Option<String> {
        let is_its = |(id, name): &(String, String)| match (&message.tool_call_id, &message.tool_name) {
            (Some(its), _) => its == id,
            (None, Some(its)) => its == name,
            (None, None) => true,
        };
        let at = self.waiting.iter().position(is_its).or_else(|| (!self.waiting.is_empty()).then_some(0));
        let found = at.and_then(|at| self.waiting.remove(at)).map(|(id, _)| id);
        message.tool_call_id.as_deref().map(str::to_owned).or(found)
    }
}

fn content<'a>(message: &'a Message<'_>) -> Content<'a> {
    let text = message.content.as_deref().unwrap_or_default();
    let images = message.images.as_deref().unwrap_or_default();
    if images.is_empty() {
        return Content::Text(text);
    }
    let pictures = images.iter().map(|image| Part::ImageUrl { image_url: Url { url: url_of(&image.0) } });
    let words = (!text.is_empty()).then_some(Part::Text { text });
    Content::Parts(words.into_iter().chain(pictures).collect())
}

/// What a picture is shows in its first bytes, and so in its first letters.
fn url_of(base64: &str) -> String {
    if base64.starts_with("data:") {
        return base64.to_owned();
    }
    let kind = match base64 {
        text if text.starts_with("/9j/") => "jpeg",
        text if text.starts_with("R0lGOD") => "gif",
        text if text.starts_with("UklGR") => "webp",
        _ => "png",
    };
    format!("data:image/{kind};base64,{base64}")
}
