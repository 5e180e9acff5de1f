//! A llama.cpp router: its listing, its capacity, one load, one unload, each idempotent and bounded.
//!
//! A load answers before its result is there, so it is watched: by the router's news where it has any, else by polling,
//! until the row is ready, failed, or stands still for too long. An unload is watched until the row left the resident
//! states.
use crate::{
    autoload::{Autoload, Learned},
    call::{Answer, Caller},
    error::{ServerError, checked, refused},
    rows,
    server::{Begun, OnBegun, Whose},
    target::{Limits, Target},
    watch::{Progress, Watch},
};
use motorpool_residency::{Capacity, Listing, Phase, Seen};
use serde_json::json;
use std::fmt::Write as _;
use tokio::time::Instant;

/// What is said of a model for which nothing is loaded.
pub(crate) const NOT_LOADED: &str = "model is not loaded";

/// One router.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    caller: Caller,
    base: String,
    root: String,
    limits: Limits,
    autoload: Learned,
}

impl Router {
    /// The router of `target`, spoken to by `caller`.
    pub(crate) fn new(target: &Target, caller: Caller) -> Self {
        let (base, root) = (target.url.base(), target.url.root());
        Self { caller, base, root, limits: target.limits, autoload: Learned::default() }
    }

    /// What it has.
    pub(crate) async fn list(&self) -> Result<Listing, ServerError> {
        let answer = checked(self.caller.get(&format!("{}/models", self.base), self.limits.look).await?)?;
        rows::listing(&answer.json()?).ok_or(ServerError::Plain)
    }

    /// How much it takes; unknown when it cannot be read.
    pub(crate) async fn capacity(&self) -> Capacity {
        let answer = self.caller.get(&format!("{}/props", self.root), self.limits.look).await;
        let Some(json) = answer.ok().filter(Answer::is_success).and_then(|answer| answer.json().ok()) else {
            return Capacity::Unknown;
        };
        if rows::tells_autoload(&json) {
            self.autoload.put(Autoload::Heeded);
        }
        rows::capacity(&json)
    }

    /// Whether it heeds `autoload=0`, as far as that is known.
    pub(crate) fn autoload(&self) -> Autoload {
        self.autoload.get()
    }

    /// Finds out whether it heeds `autoload=0`, by a question about `model`, which is about to be loaded anyway. Answers
    /// whether the question loaded it.
    async fn find_out(&self, model: &str) -> bool {
        if self.autoload() != Autoload::Untold || !self.list().await.is_ok_and(|listing| !listing.holds(model)) {
            return false;
        }
        let url = format!("{}/props?model={}&autoload=0", self.root, escaped(model));
        let answer = self.caller.get(&url, self.limits.look).await;
        if answer.is_ok_and(|answer| answer.status == 400 && answer.message().contains(NOT_LOADED)) {
            self.autoload.put(Autoload::Heeded);
            return false;
        }
        // An answer of any other kind says nothing by itself: older builds take no model there.
        let loads = self.list().await.is_ok_and(|listing| listing.holds(model));
        if loads {
            self.autoload.put(Autoload::Ignored);
        }
        loads
    }

    /// Loads `model` and waits until it answers; one that is there already is done, and somebody else's. Answers with
    /// whose load it was.
    pub(crate) async fn load(&self, model: &str, on_begun: OnBegun<'_>) -> Result<Whose, ServerError> {
        let url = format!("{}/models/load", self.root);
        let is_ours = self.find_out(model).await;
        // Before the load: what is said of it must not be missed.
        let watch = self.watch().await;
        let until_ours = async |watch| {
            self.until_settled(model, watch, &|seen| on_begun(Begun::Ours(seen))).await.map(|()| Whose::Ours)
        };
        let answer = match self.caller.post(&url, &json!({ "model": model }), self.limits.load).await {
            Ok(answer) => answer,
            // Whether it heard us is what its listing says.
            Err(_) if self.list().await.is_ok_and(|listing| listing.holds(model)) => return until_ours(watch).await,
            Err(lost) => return Err(lost.into()),
        };
        if is_running(&answer) && !is_ours {
            on_begun(Begun::Theirs);
            return match self.until_settled(model, watch, &|_| ()).await {
                Err(ServerError::Stalled(within)) => Err(ServerError::TheirsStalled(within)),
                settled => settled.map(|()| Whose::Theirs),
            };
        }
        if !answer.is_success() && !is_running(&answer) {
            return Err(refused(&answer));
        }
        until_ours(watch).await
    }

    /// Unloads `model` and waits until it left; one that is not there is done.
    pub(crate) async fn unload(&self, model: &str) -> Result<(), ServerError> {
        let url = format!("{}/models/unload", self.root);
        let mut watch = self.watch().await;
        let mut lost = None;
        match self.caller.post(&url, &json!({ "model": model }), self.limits.unload).await {
            Ok(answer) if answer.is_success() || is_away(&answer) => {}
            Ok(answer) => return Err(refused(&answer)),
            // Whether it heard us is what its listing says.
            Err(error) => lost = Some(error),
        }
        let until = Instant::now() + self.limits.unload;
        loop {
            match (self.list().await, &lost) {
                (Ok(listing), _) if !listing.holds(model) => return Ok(()),
                (Err(_), Some(_)) => break,
                // One look that fails says nothing yet.
                (Ok(_) | Err(_), _) => {}
            }
            if Instant::now() >= until {
                break;
            }
            watch.next().await;
        }
        Err(lost.map_or(ServerError::Stalled(self.limits.unload), ServerError::Call))
    }

    /// Waits until `model` answers, whoever loads it.
    pub(crate) async fn until_ready(&self, model: &str) -> Result<(), ServerError> {
        let watch = self.watch().await;
        self.until_settled(model, watch, &|_| ()).await
    }

    async fn watch(&self) -> Watch {
        Watch::open(&self.caller, &format!("{}/models/sse", self.root), self.limits.look).await
    }

    async fn until_settled(
        &self,
        model: &str,
        mut watch: Watch,
        on_seen: &(dyn Fn(&Seen) + Send + Sync),
    ) -> Result<(), ServerError> {
        let mut progress = Progress::new(Instant::now(), self.limits.load);
        let mut id = model.to_owned();
        loop {
            match self.list().await {
                Ok(listing) => match listing.find(model) {
                    None => return Err(ServerError::Gone),
                    Some(seen) if seen.phase.is_ready() => return Ok(()),
                    Some(Seen { phase: Phase::Failed(exit_code), .. }) => {
                        return Err(ServerError::LoadFailed { exit_code: *exit_code });
                    }
                    Some(seen) => {
                        id.clone_from(&seen.id);
                        if seen.phase == Phase::Loading {
                            on_seen(seen);
                        }
                    }
                },
                Err(ServerError::Call(_)) => {}
                Err(other) => return Err(other),
            }
            if let Some(within) = progress.stalled(Instant::now()) {
                return Err(ServerError::Stalled(within));
            }
            if let Some(said) = watch.next().await
                && said.model == id
            {
                progress.on_mark(Instant::now(), &said.mark);
            }
        }
    }
}

fn is_away(answer: &Answer) -> bool {
    answer.status == 400 && answer.message().contains("not running")
}

fn is_running(answer: &Answer) -> bool {
    answer.status == 400 && answer.message().contains("already running")
}

/// `name` as part of a query.
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => text.push(byte.into()),
            _ => write!(text, "%{byte:02X}").expect("a text takes everything"),
        }
    }
    text
}
