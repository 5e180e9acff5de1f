//! `[breaker]` and `[health]`: when starts are given up for a while, and when an engine that is ready is. And what becomes
//! of work whose client has gone.
use crate::form;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When starts of an engine that fail again and again are given up for a while.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerSettings {
    /// After so many failed starts, 0 to 1,000 (3); 0: never.
    #[serde(with = "form::Whole::<0, 1_000>")]
    pub failures: u32,
    /// Within so long (60 s).
    #[serde(with = "form::SomeTime")]
    pub within: Duration,
    /// Nothing is started for so long then; requests are answered with 503 (60 s).
    #[serde(with = "form::SomeTime")]
    pub pause: Duration,
}

/// What becomes of an engine's reply when its client has gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// Its connection is closed, which frees the slot at once.
    #[default]
    Abort,
    /// It is read to its end, for `limits.first_result` at most: the engine cannot bear an abort.
    Drain,
}

/// When an engine that is ready is asked whether it serves, and when it is stopped because it does not.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HealthSettings {
    /// One that produced nothing for so long is asked, and again after so long (15 s).
    #[serde(with = "form::SomeTime")]
    pub every: Duration,
    /// Longest time for the answer (5 s).
    #[serde(with = "form::SomeTime")]
    pub timeout: Duration,
    /// Longest time for the one inference that is asked of an engine under suspicion, and for the view of its slots (30 s).
    #[serde(with = "form::SomeTime")]
    pub inference: Duration,
    /// So many questions in a row without an answer make it suspect, 1 to 1,000 (3).
    #[serde(with = "form::Whole::<1, 1_000>")]
    pub misses: u32,
    /// With all slots taken, so long without a token or progress of a prompt makes it suspect (2 min); as long again there,
    /// or after an inference that was late, and what it serves is cut.
    #[serde(with = "form::SomeTime")]
    pub silent: Duration,
    /// So many failed requests in a row make it suspect, 0 to 1,000 (3); 0: none do.
    #[serde(with = "form::Whole::<0, 1_000>")]
    pub failures: u32,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { failures: 3, within: Duration::from_mins(1), pause: Duration::from_mins(1) }
    }
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(15),
            timeout: Duration::from_secs(5),
            inference: Duration::from_secs(30),
            misses: 3,
            silent: Duration::from_mins(2),
            failures: 3,
        }
    }
}
