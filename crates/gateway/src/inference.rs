//! Requests that a model answers: by the table of paths, and by `/m/`.
use crate::{
    aside,
    asker::Asker,
    assemble::{Kind, PLAIN_MEMBERS, can_assemble},
    body::ReplyBody,
    context::{Context, unknown},
    errors::Failure,
    exchange::{Job, Reply},
    family::{Caller, Commit, Family},
    headers,
    keys::{Place, Rights},
    loading::{self, CommitAfter, Told},
    multipart::boundary_of,
    ollama::{self, Call},
    outside::{self, Chosen, Foreign},
    raw,
    receive::{Expected, Form, Loading, check_coding, check_purpose, receive},
    retain::Retained,
    route::{Served, Way, served_at},
    scan::{Findings, Key},
    splice::{Edits, Splice, Streaming},
    tunnel::{self, Upgrade},
    upload,
    usage::Recorder,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header, request};
use hyper::body::Incoming;
use motorpool_catalog::{Capability, Manifest, Model, Parameters, ReportKind};
use motorpool_pool::SlotChoice;
use std::{future::Future, sync::Arc};

/// Paths of engines that nobody may ask.
const NOBODYS: [&str; 2] = ["/cors-proxy", "/tools"];

/// A request's id, as text.
pub(crate) type Id<'a> = &'a str;

/// Answers a path of the table.
pub(crate) async fn by_table(
    context: &Arc<Context>,
    served: &'static Served,
    request: Request<Incoming>,
    id: Id<'_>,
) -> Result<Response<ReplyBody>, Failure> {
    let (head, body) = request.into_parts();
    refuse_upgrade(&head.headers)?;
    let named = model_header(&head.headers)?;
    let asker = Asker::of(&head.headers, id)?.with_rights(head.extensions.get()).entered(head.extensions.get());
    loading::check_content(&head.headers, served.family == Family::OpenAi && served.kind() == Some(Kind::Chat))?;
    let patient = (served.way == Way::Counted).then(|| asker.clone().in_no_hurry(&head.headers));
    let purpose = served.purpose;
    let listed = served.kind().map_or(PLAIN_MEMBERS, Kind::members);
    let first = patient.as_ref().unwrap_or(&asker);
    let expected = Expected { form: Form::Routed, model: named, purpose, listed, asker: first };
    let mut received = receive(context, &head.headers, body, &expected).await?;
    let found = received.found.take().unwrap_or_default();
    let both: Vec<&str> = named.into_iter().chain(found.model()).filter(|name| !name.is_empty()).collect();
    let name = both.first().copied();
    let model = match context.choose_any(both).await? {
        Chosen::Own(model) => model,
        Chosen::Foreign(foreign) => {
            asker.check_names(&foreign.names(context), name)?;
            received.found = Some(found);
            return Box::pin(outside::by_table(context, foreign, (served, head), (received, asker))).await;
        }
    };
    asker.check_model(&model, name)?;
    check_purpose(&model, purpose)?;
    let manifest = context.manifest(&model);
    check_offered(manifest, served)?;
    let asker = patient.unwrap_or(asker);
    let assembled = served.kind().filter(|kind| {
        speaks_llama_server(manifest) && can_assemble(*kind, &found) && rules_keep_shape(*kind, &model.parameters)
    });
    let counts_only_when_asked = !speaks_llama_server(manifest) && streams_uncounted(served, &found);
    let streaming = match assembled {
        None if counts_only_when_asked => Streaming::ForcedWithUsage,
        None => Streaming::AsAsked,
        Some(Kind::Chat | Kind::Text) => Streaming::ForcedWithUsage,
        Some(Kind::Native | Kind::Messages | Kind::Responses) => Streaming::Forced,
    };
    let edits = Edits { model: Some(manifest.name_of(&model.id)), streaming, rules: Some(&model.parameters) };
    let splice = Splice::new(&found, received.body.len(), edits);
    let mut job = job_of(&head, (&model, manifest), (&received.body, Some(&found)), (served.family, asker))?;
    let takes_slots =
        matches!(served.way, Way::Assembled(Kind::Chat | Kind::Text) | Way::Translated(Call::Chat | Call::Generate));
    if takes_slots && speaks_llama_server(manifest) && found.field(Key::IdSlot).is_none() {
        job.slots = SlotChoice::Pool;
    }
    if let Way::Translated(call) = served.way {
        received.found = Some(found);
        return Box::pin(ollama::serve(context, (call, &model), job, received)).await;
    }
    job.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    job.splice = splice;
    if served.way == Way::Aside {
        return Box::pin(aside::ask(context, &job)).await;
    }
    if served.way == Way::Counted
        && let Some(counted) = Box::pin(aside::count(context, &job)).await
    {
        return counted;
    }
    job.reply = match assembled {
        Some(kind) => Reply::Assembled(kind),
        None if counts_only_when_asked => Reply::WithoutUsage,
        None => Reply::AsItIs,
    };
    let after = match served.way {
        Way::Assembled(_) | Way::Streamed => commit_after(context, &head.headers, &found, served.family)?,
        Way::Form | Way::Translated(_) | Way::Whole | Way::Counted | Way::Aside => CommitAfter::Never,
    };
    answer(context, job, received.loading, after).await
}

/// Answers a path that takes a form with files.
pub(crate) async fn by_form(
    context: &Arc<Context>,
    served: &'static Served,
    request: Request<Incoming>,
    id: Id<'_>,
) -> Result<Response<ReplyBody>, Failure> {
    let (head, body) = request.into_parts();
    refuse_upgrade(&head.headers)?;
    check_coding(&head.headers, Form::Any)?;
    let asker = Asker::of(&head.headers, id)?.with_rights(head.extensions.get()).entered(head.extensions.get());
    loading::check_content(&head.headers, false)?;
    let by_header = model_header(&head.headers)?;
    let boundary =
        boundary_of(&head.headers).ok_or(Failure::UnsupportedMedia("this path takes `multipart/form-data`"))?;
    let boundary = boundary.map_err(upload::failure_of)?;
    let may_serve = |name: Option<&str>| {
        let model = context.choose(name)?;
        asker.check_model(&model, name)?;
        check_purpose(&model, served.purpose)?;
        check_offered(context.manifest(&model), served)?;
        Ok::<_, Failure>(model)
    };
    let known = by_header.filter(|name| !name.is_empty()).map(|name| may_serve(Some(name))).transpose()?;
    let begun = upload::begin(context, &boundary, body, known.as_ref().map(|model| &model.id)).await?;
    let named = begun.named.as_ref().map(|named| named.model.as_str()).filter(|name| !name.is_empty());
    let model = known.map_or_else(|| may_serve(named), Ok)?;
    let manifest = context.manifest(&model);
    let mut job = job_of(&head, (&model, manifest), (&begun.held, None), (served.family, asker))?;
    if let Some(named) = begun.named {
        job.splice = Splice::one(named.at, manifest.name_of(&model.id), begun.held.len());
    }
    job.upload = Some(begun.upload);
    answer(context, job, None, CommitAfter::Never).await
}

/// Passes a request on to a model's engine, byte for byte.
pub(crate) async fn by_path(
    context: &Arc<Context>,
    rest: &str,
    mut request: Request<Incoming>,
    id: Id<'_>,
) -> Result<Response<ReplyBody>, Failure> {
    let upgrade = Upgrade::asked_by(&mut request);
    let (head, body) = request.into_parts();
    let asker = Asker::of(&head.headers, id)?.with_rights(head.extensions.get()).entered(head.extensions.get());
    let there = outside::in_path(context, rest).filter(|_| head.method == Method::POST);
    // One that is not its key's is told of as any other name that means nothing.
    if let Some(there) = there.filter(|(foreign, _)| asker.may_use_any(&foreign.names(context))) {
        return Box::pin(by_foreign_path(context, there, (head, body), asker)).await;
    }
    let raw = raw::take_apart(&context.catalog, rest).map_err(unknown)?;
    asker.check_model(&raw.model, Some(&raw.name))?;
    if let Some(name) = model_header(&head.headers)? {
        context.choose([raw.model.id.as_str(), name])?;
    }
    Box::pin(by_own_path(context, (raw.model, raw.path), (head, body, upgrade), asker)).await
}

/// Passes a request on to the engine of the model that its query or its header names, or of the default or only one.
pub(crate) async fn by_engine_path(
    context: &Arc<Context>,
    path: &str,
    request: Request<Incoming>,
    id: Id<'_>,
) -> Result<Response<ReplyBody>, Failure> {
    let (head, body) = request.into_parts();
    refuse_upgrade(&head.headers)?;
    let asker = Asker::of(&head.headers, id)?.with_rights(head.extensions.get()).entered(head.extensions.get());
    let (by_query, by_header) = (raw::named_in(head.uri.query()), model_header(&head.headers)?);
    let model = context.choose(by_query.as_deref().into_iter().chain(by_header))?;
    asker.check_model(&model, by_query.as_deref().or(by_header))?;
    Box::pin(by_own_path(context, (model, path), (head, body, None), asker)).await
}

/// Passes a request on to an engine of ours under one of its own paths.
async fn by_own_path(
    context: &Arc<Context>,
    (model, path): (Arc<Model>, &str),
    (head, body, upgrade): (request::Parts, Incoming, Option<Upgrade>),
    asker: Asker,
) -> Result<Response<ReplyBody>, Failure> {
    loading::check_content(&head.headers, false)?;
    let manifest = context.manifest(&model);
    if !manifest.allows(head.method.as_str(), path) {
        check_unlisted(&head, path)?;
    }
    let purpose = raw::purpose(path).filter(|_| speaks_llama_server(manifest));
    check_purpose(&model, purpose)?;
    let query = head.uri.query().map(|q| format!("?{q}")).unwrap_or_default();
    let path_and_query = format!("{path}{query}");
    let listed = PLAIN_MEMBERS;
    let expected = Expected { form: Form::Any, model: Some(model.id.as_str()), purpose, listed, asker: &asker };
    let received = receive(context, &head.headers, body, &expected).await?;
    let nothing = Findings::default();
    let found = received.found.as_ref().unwrap_or(&nothing);
    // A name that means nothing to who asks is the engine's affair.
    let is_known = |name: &&str| context.catalog.resolve(name).is_ok_and(|other| asker.may_use(other));
    if let Some(other) = found.model().filter(is_known) {
        context.choose([model.id.as_str(), other])?;
    }
    let to = (&received.body, received.found.as_ref());
    let mut job = job_of(&head, (&model, manifest), to, (Family::LlamaCpp, asker))?;
    job.path_and_query = path_and_query;
    if let Some(upgrade) = upgrade {
        return Box::pin(tunnel::open(context, job, upgrade)).await;
    }
    // Of the other paths nobody knows that they stream, whatever their bodies say.
    let may_stream = served_at(path).is_some_and(|s| matches!(s.way, Way::Assembled(_) | Way::Streamed));
    let after = commit_after(context, &head.headers, found, Family::LlamaCpp)?;
    answer(context, job, received.loading, if may_stream { after } else { CommitAfter::Never }).await
}

/// Of an engine's own paths those of inference are anybody's; the others are for who manages the pool and shows it by a key,
/// and never for a page. What relays to other servers or runs programs is nobody's.
fn check_unlisted(head: &request::Parts, path: &str) -> Result<(), Failure> {
    let plain = raw::decoded(path);
    if NOBODYS
        .iter()
        .any(|never| plain.strip_prefix(never).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    {
        return Err(Failure::NotAllowed("this path of an engine is never served"));
    }
    let manages = head.extensions.get::<Rights>().is_some_and(Rights::manages);
    if manages && !head.headers.contains_key(header::ORIGIN) {
        return Ok(());
    }
    Err(Failure::NotAllowed(
        "the engine's manifest does not list this path and method for inference: it needs a key with the scope `manage`, \
         and is not for pages",
    ))
}

/// Asks somebody else's server, whose model a raw path names.
async fn by_foreign_path(
    context: &Arc<Context>,
    (foreign, served): (Foreign, &'static Served),
    (head, body): (request::Parts, Incoming),
    asker: Asker,
) -> Result<Response<ReplyBody>, Failure> {
    refuse_upgrade(&head.headers)?;
    let by_header = model_header(&head.headers)?;
    let name = foreign.qualified();
    loading::check_content(&head.headers, false)?;
    let (purpose, listed) = (served.purpose, PLAIN_MEMBERS);
    let expected = Expected { form: Form::Routed, model: Some(&name), purpose, listed, asker: &asker };
    let received = receive(context, &head.headers, body, &expected).await?;
    // A name that means nothing to who asks may be that server's own spelling.
    let is_known = |name: &&str| match context.mean(name) {
        Ok(Chosen::Own(other)) => asker.may_use(&other),
        Ok(Chosen::Foreign(other)) => asker.may_use_any(&other.names(context)),
        Err(_) => false,
    };
    let other = received.found.as_ref().and_then(Findings::model).filter(is_known);
    context.choose_any([name.as_str()].into_iter().chain(by_header).chain(other).collect()).await?;
    outside::by_table(context, foreign, (served, head), (received, asker)).await
}

fn job_of(
    head: &request::Parts,
    to: (&Arc<Model>, &Arc<Manifest>),
    (body, found): (&Arc<Retained>, Option<&Findings>),
    (family, asker): (Family, Asker),
) -> Result<Job, Failure> {
    let (model, manifest) = to;
    let recorder = head.extensions.get::<Recorder>().cloned();
    let recorder = recorder.ok_or(Failure::Internal("a request without a record"))?;
    recorder.is_for(model.id.as_str());
    let mut headers = headers::to_engine(&head.headers, |name| manifest.passes_header(name));
    headers::name_request(&mut headers, &asker.holder.request);
    Ok(Job {
        model: model.id.clone(),
        engine: model.engine.clone(),
        method: head.method.clone(),
        path_and_query: head.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        headers,
        body: Arc::clone(body),
        splice: Splice::untouched(body.len()),
        reply: Reply::AsItIs,
        caller: Caller { family, request: asker.holder.request.as_str().into() },
        asker: match found {
            Some(found) => asker.with_body(found, family.traits().session)?,
            None => asker,
        },
        slots: SlotChoice::Engine,
        recorder,
        on_disconnect: manifest.on_disconnect,
        upload: None,
        place: head.extensions.get::<Option<Place>>().cloned().flatten(),
    })
}

/// Runs the job, and keeps its model wanted by `loading` until it asks for its lease. A stream that has to wait long begins
/// with comments.
pub(crate) fn answer(
    context: &Arc<Context>,
    job: Job,
    loading: Option<Loading>,
    after: CommitAfter,
) -> impl Future<Output = Result<Response<ReplyBody>, Failure>> + Send + use<> {
    let told = Told {
        handle: context.handle.clone(),
        model: Some(job.model.clone()),
        caller: job.caller.clone(),
        recorder: job.recorder.clone(),
    };
    let (context, job) = (Arc::clone(context), Arc::new(job));
    let reply = Box::pin(async move {
        let _loading = loading;
        job.run(context).await
    });
    loading::within(reply, after, told)
}

/// Whether the engine's streams and replies have llama-server's form.
pub(crate) fn speaks_llama_server(manifest: &Manifest) -> bool {
    manifest.slots.as_ref().is_some_and(|slots| slots.kind == ReportKind::LlamaServer)
}

/// Whether this is a stream of OpenAI's API whose client wants no counts.
fn streams_uncounted(served: &Served, found: &Findings) -> bool {
    let of_openai = served.family == Family::OpenAi && matches!(served.kind(), Some(Kind::Chat | Kind::Text));
    let options = found.raw(Key::StreamOptions).and_then(|raw| serde_json::from_slice::<serde_json::Value>(raw).ok());
    let counted = options.is_some_and(|options| options["include_usage"] == true);
    of_openai && found.raw(Key::Stream) == Some(b"true") && !counted
}

/// Whether what the model's rules add leaves the reply in the known shape.
fn rules_keep_shape(kind: Kind, rules: &Parameters) -> bool {
    rules.set.keys().chain(rules.default.keys()).all(|name| kind.members().contains(&name.as_str()))
}

/// Only who asked for a stream can be told anything before the reply.
pub(crate) fn commit_after(
    context: &Context,
    headers: &HeaderMap,
    found: &Findings,
    family: Family,
) -> Result<CommitAfter, Failure> {
    let after = CommitAfter::of(headers, context.settings.loading.commit_after)?;
    let may = found.raw(Key::Stream) == Some(b"true") && family.traits().commit != Commit::Nothing;
    Ok(if may { after } else { CommitAfter::Never })
}

/// Whether the model's engine has such a path. What every OpenAI server has is not asked about.
fn check_offered(manifest: &Manifest, served: &Served) -> Result<(), Failure> {
    let is_common =
        matches!(served.purpose, None | Some(Capability::Chat | Capability::Embeddings | Capability::Rerank));
    let is_everywhere = is_common && matches!(served.family, Family::OpenAi | Family::Ollama);
    if is_everywhere || manifest.allows("POST", served.path) {
        return Ok(());
    }
    Err(Failure::NotSupported("this path of the model's engine, which its manifest does not list,"))
}

fn model_header(headers: &HeaderMap) -> Result<Option<&str>, Failure> {
    let unreadable = |_| Failure::InvalidRequest { message: "`X-Motorpool-Model` is no text".into(), param: None };
    headers.get("x-motorpool-model").map(HeaderValue::to_str).transpose().map_err(unreadable)
}

fn refuse_upgrade(headers: &HeaderMap) -> Result<(), Failure> {
    if tunnel::is_asked(headers) {
        return Err(Failure::NotSupported("an upgraded connection"));
    }
    Ok(())
}
