//! A form with files on its way to an engine: what came before its model was known waits in the spool, the rest passes as it
//! comes.
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
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use motorpool_vocab::Gate;
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
}

/// The form as the engine reads it.
struct Passing {
    held: Replay,
    rest: Option<Rest>,
    /// Of the lease's engine.
    gate: Arc<Gate>,
}

/// Reads until the model is named.
pub(crate) async fn begin(context: &Context, boundary: &str, mut incoming: Incoming) -> Result<Begun, Failure> {
    let mut intake: Intake = context.bodies.intake(incoming.size_hint().exact())?;
    let mut scan = FormScan::new(boundary);
    let limits = &context.settings.limits;
    let mut n_held = 0;
    while scan.named().is_none() {
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
    let rest = Rest {
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
            None => self.scan.finish().err().map(|error| Err(failure_of(error))),
            Some(Err(_)) => Some(Err(refused("the form broke off"))),
            Some(Ok(frame)) => Some(self.take(frame.into_data().unwrap_or_default())),
        })
    }

    fn take(&mut self, bytes: Bytes) -> Result<Bytes, Failure> {
        let too_long = Failure::BodyTooLarge { limit: self.limit };
        self.room = self.room.checked_sub(bytes.len() as u64).ok_or(too_long)?;
        self.scan.feed(&bytes).map_err(failure_of)?;
        Ok(bytes)
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
        match ready!(rest.poll(cx)) {
            None => Poll::Ready(None),
            Some(Ok(bytes)) => {
                passing.gate.vital().moved();
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Some(Err(failure)) => {
                let _ = rest.broken.set(failure.clone());
                Poll::Ready(Some(Err(failure.into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_end_stream() && self.rest.as_ref().is_none_or(|rest| rest.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.size_hint().exact();
        let rest = self.rest.as_ref().map_or(Some(0), |rest| rest.incoming.size_hint().exact());
        match (held, rest) {
            (Some(held), Some(rest)) => SizeHint::with_exact(held + rest),
            _ => SizeHint::default(),
        }
    }
}
