//! A form with files on its way to an engine: what came before its model was known waits in the spool, the rest passes as it
//! comes. One whose model is known by a header passes from its first byte on; the name in it, if one is, must mean that model,
//! and is replaced as it passes.
//!
//! So such a request is sent once: what has passed cannot be sent again. Its lease begins when its model is known, since
//! an upload that nobody takes would have to be held. While the rest still comes, the engine waits for the client: each
//! piece that passes is a sign of its life, and no silence of its is a failure.
use crate::{
    body::BodyError,
    context::Context,
    errors::Failure,
    multipart::{FormError, FormScan, Named},
    retain::{Intake, Replay, Retained},
    splice::Splice,
};
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use motorpool_vocab::{Gate, ModelId};
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context as Waker, Poll, ready},
    time::Duration,
};
use tokio::time::Sleep;

/// A form whose model is known, or that has come to its end without naming one.
#[derive(Debug)]
pub(crate) struct Upload {
    rest: Mutex<Option<Rest>>,
    /// What was wrong with it, found out while it passed.
    broken: Arc<OnceLock<Failure>>,
    /// The client has sent all of it.
    ended: Arc<AtomicBool>,
}

/// What of a form has come.
pub(crate) struct Begun {
    pub(crate) held: Arc<Retained>,
    pub(crate) named: Option<Named>,
    pub(crate) upload: Upload,
}

#[derive(Debug)]
struct Rest {
    incoming: Incoming,
    scan: FormScan,
    /// Bytes that may still come.
    room: u64,
    limit: u64,
    stall: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    broken: Arc<OnceLock<Failure>>,
    ended: Arc<AtomicBool>,
    rename: Option<Rename>,
}

/// The name in a form whose model was known before, until it has come.
#[derive(Debug)]
struct Rename {
    context: Arc<Context>,
    to: ModelId,
    /// What may be the name, or belongs to it.
    held: BytesMut,
    n_passed: u64,
}

/// The form as the engine reads it.
struct Passing {
    held: Replay,
    rest: Option<Rest>,
    /// Of the lease's engine.
    gate: Arc<Gate>,
}

/// Reads until the model is named, if it is not `known`.
pub(crate) async fn begin(
    context: &Arc<Context>,
    boundary: &str,
    mut incoming: Incoming,
    known: Option<&ModelId>,
) -> Result<Begun, Failure> {
    let mut intake: Intake = context.bodies.intake(incoming.size_hint().exact())?;
    let mut scan = FormScan::new(boundary);
    let limits = &context.settings.limits;
    let mut n_held = 0;
    while known.is_none() && scan.named().is_none() {
        let frame = tokio::time::timeout(limits.write_stall, incoming.frame()).await;
        let frame = frame.map_err(|_| refused("the form stopped arriving"))?;
        let Some(frame) = frame else {
            scan.finish().map_err(failure_of)?;
            break;
        };
        let bytes = frame.map_err(|_| refused("the form broke off"))?.into_data().unwrap_or_default();
        scan.feed(&bytes).map_err(failure_of)?;
        n_held += bytes.len() as u64;
        intake.push(&bytes).await?;
    }
    let broken = Arc::<OnceLock<Failure>>::default();
    let named = scan.named().cloned();
    let limit = limits.body.get();
    let ended = Arc::new(AtomicBool::new(incoming.is_end_stream()));
    let rename =
        |to: &ModelId| Rename { context: Arc::clone(context), to: to.clone(), held: BytesMut::new(), n_passed: 0 };
    let rest = Rest {
        rename: known.map(rename),
        incoming,
        scan,
        room: limit.saturating_sub(n_held),
        limit,
        stall: limits.write_stall,
        stalled: None,
        broken: Arc::clone(&broken),
        ended: Arc::clone(&ended),
    };
    let upload = Upload { rest: Mutex::new(Some(rest)), broken, ended };
    Ok(Begun { held: Arc::new(intake.finish().await?), named, upload })
}

fn refused(message: &str) -> Failure {
    Failure::InvalidRequest { message: message.into(), param: None }
}

pub(crate) fn failure_of(error: FormError) -> Failure {
    let param = matches!(error, FormError::Twice | FormError::Model).then_some("model");
    Failure::InvalidRequest { message: error.to_string(), param }
}

impl Upload {
    /// The form, once, to the engine behind this gate; the second time there is no rest.
    pub(crate) fn body(
        &self,
        held: &Arc<Retained>,
        splice: &Splice,
        gate: &Arc<Gate>,
    ) -> impl Body<Data = Bytes, Error = BodyError> + Send + use<> {
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner).take();
        Passing { held: Replay::new(Arc::clone(held), splice), rest, gate: Arc::clone(gate) }
    }

    /// Whether the client has sent all of it.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// What was wrong with it.
    pub(crate) fn broken(&self) -> Option<Failure> {
        self.broken.get().cloned()
    }
}

impl Rest {
    fn poll(&mut self, cx: &mut Waker<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        let frame = match Pin::new(&mut self.incoming).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let stall = self.stall;
                let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall)));
                ready!(stalled.as_mut().poll(cx));
                return Poll::Ready(Some(Err(refused("the form stopped arriving"))));
            }
        };
        self.stalled = None;
        if frame.is_none() || self.incoming.is_end_stream() {
            self.ended.store(true, Ordering::Relaxed);
        }
        Poll::Ready(match frame {
            None => match self.scan.finish() {
                Ok(()) => {
                    self.rename.take().map(|rename| Ok(rename.held.freeze())).filter(|rest| *rest != Ok(Bytes::new()))
                }
                Err(error) => Some(Err(failure_of(error))),
            },
            Some(Err(_)) => Some(Err(refused("the form broke off"))),
            Some(Ok(frame)) => Some(self.take(frame.into_data().unwrap_or_default())),
        })
    }

    fn take(&mut self, bytes: Bytes) -> Result<Bytes, Failure> {
        let too_long = Failure::BodyTooLarge { limit: self.limit };
        self.room = self.room.checked_sub(bytes.len() as u64).ok_or(too_long)?;
        self.scan.feed(&bytes).map_err(failure_of)?;
        let Some(rename) = &mut self.rename else { return Ok(bytes) };
        rename.held.extend_from_slice(&bytes);
        let Some(named) = self.scan.named() else { return Ok(rename.pass_to(self.scan.n_settled())) };
        let whole = rename.replace(named);
        self.rename = None;
        whole
    }

    /// Whether the client has sent all of it, and nothing is held back.
    fn is_at_end(&self) -> bool {
        self.incoming.is_end_stream() && self.rename.as_ref().is_none_or(|rename| rename.held.is_empty())
    }
}

impl Rename {
    fn pass_to(&mut self, n_settled: u64) -> Bytes {
        let n = n_settled.saturating_sub(self.n_passed);
        let n = usize::try_from(n).map_or(self.held.len(), |n| n.min(self.held.len()));
        self.n_passed += n as u64;
        self.held.split_to(n).freeze()
    }

    /// All that is held, with the name that the engine knows.
    fn replace(&mut self, named: &Named) -> Result<Bytes, Failure> {
        self.context.choose([self.to.as_str(), named.model.as_str()])?;
        let mut whole = BytesMut::from(&*self.pass_to(named.at.start));
        whole.extend_from_slice(self.to.as_str().as_bytes());
        self.pass_to(named.at.end);
        whole.extend_from_slice(&self.held);
        self.held.clear();
        Ok(whole.freeze())
    }
}

impl Body for Passing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Waker<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let passing = &mut *self;
        if let Some(frame) = ready!(Pin::new(&mut passing.held).poll_frame(cx)) {
            return Poll::Ready(Some(frame.map_err(Into::into)));
        }
        let Some(rest) = &mut passing.rest else { return Poll::Ready(None) };
        loop {
            return match ready!(rest.poll(cx)) {
                None => Poll::Ready(None),
                Some(Ok(bytes)) => {
                    passing.gate.vital().moved();
                    if bytes.is_empty() {
                        continue;
                    }
                    Poll::Ready(Some(Ok(Frame::data(bytes))))
                }
                Some(Err(failure)) => {
                    let _ = rest.broken.set(failure.clone());
                    Poll::Ready(Some(Err(failure.into())))
                }
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_end_stream() && self.rest.as_ref().is_none_or(Rest::is_at_end)
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.size_hint().exact();
        // How long the engine's name for the model is beside the client's, nobody knows before that has come.
        let known = |rest: &Rest| rest.incoming.size_hint().exact().filter(|_| rest.rename.is_none());
        let rest = self.rest.as_ref().map_or(Some(0), known);
        match (held, rest) {
            (Some(held), Some(rest)) => SizeHint::with_exact(held + rest),
            _ => SizeHint::default(),
        }
    }
}
