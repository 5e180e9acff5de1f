//! A call of Ollama's as a request for an engine: [`translate`].
use super::{
    options::Options,
    prompt::{Image, Message, Messages, Writer},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `/api/chat`.
    Chat,
    /// `/api/generate`.
    Generate,
    /// `/api/embed`.
    Embed,
    /// `/api/embeddings`.
    Embeddings,
}

/// How the reply is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A line for each part.
    Lines,
    /// One document.
    Whole,
}

/// What a call asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// That an engine make something.
    Engine(ForEngine),
    /// Only that the model be there, or be there no longer.
    Presence(Delivery),
}

/// A request for an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForEngine {
    /// The engine's path.
    pub path: &'static str,
    /// A JSON object.
    pub body: Vec<u8>,
    /// How the client wants the reply; the engine streams in any case, but for embeddings.
    pub delivery: Delivery,
}

/// Why a call cannot be translated.
#[derive(Debug, thiserror::Error)]
pub enum NotTranslated {
    /// It is not what it must be.
    #[error("{0}")]
    Body(#[from] serde_json::Error),
    /// A member's value means nothing.
    #[error("`{0}` is {1}")]
    Member(&'static str, &'static str),
    /// No engine here can do that.
    #[error("{0}")]
    NotOffered(&'static str),
}

#[derive(Deserialize)]
struct Chat<'a> {
    #[serde(default)]
    messages: Option<Messages>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    format: Option<&'a RawValue>,
    #[serde(borrow, default)]
    think: Option<&'a RawValue>,
    #[serde(borrow, default)]
    options: Option<Options<'a>>,
    #[serde(default)]
    stream: Option<bool>,
}

#[derive(Deserialize)]
struct Generate<'a> {
    #[serde(borrow, default)]
    prompt: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    suffix: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    system: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    template: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    images: Option<Vec<Image<'a>>>,
    #[serde(borrow, default)]
    context: Option<&'a RawValue>,
    #[serde(default)]
    raw: Option<bool>,
    #[serde(borrow, default)]
    format: Option<&'a RawValue>,
    #[serde(borrow, default)]
    think: Option<&'a RawValue>,
    #[serde(borrow, default)]
    options: Option<Options<'a>>,
    #[serde(default)]
    stream: Option<bool>,
}

/// `body` as a request for an engine that knows the model as `model`.
pub fn translate(call: Call, body: &[u8], model: &str) -> Result<Asked, NotTranslated> {
    match call {
        Call::Chat => chat(body, model),
        Call::Generate => generate(body, model),
        Call::Embed | Call::Embeddings => super::embed::request(call, body, model),
    }
}

fn chat(body: &[u8], model: &str) -> Result<Asked, NotTranslated> {
    let asked: Chat<'_> = serde_json::from_slice(body)?;
    let delivery = delivery(asked.stream);
    let messages = asked.messages.unwrap_or_default().0;
    if messages.is_empty() {
        return Ok(Asked::Presence(delivery));
    }
    let mut out = Object::streaming(model);
    out.member("messages", &[b"[", &messages[..], b"]"]);
    if let Some(tools) = asked.tools {
        out.member("tools", &[tools.get().as_bytes()]);
    }
    out.format(asked.format)?;
    out.think(asked.think)?;
    out.options(asked.options);
    Ok(Asked::Engine(ForEngine { path: "/v1/chat/completions", body: out.end(), delivery }))
}

fn generate(body: &[u8], model: &str) -> Result<Asked, NotTranslated> {
    let asked: Generate<'_> = serde_json::from_slice(body)?;
    let delivery = delivery(asked.stream);
    if asked.template.as_deref().is_some_and(|text| !text.is_empty()) {
        return Err(NotTranslated::NotOffered("`template`: a model's own template is used"));
    }
    if asked.context.is_some_and(|context| !matches!(context.get(), "[]" | "null")) {
        return Err(NotTranslated::NotOffered("`context`: `/api/chat` takes the messages so far"));
    }
    let prompt = asked.prompt.as_deref().unwrap_or_default();
    let suffix = asked.suffix.as_deref().filter(|text| !text.is_empty());
    let images = asked.images.unwrap_or_default();
    if prompt.is_empty() && suffix.is_none() && images.is_empty() {
        return Ok(Asked::Presence(delivery));
    }
    let mut out = Object::streaming(model);
    let path = if let Some(suffix) = suffix {
        out.value("input_prefix", &prompt);
        out.value("input_suffix", &suffix);
        "/infill"
    } else if asked.raw == Some(true) {
        out.value("prompt", &prompt);
        out.schema(asked.format)?;
        "/v1/completions"
    } else {
        let mut messages = Writer::default();
        if let Some(system) = asked.system.filter(|text| !text.is_empty()) {
            messages.write(&Message { role: "system".into(), content: Some(system), ..Message::default() });
        }
        let (role, content) = ("user".into(), Some(prompt.into()));
        messages.write(&Message { role, content, images: Some(images), ..Message::default() });
        out.member("messages", &[b"[", &messages.out[..], b"]"]);
        out.format(asked.format)?;
        out.think(asked.think)?;
        "/v1/chat/completions"
    };
    out.options(asked.options);
    Ok(Asked::Engine(ForEngine { path, body: out.end(), delivery }))
}

/// Ollama streams unless it is told not to.
fn delivery(stream: Option<bool>) -> Delivery {
    if stream == Some(false) { Delivery::Whole } else { Delivery::Lines }
}

/// An object that is being written.
pub(super) struct Object(Vec<u8>);

impl Object {
    pub(super) fn of(model: &str) -> Self {
        let mut object = Self(Vec::new());
        object.value("model", &model);
        object
    }

    fn streaming(model: &str) -> Self {
        let mut object = Self::of(model);
        object.member("stream", &[b"true"]);
        object.member("stream_options", &[br#"{"include_usage":true}"#]);
        object
    }

    pub(super) fn member(&mut self, name: &str, value: &[&[u8]]) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.0.extend([b"\"", name.as_bytes(), b"\":"].concat());
        for part in value {
            self.0.extend_from_slice(part);
        }
    }

    pub(super) fn value<T: Serialize>(&mut self, name: &str, value: &T) {
        self.member(name, &[]);
        serde_json::to_writer(&mut self.0, value).expect("texts always serialise");
    }

    fn options(&mut self, options: Option<Options<'_>>) {
        for (name, value) in options.unwrap_or_default().0 {
            self.member(name, &[value.get().as_bytes()]);
        }
    }

    /// `"json"`, or a schema.
    fn format(&mut self, format: Option<&RawValue>) -> Result<(), NotTranslated> {
        match schema_of(format)? {
            None => {}
            Some("{}") => self.member("response_format", &[br#"{"type":"json_object"}"#]),
            Some(schema) => {
                let begin = br#"{"type":"json_schema","json_schema":{"name":"format","schema":"#;
                self.member("response_format", &[begin, schema.as_bytes(), b"}}"]);
            }
        }
        Ok(())
    }

    /// The same where there is no chat.
    fn schema(&mut self, format: Option<&RawValue>) -> Result<(), NotTranslated> {
        if let Some(schema) = schema_of(format)? {
            self.member("json_schema", &[schema.as_bytes()]);
        }
        Ok(())
    }

    /// Whether, and how much, the model thinks before it speaks: an affair of its template.
    fn think(&mut self, think: Option<&RawValue>) -> Result<(), NotTranslated> {
        let arguments: &[u8] = match think.map(RawValue::get) {
            None => return Ok(()),
            Some("true") => br#"{"enable_thinking":true}"#,
            Some("false") => br#"{"enable_thinking":false}"#,
            Some(level @ ("\"low\"" | "\"medium\"" | "\"high\"")) => {
                let begin = br#"{"enable_thinking":true,"reasoning_effort":"#;
                self.member("chat_template_kwargs", &[begin, level.as_bytes(), b"}"]);
                return Ok(());
            }
            Some(_) => return Err(NotTranslated::Member("think", "true, false, \"low\", \"medium\" or \"high\"")),
        };
        self.member("chat_template_kwargs", &[arguments]);
        Ok(())
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

/// The schema that is asked for; `{}` is any object.
fn schema_of(format: Option<&RawValue>) -> Result<Option<&str>, NotTranslated> {
    match format.map(RawValue::get) {
        None | Some("\"\"") => Ok(None),
        Some("\"json\"") => Ok(Some("{}")),
        Some(schema) if schema.starts_with('{') => Ok(Some(schema)),
        Some(_) => Err(NotTranslated::Member("format", "\"json\" or a JSON schema")),
    }
}
