//! [`Finding`]: one thing that was looked at, what was found, and what to do about it.
//!
//! `--json` prints them as they are: `[{"what", "state": "good" | "note" | "fault", "found", "cure"}]`, `cure` being
//! `null` exactly where the state is good. The order is always the same.
use crate::exit::Failure;
use serde::Serialize;
use std::fmt::Display;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) what: &'static str,
    pub(super) state: State,
    pub(super) found: String,
    /// What to do; absent when nothing is.
    pub(super) cure: Option<String>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Good,
    /// It works, with less.
    Note,
    /// Something will fail.
    Fault,
}

impl Finding {
    pub(super) fn good(what: &'static str, found: impl Display) -> Self {
        Self { what, state: State::Good, found: found.to_string(), cure: None }
    }

    pub(super) fn note(what: &'static str, found: impl Display, cure: impl Display) -> Self {
        Self { what, state: State::Note, found: found.to_string(), cure: Some(cure.to_string()) }
    }

    pub(super) fn fault(what: &'static str, failure: Failure) -> Self {
        Self { what, state: State::Fault, found: failure.what, cure: Some(failure.cure) }
    }
}
