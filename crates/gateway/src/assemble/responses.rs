//! Replies of `/v1/responses`: the last event holds the reply, less two things that the engine says only of a whole one.
use super::{AssembleError, Assembled, members::Members, refused_by};
use crate::sse::Event;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

/// In the order in which a whole reply has them.
const ORDER: [&str; 8] = ["completed_at", "created_at", "id", "model", "object", "output", "status", "usage"];

pub(super) fn take_event(event: &Event) -> Result<Option<Assembled>, AssembleError> {
    if let Some(refused) = refused_by(event)? {
        return Ok(Some(refused));
    }
    let part: Part<'_> = serde_json::from_slice(&event.data).map_err(AssembleError::NotAChunk)?;
    if part.r#type != "response.completed" {
        return Ok(None);
    }
    let response = part.response.ok_or(AssembleError::NoBeginning)?;
    let mut reply: Members<'_> = serde_json::from_str(response.get()).map_err(AssembleError::NotAChunk)?;
    if let Some(at) = reply.get("created_at").map(ToOwned::to_owned) {
        reply.set("completed_at", &at);
    }
    if let Some(output) = reply.get("output").map(ToOwned::to_owned) {
        let mut items: Vec<Members<'_>> = serde_json::from_str(output.get()).map_err(AssembleError::NotAChunk)?;
        for item in items.iter_mut().filter(|item| item.get("status").is_none()) {
            item.set("status", &"completed");
        }
        reply.set("output", &items);
    }
    let place = |name: &str| ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len());
    reply.0.sort_by_key(|(name, _)| place(name));
    Ok(Some(Assembled::Reply(serde_json::to_vec(&reply).expect("documents always serialise").into())))
}
