//! What earlier requests took, asked of whoever keeps their records: [`UsageHistory`].
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

/// How requests are put together to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Those of a model in an hour of UTC.
    Hour,
    /// Those of a model in a day of UTC.
    Day,
    /// Those of a model.
    Model,
    /// Those of a key with a model.
    Key,
}

impl By {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hour, Self::Day, Self::Model, Self::Key];

    /// The name in the interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Model => "model",
            Self::Key => "key",
        }
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Requests that came at this time or later.
    pub since: SystemTime,
    /// How they are put together.
    pub by: By,
}

/// What some requests took together. A count is `None` when no engine told it for any of them.
#[derive(Clone, Debug, PartialEq)]
pub struct UsageRow {
    /// When the hour or day began; without those, from when on it was asked.
    pub from: SystemTime,
    /// Their model; `None`: they asked for none that is known.
    pub model: Option<String>,
    /// The name of their key, where that was asked; `None`: they came without one.
    pub key: Option<String>,
    /// How many there were.
    pub requests: u64,
    /// Of those, refused ones and broken ones.
    pub errors: u64,
    /// Of those, ones whose client went.
    pub aborted: u64,
    /// Tokens of prompts, cached ones among them.
    pub prompt: Option<u64>,
    /// Tokens of prompts that were read before.
    pub cached: Option<u64>,
    /// Tokens of replies.
    pub generated: Option<u64>,
    /// The sum of their times, from head to end.
    pub took: Duration,
    /// The mean time to an engine's first result, of those that got one.
    pub first_result_within: Option<Duration>,
}

/// The rows, on their way; an error is for people.
pub type Remembering = Pin<Box<dyn Future<Output = Result<Vec<UsageRow>, String>> + Send>>;

/// Whoever keeps records.
#[derive(Clone)]
pub struct UsageHistory {
    ask: Arc<dyn Fn(Question) -> Remembering + Send + Sync>,
    n_lost: Arc<AtomicU64>,
}

impl UsageHistory {
    /// By this function, which returns at once; `n_lost` is how many records could not be kept.
    pub fn new(ask: impl Fn(Question) -> Remembering + Send + Sync + 'static, n_lost: Arc<AtomicU64>) -> Self {
        Self { ask: Arc::new(ask), n_lost }
    }

    pub(crate) fn n_lost(&self) -> u64 {
        self.n_lost.load(Ordering::Relaxed)
    }

    pub(crate) async fn ask(&self, question: Question) -> Result<Vec<UsageRow>, String> {
        (self.ask)(question).await
    }
}

impl fmt::Debug for UsageHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UsageHistory")
    }
}
