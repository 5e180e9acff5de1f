//! One request to somebody's server: a bounded answer for what we ask ourselves, a stream for what others ask through us.
//! Each carries its operator's headers and key. No redirect is followed: it could lead anywhere. Connections are kept for
//! a while, each target's own; a kept one that ends without a word says nothing about the server, so a look or a caller's
//! request goes once more, on a new one. What changes the server is said on a new one, once: nobody knows what became of
//! a load whose connection died, and another may load a second copy.
use crate::{
    connect::{Connector, connector},
    kept::{count, was_used_before},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use motorpool_vocab::ServerUrl;
use std::{error::Error, fmt, io, time::Duration};

/// An answer longer than this is none.
const MAX_ANSWER: usize = 16 << 20;
/// llama-server and LM Studio close a connection after 5 s without a request; ours end before that.
const IDLE: Duration = Duration::from_secs(4);

/// Whatever went wrong below.
pub type Cause = Box<dyn Error + Send + Sync>;
/// What is sent.
pub type Body = UnsyncBoxBody<Bytes, Cause>;

/// A bearer key, kept out of debug output.
#[derive(Clone, PartialEq, Eq)]
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
    kept: Client<Connector, Body>,
    /// Without a pool: every request gets a new connection.
    fresh: Client<Connector, Body>,
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
        let client = |n_idle| {
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(n_idle)
                .build(connector.clone())
        };
        Ok(Self { kept: client(usize::MAX), fresh: client(0), headers })
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

    /// What `request` makes, but to `url` and with the operator's headers, as far as the head of its answer. It is made
    /// once more when a kept connection had died.
    pub(crate) async fn send(
        &self,
        url: &str,
        request: impl Fn() -> Request<Body>,
    ) -> Result<Response<Incoming>, CallError> {
        let uri = &uri(url)?;
        let asked = self.kept.request(self.addressed(request(), uri)).await;
        let answer = match asked {
            Err(error) if was_used_before(&error) => {
                tracing::debug!(error = &error as &dyn Error, "a kept connection had died, asking once more");
                self.fresh.request(self.addressed(request(), uri)).await
            }
            asked => asked,
        };
        let answer = answer.map_err(|error| CallError::Network(error.into()))?;
        count(&answer);
        Ok(answer)
    }

    /// The same on a new connection, and never again.
    async fn send_once(&self, url: &str, request: Request<Body>) -> Result<Response<Incoming>, CallError> {
        let answer = self.fresh.request(self.addressed(request, &uri(url)?)).await;
        answer.map_err(|error| CallError::Network(error.into()))
    }

    fn addressed(&self, mut request: Request<Body>, uri: &Uri) -> Request<Body> {
        *request.uri_mut() = uri.clone();
        *request.version_mut() = http::Version::HTTP_11;
        request.headers_mut().remove(header::HOST);
        // The caller's own key is for us: it does not go on to somebody else's server.
        request.headers_mut().remove(header::AUTHORIZATION);
        request.headers_mut().extend(self.headers.clone());
        request
    }

    async fn call(&self, (method, url): (Method, &str), body: Bytes, within: Duration) -> Result<Answer, CallError> {
        let request = || {
            let mut request = Request::new(whole(body.clone()));
            *request.method_mut() = method.clone();
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            request
        };
        let exchange = async {
            let reply = match method {
                Method::GET => self.send(url, request).await?,
                _ => self.send_once(url, request()).await?,
            };
            let status = reply.status().as_u16();
            let body = Limited::new(reply.into_body(), MAX_ANSWER).collect().await.map_err(CallError::Answer)?;
            Ok(Answer { status, body: body.to_bytes() })
        };
        tokio::time::timeout(within, exchange).await.map_err(|_| CallError::Late(within))?
    }
}

/// A body that is all there.
pub(crate) fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
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
