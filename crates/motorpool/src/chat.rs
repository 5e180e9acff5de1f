//! A conversation over the daemon's own API: [`Chat`] asks and passes the answer on as it comes.
use crate::{
    client::{Client, ClientError, Kind},
    exit::Failure,
};
use bytes::Buf;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

const PATH: &str = "/v1/chat/completions";

/// What comes while an answer is made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard<'a> {
    /// A piece of the answer.
    Text(&'a str),
    /// What the daemon says meanwhile, such as `loading 63 %`.
    Remark(&'a str),
}

/// A conversation with one model.
#[derive(Debug)]
pub(crate) struct Chat<'a> {
    client: &'a Client,
    model: &'a str,
    messages: Vec<Value>,
    /// The longest answer; `None` for as long as the model wants.
    most: Option<u32>,
}

impl<'a> Chat<'a> {
    pub(crate) fn new(client: &'a Client, model: &'a str) -> Self {
        Self { client, model, messages: Vec::new(), most: None }
    }

    /// Ends each answer after so many tokens: a model that was not taught to chat may never end one.
    pub(crate) fn at_most(mut self, n_tokens: u32) -> Self {
        self.most = Some(n_tokens);
        self
    }

    /// Asks, and passes on what comes; who has heard enough ends it with a failure, and the daemon hears of that by the
    /// end of the connection. The question and the whole answer become part of the conversation.
    pub(crate) async fn ask(
        &mut self,
        question: &str,
        mut heard: impl FnMut(Heard<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.messages.push(json!({ "role": "user", "content": question }));
        let answer = self.stream(&mut heard).await;
        let text = answer.inspect_err(|_| drop(self.messages.pop()))?;
        self.messages.push(json!({ "role": "assistant", "content": text }));
        Ok(())
    }

    async fn stream(&self, heard: &mut impl FnMut(Heard<'_>) -> Result<(), Failure>) -> Result<String, Failure> {
        let mut body = self.request(&self.messages);
        body["stream"] = true.into();
        let (kind, body) = self.client.post_stream(PATH, &body).await?;
        let mut lines = Lines::new(body);
        if kind == Kind::Whole {
            let answer = whole(&mut lines).await?;
            heard(Heard::Text(&answer))?;
            return Ok(answer);
        }
        let mut answer = String::new();
        while let Some(line) = lines.next().await? {
            if let Some(remark) = line.strip_prefix(':') {
                heard(Heard::Remark(remark.trim()))?;
            }
            let Some(data) = line.strip_prefix("data:").map(str::trim) else { continue };
            if data == "[DONE]" {
                break;
            }
            let event: Value = serde_json::from_str(data).map_err(ClientError::from)?;
            check(&event)?;
            let text = event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
            answer.push_str(text);
            heard(Heard::Text(text))?;
        }
        Ok(answer)
    }

    fn request(&self, messages: &[Value]) -> Value {
        let mut body = json!({ "model": self.model, "messages": messages });
        if let Some(most) = self.most {
            body["max_tokens"] = most.into();
        }
        body
    }

    /// Asks, and gives the whole reply of the API.
    pub(crate) async fn ask_whole(&self, question: &str) -> Result<Value, ClientError> {
        let messages = [json!({ "role": "user", "content": question })];
        self.client.post(PATH, &self.request(&messages)).await
    }
}

/// The answer of an engine that does not stream.
async fn whole(lines: &mut Lines) -> Result<String, ClientError> {
    let mut document = String::new();
    while let Some(line) = lines.next().await? {
        document.push_str(&line);
        document.push('\n');
    }
    let reply: Value = serde_json::from_str(&document)?;
    check(&reply)?;
    Ok(reply["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned())
}

/// After the head of a stream a refusal comes as an event.
fn check(event: &Value) -> Result<(), ClientError> {
    let error = &event["error"];
    if error.is_null() {
        return Ok(());
    }
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    let code = if error["code"].is_string() { text("code") } else { text("type") };
    Err(ClientError::Refused { status: StatusCode::SERVICE_UNAVAILABLE, code, message: text("message") })
}

/// The lines of a body as it comes.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Incoming,
    pending: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, pending: Vec::new() }
    }

    /// The next line without its end; the last one may have none.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, ClientError> {
        loop {
            if let Some(line) = take_line(&mut self.pending) {
                return Ok(Some(line));
            }
            match self.body.frame().await.transpose()? {
                Some(frame) => {
                    if let Ok(part) = frame.into_data() {
                        self.pending.extend_from_slice(part.chunk());
                    }
                }
                None if self.pending.is_empty() => return Ok(None),
                None => self.pending.push(b'\n'),
            }
        }
    }
}

fn take_line(pending: &mut Vec<u8>) -> Option<String> {
    let end = pending.iter().position(|byte| *byte == b'\n')?;
    let line: Vec<u8> = pending.drain(..=end).collect();
    Some(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_where_they_end_and_not_where_frames_do() {
        let mut pending = b"data: a".to_vec();
        assert_eq!(take_line(&mut pending), None);
        pending.extend_from_slice(b"b\r\n\ndata");
        assert_eq!(take_line(&mut pending).as_deref(), Some("data: ab"));
        assert_eq!(take_line(&mut pending).as_deref(), Some(""));
        assert_eq!(take_line(&mut pending), None);
    }

    #[tokio::test]
    async fn an_engine_that_answers_whole_is_heard_whole() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        const BODY: &str = "{\"choices\":\n[{\"message\":{\"content\":\"Paris\"}}]}";
        let folder = tempfile::tempdir().expect("a temporary directory");
        let socket = folder.path().join("s.sock");
        let listener = tokio::net::UnixListener::bind(&socket).expect("bound");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("asked");
            stream.read_exact(&mut [0; 8]).await.expect("a request");
            let head = format!("content-type: application/json\r\ncontent-length: {}", BODY.len());
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{BODY}").as_bytes()).await.expect("taken");
            stream.read_to_end(&mut Vec::new()).await
        });
        let client = Client::new(&socket);
        let mut said = String::new();
        let mut chat = Chat::new(&client, "m");
        let asked = chat.ask("Where?", |heard| {
            if let Heard::Text(text) = heard {
                said.push_str(text);
            }
            Ok(())
        });
        asked.await.expect("heard");
        assert_eq!(said, "Paris");
    }

    #[test]
    fn an_error_inside_a_stream_is_an_error() {
        assert!(check(&json!({ "choices": [] })).is_ok());
        let late = check(&json!({ "error": { "message": "it died", "code": "engine_crashed" } }));
        assert!(matches!(late, Err(ClientError::Refused { code, .. }) if code == "engine_crashed"));
    }
}
