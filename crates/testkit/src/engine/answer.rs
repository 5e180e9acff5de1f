//! Answers that are made from what the engine knows: health, properties, slots, models, and the test's own views.
use crate::{
    engine::{Engine, Phase},
    trouble, wire,
};
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use serde_json::{Value, json};
use std::{convert::Infallible, io::Write as _, time::Duration};

/// A response of the server.
pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A body of `kind`.
pub(crate) fn text(status: StatusCode, kind: &str, body: String) -> Reply {
    Response::builder()
        .status(status)
        .header("content-type", kind)
        .body(BodyExt::boxed_unsync(Full::from(body)))
        .expect("a constant head")
}

/// A body of JSON.
pub(crate) fn json(status: StatusCode, body: &Value) -> Reply {
    text(status, "application/json; charset=utf-8", body.to_string())
}

/// An error in llama-server's shape.
pub(crate) fn error(status: StatusCode, kind: &str, message: &str) -> Reply {
    json(status, &wire::error(status.as_u16(), kind, message))
}

/// The answer of an engine that fails at inference.
pub(crate) fn unwell(engine: &Engine) -> Option<Reply> {
    let is_on = engine.behaviour.inference.fails.is_on();
    is_on.then(|| error(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "Compute error."))
}

/// What every path answers while the model loads.
pub(crate) fn loading() -> Reply {
    error(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", "Loading model")
}

/// `/health`, with its lies.
pub(crate) async fn health(engine: &Engine) -> Reply {
    let health = &engine.behaviour.health;
    trouble::compute(Duration::from_micros(health.work_us));
    if health.logs.is_on() {
        // Nobody may listen any more.
        drop(writeln!(std::io::stdout().lock(), "INFO:     - \"GET /health HTTP/1.1\" 503 Service Unavailable"));
    }
    if health.hangs.is_on() {
        return std::future::pending().await;
    }
    if health.fails.is_on() {
        return error(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "unwell");
    }
    if engine.phase() == Phase::Loading && !health.lies.is_on() {
        return loading();
    }
    json(StatusCode::OK, &json!({"status": "ok"}))
}

/// `/props`.
pub(crate) fn props(engine: &Engine) -> Reply {
    let n_slots = u32::try_from(engine.n_slots()).expect("a few slots");
    json(
        StatusCode::OK,
        &json!({
            "default_generation_settings": {"params": {}, "n_ctx": engine.arguments.context / n_slots},
            "total_slots": n_slots, "model_alias": engine.arguments.alias, "model_path": engine.arguments.model,
            "modalities": {"vision": false, "video": false, "audio": false}, "endpoint_slots": true,
            "endpoint_props": false, "endpoint_metrics": true, "chat_template": "", "bos_token": "", "eos_token": "",
            "build_info": "fake", "is_sleeping": false,
        }),
    )
}

/// The row of the one model in `/v1/models`; also what the child protocol says at ready.
pub(crate) fn model_row(engine: &Engine) -> Value {
    let size = std::fs::metadata(&engine.arguments.model).map_or(0, |file| file.len());
    json!({
        "id": engine.arguments.alias, "aliases": [], "tags": [], "object": "model", "created": 1_700_000_000,
        "owned_by": "llamacpp", "meta": {"n_ctx": engine.arguments.context, "size": size},
    })
}

/// `/v1/models`.
pub(crate) fn models(engine: &Engine) -> Reply {
    json(StatusCode::OK, &json!({"object": "list", "data": [model_row(engine)]}))
}
