//! One request, from its head to its response: rules, route, answer, and what every response carries.
use crate::{
    asker::not_there,
    body::{ReplyBody, boxed, empty, full},
    context::Context,
    control::control,
    discretion::Sight,
    errors::Failure,
    family::Caller,
    headers,
    inference::{by_engine_path, by_form, by_path, by_table},
    keys::{Place, Rights, Visitor},
    metrics, models,
    need::area_of,
    ollama,
    origin::{self, Asker},
    outside::{self, Chosen},
    page, properties, raw,
    route::{Route, Way, family_of, route},
    usage::{Recorder, watched},
};
use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use motorpool_catalog::Model;
use serde::Serialize;
use std::{convert::Infallible, future::Future, sync::Arc, time::Instant};
use tower::ServiceExt;
use tracing::Span;

/// Longest path with its query, in bytes. An engine's URI puts an address before it, and `http::Uri` ends at 65,534.
const TARGET_BYTES: usize = 32 << 10;

/// What a page of another origin may read of our headers, beside those that it always may.
const FOR_PAGES: &str = "retry-after, x-motorpool-code, x-should-retry, x-request-id, request-id";

/// Where a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// An address that any program reaches, pages in a browser included.
    Address(Visitor),
    /// Our own socket: its caller is known to be us.
    Control,
}

/// Answers requests.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) context: Arc<Context>,
    pub(crate) management: Router,
}

impl Service {
    /// The response to `request`. Never fails: a failure is a response.
    pub(crate) async fn respond(
        &self,
        door: Door,
        mut request: Request<Incoming>,
    ) -> Result<Response<ReplyBody>, Infallible> {
        let id = headers::request_id(request.headers(), || self.context.fresh_id());
        let path = request.uri().path().to_owned();
        let asker = match door {
            Door::Control => Ok(Asker::Direct),
            Door::Address(visitor) => self.let_in(&mut request, visitor),
        };
        let rights = request.extensions().get::<Rights>().cloned();
        let (asker, answer) = match asker {
            Ok(asker) => {
                let answer = self.answer(door, request, (&id, &asker)).await;
                (asker, answer)
            }
            Err(failure) => (self.page_of(&request), Err(failure)),
        };
        let mut response = answer.unwrap_or_else(|failure| {
            let failure = failure.seen_with(Sight::of(rights.as_ref())).within(rights.as_ref(), &self.context);
            let request = id.to_str().unwrap_or_default().into();
            failed(&failure, &Caller { family: family_of(&path), request })
        });
        write_common_headers(response.headers_mut(), &id, asker);
        Ok(response)
    }

    /// Who asks over an address. A valid key stands for the name and the proxy that it came by; a page's origin is told in
    /// any case, before its key is looked at. Whether we live is everybody's to ask, and a page asks what it may send before
    /// it shows a key, through whatever proxy it will show it.
    fn let_in(&self, request: &mut Request<Incoming>, visitor: Visitor) -> Result<Asker, Failure> {
        let (path, headers, allowed) = (request.uri().path(), request.headers(), &self.context.settings.allowed);
        if page::is_asked(request) {
            return page::let_in(request, allowed);
        }
        let by_origin = origin::check_with_key(request.uri(), headers, area_of(path), allowed)?;
        let asks_first = request.method() == Method::OPTIONS;
        let is_open = asks_first || matches!(path, "/health" | "/v1/health" | "/ready");
        let is_preflight = asks_first && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if is_preflight && matches!(by_origin, Asker::Page(_)) {
            return Ok(by_origin);
        }
        let rights = match self.context.keys.admit(headers, visitor, Instant::now()) {
            Ok(Some(rights)) => rights,
            Ok(None) => return origin::check(request.uri(), headers, area_of(path), allowed),
            Err(_) if is_open => return origin::check(request.uri(), headers, area_of(path), allowed),
            Err(failure) => {
                origin::check_host(request.uri(), headers, allowed)?;
                return Err(failure);
            }
        };
        if is_open {
            return Ok(by_origin);
        }
        rights.check(request.method(), path, headers)?;
        request.extensions_mut().insert(rights);
        Ok(by_origin)
    }

    /// Which page reads a refusal: one whose origin is allowed does.
    fn page_of(&self, request: &Request<Incoming>) -> Asker {
        let (uri, allowed) = (request.uri(), &self.context.settings.allowed);
        let by_origin = origin::check_with_key(uri, request.headers(), area_of(uri.path()), allowed);
        by_origin.unwrap_or(Asker::Direct)
    }

    async fn answer(
        &self,
        door: Door,
        request: Request<Incoming>,
        (id, asker): (&HeaderValue, &Asker),
    ) -> Result<Response<ReplyBody>, Failure> {
        let context = &self.context;
        let id = id.to_str().unwrap_or_default();
        check_target(request.uri())?;
        let path = request.uri().path().to_owned();
        match route(request.method(), &path)? {
            Route::Inference(served) if served.way == Way::Form => {
                self.recorded(request, id, |request| by_form(context, served, request, id)).await
            }
            Route::Inference(served) => {
                self.recorded(request, id, |request| by_table(context, served, request, id)).await
            }
            Route::Raw(rest) => self.recorded(request, id, |request| by_path(context, rest, request, id)).await,
            Route::Engine(path) => {
                self.recorded(request, id, |request| by_engine_path(context, path, request, id)).await
            }
            Route::Control(what) => control(context, what, request).await,
            Route::Ollama(page) => ollama::page(context, page, request).await,
            Route::Root if page::wants_page(request.headers()) => Ok(page::document(request.headers())),
            Route::Root => Ok(root()),
            Route::Asset(path) => page::asset(path, request.headers()),
            Route::Properties => properties::answer(context, request.extensions().get(), request.uri().query()).await,
            Route::Models => Ok(json(StatusCode::OK, &models::list(context, request.extensions().get()))),
            Route::Model(name) => {
                let name = raw::decoded(name);
                let row = match context.mean(&name)? {
                    Chosen::Own(model) if may_use(&request, &model) => {
                        models::row(context, &model, &context.handle.snapshot())
                    }
                    Chosen::Foreign(foreign) if may_use_any(&request, &foreign.names(context)) => {
                        outside::row(context, &foreign, &name)
                    }
                    _ => return Err(not_there(Some(&name))),
                };
                Ok(json(StatusCode::OK, &row))
            }
            Route::Metrics => Ok(metrics::answer(context, request.headers()).await),
            Route::Health if context.handle.is_turning() => Ok(state(StatusCode::OK, "ok")),
            Route::Health => Ok(state(StatusCode::SERVICE_UNAVAILABLE, "stuck")),
            Route::Ready if !context.handle.is_open() => Ok(state(StatusCode::SERVICE_UNAVAILABLE, "stopping")),
            Route::Ready if context.handle.is_settled() => Ok(state(StatusCode::OK, "ready")),
            Route::Ready => Ok(state(StatusCode::SERVICE_UNAVAILABLE, "starting")),
            Route::Options(allow) => Ok(options(allow, request.headers(), asker)),
            Route::Management => self.manage(door, request).await,
        }
    }

    /// What `answer` gives, with one record of it, and the place that its key gives it.
    async fn recorded<'a, A>(
        &self,
        mut request: Request<Incoming>,
        id: &str,
        answer: impl FnOnce(Request<Incoming>) -> A + Send + 'a,
    ) -> Result<Response<ReplyBody>, Failure>
    where
        A: Future<Output = Result<Response<ReplyBody>, Failure>> + Send + 'a,
    {
        let path = request.uri().path();
        let span = match self.context.traces.get() {
            Some(traces) => traces.begin(request.method(), path, request.headers()),
            None => Span::none(),
        };
        let caller = Caller { family: family_of(path), request: id.into() };
        let recorder = Recorder::new(Arc::clone(&self.context.sink), id, path, span);
        recorder.is_by(request.extensions().get());
        request.extensions_mut().insert(recorder.clone());
        let answered = async {
            let place = place_of(&request)?;
            // An engine that works on for a client that has gone keeps it, too.
            request.extensions_mut().insert(place.clone());
            let running = self.context.running.enter(id);
            request.extensions_mut().insert(running.entry());
            let reply = running.unless_cancelled(Box::pin(answer(request))).await?;
            let reply = running.follow(reply, caller, recorder.clone())?;
            Ok(watched(reply, recorder.clone(), place))
        };
        answered.await.inspect_err(|failure| recorder.failed(failure))
    }

    async fn manage(&self, door: Door, mut request: Request<Incoming>) -> Result<Response<ReplyBody>, Failure> {
        request.extensions_mut().insert(door);
        let response = self.management.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
        Ok(response.map(boxed))
    }
}

/// Refuses what an engine could not be asked for.
fn check_target(uri: &Uri) -> Result<(), Failure> {
    let length = uri.path_and_query().map_or(0, |target| target.as_str().len());
    if length <= TARGET_BYTES {
        return Ok(());
    }
    let message = format!("the path and its query are longer than {} KiB", TARGET_BYTES >> 10);
    Err(Failure::InvalidRequest { message, param: None })
}

/// What a key may have at a time, if it came with one.
fn place_of(request: &Request<Incoming>) -> Result<Option<Place>, Failure> {
    request.extensions().get::<Rights>().map(|rights| rights.place(Instant::now())).transpose()
}

fn may_use(request: &Request<Incoming>, model: &Model) -> bool {
    request.extensions().get::<Rights>().is_none_or(|rights| rights.may_use(model))
}

fn may_use_any(request: &Request<Incoming>, names: &[String]) -> bool {
    request.extensions().get::<Rights>().is_none_or(|rights| rights.may_use_any(names))
}

/// A failure as a response.
pub(crate) fn failed(failure: &Failure, caller: &Caller) -> Response<ReplyBody> {
    let verdict = failure.verdict();
    let mut response = document(verdict.status, failure.document(caller));
    verdict.write_headers(response.headers_mut());
    if let Failure::InvalidKey(_) = failure {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Failure::MethodNotAllowed { allow, .. } = failure {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    }
    response
}

/// A value as a response.
pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response<ReplyBody> {
    document(status, serde_json::to_vec(value).expect("wire types always serialise").into())
}

fn document(status: StatusCode, bytes: Bytes) -> Response<ReplyBody> {
    let mut response = Response::new(full(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn state(code: StatusCode, status: &'static str) -> Response<ReplyBody> {
    #[derive(Serialize)]
    struct State {
        status: &'static str,
    }
    json(code, &State { status })
}

/// What Ollama's clients ask for to see whether somebody is there.
fn root() -> Response<ReplyBody> {
    let mut response = Response::new(full("Motorpool is running"));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// Which methods there are. A page is told what it may send, since its origin was allowed.
fn options(allow: &'static str, request: &HeaderMap, asker: &Asker) -> Response<ReplyBody> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ALLOW, HeaderValue::from_static(allow));
    if matches!(asker, Asker::Page(_)) && request.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(allow));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        if let Some(wanted) = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
    }
    response
}

/// Which request this answers.
pub(crate) fn name_request(headers: &mut HeaderMap, id: &HeaderValue) {
    headers.insert("x-request-id", id.clone());
    headers.insert("request-id", id.clone());
}

fn write_common_headers(headers: &mut HeaderMap, id: &HeaderValue, asker: Asker) {
    name_request(headers, id);
    if let Asker::Page(origin) = asker {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(FOR_PAGES));
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
}
