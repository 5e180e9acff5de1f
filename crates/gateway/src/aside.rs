//! Questions to engines that serve, which take no slot and wait for none: about a reply that is being made, and what is
//! only counted, cut or looked up.
//!
//! The reply in question has a slot, perhaps the only one; whoever waited for it to be free would come too late. So nothing is
//! leased: each engine of the model that serves is asked. It may end meanwhile; then there is nothing left to ask about, and
//! what is only counted is asked with a lease.
use crate::{
    body::{ReplyBody, full},
    context::Context,
    errors::Failure,
    exchange::{Job, must_be_wrapped},
    headers,
    relay::next_bytes,
    upstream::Often,
};
use http::{Request, Response, Uri, header, response};
use motorpool_pool::Grant;
use motorpool_vocab::ModelId;
use std::{sync::Arc, time::Duration};

/// Nobody waits longer for what costs an engine that serves next to nothing: one that hangs is not waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The longest answer that is held in memory.
const ANSWER_BYTES: usize = 16 << 20;

/// An answer that has come whole.
pub(crate) struct Answer {
    pub(crate) head: response::Parts,
    pub(crate) document: Vec<u8>,
}

/// The answer of the engine that knows, else the last one's refusal.
pub(crate) async fn ask(context: &Context, job: &Job) -> Result<Response<ReplyBody>, Failure> {
    let mut refusal = None;
    for grant in serving(context, &job.model, &job.engine) {
        let Some(answer) = answer_of(context, &grant, &job.path_and_query, |uri| job.plain_request(uri)).await else {
            continue;
        };
        if answer.head.status.is_success() {
            return Ok(whole(answer));
        }
        refusal = Some(answer);
    }
    let Some(answer) = refusal else {
        let message = format!("no engine of `{}` makes a reply just now", job.model);
        return Err(Failure::InvalidRequest { message, param: Some("id") });
    };
    refused(job, answer)
}

/// The answer of the first engine that gives one; `None`: none serves just now.
pub(crate) async fn count(context: &Context, job: &Job) -> Option<Result<Response<ReplyBody>, Failure>> {
    for grant in serving(context, &job.model, &job.engine) {
        let request = |uri| job.plain_request(uri);
        if let Some(answer) = answer_of(context, &grant, &job.path_and_query, request).await {
            job.recorder.has_result();
            return Some(if answer.head.status.is_success() { Ok(whole(answer)) } else { refused(job, answer) });
        }
    }
    None
}

/// Engines of `model` that serve. Of two, while one goes for the other, only that of this name understands who asks.
pub(crate) fn serving(context: &Context, model: &ModelId, engine: &str) -> Vec<Arc<Grant>> {
    let mut grants = context.handle.serving(model);
    grants.retain(|grant| grant.key.provider() == engine);
    grants
}

/// What the engine of `grant` answers, if it does, and shortly.
pub(crate) async fn answer_of(
    context: &Context,
    grant: &Grant,
    path: &str,
    request: impl Fn(Uri) -> Request<ReplyBody> + Send + Sync,
) -> Option<Answer> {
    let answered = async {
        let to = (grant.spawn, &grant.endpoint);
        let (head, mut body) = context.upstream.send(to, (path, Often::OnceMore), request).await.ok()?.into_parts();
        let mut document = Vec::new();
        while let Some(bytes) = next_bytes(&mut body, ANSWER_WITHIN).await.ok()? {
            document.extend_from_slice(&bytes);
            if document.len() > ANSWER_BYTES {
                return None;
            }
        }
        Some(Answer { head, document })
    };
    tokio::time::timeout(ANSWER_WITHIN, answered).await.ok()?
}

fn refused(job: &Job, answer: Answer) -> Result<Response<ReplyBody>, Failure> {
    if must_be_wrapped(&job.caller, &answer.head) {
        return Err(Failure::of_engine(answer.head.status, &answer.document));
    }
    job.recorder.refused_by_engine();
    Ok(whole(answer))
}

fn whole(Answer { mut head, document }: Answer) -> Response<ReplyBody> {
    headers::to_client(&mut head.headers);
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, full(document))
}
