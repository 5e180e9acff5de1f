//! Upgraded connections, those of web sockets among them: [`open`].
//!
//! ```text
//! GET /m/<model>/<path>, Upgrade ─► lease ─► a connection of its own to the engine ─┬─ 101 ─► bytes both ways
//!                                                                                   └─ else ─► a reply like any other
//! ```
//!
//! What flows is nobody's business here. The lease, the key's place and the record last as long as both sides do; whichever
//! ends first ends the other, and an operator's cancel ends both. What the engine sends is a sign of its life.
use crate::{
    body::{ReplyBody, empty},
    context::Context,
    errors::Failure,
    exchange::Job,
    running::{Entry, Ticket},
    upstream::Inflow,
    usage::Recorder,
    wire::Unguarded,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use motorpool_supervisor::Lease;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context as Waking, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy};

/// The client's end of a connection that is to be upgraded.
#[derive(Debug)]
pub(crate) struct Upgrade {
    on: OnUpgrade,
    headers: HeaderMap,
    unguarded: Unguarded,
}

impl Upgrade {
    /// What the client of this request wants to go on with, if it wants that.
    pub(crate) fn asked_by<B>(request: &mut Request<B>) -> Option<Self> {
        if !is_asked(request.headers()) {
            return None;
        }
        let headers = of_upgrades(request.headers());
        let unguarded = request.extensions().get().cloned().unwrap_or_default();
        Some(Self { on: hyper::upgrade::on(request), headers, unguarded })
    }
}

/// Whether these headers ask for something else than HTTP. Another version of it, or encryption, is an offer that whoever
/// does not take it answers as if it were not there (RFC 9110, 7.8): clients offer it unasked.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    let is_offer = |name: &str| {
        let name = name.split('/').next().unwrap_or_default();
        ["h2c", "http", "tls"].iter().any(|offer| name.eq_ignore_ascii_case(offer))
    };
    let mut protocols = listed(headers, header::UPGRADE).peekable();
    let is_named = protocols.peek().is_some() && !protocols.any(is_offer);
    is_named && listed(headers, header::CONNECTION).any(|name| name.eq_ignore_ascii_case("upgrade"))
}

fn listed(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lists = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).map(str::trim).filter(|name| !name.is_empty())
}

/// What two sides say to each other about an upgrade. Whatever else concerns a connection concerns one of the two alone.
fn of_upgrades(headers: &HeaderMap) -> HeaderMap {
    let is_about = |name: &HeaderName| name == header::UPGRADE || name.as_str().starts_with("sec-websocket-");
    let about = headers.iter().filter(|(name, _)| is_about(name)).map(|(name, value)| (name.clone(), value.clone()));
    about.chain([(header::CONNECTION, HeaderValue::from_static("upgrade"))]).collect()
}

/// The engine's answer to `job`. If it goes along, bytes flow from then on.
pub(crate) async fn open(context: &Arc<Context>, job: Job, upgrade: Upgrade) -> Result<Response<ReplyBody>, Failure> {
    let (lease, _) = job.lease(context).await?;
    let mut request = job.to(&lease);
    request.headers_mut().extend(upgrade.headers);
    let mut reply = match context.upstream.ask_once(lease.endpoint(), request).await {
        Ok(reply) => reply,
        Err(error) => return Err(job.unanswered(context, &lease, error).await),
    };
    if reply.status() != StatusCode::SWITCHING_PROTOCOLS {
        return job.relay_plainly(context, lease, reply.map(Inflow::from)).await;
    }
    lease.vital().answered();
    upgrade.unguarded.tell();
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = of_upgrades(reply.headers());
    let engines = hyper::upgrade::on(&mut reply);
    // The request's own ticket ends with its head; by its number an operator ends what follows.
    let holder = &job.asker.holder;
    let ticket = match holder.entry {
        Some(number) => context.running.go_on(Entry(number), &holder.request),
        None => context.running.enter(&holder.request),
    };
    let held = (lease, job.place.clone(), job.recorder.clone());
    tokio::spawn(pass((upgrade.on, engines), ticket, held));
    Ok(response)
}

/// Passes bytes until either side ends, or an operator ends both.
async fn pass<P>(
    (client, engine): (OnUpgrade, OnUpgrade),
    ticket: Ticket,
    (lease, place, recorder): (Lease, P, Recorder),
) {
    // Until the client has read our 101 there is no connection to pass to.
    let (Ok(client), Ok(engine)) = (client.await, engine.await) else { return };
    recorder.has_result();
    let (mut from_client, mut to_client) = tokio::io::split(TokioIo::new(client));
    let (mut from_engine, mut to_engine) = tokio::io::split(Alive { stream: TokioIo::new(engine), lease });
    let passing = async {
        Ok(tokio::select! {
            ended = copy(&mut from_client, &mut to_engine) => ended,
            ended = copy(&mut from_engine, &mut to_client) => ended,
        })
    };
    match ticket.unless_cancelled(passing).await {
        Err(cancelled) => recorder.failed(&cancelled),
        Ok(Ok(_)) => recorder.finished(),
        Ok(Err(error)) => tracing::debug!(request = recorder.request(), %error, "an upgraded connection broke off"),
    }
    // The engine hears of the end before its slot is given to somebody else.
    let Alive { stream, lease } = from_engine.unsplit(to_engine);
    drop(stream);
    drop((lease, place));
}

/// An engine's end, whose every word shows that it lives.
struct Alive {
    stream: TokioIo<Upgraded>,
    lease: Lease,
}

impl AsyncRead for Alive {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Waking<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.lease.vital().moved();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Alive {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Waking<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Waking<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Waking<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
