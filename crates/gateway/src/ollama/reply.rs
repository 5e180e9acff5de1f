//! An engine's stream in Ollama's words: [`Recast`], fed with chunks cut anywhere.
//!
//! Each part of the text becomes a line; calls of tools are told whole, when the engine has said why it ends; the last line
//! carries the counts. For who wants one document, nothing is told before the end.
use super::{
    request::{Call, Delivery},
    stamp,
};
use crate::{
    assemble::{
        AssembleError,
        chunk::{Chunk, ToolCall},
    },
    sse::EventReader,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{
    borrow::Cow,
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Which member carries the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `message`, as `/api/chat` has it.
    Message,
    /// `response`, as `/api/generate` has it.
    Response,
}

/// What a reply tells beside its text.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The model's name, as it was asked for.
    pub model: String,
    /// When the request came.
    pub began: Instant,
    /// What it took until an engine was there.
    pub loaded_within: Duration,
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With its last word.
    Whole,
    /// With an error of the engine's: its status, 400 to 599, and its document.
    Refused(u16, Vec<u8>),
}

/// Takes a stream's bytes, gives lines.
#[derive(Debug)]
pub struct Recast {
    style: Style,
    delivery: Delivery,
    terms: Terms,
    events: EventReader,
    said: Said,
    counts: Counts,
    reason: Option<String>,
    out: Vec<u8>,
}

#[derive(Debug, Default)]
struct Said {
    text: String,
    thinking: String,
    tool_calls: BTreeMap<u32, ToolCall>,
}

#[derive(Debug, Default)]
struct Counts {
    prompt: Option<u64>,
    generated: Option<u64>,
    timings: Timings,
}

#[derive(Debug, Default, Deserialize)]
struct Timings {
    prompt_ms: Option<f64>,
    predicted_ms: Option<f64>,
    cache_n: Option<u64>,
    prompt_n: Option<u64>,
    predicted_n: Option<u64>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

/// An event of `/infill`, in llama-server's own form.
#[derive(Deserialize)]
struct Native<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(default)]
    stop: bool,
    #[serde(borrow)]
    stop_type: Option<Cow<'a, str>>,
    tokens_evaluated: Option<u64>,
    tokens_predicted: Option<u64>,
    timings: Option<Timings>,
}

#[derive(Deserialize)]
struct ErrorCode {
    code: Option<u16>,
}

#[derive(Serialize)]
struct Line<'a> {
    model: &'a str,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    thinking: &'a str,
    done: bool,
    #[serde(flatten)]
    end: Option<End<'a>>,
}

#[derive(Serialize)]
struct End<'a> {
    done_reason: &'a str,
    total_duration: u64,
    load_duration: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_eval_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_eval_duration: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eval_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eval_duration: Option<u64>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    thinking: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToldCall<'a>>,
}

#[derive(Serialize)]
struct ToldCall<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    function: ToldFunction<'a>,
}

#[derive(Serialize)]
struct ToldFunction<'a> {
    name: &'a str,
    arguments: Cow<'a, RawValue>,
}

impl Style {
    /// Of this call's reply.
    pub fn of(call: Call) -> Self {
        if call == Call::Generate { Self::Response } else { Self::Message }
    }
}

impl Recast {
    /// For one reply.
    pub fn new(style: Style, delivery: Delivery, terms: Terms) -> Self {
        let (events, said, counts) = (EventReader::default(), Said::default(), Counts::default());
        Self { style, delivery, terms, events, said, counts, reason: None, out: Vec::new() }
    }

    /// The reply to who only wanted the model to be there, or not: `load` or `unload`.
    pub fn nothing(style: Style, terms: &Terms, reason: &str) -> Vec<u8> {
        let end = End { done_reason: reason, ..terms.end() };
        line(style, terms, &Said::default(), Some(end))
    }

    /// Takes the stream's next bytes; `Some` once it has said its last word. A stream that ends before that was cut.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Ended>, AssembleError> {
        self.events.push(bytes);
        while let Some(event) = self.events.next_event()? {
            if &event.data[..] == b"[DONE]" {
                self.finish();
                return Ok(Some(Ended::Whole));
            }
            let chunk: Option<Chunk<'_>> = serde_json::from_slice(&event.data).map_err(AssembleError::NotAChunk)?;
            let Some(chunk) = chunk else { continue };
            if let Some(error) = chunk.error {
                return Ok(Some(refused(error)));
            }
            if chunk.choices.is_empty() && chunk.usage.is_none() {
                if self.take_native(&event.data)? {
                    self.finish();
                    return Ok(Some(Ended::Whole));
                }
                continue;
            }
            self.take(chunk);
        }
        Ok(None)
    }

    /// What is to be told now.
    pub fn take_out(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    fn take(&mut self, chunk: Chunk<'_>) {
        let usage = chunk.usage.and_then(|raw| serde_json::from_str::<Usage>(raw.get()).ok());
        if let Some(usage) = usage {
            self.counts.prompt = usage.prompt_tokens;
            self.counts.generated = usage.completion_tokens;
        }
        if let Some(timings) = chunk.timings.and_then(|raw| serde_json::from_str(raw.get()).ok()) {
            self.counts.timings = timings;
        }
        for part in chunk.choices.into_iter().filter(|part| part.index == 0) {
            let delta = part.delta.unwrap_or_default();
            let text = [part.text, delta.content].into_iter().flatten().collect::<String>();
            self.say(&text, delta.reasoning_content.as_deref().unwrap_or_default());
            for call in delta.tool_calls.unwrap_or_default() {
                self.said.tool_calls.entry(call.index).or_default().take(call);
            }
            if let Some(reason) = part.finish_reason.and_then(|raw| serde_json::from_str(raw.get()).ok()) {
                self.reason = Some(reason);
                self.tell_calls();
            }
        }
    }

    /// Whether it was the last one.
    fn take_native(&mut self, data: &[u8]) -> Result<bool, AssembleError> {
        let event: Native<'_> = serde_json::from_slice(data).map_err(AssembleError::NotAChunk)?;
        self.say(event.content.as_deref().unwrap_or_default(), "");
        if event.stop {
            self.reason = event.stop_type.map(|kind| if kind == "limit" { "length" } else { "stop" }.to_owned());
            self.counts.prompt = event.tokens_evaluated;
            self.counts.generated = event.tokens_predicted;
            self.counts.timings = event.timings.unwrap_or_default();
        }
        Ok(event.stop)
    }

    fn say(&mut self, text: &str, thinking: &str) {
        if text.is_empty() && thinking.is_empty() {
            return;
        }
        if self.delivery == Delivery::Whole {
            self.said.text.push_str(text);
            self.said.thinking.push_str(thinking);
            return;
        }
        let (text, thinking) = (text.to_owned(), thinking.to_owned());
        let said = Said { text, thinking, tool_calls: BTreeMap::new() };
        self.out.extend(line(self.style, &self.terms, &said, None));
    }

    /// A call is told once it is whole.
    fn tell_calls(&mut self) {
        if self.delivery == Delivery::Lines && !self.said.tool_calls.is_empty() {
            let said = std::mem::take(&mut self.said);
            self.out.extend(line(self.style, &self.terms, &said, None));
        }
    }

    fn finish(&mut self) {
        self.tell_calls();
        let counts = &self.counts;
        let timed =
            |ms: Option<f64>| ms.filter(|ms| *ms >= 0.0).map(|ms| Duration::from_secs_f64(ms.min(1e12) / 1000.0));
        let timings = &counts.timings;
        let cached = timings.prompt_n.map(|n| n.saturating_add(timings.cache_n.unwrap_or(0)));
        let end = End {
            // Only two reasons are Ollama's.
            done_reason: if self.reason.as_deref() == Some("length") { "length" } else { "stop" },
            prompt_eval_count: counts.prompt.or(cached),
            prompt_eval_duration: timed(timings.prompt_ms).map(nanos),
            eval_count: counts.generated.or(timings.predicted_n),
            eval_duration: timed(timings.predicted_ms).map(nanos),
            ..self.terms.end()
        };
        self.out.extend(line(self.style, &self.terms, &self.said, Some(end)));
    }
}

impl Terms {
    fn end(&self) -> End<'static> {
        End {
            done_reason: "",
            total_duration: nanos(self.began.elapsed()),
            load_duration: nanos(self.loaded_within),
            prompt_eval_count: None,
            prompt_eval_duration: None,
            eval_count: None,
            eval_duration: None,
        }
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn line(style: Style, terms: &Terms, said: &Said, end: Option<End<'_>>) -> Vec<u8> {
    let tool_calls: Vec<_> = said.tool_calls.values().filter_map(told).collect();
    let (text, thinking) = (said.text.as_str(), said.thinking.as_str());
    let message = Message { role: "assistant", content: text, thinking, tool_calls };
    let (message, response, thinking) = match style {
        Style::Message => (Some(message), None, ""),
        Style::Response => (None, Some(text), thinking),
    };
    let (model, created_at, done) = (terms.model.as_str(), stamp::now(), end.is_some());
    let line = Line { model, created_at, message, response, thinking, done, end };
    let mut written = serde_json::to_vec(&line).expect("texts and documents always serialise");
    written.push(b'\n');
    written
}

/// A call that was cut has no arguments that anybody could use: it is none.
fn told(call: &ToolCall) -> Option<ToldCall<'_>> {
    let written = if call.arguments.trim().is_empty() { "{}" } else { call.arguments.trim() };
    let arguments: &RawValue =
        serde_json::from_str(written).ok().filter(|raw: &&RawValue| raw.get().starts_with('{'))?;
    let arguments = in_one_line(arguments);
    Some(ToldCall { id: &call.id, function: ToldFunction { name: &call.name, arguments } })
}

/// The same document without ends of lines: those of ours stand between lines only. In JSON they are never inside a text.
fn in_one_line(document: &RawValue) -> Cow<'_, RawValue> {
    if !document.get().contains(['\n', '\r']) {
        return Cow::Borrowed(document);
    }
    let text = document.get().replace(['\n', '\r'], " ");
    RawValue::from_string(text).map_or(Cow::Borrowed(document), Cow::Owned)
}

fn refused(error: &RawValue) -> Ended {
    let code = serde_json::from_str::<ErrorCode>(error.get()).ok().and_then(|e| e.code);
    let status = code.filter(|c| (400..600).contains(c)).unwrap_or(500);
    Ended::Refused(status, format!("{{\"error\":{error}}}").into_bytes())
}
