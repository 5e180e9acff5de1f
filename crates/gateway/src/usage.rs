//! What each request to a model took: [`UsageRecord`], one for each, aborted ones too, handed to whoever keeps them.
//!
//! ```text
//! request ─► Recorder ─► Job ─► Relay: first result, counts as they pass ─► Watched: the last byte ─► outlet
//!                └── the last of its holders is dropped: nobody said how it ended, so it was aborted
//! ```
//!
//! * Every request that a model would answer gives exactly one record, refused ones included.
//! * What the engine did not count is unknown, never 0.
//! * The outlet never holds a request up: when it is full, records are lost, which is said once and counted.
mod line;
mod sink;
mod tap;
#[cfg(test)]
mod tests;
mod watched;

use crate::{discretion::Sight, errors::Failure, keys::Rights, traces};
use motorpool_vocab::{EngineKey, Spawn};
use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant, SystemTime},
};
use tokio::sync::mpsc;
use tracing::Span;

pub(crate) use sink::Sink;
pub(crate) use tap::Tap;
pub(crate) use watched::watched;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its reply came to its end.
    Finished,
    /// It was refused, or broke off, with this code of ours.
    Failed(&'static str),
    /// Its client went.
    Aborted,
}

/// Tokens, as the engine counted them; `None`: it did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tokens {
    /// Of the prompt, cached ones among them.
    pub prompt: Option<u64>,
    /// Of the prompt, those that were read before.
    pub cached: Option<u64>,
    /// Of the reply.
    pub generated: Option<u64>,
    /// Generated in a second, as the engine measured it.
    pub per_second: Option<f64>,
}

/// What one request took.
#[derive(Clone, Debug, PartialEq)]
pub struct UsageRecord {
    /// When its head had come, by the clock on the wall.
    pub at: SystemTime,
    /// Its id.
    pub request: String,
    /// The path it came by, without query.
    pub path: String,
    /// Its model, once that was known; one of somebody else's server as `server/model`.
    pub model: Option<String>,
    /// The server of somebody else's that has it, by its id.
    pub server: Option<String>,
    /// The name of its key, if it came with one.
    pub key: Option<Arc<str>>,
    /// What was counted.
    pub tokens: Tokens,
    /// From its head to the engine's first result.
    pub first_result_within: Option<Duration>,
    /// From its head to its end.
    pub took: Duration,
    /// How it ended.
    pub outcome: Outcome,
}

impl UsageRecord {
    /// Tokens that were generated in a second: as the engine measured it, else by when they came.
    fn pace(&self) -> Option<f64> {
        let tokens = &self.tokens;
        let seen = || {
            // The first token came with the first result.
            let more = u32::try_from(tokens.generated?).ok()?.checked_sub(1).filter(|more| *more > 0)?;
            let within = self.took.saturating_sub(self.first_result_within?);
            (!within.is_zero()).then(|| f64::from(more) / within.as_secs_f64())
        };
        tokens.per_second.filter(|pace| pace.is_finite() && *pace >= 0.0).or_else(seen)
    }
}

/// Where records go.
pub type Outlet = mpsc::Sender<UsageRecord>;

/// One request's record, while it is written. Clones write the same one.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(Arc<Draft>);

#[derive(Debug)]
struct Draft {
    began: Instant,
    record: Mutex<UsageRecord>,
    sink: Arc<Sink>,
    sight: OnceLock<Sight>,
    /// Ends with this.
    span: Span,
    /// The engine that had it last.
    served_by: Mutex<Option<(EngineKey, Spawn)>>,
}

impl Recorder {
    /// Of a request that `span` stands for.
    pub(crate) fn new(sink: Arc<Sink>, request: &str, path: &str, span: Span) -> Self {
        let record = UsageRecord {
            at: SystemTime::now(),
            request: request.to_owned(),
            path: path.to_owned(),
            model: None,
            server: None,
            key: None,
            tokens: Tokens::default(),
            first_result_within: None,
            took: Duration::ZERO,
            outcome: Outcome::Aborted,
        };
        Self(Arc::new(Draft {
            began: Instant::now(),
            record: Mutex::new(record),
            sink,
            sight: OnceLock::new(),
            span,
            served_by: Mutex::default(),
        }))
    }

    /// The request's id.
    pub(crate) fn request(&self) -> String {
        self.0.record.lock().unwrap_or_else(PoisonError::into_inner).request.clone()
    }

    /// Tokens of the answer, as far as they were counted.
    pub(crate) fn generated(&self) -> Option<u64> {
        self.0.record.lock().unwrap_or_else(PoisonError::into_inner).tokens.generated
    }

    /// What its parts are spans below.
    pub(crate) fn span(&self) -> &Span {
        &self.0.span
    }

    fn write(&self, change: impl FnOnce(&mut UsageRecord)) {
        change(&mut self.0.record.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// It came with these rights.
    pub(crate) fn is_by(&self, rights: Option<&Rights>) {
        let _ = self.0.sight.set(Sight::of(rights));
        self.write(|record| record.key = rights.map(Rights::name));
    }

    /// How much its client may be told.
    pub(crate) fn sight(&self) -> Sight {
        self.0.sight.get().copied().unwrap_or_default()
    }

    pub(crate) fn is_for(&self, model: &str) {
        self.write(|record| record.model = Some(model.to_owned()));
    }

    /// This child of an engine has it now.
    pub(crate) fn is_served_by(&self, key: &EngineKey, spawn: Spawn) {
        *self.0.served_by.lock().unwrap_or_else(PoisonError::into_inner) = Some((key.clone(), spawn));
    }

    /// It is for a model of a server of somebody else's.
    pub(crate) fn is_for_foreign(&self, server: &str, model: &str) {
        self.write(|record| {
            record.server = Some(server.to_owned());
            record.model = Some(model.to_owned());
        });
    }

    /// The engine has given something.
    pub(crate) fn has_result(&self) {
        let within = self.0.began.elapsed();
        self.write(|record| {
            record.first_result_within.get_or_insert(within);
        });
    }

    /// The engine has counted; what it does not say stays as it was.
    pub(crate) fn counted(&self, tokens: Tokens) {
        self.write(|record| {
            let known = &mut record.tokens;
            known.prompt = tokens.prompt.or(known.prompt);
            known.cached = tokens.cached.or(known.cached);
            known.generated = tokens.generated.or(known.generated);
            known.per_second = tokens.per_second.or(known.per_second);
        });
    }

    /// Why it has no reply, or not all of it.
    pub(crate) fn failed(&self, failure: &Failure) {
        self.write(|record| record.outcome = Outcome::Failed(failure.verdict().code));
    }

    /// The engine's refusal goes to the client as it is.
    pub(crate) fn refused_by_engine(&self) {
        self.write(|record| record.outcome = Outcome::Failed("engine_error"));
    }

    /// Its reply came to its end; what failed before stays so.
    pub(crate) fn finished(&self) {
        self.write(|record| {
            if record.outcome == Outcome::Aborted {
                record.outcome = Outcome::Finished;
            }
        });
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let record = self.record.get_mut().unwrap_or_else(PoisonError::into_inner).clone();
        let record = UsageRecord { took: self.began.elapsed(), ..record };
        line::tell(&record);
        traces::ended(&self.span, &record);
        let served_by = self.served_by.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some((key, spawn)), Some(pace)) = (served_by, record.pace()) {
            self.sink.saw(key, spawn, pace);
        }
        self.sink.take(record);
    }
}

pub(crate) fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
