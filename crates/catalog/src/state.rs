//! What an engine holds of sessions and outlives it: what a model says ([`SessionState`]), a machine
//! ([`SessionStateSettings`]) and an engine ([`StateCalls`]).
use crate::{form, quantity::checked};
use motorpool_vocab::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Whether what an engine holds of sessions is written to disk before it stops, and read back when they return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Unless layers of the model see a window of the context only: what is read back would be computed again.
    #[default]
    Auto,
    /// Yes, and such layers keep the whole context for it, which is planned and charged.
    On,
    /// No.
    Off,
}

/// `[session_state]`: what of it this machine keeps.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionStateSettings {
    /// Most bytes of disk for the contexts of all sessions; the least recently used go (8 GiB). Zero: none is kept.
    #[serde(with = "form::Size")]
    pub disk: Bytes,
}

impl Default for SessionStateSettings {
    fn default() -> Self {
        Self { disk: Bytes::gib(8) }
    }
}

/// How an engine writes what a slot holds to a file, and reads it back; any 2xx is a success. Files lie in
/// `{session_state.dir}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateCalls {
    /// Writes.
    pub save: StateCall,
    /// Reads.
    pub restore: StateCall,
}

/// A request to `POST`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateCall {
    /// Its path; `{slot}` stands for the number of the slot.
    #[serde(deserialize_with = "path")]
    path: String,
    /// Its body; `{file}` stands for the name of the file.
    #[serde(deserialize_with = "body")]
    body: String,
}

impl StateCall {
    /// Path and body for this slot and this file, a name of ASCII letters, digits, `.` and `-`.
    pub fn with(&self, slot: u32, file: &str) -> (String, String) {
        (self.path.replace("{slot}", &slot.to_string()), self.body.replace("{file}", file))
    }
}

fn path<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    checked(reader, "a path such as \"/slots/{slot}\"", |text| {
        let plain = text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
        match (plain, text.contains("{slot}")) {
            (false, _) => Err(format!("`{text}` is no path: it begins with `/` and holds no space")),
            (_, false) => Err(format!("`{text}` names no slot: `{{slot}}` stands for its number")),
            (true, true) => Ok(text.to_owned()),
        }
    })
}

fn body<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    checked(reader, "JSON such as '{\"filename\":\"{file}\"}'", |text| {
        match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            Err(e) => Err(format!("no valid JSON: {e}")),
            Ok(_) if !text.contains("{file}") => Err(format!("`{text}` names no file: `{{file}}` stands for its name")),
            Ok(_) => Ok(text.to_owned()),
        }
    })
}
