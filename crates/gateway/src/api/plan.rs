//! `POST /plan`: what launches would take and what would become of them, without doing anything.
//!
//! The command line shows the same of a machine that has no server, so [`Outlooks`] is made from the pool's values alone.
use super::{Refused, Shared, Whole, model_of_name, wire};
use crate::{errors::Failure, models::Standing};
use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use motorpool_catalog::ContextWish;
use motorpool_pool::{Becomes, Draft, Outlook, Placement, copies};
use motorpool_vocab::{Claim, EngineKey};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

/// Most launches that are considered at once: each is judged in the one loop.
const MOST_LAUNCHES: usize = 256;
/// Tokens of context, as in the catalog.
const CONTEXTS: RangeInclusive<u32> = 256..=1 << 24;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    models: Vec<String>,
    context: Option<Wish>,
    #[serde(default = "one")]
    replicas: u32,
}

/// Tokens, or `"max"`.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Wish {
    Tokens(u32),
    Name(Max),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Max {
    Max,
}

impl From<Wish> for ContextWish {
    fn from(wish: Wish) -> Self {
        match wish {
            Wish::Tokens(tokens) => Self::Tokens(tokens),
            Wish::Name(Max::Max) => Self::Max,
        }
    }
}

const fn one() -> u32 {
    1
}

/// What launches would take, in the order in which they were asked.
#[derive(Debug, Serialize)]
pub struct Outlooks {
    outlooks: Vec<Row>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    key: String,
    /// `declared`, `estimated`, `file-size`, `learned` or `measured`.
    source: Option<&'static str>,
    plan: Option<Plan>,
    /// Where it would be; of a refusal, the attempt that came nearest.
    claim: Option<ClaimBytes>,
    /// Layers on each device, in order; the rest is in system memory.
    layers: Vec<Layers>,
    /// `resident`, `fits`, `waits`, `evicts`, `drains`, `denied` or `fails`.
    outcome: &'static str,
    /// Engines that would go, in order.
    victims: Vec<String>,
    /// Of a refusal: its arithmetic, in the words of the log.
    reason: Option<String>,
    /// Of a refusal or a failure: why, for people.
    why: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Plan {
    context_per_slot: u32,
    slots: u32,
    kv_cache_type: &'static str,
    /// The context that was wanted, when less was planned.
    clamped_from: Option<u32>,
    /// The context that would be enough, when there is room for more.
    grown_from: Option<u32>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClaimBytes {
    total_bytes: u64,
    devices: BTreeMap<String, u64>,
    system_private_bytes: u64,
    /// Shared with whoever else maps the same files.
    system_files_bytes: u64,
    accelerated_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Layers {
    device: String,
    n: u32,
}

pub(super) async fn plan(State(context): Shared, Whole(body): Whole) -> Result<Json<Outlooks>, Refused> {
    let Question { models, context: wish, replicas } = serde_json::from_slice(&body).map_err(|e| {
        invalid(format!("the body is `{{\"models\":[\"…\"],\"context\":8192,\"replicas\":1}}`: {e}"), "models")
    })?;
    let n_replicas = usize::try_from(replicas).unwrap_or(usize::MAX);
    if !(1..=MOST_LAUNCHES).contains(&models.len().saturating_mul(n_replicas)) {
        let what = format!("one model at least, and 1 to {MOST_LAUNCHES} launches: models times replicas");
        return Err(invalid(what, "models").into());
    }
    if let Some(Wish::Tokens(tokens)) = wish
        && !CONTEXTS.contains(&tokens)
    {
        let (least, most) = (CONTEXTS.start(), CONTEXTS.end());
        return Err(invalid(format!("a context has {least} to {most} tokens, or is \"max\""), "context").into());
    }
    let model = |name: &String| {
        let model = model_of_name(&context, name)?;
        Ok(wish.map_or(model.clone(), |wish| Arc::new(model.with_context(wish.into()))))
    };
    let models: Vec<_> = models.iter().map(model).collect::<Result<_, Failure>>()?;
    Ok(Json(Outlooks::of(&context.handle.consider(copies(&models, replicas)).await)))
}

#[derive(Deserialize)]
pub(super) struct About {
    model: Option<String>,
}

/// All that is known of one model: what it is, its engines with what their failures mean, and what would become of a launch.
#[derive(Serialize)]
pub(super) struct Explained {
    model: wire::Model,
    engines: Vec<wire::Engine>,
    outlooks: Vec<Row>,
}

pub(super) async fn explain(
    State(context): Shared,
    query: Result<Query<About>, QueryRejection>,
) -> Result<Json<Explained>, Refused> {
    let Query(About { model: name }) = query.map_err(|error| invalid(error.body_text(), "model"))?;
    let name = name.ok_or_else(|| invalid("the model is named as `?model=…`".into(), "model"))?;
    let model = model_of_name(&context, &name)?;
    let outlooks = Outlooks::of(&context.handle.consider(copies(&[Arc::clone(&model)], 1)).await).outlooks;
    let snapshot = context.handle.snapshot();
    let its = snapshot.entries.iter().filter(|entry| *entry.key.model() == model.id);
    let engines = its.map(|entry| wire::engine(&context, entry, snapshot.at)).collect();
    Ok(Json(Explained { model: wire::Model::of(&model, Standing::of(&model, &snapshot)), engines, outlooks }))
}

fn invalid(message: String, param: &'static str) -> Failure {
    Failure::InvalidRequest { message, param: Some(param) }
}

impl Outlooks {
    /// What the pool says, as this interface shows it.
    pub fn of(outlooks: &[Outlook]) -> Self {
        Self { outlooks: outlooks.iter().map(Row::of).collect() }
    }
}

impl Row {
    fn of(outlook: &Outlook) -> Self {
        let blank = Self {
            key: outlook.key.to_string(),
            source: outlook.source.map(motorpool_pool::Source::as_str),
            plan: outlook.draft.as_ref().map(Plan::of),
            claim: None,
            layers: vec![],
            outcome: "fits",
            victims: vec![],
            reason: None,
            why: None,
        };
        let texts = |keys: &[EngineKey]| keys.iter().map(ToString::to_string).collect();
        match &outlook.becomes {
            Becomes::Resident(claim) => Self { outcome: "resident", claim: Some(ClaimBytes::of(claim)), ..blank },
            Becomes::Fits(placement) => blank.placed(placement),
            Becomes::Waits(placement) => Self { outcome: "waits", ..blank.placed(placement) },
            Becomes::Evicts(keys, placement) => {
                Self { outcome: "evicts", victims: texts(keys), ..blank.placed(placement) }
            }
            Becomes::Drains(keys, placement) => {
                Self { outcome: "drains", victims: texts(keys), ..blank.placed(placement) }
            }
            Becomes::Denied(denial) => {
                let claim = Some(ClaimBytes::of(&denial.requested));
                let (reason, why) = (Some(denial.to_string()), Some(denial.prose()));
                Self { outcome: "denied", claim, reason, why, ..blank }
            }
            Becomes::Fails(fault) => Self { outcome: "fails", why: Some(fault.message.clone()), ..blank },
        }
    }

    fn placed(self, placement: &Placement) -> Self {
        let layers = placement.split.devices.iter().map(|(id, n)| Layers { device: id.to_string(), n: *n });
        Self { claim: Some(ClaimBytes::of(&placement.claim)), layers: layers.collect(), ..self }
    }
}

impl Plan {
    fn of(draft: &Draft) -> Self {
        Self {
            context_per_slot: draft.plan.context_per_slot,
            slots: draft.plan.slots,
            kv_cache_type: draft.plan.kv.as_str(),
            clamped_from: draft.clamped_from,
            grown_from: draft.grown_from,
        }
    }
}

impl ClaimBytes {
    fn of(claim: &Claim) -> Self {
        let files = claim.ram_files.iter().map(|(_, bytes)| *bytes);
        Self {
            total_bytes: claim.total().get(),
            devices: claim.device.iter().map(|(id, bytes)| (id.to_string(), bytes.get())).collect(),
            system_private_bytes: claim.ram_private.get(),
            system_files_bytes: motorpool_vocab::Bytes::sum(files).get(),
            accelerated_bytes: claim.accelerated.get(),
        }
    }
}
