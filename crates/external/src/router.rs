//! A llama.cpp router: its listing, its capacity, one load, one unload, each idempotent and bounded.
//!
//! A load answers before its result is there, so it is watched: by polling, until the row is ready, failed, or stands
//! still for too long. An unload is watched until the row left the resident states.
use crate::{
    call::{Answer, Caller},
    error::{ServerError, checked, refused},
    rows,
    target::{Limits, Target},
};
use motorpool_residency::{Capacity, Listing, Phase, Seen};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// From one look at a load or an unload to the next.
const PAUSE: Duration = Duration::from_millis(500);

/// One router.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    caller: Caller,
    base: String,
    root: String,
    limits: Limits,
}

impl Router {
    /// The router of `target`, spoken to by `caller`.
    pub(crate) fn new(target: &Target, caller: Caller) -> Self {
        Self { caller, base: target.url.base(), root: target.url.root(), limits: target.limits }
    }

    /// What it has.
    pub(crate) async fn list(&self) -> Result<Listing, ServerError> {
        let answer = checked(self.caller.get(&format!("{}/models", self.base), self.limits.look).await?)?;
        rows::listing(&answer.json()?).ok_or(ServerError::Plain)
    }

    /// How much it takes; unknown when it cannot be read.
    pub(crate) async fn capacity(&self) -> Capacity {
        let answer = self.caller.get(&format!("{}/props", self.root), self.limits.look).await;
        let json = answer.ok().filter(Answer::is_success).and_then(|answer| answer.json().ok());
        json.map_or(Capacity::Unknown, |json| rows::capacity(&json))
    }

    /// Loads `model` and waits until it answers; one that is there already is done.
    pub(crate) async fn load(&self, model: &str) -> Result<(), ServerError> {
        let url = format!("{}/models/load", self.root);
        let answer = self.caller.post(&url, &json!({ "model": model }), self.limits.load).await?;
        if !(answer.is_success() || is_running(&answer)) {
            return Err(refused(&answer));
        }
        self.until_ready(model).await
    }

    /// Unloads `model` and waits until it left; one that is not there is done.
    pub(crate) async fn unload(&self, model: &str) -> Result<(), ServerError> {
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
                return Err(ServerError::Stalled(self.limits.unload));
            }
            sleep(PAUSE).await;
        }
    }

    /// Waits until `model` answers, whoever loads it.
    pub(crate) async fn until_ready(&self, model: &str) -> Result<(), ServerError> {
        let until = Instant::now() + self.limits.load;
        loop {
            match self.list().await {
                Ok(listing) => match listing.find(model).map(phase) {
                    Some(Phase::Loaded | Phase::Sleeping) => return Ok(()),
                    Some(Phase::Failed(exit_code)) => return Err(ServerError::LoadFailed { exit_code }),
                    None => return Err(ServerError::Gone),
                    Some(Phase::Loading | Phase::Absent) => {}
                },
                Err(ServerError::Call(_)) => {}
                Err(other) => return Err(other),
            }
            if Instant::now() >= until {
                return Err(ServerError::Stalled(self.limits.load));
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
