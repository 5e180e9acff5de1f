//! [`Client`]: HTTP/1.1 over a unix socket or a loopback port, one connection for each request.
//!
//! Dropping an [`Incoming`] closes its connection: that is how a test's client goes away.
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Body, client::conn::http1};
use hyper_util::rt::TokioIo;
use motorpool_vocab::Endpoint;
use std::io;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    task::JoinHandle,
};

/// Sends requests to one address.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
}

/// A whole response.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// A response whose body is still coming.
#[derive(Debug)]
pub struct Incoming {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    body: hyper::body::Incoming,
    _connection: Connection,
}

impl Client {
    /// For `endpoint`; nothing is connected yet.
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint }
    }

    /// `GET`, to the end.
    pub async fn get(&self, path: &str) -> io::Result<Answer> {
        let request = Request::get(path).header("host", "localhost").body(Full::default()).map_err(io::Error::other)?;
        self.send(request).await?.whole().await
    }

    /// `POST` of JSON, to the end.
    pub async fn post(&self, path: &str, json: &serde_json::Value) -> io::Result<Answer> {
        self.open(path, json).await?.whole().await
    }

    /// `POST` of JSON, as far as the response's head.
    pub async fn open(&self, path: &str, json: &serde_json::Value) -> io::Result<Incoming> {
        let request = Request::post(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::from(json.to_string()))
            .map_err(io::Error::other)?;
        self.send(request).await
    }

    /// Any request, as far as the response's head.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> io::Result<Incoming> {
        match &self.endpoint {
            Endpoint::Unix(path) => over(UnixStream::connect(path).await?, request).await,
            Endpoint::Tcp(port) => over(TcpStream::connect(("127.0.0.1", *port)).await?, request).await,
        }
    }
}

async fn over<S>(stream: S, request: Request<Full<Bytes>>) -> io::Result<Incoming>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // An error of the connection also ends the request or its body, where it is reported.
    let connection = Connection(tokio::spawn(async move { drop(connection.await) }));
    let (head, body) = sender.send_request(request).await.map_err(io::Error::other)?.into_parts();
    Ok(Incoming { status: head.status, headers: head.headers, body, _connection: connection })
}

/// Driven until dropped: then its socket closes.
#[derive(Debug)]
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Incoming {
    /// The next piece of the body as it came; `None` at its end.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Reads on until `text` has come, and returns everything read by this call.
    pub async fn until(&mut self, text: &str) -> io::Result<String> {
        let mut seen = Vec::new();
        while let Some(data) = self.next().await? {
            seen.extend_from_slice(&data);
            if String::from_utf8_lossy(&seen).contains(text) {
                return Ok(String::from_utf8_lossy(&seen).into_owned());
            }
        }
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, {
            format!("{}: the body ended before {text:?}: {}", self.status, String::from_utf8_lossy(&seen))
        }))
    }

    /// The rest of the body.
    pub async fn whole(mut self) -> io::Result<Answer> {
        let mut body = Vec::new();
        while let Some(data) = self.next().await? {
            body.extend_from_slice(&data);
        }
        Ok(Answer { status: self.status, headers: self.headers, body: body.into() })
    }

    /// Whether the end of the body was seen.
    pub fn is_at_end(&self) -> bool {
        self.body.is_end_stream()
    }
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none; the message shows it.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e} in {}", self.text()))
    }
}
