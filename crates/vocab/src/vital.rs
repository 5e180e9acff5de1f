//! [`Vital`]: signs of life that requests leave behind, counted without asking the pool.
//!
//! Lies beside the word of a [`crate::Gate`], one per spawn. Whoever relays a reply counts; the pool looks now and then
//! and decides (`pool`'s `health.rs`). Counters only grow, but for the failures in a row, which an answer ends. Each is
//! its own word: a look that sees one of two changes sees the other at the next.
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What requests tell of one spawn. On a cache line of its own: frames must not slow down whoever enters.
#[derive(Debug)]
#[repr(align(128))]
pub struct Vital {
    moves: AtomicU64,
    answers: AtomicU64,
    failures: AtomicU32,
}

/// The counters at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// Heads, frames and ends of replies.
    pub moves: u64,
    /// Heads of replies that were no failure of the engine's.
    pub answers: u64,
    /// Failures since the last answer: statuses of 500 and more, connections that broke; one silence is as many as there can be.
    pub failures: u32,
}

impl Vital {
    pub(crate) fn new() -> Self {
        Self { moves: AtomicU64::new(0), answers: AtomicU64::new(0), failures: AtomicU32::new(0) }
    }

    /// A token, a frame, the end of a reply.
    pub fn moved(&self) {
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// The head of a reply that is no failure of the engine's.
    pub fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
        self.moved();
    }

    /// A status of 500 or more, or a connection that broke.
    pub fn failed(&self) {
        let more = |n: u32| Some(n.saturating_add(1));
        // Never refused: the closure always has an answer.
        let _ = self.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// A reply that did not begin, or did not go on, in all the time that it was given: no other failure has to follow.
    pub fn fell_silent(&self) {
        self.failures.store(u32::MAX, Ordering::Relaxed);
    }

    /// Failures so far are forgotten: something proved better.
    pub fn forgive(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// The counters now.
    pub fn look(&self) -> Signs {
        Signs {
            moves: self.moves.load(Ordering::Relaxed),
            answers: self.answers.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_a_row_of_failures_and_a_frame_does_not() {
        let vital = Vital::new();
        vital.failed();
        vital.failed();
        vital.moved();
        assert_eq!(vital.look(), Signs { moves: 1, answers: 0, failures: 2 });
        vital.answered();
        assert_eq!(vital.look(), Signs { moves: 2, answers: 1, failures: 0 });
        vital.failed();
        vital.forgive();
        assert_eq!(vital.look().failures, 0);
        vital.fell_silent();
        vital.failed();
        assert_eq!(vital.look().failures, u32::MAX, "one is enough, and one more is not too many");
    }
}
