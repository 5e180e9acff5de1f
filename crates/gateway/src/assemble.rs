//! Replies for clients that did not ask for a stream, put together from the engine's stream.
//!
//! Why: an engine notices at once that the reader of a stream has gone, and of a whole reply late or never. So the
//! upstream call streams where the reply can be made equal to the engine's own but for ids, times and `timings`;
//! [`can_assemble`] says where. What is read are streams in the shapes that llama-server gives them, one file for each API;
//! numbers of token probabilities, usage and timings are copied as they are written.
//!
//! What the engine holds back from its streams at a length limit is not in them: the first bytes of a character, and of
//! a tag that its chat parser waits for.
pub(crate) mod chunk;
mod members;
mod messages;
mod native;
mod openai;
mod reply;
mod responses;
#[cfg(test)]
mod tests;
mod wanted;

use crate::sse::{Event, EventReader, EventTooLong};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
pub use wanted::{PLAIN_MEMBERS, can_assemble};

/// Which API the reply belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Text,
    /// `/completion`, in llama-server's own form.
    Native,
    /// `/v1/messages`.
    Messages,
    /// `/v1/responses`.
    Responses,
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
    /// It ends, and has not said how it began.
    #[error("the engine's stream has no beginning")]
    NoBeginning,
}

/// Takes a stream's bytes, gives the reply.
#[derive(Debug)]
pub struct Assembler {
    events: EventReader,
    parts: Parts,
}

/// What a stream has said so far.
#[derive(Debug)]
enum Parts {
    OpenAi(openai::Sum),
    Native(native::Text),
    Messages(messages::Message),
    Responses,
}

impl Assembler {
    /// For a reply of this kind.
    pub fn new(kind: Kind) -> Self {
        let parts = match kind {
            Kind::Chat | Kind::Text => Parts::OpenAi(openai::Sum::new(kind)),
            Kind::Native => Parts::Native(native::Text::default()),
            Kind::Messages => Parts::Messages(messages::Message::default()),
            Kind::Responses => Parts::Responses,
        };
        Self { events: EventReader::default(), parts }
    }

    /// Takes the stream's next bytes; `Some` once it has said its last word. A stream that ends before that was cut.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Assembled>, AssembleError> {
        self.events.push(bytes);
        while let Some(event) = self.events.next_event()? {
            let assembled = match &mut self.parts {
                Parts::OpenAi(sum) => sum.take_event(&event)?,
                Parts::Native(text) => text.take_event(&event)?,
                Parts::Messages(message) => message.take_event(&event)?,
                Parts::Responses => responses::take_event(&event)?,
            };
            if assembled.is_some() {
                return Ok(assembled);
            }
        }
        Ok(None)
    }
}

/// An event in which the engine gives up: one of that name, or one that holds an error and nothing else of the API's.
#[derive(Deserialize)]
struct ErrorEvent<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// The same where events have names.
pub(crate) fn refused_by(event: &Event) -> Result<Option<Assembled>, AssembleError> {
    let part: ErrorEvent<'_> = serde_json::from_slice(&event.data).map_err(AssembleError::NotAChunk)?;
    if let Some(error) = part.error {
        return Ok(Some(refused(error)));
    }
    if event.name.as_deref() != Some(b"error") {
        return Ok(None);
    }
    let whole: &RawValue = serde_json::from_slice(&event.data).map_err(AssembleError::NotAChunk)?;
    Ok(Some(refused(whole)))
}

#[derive(Deserialize)]
struct ErrorCode {
    code: Option<u16>,
}

/// What is in `error` of an event that says so.
pub(crate) fn refused(error: &RawValue) -> Assembled {
    let code = serde_json::from_str::<ErrorCode>(error.get()).ok().and_then(|e| e.code);
    let status = code.filter(|c| (400..600).contains(c)).unwrap_or(500);
    Assembled::Refused { status, body: format!("{{\"error\":{error}}}").into() }
}
