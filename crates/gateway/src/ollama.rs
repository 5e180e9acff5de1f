//! Ollama's API: what its clients ask, in the words of an engine that speaks OpenAI's API, and the engine's stream in
//! Ollama's lines.
//!
//! ```text
//! /api/chat, /api/generate ─ request ─► /v1/chat/completions (raw: /v1/completions, with a suffix: /infill)
//!     lines, or one document ◄─ reply ─┘ streams in any case
//! /api/embed, /api/embeddings ─────────► /v1/embeddings, one document
//! /api/tags, ps, show, version ─► listing: the catalog and the last snapshot
//! ```
//!
//! Boundary: bytes in, bytes out; `serve` alone knows of engines and servers. A body is read once, message by message: what is built of
//! it is never much longer than it was written. What concerns the load of a model (`num_ctx`, `num_gpu`) is the catalog's.
mod embed;
mod lines;
mod listing;
mod options;
mod prompt;
mod reply;
mod request;
mod serve;
mod stamp;
#[cfg(test)]
mod tests;

use embed::embedded;
pub(crate) use lines::{NDJSON, Opened, Opening};
pub(crate) use listing::page;
pub use reply::{Ended, Recast, Style, Terms};
pub use request::{Asked, Call, Delivery, ForEngine, NotTranslated, translate};
pub(crate) use serve::{Abroad, abroad, serve};
pub use stamp::rfc3339;

/// What Ollama's clients are told that they speak with.
pub const VERSION: &str = "0.12.0";

/// A path of Ollama's that no engine answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// Every model.
    Tags,
    /// Those that are loaded.
    Loaded,
    /// One model.
    Show,
    /// What we are compatible with.
    Version,
    /// A model's file is to be fetched.
    Pull,
}

/// How a translated reply is made from the engine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Translation {
    pub(crate) call: Call,
    pub(crate) delivery: Delivery,
    /// The model's name, as it was asked for.
    pub(crate) model: String,
    /// When the request came.
    pub(crate) began: std::time::Instant,
}
