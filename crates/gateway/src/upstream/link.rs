//! One connection to an engine, and the reply that comes by it: [`Link`], [`Inflow`].
//!
//! ```text
//!  open ─► ask ─► Inflow ─┬─ read to its end ─► kept for the next request
//!            ▲            └─ dropped before ──► closed, at once
//!            └─── kept ◄──┘
//! ```
//!
//! A connection has no task of its own: it moves while somebody waits for its reply or reads it. A frame so wakes one task
//! and no other, and a reply that nobody reads any more closes its connection before anything else happens.
use super::kept::Home;
use crate::body::ReplyBody;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use std::{
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite};

/// What connections run over.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// llama-server closes a connection after 5 s without a request; ours end before that where nothing else is said.
const IDLE: Duration = Duration::from_secs(4);

type Driver = http1::Connection<TokioIo<Box<dyn Stream>>, ReplyBody>;

/// A connection to an engine.
pub(super) struct Link {
    sender: http1::SendRequest<ReplyBody>,
    /// `None`: it has ended.
    driver: Option<Pin<Box<Driver>>>,
    n_asked: u64,
    terms: Terms,
}

/// What the other side says of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Terms {
    /// One without a request is closed here after so long.
    idle: Duration,
    /// One takes so many requests.
    most: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self { idle: IDLE, most: u64::MAX }
    }
}

impl Terms {
    /// By `Keep-Alive: timeout=5, max=100`. Its limit is on its own clock, so ours ends a second before it.
    fn of(reply: &HeaderMap) -> Self {
        let lists = reply.get_all("keep-alive").into_iter().filter_map(|value| value.to_str().ok());
        let mut terms = Self::default();
        for (name, value) in lists.flat_map(|list| list.split(',')).filter_map(|part| part.split_once('=')) {
            let Ok(n) = value.trim().trim_matches('"').parse::<u32>() else { continue };
            match name.trim() {
                name if name.eq_ignore_ascii_case("timeout") => {
                    terms.idle = Duration::from_secs(n.saturating_sub(1).into());
                }
                // Some tell how many are left, others how many there are in all: the fewer of both.
                name if name.eq_ignore_ascii_case("max") => terms.most = n.into(),
                _ => {}
            }
        }
        terms
    }
}

impl Link {
    pub(super) async fn over(stream: Box<dyn Stream>) -> hyper::Result<Self> {
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Some(Box::pin(driver)), n_asked: 0, terms: Terms::default() })
    }

    /// The head of the reply to `request`.
    pub(super) async fn ask(&mut self, request: Request<ReplyBody>) -> hyper::Result<Response<Incoming>> {
        self.n_asked += 1;
        let mut reply = pin!(self.sender.send_request(request));
        let reply = poll_fn(|cx| {
            drive(&mut self.driver, cx);
            reply.as_mut().poll(cx)
        })
        .await?;
        self.terms = Terms::of(reply.headers());
        Ok(reply)
    }

    /// So long it waits for another request, if it takes one.
    pub(super) fn idle(&self) -> Option<Duration> {
        (self.n_asked < self.terms.most && !self.terms.idle.is_zero()).then_some(self.terms.idle)
    }

    /// Whether it takes another request now: the last reply was read to its end, and the engine has not hung up.
    pub(super) fn is_free(&mut self) -> bool {
        drive(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// Moves what there is to move. A connection that ended is dropped: whoever waits for it hears of it by that.
fn drive(driver: &mut Option<Pin<Box<Driver>>>, cx: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(cx).is_ready()) {
        *driver = None;
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("is_open", &self.driver.is_some()).finish_non_exhaustive()
    }
}

/// A reply's body, with the connection that it comes by.
#[derive(Debug)]
pub(crate) struct Inflow {
    incoming: Incoming,
    /// `None`: somebody else moves it, or it is at its end.
    link: Option<(Link, Home)>,
}

impl Inflow {
    pub(super) fn new(incoming: Incoming, link: Link, home: Home) -> Self {
        let mut inflow = Self { incoming, link: Some((link, home)) };
        inflow.part_at_end();
        inflow
    }

    /// Reads what is there of the end, without waiting for it: whoever knows from the words that nothing follows.
    pub(crate) fn skip_to_end(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(_))) = Pin::new(&mut *self).poll_frame(&mut cx) {}
    }

    /// Behind the last byte the connection is somebody else's.
    fn part_at_end(&mut self) {
        if self.incoming.is_end_stream() {
            self.part();
        }
    }

    fn part(&mut self) {
        if let Some((link, home)) = self.link.take() {
            home.keep(link);
        }
    }
}

/// The body of a connection that has a task of its own.
impl From<Incoming> for Inflow {
    fn from(incoming: Incoming) -> Self {
        Self { incoming, link: None }
    }
}

impl Body for Inflow {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        let mut polled = Pin::new(&mut this.incoming).poll_frame(cx);
        if polled.is_pending()
            && let Some((link, _)) = &mut this.link
        {
            drive(&mut link.driver, cx);
            polled = Pin::new(&mut this.incoming).poll_frame(cx);
        }
        match &polled {
            Poll::Ready(None) => this.part(),
            Poll::Ready(Some(Ok(_))) => this.part_at_end(),
            Poll::Ready(Some(Err(_))) => this.link = None,
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
