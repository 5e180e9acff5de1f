//! Questions to an engine about a reply that it makes: they take no slot, and wait for none.
//!
//! The reply in question has a slot, perhaps the only one; whoever waited for it to be free would come too late. So nothing is
//! leased: each engine of the model that serves is asked, and the first that knows the reply answers. It may end meanwhile;
//! then there is nothing left to ask about.
use crate::{
    body::{ReplyBody, full},
    context::Context,
    errors::Failure,
    exchange::{Job, begin_of, must_be_wrapped},
    headers,
    upstream::Often,
};
use http::{Response, header};

/// The answer of the engine that knows, else the last one's refusal.
pub(crate) async fn ask(context: &Context, job: &Job) -> Result<Response<ReplyBody>, Failure> {
    let within = context.settings.limits.between_frames;
    let mut refusal = None;
    // Of two engines of the model, while one goes for the other, only its own understands it.
    for grant in context.handle.serving(&job.model).into_iter().filter(|grant| grant.key.provider() == job.engine) {
        let request = |uri| job.plain_request(uri);
        let to = (grant.spawn, &grant.endpoint);
        let Ok(reply) = context.upstream.send(to, (&job.path_and_query, Often::OnceMore), request).await else {
            continue;
        };
        let (head, mut body) = reply.into_parts();
        let document = begin_of(None, &mut body, within).await;
        if head.status.is_success() {
            return Ok(whole(head, document));
        }
        refusal = Some((head, document));
    }
    let Some((head, document)) = refusal else {
        let message = format!("no engine of `{}` makes a reply just now", job.model);
        return Err(Failure::InvalidRequest { message, param: Some("id") });
    };
    if must_be_wrapped(&job.caller, &head) {
        return Err(Failure::of_engine(head.status, &document));
    }
    job.recorder.refused_by_engine();
    Ok(whole(head, document))
}

fn whole(mut head: http::response::Parts, document: Vec<u8>) -> Response<ReplyBody> {
    headers::to_client(&mut head.headers);
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, full(document))
}
