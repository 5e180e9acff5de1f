//! What Ollama's clients ask about models: the catalog, what others' servers offer, and the last snapshot, in Ollama's
//! words.
//!
//! The names are the models' own. A tag is no part of them: `name:latest` means `name`, as everywhere here.
use super::{Page, VERSION, lines::NDJSON, stamp::rfc3339};
use crate::{
    asker::not_there,
    body::{ReplyBody, boxed},
    context::Context,
    errors::Failure,
    keys::Rights,
    models::{self, Standing},
    outside::{Chosen, Foreign},
    pull,
    receive::receive_small,
    service::json,
};
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use motorpool_catalog::{Capability, ContextWish, Model, ModelSource};
use motorpool_vocab::{Bytes, Now, Snapshot};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

#[derive(Serialize)]
struct List {
    models: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_at: Option<String>,
    size: u64,
    digest: String,
    details: Details,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_vram: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_length: Option<u32>,
}

#[derive(Serialize)]
struct Details {
    parent_model: &'static str,
    format: &'static str,
    family: String,
    families: [String; 1],
    parameter_size: &'static str,
    quantization_level: &'static str,
}

#[derive(Serialize)]
struct Version {
    version: &'static str,
}

#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    stream: Option<bool>,
}

#[derive(Serialize)]
struct Shown {
    #[serde(skip_serializing_if = "Option::is_none")]
    license: Option<String>,
    modelfile: String,
    parameters: String,
    template: &'static str,
    details: Details,
    model_info: BTreeMap<&'static str, serde_json::Value>,
    capabilities: Vec<&'static str>,
    modified_at: String,
}

/// Answers what no engine is asked.
pub(crate) async fn page(
    context: &Arc<Context>,
    page: Page,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Failure> {
    let rights = request.extensions().get::<Rights>().cloned();
    let may_use_any = |names: &[String]| rights.as_ref().is_none_or(|rights| rights.may_use_any(names));
    let may_use = |model: &Model| rights.as_ref().is_none_or(|rights| rights.may_use(model));
    Ok(match page {
        Page::Version => json(StatusCode::OK, &Version { version: VERSION }),
        Page::Tags => {
            let (ours, theirs) = models::usable(context, rights.as_ref());
            let theirs = theirs.iter().map(|listed| Row::foreign(context, &listed.row));
            json(StatusCode::OK, &List { models: ours.iter().map(|model| row(context, model)).chain(theirs).collect() })
        }
        Page::Loaded => {
            let snapshot = context.handle.snapshot();
            let (ours, theirs) = models::usable(context, rights.as_ref());
            let ours = ours.iter().filter(|model| Standing::of(model, &snapshot) == Standing::Loaded);
            let theirs = theirs.iter().filter(|listed| listed.row.is_loaded());
            // When it goes there is its server's affair; without a date a client takes it for one that is being stopped.
            let there = |row| Row { size_vram: Some(0), expires_at: Some(never()), ..Row::foreign(context, row) };
            let theirs = theirs.map(|listed| there(&listed.row));
            let models = ours.map(|model| loaded(context, model, &snapshot)).chain(theirs).collect();
            json(StatusCode::OK, &List { models })
        }
        Page::Show | Page::Pull => {
            let named = named(context, request).await?;
            let name = named.model.or(named.name).unwrap_or_default();
            let model = match context.mean(&name) {
                Ok(Chosen::Foreign(foreign)) if page == Page::Show && may_use_any(&foreign.names(context)) => {
                    return Ok(json(StatusCode::OK, &shown_there(context, &foreign, &name)));
                }
                _ => context.choose([name.as_str()])?,
            };
            if !may_use(&model) {
                return Err(not_there(Some(name.as_str()).filter(|name| !name.is_empty())));
            }
            if page == Page::Show {
                return Ok(json(StatusCode::OK, &shown(context, &model)));
            }
            let delivery = if named.stream == Some(false) { pull::Delivery::Whole } else { pull::Delivery::Lines };
            pulled(context, &model, delivery).await?
        }
    })
}

async fn pulled(context: &Context, model: &Model, delivery: pull::Delivery) -> Result<Response<ReplyBody>, Failure> {
    let pull = context.pull.get().ok_or(Failure::NotSupported("fetching models"))?;
    let mut response = Response::new(boxed(pull::begin(pull, (&context.catalog, model), delivery).await?));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(NDJSON));
    Ok(response)
}

async fn named(context: &Context, request: Request<Incoming>) -> Result<Named, Failure> {
    let body = receive_small(context, request.into_body()).await?;
    serde_json::from_slice(&body).map_err(|error| Failure::InvalidRequest { message: error.to_string(), param: None })
}

impl Row {
    /// A model of somebody else's server, of whose size nothing is known here.
    fn foreign(context: &Context, listed: &models::Row) -> Self {
        Self {
            name: listed.id.clone(),
            model: listed.id.clone(),
            modified_at: Some(started(context)),
            size: 0,
            digest: String::new(),
            details: details(&listed.owned_by),
            expires_at: None,
            size_vram: None,
            context_length: None,
        }
    }
}

fn row(context: &Context, model: &Model) -> Row {
    let (size, digest) = match &model.source {
        ModelSource::Pypi { size, sha256, .. } => (size.map_or(0, Bytes::get), sha256.clone()),
        ModelSource::Https { sha256, .. } => (0, sha256.clone()),
        ModelSource::File(_) => (0, String::new()),
    };
    Row {
        name: model.id.to_string(),
        model: model.id.to_string(),
        modified_at: Some(started(context)),
        size,
        digest,
        details: details(&model.engine),
        expires_at: None,
        size_vram: None,
        context_length: None,
    }
}

/// A model of which an engine is there: what it takes, and when it goes if nobody asks it.
fn loaded(context: &Context, model: &Model, snapshot: &Snapshot) -> Row {
    let engines = || snapshot.entries.iter().filter(|entry| *entry.key.model() == model.id);
    let on_devices = |devices: &BTreeMap<_, Bytes>| Bytes::sum(devices.values().copied());
    let parts = engines().filter_map(|entry| entry.memory.as_ref()).map(|memory| on_devices(&memory.reserved.devices));
    Row {
        modified_at: None,
        size: Bytes::sum(engines().map(|entry| entry.reserved)).get(),
        size_vram: Some(Bytes::sum(parts).get()),
        expires_at: Some(
            engines().filter_map(|entry| entry.unload_at).max().map_or_else(never, |at| instant(snapshot.at, at)),
        ),
        context_length: model.context.and_then(ContextWish::tokens),
        ..row(context, model)
    }
}

/// Ollama's word for what has no end is a date that nobody here sees.
fn never() -> String {
    rfc3339(Duration::from_hours(2_016_144))
}

/// `at` on the calendar, when `now` is this instant.
fn instant(now: Now, at: Now) -> String {
    let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(today + Duration::from_nanos(at.as_nanos().saturating_sub(now.as_nanos())))
}

fn started(context: &Context) -> String {
    rfc3339(Duration::from_secs(context.started_at))
}

/// `family`: the engine, or the kind of server, that has the model.
fn details(family: &str) -> Details {
    let family = family.to_owned();
    Details {
        parent_model: "",
        format: "gguf",
        families: [family.clone()],
        family,
        parameter_size: "",
        quantization_level: "",
    }
}

fn shown(context: &Context, model: &Model) -> Shown {
    let mut model_info = BTreeMap::from([("general.architecture", serde_json::Value::from("motorpool"))]);
    model_info.insert("general.basename", model.id.as_str().into());
    if let Some(tokens) = model.context.and_then(ContextWish::tokens) {
        // Clients look for it behind the name of the architecture.
        model_info.insert("motorpool.context_length", tokens.into());
    }
    Shown {
        license: model.license.as_ref().map(|terms| terms.text.clone()),
        modelfile: format!("FROM {}\n", model.id),
        parameters: String::new(),
        template: "",
        details: details(&model.engine),
        model_info,
        capabilities: capabilities(model),
        modified_at: started(context),
    }
}

/// The same of a model of somebody else's server: what it can do, that server says when it is asked.
fn shown_there(context: &Context, foreign: &Foreign, name: &str) -> Shown {
    let model_info = [("general.architecture", "motorpool"), ("general.basename", name)];
    Shown {
        license: None,
        modelfile: format!("FROM {name}\n"),
        parameters: String::new(),
        template: "",
        details: details(foreign.outside.config.kind.as_str()),
        model_info: model_info.map(|(key, value)| (key, value.into())).into(),
        capabilities: vec![],
        modified_at: started(context),
    }
}

fn capabilities(model: &Model) -> Vec<&'static str> {
    let mut told = Vec::new();
    for capability in &model.capabilities {
        match capability {
            Capability::Chat => told.extend(["completion", "tools"]),
            Capability::Embeddings => told.push("embedding"),
            Capability::Rerank | Capability::Transcription | Capability::Speech | Capability::Images => {}
        }
    }
    if model.projector.is_some() {
        told.push("vision");
    }
    told
}
