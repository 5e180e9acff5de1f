//! A future that wakes itself is polled again at once: [`Inward`].
//!
//! A client's connection, its request and the engine's connection are one task here. When one of them stirs another, it wakes
//! the task that is just running; the runtime would put that at the end of its queue and wake a second thread to share the
//! work, for nothing, at every step of every request. So such wakes stay inside:
//!
//! ```text
//!            poll                        wake, from inside or outside
//!  idle ───────────► polling ───────────────────────────────────────► rung
//!   ▲ wake: passed on   │ returned: idle                                │ returned: polled again, [`AT_ONCE`] times
//!   └───────────────────┘◄──────────────────────────────────────────────┘ at most; then the runtime is asked
//! ```
//!
//! No wake is lost: one that comes while the future is polled has it polled again, any other is passed on.
use parking_lot::Mutex;
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

/// So often it is polled again before others have their turn.
const AT_ONCE: u32 = 4;

const IDLE: u8 = 0;
const POLLING: u8 = 1;
const RUNG: u8 = 2;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Inward<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
    /// Of the bell; made once.
    waker: Waker,
}

#[derive(Debug)]
struct Bell {
    state: AtomicU8,
    outer: Mutex<Waker>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let ring = |state| (state != IDLE).then_some(RUNG);
        if self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, ring).is_err() {
            self.outer.lock().wake_by_ref();
        }
    }
}

impl<F: Future> Inward<F> {
    pub(crate) fn new(future: F) -> Self {
        let bell = Arc::new(Bell { state: AtomicU8::new(IDLE), outer: Mutex::new(Waker::noop().clone()) });
        Self { future: Box::pin(future), waker: Arc::clone(&bell).into(), bell }
    }

    /// What it is, for whoever has more to tell it.
    pub(crate) fn inner(&mut self) -> Pin<&mut F> {
        self.future.as_mut()
    }
}

impl<F: Future> Future for Inward<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        this.bell.outer.lock().clone_from(cx.waker());
        for _ in 0..=AT_ONCE {
            this.bell.state.store(POLLING, Ordering::Release);
            let polled = this.future.as_mut().poll(&mut Context::from_waker(&this.waker));
            if polled.is_ready() {
                return polled;
            }
            if this.bell.state.swap(IDLE, Ordering::AcqRel) == POLLING {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future::poll_fn,
        sync::atomic::{AtomicU32, Ordering::Relaxed},
    };

    /// Counts how often the runtime is asked.
    #[derive(Default)]
    struct Asked(AtomicU32);

    impl Wake for Asked {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Polls once: what came of it, how often the future was polled, how often the runtime was asked.
    fn poll_once(wakes: u32) -> (Poll<u32>, u32, u32) {
        let asked = Arc::<Asked>::default();
        let (mut n, count) = (0, Arc::<AtomicU32>::default());
        let told = Arc::clone(&count);
        let mut inward = Inward::new(poll_fn(move |cx| {
            n += 1;
            told.store(n, Relaxed);
            match n {
                n if n <= wakes => cx.waker().wake_by_ref(),
                _ => return Poll::Pending,
            }
            if n == 100 { Poll::Ready(n) } else { Poll::Pending }
        }));
        let runtime: Waker = Arc::clone(&asked).into();
        let result = Pin::new(&mut inward).poll(&mut Context::from_waker(&runtime));
        (result, count.load(Relaxed), asked.0.load(Relaxed))
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_again_without_the_runtime() {
        assert_eq!(poll_once(0), (Poll::Pending, 1, 0));
        assert_eq!(poll_once(1), (Poll::Pending, 2, 0));
        assert_eq!(poll_once(AT_ONCE), (Poll::Pending, AT_ONCE + 1, 0));
    }

    #[test]
    fn one_that_never_stops_lets_others_have_their_turn() {
        assert_eq!(poll_once(50), (Poll::Pending, AT_ONCE + 1, 1));
    }

    #[test]
    fn a_wake_from_outside_is_passed_on_to_whoever_polled_last() {
        let (first, second) = (Arc::<Asked>::default(), Arc::<Asked>::default());
        let kept = Arc::new(Mutex::new(None::<Waker>));
        let keep = Arc::clone(&kept);
        let mut inward = Inward::new(poll_fn(move |cx| {
            *keep.lock() = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
        for asked in [&first, &second] {
            let waker: Waker = Arc::clone(asked).into();
            assert!(Pin::new(&mut inward).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        kept.lock().take().expect("it was polled").wake();
        assert_eq!((first.0.load(Relaxed), second.0.load(Relaxed)), (0, 1));
    }

    #[tokio::test]
    async fn a_result_comes_through_and_wakes_from_other_threads_are_not_lost() {
        for n in 0..200_u32 {
            let (tell, told) = tokio::sync::oneshot::channel();
            let thread = std::thread::spawn(move || tell.send(n));
            assert_eq!(Inward::new(told).await, Ok(n));
            assert!(thread.join().expect("no panic").is_ok());
        }
    }
}
