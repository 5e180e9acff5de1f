//! One request to an engine, one answer: what probes are made of.
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use motorpool_vocab::Endpoint;
use std::{io, net::Ipv4Addr, pin::pin};
use tokio::net::{TcpStream, UnixStream};

/// An answer longer than this is none.
const MAX_ANSWER: usize = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error("cannot connect")]
    Connect(#[from] io::Error),
    #[error("no HTTP")]
    Http(#[from] hyper::Error),
    #[error("not a path")]
    Path(#[from] http::Error),
    #[error("the answer broke off or is too long")]
    Answer,
}

/// Asks for `path`, posting `body` when there is one. The connection ends with this future: no task outlives it.
pub(crate) async fn exchange(
    endpoint: &Endpoint,
    path: &str,
    body: Option<String>,
) -> Result<(u16, Bytes), ExchangeError> {
    match endpoint {
        Endpoint::Unix(socket) => over(UnixStream::connect(socket).await?, path, body).await,
        Endpoint::Tcp(port) => over(TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).await?, path, body).await,
    }
}

async fn over<S>(stream: S, path: &str, body: Option<String>) -> Result<(u16, Bytes), ExchangeError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let method = if body.is_some() { "POST" } else { "GET" };
    let request = Request::builder().method(method).uri(path).header("host", "localhost").header("connection", "close");
    let request = request.header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(body.unwrap_or_default())))?;
    let mut answer = pin!(async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        Ok((status, body.map_err(|_| ExchangeError::Answer)?.to_bytes()))
    });
    // The connection only moves when polled. It may end in the very step that brought the answer.
    tokio::select! {
        biased;
        answered = &mut answer => answered,
        _ = connection => answer.await,
    }
}
