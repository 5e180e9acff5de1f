//! Our own interface, `/api/motorpool/v1/…`: what there is, and what an operator asks of it.
//!
//! Served at every address to our own pages and to programs, and on the control socket; `shutdown` only there. Errors
//! have OpenAI's shape, so that one client reads both.
mod denials;
mod drain;
mod events;
mod log;
mod plan;
mod queue;
mod reload;
mod residency;
mod routes;
mod usage;
mod whole;
mod wire;

pub(crate) use log::{Follow, LogBody};
pub use plan::Outlooks;

use crate::{
    body::boxed,
    context::{Context, unknown},
    errors::Failure,
    family::Caller,
    models::Standing,
    refusals::was_unloaded,
    service::{Door, failed},
};
use axum::{
    Extension, Json, Router,
    body::Body,
    extract::{
        OriginalUri, Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use motorpool_catalog::{MOST_REPLICAS, Model};
use motorpool_pool::Force;
use motorpool_vocab::{EngineKey, ModelId, PhaseView};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use whole::Whole;

type Shared = State<Arc<Context>>;
type Name = Result<Path<String>, PathRejection>;

/// A failure as this interface answers it.
struct Refused(Failure);

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        failed(&self.0, &Caller::ours()).map(Body::new)
    }
}

/// All routes.
pub(crate) fn router(context: Arc<Context>) -> Router {
    let routes = routes::table().into_iter().fold(Router::new(), |router, row| router.route(row.path, row.handler));
    Router::new().nest(routes::ROOT, routes).fallback(nothing_there).with_state(context)
}

async fn nothing_there(OriginalUri(uri): OriginalUri) -> Refused {
    Refused(Failure::NotFound { path: uri.path().to_owned(), hint: "" })
}

async fn status(State(context): Shared) -> Json<wire::Status> {
    Json(wire::Status::of(&context))
}

/// The part of it that is about memory.
async fn budget(State(context): Shared) -> Json<wire::Pool> {
    Json(wire::Pool::of(&context.handle.snapshot()))
}

#[derive(Serialize)]
struct Models {
    models: Vec<wire::Model>,
}

async fn list_models(State(context): Shared) -> Json<Models> {
    let snapshot = context.handle.snapshot();
    let models = context.catalog.models().map(|m| wire::Model::of(m, Standing::of(m, &snapshot))).collect();
    Json(Models { models })
}

async fn one_model(State(context): Shared, name: Name) -> Result<Json<wire::Model>, Refused> {
    let model = model_of(&context, name)?;
    Ok(Json(wire::Model::of(&model, Standing::of(&model, &context.handle.snapshot()))))
}

#[derive(Serialize)]
struct Engines {
    engines: Vec<wire::Engine>,
}

async fn list_engines(State(context): Shared) -> Json<Engines> {
    Json(Engines { engines: wire::engines(&context) })
}

async fn one_engine(State(context): Shared, name: Name) -> Result<Json<wire::Engine>, Refused> {
    let key = key_of(name)?;
    let snapshot = context.handle.snapshot();
    let entry = snapshot.entries.iter().find(|entry| entry.key == key);
    Ok(Json(wire::engine(&context, entry.ok_or_else(|| no_engine(&key))?, snapshot.at)))
}

#[derive(Serialize)]
struct Loaded {
    key: String,
}

async fn load_model(State(context): Shared, name: Name) -> Result<Json<Loaded>, Refused> {
    let model = model_of(&context, name)?;
    load(&context, &model).await
}

async fn load_engine(State(context): Shared, name: Name) -> Result<Json<Loaded>, Refused> {
    let key = key_of(name)?;
    let may_be = |m: &&Arc<Model>| m.engine == key.provider() && key.replica() < MOST_REPLICAS;
    let model = context.catalog.model(key.model()).filter(may_be).ok_or_else(|| no_engine(&key))?;
    let key = context.handle.load_replica(model.id.clone(), key.replica()).await;
    let key = key.map_err(|refusal| context.refusal(refusal))?;
    Ok(Json(Loaded { key: key.to_string() }))
}

async fn load(context: &Context, model: &Model) -> Result<Json<Loaded>, Refused> {
    let key = context.handle.load(model.id.clone()).await.map_err(|refusal| context.refusal(refusal))?;
    Ok(Json(Loaded { key: key.to_string() }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unload {
    #[serde(default)]
    mode: Mode,
}

/// How an engine is unloaded.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// After those that it serves have finished.
    #[default]
    Drain,
    /// Only if it serves nobody.
    Idle,
    /// At once.
    Force,
}

#[derive(Serialize)]
struct Unloaded {
    /// Whether something was there.
    unloaded: bool,
    keys: Vec<String>,
}

async fn unload_engine(State(context): Shared, name: Name, Whole(body): Whole) -> Result<Json<Unloaded>, Refused> {
    let key = key_of(name)?;
    unload(&context, vec![key], mode_of(&body)?).await
}

async fn unload_model(State(context): Shared, name: Name, Whole(body): Whole) -> Result<Json<Unloaded>, Refused> {
    let mode = mode_of(&body)?;
    let model = model_of(&context, name)?;
    let snapshot = context.handle.snapshot();
    let lives = snapshot.entries.iter().filter(|e| *e.key.model() == model.id && e.phase != PhaseView::Idle);
    unload(&context, lives.map(|e| e.key.clone()).collect(), mode).await
}

async fn unload(context: &Context, keys: Vec<EngineKey>, mode: Mode) -> Result<Json<Unloaded>, Refused> {
    let mut gone = Vec::new();
    for key in keys {
        let answer = match mode {
            Mode::Idle => context.handle.unload_idle(key.clone()).await,
            Mode::Drain => context.handle.evict(key.clone(), Force::No).await,
            Mode::Force => context.handle.evict(key.clone(), Force::Yes).await,
        };
        if was_unloaded(answer)? {
            gone.push(key.to_string());
        }
    }
    Ok(Json(Unloaded { unloaded: !gone.is_empty(), keys: gone }))
}

#[derive(Serialize)]
struct Released {
    /// Engines that were busy and stay.
    busy: Vec<String>,
}

async fn unload_idle(State(context): Shared) -> Json<Released> {
    let busy = context.handle.release_idle().await;
    Json(Released { busy: busy.iter().map(ToString::to_string).collect() })
}

#[derive(Serialize)]
struct Reset {
    /// Engines whose failures counted, and do not any more.
    reset: Vec<String>,
}

async fn reset_model(State(context): Shared, name: Name) -> Result<Json<Reset>, Refused> {
    let model = model_of(&context, name)?;
    Ok(reset(&context, Some(model.id.clone())).await)
}

/// Failures count by engine, and what they were made of is the model's: all of it is forgotten.
async fn reset_engine(State(context): Shared, name: Name) -> Result<Json<Reset>, Refused> {
    let key = key_of(name)?;
    let model = context.catalog.model(key.model()).ok_or_else(|| no_engine(&key))?;
    Ok(reset(&context, Some(model.id.clone())).await)
}

async fn reset_all(State(context): Shared) -> Json<Reset> {
    reset(&context, None).await
}

async fn reset(context: &Context, model: Option<ModelId>) -> Json<Reset> {
    let keys = context.handle.reset(model).await;
    Json(Reset { reset: keys.iter().map(ToString::to_string).collect() })
}

#[derive(Serialize)]
struct Leaving {
    status: &'static str,
}

async fn shutdown(
    State(context): Shared,
    Extension(door): Extension<Door>,
) -> Result<(StatusCode, Json<Leaving>), Refused> {
    if door != Door::Control {
        return Err(Refused(Failure::NotAllowed("the server is ended on its control socket only")));
    }
    context.shutdown_asked.notify_one();
    Ok((StatusCode::ACCEPTED, Json(Leaving { status: "shutting down" })))
}

#[derive(Deserialize)]
struct LogQuery {
    follow: Option<String>,
}

async fn log_of_engine(
    State(context): Shared,
    name: Name,
    query: Result<Query<LogQuery>, QueryRejection>,
) -> Result<Response, Refused> {
    let Query(query) = query.map_err(|error| Failure::InvalidRequest { message: error.body_text(), param: None })?;
    let key = key_of(name)?;
    let follow = match query.follow.as_deref() {
        Some("1" | "true" | "") => Follow::Yes,
        _ => Follow::No,
    };
    let Ok(log) = LogBody::open(context.handle.log_path(&key), follow).await else {
        return Err(Refused(no_engine(&key)));
    };
    let mut response = Response::new(Body::new(boxed(log)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(response)
}

fn model_of(context: &Context, name: Name) -> Result<Arc<Model>, Failure> {
    let Path(name) =
        name.map_err(|_| Failure::InvalidRequest { message: "the name is no text".into(), param: None })?;
    model_of_name(context, &name)
}

fn model_of_name(context: &Context, name: &str) -> Result<Arc<Model>, Failure> {
    Ok(Arc::clone(context.catalog.resolve(name).map_err(unknown)?))
}

fn key_of(name: Name) -> Result<EngineKey, Failure> {
    let invalid = |message| Failure::InvalidRequest { message, param: None };
    let Path(name) = name.map_err(|e| invalid(e.body_text()))?;
    name.parse().map_err(|e: motorpool_vocab::KeyError| invalid(format!("`{name}`: {e}")))
}

fn no_engine(key: &EngineKey) -> Failure {
    Failure::NotFound { path: format!("engine {key}"), hint: "; no engine of that name has run" }
}

fn mode_of(body: &Bytes) -> Result<Mode, Failure> {
    if body.is_empty() {
        return Ok(Mode::default());
    }
    serde_json::from_slice::<Unload>(body).map(|u| u.mode).map_err(|e| Failure::InvalidRequest {
        message: format!("the body is `{{\"mode\":\"drain\"}}`, `idle` or `force`: {e}"),
        param: Some("mode"),
    })
}
