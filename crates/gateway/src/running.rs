//! Requests to models that are not over yet, and how an operator ends one: [`Running`].
//!
//! ```text
//! answering ──────► flowing ──────► over
//!     │ dropped         │ its body is dropped: the engine's connection closes, the lease is given back
//!     └────────► cancelled ◄────────┘
//!                    │ the client is told: a status, or the API's event of an error; where neither is possible it breaks off
//!                    └──► over
//! ```
//!
//! What a request holds is dropped by whoever cancels it, at once: a client that does not read could keep it otherwise.
use crate::{
    body::{BodyError, ReplyBody, boxed},
    errors::Failure,
    family::Caller,
    loading::is_event_stream,
    ollama::NDJSON,
    relay::Events,
    usage::Recorder,
};
use bytes::Bytes;
use http::{HeaderMap, Response, header};
use http_body::{Body, Frame, SizeHint};
use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};
use tokio::sync::Notify;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<Requests>);

#[derive(Debug, Default)]
struct Requests {
    n_entered: u64,
    by_number: BTreeMap<u64, Arc<One>>,
}

#[derive(Debug)]
struct One {
    /// Its id, which clients choose: two may have the same.
    id: String,
    stage: Mutex<Stage>,
    /// Told once, when it is cancelled while it is answered.
    cancelled: Notify,
}

#[derive(Debug)]
enum Stage {
    Answering,
    Flowing { body: ReplyBody, reader: Option<Waker> },
    Cancelled,
    Over,
}

/// The number of a request's place, unlike its name its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry(pub(crate) u64);

/// A request's place among them. Dropped, it is over.
#[derive(Debug)]
pub(crate) struct Ticket {
    all: Arc<Running>,
    number: u64,
    one: Arc<One>,
}

impl Running {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request with this id begins.
    pub(crate) fn enter(self: &Arc<Self>, id: &str) -> Ticket {
        let mut requests = self.requests();
        let number = requests.n_entered;
        requests.n_entered += 1;
        drop(requests);
        self.go_on(Entry(number), id)
    }

    /// The request of this entry goes on behind its head: what it holds ends with this ticket, not with the one before.
    pub(crate) fn go_on(self: &Arc<Self>, Entry(number): Entry, id: &str) -> Ticket {
        let one = Arc::new(One { id: id.to_owned(), stage: Mutex::new(Stage::Answering), cancelled: Notify::new() });
        self.requests().by_number.insert(number, Arc::clone(&one));
        Ticket { all: Arc::clone(self), number, one }
    }

    /// Ends the request of this entry. Whether it had not ended.
    pub(crate) fn cancel_one(&self, number: u64) -> bool {
        let one = self.requests().by_number.get(&number).cloned();
        one.is_some_and(|one| one.cancel())
    }

    /// Ends every request with this id. Whether there was one.
    pub(crate) fn cancel(&self, id: &str) -> bool {
        let these: Vec<_> = self.requests().by_number.values().filter(|one| one.id == id).cloned().collect();
        // Outside of the lock: what they hold comes back to whoever may want it.
        these.iter().filter(|one| one.cancel()).count() > 0
    }
}

impl One {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel(&self) -> bool {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Cancelled) {
            Stage::Answering => self.cancelled.notify_one(),
            Stage::Flowing { body, reader } => {
                drop(stage);
                drop(body);
                if let Some(reader) = reader {
                    reader.wake();
                }
            }
            ended @ (Stage::Cancelled | Stage::Over) => {
                *stage = ended;
                return false;
            }
        }
        true
    }
}

impl Ticket {
    pub(crate) fn entry(&self) -> Entry {
        Entry(self.number)
    }

    /// What `answer` gives, unless the request is cancelled before.
    pub(crate) async fn unless_cancelled<T>(
        &self,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.one.cancelled.notified() => Err(cancelled()),
            answer = answer => answer,
        }
    }

    /// `reply`, whose body can be cancelled to its last byte.
    pub(crate) fn follow(
        self,
        reply: Response<ReplyBody>,
        caller: Caller,
        recorder: Recorder,
    ) -> Result<Response<ReplyBody>, Failure> {
        let (head, body) = reply.into_parts();
        let caller = Some(caller).filter(|_| ends_in_words(&head.headers));
        {
            let mut stage = self.one.stage();
            if matches!(*stage, Stage::Cancelled) {
                return Err(cancelled());
            }
            *stage = Stage::Flowing { body, reader: None };
        }
        let body = Cancellable { ticket: self, caller, recorder, events: Events::default() };
        Ok(Response::from_parts(head, boxed(body)))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let left = std::mem::replace(&mut *self.one.stage(), Stage::Over);
        drop(left);
        let mut requests = self.all.requests();
        if requests.by_number.get(&self.number).is_some_and(|one| Arc::ptr_eq(one, &self.one)) {
            requests.by_number.remove(&self.number);
        }
    }
}

fn cancelled() -> Failure {
    Failure::Cancelled("an operator cancelled this request".into())
}

/// Whether an error can be said inside such a reply.
fn ends_in_words(headers: &HeaderMap) -> bool {
    is_event_stream(headers) || headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == NDJSON)
}

struct Cancellable {
    ticket: Ticket,
    /// Who is told inside the reply.
    caller: Option<Caller>,
    recorder: Recorder,
    events: Events,
}

impl Cancellable {
    fn last(&self) -> Result<Frame<Bytes>, BodyError> {
        let failure = cancelled();
        self.recorder.failed(&failure);
        match &self.caller {
            Some(caller) => Ok(Frame::data(self.events.last(&failure, caller))),
            None => Err(failure.into()),
        }
    }
}

impl Body for Cancellable {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let one = Arc::clone(&self.ticket.one);
        let mut stage = one.stage();
        let frame = match &mut *stage {
            Stage::Flowing { body, reader } => match Pin::new(body).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    if !reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
                        *reader = Some(cx.waker().clone());
                    }
                    return Poll::Pending;
                }
            },
            Stage::Cancelled => {
                *stage = Stage::Over;
                return Poll::Ready(Some(self.last()));
            }
            Stage::Answering | Stage::Over => None,
        };
        match frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref)) {
            Some(Ok(Some(bytes))) if self.caller.is_some() => self.events.pass(bytes),
            Some(_) => {}
            None => *stage = Stage::Over,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &*self.ticket.one.stage() {
            Stage::Flowing { body, .. } => body.is_end_stream(),
            Stage::Answering | Stage::Cancelled => false,
            Stage::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &*self.ticket.one.stage() {
            Stage::Flowing { body, .. } => body.size_hint(),
            Stage::Over => SizeHint::with_exact(0),
            Stage::Answering | Stage::Cancelled => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use http_body_util::BodyExt;

    /// A reply that stops behind its first bytes.
    struct Stops(Option<Bytes>);

    impl Body for Stops {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            self.0.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(Frame::data(bytes)))))
        }
    }

    /// All that its client reads of a reply of this kind that was cancelled behind these bytes.
    async fn cancelled_behind(bytes: &'static str, (family, kind): (Family, &'static str)) -> String {
        let running = Arc::<Running>::default();
        let caller = Caller { family, request: "mine".into() };
        let mut reply = Response::new(boxed(Stops(Some(bytes.into()))));
        reply.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
        let recorder = Recorder::new(Arc::default(), "mine", "/", tracing::Span::none());
        let reply = running.enter("mine").follow(reply, caller, recorder).expect("nobody cancelled it yet");
        let mut body = reply.into_body();
        let first = body.frame().await.expect("a frame").expect("it is whole").into_data().expect("data");
        assert!(running.cancel("mine"));
        let rest = body.collect().await.expect("an orderly end").to_bytes();
        assert!(!running.cancel("mine"), "it is over");
        [first, rest].iter().map(|bytes| String::from_utf8_lossy(bytes)).collect()
    }

    #[test]
    fn what_follows_a_head_is_ended_by_the_requests_own_number() {
        let running = Arc::<Running>::default();
        let head = running.enter("mine");
        let number = head.number;
        let rest = running.go_on(head.entry(), "mine");
        drop(head);
        assert!(running.cancel_one(number), "it goes on");
        drop(rest);
        assert!(!running.cancel_one(number) && running.requests().by_number.is_empty());
    }

    #[tokio::test]
    async fn what_tells_of_a_cancel_stands_alone_whatever_was_cut_by_it() {
        const EVENTS: (Family, &str) = (Family::OpenAi, "text/event-stream");
        const LINES: (Family, &str) = (Family::Ollama, NDJSON);
        for (bytes, form, between) in [
            ("data: {}\n\n", EVENTS, ""),
            ("data: {", EVENTS, "\n\n"),
            ("data: {}\n", EVENTS, "\n\n"),
            ("{}\n", LINES, ""),
            ("{", LINES, "\n"),
        ] {
            let read = cancelled_behind(bytes, form).await;
            let told = read.strip_prefix(&format!("{bytes}{between}")).unwrap_or_else(|| panic!("{bytes:?}: {read:?}"));
            let begin = if form == LINES { "{\"error\":" } else { "data: {\"error\":" };
            assert!(told.starts_with(begin), "{bytes:?}: {read:?}");
        }
    }
}
