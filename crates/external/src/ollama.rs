//! Ollama: what is in its memory (`/api/ps`), one load and one unload, both an empty native `/api/generate` whose
//! `keep_alive` says how long the model stays. A model for embeddings refuses it, and is loaded by an empty `/api/embed`.
use crate::{
    call::Caller,
    error::{ServerError, checked, refused},
    target::{KeepAlive, Limits, Target},
};
use motorpool_residency::{Listing, Phase, Seen, Sizes};
use motorpool_vocab::Bytes;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// From one look at an unload to the next.
const PAUSE: Duration = Duration::from_millis(100);

/// One Ollama.
#[derive(Clone, Debug)]
pub(crate) struct Ollama {
    caller: Caller,
    root: String,
    keep_alive: KeepAlive,
    limits: Limits,
}

impl Ollama {
    /// The Ollama of `target`, spoken to by `caller`.
    pub(crate) fn new(target: &Target, caller: Caller) -> Self {
        Self { caller, root: target.url.root(), keep_alive: target.keep_alive, limits: target.limits }
    }

    /// What is in its memory.
    pub(crate) async fn list(&self) -> Result<Listing, ServerError> {
        let answer = checked(self.caller.get(&format!("{}/api/ps", self.root), self.limits.look).await?)?;
        residents(&answer.json()?).ok_or(ServerError::Plain)
    }

    /// What it could load.
    pub(crate) async fn models(&self) -> Result<Vec<String>, ServerError> {
        let answer = checked(self.caller.get(&format!("{}/api/tags", self.root), self.limits.look).await?)?;
        let json = answer.json()?;
        let rows = json.get("models").and_then(Value::as_array).ok_or(ServerError::Plain)?;
        Ok(rows.iter().filter_map(name_of).collect())
    }

    /// Loads `model`, or keeps it for our time from now on, and waits until that is done. One that is loaded with so much
    /// `context` would be loaded anew by who does not ask for the same.
    pub(crate) async fn load(&self, (model, context): (&str, Option<u32>)) -> Result<(), ServerError> {
        let options = context.map_or_else(|| json!({}), |n| json!({ "num_ctx": n }));
        let body = json!({
            "model": model, "keep_alive": self.keep_alive.seconds(), "stream": false, "options": options,
        });
        let answer = self.caller.post(&format!("{}/api/generate", self.root), &body, self.limits.load).await?;
        if !(answer.status == 400 && answer.message().contains("does not support generate")) {
            return checked(answer).map(drop);
        }
        let body = json!({ "model": model, "input": "", "keep_alive": self.keep_alive.seconds(), "options": options });
        checked(self.caller.post(&format!("{}/api/embed", self.root), &body, self.limits.load).await?).map(drop)
    }

    /// Unloads `model` and waits until it left; one that is not there is done.
    pub(crate) async fn unload(&self, model: &str) -> Result<(), ServerError> {
        // Ollama would load what is not there, only to let it go again.
        if !self.list().await?.holds(model) {
            return Ok(());
        }
        let body = json!({ "model": model, "keep_alive": 0, "stream": false });
        let answer = self.caller.post(&format!("{}/api/generate", self.root), &body, self.limits.unload).await?;
        if !(answer.is_success() || answer.status == 404) {
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
}

/// The rows of `GET /api/ps`; `None` when it is no such list.
fn residents(json: &Value) -> Option<Listing> {
    let rows = json.get("models")?.as_array()?;
    Some(Listing { rows: rows.iter().filter_map(resident).collect() })
}

fn name_of(row: &Value) -> Option<String> {
    row.get("model").or_else(|| row.get("name"))?.as_str().map(str::to_owned)
}

fn resident(row: &Value) -> Option<Seen> {
    let id = name_of(row)?;
    let mut seen = Seen::new(id.as_str(), Phase::Loaded);
    let name = row.get("name").and_then(Value::as_str).filter(|name| *name != id);
    // To Ollama a name without a tag is the one with `:latest`.
    let short = id.strip_suffix(":latest");
    seen.aliases = name.into_iter().chain(short).map(str::to_owned).collect();
    seen.instance = row.get("digest").and_then(Value::as_str).map(str::to_owned);
    let size = |field: &str| row.get(field).and_then(Value::as_u64).map(Bytes::new);
    // With how much it is loaded: for more it would be loaded anew.
    seen.max_context = row.get("context_length").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    seen.sizes = size("size").zip(size("size_vram")).map(|(total, vram)| Sizes { total, vram });
    Some(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residents_have_their_names_digest_and_sizes_and_what_is_no_row_is_passed_over() {
        let json = json!({"models": [
            {"model": "a:latest", "name": "a:latest", "size": 9, "size_vram": 4, "digest": "d", "context_length": 8192},
            {"model": "b:1b", "name": "B"}, {"name": "c:2b", "size": -1, "size_vram": 0}, {"size": 3}, 7,
        ]});
        let rows = residents(&json).expect("a list").rows;
        let names: Vec<&str> = rows.iter().map(|seen| seen.id.as_str()).collect();
        assert_eq!(names, ["a:latest", "b:1b", "c:2b"]);
        assert!(rows[0].is_called("a") && rows[1].is_called("B") && !rows[1].is_called("b"));
        assert_eq!(rows[0].instance.as_deref(), Some("d"));
        assert_eq!(rows[0].sizes, Some(Sizes { total: Bytes::new(9), vram: Bytes::new(4) }));
        assert_eq!(rows[2].sizes, None);
        assert_eq!((rows[0].max_context, rows[1].max_context), (Some(8192), None));
        for other in [json!({}), json!({"models": 3}), json!(null), json!([])] {
            assert_eq!(residents(&other), None, "{other}");
        }
    }
}
