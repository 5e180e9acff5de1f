//! A call of Ollama's, from its body that has arrived to the engine's reply, or to what goes to somebody else's server.
use super::{
    Translation,
    lines::{JSON, NDJSON, whole},
    reply::{Recast, Style, Terms},
    request::{Asked, Call, Delivery, NotTranslated, translate},
};
use crate::{
    body::ReplyBody,
    context::Context,
    errors::Failure,
    exchange::{Job, Reply},
    inference::answer,
    loading::CommitAfter,
    models::Standing,
    receive::Received,
    refusals::failure_of,
    retain::Retained,
    scan::{Findings, Scan},
    splice::{Edits, Splice},
};
use http::{HeaderValue, Method, Response, header};
use motorpool_catalog::Model;
use std::sync::Arc;

/// Answers `call`, whose body is in `received`. `job` goes to the model's engine with what it is translated to.
pub(crate) async fn serve(
    context: &Arc<Context>,
    (call, model): (Call, &Model),
    mut job: Job,
    received: Received,
) -> Result<Response<ReplyBody>, Failure> {
    let began = std::time::Instant::now();
    let name = received.found.as_ref().and_then(|found| found.model()).unwrap_or(model.id.as_str()).to_owned();
    let manifest = context.manifest(model);
    let request = match translated(context, call, &received.body, manifest.name_of(&model.id)).await? {
        Asked::Engine(request) => request,
        Asked::Presence(delivery) => {
            let translation = Translation { call, delivery, model: name, began };
            return presence(context, model, &job, &translation).await;
        }
    };
    if request.path == "/infill" && !manifest.allows("POST", request.path) {
        return Err(Failure::NotSupported("`suffix`: the model's engine cannot fill a gap, which"));
    }
    job.method = Method::POST;
    request.path.clone_into(&mut job.path_and_query);
    job.headers.remove(header::ACCEPT);
    job.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    job.splice = ruled(context, model, &request.body)?;
    job.body = held(context, &request.body).await?;
    job.reply = Reply::Translated(Translation { call, delivery: request.delivery, model: name, began });
    answer(context, job, received.loading, CommitAfter::Never).await
}

/// A call as it goes to a server that speaks OpenAI's API.
pub(crate) struct Abroad {
    pub(crate) path: &'static str,
    pub(crate) body: Arc<Retained>,
    pub(crate) found: Findings,
    pub(crate) translation: Translation,
}

/// `call` for somebody else's server, whose model is `wire` there and was asked for as `name`. Loading or unloading it
/// without a prompt is not offered: how long it stays is not a client's to say.
pub(crate) async fn abroad(
    context: &Context,
    (call, body): (Call, &Retained),
    (wire, name): (&str, &str),
) -> Result<Abroad, Failure> {
    let began = std::time::Instant::now();
    let Asked::Engine(request) = translated(context, call, body, wire).await? else {
        return Err(Failure::NotSupported("a request without a prompt for a model of this server"));
    };
    let found = scanned(context, &request.body)?;
    let body = held(context, &request.body).await?;
    let translation = Translation { call, delivery: request.delivery, model: name.to_owned(), began };
    Ok(Abroad { path: request.path, body, found, translation })
}

async fn held(context: &Context, body: &[u8]) -> Result<Arc<Retained>, Failure> {
    let mut intake = context.bodies.intake(None)?;
    intake.push(body).await?;
    Ok(Arc::new(intake.finish().await?))
}

fn scanned(context: &Context, body: &[u8]) -> Result<Findings, Failure> {
    let mut scan = Scan::new(&[]).watching(&context.watched);
    let found = scan.feed(body).and_then(|()| scan.finish());
    found.map_err(|error| Failure::InvalidRequest { message: error.to_string(), param: None })
}

/// What the body asks for. A long one is read where nobody waits for the thread.
async fn translated(context: &Context, call: Call, body: &Retained, model: &str) -> Result<Asked, Failure> {
    let (body, _room) = context.bodies.whole(body).await?;
    let id = model.to_owned();
    let read = tokio::task::spawn_blocking(move || translate(call, &body, &id)).await;
    read.map_err(|_| Failure::Internal("a body could not be read"))?.map_err(|error| match error {
        NotTranslated::NotOffered(what) => Failure::NotSupported(what),
        NotTranslated::Body(_) | NotTranslated::Member(..) => {
            Failure::InvalidRequest { message: error.to_string(), param: None }
        }
    })
}

/// What the model's rules change in an engine's request.
fn ruled(context: &Context, model: &Model, body: &[u8]) -> Result<Splice, Failure> {
    let len = body.len() as u64;
    if model.parameters.is_empty() {
        return Ok(Splice::of_object(len));
    }
    let found = scanned(context, body)?;
    Ok(Splice::new(&found, len, Edits { rules: Some(&model.parameters), ..Edits::default() }))
}

/// Has the model loaded, or lets it go: what a call without a prompt is for.
async fn presence(
    context: &Context,
    model: &Model,
    job: &Job,
    translation: &Translation,
) -> Result<Response<ReplyBody>, Failure> {
    let goes = job.asker.goes_at_once();
    let is_there = Standing::of(model, &context.handle.snapshot()) == Standing::Loaded;
    if is_there || !goes {
        // Given back at once: then it is kept, or goes, as this request says.
        let lease = context.handle.acquire(job.asker.ask(model.id.clone())).await.map_err(failure_of)?;
        drop(lease);
    }
    let loaded_within = translation.began.elapsed();
    let terms = Terms { model: translation.model.clone(), began: translation.began, loaded_within };
    let document = match translation.call {
        Call::Embed => super::embed::none(&translation.model),
        Call::Embeddings => br#"{"embedding":[]}"#.to_vec(),
        Call::Chat | Call::Generate => {
            Recast::nothing(Style::of(translation.call), &terms, if goes { "unload" } else { "load" })
        }
    };
    Ok(whole(document, if translation.delivery == Delivery::Lines { NDJSON } else { JSON }))
}
