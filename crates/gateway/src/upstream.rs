//! Requests to engines: [`Upstream`], one pool of kept-alive connections per child.
//!
//! The pool's key is the authority of the URI, so each child gets one of its own, made of its number and its address.
//! A kept connection that dies before any byte of a reply says nothing about the engine: the request goes once more, on
//! a new one.
use crate::{body::ReplyBody, errors::Awaited};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{
        Client, Error as ClientError,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use motorpool_vocab::{Endpoint, Spawn};
use std::{
    ffi::OsStr,
    fmt::Write,
    future::Future,
    io,
    net::Ipv4Addr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};

/// llama-server closes a connection after 5 s without a request; ours end before that.
const IDLE: Duration = Duration::from_secs(4);

const HEX: &[u8; 16] = b"0123456789abcdef";
/// What stands before the path, for the longest path of a socket.
const URI_BYTES: usize = 256;

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// Nobody answers there.
    #[error("the engine cannot be reached")]
    Connect(#[source] ClientError),
    /// The connection ended before a reply began.
    #[error("the engine closed the connection without a reply")]
    Closed(#[source] ClientError),
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
    kept: Client<Connector, ReplyBody>,
    /// Without a pool: every request gets a new connection.
    fresh: Client<Connector, ReplyBody>,
    connect: Duration,
    first_result: Duration,
}

impl Upstream {
    /// Connects within `connect` and waits for a reply's head for `first_result`.
    pub(crate) fn new(connect: Duration, first_result: Duration) -> Self {
        let connector = Connector { within: connect };
        let client = |n_idle| {
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(n_idle)
                .set_host(false)
                .build(connector)
        };
        Self { kept: client(usize::MAX), fresh: client(0), connect, first_result }
    }

    /// The same that waits for a reply's head for `first_result`.
    pub(crate) fn within(self, first_result: Duration) -> Self {
        Self { first_result, ..self }
    }

    /// Sends what `request` makes for the URI it is given, until a reply's head comes back.
    pub(crate) async fn send(
        &self,
        to: (Spawn, &Endpoint),
        (path_and_query, often): (&str, Often),
        request: impl Fn(Uri) -> Request<ReplyBody> + Send,
    ) -> Result<Response<Incoming>, SendError> {
        let uri = uri_of(to.0, to.1, path_and_query);
        let exchange = async {
            if often == Often::Once {
                return self.fresh.request(request(uri)).await;
            }
            let error = match self.kept.request(request(uri.clone())).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if !was_used_before(&error) {
                return Err(error);
            }
            tracing::debug!(error = &error as &dyn std::error::Error, "a kept connection had died, asking once more");
            self.fresh.request(request(uri)).await
        };
        let reply = tokio::time::timeout(self.first_result, exchange).await;
        let reply = reply.map_err(|_| SendError::Timeout(Awaited::FirstResult, self.first_result))?;
        let reply = reply.map_err(|e| classify(e, self))?;
        if let Some(uses) = reply.extensions().get::<Uses>() {
            uses.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(reply)
    }
}

fn classify(error: ClientError, upstream: &Upstream) -> SendError {
    if !error.is_connect() {
        return SendError::Closed(error);
    }
    let source = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<io::Error>());
    match source.map(io::Error::kind) {
        Some(io::ErrorKind::TimedOut) => SendError::Timeout(Awaited::Connection, upstream.connect),
        _ => SendError::Connect(error),
    }
}

/// How many replies a connection has given.
#[derive(Clone, Debug, Default)]
struct Uses(Arc<AtomicU32>);

fn was_used_before(error: &ClientError) -> bool {
    let mut extensions = http::Extensions::new();
    if let Some(connection) = error.connect_info() {
        connection.get_extras(&mut extensions);
    }
    extensions.get::<Uses>().is_some_and(|uses| uses.0.load(Ordering::Relaxed) > 0)
}

/// A URI whose authority is the child's number and address: `s12.u2f72756e…` or `s12.t40123`.
fn uri_of(spawn: Spawn, endpoint: &Endpoint, path_and_query: &str) -> Uri {
    let mut text = String::with_capacity(URI_BYTES + path_and_query.len());
    write!(text, "http://s{spawn}.").expect("a text takes everything");
    match endpoint {
        Endpoint::Tcp(port) => write!(text, "t{port}").expect("a text takes everything"),
        Endpoint::Unix(path) => {
            text.push('u');
            // By hand: this is done for every request, and a formatter for each byte is not free.
            for byte in path.as_os_str().as_bytes() {
                text.extend([byte >> 4, byte & 15].map(|digit| char::from(HEX[usize::from(digit)])));
            }
        }
    }
    text.push_str(path_and_query);
    text.parse().expect("digits and letters make an authority, and the path came out of a URI of at most 32 KiB")
}

/// The address in such an authority.
fn endpoint_of(uri: &Uri) -> Option<Endpoint> {
    let (_, address) = uri.host()?.split_once('.')?;
    if let Some(port) = address.strip_prefix('t') {
        return Some(Endpoint::Tcp(port.parse().ok()?));
    }
    let (pairs, _) = address.strip_prefix('u')?.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let path: Vec<u8> = pairs.iter().map(byte).collect::<Option<_>>()?;
    Some(Endpoint::Unix(PathBuf::from(OsStr::from_bytes(&path))))
}

/// Connects to what an authority of ours names.
#[derive(Clone, Copy, Debug)]
struct Connector {
    within: Duration,
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let within = self.within;
        Box::pin(async move {
            let endpoint = endpoint_of(&uri).ok_or(io::ErrorKind::InvalidInput)?;
            let socket =
                tokio::time::timeout(within, connect(&endpoint)).await.map_err(|_| io::ErrorKind::TimedOut)??;
            Ok(TokioIo::new(Stream { socket, uses: Uses::default() }))
        })
    }
}

async fn connect(endpoint: &Endpoint) -> io::Result<Socket> {
    match endpoint {
        Endpoint::Unix(path) => connect_unix(path).await,
        Endpoint::Tcp(port) => {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).await?;
            stream.set_nodelay(true)?;
            Ok(Socket::Tcp(stream))
        }
    }
}

async fn connect_unix(path: &Path) -> io::Result<Socket> {
    Ok(Socket::Unix(UnixStream::connect(path).await?))
}

#[derive(Debug)]
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A connection that counts its replies.
#[derive(Debug)]
struct Stream {
    socket: Socket,
    uses: Uses,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.uses.clone())
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Unix(s) => Pin::new(s).poll_read(cx, buf),
            Socket::Tcp(s) => Pin::new(s).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Unix(s) => Pin::new(s).poll_write(cx, buf),
            Socket::Tcp(s) => Pin::new(s).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Unix(s) => Pin::new(s).poll_write_vectored(cx, bufs),
            Socket::Tcp(s) => Pin::new(s).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Unix(s) => Pin::new(s).poll_flush(cx),
            Socket::Tcp(s) => Pin::new(s).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Unix(s) => Pin::new(s).poll_shutdown(cx),
            Socket::Tcp(s) => Pin::new(s).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests;
