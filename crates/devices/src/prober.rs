//! [`Prober`]: a probe that may block for ever, on a thread of its own.
//!
//! The driver of a sick card does not answer, and a call into it cannot be taken back. So nobody waits for it:
//!
//! ```text
//!           start                    poll before `patience`
//!   Idle ──────────────▶ Running ───────────────────────────▶ Running
//!    ▲  ▲                  │ │ poll from `patience` on
//!    │  └──── Answered ◀───┘ └──────────────▶ Stuck ──┐ poll
//!    │          the answer, once               │  ▲───┘
//!    └─────────────────────────────────────────┘
//!            it came back: its answer is dropped
//! ```
//!
//! Invariants: **P1** no method blocks but [`Prober::ask`], and that no longer than it is told. **P2** at most one
//! call of the probe is under way. **P3** an answer that was given up is dropped, for it may tell of a time before
//! the card was sick; the next [`Prober::start`] asks anew. Points in time are the caller's.
//! A probe that panics stays stuck.
use motorpool_vocab::Now;
use parking_lot::{Condvar, Mutex};
use std::{io, sync::Arc, thread, time::Duration};

/// One probe and its thread, which ends when this is dropped and the probe, if it is under way, has returned.
#[derive(Debug)]
pub struct Prober<T> {
    shared: Arc<Shared<T>>,
    patience: Duration,
}

/// How a probe stands. An answer is handed out once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe<T> {
    /// It is not under way and has no answer.
    Idle,
    /// It is under way, not for long yet.
    Running {
        /// When it was started.
        since: Now,
    },
    /// It is under way for longer than the prober's patience.
    Stuck {
        /// When it was started.
        since: Now,
    },
    /// Here is the answer.
    Answered(T),
}

/// What a start did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The probe runs, or will at once.
    Now,
    /// An earlier call is under way: nothing was done.
    Already {
        /// When that was started.
        since: Now,
    },
}

#[derive(Debug)]
struct Shared<T> {
    phase: Mutex<Phase<T>>,
    changed: Condvar,
}

#[derive(Debug)]
enum Phase<T> {
    Idle,
    Wanted { since: Now },
    Running { since: Now },
    GivenUp { since: Now },
    Answered(T),
    Closed,
}

impl<T: Send + 'static> Prober<T> {
    /// Starts the thread, called `name`. A probe is stuck once it runs for `patience`. `on_answer` is called on that
    /// thread whenever the probe returned, after the answer lies ready: a place to wake whoever polls.
    pub fn new(
        name: &str,
        patience: Duration,
        mut probe: impl FnMut() -> T + Send + 'static,
        mut on_answer: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared { phase: Mutex::new(Phase::Idle), changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            while of_thread.await_wanted() {
                let answer = probe();
                of_thread.answer(answer);
                on_answer();
            }
        })?;
        Ok(Self { shared, patience })
    }

    /// Starts the probe unless it is under way. An answer that nobody fetched is dropped.
    pub fn start(&self, now: Now) -> Started {
        let mut phase = self.shared.phase.lock();
        match *phase {
            Phase::Wanted { since } | Phase::Running { since } | Phase::GivenUp { since } => Started::Already { since },
            Phase::Idle | Phase::Answered(_) | Phase::Closed => {
                *phase = Phase::Wanted { since: now };
                self.shared.changed.notify_all();
                Started::Now
            }
        }
    }

    /// How it stands. From the poll that finds a call stuck, its answer is no longer wanted.
    pub fn poll(&self, now: Now) -> Probe<T> {
        self.shared.phase.lock().poll(now, self.patience)
    }

    /// Starts the probe unless it is under way, and waits for the answer: at most `patience`, and not at all for one
    /// that is stuck already. For commands; a loop polls.
    pub fn ask(&self, now: Now) -> Probe<T> {
        if let Started::Already { .. } = self.start(now) {
            match self.poll(now) {
                Probe::Running { .. } => {}
                // One that was stuck came back this instant.
                Probe::Idle => drop(self.start(now)),
                answered_or_stuck => return answered_or_stuck,
            }
        }
        let mut phase = self.shared.phase.lock();
        let is_under_way = |phase: &mut Phase<T>| matches!(phase, Phase::Wanted { .. } | Phase::Running { .. });
        self.shared.changed.wait_while_for(&mut phase, is_under_way, self.patience);
        // Whoever has waited that long has waited `patience`, whatever the clock of the caller says.
        phase.poll(now.after(self.patience), self.patience)
    }
}

impl<T> Phase<T> {
    fn poll(&mut self, now: Now, patience: Duration) -> Probe<T> {
        match *self {
            Self::Wanted { since } | Self::Running { since } if now.since(since) < patience => Probe::Running { since },
            // The thread has not come to it: what it will read is of a later time, and wanted.
            Self::Wanted { since } => Probe::Stuck { since },
            Self::Running { since } | Self::GivenUp { since } => {
                *self = Self::GivenUp { since };
                Probe::Stuck { since }
            }
            Self::Answered(_) => match std::mem::replace(self, Self::Idle) {
                Self::Answered(answer) => Probe::Answered(answer),
                _ => Probe::Idle,
            },
            Self::Idle | Self::Closed => Probe::Idle,
        }
    }
}

impl<T> Shared<T> {
    /// Waits for work; false once nobody can give any.
    fn await_wanted(&self) -> bool {
        let mut phase = self.phase.lock();
        loop {
            match *phase {
                Phase::Wanted { since } => {
                    *phase = Phase::Running { since };
                    return true;
                }
                Phase::Closed => return false,
                _ => self.changed.wait(&mut phase),
            }
        }
    }

    fn answer(&self, answer: T) {
        let mut phase = self.phase.lock();
        match *phase {
            Phase::Running { .. } => *phase = Phase::Answered(answer),
            Phase::GivenUp { .. } => *phase = Phase::Idle,
            _ => {}
        }
        self.changed.notify_all();
    }
}

impl<T> Drop for Prober<T> {
    fn drop(&mut self) {
        *self.shared.phase.lock() = Phase::Closed;
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const PATIENCE: Duration = Duration::from_secs(2);
    const MINUTE: Duration = Duration::from_mins(1);

    /// A driver that answers what it is told to, when it is told to.
    struct Driver {
        prober: Prober<u32>,
        entered: Receiver<()>,
        answers: Sender<u32>,
        answered: Receiver<()>,
    }

    impl Driver {
        fn new() -> Self {
            let (enter, entered) = channel();
            let (answers, answer) = channel();
            let (done, answered) = channel();
            let probe = move || {
                enter.send(()).expect("the test listens");
                answer.recv().expect("the test answers")
            };
            let wake = move || done.send(()).unwrap_or_default();
            let prober = Prober::new("probe", PATIENCE, probe, wake).expect("a thread");
            Self { prober, entered, answers, answered }
        }

        fn start(&self, now: Now) {
            assert_eq!(self.prober.start(now), Started::Now);
            self.entered.recv().expect("the probe was called");
        }

        fn answer(&self, answer: u32) {
            self.answers.send(answer).expect("the probe listens");
            self.answered.recv().expect("the answer lies ready");
        }
    }

    fn at(seconds: u64) -> Now {
        Now::ZERO.after(Duration::from_secs(seconds))
    }

    #[test]
    fn an_answer_is_handed_out_once() {
        let driver = Driver::new();
        assert_eq!(driver.prober.poll(at(0)), Probe::Idle);
        driver.start(at(1));
        assert_eq!(driver.prober.poll(at(2)), Probe::Running { since: at(1) });
        driver.answer(7);
        assert_eq!(driver.prober.poll(at(2)), Probe::Answered(7));
        assert_eq!(driver.prober.poll(at(2)), Probe::Idle);
    }

    #[test]
    fn a_probe_that_hangs_is_stuck_since_its_start_and_not_started_twice() {
        let driver = Driver::new();
        driver.start(at(1));
        assert_eq!(driver.prober.start(at(2)), Started::Already { since: at(1) });
        assert_eq!(driver.prober.poll(at(3)), Probe::Stuck { since: at(1) });
        assert_eq!(driver.prober.start(at(4)), Started::Already { since: at(1) });
        assert_eq!(driver.prober.poll(at(50)), Probe::Stuck { since: at(1) });
        driver.answer(7);
        assert!(driver.entered.try_recv().is_err(), "one start, one call");
    }

    #[test]
    fn a_probe_that_comes_back_late_is_asked_anew_and_its_old_answer_dropped() {
        let driver = Driver::new();
        driver.start(at(1));
        assert_eq!(driver.prober.poll(at(60)), Probe::Stuck { since: at(1) });
        driver.answer(7);
        assert_eq!(driver.prober.poll(at(61)), Probe::Idle);
        driver.start(at(61));
        driver.answer(8);
        assert_eq!(driver.prober.poll(at(61)), Probe::Answered(8));
    }

    #[test]
    fn an_answer_that_nobody_fetched_gives_way_to_a_new_one() {
        let driver = Driver::new();
        driver.start(at(1));
        driver.answer(7);
        driver.start(at(5));
        assert_eq!(driver.prober.poll(at(5)), Probe::Running { since: at(5) });
        driver.answer(8);
        assert_eq!(driver.prober.poll(at(5)), Probe::Answered(8));
    }

    #[test]
    fn a_command_gets_the_answer_or_the_word_that_there_is_none() {
        let answering = Prober::new("probe", MINUTE, || 7, || ()).expect("a thread");
        assert_eq!(answering.ask(at(1)), Probe::Answered(7));
        assert_eq!(answering.ask(at(2)), Probe::Answered(7));
        let (never, answer) = channel::<u32>();
        let hanging = Prober::new("probe", Duration::ZERO, move || answer.recv().ok(), || ()).expect("a thread");
        assert_eq!(hanging.ask(at(1)), Probe::Stuck { since: at(1) });
        assert_eq!(hanging.ask(at(9)), Probe::Stuck { since: at(1) }, "no second wait");
        drop(never);
    }

    #[test]
    fn a_prober_that_is_dropped_ends_its_thread() {
        let driver = Driver::new();
        driver.start(at(1));
        drop(driver.prober);
        driver.answers.send(7).expect("the probe listens");
        while driver.answered.recv().is_ok() {}
        assert!(driver.answers.send(8).is_err(), "the probe and its end of the channel are gone");
    }
}
