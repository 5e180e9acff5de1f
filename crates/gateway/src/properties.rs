//! `GET /props`: what the engine of a model says of itself while one serves, else what a router does.
//!
//! The model is that of `?model=`, else the default or only one. Nothing is loaded for a look.
use crate::{
    aside,
    asker::not_there,
    body::{ReplyBody, empty},
    context::Context,
    discretion::Sight,
    errors::Failure,
    inference::speaks_llama_server,
    keys::Rights,
    raw,
    service::json,
};
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use motorpool_catalog::Model;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

const PATH: &str = "/props";
/// What an engine says that is only for who may look into the pool.
const PATHS: [&str; 1] = ["model_path"];

/// What llama-server's router says of itself.
#[derive(Serialize)]
struct Router {
    role: &'static str,
    max_instances: usize,
}

/// Answers.
pub(crate) async fn answer(
    context: &Context,
    rights: Option<&Rights>,
    query: Option<&str>,
) -> Result<Response<ReplyBody>, Failure> {
    let model = meant(context, rights, raw::named_in(query).as_deref())?;
    let said = match model {
        Some(model) => of_engine(context, &model).await,
        None => None,
    };
    Ok(match said {
        Some(said) => json(StatusCode::OK, &seen_with(Sight::of(rights), said)),
        None => json(StatusCode::OK, &Router { role: "router", max_instances: context.catalog.models().count() }),
    })
}

/// The model that is asked about, if one is.
fn meant(context: &Context, rights: Option<&Rights>, name: Option<&str>) -> Result<Option<Arc<Model>>, Failure> {
    let may_use = |model: &Arc<Model>| rights.is_none_or(|rights| rights.may_use(model));
    match name {
        None => Ok(context.choose([]).ok().filter(may_use)),
        Some(name) => context
            .choose([name])
            .and_then(|model| if may_use(&model) { Ok(Some(model)) } else { Err(not_there(Some(name))) }),
    }
}

/// What an engine of the model says, if one serves and says anything.
async fn of_engine(context: &Context, model: &Model) -> Option<Value> {
    if !speaks_llama_server(context.manifest(model)) {
        return None;
    }
    for grant in aside::serving(context, &model.id, &model.engine) {
        let Some(answer) = aside::answer_of(context, &grant, PATH, question).await else { continue };
        if answer.head.status.is_success() {
            return serde_json::from_slice(&answer.document).ok();
        }
    }
    None
}

fn question(uri: Uri) -> Request<ReplyBody> {
    let mut request = Request::new(empty());
    *request.uri_mut() = uri;
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
    request
}

fn seen_with(sight: Sight, mut said: Value) -> Value {
    if let (Sight::Own, Some(members)) = (sight, said.as_object_mut()) {
        members.retain(|name, _| !PATHS.contains(&name.as_str()));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn where_the_file_lies_is_only_for_who_may_look_into_the_pool() {
        let said = || json!({"model_path": "/secret", "total_slots": 4});
        assert_eq!(seen_with(Sight::Pool, said()), said());
        assert_eq!(seen_with(Sight::Own, said()), json!({"total_slots": 4}));
    }
}
