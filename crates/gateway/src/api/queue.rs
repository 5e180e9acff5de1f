//! Queues of the pool: who is served, who waits, and what an operator does about it; how many engines are wanted.
use super::{Name, Refused, Shared, Whole};
use crate::{context::Context, errors::Failure};
use axum::{
    Json,
    extract::{Path, State},
};
use motorpool_pool::{Answer, Direction, Reconciled, RequestId};
use motorpool_vocab::{EntryView, Holder, Lane, LeaseView, ModelId, Now, PendingView};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Every queue.
#[derive(Serialize)]
pub(super) struct Queues {
    engines: Vec<Queue>,
    /// By provider, engines that are drained included.
    providers: BTreeMap<String, Sum>,
}

#[derive(Serialize)]
struct Queue {
    key: String,
    draining: bool,
    lanes: Lanes,
    /// In the order in which leases were granted.
    active: Vec<Row>,
    /// As they would be served.
    pending: Vec<Row>,
}

#[derive(Serialize)]
struct Lanes {
    interactive: OneLane,
    background: OneLane,
    ambient: OneLane,
}

#[derive(Serialize)]
struct OneLane {
    running: usize,
    queued: usize,
    /// How many of it may run; of ambient work, together with the background's. `null`: its engine does not serve.
    cap: Option<u32>,
}

#[derive(Default, Serialize)]
struct Sum {
    running: usize,
    queued: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: u64,
    request: String,
    lane: &'static str,
    session: Option<String>,
    job: Option<String>,
    actor: Option<String>,
    /// Which slot of the engine, where that is known.
    slot: Option<u32>,
    /// How long it runs, or waited.
    since_ms: u64,
}

pub(super) async fn list(State(context): Shared) -> Json<Queues> {
    let snapshot = context.handle.snapshot();
    let used = |entry: &&EntryView| entry.width.is_some() || entry.n_tickets > 0;
    let mut providers: BTreeMap<String, Sum> = BTreeMap::new();
    for entry in snapshot.entries.iter().filter(used) {
        let sum = providers.entry(entry.key.provider().to_owned()).or_default();
        sum.running += entry.leases.len();
        sum.queued += entry.pending.len();
    }
    let engines = snapshot.entries.iter().filter(used).map(|entry| Queue::of(entry, snapshot.at)).collect();
    Json(Queues { engines, providers })
}

impl Queue {
    fn of(entry: &EntryView, at: Now) -> Self {
        let background = entry.width.map(|width| width.saturating_sub(1).max(1));
        let lane = |lane: Lane, cap| OneLane {
            running: entry.leases.iter().filter(|lease| lease.holder.lane == lane).count(),
            queued: entry.pending.iter().filter(|pending| pending.holder.lane == lane).count(),
            cap,
        };
        let lanes = Lanes {
            interactive: lane(Lane::Interactive, entry.width),
            background: lane(Lane::Background, background),
            ambient: lane(Lane::Ambient, background),
        };
        let active = |LeaseView { id, slot, holder }: &LeaseView| Row::of(*id, (holder, *slot), at);
        let pending = |PendingView { id, holder }: &PendingView| Row::of(*id, (holder, None), at);
        Self {
            key: entry.key.to_string(),
            draining: entry.n_drainers > 0,
            lanes,
            active: entry.leases.iter().map(active).collect(),
            pending: entry.pending.iter().map(pending).collect(),
        }
    }
}

impl Row {
    fn of(id: u64, (holder, slot): (&Holder, Option<u32>), at: Now) -> Self {
        Self {
            id,
            request: holder.request.clone(),
            lane: holder.lane.as_str(),
            session: holder.session.clone(),
            job: holder.job.clone(),
            actor: holder.actor.clone(),
            slot,
            since_ms: super::wire::millis(at.since(holder.since)),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Requeued {
    /// Whether anything is another way now.
    changed: bool,
}

pub(super) async fn cancel(State(context): Shared, name: Name) -> Result<Json<Requeued>, Refused> {
    let ticket = ticket_of(name)?;
    answered(&context.handle.withdraw(ticket).await, ticket)
}

/// Ends a request, whether it waits or is served: the one of this number, else every one of this name, `req_…`, which
/// clients choose. One that is served, or is on its way to an engine, ends with an error.
pub(super) async fn cancel_request(State(context): Shared, name: Name) -> Result<Json<Requeued>, Refused> {
    let Path(name) = name.map_err(|e| invalid(e.body_text()))?;
    let ended = match name.parse() {
        Ok(number) => cancel_numbered(&context, number).await,
        Err(_) => false,
    };
    if ended || cancel_named(&context, &name).await {
        return Ok(Json(Requeued { changed: true }));
    }
    Err(Refused(Failure::NotFound { path: format!("request {name}"), hint: "; it is over, or never was" }))
}

/// One that waits is served as soon as it is somebody's turn: who does not wait any more is looked for among those.
async fn cancel_numbered(context: &Context, number: u64) -> bool {
    if matches!(context.handle.withdraw(RequestId(number)).await, Answer::Requeued) {
        return true;
    }
    let snapshot = context.handle.snapshot();
    let mut leases = snapshot.entries.iter().flat_map(|entry| &entry.leases);
    let served = leases.find(|lease| lease.id == number).and_then(|lease| lease.holder.entry);
    served.is_some_and(|entry| context.running.cancel_one(entry))
}

async fn cancel_named(context: &Context, name: &str) -> bool {
    let snapshot = context.handle.snapshot();
    let waiting = snapshot.entries.iter().flat_map(|entry| &entry.pending).filter(|p| p.holder.request == name);
    let mut ended = false;
    for waiting in waiting {
        ended |= matches!(context.handle.withdraw(RequestId(waiting.id)).await, Answer::Requeued);
    }
    // All of that name, those included that were waiting a moment ago.
    context.running.cancel(name) || ended
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    direction: Where,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Where {
    Up,
    Down,
}

pub(super) async fn shift(State(context): Shared, name: Name, Whole(body): Whole) -> Result<Json<Requeued>, Refused> {
    let ticket = ticket_of(name)?;
    let wish: Wish =
        serde_json::from_slice(&body).map_err(|e| invalid(format!("the body is `{{\"direction\":\"up\"}}`: {e}")))?;
    let direction = match wish.direction {
        Where::Up => Direction::Up,
        Where::Down => Direction::Down,
    };
    answered(&context.handle.move_ticket(ticket, direction).await, ticket)
}

fn answered(answer: &Answer, ticket: RequestId) -> Result<Json<Requeued>, Refused> {
    match answer {
        Answer::Requeued => Ok(Json(Requeued { changed: true })),
        Answer::AtTheEnd => Ok(Json(Requeued { changed: false })),
        Answer::NoTicket => {
            let hint = "; it does not wait any more, or never did";
            Err(Refused(Failure::NotFound { path: format!("request {}", ticket.0), hint }))
        }
        _ => Err(Refused(Failure::ShuttingDown)),
    }
}

fn ticket_of(name: Name) -> Result<RequestId, Failure> {
    let Path(name) = name.map_err(|e| invalid(e.body_text()))?;
    name.parse().map(RequestId).map_err(|_| invalid(format!("`{name}` is no number of a request in a queue")))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Targets {
    targets: BTreeMap<String, u32>,
}

/// What was begun so that there are as many engines as are wanted.
#[derive(Serialize)]
pub(super) struct Begun {
    starting: Vec<String>,
    stopping: Vec<String>,
    /// Too many, and used: they stay.
    busy: Vec<String>,
}

pub(super) async fn reconcile(State(context): Shared, Whole(body): Whole) -> Result<Json<Begun>, Refused> {
    let Targets { targets } = serde_json::from_slice(&body)
        .map_err(|e| invalid(format!("the body is `{{\"targets\":{{\"model\":2}}}}`: {e}")))?;
    let mut wanted: BTreeMap<ModelId, u32> = BTreeMap::new();
    for (name, n) in targets {
        if n > motorpool_catalog::MOST_REPLICAS {
            return Err(invalid(format!("`{name}`: {n} is more than {}", motorpool_catalog::MOST_REPLICAS)).into());
        }
        if wanted.insert(super::model_of_name(&context, &name)?.id.clone(), n).is_some() {
            return Err(invalid(format!("`{name}`: its model is named twice")).into());
        }
    }
    let done = context.handle.reconcile(wanted).await.ok_or(Failure::ShuttingDown)?;
    let Reconciled { starting, stopping, busy, refused } = done;
    if let Some(model) = refused.first() {
        return Err(Failure::UnknownModel { name: model.to_string(), nearest: vec![] }.into());
    }
    let names = |keys: Vec<motorpool_vocab::EngineKey>| keys.iter().map(ToString::to_string).collect();
    Ok(Json(Begun { starting: names(starting), stopping: names(stopping), busy: names(busy) }))
}

fn invalid(message: String) -> Failure {
    Failure::InvalidRequest { message, param: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::entry;
    use motorpool_vocab::PhaseView;
    use serde_json::json;

    #[test]
    fn a_queue_shows_each_lane_who_is_served_and_who_waits() {
        let holder = |lane, request: &str| Holder { lane, request: request.into(), ..Holder::default() };
        let mut view = entry("llama-server:m:0", PhaseView::Ready, None);
        view.width = Some(4);
        view.leases = vec![LeaseView { id: 1, slot: Some(2), holder: holder(Lane::Interactive, "req_1") }];
        view.pending = vec![PendingView { id: 5, holder: holder(Lane::Background, "req_5") }];
        let shown = serde_json::to_value(Queue::of(&view, Now::from_nanos(3_000_000))).expect("JSON");
        assert_eq!(shown["lanes"]["interactive"], json!({"running": 1, "queued": 0, "cap": 4}));
        assert_eq!(shown["lanes"]["background"], json!({"running": 0, "queued": 1, "cap": 3}));
        let row = |id, request, lane, slot: Option<u32>| {
            json!({"id": id, "request": request, "lane": lane, "session": null, "job": null, "actor": null,
                "slot": slot, "sinceMs": 3})
        };
        assert_eq!(shown["active"], json!([row(1, "req_1", "interactive", Some(2))]));
        assert_eq!(shown["pending"], json!([row(5, "req_5", "background", None)]));
    }
}
