//! [`Client`] asks the daemon on its control socket, an engine under test on its own, and a pool elsewhere at its address.
use crate::{
    exit::{Exit, Failure, chain},
    remote::Remote,
};
use bytes::Bytes as Frame;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use motorpool_vocab::FailureClass;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{
    fmt::Write,
    io,
    path::{Path, PathBuf},
};
use tokio::net::UnixStream;

/// Our word for a `capacity_denied` that no unloading cures.
const NEVER_FITS: &str = "never_fits";

/// Why there is no answer, or not the one that was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("nothing answers on {}", socket.display())]
    NoDaemon { socket: PathBuf, source: io::Error },
    #[error("nothing answers at {server}")]
    Unreachable { server: String, source: hyper_util::client::legacy::Error },
    #[error("the connection broke")]
    Broken(#[from] hyper::Error),
    #[error("{message}")]
    Refused { status: StatusCode, code: String, message: String },
    #[error("an answer that cannot be understood")]
    Garbled(#[from] serde_json::Error),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let what = chain(&error);
        match error {
            ClientError::NoDaemon { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Self::new(Exit::Denied, what, "the daemon belongs to another user: run this as that user")
            }
            ClientError::NoDaemon { .. } => Self::new(
                Exit::NoDaemon,
                "no daemon is running for this state directory",
                "run `motorpool up`, or name its directory with --state-dir",
            ),
            ClientError::Unreachable { .. } => Self::new(
                Exit::NoDaemon,
                what,
                "check --server, and that a pool serves there: `listen` in its [server]",
            ),
            ClientError::Broken(_) | ClientError::Garbled(_) => {
                Self::new(Exit::Failed, what, "look at the daemon's log, and check that both are of one version")
            }
            ClientError::Refused { status, code, .. } => refused(status, &code, what),
        }
    }
}

fn refused(status: StatusCode, code: &str, what: String) -> Failure {
    let (exit, cure) = match (status, code) {
        (StatusCode::NOT_FOUND, _) => (Exit::NotFound, "run `motorpool models` for what there is"),
        (StatusCode::UNAUTHORIZED, _) => (Exit::Denied, "name the file of a key of that pool with --key-file"),
        (StatusCode::FORBIDDEN, _) => {
            (Exit::Denied, "use a key that has the right: `motorpool key new NAME --scope inference,read,manage` there")
        }
        (_, "engine_start_failed") => (Exit::Refused, cure_of_start(&what)),
        (_, "breaker_open") => {
            (Exit::Refused, "run `motorpool logs MODEL` for what it said, then `motorpool reset MODEL`")
        }
        (_, "drained") => (Exit::Refused, "run `motorpool load MODEL` to have it serve again"),
        (_, "engine_crashed") => (Exit::Refused, "run `motorpool logs MODEL` for what it said"),
        (_, NEVER_FITS) => {
            (Exit::Refused, "use a smaller model, context or number of slots, or raise `budget` in [capacity]")
        }
        (_, "capacity_denied") => (Exit::Refused, "run `motorpool ps` for who holds what, and unload something"),
        (_, "context_denied") => (Exit::Refused, "give its catalog entry a `context` that fits, or unload something"),
        (_, "shutting_down") => (Exit::Refused, "start it again when it has ended: `motorpool serve`"),
        (_, "invalid_configuration") => (Exit::Config, "nothing was changed: correct it, and run this again"),
        (_, "engine_busy" | "queue_full" | "queue_timeout") => {
            (Exit::Refused, "try again later; `motorpool ps` shows why")
        }
        _ if status.is_client_error() => (Exit::Usage, "run `motorpool help` for how to ask"),
        _ => (Exit::Refused, "try again; `motorpool ps` shows the pool"),
    };
    Failure::new(exit, what, cure)
}

/// What to do about an engine that did not start, by the class in the message: one that never ran said nothing.
fn cure_of_start(what: &str) -> &'static str {
    let is = |class: FailureClass| what.contains(&format!("({class})"));
    if is(FailureClass::ModelMissing) {
        "run `motorpool model list` for what is on this machine"
    } else if is(FailureClass::ModelCorrupt) {
        "run `motorpool model verify`, and get the file again from where it came from"
    } else if is(FailureClass::EngineMissing) {
        "run `motorpool doctor` for what is missing"
    } else {
        "run `motorpool logs MODEL` for what it said"
    }
}

/// The form of an answer to whoever asked for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Events, as they were asked for.
    Events,
    /// One document: not every engine can stream.
    Whole,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Frame,
    /// Whether the same request fails whenever it is made.
    retry: Retry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    Never,
    Later,
}

/// Asks one pool or one engine.
#[derive(Clone, Debug)]
pub(crate) enum Client {
    /// Over a unix socket, a new connection each time.
    Here(PathBuf),
    /// On another machine, or over an address of this one.
    There(Remote),
}

impl Client {
    pub(crate) fn new(socket: &Path) -> Self {
        Self::Here(socket.to_owned())
    }

    pub(crate) fn of(remote: Remote) -> Self {
        Self::There(remote)
    }

    /// Whether it asks at an address.
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self, Self::There(_))
    }

    /// The answer to `GET path`, as JSON.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        parse(&self.ask(Request::get(path), Frame::new()).await?)
    }

    /// The answer to `POST path`, as JSON.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        parse(&self.ask(json(path), body.to_string().into()).await?)
    }

    /// The answer to `POST path` as it comes, frame by frame, and its form. A refusal is read whole.
    pub(crate) async fn post_stream(&self, path: &str, body: &Value) -> Result<(Kind, Incoming), ClientError> {
        let response = self.send(json(path), body.to_string().into()).await?;
        let events = |kind: &http::HeaderValue| kind.as_bytes().starts_with(b"text/event-stream");
        let is_stream = response.headers().get(header::CONTENT_TYPE).is_some_and(events);
        Ok((if is_stream { Kind::Events } else { Kind::Whole }, streaming(response).await?))
    }

    /// The answer to `GET path` as it comes, frame by frame. A refusal is read whole.
    pub(crate) async fn get_stream(&self, path: &str) -> Result<Incoming, ClientError> {
        streaming(self.send(Request::get(path), Frame::new()).await?).await
    }

    /// A whole answer of any status.
    pub(crate) async fn ask(&self, request: http::request::Builder, body: Frame) -> Result<Answer, ClientError> {
        whole(self.send(request, body).await?).await
    }

    async fn send(&self, request: http::request::Builder, body: Frame) -> Result<Response<Incoming>, ClientError> {
        let socket = match self {
            Self::Here(socket) => socket,
            Self::There(remote) => return remote.send(request, body).await,
        };
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|source| ClientError::NoDaemon { socket: socket.clone(), source })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = request.header(header::HOST, "localhost").body(Full::new(body));
        Ok(sender.send_request(request.expect("paths are literals and checked names")).await?)
    }
}

fn json(path: &str) -> http::request::Builder {
    Request::post(path).header(header::CONTENT_TYPE, "application/json")
}

async fn whole(response: Response<Incoming>) -> Result<Answer, ClientError> {
    let status = response.status();
    let never = response.headers().get("x-should-retry").is_some_and(|value| value == "false");
    let retry = if never { Retry::Never } else { Retry::Later };
    Ok(Answer { status, body: response.into_body().collect().await?.to_bytes(), retry })
}

async fn streaming(response: Response<Incoming>) -> Result<Incoming, ClientError> {
    if response.status().is_success() {
        return Ok(response.into_body());
    }
    Err(refusal(&whole(response).await?))
}

fn parse<T: DeserializeOwned>(answer: &Answer) -> Result<T, ClientError> {
    if !answer.status.is_success() {
        return Err(refusal(answer));
    }
    Ok(serde_json::from_slice(&answer.body)?)
}

/// The error of an answer, in the one shape of the management API and of OpenAI's.
fn refusal(answer: &Answer) -> ClientError {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let text = |name: &str| body["error"][name].as_str().map(str::to_owned);
    let code = text("code").or_else(|| text("type")).unwrap_or_default();
    let never_fits = code == "capacity_denied" && answer.retry == Retry::Never;
    ClientError::Refused {
        status: answer.status,
        code: if never_fits { NEVER_FITS.to_owned() } else { code },
        message: text("message").unwrap_or_else(|| format!("the daemon answered {}", answer.status)),
    }
}

/// A part of a path: everything but unreserved characters escaped.
pub(crate) fn escaped(part: &str) -> String {
    let mut out = String::new();
    for byte in part.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            _ => write!(out, "%{byte:02X}").expect("a text takes everything"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_code_and_message() {
        let body = Frame::from_static(br#"{"error":{"message":"no room","type":"x","code":"capacity_denied"}}"#);
        let cure = |retry| {
            let answer = Answer { status: StatusCode::SERVICE_UNAVAILABLE, body: body.clone(), retry };
            let failure = Failure::from(refusal(&answer));
            assert_eq!((failure.exit, failure.what.as_str()), (Exit::Refused, "no room"));
            failure.cure
        };
        assert!(cure(Retry::Later).contains("unload something"));
        assert!(cure(Retry::Never).contains("smaller model"), "{}", cure(Retry::Never));
    }

    #[test]
    fn one_that_never_ran_is_not_asked_for_its_words() {
        assert!(cure_of_start("engine a did not start (model-corrupt): x").contains("model verify"));
        assert!(cure_of_start("engine a did not start (model-missing): x").contains("model list"));
        assert!(cure_of_start("engine a did not start (engine-missing): x").contains("doctor"));
        assert!(cure_of_start("engine a did not start (unknown): x").contains("logs"));
    }

    #[test]
    fn any_name_is_one_part_of_a_path() {
        assert_eq!(escaped("org/m:0 é"), "org%2Fm%3A0%20%C3%A9");
    }

    #[tokio::test]
    async fn a_socket_that_is_not_there_means_no_daemon() {
        let error = Client::new(Path::new("/nonexistent/s.sock")).get::<Value>("/").await.expect_err("nobody there");
        assert_eq!(Failure::from(error).exit, Exit::NoDaemon);
    }
}
