//! LM Studio: its catalogue in three tiers, an explicit load with the configured settings, an unload by instance.
//!
//! A tier counts when it answers well *and* has its array. Only one that is not there (404, 405, or an answer without the
//! array) is passed over for the next: another error stops the search, because an older tier would be a way around the
//! operator's key, or show less of a server that is only busy. Only the newest tier loads and unloads, and the oldest does
//! not tell what is loaded.
use crate::{
    call::{Answer, Caller},
    error::{ServerError, checked, refused},
    target::{Limits, Target},
};
use motorpool_residency::{Listing, Phase, Seen, Variant};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// From one look at an unload to the next.
const PAUSE: Duration = Duration::from_millis(100);

/// Which catalogue a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// `/api/v1/models`: keys and their instances; loads and unloads.
    V1,
    /// `/api/v0/models`: ids and whether they are loaded.
    V0,
    /// `/v1/models`: ids.
    OpenAi,
}

/// What a server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shelf {
    pub(crate) tier: Tier,
    pub(crate) variants: Vec<Variant>,
    pub(crate) listing: Listing,
}

/// One LM Studio.
#[derive(Clone, Debug)]
pub(crate) struct LmStudio {
    caller: Caller,
    root: String,
    load: Map<String, Value>,
    limits: Limits,
}

impl Tier {
    const ALL: [Self; 3] = [Self::V1, Self::V0, Self::OpenAi];

    fn path(self) -> &'static str {
        match self {
            Self::V1 => "/api/v1/models",
            Self::V0 => "/api/v0/models",
            Self::OpenAi => "/v1/models",
        }
    }

    /// Whether it says which of its models are loaded.
    pub(crate) fn tells_residents(self) -> bool {
        self != Self::OpenAi
    }

    fn read_in(self, json: &Value) -> Option<Shelf> {
        let rows = json.get(if self == Self::V1 { "models" } else { "data" })?.as_array()?;
        let mut found = Shelf { tier: self, variants: Vec::new(), listing: Listing::default() };
        for row in rows {
            let named = if self == Self::V1 { row.get("key") } else { row.get("id") };
            let Some(key) = named.and_then(Value::as_str) else { continue };
            let instances = self.instances(row, key);
            let most = tokens(row.get("max_context_length"));
            let rows = instances.iter().map(|(instance, context)| Seen { context: *context, ..loaded(instance, key) });
            let absent = instances.is_empty().then(|| Seen::new(key, Phase::Absent));
            found.listing.rows.extend(rows.chain(absent).map(|seen| Seen { max_context: most, ..seen }));
            let instances = instances.into_iter().map(|(instance, _)| instance).collect();
            found.variants.push(Variant { key: key.to_owned(), instances });
        }
        Some(found)
    }

    /// The loaded ones, and the context of each.
    fn instances(self, row: &Value, key: &str) -> Vec<(String, Option<u32>)> {
        let of = |field: &str| row.get(field);
        match self {
            Self::V1 => {
                let all = of("loaded_instances").and_then(Value::as_array).into_iter().flatten();
                let context = |one: &Value| tokens(one.get("config").and_then(|config| config.get("context_length")));
                all.filter_map(|one| Some((one.get("id")?.as_str()?.to_owned(), context(one)))).collect()
            }
            Self::V0 if of("state").and_then(Value::as_str) == Some("loaded") => vec![(key.to_owned(), None)],
            Self::V0 | Self::OpenAi => Vec::new(),
        }
    }
}

fn tokens(value: Option<&Value>) -> Option<u32> {
    value.and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok())
}

fn loaded(instance: &str, key: &str) -> Seen {
    let mut seen = Seen::new(instance, Phase::Loaded);
    seen.instance = Some(instance.to_owned());
    seen.aliases = (instance != key).then(|| key.to_owned()).into_iter().collect();
    seen
}

impl LmStudio {
    /// The LM Studio of `target`, spoken to by `caller`.
    pub(crate) fn new(target: &Target, caller: Caller) -> Self {
        Self { caller, root: target.url.root(), load: target.load.clone(), limits: target.limits }
    }

    /// What it has, by the first tier that counts.
    pub(crate) async fn shelf(&self) -> Result<Shelf, ServerError> {
        let mut first = None;
        for tier in Tier::ALL {
            // A server that does not answer at all answers no other question either.
            let answer = self.caller.get(&format!("{}{}", self.root, tier.path()), self.limits.look).await?;
            if !(answer.is_success() || matches!(answer.status, 404 | 405)) {
                return Err(refused(&answer));
            }
            if let Some(shelf) = read(tier, &answer) {
                return Ok(shelf);
            }
            if !answer.is_success() {
                first.get_or_insert(answer);
            }
        }
        Err(first.map_or(ServerError::Plain, |answer| refused(&answer)))
    }

    /// Whether a load is asked for by us, and not by the request itself.
    pub(crate) fn loads_explicitly(&self) -> bool {
        !self.load.is_empty()
    }

    /// Tokens of context that a load is configured to ask for.
    pub(crate) fn context(&self) -> Option<u32> {
        tokens(self.load.get("context_length"))
    }

    /// Loads `key` with the configured settings, but `context` tokens where that is given; answers with the instance,
    /// where the server names one.
    pub(crate) async fn load(&self, key: &str, context: Option<u32>) -> Result<Option<String>, ServerError> {
        let mut body = self.load.clone();
        body.insert("model".to_owned(), key.into());
        if let Some(context) = context {
            body.insert("context_length".to_owned(), context.into());
        }
        body.insert("echo_load_config".to_owned(), true.into());
        let url = format!("{}/api/v1/models/load", self.root);
        let answer = checked(self.caller.post(&url, &Value::Object(body), self.limits.load).await?)?;
        let json = answer.json()?;
        Ok(json.get("instance_id").and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned))
    }

    /// Unloads `instance` and waits until it left; one that is not there is done.
    pub(crate) async fn unload(&self, instance: &str) -> Result<(), ServerError> {
        let is_there = |shelf: &Shelf| shelf.listing.residents().any(|seen| seen.id == instance);
        let before = self.shelf().await?;
        if before.tier.tells_residents() && !is_there(&before) {
            return Ok(());
        }
        if before.tier != Tier::V1 {
            return Err(ServerError::Unsupported);
        }
        let url = format!("{}/api/v1/models/unload", self.root);
        let answer = self.caller.post(&url, &json!({ "instance_id": instance }), self.limits.unload).await?;
        if !(answer.is_success() || answer.status == 404) {
            return Err(refused(&answer));
        }
        let until = Instant::now() + self.limits.unload;
        loop {
            // One look that fails says nothing yet.
            if self.shelf().await.is_ok_and(|shelf| shelf.tier.tells_residents() && !is_there(&shelf)) {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(ServerError::Stalled(self.limits.unload));
            }
            sleep(PAUSE).await;
        }
    }
}

/// `None`: this tier does not count, the next may.
fn read(tier: Tier, answer: &Answer) -> Option<Shelf> {
    answer.json().ok().filter(|_| answer.is_success()).and_then(|json| tier.read_in(&json))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tier_is_read_by_its_own_array() {
        let v1 = json!({"models": [
            {"key": "a", "loaded_instances": [{"id": "a"}, {"id": "a:2", "config": {"context_length": 7}}, {}], "max_context_length": 9},
            {"key": "b", "loaded_instances": []}, {"display_name": "no key"},
        ]});
        let shelf = Tier::V1.read_in(&v1).expect("the newest");
        let shown: Vec<(&str, bool)> =
            shelf.listing.rows.iter().map(|seen| (seen.id.as_str(), seen.phase.is_resident())).collect();
        assert_eq!(shown, [("a", true), ("a:2", true), ("b", false)]);
        assert_eq!((shelf.listing.rows[1].max_context, shelf.listing.rows[1].context), (Some(9), Some(7)));
        assert_eq!(shelf.listing.rows[0].context, None);
        assert!(shelf.listing.rows[1].is_called("a"));
        let v0 = json!({"data": [{"id": "a", "state": "loaded"}, {"id": "b", "state": "not-loaded"}]});
        assert_eq!(Tier::V0.read_in(&v0).expect("the older").listing.residents().count(), 1);
        let plain = Tier::OpenAi.read_in(&json!({"data": [{"id": "a"}]})).expect("the oldest");
        assert_eq!((plain.listing.residents().count(), plain.variants.len()), (0, 1));
        assert_eq!((Tier::V1.read_in(&v0), Tier::V0.read_in(&v1)), (None, None));
    }
}
