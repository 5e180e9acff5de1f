//! The paths of this interface in one table. The router is made of it, and so is the document that describes them,
//! `openapi.json`: neither can know a path that the other does not.
use super::{
    Refused, Shared, budget, denials, drain, events, list_engines, list_models, load_engine, load_model, log_of_engine,
    one_engine, one_model, plan, queue, reload, reset_all, reset_engine, reset_model, residency, shutdown, status,
    unload_engine, unload_idle, unload_model, usage,
};
use crate::{context::Context, errors::Failure, route::SERVED};
use axum::{
    Json,
    extract::OriginalUri,
    handler::Handler,
    routing::{MethodRouter, get, post},
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Where they lie.
pub(super) const ROOT: &str = "/api/motorpool/v1";

/// One path, which takes one method.
pub(super) struct Row {
    pub(super) path: &'static str,
    verb: &'static str,
    /// What is answered or done, for people.
    says: &'static str,
    pub(super) handler: MethodRouter<Arc<Context>>,
}

fn looks<H: Handler<T, Arc<Context>>, T: 'static>(path: &'static str, says: &'static str, handler: H) -> Row {
    let handler = get(handler).fallback(|at: OriginalUri| async move { wrong_method(&at, "GET, HEAD, OPTIONS") });
    Row { path, verb: "get", says, handler }
}

/// Also what only needs more room for its question than a query has.
fn posts<H: Handler<T, Arc<Context>>, T: 'static>(path: &'static str, says: &'static str, handler: H) -> Row {
    let handler = post(handler).fallback(|at: OriginalUri| async move { wrong_method(&at, "POST, OPTIONS") });
    Row { path, verb: "post", says, handler }
}

fn wrong_method(OriginalUri(uri): &OriginalUri, allow: &'static str) -> Refused {
    Refused(Failure::MethodNotAllowed { path: uri.path().to_owned(), allow })
}

/// All of them.
pub(super) fn table() -> Vec<Row> {
    vec![
        looks("/status", "The pool, its engines and who waits for room", status),
        looks("/budget", "Memory by place: what there is, what is shared out, what is taken", budget),
        looks("/models", "Every model and its state", list_models),
        looks("/models/{id}", "One model and its state", one_model),
        posts("/models/{id}/load", "Loads a model", load_model),
        posts("/models/{id}/unload", "Unloads a model: `mode` is `drain`, `idle` or `force`", unload_model),
        posts("/models/{id}/drain", "Takes a model out of service when what it serves has finished", drain::model),
        posts("/models/{id}/restart", "Unloads a model and loads it", drain::restart_model),
        posts("/models/{id}/reset", "Forgets the failures of a model", reset_model),
        looks("/engines", "Every engine", list_engines),
        looks("/engines/{key}", "One engine", one_engine),
        posts("/engines/{key}/load", "Loads one replica", load_engine),
        posts("/engines/{key}/unload", "Unloads one engine: `mode` is `drain`, `idle` or `force`", unload_engine),
        posts(
            "/engines/{key}/drain",
            "Takes one engine out of service when what it serves has finished",
            drain::engine,
        ),
        posts("/engines/{key}/restart", "Unloads one engine and loads it", drain::restart_engine),
        posts("/engines/{key}/reset", "Forgets the failures of an engine's model", reset_engine),
        looks("/engines/{key}/logs", "The log of an engine; `follow=1` goes on with it", log_of_engine),
        looks("/queue", "Who is served, and who waits", queue::list),
        posts("/queue/{id}/cancel", "Takes one request out of the queue", queue::cancel),
        posts("/queue/{id}/move", "Moves one request within its queue", queue::shift),
        posts(
            "/requests/{id}/cancel",
            "Ends a request, waiting or served, by its number; by its name, all of that name",
            queue::cancel_request,
        ),
        posts("/reconcile", "Says how many engines of models are wanted", queue::reconcile),
        posts("/reload", "Reads the files again", reload::reload),
        looks("/events", "What happens, as a stream of numbered events that can be resumed", events::stream),
        looks("/usage", "What requests took", usage::usage),
        looks("/denials", "What was refused for want of room, with the arithmetic", denials::list),
        posts("/plan", "What launches would take, and what would become of them", plan::plan),
        looks("/explain", "All that is known of the model `?model=`, and what would become of a launch", plan::explain),
        looks("/residency", "Models on servers that somebody else runs", residency::list),
        posts("/residency/plan", "What a load on such a server would do", residency::plan),
        posts("/residency/release", "Gives back what we loaded there and nobody uses", residency::release),
        posts("/residency/adopt", "Makes a model there ours", residency::adopt),
        posts("/reset", "Forgets all failures", reset_all),
        posts("/unload-idle", "Unloads every engine that serves nobody", unload_idle),
        posts("/shutdown", "Ends the server; on its control socket only", shutdown),
        looks("/openapi.json", "This document", openapi),
    ]
}

async fn openapi(_: Shared) -> Json<Value> {
    Json(document())
}

/// The table, and the paths that models answer, as `OpenAPI` has it.
fn document() -> Value {
    let ours = table();
    let ours =
        ours.iter().map(|row| (format!("{ROOT}{}", row.path), json!({ row.verb: operation(row.says, row.path) })));
    let says = "Answered by the model that the body names";
    let theirs = SERVED.iter().map(|served| (served.path.to_owned(), json!({ "post": operation(says, served.path) })));
    let paths: Map<String, Value> = ours.chain(theirs).collect();
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Motorpool", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": { "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } } },
        "security": [{}, { "key": [] }],
    })
}

fn operation(says: &str, path: &str) -> Value {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameters: Vec<Value> = names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    json!({
        "summary": says,
        "parameters": parameters,
        "responses": { "200": { "description": "Done" }, "default": { "description": "Refused; `X-Motorpool-Code` says why" } },
    })
}
