//! A model's file fetched for who asks over HTTP: [`Pull`], given to us by whoever can, and its progress as lines.
//!
//! Only models of the catalog can be asked for: no request names a host. The work goes on when the client has gone, since
//! others may wait for the same file.
use crate::{
    body::BodyError,
    errors::Failure,
    family::{Caller, Family},
};
use bytes::Bytes;
use http_body::{Body, Frame};
use motorpool_catalog::{Catalog, Model};
use serde::Serialize;
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::sync::oneshot;

/// The file on its way; an error is for people.
pub type Pulling = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

type Fetch = dyn Fn(&Arc<Catalog>, &Model) -> Pulling + Send + Sync;

/// Whoever fetches files.
#[derive(Clone)]
pub struct Pull(Arc<Fetch>);

impl Pull {
    /// By this function, which returns at once. It is given a model and the catalog that has it, the one that counts then.
    pub fn new(pull: impl Fn(&Arc<Catalog>, &Model) -> Pulling + Send + Sync + 'static) -> Self {
        Self(Arc::new(pull))
    }
}

impl fmt::Debug for Pull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pull")
    }
}

/// How the progress is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A line for each step.
    Lines,
    /// One document, at the end.
    Whole,
}

#[derive(Serialize)]
struct Status<'a> {
    status: &'a str,
}

/// The lines of one pull.
pub(crate) struct Progress {
    first: Option<Bytes>,
    end: Option<oneshot::Receiver<Result<(), String>>>,
}

/// Begins. For who wants one document, comes back when it is done.
pub(crate) async fn begin(
    pull: &Pull,
    (catalog, model): (&Arc<Catalog>, &Model),
    delivery: Delivery,
) -> Result<Progress, Failure> {
    let (done, end) = oneshot::channel();
    let work = (pull.0)(catalog, model);
    tokio::spawn(async move {
        // Nobody may be left to hear it.
        let _ = done.send(work.await);
    });
    if delivery == Delivery::Lines {
        return Ok(Progress { first: Some(line("pulling manifest")), end: Some(end) });
    }
    match end.await {
        Ok(Ok(())) => Ok(Progress { first: Some(line("success")), end: None }),
        Ok(Err(why)) => Err(Failure::PullFailed(why)),
        Err(_) => Err(Failure::Internal("the pull ended without a word")),
    }
}

fn line(status: &str) -> Bytes {
    let mut line = serde_json::to_vec(&Status { status }).expect("a text always serialises");
    line.push(b'\n');
    line.into()
}

impl Body for Progress {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        let ended = ready!(Pin::new(end).poll(cx));
        self.end = None;
        let last = match ended {
            Ok(Ok(())) => line("success"),
            Ok(Err(why)) => {
                let caller = Caller { family: Family::Ollama, request: Arc::default() };
                Failure::PullFailed(why).event(&caller, 0)
            }
            Err(_) => return Poll::Ready(None),
        };
        Poll::Ready(Some(Ok(Frame::data(last))))
    }
}
