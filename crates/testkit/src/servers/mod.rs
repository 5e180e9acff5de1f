//! Servers of other people: [`FakeRouter`], [`FakeOllama`] and [`FakeLmStudio`], which serve models, and [`hub::FakeHub`], which gives their
//! files; real HTTP servers on a loopback port.
//!
//! They were written from what Motorpool's adapters are told of them, not from their sources: what they show is that
//! the adapters keep to that. Each remembers what it was asked, and can be told to fail ([`Fault`]).
pub mod hub;
mod lmstudio;
mod ollama;
mod router;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use std::{
    future, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

pub use lmstudio::{FakeLmStudio, Tier};
pub use ollama::FakeOllama;
pub use router::FakeRouter;

/// One request, as a server of this kind saw it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `GET`, `POST`.
    pub method: String,
    /// Without its query.
    pub path: String,
    /// Behind `?`.
    pub query: String,
    /// All of them.
    pub headers: HeaderMap,
    /// As JSON; null when it is none.
    pub body: Value,
}

/// How a server fails, instead of answering.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It takes the request and never answers.
    Slow,
    /// It answers 200 with half an object.
    Malformed,
    /// It answers so, with this message.
    Status(u16, String),
    /// It closes the connection.
    HangUp,
    /// It does what it is asked, answers well, and has lost it all the same.
    Forgets,
    /// It does what it is asked, and closes the connection without an answer.
    ActsAndHangsUp,
    /// It does what it is asked only when it is told to go on.
    Held,
    /// It does what it is asked at once, and answers only when it is told to go on.
    AnswerHeld,
}

/// What is answered: a status and JSON.
type Reply = (u16, Value);
type Handler = dyn Fn(&Asked, Forgetting) -> Reply + Send + Sync;

/// Whether what it does is to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forgetting {
    No,
    Yes,
}

/// A listening server.
#[derive(Debug)]
struct Fake {
    port: u16,
    common: Arc<Common>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Common {
    asked: Mutex<Vec<Asked>>,
    faults: Mutex<Vec<Planned>>,
    /// Counts how often it was told to go on.
    released: watch::Sender<u64>,
}

/// A fault of requests to one path.
#[derive(Debug)]
struct Planned {
    path: String,
    fault: Fault,
    /// Requests that go well before.
    n_well: u32,
    /// Requests that fail.
    n_left: u32,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fake {
    async fn open(handler: Arc<Handler>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (port, common) = (listener.local_addr()?.port(), Arc::new(Common::default()));
        let task = tokio::spawn(serve(listener, Arc::clone(&common), handler));
        Ok(Self { port, common, task })
    }

    /// The next `n` requests to `path` fail so.
    fn fail(&self, path: &str, fault: Fault, n: u32) {
        self.fail_after(path, (0, fault), n);
    }

    /// The same, once `n_well` more went well.
    fn fail_after(&self, path: &str, (n_well, fault): (u32, Fault), n_left: u32) {
        held(&self.common.faults).push(Planned { path: path.to_owned(), fault, n_well, n_left });
    }

    /// What is held goes on.
    fn release(&self) {
        self.common.released.send_modify(|n| *n += 1);
    }

    fn asked(&self, path: &str) -> Vec<Asked> {
        held(&self.common.asked).iter().filter(|one| one.path == path).cloned().collect()
    }
}

impl Common {
    fn fault(&self, path: &str) -> Option<Fault> {
        let mut faults = held(&self.faults);
        let planned = faults.iter_mut().find(|one| one.path == path && one.n_left > 0)?;
        if planned.n_well > 0 {
            planned.n_well -= 1;
            return None;
        }
        planned.n_left -= 1;
        Some(planned.fault.clone())
    }

    /// Until it is told to go on the next time.
    async fn until_released(&self) {
        // The sender is ours: it does not go.
        let _ = self.released.subscribe().changed().await;
    }
}

async fn serve(listener: TcpListener, common: Arc<Common>, handler: Arc<Handler>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let (common, handler) = (Arc::clone(&common), Arc::clone(&handler));
        let service = service_fn(move |request| respond(Arc::clone(&common), Arc::clone(&handler), request));
        tokio::spawn(async move {
            let builder =
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
            // A client that breaks off is an everyday event.
            drop(builder.await);
        });
    }
}

async fn respond(
    common: Arc<Common>,
    handler: Arc<Handler>,
    request: Request<Incoming>,
) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let asked = Asked {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    held(&common.asked).push(asked.clone());
    let (status, text) = match common.fault(&asked.path) {
        Some(Fault::Slow) => future::pending().await,
        Some(Fault::HangUp) => return Err(io::Error::other("hung up")),
        Some(Fault::Malformed) => (200, "{\"models\": [".to_owned()),
        Some(Fault::Status(status, message)) => (status, json!({"error": {"message": message}}).to_string()),
        Some(Fault::Forgets) => written(handler(&asked, Forgetting::Yes)),
        Some(Fault::ActsAndHangsUp) => {
            handler(&asked, Forgetting::No);
            return Err(io::Error::other("hung up"));
        }
        Some(Fault::Held) => {
            common.until_released().await;
            written(handler(&asked, Forgetting::No))
        }
        Some(Fault::AnswerHeld) => {
            let reply = handler(&asked, Forgetting::No);
            common.until_released().await;
            written(reply)
        }
        None => written(handler(&asked, Forgetting::No)),
    };
    let reply = Response::builder().status(status).header("content-type", "application/json");
    reply.body(Full::from(text)).map_err(io::Error::other)
}

fn written((status, json): Reply) -> (u16, String) {
    (status, json.to_string())
}

fn error(status: u16, message: &str) -> Reply {
    (status, json!({"error": {"message": message}}))
}

/// What a chat is answered with: nothing depends on it but that it came.
fn chat(model: &str) -> Reply {
    let message = json!({"role": "assistant", "content": format!("I am {model}")});
    (200, json!({"object": "chat.completion", "model": model, "choices": [{"index": 0, "message": message}]}))
}
