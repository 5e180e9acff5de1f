//! Engines that take nothing new (`drain`), and engines that are started anew (`restart`).
//!
//! A drain is answered when it has begun: what the engine serves comes to its end, however late, and then it stops. It
//! takes no requests until it is loaded, or its failures are reset. A restart is an unload and a load: with `drain` the
//! engine stops after what it serves, if that is in time; with `force` at once.
use super::{Mode, Name, Refused, Shared, Whole, key_of, mode_of, model_of, no_engine};
use crate::{context::Context, errors::Failure, refusals::was_unloaded};
use axum::{Json, extract::State};
use motorpool_catalog::{MOST_REPLICAS, Model};
use motorpool_pool::Force;
use motorpool_vocab::{EngineKey, PhaseView};
use serde::Serialize;
use std::sync::Arc;

#[derive(Serialize)]
pub(super) struct Draining {
    /// Engines that take no requests from now on.
    draining: Vec<String>,
    /// Requests that they still serve.
    serving: usize,
}

#[derive(Serialize)]
pub(super) struct Restarted {
    restarted: Vec<String>,
}

pub(super) async fn engine(State(context): Shared, name: Name) -> Result<Json<Draining>, Refused> {
    let key = key_of(name)?;
    known(&context, &key)?;
    Ok(begin(&context, vec![key]))
}

/// Every engine of it that there is or may be.
pub(super) async fn model(State(context): Shared, name: Name) -> Result<Json<Draining>, Refused> {
    let model = model_of(&context, name)?;
    let snapshot = context.handle.snapshot();
    let of_it = snapshot.entries.iter().filter(|entry| *entry.key.model() == model.id);
    let highest = of_it.map(|entry| entry.key.replica() + 1).max().unwrap_or(0).max(model.replicas.max);
    let keys = (0..highest).filter_map(|replica| EngineKey::new(&model.engine, model.id.clone(), replica).ok());
    Ok(begin(&context, keys.collect()))
}

fn begin(context: &Arc<Context>, keys: Vec<EngineKey>) -> Json<Draining> {
    let snapshot = context.handle.snapshot();
    let served = snapshot.entries.iter().filter(|entry| keys.contains(&entry.key));
    let serving = served.map(|entry| entry.leases.len()).sum();
    let draining = keys.iter().map(ToString::to_string).collect();
    for key in keys {
        let handle = context.handle.clone();
        // It goes on when whoever asked is gone.
        tokio::spawn(async move { handle.drain(key).await });
    }
    Json(Draining { draining, serving })
}

pub(super) async fn restart_engine(
    State(context): Shared,
    name: Name,
    Whole(body): Whole,
) -> Result<Json<Restarted>, Refused> {
    let (key, mode) = (key_of(name)?, mode_of(&body)?);
    known(&context, &key)?;
    restart(&context, vec![key], mode).await
}

/// Every engine of it that lives; none: one is started.
pub(super) async fn restart_model(
    State(context): Shared,
    name: Name,
    Whole(body): Whole,
) -> Result<Json<Restarted>, Refused> {
    let (model, mode) = (model_of(&context, name)?, mode_of(&body)?);
    let snapshot = context.handle.snapshot();
    let lives = snapshot.entries.iter().filter(|e| *e.key.model() == model.id && e.phase != PhaseView::Idle);
    let mut keys: Vec<EngineKey> = lives.map(|entry| entry.key.clone()).collect();
    if keys.is_empty() {
        keys.extend(EngineKey::new(&model.engine, model.id.clone(), 0).ok());
    }
    restart(&context, keys, mode).await
}

async fn restart(context: &Context, keys: Vec<EngineKey>, mode: Mode) -> Result<Json<Restarted>, Refused> {
    let mut restarted = Vec::new();
    for key in keys {
        let answer = match mode {
            Mode::Idle => context.handle.unload_idle(key.clone()).await,
            Mode::Drain => context.handle.evict(key.clone(), Force::No).await,
            Mode::Force => context.handle.evict(key.clone(), Force::Yes).await,
        };
        was_unloaded(answer)?;
        let loaded = context.handle.load_replica(key.model().clone(), key.replica()).await;
        restarted.push(loaded.map_err(|refusal| context.refusal(refusal))?.to_string());
    }
    Ok(Json(Restarted { restarted }))
}

/// An engine that may be.
fn known(context: &Context, key: &EngineKey) -> Result<Arc<Model>, Failure> {
    let may_be = |m: &&Arc<Model>| m.engine == key.provider() && key.replica() < MOST_REPLICAS;
    context.catalog.model(key.model()).filter(may_be).cloned().ok_or_else(|| no_engine(key))
}
