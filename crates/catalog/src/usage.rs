//! `[usage]`: what of finished requests this machine keeps.
use crate::form;
use motorpool_vocab::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// `[usage]`: how long, and in how much room, it is kept what requests took. No prompt, no reply and no key is in it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UsageSettings {
    /// Records older than this go (2160h, which is 90 days).
    #[serde(with = "form::SomeTime")]
    pub keep: Duration,
    /// Most bytes of disk for all records; the oldest go (256 MiB). Zero: none is kept.
    #[serde(with = "form::Size")]
    pub disk: Bytes,
}

impl Default for UsageSettings {
    fn default() -> Self {
        Self { keep: Duration::from_hours(90 * 24), disk: Bytes::mib(256) }
    }
}
