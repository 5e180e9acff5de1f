//! One request to somebody's server: a bounded answer for what we ask ourselves, a stream for what others ask through us.
//! Each carries its operator's headers and key. No redirect is followed: it could lead anywhere.
use crate::connect::{Connector, connector};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use motorpool_vocab::ServerUrl;
use std::{error::Error, fmt, io, time::Duration};

/// An answer longer than this is none.
const MAX_ANSWER: usize = 16 << 20;

/// Whatever went wrong below.
pub type Cause = Box<dyn Error + Send + Sync>;
/// What is sent.
pub type Body = UnsyncBoxBody<Bytes, Cause>;

/// A bearer key, kept out of debug output.
#[derive(Clone)]
pub struct Key(HeaderValue);

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// An address that no model server may have: link-local, or where clouds hand out credentials.
    #[error("no model server may be at this address")]
    OffLimits,
    /// The system has no certificate authorities.
    #[error("the system's certificate authorities cannot be read")]
    Authorities(#[source] io::Error),
    /// No request can be made of it.
    #[error("not a request")]
    Request(#[source] http::Error),
    /// Nobody answers, or not in HTTP.
    #[error("the server cannot be reached")]
    Network(#[source] Cause),
    /// The answer broke off, or is longer than 16 MiB.
    #[error("the answer broke off or is too long")]
    Answer(#[source] Cause),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// An answer that is no JSON.
    #[error("the answer is no JSON")]
    Json(#[from] serde_json::Error),
}

/// An answer: its status and its body.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

/// Calls one server with its operator's headers and key.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    client: Client<Connector, Body>,
    headers: HeaderMap,
}

impl Key {
    /// `text` as a bearer key; nothing when no header can hold it.
    pub fn new(text: &str) -> Option<Self> {
        let mut value = HeaderValue::from_str(&format!("Bearer {text}")).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Caller {
    /// For the server at `url`; nothing is connected yet.
    pub(crate) fn new(url: &ServerUrl, mut headers: HeaderMap, key: Option<&Key>) -> Result<Self, CallError> {
        if url.is_off_limits() {
            return Err(CallError::OffLimits);
        }
        if let Some(Key(value)) = key {
            headers.insert(header::AUTHORIZATION, value.clone());
        }
        let connector = connector().map_err(CallError::Authorities)?;
        // No connection is kept: calls are rare, and a server that restarts must not cost one.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(Self { client, headers })
    }

    /// `GET url`.
    pub(crate) async fn get(&self, url: &str, within: Duration) -> Result<Answer, CallError> {
        self.call((Method::GET, url), Bytes::new(), within).await
    }

    /// `POST url` with JSON.
    pub(crate) async fn post(
        &self,
        url: &str,
        json: &serde_json::Value,
        within: Duration,
    ) -> Result<Answer, CallError> {
        self.call((Method::POST, url), Bytes::from(json.to_string()), within).await
    }

    /// `request` as it is, but to `url` and with the operator's headers, as far as the head of its answer.
    pub(crate) async fn send(&self, url: &str, mut request: Request<Body>) -> Result<Response<Incoming>, CallError> {
        *request.uri_mut() = uri(url)?;
        *request.version_mut() = http::Version::HTTP_11;
        request.headers_mut().remove(header::HOST);
        // The caller's own key is for us: it does not go on to somebody else's server.
        request.headers_mut().remove(header::AUTHORIZATION);
        request.headers_mut().extend(self.headers.clone());
        self.client.request(request).await.map_err(|error| CallError::Network(error.into()))
    }

    async fn call(&self, to: (Method, &str), body: Bytes, within: Duration) -> Result<Answer, CallError> {
        let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        let json = HeaderValue::from_static("application/json");
        let request = Request::builder().method(to.0).header(header::CONTENT_TYPE, json).body(body);
        let request = request.map_err(CallError::Request)?;
        let exchange = async {
            let reply = self.send(to.1, request).await?;
            let status = reply.status().as_u16();
            let body = Limited::new(reply.into_body(), MAX_ANSWER).collect().await.map_err(CallError::Answer)?;
            Ok(Answer { status, body: body.to_bytes() })
        };
        tokio::time::timeout(within, exchange).await.map_err(|_| CallError::Late(within))?
    }
}

fn uri(url: &str) -> Result<Uri, CallError> {
    url.parse().map_err(|error: http::uri::InvalidUri| CallError::Request(error.into()))
}

impl Answer {
    /// Whether it says that all is well.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Its body as JSON.
    pub(crate) fn json(&self) -> Result<serde_json::Value, CallError> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    /// What it says is wrong: the message of an error object, else the body's beginning.
    pub(crate) fn message(&self) -> String {
        message(&self.body)
    }
}

/// What an answer says is wrong: the message of an error object, else the body's beginning.
pub(crate) fn message(body: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let error = json.as_ref().and_then(|json| json.get("error"));
    let message = error.and_then(|error| error.get("message").unwrap_or(error).as_str().map(str::to_owned));
    message.unwrap_or_else(|| String::from_utf8_lossy(body).chars().take(200).collect())
}
