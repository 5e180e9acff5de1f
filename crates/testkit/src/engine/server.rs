//! Listening and routing.
use crate::{
    answer::{self, Reply},
    arguments::Listen,
    embeddings::{self, Shape},
    engine::{Engine, Phase},
    inference, state,
    wire::Family,
};
use bytes::Bytes;
use http::{Method, Request, StatusCode, request::Parts};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use std::{io, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
};

/// A bound address.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(UnixListener, String),
    Tcp(TcpListener),
}

impl Listener {
    /// As llama-server names it once it is ready.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Unix(_, path) => format!("unix://{path}"),
            Self::Tcp(listener) => listener.local_addr().map_or_else(|e| e.to_string(), |at| format!("http://{at}")),
        }
    }
}

/// Binds. A socket file that is already there is in the way, as for llama-server.
pub(crate) async fn bind(listen: &Listen) -> io::Result<Listener> {
    Ok(match listen {
        Listen::Unix(path) => Listener::Unix(UnixListener::bind(path)?, path.display().to_string()),
        Listen::Tcp(port) => Listener::Tcp(TcpListener::bind(("127.0.0.1", *port)).await?),
    })
}

/// Serves until the process ends.
pub(crate) async fn serve(engine: Arc<Engine>, listener: Listener) {
    loop {
        let accepted = match &listener {
            Listener::Unix(listener, _) => listener.accept().await.map(|(stream, _)| spawn(&engine, stream)),
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| spawn(&engine, stream)),
        };
        accepted.expect("descriptors for a few connections");
    }
}

fn spawn<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(engine: &Arc<Engine>, stream: S) {
    let engine = Arc::clone(engine);
    engine.n_connected.send_modify(|n| *n += 1);
    tokio::spawn(async move {
        let service = service_fn(|request| respond(Arc::clone(&engine), request));
        let connection = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
        // A client that breaks off is an everyday event.
        drop(connection.await);
        engine.n_connected.send_modify(|n| *n -= 1);
    });
}

async fn respond(engine: Arc<Engine>, request: Request<Incoming>) -> Result<Reply, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let mut reply = route(engine, head, body).await;
    // What llama-server adds to every response.
    for (name, value) in
        [("server", "llama.cpp"), ("access-control-allow-origin", ""), ("keep-alive", "timeout=5, max=100")]
    {
        reply.headers_mut().insert(name, http::HeaderValue::from_static(value));
    }
    Ok(reply)
}

async fn route(engine: Arc<Engine>, head: Parts, body: Bytes) -> Reply {
    let path = head.uri.path();
    let (family, shape) = match head.method {
        Method::POST => (family(path), shape(path)),
        _ => (None, None),
    };
    match path {
        "/fake/requests" => answer::json(StatusCode::OK, &engine.requests()),
        "/fake/process" => answer::json(StatusCode::OK, &engine.process()),
        "/health" | "/v1/health" => answer::health(&engine).await,
        _ if engine.phase() == Phase::Loading => answer::loading(),
        "/props" => answer::props(&engine),
        "/slots" => answer::json(StatusCode::OK, &engine.slots()),
        "/metrics" => answer::text(StatusCode::OK, "text/plain; version=0.0.4", engine.metrics()),
        "/models" | "/v1/models" => answer::models(&engine),
        path if head.method == Method::POST && state::slot(path).is_some() => {
            let slot = state::slot(path).expect("just seen");
            state::answer(&engine, slot, head.uri.query().unwrap_or_default(), &body).await
        }
        _ => match (family, shape) {
            (Some(family), _) => inference::complete(engine, family, shown(&head, &body), body).await,
            (None, Some(shape)) => embeddings::embed(engine, shape, shown(&head, &body), body).await,
            (None, None) => answer::error(StatusCode::NOT_FOUND, "not_found_error", "File Not Found"),
        },
    }
}

fn family(path: &str) -> Option<Family> {
    Some(match path {
        "/chat/completions" | "/v1/chat/completions" => Family::Chat,
        "/v1/completions" => Family::Completion,
        "/completion" | "/completions" => Family::Native,
        "/v1/messages" => Family::Messages,
        "/responses" | "/v1/responses" => Family::Responses,
        _ => return None,
    })
}

fn shape(path: &str) -> Option<Shape> {
    Some(match path {
        "/v1/embeddings" => Shape::OpenAi,
        "/embedding" | "/embeddings" => Shape::Native,
        "/rerank" | "/reranking" | "/v1/rerank" | "/v1/reranking" => Shape::Ranking,
        _ => return None,
    })
}

/// A request as a test wants to see it.
fn shown(head: &Parts, body: &[u8]) -> Value {
    let headers: serde_json::Map<String, Value> = head
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), json!(String::from_utf8_lossy(value.as_bytes()))))
        .collect();
    json!({
        "method": head.method.as_str(), "target": head.uri.to_string(), "headers": headers,
        "body": String::from_utf8_lossy(body),
    })
}
