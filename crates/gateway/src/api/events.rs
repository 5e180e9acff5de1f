//! State changes of the pool as a stream of events, numbered and resumable.
//!
//! Each is one event of an SSE stream: `id` is our run and its number, `event` its kind, `data` the whole as JSON. Whoever
//! comes back says with `Last-Event-ID` which it heard last; numbers begin anew with each run, so one of another run
//! means everything that is kept. `?after=` takes a number of this run. What is not kept any more is an event `missed`.
use super::{Refused, Shared};
use crate::errors::Failure;
use axum::{
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use http_body::Frame;
use motorpool_supervisor::{Feed, News, Since};
use motorpool_vocab::{DeviceId, Event, EventKind, ExternalNotice, Fact, FailureClass, Now};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

/// A silent stream says so often that it lives.
const COMMENT_EVERY: Duration = Duration::from_secs(15);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    /// The number heard last; 0: everything that is kept.
    after: Option<u64>,
    /// `0`: what is kept, and no more.
    follow: Option<String>,
}

pub(super) async fn stream(
    State(context): Shared,
    headers: HeaderMap,
    wish: Result<Query<Wish>, QueryRejection>,
) -> Result<Response, Refused> {
    let Query(wish) = wish.map_err(|error| invalid(error.body_text()))?;
    let run = context.started_at;
    let heard = match (wish.after, headers.get("last-event-id")) {
        (Some(after), _) => Some(after),
        (None, None) => None,
        (None, Some(id)) => Some(heard(id, run).ok_or_else(|| invalid("`Last-Event-ID` is none of an event".into()))?),
    };
    let follows = !matches!(wish.follow.as_deref(), Some("0" | "false"));
    let since = match heard {
        Some(0) => Since::Kept,
        Some(seq) => Since::Event(seq),
        None if follows => Since::Now,
        None => Since::Kept,
    };
    let feed = context.handle.feed(since);
    let events = if follows { Events::Comes(step(feed, run)) } else { Events::Kept(feed, run) };
    let mut response = Response::new(Body::new(events));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    crate::loading::write_stream_headers(response.headers_mut());
    Ok(response)
}

fn invalid(message: String) -> Failure {
    Failure::InvalidRequest { message, param: None }
}

/// The number in the id of an event; 0 in that of another run.
fn heard(id: &HeaderValue, run: u64) -> Option<u64> {
    let (of, seq) = id.to_str().ok()?.split_once('-')?;
    let (of, seq): (u64, u64) = (of.parse().ok()?, seq.parse().ok()?);
    Some(if of == run { seq } else { 0 })
}

type Step = Pin<Box<dyn Future<Output = Option<(Bytes, Feed, u64)>> + Send>>;

/// The stream's body: what comes, or only what is kept.
enum Events {
    Comes(Step),
    Kept(Feed, u64),
    Ended,
}

fn step(mut feed: Feed, run: u64) -> Step {
    Box::pin(async move {
        let told = tokio::time::timeout(COMMENT_EVERY, feed.next()).await;
        let frame = match told {
            Ok(news) => frame(&news?, run),
            Err(_) => Bytes::from_static(b": nothing happened\n\n"),
        };
        Some((frame, feed, run))
    })
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let told = match &mut *self {
            Self::Kept(feed, run) => {
                return Poll::Ready(feed.take_kept().map(|news| Ok(Frame::data(frame(&news, *run)))));
            }
            Self::Comes(next) => ready!(next.as_mut().poll(cx)),
            Self::Ended => None,
        };
        let Some((bytes, feed, run)) = told else {
            *self = Self::Ended;
            return Poll::Ready(None);
        };
        *self = Self::Comes(step(feed, run));
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

fn frame(news: &News, run: u64) -> Bytes {
    let text = match news {
        News::Event(event) => {
            let (kind, document) = document(event);
            format!("id: {run}-{}\nevent: {kind}\ndata: {document}\n\n", event.seq)
        }
        News::Missed(n) => format!("event: missed\ndata: {}\n\n", json!({ "event": "missed", "missed": n })),
    };
    text.into()
}

/// The kind of an event, and the whole of it.
fn document(event: &Event) -> (&'static str, Value) {
    let (kind, mut members) = members(&event.kind);
    members.insert("event".into(), kind.into());
    members.insert("seq".into(), event.seq.into());
    members.insert("atMs".into(), super::wire::millis(event.at.since(Now::ZERO)).into());
    (kind, members.into())
}

/// The kind of an event and what it tells. Sizes are bytes, times milliseconds.
fn members(kind: &EventKind) -> (&'static str, Map<String, Value>) {
    let bytes = |bytes: &motorpool_vocab::Bytes| bytes.get();
    // None is system memory.
    let place = |device: &Option<DeviceId>| device.as_ref().map(ToString::to_string);
    let (name, value) = match kind {
        EventKind::Reserved { key, spawn, bytes: size } => {
            ("reserved", json!({ "key": key.to_string(), "spawn": spawn.0, "bytes": bytes(size) }))
        }
        EventKind::Ready { key, spawn, within } => {
            ("ready", json!({ "key": key.to_string(), "spawn": spawn.0, "withinMs": super::wire::millis(*within) }))
        }
        EventKind::Corrected { key, spawn, from, to } => (
            "corrected",
            json!({ "key": key.to_string(), "spawn": spawn.0, "fromBytes": bytes(from), "toBytes": bytes(to) }),
        ),
        EventKind::Overflow { by } => ("overflow", json!({ "bytes": bytes(by) })),
        EventKind::OverflowCured => ("overflow-cured", json!({})),
        EventKind::ReadingMissing { device } => ("reading-missing", json!({ "device": place(device) })),
        EventKind::DeviceLost { device } => ("device-lost", json!({ "device": device.to_string() })),
        EventKind::DeviceBack { device } => ("device-back", json!({ "device": device.to_string() })),
        EventKind::CpuFallback { key, spawn, planned } => {
            ("cpu-fallback", json!({ "key": key.to_string(), "spawn": spawn.0, "plannedBytes": bytes(planned) }))
        }
        EventKind::Pressure { device, free } => {
            ("pressure", json!({ "device": place(device), "freeBytes": free.as_ref().map(bytes) }))
        }
        EventKind::PressureOver { device } => ("pressure-over", json!({ "device": place(device) })),
        EventKind::Stopping { key, spawn, reason } => {
            ("stopping", json!({ "key": key.to_string(), "spawn": spawn.0, "reason": reason.as_str() }))
        }
        EventKind::Exited { key, record } => (
            "exited",
            json!({
                "key": key.to_string(), "spawn": record.spawn.0, "reason": record.reason.as_str(),
                "class": record.class.map(FailureClass::as_str), "code": record.code, "signal": record.signal,
            }),
        ),
        EventKind::Released { key, spawn } => ("released", json!({ "key": key.to_string(), "spawn": spawn.0 })),
        EventKind::Stuck { key, spawn } => ("stuck", json!({ "key": key.to_string(), "spawn": spawn.0 })),
        EventKind::DrainBegan { key, holders } => {
            ("drain-began", json!({ "key": key.to_string(), "holders": holders.len() }))
        }
        EventKind::DrainGivenUp { key } => ("drain-given-up", json!({ "key": key.to_string() })),
        EventKind::Deferred { key, why } => ("deferred", json!({ "key": key.to_string(), "why": why })),
        EventKind::GpuPaused { key, why } => ("gpu-paused", json!({ "key": key.to_string(), "why": why })),
        EventKind::StartFailed { key, class } => {
            ("start-failed", json!({ "key": key.to_string(), "class": class.as_str() }))
        }
        EventKind::BreakerOpened { key, class, within } => (
            "breaker-opened",
            json!({ "key": key.to_string(), "class": class.as_str(), "withinMs": super::wire::millis(*within) }),
        ),
        EventKind::Quarantined { key, program } => {
            ("quarantined", json!({ "key": key.to_string(), "program": program.display().to_string() }))
        }
        EventKind::Suspected { key, spawn, why } => {
            ("suspected", json!({ "key": key.to_string(), "spawn": spawn.0, "why": why }))
        }
        EventKind::Recovered { key, spawn } => ("recovered", json!({ "key": key.to_string(), "spawn": spawn.0 })),
        EventKind::Reset { model } => ("reset", json!({ "model": model.as_ref().map(ToString::to_string) })),
        EventKind::ContextClamped { key, wanted, context_per_slot, slots } => (
            "context-clamped",
            json!({ "key": key.to_string(), "wanted": wanted, "contextPerSlot": context_per_slot, "slots": slots }),
        ),
        EventKind::ContextGrown { key, from, context_per_slot, slots } => (
            "context-grown",
            json!({ "key": key.to_string(), "from": from, "contextPerSlot": context_per_slot, "slots": slots }),
        ),
        EventKind::ContextDenied { key, asked, fits, would_commit, bound } => (
            "context-denied",
            json!({
                "key": key.to_string(), "asked": asked, "fits": fits,
                "wouldCommitBytes": bytes(would_commit), "boundBytes": bytes(bound),
            }),
        ),
        EventKind::CapacityDenied { key, requested, would_commit, bound } => (
            "capacity-denied",
            json!({
                "key": key.to_string(), "requestedBytes": bytes(requested),
                "wouldCommitBytes": bytes(would_commit), "boundBytes": bytes(bound),
            }),
        ),
        EventKind::External(notice) => ("external-notice", external(notice)),
        EventKind::ExternalChanged { target, server, change, model } => {
            ("external-changed", json!({ "target": target, "server": server, "change": change, "model": model }))
        }
        EventKind::Reloaded { draining } => {
            ("reloaded", json!({ "draining": draining.iter().map(ToString::to_string).collect::<Vec<_>>() }))
        }
        EventKind::Closing => ("closing", json!({})),
    };
    let Value::Object(members) = value else { return (name, Map::new()) };
    (name, members)
}

fn external(notice: &ExternalNotice) -> Value {
    let fact = |fact: &Fact| match fact {
        Fact::Number(n) => Value::from(*n),
        Fact::Text(text) => text.as_str().into(),
        Fact::List(names) => names.clone().into(),
    };
    let detail: Map<_, _> = notice.detail.iter().map(|(name, value)| ((*name).to_owned(), fact(value))).collect();
    json!({
        "kind": notice.kind, "level": notice.level, "target": notice.target, "server": notice.server,
        "model": notice.model, "message": notice.message, "detail": detail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_its_number_its_kind_and_what_it_tells() {
        let key = "llama-server:m:1".parse().expect("a key");
        let event = Event {
            seq: 7,
            at: Now::from_nanos(2_000_000),
            kind: EventKind::Deferred { key, why: "there is no room".into() },
        };
        let text = String::from_utf8(frame(&News::Event(event), 9).to_vec()).expect("text");
        let (head, data) = text.split_once("data: ").expect("data");
        assert_eq!(head, "id: 9-7\nevent: deferred\n");
        let data: Value = serde_json::from_str(data.trim_end()).expect("JSON");
        let wanted = json!({
            "event": "deferred", "seq": 7, "atMs": 2, "key": "llama-server:m:1", "why": "there is no room",
        });
        assert_eq!(data, wanted);
    }

    #[test]
    fn the_number_of_another_run_is_none_of_this_one() {
        let heard = |id| heard(&HeaderValue::from_static(id), 9);
        assert_eq!([heard("9-7"), heard("8-7"), heard("7"), heard("9-x")], [Some(7), Some(0), None, None]);
    }

    #[test]
    fn who_was_too_slow_is_told_how_many_it_missed() {
        let text = String::from_utf8(frame(&News::Missed(12), 9).to_vec()).expect("text");
        assert!(text.starts_with("event: missed\ndata: {") && text.contains("\"missed\":12"), "{text}");
    }
}
