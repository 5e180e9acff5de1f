//! A llama.cpp router: its listing, its capacity, one load, one unload, each idempotent and bounded.
//!
//! A load answers before its result is there, so it is watched: by polling, until the row is ready, failed, or stands
//! still for too long. An unload is watched until the row left the resident states.
use crate::{
    call::{Answer, CallError, Caller, Key},
    rows,
};
use http::HeaderMap;
use motorpool_residency::{Capacity, Listing, Phase, Seen};
use motorpool_vocab::{ServerUrl, TargetKey};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// From one look at a load or an unload to the next.
const PAUSE: Duration = Duration::from_millis(500);

/// How long calls may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A look at the listing or the capacity (1.5 s).
    pub look: Duration,
    /// A load without progress (120 s).
    pub load: Duration,
    /// From an unload until the row left (15 s).
    pub unload: Duration,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// No answer, or none that is one.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The server said no.
    #[error("the server answered {status}: {message}")]
    Refused {
        /// Its status.
        status: u16,
        /// Its message.
        message: String,
    },
    /// Rows without a state: it is no router, and not ours to manage.
    #[error("the server is no router")]
    Plain,
    /// The load was accepted, and failed.
    #[error("the load failed{}", exit_text(*exit_code))]
    LoadFailed {
        /// Of the child, where the server tells.
        exit_code: Option<i64>,
    },
    /// The row vanished while it was waited for.
    #[error("the server does not have this model any more")]
    Gone,
    /// Nothing moved for so long.
    #[error("nothing happened for {0:?}")]
    Stalled(Duration),
}

fn exit_text(code: Option<i64>) -> String {
    code.map_or_else(String::new, |code| format!(": its process ended with exit code {code}"))
}

/// One router.
#[derive(Clone, Debug)]
pub struct Router {
    caller: Caller,
    base: String,
    root: String,
    key: TargetKey,
    limits: Limits,
}

impl Default for Limits {
    fn default() -> Self {
        Self { look: Duration::from_millis(1500), load: Duration::from_mins(2), unload: Duration::from_secs(15) }
    }
}

impl Router {
    /// The router at `url`, called with its operator's `headers` and `key`.
    pub fn new(url: &ServerUrl, headers: HeaderMap, key: Option<&Key>, limits: Limits) -> Result<Self, CallError> {
        let caller = Caller::new(url, headers, key)?;
        Ok(Self { caller, base: url.base(), root: url.root(), key: url.key(), limits })
    }

    /// Which server it is.
    pub fn key(&self) -> &TargetKey {
        &self.key
    }

    /// What it has.
    pub async fn list(&self) -> Result<Listing, RouterError> {
        let answer = checked(self.caller.get(&format!("{}/models", self.base), self.limits.look).await?)?;
        rows::listing(&answer.json()?).ok_or(RouterError::Plain)
    }

    /// How much it takes; unknown when it cannot be read.
    pub async fn capacity(&self) -> Capacity {
        let answer = self.caller.get(&format!("{}/props", self.root), self.limits.look).await;
        let json = answer.ok().filter(Answer::is_success).and_then(|answer| answer.json().ok());
        json.map_or(Capacity::Unknown, |json| rows::capacity(&json))
    }

    /// Loads `model` and waits until it answers; one that is there already is done.
    pub async fn load(&self, model: &str) -> Result<(), RouterError> {
        let url = format!("{}/models/load", self.root);
        let answer = self.caller.post(&url, &json!({ "model": model }), self.limits.load).await?;
        if !(answer.is_success() || is_running(&answer)) {
            return Err(refused(&answer));
        }
        self.until_ready(model).await
    }

    /// Unloads `model` and waits until it left; one that is not there is done.
    pub async fn unload(&self, model: &str) -> Result<(), RouterError> {
        let url = format!("{}/models/unload", self.root);
        let answer = self.caller.post(&url, &json!({ "model": model }), self.limits.unload).await?;
        let is_away = answer.status == 400 && answer.message().contains("not running");
        if !(answer.is_success() || is_away) {
            return Err(refused(&answer));
        }
        let until = Instant::now() + self.limits.unload;
        loop {
            // One look that fails says nothing yet.
            if let Ok(listing) = self.list().await
                && !listing.holds(model)
            {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(RouterError::Stalled(self.limits.unload));
            }
            sleep(PAUSE).await;
        }
    }

    /// Waits until `model` answers, whoever loads it.
    pub(crate) async fn until_ready(&self, model: &str) -> Result<(), RouterError> {
        let until = Instant::now() + self.limits.load;
        loop {
            match self.list().await {
                Ok(listing) => match listing.find(model).map(phase) {
                    Some(Phase::Loaded | Phase::Sleeping) => return Ok(()),
                    Some(Phase::Failed(exit_code)) => return Err(RouterError::LoadFailed { exit_code }),
                    None => return Err(RouterError::Gone),
                    Some(Phase::Loading | Phase::Absent) => {}
                },
                Err(RouterError::Call(_)) => {}
                Err(other) => return Err(other),
            }
            if Instant::now() >= until {
                return Err(RouterError::Stalled(self.limits.load));
            }
            sleep(PAUSE).await;
        }
    }
}

fn phase(seen: &Seen) -> Phase {
    seen.phase
}

fn is_running(answer: &Answer) -> bool {
    answer.status == 400 && answer.message().contains("already running")
}

fn checked(answer: Answer) -> Result<Answer, RouterError> {
    if answer.is_success() { Ok(answer) } else { Err(refused(&answer)) }
}

fn refused(answer: &Answer) -> RouterError {
    RouterError::Refused { status: answer.status, message: answer.message() }
}
