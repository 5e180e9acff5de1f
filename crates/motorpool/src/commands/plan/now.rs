//! What the pool of a running daemon would make of planned launches.
use super::sheet::{Amounts, Judged, Launch, Sheet, Verdict};
use crate::{
    args::Plan,
    client::{Client, ClientError},
    exit::Failure,
    out,
};
use motorpool_catalog::ContextWish;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const PATH: &str = "/api/motorpool/v1/plan";

/// As the management API answers.
#[derive(Deserialize)]
struct Answer {
    outlooks: Vec<Outlook>,
}

#[derive(Deserialize)]
struct Outlook {
    key: String,
    source: Option<String>,
    plan: Option<Planned>,
    claim: Option<Claimed>,
    outcome: String,
    victims: Vec<String>,
    reason: Option<String>,
    why: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Planned {
    context_per_slot: u32,
    slots: u32,
    kv_cache_type: String,
    clamped_from: Option<u32>,
    grown_from: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claimed {
    total_bytes: u64,
    devices: BTreeMap<String, u64>,
    system_private_bytes: u64,
    system_files_bytes: u64,
}

/// Replaces what would come of each launch on the empty host by what would come of it now, if a daemon runs.
pub(super) async fn ask(client: &Client, command: &Plan, sheet: &mut Sheet) -> Result<(), Failure> {
    match outlooks(client, command).await {
        Ok(outlooks) => {
            enter(outlooks, sheet);
            Ok(())
        }
        Err(ClientError::NoDaemon { .. }) => Ok(()),
        // Its catalog is older than ours: what was laid out stands.
        Err(ClientError::Refused { message, .. }) => {
            out::say(format_args!("the daemon that runs was not asked: {message}"));
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Each launch as the daemon would make it now.
pub(super) async fn launches(client: &Client, command: &Plan) -> Result<Vec<Launch>, ClientError> {
    Ok(outlooks(client, command).await?.into_iter().map(launch).collect())
}

async fn outlooks(client: &Client, command: &Plan) -> Result<Vec<Outlook>, ClientError> {
    let context = match command.context {
        None => Value::Null,
        Some(ContextWish::Tokens(tokens)) => tokens.into(),
        Some(ContextWish::Max) => "max".into(),
    };
    let question = json!({ "models": command.models, "context": context, "replicas": command.replicas });
    let answer = client.post(PATH, &question).await?;
    let Answer { outlooks } = serde_json::from_value(answer).map_err(ClientError::Garbled)?;
    Ok(outlooks)
}

/// A launch of which only the daemon knows: it tells places, and no parts.
fn launch(mut outlook: Outlook) -> Launch {
    let plan = outlook.plan.take().unwrap_or_default();
    let claim = outlook.claim.take().unwrap_or_default();
    let system_memory = claim.system_private_bytes.saturating_add(claim.system_files_bytes);
    Launch {
        key: outlook.key.clone(),
        source: outlook.source.take().unwrap_or_default(),
        context: plan.context_per_slot,
        clamped_from: plan.clamped_from,
        grown_from: plan.grown_from,
        slots: plan.slots,
        kv_type: plan.kv_cache_type,
        parts: vec![],
        total: Amounts { system_memory, devices: claim.devices },
        shared_bytes: 0,
        sessions_not_kept: None,
        judged: None,
        verdict: verdict(outlook),
    }
}

fn enter(outlooks: Vec<Outlook>, sheet: &mut Sheet) {
    for outlook in outlooks {
        if let Some(launch) = sheet.launches.iter_mut().find(|launch| launch.key == outlook.key) {
            launch.judged = judged(&outlook);
            launch.verdict = verdict(outlook);
        }
    }
}

/// The launch that it judged, which may be another one than on an empty host.
fn judged(outlook: &Outlook) -> Option<Judged> {
    let (plan, claim) = (outlook.plan.as_ref()?, outlook.claim.as_ref()?);
    let source = outlook.source.clone().unwrap_or_default();
    Some(Judged { context: plan.context_per_slot, slots: plan.slots, total_bytes: claim.total_bytes, source })
}

fn verdict(outlook: Outlook) -> Verdict {
    let Outlook { outcome, victims: keys, reason, why, .. } = outlook;
    match outcome.as_str() {
        "resident" => Verdict::Resident,
        "fits" => Verdict::Fits,
        "evicts" => Verdict::Evicts { keys },
        "drains" => Verdict::Drains { keys },
        "waits" => Verdict::Waits,
        "fails" => Verdict::Fails { message: why.unwrap_or_default() },
        // Refused.
        _ => Verdict::Never { reason: reason.unwrap_or_default(), message: why.unwrap_or(outcome) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_known_and_an_unknown_one_is_no_promise() {
        let of = |outcome: &str| {
            let (victims, why) = (vec!["e:b:0".to_owned()], Some("because".to_owned()));
            let (source, plan, claim) = (None, None, None);
            let key = "e:a:0".into();
            verdict(Outlook { key, source, plan, claim, outcome: outcome.into(), victims, reason: None, why })
        };
        let keys = vec!["e:b:0".to_owned()];
        assert_eq!(of("resident"), Verdict::Resident);
        assert_eq!((of("fits"), of("waits")), (Verdict::Fits, Verdict::Waits));
        assert_eq!(of("evicts"), Verdict::Evicts { keys: keys.clone() });
        assert_eq!(of("drains"), Verdict::Drains { keys });
        assert_eq!(of("fails"), Verdict::Fails { message: "because".into() });
        for outcome in ["denied", "something new"] {
            assert_eq!(of(outcome), Verdict::Never { reason: String::new(), message: "because".into() }, "{outcome}");
        }
    }
}
