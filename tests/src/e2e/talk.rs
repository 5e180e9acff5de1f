//! Bodies of requests, and what the events of a stream say.
use motorpool_testkit::{Client, FakeModel, Start, eventually, text};
use serde_json::{Value, json};

/// A chat whose reply streams.
pub fn chat(model: &str, prompt: &str) -> Value {
    json!({"model": model, "stream": true, "messages": [{"role": "user", "content": prompt}]})
}

/// A chat whose reply comes in one piece.
pub fn ask(model: &str, prompt: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": prompt}]})
}

/// The path of both.
pub const CHAT: &str = "/v1/chat/completions";

/// What a stream of chat chunks said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The text of all deltas.
    pub text: String,
    /// Why it is complete.
    pub finish: Option<String>,
    /// `[DONE]` came.
    pub is_done: bool,
    /// The error that broke it off.
    pub error: Option<Value>,
}

impl Said {
    /// Reads whole events.
    ///
    /// # Panics
    /// On an event that holds no JSON.
    pub fn read(events: &str) -> Self {
        let mut said = Self::default();
        for data in events.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim) {
            if data == "[DONE]" {
                said.is_done = true;
                continue;
            }
            let event: Value = serde_json::from_str(data).unwrap_or_else(|e| panic!("{e} in {data}"));
            let choice = &event["choices"][0];
            said.text += choice["delta"]["content"].as_str().or(choice["text"].as_str()).unwrap_or_default();
            said.finish = choice["finish_reason"].as_str().map(str::to_owned).or(said.finish);
            said.error = Some(event["error"].clone()).filter(|error| !error.is_null()).or(said.error);
        }
        said
    }

    /// The whole reply of a fake engine that makes `n` tokens.
    pub fn whole(prompt: &str, n: u32) -> Self {
        Self { text: text(prompt, n), finish: Some("stop".into()), is_done: true, error: None }
    }
}

/// The newest start of a fake engine with `model`, once there are `n`.
pub async fn start_number(model: &FakeModel, n: usize) -> Start {
    eventually("the engine started", async || model.starts().into_iter().nth(n - 1)).await
}

/// Asks a fake engine itself, past the daemon. `None` when it does not listen.
pub async fn peek(model: &FakeModel, path: &str) -> Option<Value> {
    let start = model.starts().pop()?;
    Some(Client::new(start.endpoint()).get(path).await.ok()?.json())
}

/// Requests that an engine got before its first one of ours: the one that proves that it is ready.
pub const PROBES: u64 = 1;

/// Waits until the counter `name` of a fake engine's requests is `n`.
pub async fn until_count(model: &FakeModel, name: &str, n: u64) -> Value {
    let what = format!("{name} is {n}");
    eventually(&what, async || peek(model, "/fake/requests").await.filter(|counts| counts[name] == json!(n))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_read_to_its_error() {
        let events = "data: {\"choices\":[{\"delta\":{\"content\":\" a\"}}]}\n\n: still there\n\n\
                      data: {\"choices\":[{\"delta\":{\"content\":\" b\"}}]}\n\ndata: {\"error\":{\"code\":\"x\"}}\n\n";
        let said = Said::read(events);
        assert_eq!((said.text.as_str(), said.is_done), (" a b", false));
        assert_eq!(said.error.expect("it is there")["code"], "x");
    }
}
