//! A request's body as it arrives: [`receive`] keeps it whole, scans it, and lets its model load meanwhile.
use crate::{
    asker::Asker,
    context::Context,
    errors::Failure,
    outside::Chosen,
    retain::Retained,
    scan::{Findings, Scan, ScanError},
};
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use motorpool_catalog::{Capability, Model};
use motorpool_pool::Refusal;
use motorpool_vocab::EngineKey;
use std::{future::Future, pin::Pin, sync::Arc};

/// The longest body of a call that names a model, and no more.
const SMALL_BYTES: usize = 64 << 10;

/// A model on its way.
pub(crate) type Loading = Pin<Box<dyn Future<Output = Result<EngineKey, Refusal>> + Send>>;

/// What is expected of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A JSON object whose members route the request.
    Routed,
    /// Whatever it is; what can be read of it is.
    Any,
}

/// What is known of a request before its body.
#[derive(Clone, Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) form: Form,
    /// The model, named elsewhere than in the body.
    pub(crate) model: Option<&'a str>,
    /// What the model must be for.
    pub(crate) purpose: Option<Capability>,
    /// Members that say nothing of which the scan had to be told.
    pub(crate) listed: &'static [&'static str],
    /// Who asks, as far as its headers say.
    pub(crate) asker: &'a Asker,
}

/// A body that has arrived.
pub(crate) struct Received {
    pub(crate) body: Arc<Retained>,
    pub(crate) found: Option<Findings>,
    /// Keeps the model wanted until the lease is asked for.
    pub(crate) loading: Option<Loading>,
}

/// Reads `body` to its end.
pub(crate) async fn receive(
    context: &Arc<Context>,
    headers: &HeaderMap,
    mut body: Incoming,
    expected: &Expected<'_>,
) -> Result<Received, Failure> {
    let form = expected.form;
    check_coding(headers, form)?;
    let mut intake = context.bodies.intake(body.size_hint().exact())?;
    let mut scan = Some(Scan::new(expected.listed).watching(&context.watched));
    let mut loading = None;
    while let Some(bytes) = next(context, &mut body, &mut loading).await? {
        if let Some(pass) = &mut scan
            && let Err(error) = pass.feed(&bytes)
        {
            scan = unscanned(form, &error)?;
        }
        intake.push(&bytes).await?;
        let named = expected.model.or_else(|| scan.as_ref()?.model());
        if loading.is_none() && !body.is_end_stream() {
            loading = named.map(|name| load(context, name, expected)).transpose()?.flatten();
        }
    }
    let found = match scan.map(Scan::finish).transpose() {
        Ok(found) => found,
        Err(error) => unscanned(form, &error)?,
    };
    Ok(Received { body: Arc::new(intake.finish().await?), found, loading })
}

/// The body of a call that names a model, and no more.
pub(crate) async fn receive_small(context: &Context, body: Incoming) -> Result<Bytes, Failure> {
    receive_within(context, body, SMALL_BYTES).await
}

/// A body that nobody needs long to send, and that is held in memory.
pub(crate) async fn receive_within<B>(context: &Context, body: B, limit: usize) -> Result<Bytes, Failure>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let whole = Limited::new(body, limit).collect();
    match tokio::time::timeout(context.settings.limits.write_stall, whole).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Failure::CallTooLarge { limit }),
        Ok(Err(_)) => Err(broken_off("the body broke off")),
        Err(_) => Err(broken_off("the body stopped arriving")),
    }
}

/// Without a scan, when the body may be anything.
fn unscanned<T>(form: Form, error: &ScanError) -> Result<Option<T>, Failure> {
    match form {
        Form::Any => Ok(None),
        Form::Routed => {
            let param = matches!(error, ScanError::Model).then_some("model");
            Err(Failure::InvalidRequest { message: error.to_string(), param })
        }
    }
}

/// A body that has not arrived yet must not hold a lease; its model may load.
fn load(context: &Arc<Context>, name: &str, expected: &Expected<'_>) -> Result<Option<Loading>, Failure> {
    if context.has_outsiders() && !matches!(context.mean(name), Ok(Chosen::Own(_))) {
        return Ok(None);
    }
    let model = context.choose([name])?;
    expected.asker.check_model(&model, Some(name))?;
    check_purpose(&model, expected.purpose)?;
    let Some(ask) = expected.asker.ask_early(model.id.clone()) else { return Ok(None) };
    let context = Arc::clone(context);
    Ok(Some(Box::pin(async move { context.handle.make_resident(ask).await })))
}

/// Refuses what the model is not for, before anything is loaded for it.
pub(crate) fn check_purpose(model: &Model, purpose: Option<Capability>) -> Result<(), Failure> {
    match purpose.filter(|asked| !model.capabilities.contains(asked)) {
        None => Ok(()),
        Some(asked) => {
            let is_for: Vec<&str> = model.capabilities.iter().map(|capability| capability.as_str()).collect();
            let is_for = if is_for.is_empty() { "nothing".to_owned() } else { is_for.join(" and ") };
            Err(Failure::WrongPurpose { model: model.id.to_string(), is_for, asked: asked.as_str() })
        }
    }
}

/// The next bytes, unless the model cannot be loaded.
async fn next(context: &Context, body: &mut Incoming, loading: &mut Option<Loading>) -> Result<Option<Bytes>, Failure> {
    let within = context.settings.limits.write_stall;
    let frame = tokio::select! {
        biased;
        frame = tokio::time::timeout(within, body.frame()) => frame,
        refusal = refused(loading) => return Err(context.refusal(refusal)),
    };
    match frame {
        Ok(None) => Ok(None),
        // Trailers say nothing here.
        Ok(Some(Ok(frame))) => Ok(Some(frame.into_data().unwrap_or_default())),
        Ok(Some(Err(_))) => Err(broken_off("the body broke off")),
        Err(_) => Err(broken_off("the body stopped arriving")),
    }
}

fn broken_off(message: &str) -> Failure {
    Failure::InvalidRequest { message: message.into(), param: None }
}

/// Only ends with a refusal.
async fn refused(loading: &mut Option<Loading>) -> Refusal {
    if let Some(load) = loading.as_mut() {
        match load.await {
            Err(refusal) => return refusal,
            Ok(_) => *loading = Some(Box::pin(std::future::pending())),
        }
    }
    std::future::pending().await
}

/// Refuses bodies that would have to be decoded, and forms where there is none to be.
pub(crate) fn check_coding(headers: &HeaderMap, form: Form) -> Result<(), Failure> {
    let says =
        |name, text: &[u8]| headers.get(name).is_some_and(|v| v.as_bytes().to_ascii_lowercase().starts_with(text));
    let codings = headers.get_all(header::CONTENT_ENCODING).iter().flat_map(|v| v.as_bytes().split(|b| *b == b','));
    if codings.map(<[u8]>::trim_ascii).any(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
        return Err(Failure::UnsupportedMedia("bodies are read as they are: no `Content-Encoding`"));
    }
    if form == Form::Routed && says(header::CONTENT_TYPE, b"multipart/") {
        return Err(Failure::UnsupportedMedia("this path takes `application/json`"));
    }
    Ok(())
}
