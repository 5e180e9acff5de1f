//! Replies of engines that cannot bear an abort: [`to_the_end`] reads them to their end, whether their client stays or not.
//!
//! ```text
//! exchange ─► task of its own ─► one frame at a time ─► client
//!                  └── the client has gone ─► read on, to nobody, so long and no longer; the lease goes back behind it
//! ```
//!
//! A client that reads slowly holds the engine up as it does elsewhere: one frame is on its way at a time. Who leaves before
//! it has a lease never reaches the engine. A form whose client breaks off in the middle cannot be finished by anybody.
use crate::body::{BodyError, ReplyBody, boxed};
use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

type Piece = Result<Frame<Bytes>, BodyError>;

/// What `exchange` gives. Dropped, it goes on for `within` at most, reply included. `place` is let go as soon as the engine
/// has given its last byte, before the client reads it. `None`: it broke off by a panic.
pub(crate) async fn to_the_end<E: Send + 'static, H: Send + 'static>(
    exchange: impl Future<Output = Result<Response<ReplyBody>, E>> + Send + 'static,
    within: Duration,
    place: H,
) -> Option<Result<Response<ReplyBody>, E>> {
    let (mut answer, told) = oneshot::channel();
    tokio::spawn(async move {
        let mut exchange = Box::pin(exchange);
        let done = tokio::select! {
            biased;
            done = exchange.as_mut() => done,
            () = answer.closed() => {
                return in_time(within, async {
                    let _place = place;
                    if let Ok(reply) = exchange.await {
                        read_on(reply.into_body()).await;
                    }
                })
                .await;
            }
        };
        let (head, body) = match done {
            Ok(reply) => reply.into_parts(),
            Err(error) => {
                drop(place);
                return drop(answer.send(Err(error)));
            }
        };
        let place = (!body.is_end_stream()).then_some(place);
        let (frames, taken) = mpsc::channel(1);
        let piped = Piped { frames: taken, left: body.size_hint().exact() };
        // Who has gone meanwhile has dropped the other end of the frames.
        let _ = answer.send(Ok(Response::from_parts(head, boxed(piped))));
        pass((body, place), frames, within).await;
    });
    told.await.ok()
}

/// Gives frames to the client as long as it is there, then to nobody.
async fn pass<H>((mut body, mut place): (ReplyBody, Option<H>), frames: mpsc::Sender<Piece>, within: Duration) {
    loop {
        tokio::select! {
            biased;
            () = frames.closed() => return in_time(within, read_on(body)).await,
            frame = body.frame() => match frame {
                // Before the end is told, which is when the sender goes.
                None => return drop(place.take()),
                Some(frame) => {
                    if body.is_end_stream() {
                        place = None;
                    }
                    // Who has gone just now is seen in the next turn.
                    drop(frames.send(frame).await);
                }
            },
        }
    }
}

async fn read_on(mut body: ReplyBody) {
    while let Some(Ok(_)) = body.frame().await {}
}

async fn in_time(within: Duration, work: impl Future<Output = ()>) {
    if tokio::time::timeout(within, work).await.is_err() {
        tracing::warn!("an engine did not come to the end of a reply in time: its client has gone, it is cut");
    }
}

/// The client's end of a reply.
struct Piped {
    frames: mpsc::Receiver<Piece>,
    /// Bytes to come, where that is known.
    left: Option<u64>,
}

impl Body for Piped {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let frame = ready!(self.frames.poll_recv(cx));
        let n = frame.iter().flatten().filter_map(Frame::data_ref).map(|bytes| bytes.len() as u64).sum();
        self.left = self.left.map(|left| left.saturating_sub(n));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map(SizeHint::with_exact).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::{empty, full};
    use std::sync::Arc;
    use tokio::{
        sync::Notify,
        time::{Instant, Sleep, sleep},
    };

    const SECOND: Duration = Duration::from_secs(1);
    const LONG: Duration = Duration::from_mins(10);

    /// A reply of some frames, a second apart, that tells when it is dropped.
    struct Slow {
        n_left: u32,
        timer: Pin<Box<Sleep>>,
        dropped: Arc<Notify>,
    }

    impl Body for Slow {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
            if self.n_left == 0 {
                return Poll::Ready(None);
            }
            ready!(self.timer.as_mut().poll(cx));
            self.timer.as_mut().reset(Instant::now() + SECOND);
            self.n_left -= 1;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            self.dropped.notify_one();
        }
    }

    fn slow(n_left: u32) -> (Response<ReplyBody>, Arc<Notify>) {
        let dropped = Arc::<Notify>::default();
        let body = Slow { n_left, timer: Box::pin(sleep(SECOND)), dropped: Arc::clone(&dropped) };
        (Response::new(boxed(body)), dropped)
    }

    #[tokio::test(start_paused = true)]
    async fn who_stays_reads_everything() {
        let (reply, dropped) = slow(5);
        let reply = to_the_end(async { Ok::<_, ()>(reply) }, LONG, ()).await.expect("no panic").expect("a reply");
        assert_eq!(reply.into_body().collect().await.expect("whole").to_bytes(), "xxxxx");
        dropped.notified().await;
        let refused = to_the_end(async { Err::<Response<ReplyBody>, _>("no") }, LONG, ()).await.expect("no panic");
        assert_eq!(refused.err(), Some("no"));
        let whole = to_the_end(async { Ok::<_, ()>(Response::new(full("abc"))) }, LONG, ()).await;
        let mut body = whole.expect("no panic").expect("a reply").into_body();
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(3), false));
        body.frame().await.expect("a frame").expect("whole");
        assert!(body.is_end_stream(), "its length is known");
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_leaves_a_reply_that_is_read_to_its_end_and_not_for_ever() {
        for (n_frames, within, lasts) in [(5, LONG, 5), (1000, Duration::from_secs(20), 22)] {
            let began = Instant::now();
            let (reply, dropped) = slow(n_frames);
            let reply = to_the_end(async { Ok::<_, ()>(reply) }, within, ()).await.expect("no panic").expect("a reply");
            let mut body = reply.into_body();
            for _ in 0..2 {
                body.frame().await.expect("a frame").expect("whole");
            }
            drop(body);
            dropped.notified().await;
            assert_eq!(began.elapsed().as_secs(), lasts, "{n_frames}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_before_the_reply_leaves_one_too() {
        // Its frames come from the first second on.
        for (n_frames, within, lasts) in [(5, LONG, 7), (1000, Duration::from_secs(20), 21)] {
            let began = Instant::now();
            let (reply, dropped) = slow(n_frames);
            let exchange = async move {
                sleep(SECOND * 3).await;
                Ok::<_, ()>(reply)
            };
            assert!(tokio::time::timeout(SECOND, to_the_end(exchange, within, ())).await.is_err(), "it goes");
            dropped.notified().await;
            assert_eq!(began.elapsed().as_secs(), lasts, "{n_frames}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_is_let_go_with_the_engines_last_byte_and_no_earlier() {
        let guard = || {
            let held = Arc::new(());
            (Arc::downgrade(&held), held)
        };
        for (n_read, leaves_at) in [(0, 1), (2, 2)] {
            let ((seen, held), (reply, dropped)) = (guard(), slow(5));
            let reply = to_the_end(async { Ok::<_, ()>(reply) }, LONG, held).await.expect("no panic").expect("a reply");
            let mut body = reply.into_body();
            for _ in 0..n_read {
                body.frame().await.expect("a frame").expect("whole");
            }
            drop(body);
            sleep(SECOND * leaves_at).await;
            assert!(seen.upgrade().is_some(), "the engine works on");
            dropped.notified().await;
            assert!(seen.upgrade().is_none());
        }
        let ((seen, held), (reply, dropped)) = (guard(), slow(5));
        let exchange = async move {
            sleep(SECOND * 3).await;
            Ok::<_, ()>(reply)
        };
        assert!(tokio::time::timeout(SECOND, to_the_end(exchange, LONG, held)).await.is_err(), "it goes");
        assert!(seen.upgrade().is_some(), "the engine works on");
        dropped.notified().await;
        assert!(seen.upgrade().is_none());
        // Who asks again at once finds it free.
        for reply in [slow(2).0, Response::new(full("abc")), Response::new(empty())] {
            let (seen, held) = guard();
            let reply = to_the_end(async { Ok::<_, ()>(reply) }, LONG, held).await.expect("no panic").expect("a reply");
            let mut body = reply.into_body();
            while !body.is_end_stream() && body.frame().await.is_some() {}
            assert!(seen.upgrade().is_none());
        }
    }
}
