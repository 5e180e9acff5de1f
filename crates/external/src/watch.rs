//! [`Watch`]: news of a router's loads (`GET /models/sse`), and [`Progress`]: how long nothing moved.
//!
//! News only says that it is time for a look, and that something moved; what is true is what the listing says. A router
//! without news, or one that breaks off, is looked at every half second. Builds call the event `status_change` or
//! `model_status`, and what both carry is read alike.
use crate::call::{Caller, whole};
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// From one look to the next.
const PAUSE: Duration = Duration::from_millis(500);
/// The same just after news: the listing may be behind it.
const SHORT_PAUSE: Duration = Duration::from_millis(30);
/// A line longer than this is no news.
const MAX_LINE: usize = 1 << 20;

/// What was said about one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) model: String,
    /// Its state and how far it is, as they were said: anything else than before is progress.
    pub(crate) mark: String,
}

/// News of one router.
#[derive(Debug)]
pub(crate) struct Watch {
    stream: Option<Incoming>,
    rest: Vec<u8>,
    pause: Duration,
}

/// Whether a load still moves.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    limit: Duration,
    until: Instant,
    mark: String,
}

impl Watch {
    /// Listens at `url`, if that is offered within `within`.
    pub(crate) async fn open(caller: &Caller, url: &str, within: Duration) -> Self {
        let request = || {
            let mut request = Request::new(whole(Bytes::new()));
            request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
            request
        };
        let answer = timeout(within, caller.send(url, request)).await.ok().and_then(Result::ok);
        let stream = answer.filter(|answer| answer.status().is_success()).map(http::Response::into_body);
        Self { stream, rest: Vec::new(), pause: PAUSE }
    }

    /// The next news of any model; nothing when it is time for a look anyway.
    pub(crate) async fn next(&mut self) -> Option<Said> {
        let pause = std::mem::replace(&mut self.pause, PAUSE);
        if self.stream.is_none() {
            sleep(pause).await;
            return None;
        }
        let said = timeout(pause, self.said()).await.ok()?;
        match &said {
            Some(_) => self.pause = SHORT_PAUSE,
            None => self.stream = None,
        }
        said
    }

    /// `None`: it broke off.
    async fn said(&mut self) -> Option<Said> {
        loop {
            while let Some(at) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=at).collect();
                if let Some(said) = read(&line) {
                    return Some(said);
                }
            }
            if self.rest.len() > MAX_LINE {
                return None;
            }
            if let Ok(data) = self.stream.as_mut()?.frame().await?.ok()?.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}

impl Progress {
    /// Nothing may stand still for longer than `limit`.
    pub(crate) fn new(now: Instant, limit: Duration) -> Self {
        Self { limit, until: now + limit, mark: String::new() }
    }

    /// It is as `mark` says.
    pub(crate) fn on_mark(&mut self, now: Instant, mark: &str) {
        if self.mark != mark {
            mark.clone_into(&mut self.mark);
            self.until = now + self.limit;
        }
    }

    /// For how long nothing moved, when that is too long.
    pub(crate) fn stalled(&self, now: Instant) -> Option<Duration> {
        (now >= self.until).then_some(self.limit)
    }
}

fn read(line: &[u8]) -> Option<Said> {
    let json: Value = serde_json::from_slice(line.strip_prefix(b"data:")?).ok()?;
    if !matches!(json.get("event")?.as_str()?, "status_change" | "model_status") {
        return None;
    }
    let data = json.get("data")?;
    let progress = data.get("progress").map_or_else(String::new, Value::to_string);
    let mark = format!("{} {progress}", data.get("status")?.as_str()?);
    Some(Said { model: json.get("model")?.as_str()?.to_owned(), mark })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: &str, data: &str) -> Vec<u8> {
        format!("data: {{\"model\":\"g\",\"event\":\"{event}\",\"data\":{data}}}\n").into_bytes()
    }

    #[test]
    fn both_spellings_are_news_and_nothing_else_is() {
        for event in ["status_change", "model_status"] {
            let said = read(&line(event, r#"{"status":"loading","progress":{"value":0.5}}"#)).expect("news");
            assert_eq!((said.model.as_str(), said.mark.as_str()), ("g", r#"loading {"value":0.5}"#));
        }
        assert_eq!(read(&line("models_reload", r#"{"status":"loading"}"#)), None);
        for other in
            [line("status_change", "{}"), line("status_change", "7"), b": ping\n".to_vec(), b"data: {\n".to_vec()]
        {
            assert_eq!(read(&other), None, "{}", String::from_utf8_lossy(&other));
        }
    }

    #[test]
    fn only_what_moves_puts_the_end_off() {
        let (limit, start) = (Duration::from_mins(2), Instant::now());
        let mut progress = Progress::new(start, limit);
        let later = |n: u32| start + limit / 4 * n;
        progress.on_mark(later(3), "loading 0.1");
        assert_eq!(progress.stalled(later(6)), None);
        progress.on_mark(later(6), "loading 0.1");
        assert_eq!(progress.stalled(later(7)), Some(limit), "the same again is no progress");
        progress.on_mark(later(7), "loading 0.2");
        assert_eq!((progress.stalled(later(10)), progress.stalled(later(11))), (None, Some(limit)));
    }
}
