//! Requests for inference: what was asked, and the reply in one piece or as events.
use crate::{
    answer::{self, Reply},
    embeddings::plain,
    engine::{Engine, Phase},
    sampler::{self, FinishReason, Job, Piece, Reading},
    wire::{Family, Usage, Wire},
};
use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use motorpool_testkit::fingerprint;
use serde_json::{Value, json};
use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::timeout};

/// A request, read.
#[derive(Debug)]
struct Asked {
    job: Job,
    wire: Wire,
    ping: Option<Duration>,
}

/// Everything that makes text. `shown` is what `/fake/requests` shows of it.
pub(crate) async fn complete(engine: Arc<Engine>, family: Family, shown: Value, body: Bytes) -> Reply {
    let work = engine.begin(shown);
    if let Some(refusal) = answer::unwell(&engine) {
        return refusal;
    }
    let asked = match read(&engine, family, &body) {
        Ok(asked) => asked,
        Err(why) => return answer::error(StatusCode::BAD_REQUEST, "invalid_request_error", &why),
    };
    let reading = asked.job.reading;
    let pieces = sampler::begin(&engine, work, asked.job);
    match reading {
        Reading::Whole => whole(pieces, asked.wire).await,
        Reading::Stream => {
            let ping = asked.ping.unwrap_or(Duration::MAX);
            streamed(Frames { engine, pieces, wire: asked.wire, ping, ready: VecDeque::new(), over: Over::NotYet })
                .await
        }
    }
}

fn read(engine: &Engine, family: Family, body: &[u8]) -> Result<Asked, String> {
    let request: Value = serde_json::from_slice(body).map_err(|e| format!("parse error: {e}"))?;
    let prompt = prompt(family, &request)?;
    let limit = ["max_completion_tokens", "max_tokens", "max_output_tokens", "n_predict"]
        .iter()
        .find_map(|name| request[name].as_u64());
    let reading = if request["stream"] == json!(true) { Reading::Stream } else { Reading::Whole };
    let asked = request["stream_options"]["include_usage"] == json!(true);
    Ok(Asked {
        wire: Wire {
            family,
            id: fingerprint(body),
            model: engine.arguments.alias.clone(),
            usage: if asked { Usage::Asked } else { Usage::Unasked },
            prompt: prompt.clone(),
            n_tokens: 0,
            text: String::new(),
        },
        job: Job { prompt, limit: limit.and_then(|n| n.try_into().ok()), reading },
        ping: ping(engine, &request),
    })
}

/// What the reply is made from: the prompt, or the content of the last message.
fn prompt(family: Family, request: &Value) -> Result<String, String> {
    let list = match family {
        Family::Completion | Family::Native => return Ok(plain(&request["prompt"])),
        Family::Responses if !request["input"].is_array() => return Ok(plain(&request["input"])),
        Family::Responses => &request["input"],
        Family::Chat | Family::Messages => &request["messages"],
    };
    let messages = list.as_array().ok_or("'messages' is required")?;
    Ok(messages.last().map(|last| plain(&last["content"])).unwrap_or_default())
}

/// The sidecar's word, else the request's, else the arguments'. A negative number of the request is never.
fn ping(engine: &Engine, request: &Value) -> Option<Duration> {
    if let Some(ms) = engine.behaviour.tokens.ping_ms {
        return Some(Duration::from_millis(ms));
    }
    match request["sse_ping_interval"].as_i64() {
        Some(seconds) => u64::try_from(seconds).ok().map(Duration::from_secs),
        None => Some(Duration::from_secs(engine.arguments.ping_seconds)),
    }
}

async fn whole(mut pieces: mpsc::Receiver<Piece>, mut wire: Wire) -> Reply {
    let reason = loop {
        match pieces.recv().await {
            Some(Piece::Token(token)) => wire.say(&token),
            Some(Piece::Done(reason)) => break reason,
            Some(Piece::Failed) | None => return broken(),
        }
    };
    answer::json(StatusCode::OK, &wire.whole(reason))
}

/// An error before the first token is an ordinary status: the head waits for it.
async fn streamed(mut frames: Frames) -> Reply {
    let mut first = frames.pieces.recv().await;
    match first.take() {
        None | Some(Piece::Failed) => return broken(),
        Some(Piece::Token(token)) => {
            frames.ready.extend(frames.wire.head());
            frames.say(&token);
        }
        Some(Piece::Done(reason)) => {
            frames.ready.extend(frames.wire.head());
            frames.finish(reason);
        }
    }
    let body = StreamBody::new(stream::unfold(frames, Frames::next));
    Response::builder()
        .header("content-type", "text/event-stream")
        .header("x-accel-buffering", "no")
        .body(BodyExt::boxed_unsync(body))
        .expect("a constant head")
}

fn broken() -> Reply {
    answer::error(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "Decode failed.")
}

/// The body of a stream; its drop tells the sampler that the client has gone.
struct Frames {
    engine: Arc<Engine>,
    pieces: mpsc::Receiver<Piece>,
    wire: Wire,
    ping: Duration,
    ready: VecDeque<Bytes>,
    over: Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    NotYet,
    Yes,
}

impl Frames {
    async fn next(mut self) -> Option<(Result<Frame<Bytes>, Infallible>, Self)> {
        if self.ready.is_empty() && self.over == Over::NotYet {
            self.take_piece().await;
        }
        let frame = self.ready.pop_front()?;
        Some((Ok(Frame::data(frame)), self))
    }

    async fn take_piece(&mut self) {
        match timeout(self.ping, self.pieces.recv()).await {
            // A ping is the moment at which a stopping llama-server notices.
            Err(_) if self.engine.phase() == Phase::Stopping => self.over = Over::Yes,
            Err(_) => self.ready.push_back(Bytes::from_static(b":\n\n")),
            Ok(None) => self.over = Over::Yes,
            Ok(Some(Piece::Token(token))) => self.say(&token),
            Ok(Some(Piece::Failed)) => {
                self.ready.push_back(self.wire.failure());
                self.over = Over::Yes;
            }
            Ok(Some(Piece::Done(reason))) => self.finish(reason),
        }
    }

    fn say(&mut self, token: &str) {
        self.wire.say(token);
        self.ready.push_back(self.wire.token(token));
    }

    fn finish(&mut self, reason: FinishReason) {
        self.ready.extend(self.wire.end(reason));
        self.over = Over::Yes;
    }
}
