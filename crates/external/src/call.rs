//! One request to somebody's server, one bounded answer.
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use motorpool_vocab::{ServerUrl, Transport};
use std::{fmt, time::Duration};

/// An answer longer than this is none.
const MAX_ANSWER: usize = 16 << 20;

/// A bearer key, kept out of debug output.
#[derive(Clone)]
pub struct Key(HeaderValue);

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Encrypted targets are not spoken to yet.
    #[error("https is not offered yet")]
    Encrypted,
    /// No request can be made of it.
    #[error("not a request")]
    Request(#[source] http::Error),
    /// Nobody answers, or not in HTTP.
    #[error("the server cannot be reached")]
    Network(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer broke off, or is longer than 16 MiB.
    #[error("the answer broke off or is too long")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
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
    client: Client<HttpConnector, Full<Bytes>>,
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
        if url.transport() == Transport::Https {
            return Err(CallError::Encrypted);
        }
        if let Some(Key(value)) = key {
            headers.insert(header::AUTHORIZATION, value.clone());
        }
        // No connection is kept: calls are rare, and a server that restarts must not cost one.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(HttpConnector::new());
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

    async fn call(&self, to: (Method, &str), body: Bytes, within: Duration) -> Result<Answer, CallError> {
        let uri: Uri = to.1.parse().map_err(|error: http::uri::InvalidUri| CallError::Request(error.into()))?;
        let mut request = Request::builder().method(to.0).uri(uri).body(Full::new(body)).map_err(CallError::Request)?;
        request.headers_mut().extend(self.headers.clone());
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let exchange = async {
            let reply = self.client.request(request).await.map_err(|error| CallError::Network(error.into()))?;
            let status = reply.status().as_u16();
            let body = Limited::new(reply.into_body(), MAX_ANSWER).collect().await.map_err(CallError::Answer)?;
            Ok(Answer { status, body: body.to_bytes() })
        };
        tokio::time::timeout(within, exchange).await.map_err(|_| CallError::Late(within))?
    }
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
        let json: Option<serde_json::Value> = serde_json::from_slice(&self.body).ok();
        let error = json.as_ref().and_then(|json| json.get("error"));
        let message = error.and_then(|error| error.get("message").unwrap_or(error).as_str().map(str::to_owned));
        message.unwrap_or_else(|| String::from_utf8_lossy(&self.body).chars().take(200).collect())
    }
}
