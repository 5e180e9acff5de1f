//! Replies of `/completion`: the last event is the reply, but for its text and what it says of itself.
use super::{AssembleError, Assembled, members::Members, refused};
use crate::sse::Event;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The text so far.
#[derive(Debug, Default)]
pub(super) struct Text(String);

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(default)]
    stop: bool,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Text {
    pub(super) fn take_event(&mut self, event: &Event) -> Result<Option<Assembled>, AssembleError> {
        let part: Part<'_> = serde_json::from_slice(&event.data).map_err(AssembleError::NotAChunk)?;
        if let Some(error) = part.error {
            return Ok(Some(refused(error)));
        }
        self.0.push_str(part.content.as_deref().unwrap_or_default());
        if !part.stop {
            return Ok(None);
        }
        let mut reply: Members<'_> = serde_json::from_slice(&event.data).map_err(AssembleError::NotAChunk)?;
        // It tells how it was asked, which was our doing.
        let settings = reply.get("generation_settings").map(|raw| raw.get().to_owned());
        if let Some(mut settings) = settings.as_deref().and_then(|raw| serde_json::from_str::<Members<'_>>(raw).ok()) {
            settings.set("stream", &false);
            reply.set("generation_settings", &settings);
        }
        reply.set("content", &self.0);
        Ok(Some(Assembled::Reply(serde_json::to_vec(&reply).expect("documents always serialise").into())))
    }
}
