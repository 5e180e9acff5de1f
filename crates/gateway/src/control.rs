//! What clients of llama.cpp's router and of llama-swap ask of engines: load, unload, what runs, logs.
//!
//! Each of them is one of our own management calls in another spelling, with the same rights.
use crate::{
    api::{Follow, LogBody},
    body::{BodyError, ReplyBody, boxed, full},
    context::Context,
    errors::Failure,
    keys::Rights,
    models::Standing,
    raw,
    receive::receive_small,
    refusals::{failure_of, was_unloaded},
    service::json,
};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use motorpool_catalog::Model;
use motorpool_pool::{Answer, Force};
use motorpool_vocab::{EngineKey, ModelId, PhaseView};
use serde::{Deserialize, Serialize};
use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context as Waker, Poll},
};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control<'a> {
    /// `/models/load`: the model is begun to be loaded.
    Load,
    /// `/models/unload`: the model is unloaded.
    Unload,
    /// `/running`: which engines there are.
    Running,
    /// `/unload`: everything is unloaded.
    UnloadAll,
    /// `/api/models/unload`, with a name as it stands in the path, or all.
    UnloadNamed(Option<&'a str>),
    /// `/logs`: what all engines have printed.
    Logs,
    /// `/logs/stream`, of one model or of all: the same, and what they will print.
    Follow(Option<&'a str>),
}

#[derive(Deserialize)]
struct Named {
    model: String,
}

#[derive(Serialize)]
struct Success {
    success: bool,
}

#[derive(Serialize)]
struct Running {
    running: Vec<Run>,
}

#[derive(Serialize)]
struct Run {
    model: String,
    name: String,
    state: &'static str,
}

#[derive(Serialize)]
struct Done {
    msg: &'static str,
}

/// Answers.
pub(crate) async fn control(
    context: &Arc<Context>,
    control: Control<'_>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Failure> {
    match control {
        Control::Load => load(context, request).await,
        Control::Unload => {
            let model = named(context, request).await?;
            let lives = living(context, Some(&model));
            if lives.is_empty() {
                return Err(wrong("model is not running".into()));
            }
            unload(context, lives).await?;
            Ok(json(StatusCode::OK, &Success { success: true }))
        }
        Control::Running => {
            let rights = request.extensions().get();
            Ok(json(StatusCode::OK, &Running { running: running(context, rights) }))
        }
        Control::UnloadAll => {
            unload(context, living(context, None)).await?;
            Ok(text("OK"))
        }
        Control::UnloadNamed(None) => {
            unload(context, living(context, None)).await?;
            Ok(json(StatusCode::OK, &Done { msg: "ok" }))
        }
        Control::UnloadNamed(Some(name)) => {
            let model = chosen(context, &raw::decoded(name))?;
            unload(context, living(context, Some(&model))).await?;
            Ok(text("OK"))
        }
        Control::Logs => Ok(logs(context, None, Follow::No).await),
        Control::Follow(name) => {
            let model = name.map(|name| context.choose([raw::decoded(name).as_str()])).transpose()?;
            Ok(logs(context, model.as_deref(), Follow::Yes).await)
        }
    }
}

/// Like the router, it answers before the load has ended.
async fn load(context: &Arc<Context>, request: Request<Incoming>) -> Result<Response<ReplyBody>, Failure> {
    let model = named(context, request).await?;
    if matches!(Standing::of(&model, &context.handle.snapshot()), Standing::Loaded | Standing::Loading(_)) {
        return Err(wrong("model is already running".into()));
    }
    let handle = context.handle.clone();
    tokio::spawn(async move {
        if let Err(refusal) = handle.load(model.id.clone()).await {
            tracing::warn!(model = %model.id, "not loaded: {}", failure_of(refusal));
        }
    });
    Ok(json(StatusCode::OK, &Success { success: true }))
}

async fn named(context: &Context, request: Request<Incoming>) -> Result<Arc<Model>, Failure> {
    let body = receive_small(context, request.into_body()).await?;
    let named: Named = serde_json::from_slice(&body).map_err(|error| wrong(error.to_string()))?;
    chosen(context, &named.model)
}

/// The model of this name. None is not the default one: who forgot a name must not unload what he did not mean.
fn chosen(context: &Context, name: &str) -> Result<Arc<Model>, Failure> {
    if name.is_empty() {
        return Err(wrong("the name of a model is missing".into()));
    }
    context.choose([name])
}

fn wrong(message: String) -> Failure {
    Failure::InvalidRequest { message, param: None }
}

/// Engines that are there, of one model or of all.
fn living(context: &Context, model: Option<&Model>) -> Vec<EngineKey> {
    let snapshot = context.handle.snapshot();
    let lives = snapshot.entries.iter().filter(|entry| entry.phase != PhaseView::Idle);
    lives.filter(|entry| model.is_none_or(|m| m.id == *entry.key.model())).map(|entry| entry.key.clone()).collect()
}

/// After those that they serve have finished.
async fn unload(context: &Context, keys: Vec<EngineKey>) -> Result<(), Failure> {
    unload_each(keys, |key| context.handle.evict(key, Force::No)).await
}

/// All of them, whatever becomes of one; then the first failure.
async fn unload_each<A>(keys: Vec<EngineKey>, evict: impl Fn(EngineKey) -> A) -> Result<(), Failure>
where
    A: Future<Output = Answer>,
{
    let mut done = Ok(());
    for key in keys {
        done = done.and(was_unloaded(evict(key).await).map(drop));
    }
    done
}

fn running(context: &Context, rights: Option<&Rights>) -> Vec<Run> {
    let snapshot = context.handle.snapshot();
    let may_use = |model: &ModelId| {
        let model = context.catalog.model(model);
        rights.is_none_or(|rights| model.is_some_and(|model| rights.may_use(model)))
    };
    let lives = snapshot.entries.iter().filter_map(|entry| Some((entry, state_of(entry.phase)?)));
    let lives = lives.filter(|(entry, _)| may_use(entry.key.model()));
    lives
        .map(|(entry, state)| Run { model: entry.key.model().to_string(), name: entry.key.to_string(), state })
        .collect()
}

/// llama-swap's words.
const fn state_of(phase: PhaseView) -> Option<&'static str> {
    match phase {
        PhaseView::Idle => None,
        PhaseView::Validating | PhaseView::WaitsForRoom | PhaseView::WaitsForSlot | PhaseView::Starting { .. } => {
            Some("starting")
        }
        PhaseView::Ready | PhaseView::Suspect => Some("ready"),
        PhaseView::Stopping | PhaseView::Reclaiming => Some("stopping"),
        PhaseView::Stuck => Some("shutdown"),
    }
}

fn text(text: &'static str) -> Response<ReplyBody> {
    plain(full(text))
}

fn plain(body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// The logs of engines that have run, of one model or of all.
async fn logs(context: &Context, model: Option<&Model>, follow: Follow) -> Response<ReplyBody> {
    let snapshot = context.handle.snapshot();
    let mut open = Vec::new();
    for entry in snapshot.entries.iter().filter(|entry| model.is_none_or(|m| m.id == *entry.key.model())) {
        // One that never ran has no log.
        open.extend(LogBody::open(context.handle.log_path(&entry.key), follow).await.ok());
    }
    plain(boxed(Together(open)))
}

/// Bodies in one: what any of them has, the first one first.
struct Together(Vec<LogBody>);

impl Body for Together {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Waker<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut at = 0;
        while let Some(log) = self.0.get_mut(at) {
            match Pin::new(log).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => return Poll::Ready(Some(Ok(frame))),
                // One that cannot be read any more ends; the others go on.
                Poll::Ready(Some(Err(_)) | None) => drop(self.0.remove(at)),
                Poll::Pending => at += 1,
            }
        }
        if self.0.is_empty() { Poll::Ready(None) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[tokio::test]
    async fn one_that_cannot_be_unloaded_keeps_no_other_and_is_told() {
        let key = |n: u32| format!("llama-server:m:{n}").parse::<EngineKey>().expect("a key");
        let asked = RefCell::new(Vec::new());
        let done = unload_each((0..3).map(key).collect(), |key| {
            asked.borrow_mut().push(key.clone());
            let n = asked.borrow().len();
            std::future::ready(if n == 3 { Answer::Unloaded } else { Answer::Stuck(key) })
        });
        let told = done.await.map_err(|failure| failure.to_string());
        assert_eq!(asked.into_inner(), [key(0), key(1), key(2)]);
        assert!(told.as_ref().is_err_and(|told| told.contains(&key(0).to_string())), "{told:?}");
    }
}
