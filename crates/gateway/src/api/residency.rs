//! `/residency`: servers that somebody else runs, as we see them; what would become of a request there; giving back; taking
//! over what helper processes loaded.
use super::{Refused, Shared, Whole};
use crate::{
    context::Context,
    errors::Failure,
    outside::{Chosen, Outside, Watch, is_releasable, standing},
};
use axum::{Json, extract::State};
use bytes::Bytes;
use motorpool_external::{
    Autoload, Report,
    residency::{Action, Adoption, Capacity, Lifecycle, Notice, Owner, Phase, Plan, Protection, Resident, Used},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{sync::Arc, time::Duration};

/// Longest wait for servers whose look is asked for.
const LOOK_WITHIN: Duration = Duration::from_secs(5);

/// One server.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Target {
    id: String,
    kind: &'static str,
    url: String,
    lifecycle: &'static str,
    /// Whether it is on this machine: what is given back there is free here.
    local: bool,
    /// Whether it ever answered.
    seen: bool,
    /// Why the last look failed.
    trouble: Option<String>,
    /// How many models it takes; `null`: unknown, 0: without limit.
    capacity: Option<u32>,
    /// Of a router that we manage, whether it heeds that it is to load for no request: `heeded`, `ignored`, or `untold` as
    /// long as nobody knows.
    autoload: Option<&'static str>,
    /// Models in its memory, as it lists them.
    residents: Vec<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    model: String,
    state: &'static str,
    /// `ours` or `foreign`.
    owner: &'static str,
    /// `tag`, `worker`, `chat`, `memory`, `target-default` or nothing.
    protection: Option<&'static str>,
    in_use: bool,
    vram_bytes: Option<u64>,
    total_bytes: Option<u64>,
}

#[derive(Serialize)]
pub(super) struct Targets {
    targets: Vec<Target>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    model: String,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Wish {
    target: Option<String>,
    model: Option<String>,
}

/// What a helper process loaded.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Loaded {
    kind: String,
    url: String,
    model: String,
    instance: Option<String>,
}

/// Whose it is now.
#[derive(Serialize)]
pub(super) struct Adopted {
    /// `server/model`.
    adopted: String,
}

/// What would become of a request.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outlook {
    target: String,
    model: String,
    /// `observe`, `resident`, `await`, `load`, `delegate`, `wait` or `decline`.
    action: &'static str,
    /// Would be evicted, in order.
    evict: Vec<String>,
    /// Would be waited for.
    busy: Vec<String>,
    /// Of a refusal.
    why: Option<String>,
    notices: Vec<Told>,
}

#[derive(Serialize)]
struct Told {
    kind: &'static str,
    model: String,
    message: String,
}

#[derive(Serialize)]
pub(super) struct Released {
    /// `server/model` of what went.
    released: Vec<String>,
    failed: Vec<Fault>,
}

#[derive(Serialize)]
struct Fault {
    model: String,
    why: String,
}

pub(super) async fn list(State(context): Shared) -> Json<Targets> {
    // Whoever asks for this wants to know what is there now.
    let watches = context.settings.outside.iter().map(|outside| Arc::clone(&outside.watch));
    Watch::look_again_at_all(watches, LOOK_WITHIN).await;
    Json(Targets { targets: targets(&context) })
}

pub(super) async fn plan(State(context): Shared, Whole(body): Whole) -> Result<Json<Outlook>, Refused> {
    let Question { model: name } = read(&body, "{\"model\":\"…\"}")?;
    let Chosen::Foreign(foreign) = context.choose_any(vec![&name]).await? else {
        let message = format!("`{name}` is a model of this server: `plan` and `explain` say what becomes of it");
        return Err(Failure::InvalidRequest { message, param: Some("model") }.into());
    };
    let plan = foreign.outside.watch.guest().plan(&foreign.wire).await;
    let plan = plan.map_err(|why| Failure::ExternalFailed(format!("{}: {why}", foreign.qualified())))?;
    Ok(Json(Outlook::of(foreign.outside.config.id.clone(), foreign.wire, plan)))
}

pub(super) async fn release(State(context): Shared, Whole(body): Whole) -> Result<Json<Released>, Refused> {
    let wish: Wish =
        if body.is_empty() { Wish::default() } else { read(&body, "{\"target\":\"…\",\"model\":\"…\"}")? };
    let (id, model) = meant(&context, wish)?;
    let (mut released, mut failed) = (Vec::new(), Vec::new());
    for outside in &context.settings.outside {
        if id.as_ref().is_some_and(|id| *id != outside.config.id) {
            continue;
        }
        outside.watch.look_again(LOOK_WITHIN).await;
        for name in releasable(outside, model.as_deref()) {
            let qualified = format!("{}/{name}", outside.config.id);
            match outside.watch.guest().release(&name).await {
                Ok(()) => released.push(qualified),
                Err(why) => failed.push(Fault { model: qualified, why: why.to_string() }),
            }
        }
        outside.watch.look_again(LOOK_WITHIN).await;
    }
    if released.is_empty()
        && failed.is_empty()
        && let Some(model) = model
    {
        let path = format!("model {model} of ours that nobody uses, on an external server");
        return Err(Failure::NotFound { path, hint: "; `residency status` lists them" }.into());
    }
    Ok(Json(Released { released, failed }))
}

/// A helper process tells what it loaded: from now on it is ours, goes last, and is given back when we end. The server is
/// the one of our own configuration; what that does not have is refused.
pub(super) async fn adopt(State(context): Shared, Whole(body): Whole) -> Result<Json<Adopted>, Refused> {
    let Loaded { kind, url, model, instance } = read(&body, "{\"kind\":\"…\",\"url\":\"…\",\"model\":\"…\"}")?;
    let invalid = |e| Failure::InvalidRequest { message: format!("`url`: {e}"), param: Some("url") };
    let report = Report { kind, url: url.parse().map_err(invalid)?, model, instance };
    let outside = context.settings.outside.iter().find(|outside| outside.watch.guest().is_meant(&report));
    let Some(outside) = outside else {
        let path = format!("[[external]] of kind {} at {}", report.kind, report.url);
        return Err(Failure::NotFound { path, hint: "; `residency status` lists them" }.into());
    };
    let adopted = format!("{}/{}", outside.config.id, report.model);
    if outside.watch.guest().adopt(&report).await == Adoption::Refused {
        let path = format!("load of {adopted} such as was told");
        return Err(Failure::NotFound { path, hint: "; `residency status` lists what is loaded" }.into());
    }
    outside.watch.look_again(LOOK_WITHIN).await;
    Ok(Json(Adopted { adopted }))
}

/// What of ours may go there: `model` alone, or all that nobody uses.
fn releasable(outside: &Outside, model: Option<&str>) -> Vec<String> {
    let Some(sight) = outside.watch.seen().sight else { return Vec::new() };
    let wanted = |one: &&Resident| model.is_none_or(|name| one.seen.is_called(name));
    let residents = sight.residents.iter().filter(|one| is_releasable(one)).filter(wanted);
    residents.map(|one| one.seen.id.clone()).collect()
}

/// Which server and model: `server/model` is one too.
fn meant(context: &Context, Wish { target, model }: Wish) -> Result<(Option<String>, Option<String>), Failure> {
    let has = |id: &str| context.settings.outside.iter().any(|outside| outside.config.id == id);
    if let Some(id) = target.as_deref().filter(|id| !has(id)) {
        return Err(Failure::NotFound {
            path: format!("external server {id}"),
            hint: "; `residency status` lists them",
        });
    }
    let qualified = model.as_deref().filter(|_| target.is_none()).and_then(|model| model.split_once('/'));
    Ok(match qualified.filter(|(id, _)| has(id)) {
        Some((id, model)) => (Some(id.to_owned()), Some(model.to_owned())),
        None => (target, model),
    })
}

fn read<T: DeserializeOwned>(body: &Bytes, form: &str) -> Result<T, Failure> {
    serde_json::from_slice(body)
        .map_err(|e| Failure::InvalidRequest { message: format!("the body is `{form}`: {e}"), param: None })
}

/// All servers by their last looks.
pub(super) fn targets(context: &Context) -> Vec<Target> {
    context.settings.outside.iter().map(Target::of).collect()
}

impl Target {
    fn of(outside: &Outside) -> Self {
        let sighting = outside.watch.seen();
        let view = sighting.sight.as_deref();
        Self {
            id: outside.config.id.clone(),
            kind: outside.config.kind.as_str(),
            url: outside.config.url.base(),
            lifecycle: match outside.watch.guest().target().lifecycle {
                Lifecycle::Managed => "managed",
                Lifecycle::UserManaged => "user-managed",
            },
            local: outside.config.url.is_loopback(),
            seen: view.is_some(),
            trouble: sighting.trouble.as_deref().map(str::to_owned),
            capacity: view.and_then(|view| match view.capacity {
                Capacity::Unknown => None,
                Capacity::Unlimited => Some(0),
                Capacity::Of(n) => Some(n),
            }),
            autoload: view.and_then(|view| view.autoload).map(Autoload::as_str),
            residents: view.into_iter().flat_map(|view| &view.residents).map(Row::of).collect(),
        }
    }
}

impl Row {
    fn of(Resident { seen, owner, protection, used }: &Resident) -> Self {
        Self {
            model: seen.id.clone(),
            state: if seen.phase == Phase::Sleeping { "sleeping" } else { standing(seen.phase).as_str() },
            owner: match owner {
                Owner::Ours(_) => "ours",
                Owner::Foreign => "foreign",
            },
            protection: match protection {
                Protection::Tag => Some("tag"),
                Protection::Config(role) => Some(role.as_str()),
                Protection::Worker => Some("worker"),
                Protection::None => None,
            },
            in_use: *used == Used::InUse,
            vram_bytes: seen.sizes.map(|sizes| sizes.vram.get()),
            total_bytes: seen.sizes.map(|sizes| sizes.total.get()),
        }
    }
}

impl Outlook {
    fn of(target: String, model: String, Plan { action, notices }: Plan) -> Self {
        let names = |residents: Vec<Resident>| residents.into_iter().map(|one| one.seen.id).collect();
        let blank = Self {
            target,
            model,
            action: "observe",
            evict: vec![],
            busy: vec![],
            why: None,
            notices: notices.into_iter().map(Told::of).collect(),
        };
        match action {
            Action::Observe => blank,
            Action::Resident => Self { action: "resident", ..blank },
            Action::Await => Self { action: "await", ..blank },
            Action::Load { evict } => Self { action: "load", evict: names(evict), ..blank },
            Action::Delegate { release, .. } => Self { action: "delegate", evict: names(release), ..blank },
            Action::Wait { busy } => Self { action: "wait", busy, ..blank },
            Action::Decline(why) => Self { action: "decline", why: Some(why.to_string()), ..blank },
        }
    }
}

impl Told {
    fn of(notice: Notice) -> Self {
        Self { kind: notice.kind.as_str(), model: notice.model, message: notice.message }
    }
}
