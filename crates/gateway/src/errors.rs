//! [`Failure`]: every way in which a request ends without its reply, and what the client reads then.
//!
//! One exhaustive match, [`Failure::verdict`], maps it to status, code, type and advice; `form` puts that into the words
//! of the API that was called, as a response or, after a stream has begun, as its error event. `Display` is the message.
mod form;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use motorpool_vocab::FailureClass;
use std::time::Duration;

/// Why a request ends without its reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No such model or alias.
    #[error("the model `{name}` does not exist{}", did_you_mean(.nearest))]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// Names like it.
        nearest: Vec<String>,
    },
    /// The request names no model and there is no default one.
    #[error("the request names no model; there are: {}", .0.join(", "))]
    NoModel(Vec<String>),
    /// Two places name models that are not the same.
    #[error("the request names two models: `{0}` and `{1}`")]
    ModelConflict(String, String),
    /// The model is there for something else.
    #[error(
        "the model `{model}` is for {is_for}, not for {asked}; `capabilities` in its catalog entry says what it is for"
    )]
    WrongPurpose {
        /// Its id.
        model: String,
        /// What it is for.
        is_for: String,
        /// What it was asked for.
        asked: &'static str,
    },
    /// It does not fit.
    #[error("{message}")]
    CapacityDenied {
        /// The arithmetic, for people.
        message: String,
        /// Whether it might fit later.
        retry: Retry,
    },
    /// It does not fit with the context it is to have; a shorter one would.
    #[error("{message}")]
    ContextDenied {
        /// The arithmetic, for people.
        message: String,
        /// Whether it might fit later.
        retry: Retry,
    },
    /// Nothing is started on graphics devices for a while.
    #[error("{0}")]
    GpuPaused(String),
    /// What must go did not drain in time.
    #[error("{0}")]
    EngineBusy(String),
    /// Too many wait already.
    #[error("{0}")]
    QueueFull(String),
    /// An operator took it out of the queue.
    #[error("{0}")]
    Cancelled(String),
    /// It waited too long in all.
    #[error("{0}")]
    QueueTimeout(String),
    /// The engine did not become ready.
    #[error("{message}")]
    StartFailed {
        /// What kind of failure.
        class: FailureClass,
        /// For people.
        message: String,
    },
    /// The engine failed to start too often: nothing is started for a while.
    #[error("{message}")]
    BreakerOpen {
        /// For people.
        message: String,
        /// When the next start may be tried, in seconds.
        seconds: u8,
    },
    /// The engine ended before its reply did.
    #[error("the engine ended while it served this request{}", in_brackets(.0.as_ref()))]
    EngineCrashed(Option<FailureClass>),
    /// It served and did not move any more: it was stopped for that.
    #[error("the engine did not serve any more and was stopped{}", in_brackets(.0.as_ref()))]
    EngineUnwell(Option<FailureClass>),
    /// The engine lives and answers nonsense.
    #[error("the engine's reply cannot be read: {0}")]
    EngineUnreadable(String),
    /// The engine refused in a form that is not its API's.
    #[error("the engine answered {}", as_text(.text, *.status))]
    EngineSaid {
        /// Its status, 400 to 599.
        status: StatusCode,
        /// What it wrote.
        text: String,
    },
    /// The engine said nothing for too long.
    #[error("the engine gave no {what} within {} s", .within.as_secs())]
    EngineTimeout {
        /// What was waited for.
        what: Awaited,
        /// How long.
        within: Duration,
    },
    /// Somebody unloaded it by force.
    #[error("{0}")]
    Evicted(String),
    /// An operator has drained it.
    #[error("{0}")]
    Drained(String),
    /// It cannot be killed.
    #[error("engine {0} cannot be killed; it stays charged")]
    EngineStuck(String),
    /// A server that somebody else runs has no room for the model by our rules.
    #[error("{0}")]
    WillNotFit(String),
    /// Somebody else's server does not have the model, by its own word.
    #[error("{0}")]
    NotOffered(String),
    /// Another one of us changes that server.
    #[error("{0}")]
    ResidencyBusy(String),
    /// That server did not load the model, or did not answer.
    #[error("{0}")]
    ExternalFailed(String),
    /// We are leaving.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// No room for one more.
    #[error("no room for this request: {0}")]
    Overloaded(&'static str),
    /// The body is not what it must be.
    #[error("{message}")]
    InvalidRequest {
        /// What is wrong.
        message: String,
        /// The member at fault.
        param: Option<&'static str>,
    },
    /// What the files say cannot be taken over.
    #[error("{0}")]
    InvalidConfiguration(String),
    /// The body is longer than `limits.body`.
    #[error("the body is longer than the {limit} bytes of `limits.body`")]
    BodyTooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// It is longer than anything that is asked by such a call.
    #[error("the body is longer than the {limit} bytes that this path takes")]
    CallTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// A content type or coding we do not read.
    #[error("{0}")]
    UnsupportedMedia(&'static str),
    /// A page of somebody else's asks.
    #[error("requests from the origin `{0}` are not allowed here; `server.origins` can allow it")]
    OriginNotAllowed(String),
    /// It was addressed to a name that is not ours.
    #[error("the host `{0}` is not one of this server's; `server.hosts` can allow it")]
    HostNotAllowed(String),
    /// No key, or none of ours.
    #[error("{0}")]
    InvalidKey(&'static str),
    /// More than its key, or its address, may ask.
    #[error("{why}")]
    RateLimited {
        /// What there was too much of.
        why: &'static str,
        /// When it may be tried again, in seconds.
        seconds: u8,
    },
    /// Not with these rights.
    #[error("{0}")]
    NotAllowed(&'static str),
    /// Nothing is there.
    #[error("there is nothing at {path}{hint}")]
    NotFound {
        /// The path asked for.
        path: String,
        /// What might have been meant, with its own punctuation.
        hint: &'static str,
    },
    /// Something is there, for other methods.
    #[error("{path} takes {allow}")]
    MethodNotAllowed {
        /// The path asked for.
        path: String,
        /// The methods it takes.
        allow: &'static str,
    },
    /// This server does not do that.
    #[error("{0} is not offered by this server")]
    NotSupported(&'static str),
    /// HTTP/1.0 and 1.1 only.
    #[error("this server speaks HTTP/1.1")]
    VersionNotSupported,
    /// A model's file did not come.
    #[error("{0}")]
    PullFailed(String),
    /// What earlier requests took cannot be read.
    #[error("what earlier requests took cannot be read: {0}")]
    HistoryFailed(String),
    /// Our own fault.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

/// What an engine was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Its socket to accept.
    Connection,
    /// The head of its reply.
    FirstResult,
    /// More of its reply.
    NextFrame,
}

/// What a client should do with a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same request fails again.
    Never,
    /// It may work at once.
    Now,
    /// It may work after so many seconds, 1 to 60.
    After(u8),
}

/// How a failure shows on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The status, or the one it would have had.
    pub status: StatusCode,
    /// Our stable name for it.
    pub code: &'static str,
    /// OpenAI's `type`.
    pub kind: &'static str,
    /// OpenAI's `param`.
    pub param: Option<&'static str>,
    /// What to do.
    pub retry: Retry,
}

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";

/// Of an engine's own error, so much is shown when it is wrapped.
const SAID_BYTES: usize = 1000;

impl Failure {
    /// What an engine's error document says: its message, or the beginning of its text when it has none.
    pub fn of_engine(status: StatusCode, document: &[u8]) -> Self {
        let parsed: Option<serde_json::Value> = serde_json::from_slice(document).ok();
        let message = parsed.as_ref().and_then(|d| d["error"]["message"].as_str().or_else(|| d["error"].as_str()));
        let text = message.map_or(String::from_utf8_lossy(document), Into::into);
        Self::EngineSaid { status, text: text.chars().take(SAID_BYTES).collect() }
    }

    /// Status, code, type and advice.
    pub fn verdict(&self) -> Verdict {
        use Retry::{After, Never, Now};
        let (status, code, kind, param, retry) = match self {
            Self::UnknownModel { .. } | Self::NotOffered(_) => (404, "model_not_found", INVALID, Some("model"), Never),
            Self::NoModel(_) | Self::WrongPurpose { .. } => (400, "invalid_request", INVALID, Some("model"), Never),
            Self::ModelConflict(..) => (400, "model_conflict", INVALID, Some("model"), Never),
            Self::CapacityDenied { retry, .. } => (503, "capacity_denied", SERVER, None, *retry),
            Self::ContextDenied { retry, .. } => (503, "context_denied", SERVER, None, *retry),
            Self::GpuPaused(_) => (503, "gpu_paused", SERVER, None, After(60)),
            Self::EngineBusy(_) => (503, "engine_busy", SERVER, None, After(5)),
            Self::QueueFull(_) => (429, "queue_full", SERVER, None, After(5)),
            Self::Cancelled(_) => (503, "cancelled", SERVER, None, Never),
            Self::QueueTimeout(_) => (504, "queue_timeout", SERVER, None, Now),
            Self::StartFailed { class: FailureClass::DeviceLost, .. } => (503, "device_lost", SERVER, None, Never),
            Self::StartFailed { class, .. } if class.is_permanent() => {
                (500, "engine_start_failed", SERVER, None, Never)
            }
            Self::StartFailed { .. } => (502, "engine_start_failed", SERVER, None, Now),
            Self::BreakerOpen { seconds, .. } => (503, "breaker_open", SERVER, None, After(*seconds)),
            Self::EngineCrashed(_) | Self::EngineUnwell(_) => (502, "engine_crashed", SERVER, None, Now),
            Self::EngineUnreadable(_) => (502, "engine_unreadable", SERVER, None, Never),
            Self::EngineSaid { status, .. } if status.is_client_error() => {
                (status.as_u16(), "engine_error", INVALID, None, Never)
            }
            Self::EngineSaid { status, .. } => (status.as_u16(), "engine_error", SERVER, None, Now),
            Self::EngineTimeout { .. } => (504, "engine_timeout", SERVER, None, Now),
            Self::Evicted(_) => (503, "evicted", SERVER, None, After(1)),
            Self::Drained(_) => (503, "drained", SERVER, None, After(30)),
            Self::EngineStuck(_) => (500, "engine_stuck", SERVER, None, Never),
            Self::WillNotFit(_) => (503, "will_not_fit", SERVER, None, After(10)),
            Self::ResidencyBusy(_) => (503, "residency_busy", SERVER, None, After(5)),
            Self::ExternalFailed(_) => (502, "external_failed", SERVER, None, Now),
            Self::ShuttingDown => (503, "shutting_down", SERVER, None, After(5)),
            Self::Overloaded(_) => (503, "overloaded", SERVER, None, After(2)),
            Self::InvalidRequest { param, .. } => (400, "invalid_request", INVALID, *param, Never),
            Self::InvalidConfiguration(_) => (400, "invalid_configuration", INVALID, None, Never),
            Self::BodyTooLarge { .. } | Self::CallTooLarge { .. } => (413, "body_too_large", INVALID, None, Never),
            Self::UnsupportedMedia(_) => (415, "unsupported_media_type", INVALID, None, Never),
            Self::OriginNotAllowed(_) => (403, "origin_not_allowed", INVALID, None, Never),
            Self::HostNotAllowed(_) => (403, "host_not_allowed", INVALID, None, Never),
            Self::InvalidKey(_) => (401, "invalid_key", INVALID, None, Never),
            Self::RateLimited { seconds, .. } => (429, "rate_limited", SERVER, None, After(*seconds)),
            Self::NotAllowed(_) => (403, "not_allowed", INVALID, None, Never),
            Self::NotFound { .. } => (404, "not_found", INVALID, None, Never),
            Self::MethodNotAllowed { .. } => (405, "method_not_allowed", INVALID, None, Never),
            Self::NotSupported(_) => (501, "not_supported", INVALID, None, Never),
            Self::VersionNotSupported => (505, "version_not_supported", INVALID, None, Never),
            Self::PullFailed(_) => (502, "pull_failed", SERVER, None, Now),
            Self::HistoryFailed(_) => (500, "history_failed", SERVER, None, Now),
            Self::Internal(_) => (500, "internal", SERVER, None, Never),
        };
        let status = StatusCode::from_u16(status).expect("every status above is one");
        Verdict { status, code, kind, param, retry }
    }
}

impl Verdict {
    /// What the headers say of it.
    pub fn write_headers(&self, headers: &mut HeaderMap) {
        headers.insert("x-motorpool-code", HeaderValue::from_static(self.code));
        let again = if self.retry == Retry::Never { "false" } else { "true" };
        headers.insert("x-should-retry", HeaderValue::from_static(again));
        if let Retry::After(seconds) = self.retry {
            headers.insert(header::RETRY_AFTER, u16::from(seconds.clamp(1, 60)).into());
        }
    }
}

fn did_you_mean(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!(", did you mean `{}`?", nearest.join("` or `")) }
}

fn as_text(text: &str, status: StatusCode) -> String {
    let text = text.trim();
    if text.is_empty() { format!("with status {status}") } else { format!("with status {status}: {text}") }
}

fn in_brackets(class: Option<&FailureClass>) -> String {
    class.map(|c| format!(" ({c})")).unwrap_or_default()
}

impl std::fmt::Display for Awaited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connection => "connection",
            Self::FirstResult => "first result",
            Self::NextFrame => "further result",
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn one_of_each() -> Vec<(Failure, u16, &'static str)> {
        let text = || "why".to_owned();
        let start = |class| Failure::StartFailed { class, message: text() };
        vec![
            (Failure::UnknownModel { name: text(), nearest: vec![] }, 404, "model_not_found"),
            (Failure::NoModel(vec![]), 400, "invalid_request"),
            (Failure::ModelConflict(text(), text()), 400, "model_conflict"),
            (Failure::CapacityDenied { message: text(), retry: Retry::After(10) }, 503, "capacity_denied"),
            (Failure::ContextDenied { message: text(), retry: Retry::Never }, 503, "context_denied"),
            (Failure::GpuPaused(text()), 503, "gpu_paused"),
            (Failure::EngineBusy(text()), 503, "engine_busy"),
            (Failure::QueueFull(text()), 429, "queue_full"),
            (Failure::Cancelled(text()), 503, "cancelled"),
            (Failure::QueueTimeout(text()), 504, "queue_timeout"),
            (start(FailureClass::LoadStalled), 502, "engine_start_failed"),
            (start(FailureClass::ModelCorrupt), 500, "engine_start_failed"),
            (start(FailureClass::DeviceLost), 503, "device_lost"),
            (Failure::BreakerOpen { message: text(), seconds: 200 }, 503, "breaker_open"),
            (Failure::EngineCrashed(Some(FailureClass::Killed)), 502, "engine_crashed"),
            (Failure::EngineUnwell(Some(FailureClass::Unresponsive)), 502, "engine_crashed"),
            (Failure::EngineUnreadable(text()), 502, "engine_unreadable"),
            (Failure::EngineSaid { status: StatusCode::NOT_FOUND, text: text() }, 404, "engine_error"),
            (Failure::EngineSaid { status: StatusCode::BAD_GATEWAY, text: text() }, 502, "engine_error"),
            (
                Failure::EngineTimeout { what: Awaited::FirstResult, within: Duration::from_mins(10) },
                504,
                "engine_timeout",
            ),
            (Failure::Evicted(text()), 503, "evicted"),
            (Failure::Drained(text()), 503, "drained"),
            (Failure::NotOffered(text()), 404, "model_not_found"),
            (Failure::WillNotFit(text()), 503, "will_not_fit"),
            (Failure::ResidencyBusy(text()), 503, "residency_busy"),
            (Failure::ExternalFailed(text()), 502, "external_failed"),
            (Failure::EngineStuck(text()), 500, "engine_stuck"),
            (Failure::ShuttingDown, 503, "shutting_down"),
            (Failure::Overloaded("bodies"), 503, "overloaded"),
            (Failure::InvalidRequest { message: text(), param: Some("model") }, 400, "invalid_request"),
            (Failure::InvalidConfiguration(text()), 400, "invalid_configuration"),
            (Failure::BodyTooLarge { limit: 7 }, 413, "body_too_large"),
            (Failure::CallTooLarge { limit: 7 }, 413, "body_too_large"),
            (Failure::UnsupportedMedia("gzip"), 415, "unsupported_media_type"),
            (Failure::OriginNotAllowed(text()), 403, "origin_not_allowed"),
            (Failure::HostNotAllowed(text()), 403, "host_not_allowed"),
            (Failure::InvalidKey("no"), 401, "invalid_key"),
            (Failure::RateLimited { why: "too many", seconds: 3 }, 429, "rate_limited"),
            (Failure::NotAllowed("no"), 403, "not_allowed"),
            (Failure::NotFound { path: text(), hint: "" }, 404, "not_found"),
            (Failure::MethodNotAllowed { path: text(), allow: "POST" }, 405, "method_not_allowed"),
            (Failure::NotSupported("that"), 501, "not_supported"),
            (Failure::VersionNotSupported, 505, "version_not_supported"),
            (Failure::PullFailed(text()), 502, "pull_failed"),
            (Failure::HistoryFailed(text()), 500, "history_failed"),
            (Failure::Internal("oops"), 500, "internal"),
        ]
    }

    #[test]
    fn every_failure_has_its_status_and_code() {
        for (failure, status, code) in one_of_each() {
            let verdict = failure.verdict();
            assert_eq!((verdict.status.as_u16(), verdict.code), (status, code));
        }
    }

    #[test]
    fn advice_stands_in_headers_with_whole_seconds() {
        for (failure, ..) in one_of_each() {
            let mut headers = HeaderMap::new();
            let verdict = failure.verdict();
            verdict.write_headers(&mut headers);
            let text = |name| headers.get(name).map(|v| v.to_str().expect("ASCII").to_owned());
            assert_eq!(text("x-motorpool-code").as_deref(), Some(verdict.code));
            let again = verdict.retry != Retry::Never;
            assert_eq!(text("x-should-retry"), Some(again.to_string()));
            let after = text("retry-after").map(|s| s.parse::<u8>().expect("whole seconds"));
            assert!(after.is_none_or(|s| (1..=60).contains(&s)));
            let is_full = verdict.status == StatusCode::TOO_MANY_REQUESTS;
            assert!(verdict.status.is_server_error() || is_full || !again, "{verdict:?}");
        }
    }

    #[test]
    fn the_message_helps() {
        let failure = Failure::UnknownModel { name: "gema".into(), nearest: vec!["gemma".into(), "gemini".into()] };
        assert_eq!(failure.to_string(), "the model `gema` does not exist, did you mean `gemma` or `gemini`?");
    }
}
