//! Requests to engines: [`Upstream`], with kept-alive connections per child.
//!
//! A kept connection that dies before any byte of a reply says nothing about the engine: the request goes once more, on
//! a new one.
mod kept;
mod link;

use crate::{body::ReplyBody, errors::Awaited};
use http::{Request, Response, Uri};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use kept::{Home, Kept};
pub(crate) use link::Inflow;
use link::{Link, Stream};
use motorpool_vocab::{Endpoint, Event, EventKind, Spawn};
use std::{io, net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpStream, UnixStream},
    sync::broadcast::{self, error::RecvError},
    time::timeout,
};

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// Nobody answers there.
    #[error("the engine cannot be reached")]
    Connect(#[source] io::Error),
    /// The connection ended before a reply began.
    #[error("the engine closed the connection without a reply")]
    Closed(#[source] hyper::Error),
    /// Nothing within this time.
    #[error("the engine gave no {0} in time")]
    Timeout(Awaited, Duration),
}

/// How often a request can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Often {
    /// Its body is there once: it gets a new connection.
    Once,
    /// Once more when a kept connection had died.
    OnceMore,
}

/// The client side of all engines.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    kept: Arc<Kept>,
    connect: Duration,
    first_result: Duration,
}

impl Upstream {
    /// Connects within `connect` and waits for a reply's head for `first_result`.
    pub(crate) fn new(connect: Duration, first_result: Duration) -> Self {
        Self { kept: Arc::default(), connect, first_result }
    }

    /// The same that waits for a reply's head for `first_result`.
    pub(crate) fn within(self, first_result: Duration) -> Self {
        Self { first_result, ..self }
    }

    /// Closes the connections that wait for requests to `spawn`, which is being stopped: an engine waits for its clients.
    pub(crate) fn leave(&self, spawn: Spawn) {
        self.kept.leave(spawn);
    }

    /// Leaves every child that is being stopped, as long as anybody tells.
    pub(crate) async fn leave_what_stops(self, mut events: broadcast::Receiver<Event>) {
        loop {
            match events.recv().await {
                Ok(Event { kind: EventKind::Stopping { spawn, .. }, .. }) => self.leave(spawn),
                // What was missed ends by its time.
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Sends what `request` makes for the URI it is given, until a reply's head comes back.
    pub(crate) async fn send(
        &self,
        (spawn, endpoint): (Spawn, &Endpoint),
        (path_and_query, often): (&str, Often),
        request: impl Fn(Uri) -> Request<ReplyBody> + Send,
    ) -> Result<Response<Inflow>, SendError> {
        let uri: Uri = path_and_query.parse().expect("a path comes out of a URI, or is ours");
        let exchange = async {
            let kept = if often == Often::OnceMore { self.kept.take(spawn) } else { None };
            if let Some(link) = kept {
                match self.ask((spawn, link), request(uri.clone())).await {
                    Err(error) if !error.is_parse() => {
                        let error: &dyn std::error::Error = &error;
                        tracing::debug!(error, "a kept connection had died, asking once more");
                    }
                    replied => return replied.map_err(SendError::Closed),
                }
            }
            let link = Link::over(self.connect(endpoint).await?).await.map_err(SendError::Closed)?;
            self.ask((spawn, link), request(uri)).await.map_err(SendError::Closed)
        };
        let late = |_| SendError::Timeout(Awaited::FirstResult, self.first_result);
        timeout(self.first_result, exchange).await.map_err(late)?
    }

    /// The reply to `request` on a connection of its own, which may be upgraded by it.
    pub(crate) async fn ask_once(
        &self,
        endpoint: &Endpoint,
        request: Request<ReplyBody>,
    ) -> Result<Response<Incoming>, SendError> {
        let exchange = async {
            let stream = TokioIo::new(self.connect(endpoint).await?);
            let (mut sender, driver) = http1::handshake(stream).await.map_err(SendError::Closed)?;
            // It ends with the connection, which ends with who reads the reply or owns what it became.
            tokio::spawn(driver.with_upgrades());
            sender.send_request(request).await.map_err(SendError::Closed)
        };
        let late = |_| SendError::Timeout(Awaited::FirstResult, self.first_result);
        timeout(self.first_result, exchange).await.map_err(late)?
    }

    async fn ask(
        &self,
        (spawn, mut link): (Spawn, Link),
        request: Request<ReplyBody>,
    ) -> hyper::Result<Response<Inflow>> {
        let (head, body) = link.ask(request).await?.into_parts();
        let home = Home { kept: Arc::clone(&self.kept), spawn };
        Ok(Response::from_parts(head, Inflow::new(body, link, home)))
    }

    async fn connect(&self, endpoint: &Endpoint) -> Result<Box<dyn Stream>, SendError> {
        let late = |_| SendError::Timeout(Awaited::Connection, self.connect);
        timeout(self.connect, connect(endpoint)).await.map_err(late)?.map_err(SendError::Connect)
    }
}

async fn connect(endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
    match endpoint {
        Endpoint::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        Endpoint::Tcp(port) => {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
    }
}

#[cfg(test)]
mod tests;
